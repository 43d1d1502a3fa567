"""Real runs in which two sides differ: values in float64 tell whose failure it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.checkers.candidate_runs import BackendRunner
from runner.jobs.reduce.exact_values import Exact, WhoIsRight
from runner.model.values import recorded
from runner.verdict import Sample
from tests.harness import Run, by_command, winnow, written
from tests.jobs.models import saved
from tests.jobs.reduce.test_cause import COMPARE

if TYPE_CHECKING:
    from runner.jobs.reduce.subgraph import Subgraph
    from runner.model.files.candidate_store import Store

LARGE = 2.0**23
STRICT = """
import sys
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs()]
made = dict(zip(names, session.run(names, dict(np.load(sys.argv[2])))))
sys.exit(any(not np.allclose(made[name], good, rtol=1e-6) for name, good in np.load(sys.argv[3]).items()))
"""
SHAPE = [1, 2, 4, 4]


HALF = "[low] low = Cast<to = 10>(n) [neg] minus = Neg(low) [high] z = Cast<to = 1>(minus)"
WHOLE = LARGE / 1024 + np.arange(32) % 3 / 1024
"""1,024 times each is LARGE and 0, 1 or 2, which float32 holds."""


def folded(folder: Path, after: list[str], *, weight: float, bias: float, first: str = "", body: str = "") -> str:
    """Save a Conv and what ONNX Runtime folds into it; what both add and take away is large.

    ``after``: operators that take away, and scale. ``first``: what gives ``start``. ``body``: the branch of an If is
    the "last" node, or "all" of them; "half": the last node is in float16.
    """
    weights = {"w": np.array([[[[weight]], [[0]]], [[[0]], [[weight]]]]), "b": np.full(2, bias)}
    if after == ["bn"]:
        weights |= {"s": np.ones(2), "shift": np.zeros(2), "mean": np.full(2, LARGE), "variance": np.ones(2)}
        then = "[bn] n = BatchNormalization<epsilon = 0.0>(conv, s, shift, mean, variance)"
    else:
        weights |= {"less": np.full((1, 2, 1, 1), -LARGE - 1), "third": np.full((1, 2, 1, 1), 1 / 3)}
        then = "[add] add = Add(conv, less) [mul] n = Mul(add, third)"
    nodes = f"{first} [abs] abs = Abs({'start' if first else 'x'}) [conv] conv = Conv(abs, w, b) {then}"
    every = f"{nodes} [neg] made = Neg(n)"
    last = {"": "[neg] z = Neg(n)", "last": "[inside] made = Neg(n)", "all": every, "half": HALF}[body]
    if body not in ("", "half"):
        branch = f"b () => (float[1,2,4,4] made) {{ {last} }}"
        last = f"[choice] z = If(taken) <then_branch = {branch}, else_branch = {branch}>"
    graph = f"{'' if body == 'all' else nodes} {last}"
    text = f"g (float[1,2,4,4] x) => (float[1,2,4,4] z) <bool taken = {{1}}> {{ {graph} }}"
    held = {name: value.astype(np.float32) for name, value in weights.items()}
    return str(saved(folder / "net.onnx", text, **held))


def reduced(folder: Path, path: str, x: np.ndarray, *more: str) -> Run:
    np.savez(folder / "x.npz", x=x.reshape(SHAPE).astype(np.float32))
    given = (f"model={path}", "inputs=files", f"inputs.path={folder / 'x.npz'}", *COMPARE, *more)
    return winnow(*given, folder=folder / "run")


def cancelling(folder: Path, **more: str) -> Run:
    """The Conv adds eight millions to what is small, and loses its digits; folded, nothing large is added."""
    return reduced(folder, folded(folder, ["bn"], weight=1, bias=LARGE, **more), np.linspace(0.1, 3, 32))


def test_a_reference_that_loses_its_digits_is_what_is_wrong(tmp_path: Path) -> None:
    run = cancelling(tmp_path)
    assert (run.code, run.result["status"], run.result["whose"]) == (9, "reference_wrong", "reference"), run.output
    assert run.result["culprits"] == ["conv", "bn"] and run.result["cause"]["status"] == "proven"
    right = run.result["cause"]["right"]
    assert right.startswith("In float64, the answer: "), right
    assert "whose bug: the reference, not the target" in run.screen[0]
    title, *_ = report = (run.folder / "REPORT.md").read_text().splitlines()
    assert title == "# the reference is wrong, not the target: `Conv`, `BatchNormalization`"
    assert f"{right}." in report
    assert not any("strategy=passes" in line for line in run.screen), "which optimizations it needs is no question"


@pytest.mark.parametrize("body", ["", "half"])
def test_an_optimization_that_loses_digits_is_the_targets(body: str, tmp_path: Path) -> None:
    """The products are whole numbers, and exact; folded, each is divided by three."""
    run = reduced(tmp_path, folded(tmp_path, ["add", "mul"], weight=1024, bias=0, body=body), WHOLE)
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["conv", "add", "mul"], "target"), run.output
    assert "no bug" not in run.output + (run.folder / "REPORT.md").read_text()


@pytest.mark.parametrize("target", ["target.rounding=on", "target=onnx_reference"])
def test_what_rounding_to_the_models_types_loses_is_the_models(target: str, tmp_path: Path) -> None:
    """The product is below all that float16 holds; ONNX Runtime by itself does not round it before the Log."""
    text = """g (float16[4] x) => (float16[4] y) {
        [sigmoid] s = Sigmoid(x) [prior] p = Mul(s, tiny) [like] l = Mul(p, tiny) [log] y = Log(l) }"""
    saved(tmp_path / "net.onnx", text, tiny=np.array([1e-4], np.float16))
    run = winnow(f"model={tmp_path / 'net.onnx'}", "strategy=triage", target, folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["whose"]) == (["log"], "model"), run.output
    report = (run.folder / "REPORT.md").read_text()
    assert "No runtime is at fault. " in report and "Report the failure" not in report
    assert not any("next" in line for line in run.screen)


@pytest.mark.slow
def test_two_sides_that_lose_digits_are_both_told(tmp_path: Path) -> None:
    """Folded, each product is divided by three; else what is small is added to it."""
    run = reduced(tmp_path, folded(tmp_path, ["add", "mul"], weight=1024, bias=0.3), WHOLE)
    assert (run.code, run.result["whose"]) == (0, "both lose digits"), run.output
    assert "whose bug: both sides lose digits" in run.screen[0]


@pytest.mark.slow
def test_where_the_whole_has_no_values_in_float64_the_answer_tells(tmp_path: Path) -> None:
    run = cancelling(tmp_path, body="last")
    assert (run.code, run.result["culprits"], run.result["whose"]) == (9, ["conv", "bn"], "reference"), run.output
    assert run.result["cause"]["right"].startswith("In float64, the answer: ")


@pytest.mark.slow
def test_large_weights_are_not_computed_in_float64(tmp_path: Path) -> None:
    """They would take twice the memory of all else that is done with the model, on a machine that is fast enough."""
    first = "looked_up = Gather(table, row) zeros = Reshape(looked_up, shape) start = Add(x, zeros)"
    path = folded(tmp_path, ["bn"], weight=1, bias=LARGE, first=first)
    model = onnx.load(path)
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[9 << 18, 32], data_location=1)
    table.external_data.add(key="location", value="zeros.bin")
    with (tmp_path / "zeros.bin").open("wb") as zeros:
        zeros.truncate(9 << 25)
    held = {"row": np.array([7]), "shape": np.array(SHAPE)}
    model.graph.initializer.extend([table, *(numpy_helper.from_array(value, name) for name, value in held.items())])
    onnx.save(model, path)
    run = reduced(tmp_path, path, np.linspace(0.1, 3, 32))
    assert (run.code, run.result["culprits"], run.result["whose"]) == (9, ["conv", "bn"], "reference"), run.output
    assert run.result["cause"]["right"].startswith("In float64, the answer: ")


@pytest.mark.slow
def test_integers_that_differ_tell_whose_it_is_and_not_the_scores_that_pass(tmp_path: Path) -> None:
    """The smallest are chosen, not the largest: the scores beside them differ by rounding alone."""
    for who, largest in (("parent", 1), ("child", 0)):
        text = f"""g (float[2,9] x) => (float[2,9] scores, int64[2,3] at) <int64[1] k = {{3}}> {{
            [scores] scores = Sigmoid(x) [top] best, at = TopK<largest = {largest}>(scores, k) }}"""
        saved(tmp_path / f"{who}.onnx", text)
    given = (f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'parent.onnx'}")
    run = winnow(*given, "strategy=reduce", folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["top"], "conversion"), run.output
    assert run.result["cause"]["weights"] == ["top has largest=0; the original has largest=1"]
    assert "at has the same integers, and those of the original differ" in run.result["cause"]["right"]


@pytest.mark.slow
def test_an_evaluator_that_computes_something_else_shows_no_lost_digits(tmp_path: Path) -> None:
    """Only onnx's evaluator has an RNN in float64, and it takes no notice of the lengths."""
    draw = np.random.default_rng(0)
    shapes = {"w": (1, 4, 3), "r": (1, 4, 4), "b": (1, 8)}
    weights: dict[str, Any] = {name: draw.normal(size=one).astype(np.float32) for name, one in shapes.items()}
    weights["lengths"] = np.array([1, 3], np.int32)
    for who, factor in (("parent", 1.0), ("child", 1.5)):
        text = f"""g (float[3,2,3] x) => (float[3,1,2,4] y) {{
            [rnn] states = RNN<hidden_size = 4>(x, w, r, b, lengths) [elu] y = Elu<alpha = {factor}>(states) }}"""
        saved(tmp_path / f"{who}.onnx", text, **weights)
    given = (f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'parent.onnx'}", *COMPARE)
    run = winnow(*given, folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["whose"]) == (["elu"], "conversion"), run.output


