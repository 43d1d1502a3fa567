"""`strategy.unit=block`: what belongs together is raised at once, and messages count nodes all the same."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from runner.jobs.precision.layers import Pair, layers, levels
from runner.jobs.precision.units import Units, blocks
from runner.model.graph.scopes import all_nodes
from strategies.search import Prior
from tests.harness import Run, winnow
from tests.jobs.models import parsed
from tests.jobs.precision.test_ort_loadable import assert_loads, network

WIDTH = 24
NORM = [f"norm/{name}" for name in ("square", "mean", "safe", "root", "inverse", "apply", "scale")]


def model() -> ModelProto:
    """Products around an RMSNorm that is written out, and whose squares leave the range of float16."""
    before = " ".join(
        f"[p{at}] a{at} = MatMul({f't{at - 1}' if at else 'x'}, w) [t{at}] t{at} = Tanh(a{at})" for at in range(4)
    )
    behind = " ".join(
        f"[q{at}] b{at} = MatMul({f'u{at - 1}' if at else 'n'}, w) [u{at}] u{at} = Tanh(b{at})" for at in range(4)
    )
    random = np.random.default_rng(0)
    weight = random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
    gain = random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    made = parsed(
        f"""g (float[4,{WIDTH}] x) => (float[4,{WIDTH}] y)
        <float two = {{2.0}}, float eps = {{1e-5}}, float up = {{5000.0}}, int64[1] last = {{-1}}>
        {{
          {before}
          [up] h = Mul(t3, up)
          [square] s = Pow(h, two) [mean] m = ReduceMean(s, last) [safe] e = Add(m, eps) [root] r = Sqrt(e)
          [inverse] i = Reciprocal(r) [apply] z = Mul(h, i) [scale] n = Mul(z, gain)
          {behind}
          [end] y = Tanh(u3)
        }}
        """,
        opset=18,
        ir=9,
        w=weight,
        gain=gain,
    )
    for node in made.graph.node:
        node.name = f"norm/{node.name}" if f"norm/{node.name}" in NORM else node.name
    return made


def search(
    folder: Path, *options: str, made: ModelProto | None = None, unit: str = "block", code: int | None = 0
) -> Run:
    onnx.save(made or model(), str(folder / "net.onnx"))
    given = ("strategy=precision", f"model={folder / 'net.onnx'}", "strategy.layer_errors=false", *options)
    run = winnow(*given, f"strategy.unit={unit}", folder=folder / unit)
    assert code is None or run.code == code, run.output
    return run


def test_a_norm_is_raised_as_a_whole_in_fewer_checks(tmp_path: Path) -> None:
    single, block = search(tmp_path, unit="node"), search(tmp_path)
    assert (single.code, block.code) == (0, 0), single.output + block.output
    assert set(single.result["culprits"]) < set(NORM) and NORM[0] in single.result["culprits"]
    assert block.result["culprits"] == NORM
    assert block.result["checks"]["search"] < single.result["checks"]["search"]
    # nodes are counted, not blocks
    assert (
        block.result["message"].startswith("the check passes with 7 nodes in float32")
        and block.result["nodes"]["after"] == 7
    )
    assert re.search(r"1 beyond the range \(7 raised\): PASS", block.log)
    group = {"scope": "norm", "nodes": NORM, "raised": NORM, "whole": True}
    assert [group] == [{key: one[key] for key in group} for one in block.result["precision"]["groups"]]
    report = (block.folder / "REPORT.md").read_text()
    assert "| `norm/square ... norm/scale` | `block` | the block norm of 7 nodes as a whole; " in report
    assert "| `norm/mean` |" not in report
    part = single.result["precision"]["groups"][0]
    assert part["raised"] == single.result["culprits"] and not part["whole"]
    assert "as a whole" not in (single.folder / "REPORT.md").read_text()
    assert all(f"| `{name}` |" in (single.folder / "REPORT.md").read_text() for name in single.result["culprits"])


@pytest.mark.slow
def test_a_weight_beyond_the_range_makes_no_suspect_of_what_reads_it(tmp_path: Path) -> None:
    """It is clamped in a low type, as the limit of a Clip is."""
    made = model()
    made.graph.node[-1].output[0] = "all"
    made.graph.node.append(onnx.helper.make_node("Min", ["all", "most"], ["y"], name="cap"))
    made.graph.initializer.append(numpy_helper.from_array(np.float32(1e6), "most"))
    block = search(tmp_path, made=made)
    assert block.result["culprits"] == NORM
    assert re.search(r"1 beyond the range \(7 raised\): PASS", block.log)


def test_names_without_scopes_are_searched_one_by_one_and_that_is_said(tmp_path: Path) -> None:
    made = model()
    for node in made.graph.node:
        node.name = node.name.replace("/", "_")
    run = search(tmp_path, made=made)
    assert len(run.result["culprits"]) < len(NORM) and run.result["precision"]["groups"] == []
    assert any("strategy.unit=block: no names of nodes have a scope" in one for one in run.result["warnings"])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["precision_bisect", "precision_linear"])
def test_other_searches_go_by_blocks_too(tmp_path: Path, strategy: str) -> None:
    run = search(tmp_path, f"strategy={strategy}", "strategy.direction=forward")
    assert run.result["culprits"][-7:] == NORM


def test_what_is_fixed_is_no_part_of_a_block(tmp_path: Path) -> None:
    run = search(tmp_path, "strategy.exclude=[norm/square]", "strategy.include=[norm/scale, Tanh]")
    assert run.result["culprits"] == NORM[1:-1]
    told = run.result["precision"]
    assert [one["node"] for one in told["selected"]] == NORM[:-1] == told["nodes_to_exclude"]
    assert told["selected"][0]["reason"] == "strategy.exclude=norm/square"
    assert not told["groups"][0]["whole"] and told["groups"][0]["raised"] == NORM[:-1]
    assert "as a whole" not in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_a_floor_and_the_rest_of_its_block(tmp_path: Path) -> None:
    run = search(tmp_path, "strategy.at_least=['range > 100000']", code=None)
    assert run.code in (0, 4), run.output
    high = [one["node"] for one in run.result["precision"]["selected"] if "at_least" in one["reason"]]
    assert NORM[0] in high and NORM[5] not in high
    # the floor is raised whatever is found, the rest of the norm as one or not at all
    assert set(run.result["culprits"]) in (set(), set(NORM) - set(high))


@pytest.mark.slow
def test_cheap_blocks_come_first(tmp_path: Path) -> None:
    run = search(tmp_path, "strategy.goal=cheapest")
    assert run.result["culprits"] == NORM


@pytest.mark.slow
def test_a_whole_block_is_raised_for_loading_and_that_model_is_asked(tmp_path: Path) -> None:
    made = network(1)
    del made.graph.node[-1]
    block = len(made.graph.node)
    values = [made.graph.node[-1].output[0], *(f"t{at}" for at in range(block - 1)), "y"]
    for at in range(block):  # no more than half of the layers are in the block
        made.graph.node.add(op_type="Tanh", name=f"tanh{at}", input=[values[at]], output=[values[at + 1]])
    run = search(tmp_path, made=made, code=4)
    loads = assert_loads(run)
    told = run.result["precision"]
    assert len(loads["raised"]) > 1
    assert loads["raised"] == told["nodes_to_exclude"] == [one["node"] for one in told["selected"]]
    assert {one["reason"] for one in told["selected"]} == {"raised so that ONNX Runtime loads the model"}


def test_a_block_costs_what_its_nodes_cost_together() -> None:
    found = Units(((0, 2), (1,), (3,)), (0, 1, 2))
    known = Prior(suspects=(2, 1), ranking=(3, 2, 1, 0))
    assert found.prior(known) == Prior(suspects=(0, 1), ranking=(2, 0, 1))
    # the first node alone is the cheapest, its block is not
    assert found.prior(known, {0: 1.0, 1: 3.0, 2: 5.0, 3: 6.0}).ranking == (1, 2, 0)


def scoped(body: str) -> dict[str, list[str]]:
    """The blocks of a model; two underscores stand for a slash in a name."""
    made = parsed(f"g (float[2,6] x, bool c) => (float[2,6] y) {{ {body} }}")
    for node in all_nodes(made.graph.node):
        node.name = node.name.replace("__", "/")
    return blocks_of(made)


def blocks_of(made: ModelProto) -> dict[str, list[str]]:
    typed = onnx.shape_inference.infer_shapes(made)
    own = layers(typed, {}, Pair(TensorProto.FLOAT16, TensorProto.FLOAT))
    casting: Any = SimpleNamespace(layers=own, mixer=SimpleNamespace(levels=levels(typed, {})))
    return {scope: [own[index].path for index in block] for scope, block in blocks(casting).items()}


def chain(*names: str) -> str:
    """A node of each name, one behind the other."""
    values = ["x", *(f"v{at}" for at in range(1, len(names))), "y"]
    return " ".join(
        f"[{name.replace('/', '__')}] {values[at + 1]} = Tanh({values[at]})" for at, name in enumerate(names)
    )


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (
            "/n/a/1 /n/a/2 /n/b/1 /n/b/2 /n/b/3 /n/a/4 /head",
            {"n/a": "/n/a/1 /n/a/2 /n/a/4", "n/b": "/n/b/1 /n/b/2 /n/b/3"},
        ),
        ("main/a main/b main/c", {}),  # a scope that all have says nothing
        ("main/a/1 main/b main/a/2 main/c main/d", {"main/a": "main/a/1 main/a/2"}),
        ("main/a main/b main/c added too", {}),  # nor does one that most have
        ("/one /two three four five", {}),  # a slash in front is no scope
    ],
)
def test_nodes_of_one_scope_are_a_block(names: str, found: dict[str, str]) -> None:
    assert scoped(chain(*names.split())) == {scope: members.split() for scope, members in found.items()}


def test_a_scope_may_be_too_large_for_a_block() -> None:
    names = [f"{scope}/{at}" for scope, many in (("a", 32), ("b", 33)) for at in range(many)]
    assert list(scoped(chain(*names))) == ["a"]


def test_what_is_around_a_nested_graph_is_no_scope() -> None:
    found = scoped("""[a__if] z = If(c) <
            then_branch = yes () => (float[2,6] u) { [one] p = Tanh(x) [two] u = Tanh(p) },
            else_branch = no () => (float[2,6] v) { [a__one] q = Tanh(x) [a__two] v = Tanh(q) }>
        [a__three] b = Tanh(z) [a__four] d = Tanh(b) [end] y = Tanh(d)""")
    assert "a/if.then_branch/" not in found
    assert found["a/if.else_branch/a"] == ["a/if.else_branch/a/one", "a/if.else_branch/a/two"]
    assert found["a"][-2:] == ["a/three", "a/four"]


def test_numbered_nodes_have_their_module_in_the_metadata() -> None:
    made = parsed(f"g (float[2,6] x) => (float[2,6] y) {{ {chain('node_1', 'node_2', 'node_3', 'node_4', 'node_5')} }}")
    for node, module in zip(made.graph.node, "aabb", strict=False):
        node.metadata_props.add(key="namespace", value=f": Net/{module}: Block/tanh: aten.tanh")
    assert blocks_of(made) == {": Net/a: Block": ["node_1", "node_2"], ": Net/b: Block": ["node_3", "node_4"]}
