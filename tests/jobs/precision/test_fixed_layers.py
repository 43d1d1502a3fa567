"""What a precision search leaves alone: nodes that stay high or low because somebody, or a branch, says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.harness import Run, winnow
from tests.jobs.models import parsed
from tests.jobs.precision.test_precision import network, search
from tests.matrix import sample

PRECISION = sample(("precision", "precision_bisect"), 2)


def why(run: Run) -> dict[str, str]:
    return {one["node"]: one["reason"] for one in run.result["precision"]["selected"]}


@pytest.mark.variants
@pytest.mark.parametrize("strategy", PRECISION)
@pytest.mark.parametrize(
    ("pattern", "nodes"),
    [("down3", {"down3"}), ("Div", {"down3", "down7"}), ("[ud]*3", {"up3", "down3"}), ("layer[3]", {"layer[3]"})],
)
def test_nodes_stay_high_by_name_pattern_and_operator(
    tmp_path: Path, strategy: str, pattern: str, nodes: set[str]
) -> None:
    model = network(3, 7)
    next(node for node in model.graph.node if node.name == "tanh3").name = "layer[3]"
    run = search(tmp_path, model, f"strategy.exclude=['{pattern}']", strategy=strategy, code=4 if "up3" in nodes else 0)
    reasons = why(run)
    assert {node for node, reason in reasons.items() if reason == f"strategy.exclude={pattern}"} == nodes
    told = run.result["precision"]
    assert nodes <= set(told["nodes_to_exclude"]) and not nodes & set(run.result["culprits"])
    stay = f"{len(nodes)} nodes that are not" if len(nodes) > 1 else "1 node that is not"
    assert run.code == 4 or stay in run.result["message"]
    # what was not searched is not among what has to be high
    culprits, of = run.result["culprits"], f"of {run.result['nodes']['before']} nodes"
    needed = f"{len(culprits)} {of} {'has' if len(culprits) == 1 else 'have'} to be in float32"
    title = needed if run.result["minimality"] == "1-minimal" else f"{len(nodes) + len(culprits)} {of} are in float32"
    assert run.code == 4 or (run.folder / "REPORT.md").read_text().startswith(f"# {title}")
    assert run.result["nodes"]["after"] == len(nodes) + len(run.result["culprits"])


@pytest.mark.slow
def test_what_stays_high_is_no_part_of_what_can_be_low(tmp_path: Path) -> None:
    run = search(tmp_path, network(), "strategy.exclude=[Tanh]", code=4)
    message = run.result["message"]
    assert message.startswith(
        "all but 10 nodes, which stay in float32 unsearched, can be in float16 (emulated: each tensor is"
    )
    assert "no other node has to be in float32" in message
    assert (run.folder / "REPORT.md").read_text().startswith("# all but 10 of 30 nodes can be in float16\n")
    assert run.screen[0].startswith("nothing_to_find: all but 10 nodes"), "and no count of nodes as if that were found"


@pytest.mark.parametrize("strategy", PRECISION)
def test_nodes_stay_low_whatever_is_found(tmp_path: Path, strategy: str) -> None:
    run = search(tmp_path, network(3, 7), "strategy.include=['product*', Tanh]", strategy=strategy)
    assert {"up3", "down3"} <= set(run.result["culprits"])
    assert not [name for name in run.result["precision"]["nodes_to_exclude"] if name.startswith(("product", "tanh"))]


def test_no_set_suffices_where_a_culprit_has_to_be_low(tmp_path: Path) -> None:
    """Whatever was measured of it."""
    run = search(tmp_path, network(3, 7), "strategy.include=[up3]", "strategy.at_least=['range > 512']", code=5)
    assert "the check fails even with everything in float32 but 1 node of strategy.include" in run.result["message"]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("strategy.exclude=[Tanh]", "strategy.include=[tanh3]"),
            "strategy.exclude and strategy.include both name tanh3",
        ),
        (("strategy.exclude=[Tahn]",), "has 'Tahn' as its name or operator (did you mean Tanh?)"),
        (("strategy.include=['zz*']",), "strategy.include: no node"),
        (("strategy.at_least=['range above 3']",), "strategy.at_least: 'range above 3' is no rule"),
        (("strategy.exclude=['*']",), "leave no node to search"),
        (("strategy.exclude=Tanh",), "strategy.exclude takes a list"),
    ],
)
def test_what_is_none_is_refused_by_its_key(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = search(tmp_path, network(3), *options, code=2)
    assert said in run.output


@pytest.mark.parametrize("strategy", PRECISION)
def test_nodes_stay_high_by_what_was_measured(tmp_path: Path, strategy: str) -> None:
    run = search(tmp_path, network(3, 7), "strategy.at_least=['range > 512']", strategy=strategy, code=4)
    reasons = why(run)
    assert set(reasons) == {"up3", "down3", "up7", "down7"}
    assert all(
        reason.startswith("strategy.at_least: range ") and reason.endswith(" > 512") for reason in reasons.values()
    )


@pytest.mark.slow
def test_a_range_may_be_the_limit_itself_and_what_stands_for_infinity_is_none(tmp_path: Path) -> None:
    made = parsed(
        """g (float[4] x) => (float[4] y)
        <float zero = {0.0}, float small = {0.5}, float most = {512.0}, float least = {-1e38}> {
          [at] a = Clip(x, zero, most) [half] b = Mul(a, small) [mask] c = Max(b, least)
          [scale] d = Mul(x, small) [end] y = Add(c, d)
        }"""
    )
    run = search(tmp_path, made, "strategy.at_least=['range >= 512']", "inputs.ranges={x: [600, 700]}", code=None)
    kept = {node for node, reason in why(run).items() if "at_least" in reason}
    assert kept == {"at", "half", "scale", "end"}, run.output


def test_nodes_stay_high_by_the_error_that_they_introduce(tmp_path: Path) -> None:
    run = search(tmp_path, network(5, kind="cancellation"), "strategy.at_least=['error >= 0.1']", code=None)
    assert run.code in (0, 4), run.output
    assert any(reason.startswith("strategy.at_least: error ") for reason in why(run).values())


def branched(taken: str) -> onnx.ModelProto:
    """Both branches leave the range of fp16 and come back."""
    return parsed(
        f"""g (float[2,3] x, bool c) => (float[2,3] y)
        <float up = {{8192.0}}, float down = {{0.0001220703125}}, int64 most = {{3}}, int64 none = {{0}},
         bool yes = {{1}}> {{ a = Relu(x) {taken} y = Tanh(b) }}""",
        opset=18,
        ir=9,
    )


STEPS = (
    "[{1}1] {0}1 = Mul({3}, up) [{1}2] {0}2 = Mul({0}1, up) [{2}1] {0}3 = Mul({0}2, down) [{2}2] {0}4 = Mul({0}3, down)"
)


def gate(x: str, out: str) -> str:
    return f"""[gate] {out} = If(c) <
        then_branch = t () => (float[2,3] t4) {{ {STEPS.format("t", "u", "d", x)} }},
        else_branch = e () => (float[2,3] e4) {{ {STEPS.format("e", "v", "f", x)} }}>"""


def loop(most: str, body: str) -> str:
    return f"""[round] b = Loop({most}, yes, a) <
        body = each (int64 i, bool on, float[2,3] s) => (bool again, float[2,3] l4) {{
            again = Identity(on) {body} }}>"""


IF, INSIDE = gate("a", "b"), loop("most", gate("s", "l4"))


def fed(
    folder: Path,
    model: onnx.ModelProto,
    *options: str,
    taken: tuple[bool, ...] = (True,),
    strategy: str,
    code: int | None = 0,
) -> Run:
    """Run with a sample for each way to go."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in").mkdir(exist_ok=True)
    for number, way in enumerate(taken):
        x = (np.linspace(0.3, 0.9, 6).reshape(2, 3) + number / 8).astype(np.float32)
        np.savez(folder / "in" / f"{number}.npz", x=x, c=np.array(way))
    onnx.save(model, str(folder / "net.onnx"))
    given = ("inputs=files", f"inputs.path={folder / 'in'}", *options)
    run = winnow(f"strategy={strategy}", f"model={folder / 'net.onnx'}", *given, folder=folder / "run")
    assert code is None or run.code == code, run.output
    return run