@pytest.mark.slow
def test_what_has_no_values_in_float64_is_not_known(tmp_path: Path) -> None:
    """A body is not computed in another type."""
    run = cancelling(tmp_path, body="all")
    assert (run.result["culprits"], run.result["whose"]) == (["choice"], "not known"), run.output
    assert "If choice cannot be computed in a wider type" in run.result["cause"]["right"]


@pytest.mark.slow
def test_what_the_reference_makes_of_the_file_as_well_is_the_conversions(tmp_path: Path) -> None:
    """A body has no values in float64."""
    for who, factor in (("parent", 1.0), ("child", 1.5)):
        body = f"body () => (float[2,3] made) <float factor = {{{factor}}}> {{ [inside] made = Mul(x, factor) }}"
        text = f"""g (float[2,3] x) => (float[2,3] y) <bool taken = {{1}}> {{
            [choice] y = If(taken) <then_branch = {body}, else_branch = {body}> }}"""
        saved(tmp_path / f"{who}.onnx", text)
    given = (f"model={tmp_path / 'child.onnx'}", f"reference.model={tmp_path / 'parent.onnx'}", *COMPARE)
    run = winnow(*given, folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["whose"]) == (["choice"], "conversion"), run.output
    assert run.result["cause"]["right"].startswith("For the answer the target is 0.5 of the largest value away")


def test_what_runs_for_exact_values_calls_no_function(tmp_path: Path) -> None:
    """What rounds operator by operator takes none, and a conversion's failure was nobody's."""
    called = helper.make_node("F", ["x"], ["y"], domain="own")
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], imports[:1])
    graph = helper.make_graph([called], "g", sides[:1], sides[1:])
    model = helper.make_model(graph, opset_imports=imports, functions=[function])
    ran = list[onnx.ModelProto]()
    store = cast("Store", SimpleNamespace(write=lambda made, _: ran.append(made)))
    side = cast("BackendRunner", SimpleNamespace(run=lambda *_: SimpleNamespace(outputs=[{}])))
    assert Exact((), side, side, side, store, tmp_path).plain(model, [], side) == [{}]
    assert [node.op_type for node in ran[0].graph.node] == ["Neg"]


def test_an_evaluator_that_is_the_reference_is_not_right_because_it_says_so_itself(tmp_path: Path) -> None:
    """It takes no notice of ``sequence_lens``, in no type: ONNX Runtime was called wrong, which does."""
    draw = np.random.default_rng(0)
    weights: dict[str, Any] = {name: draw.normal(size=(1, 8, 2)).astype(np.float32) for name in "wr"}
    text = """g (float[4,2,2] x) => (float[4,1,2,2] y) <int32[2] lengths = {4, 1}> {
        [lstm] y = LSTM<hidden_size = 2>(x, w, r, , lengths) }"""
    saved(tmp_path / "lstm.onnx", text, **weights)
    run = winnow(f"model={tmp_path / 'lstm.onnx'}", "checker=compare", "reference=onnx_reference", folder=tmp_path)
    assert (run.result["culprits"], run.result["whose"]) == (["lstm"], "not known"), run.output