def about_branches(run: Run) -> list[str]:
    return [warning for warning in run.result["warnings"] if "no sample takes the branches" in warning]


def selected(run: Run) -> dict[str, Any]:
    return {node.rpartition("/")[2]: reason for node, reason in why(run).items()}


@pytest.mark.variants
@pytest.mark.parametrize("strategy", PRECISION)
@pytest.mark.parametrize("shape", ["if", "inside"])
def test_a_branch_that_no_sample_takes_stays_high(tmp_path: Path, strategy: str, shape: str) -> None:
    model = branched(IF if shape == "if" else INSIDE)
    run = fed(tmp_path, model, strategy=strategy)
    (warning,) = about_branches(run)
    assert "4 nodes" in warning and "v1" in warning and "u1" not in warning
    assert "they stay high (strategy.untaken=low lowers them)" in warning
    reasons = selected(run)
    assert {name for name, reason in reasons.items() if reason == "in a branch or loop that no sample took"} == {
        *("v1", "v2", "f1", "f2")
    }


def test_both_branches_are_searched_where_samples_take_both(tmp_path: Path) -> None:
    run = fed(tmp_path, branched(IF), "strategy.held_out=0", taken=(True, False), strategy="precision")
    assert not about_branches(run)
    assert set(selected(run)) == {"u2", "d1", "v2", "f1"}


@pytest.mark.slow
def test_a_branch_that_those_held_out_take_is_found_to_fail(tmp_path: Path) -> None:
    """Searched low, and on those held out it is taken: it counts as searched then."""
    run = fed(tmp_path, branched(IF), "strategy.untaken=low", taken=(True, True, False), strategy="precision")
    assert run.result["minimality"] == "grown"
    assert set(selected(run)) == {"u2", "d1", "v2", "f1"}


@pytest.mark.slow
def test_a_loop_that_is_not_gone_round_stays_high(tmp_path: Path) -> None:
    run = fed(tmp_path, branched(loop("none", STEPS.format("l", "u", "d", "s"))), strategy="precision", code=4)
    (warning,) = about_branches(run)
    assert "4 nodes" in warning
    assert set(selected(run)) == {"u1", "u2", "d1", "d2"}
    gone = fed(tmp_path / "gone", branched(loop("most", STEPS.format("l", "u", "d", "s"))), strategy="precision")
    assert not about_branches(gone)
    assert {"u2", "d1"} <= set(selected(gone))


@pytest.mark.slow
def test_what_is_to_be_low_is_though_no_sample_takes_it(tmp_path: Path) -> None:
    run = fed(tmp_path, branched(IF), "strategy.include=['*/v*', '*/f*']", strategy="precision")
    assert set(selected(run)) == {"u2", "d1"}
    (warning,) = about_branches(run)
    assert "low precision was not tried for them" in warning