@pytest.mark.parametrize(
    ("target", "peer", "told"),
    [
        *[(1.04, 0.95, True), (1.09, 1.05, True), (1.3, 1.01, False), ([1, 1], [1, 1], True), ([1, 1], 1, False)],
        *[(np.nan, np.nan, True), (np.nan, 1.0, False), (np.nan, np.inf, False)],
    ],
)
def test_a_model_that_is_off_from_its_original_on_either_runtime_is_not_the_targets_failure(
    target: float | list[int], peer: float | list[int], told: bool, tmp_path: Path
) -> None:
    """Steps of quantization may move one side up and the other down: what they differ by says nothing."""
    made = {"target": [{"y": np.atleast_1d(target)}], "peer": [{"y": np.atleast_1d(peer)}]}
    exact = SimpleNamespace(target="target", peer="peer", plain=lambda _, __, side: made[side])
    sample = Sample({}, {"y": recorded.write(np.array([1.0]), "y", tmp_path / "y.pb")})
    judge = WhoIsRight(cast("Exact", exact), apart=True)
    assert bool(judge._off_anywhere(onnx.ModelProto(), (sample,))) is told


@pytest.mark.parametrize(
    ("act", "factor", "found"),
    [("Relu(a)", 2, ("act", "conversion")), ("Clip(a, low, high)", 2.00002, ("last", "not known"))],
)
def test_under_a_check_of_the_users_a_clear_difference_from_the_original_is_told(
    tmp_path: Path, act: str, factor: float, found: tuple[str, str]
) -> None:
    """The check may run any program, so that a slight one may not be what it minds."""
    for name, kind, by in (("mine", act, factor), ("good", "Clip(a, low, high)", 2)):
        held = {"five": np.float32(5), "low": np.float32(0), "high": np.float32(6), "by": np.float32(by)}
        nodes = f"[first] a = Mul(x, five) [act] b = {kind} [last] y = Mul(b, by)"
        saved(tmp_path / f"{name}.onnx", f"g (float[2,3] x) => (float[2,3] y) {{ {nodes} }}", **held)
    np.savez(tmp_path / "x.npz", x=np.linspace(-1, 4, 6, dtype=np.float32).reshape(2, 3))
    given = (f"model={tmp_path / 'mine.onnx'}", f"reference.model={tmp_path / 'good.onnx'}", "inputs=files")
    given += (f"inputs.path={tmp_path / 'x.npz'}", *by_command(written(tmp_path, STRICT), "{inputs}", "{references}"))
    result = winnow(*given, folder=tmp_path / "run").result
    assert (*result["culprits"], result["whose"]) == found
    assert result["cause"].get("weights", []) == ["Relu, where the original has Clip"] * (found[0] == "act")


@pytest.mark.parametrize(
    ("peer", "other_program", "told"),
    [(np.nan, np.nan, "model"), (1.5, np.nan, "model"), (np.nan, 1.0, "target"), (1.0, np.nan, "target")],
)
def test_what_any_program_makes_in_the_models_types_is_not_the_targets(
    peer: float, other_program: float, told: str, tmp_path: Path
) -> None:
    """A target that rounds may be the same program as its peer, with the same wrong kernel."""
    named = [SimpleNamespace(settings=SimpleNamespace(name=one)) for one in ("target", "reference", "peer", "onnx")]
    target, reference, rounds, onnxs = cast("list[BackendRunner]", named)
    made = {id(target): np.nan, id(reference): 1.001, id(rounds): peer, id(onnxs): other_program}

    class Known(Exact):
        def values(self, *_: object, **__: object) -> Any:
            return [{"y": np.array([1.0])}]

        def plain(self, _: object, __: object, side: BackendRunner) -> Any:
            return [{"y": np.array([made[id(side)]])}]

    exact = Known((rounds, onnxs), target, reference, rounds, cast("Store", None), tmp_path)
    whole = SimpleNamespace(model=onnx.ModelProto())
    base = cast("Subgraph", SimpleNamespace(graph=whole, whole_samples=(), types_of_all={}))
    assert WhoIsRight(exact, apart=False)._of(base, None, rounds, "")[0].value == told
