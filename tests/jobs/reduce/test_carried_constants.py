"""Real runs: nodes that compute of initializers alone come along with their readers, and are named where it is them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from runner.jobs.reduce.subgraph import Subgraph
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded as files
from runner.model.values.recorded import TensorFile
from runner.reference.recording import Recorded
from runner.text import counted
from strategies.search import Trial
from tests.harness import HEAVY, Run, by_command, check_script, winnow
from tests.jobs.models import steps
from tests.matrix import sample
from tests.model.models import ingested
from tests.model.nested import run_ort

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
COMPARE = ("checker=compare", "checker.rtol=0.01", "checker.flaky=never", "target.optimization=none")


def saved(path: Path, nodes: list[onnx.NodeProto], **weights: np.ndarray) -> Path:
    """A model of ``x`` and ``y``, both float32 [4, 8]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def reduced(folder: Path, model: Path, *more: str) -> Run:
    np.savez(folder / "inputs.npz", x=X)
    given = ("inputs=files", f"inputs.path={folder / 'inputs.npz'}", "target.optimization=none")
    run = winnow(f"model={model}", *given, *more, folder=folder / "run")
    assert run.code == 0, run.output
    return run


def operators(model: ModelProto) -> list[str]:
    return [one.name for one in model.graph.node]


# ---- what a candidate is


def quantized(rng: np.random.Generator) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """A matrix product between pairs, its weight stored with a coarse scale; then something else."""
    nodes = steps("""x_q = QuantizeLinear(x, x_s, x_z) x_dq = DequantizeLinear(x_q, x_s, x_z)
        w_dq = DequantizeLinear(w_q, w_s, w_z) mm = Gemm(x_dq, w_dq) mm_q = QuantizeLinear(mm, y_s, y_z)
        mm_dq = DequantizeLinear(mm_q, y_s, y_z) y = Tanh(mm_dq)""")
    held = {"w_q": rng.integers(-50, 51, (8, 8)).astype(np.int8), "w_s": np.float32(0.011), "w_z": np.int8(0)}
    held |= {"x_s": np.float32(1 / 127), "x_z": np.uint8(128), "y_s": np.float32(0.02), "y_z": np.uint8(120)}
    return nodes, held


def subject(tmp_path: Path, *, carries: bool) -> tuple[Subgraph, dict[str, np.ndarray]]:
    tmp_path.mkdir(exist_ok=True)
    nodes, held = quantized(np.random.default_rng(0))
    model = onnx.load(saved(tmp_path / "given.onnx", nodes, **held))
    graph, store, _ = ingested(model, tmp_path / "in")
    marked = ModelProto.FromString(model.SerializeToString())
    del marked.graph.output[:]
    marked.graph.output.extend(helper.make_empty_tensor_value_info(one.output[0]) for one in nodes)
    values = {"x": X, **run_ort(marked, {"x": X})}
    written: dict[str, TensorFile] = {
        name: files.write(np.asarray(value), name, tmp_path / f"{name}.pb") for name, value in values.items()
    }
    carried = graph.constants if carries else frozenset()
    where = (tmp_path / "given.onnx", tmp_path / "values")
    return Subgraph(graph, store, Recorded((written,)), {}, *where, carried=carried), values


def test_the_weight_of_a_candidate_is_quantized_as_the_models_is(tmp_path: Path) -> None:
    base, values = subject(tmp_path, carries=True)
    names = [one.name for one in base.graph.nodes]
    assert base.names(base.space.whole) == tuple(name for name in names if name != "w_dq")
    made = base.cut(Trial.of([names.index(name) for name in ("x_dq", "mm", "mm_q")]))
    assert operators(made.model) == ["x_dq", "w_dq", "mm", "mm_q"]
    assert {one.name for one in made.model.graph.initializer} == {"x_s", "x_z", "w_q", "w_s", "w_z", "y_s", "y_z"}
    assert (made.inputs, made.outputs, made.constants) == (("x_q",), ("mm_q",), ())
    # of a float weight ONNX Runtime's optimizers make another one in 8 bits: more than a fifth of this differs then
    np.testing.assert_array_equal(run_ort(made.model, {"x_q": values["x_q"]}, True)["mm_q"], values["mm_q"])


def test_a_value_of_a_constant_is_not_read_where_that_is_carried(tmp_path: Path) -> None:
    assert "w_dq" not in subject(tmp_path / "a", carries=True)[0].constants
    assert "w_dq" in subject(tmp_path / "b", carries=False)[0].constants


# ---- what is answered

TABLE = "angles = Mul(steps, rate) table = Cos(angles) h = Tanh(x) "


def rotated(readers: int) -> list[onnx.NodeProto]:
    """A table that many nodes read."""
    read = [f"r{at} = Mul({f'r{at - 1}' if at else 'h'}, table)" for at in range(readers)]
    return steps(f"{TABLE} {' '.join(read)} y = Neg(r{readers - 1})")


@pytest.mark.variants
@pytest.mark.parametrize("readers", [32, 1])
def test_a_wrong_table_is_named_however_many_read_it(tmp_path: Path, readers: int) -> None:
    turns = np.linspace(0.1, 1, 8, dtype=np.float32)
    good = saved(tmp_path / "good.onnx", rotated(readers), steps=turns, rate=np.float32(0.1))
    wrong = saved(tmp_path / "wrong.onnx", rotated(readers), steps=turns, rate=np.float32(0.9))
    run = reduced(tmp_path, wrong, f"reference.model={good}", *COMPARE)
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["angles"], "proven"), run.output
    assert operators(run.model()) == ["angles"]


def test_what_is_right_is_no_element_and_costs_one_check(tmp_path: Path) -> None:
    turns = np.linspace(0.1, 1, 8, dtype=np.float32)
    nodes = [*rotated(3)[:-1], *steps("leaky = LeakyRelu<alpha = 0.1>(r2) y = Neg(leaky)")]
    good = saved(tmp_path / "good.onnx", nodes, steps=turns, rate=np.float32(0.1))
    nodes[-2].attribute[0].f = 0.9
    wrong = saved(tmp_path / "wrong.onnx", nodes, steps=turns, rate=np.float32(0.1))
    run = reduced(tmp_path, wrong, f"reference.model={good}", *COMPARE)
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["leaky"], "proven"), run.output
    assert "that no input reaches (2 nodes): PASS" in run.log
    assert run.result["nodes"] == {"before": 8, "after": 1}
    parts = ("preflight", "control", "recheck", "samples", "repeats")
    checks = run.result["checks"]
    assert (checks["preflight"], checks["trust"]) == (3, sum(checks[part] for part in parts))


CHAIN = steps("first = Neg(w) second = Abs(first) h = Tanh(x) mm = MatMul(h, second) y = Neg(mm)")
WEIGHT = {"w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("needed", "named", "left"),
    [
        (["mm"], ["mm"], ["mm"]),
        (["second", "mm"], ["second", "mm"], ["second", "mm"]),
        (["first", "second", "mm"], ["first", "second", "mm"], ["first", "second", "mm"]),
    ],
)
def test_constants_are_frozen_but_for_those_that_the_failure_needs(
    tmp_path: Path, needed: list[str], named: list[str], left: list[str]
) -> None:
    model = saved(tmp_path / "net.onnx", CHAIN, **WEIGHT)
    check = check_script(tmp_path, f"{HEAVY}sys.exit(nodes.issuperset({needed}))")
    run = reduced(tmp_path, model, *by_command(check))
    assert run.result["culprits"] == named, run.output
    assert operators(run.model()) == left
    assert run.result["nodes"]["after"] == len(left)


@pytest.mark.slow
def test_where_values_do_not_matter_all_of_them_are_elements(tmp_path: Path) -> None:
    model = saved(tmp_path / "net.onnx", CHAIN, **WEIGHT)
    check = check_script(tmp_path, f"{HEAVY}import os\nif 'first' in nodes: os.abort()")
    run = reduced(tmp_path, model, *by_command(check))
    assert (run.result["culprits"], operators(run.model())) == (["first"], ["first"]), run.output


@pytest.mark.slow
def test_a_table_whose_readers_fail_each_alone_is_named_without_them(tmp_path: Path) -> None:
    """Of a check that compares no tensors nobody knows before that it is the table."""
    reads = "a = Mul(h, table) b = Sub(a, table) c = Div(b, table) y = Neg(c)"
    weights = {"steps": np.linspace(0.1, 1, 8, dtype=np.float32), "rate": np.float32(0.1)}
    model = saved(tmp_path / "net.onnx", steps(TABLE + reads), **weights)
    check = check_script(tmp_path, f"{HEAVY}sys.exit('table' in nodes)")
    run = reduced(tmp_path, model, *by_command(check))
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["table"], "proven"), run.output
    assert operators(run.model()) == ["table"]


@pytest.mark.slow
def test_where_no_answer_is_shown_to_be_the_cause_all_of_them_are_elements(tmp_path: Path) -> None:
    """A node fails where what it gives is compared, by rounding, and is found first; the table is what is wrong."""
    reads = "noise = Neg(h) a = Mul(noise, table) y = Sub(a, table)"
    weights = {"steps": np.linspace(0.1, 1, 8, dtype=np.float32), "rate": np.float32(0.1)}
    model = saved(tmp_path / "net.onnx", steps(TABLE + reads), **weights)
    shown = "'noise' in nodes and 'noise' in [one.name for one in model.graph.output]"
    fed = "with zipfile.ZipFile(sys.argv[2]) as given:\n    fed = given.namelist()\n"
    body = f"import zipfile\n{fed}sys.exit('table' in nodes or ({shown}) or 3 * (not fed))"
    check = check_script(tmp_path, HEAVY + body)
    given = (*by_command(check, "{inputs}"), "strategy.first=end", "strategy.cause_checks=2")
    run = reduced(tmp_path, model, *given)
    assert "the model, its constants as values (4 nodes): PASS" in run.log
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["table"], "proven"), run.output
    assert operators(run.model()) == ["table"]


GROWING = {
    "one": np.float32([0.5]),
    "shape": np.array([8, 1 << 18]),
    "axes": np.array([0, 1]),
    "starts": np.array([0]),
    "ends": np.array([8]),
    "slices": np.array([1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["constant", "input", "seeded"])
def test_other_policies_cut_as_they_did(tmp_path: Path, policy: str) -> None:
    model = saved(tmp_path / "net.onnx", CHAIN, **WEIGHT)
    check = check_script(tmp_path, f"{HEAVY}sys.exit('mm' in nodes)")
    run = reduced(tmp_path, model, *by_command(check), f"cut.policy={policy}", "strategy.shrink=false")
    assert (run.result["culprits"], operators(run.model())) == (["mm"], ["mm"]), run.output
    held = {"constant": ([], ["h", "second"]), "input": (["h", "second"], []), "seeded": (["h"], ["second"])}[policy]
    graph = run.model().graph
    assert (sorted(one.name for one in graph.input), sorted(one.name for one in graph.initializer)) == held


@pytest.mark.slow
def test_a_body_is_reduced_with_the_constants_that_it_captures(tmp_path: Path) -> None:
    then = "then () => (float[4,8] t2) { t1 = Neg(h) t2 = MatMul(t1, second) }"
    choice = f"z = If(yes) <then_branch = {then}, else_branch = other () => (float[4,8] e) {{ e = Neg(h) }}> y = Neg(z)"
    nodes = [*CHAIN[:3], *steps(choice)]
    model = saved(tmp_path / "net.onnx", nodes, yes=np.array(True), **WEIGHT)
    script = "ops = [n.op_type for n in model.graph.node] + [i.op_type for n in model.graph.node for a in n.attribute "
    script += "for i in a.g.node]\nsys.exit('MatMul' in ops and 'Abs' in ops)"
    run = reduced(tmp_path, model, *by_command(check_script(tmp_path, f"{HEAVY}{script}")))
    assert [one.op_type for one in run.model().graph.node] == ["Abs", "MatMul"], run.output


def test_constants_of_a_graph_stay_what_they_are_when_some_are_elements(tmp_path: Path) -> None:
    graph = Graph.of(onnx.load(saved(tmp_path / "net.onnx", CHAIN, **WEIGHT)))
    assert [graph.names[index] for index in sorted(graph.constants)] == ["first", "second"]


# ---- a quantized child and its parent


def child_of_a_quantizer(folder: Path, *, scale: float = 1.0, zero: int = 0) -> tuple[Path, str]:
    """Two products with a Relu between, which the pair behind the first makes needless.

    ``scale``: by how much that of the second weight is wrong. ``zero``: the zero point when it is dequantized.
    """
    rng = np.random.default_rng(1)
    first, second = (rng.normal(0, 0.4, (8, 8)).astype(np.float32) for _ in range(2))
    step = np.float32(np.abs(second).max() / 127)
    good = steps("a = MatMul(x, first) r = Relu(a) b = MatMul(r, second) y = Tanh(b)")
    child = steps("""r = MatMul(x, first) r_q = QuantizeLinear(r, r_s, zero) r_dq = DequantizeLinear(r_q, r_s, other)
        second_dq = DequantizeLinear(second_quantized, second_s, none) b = MatMul(r_dq, second_dq) y = Tanh(b)""")
    held = {"first": first, "r_s": np.float32(2.5 / 255), "zero": np.uint8(0), "other": np.uint8(zero)}
    held |= {"second_quantized": np.round(second / step).astype(np.int8), "second_s": np.float32(step * scale)}
    held["none"] = np.int8(0)
    parent = saved(folder / "good.onnx", good, first=first, second=second)
    return saved(folder / "child.onnx", child, **held), f"reference.model={parent}"


@pytest.mark.variants
@pytest.mark.parametrize(
    ("wrong", "named"), [({"scale": 1 / 60}, [["second_dq"]]), ({"zero": 60}, [["r_dq"], ["r_q", "r_dq"]])]
)
def test_what_is_wrong_of_a_quantized_child_is_named_alone(tmp_path: Path, wrong: dict, named: list) -> None:
    model, parent = child_of_a_quantizer(tmp_path, **wrong)
    run = reduced(tmp_path, model, parent, "checker=compare", "checker.metric=scale", "checker.rtol=0.05")
    assert run.result["culprits"] in named, run.output
    assert run.result["cause"]["status"] == "proven"


def table(folder: Path, *readers: str) -> Path:
    """A table that is computed in four steps, and what reads it."""
    read = " ".join(f"h{at + 1} = {op}(h{at}, table)" for at, op in enumerate(readers))
    nodes = steps(f"""angles = Mul(steps, rate) cos = Cos(angles) wide = Unsqueeze(cos, axis)
        table = Cast<to = 1>(wide) h0 = Tanh(x) {read} y = Neg(h{len(readers)})""")
    held = {"steps": np.linspace(0.1, 1, 8, dtype=np.float32), "rate": np.float32(0.1), "axis": np.array([0])}
    return saved(folder / "net.onnx", nodes, **held)


@pytest.mark.parametrize("find", sample(["cause", "all"], 2))
def test_a_constant_that_is_wrong_is_named_without_those_that_are_made_of_it(tmp_path: Path, find: str) -> None:
    model = table(tmp_path, "Mul", "Add", "Mul")
    check = check_script(tmp_path, "sys.exit('cos' in nodes)")
    run = reduced(tmp_path, model, *by_command(check), f"strategy.find={find}")
    assert run.result["culprits"] == ["cos"] and not run.result["answers"], run.output
    assert "the rest of the model passes" in run.result["message"] or find == "cause"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "left"), [("inputs", ["h0", "h1", "h2"]), ("outputs", ["h2", "h3", "y"])], ids=["inputs", "outputs"]
)
def test_what_the_user_keeps_stays_beside_constants(tmp_path: Path, kept: str, left: list[str]) -> None:
    model = table(tmp_path, "Mul", "Add", "Mul")
    check = check_script(tmp_path, "sys.exit({'wide', 'h2'} <= nodes)")
    run = reduced(tmp_path, model, *by_command(check), f"strategy.reduce_{kept}=false", "strategy.shrink=false")
    assert set(left) <= set(run.result["culprits"]), run.output
    graph = run.model().graph
    assert [one.name for one in graph.input] == ["x"] if kept == "inputs" else graph.output[0].name == "y"


def test_a_nan_that_constants_make_is_theirs(tmp_path: Path) -> None:
    nodes = steps("table = Log(steps) h = Tanh(x) a = Mul(h, table) y = Neg(a)")
    model = saved(tmp_path / "net.onnx", nodes, steps=np.linspace(-1, 1, 8, dtype=np.float32))
    np.savez(tmp_path / "inputs.npz", x=X)
    given = ("inputs=files", f"inputs.path={tmp_path / 'inputs.npz'}", "checker=finite", "checker.flaky=never")
    run = winnow(f"model={model}", *given, folder=tmp_path / "run")
    assert run.result["culprits"] == ["table"], run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("needed", "left"),
    [
        (["wide"], ["huge", "big", "wide"]),  # innocent constants stay nodes, since their values take more room
        (["sums"], ["huge", "big", "sums"]),
        (["big"], ["big"]),
        (["big", "wide"], ["big", "wide"]),
        (["huge"], ["huge"]),
    ],
)
def test_a_large_constant_is_named_where_the_failure_needs_it(
    tmp_path: Path, needed: list[str], left: list[str]
) -> None:
    """The check is a command, which compares no tensors: only the answer can tell."""
    # a second reader may tell that it is not the first
    last = "sums = ReduceSum<keepdims = 0>(big, axes) y = Add(part, sums)" if needed == ["sums"] else "y = Neg(part)"
    nodes = steps(f"""huge = Expand(one, shape) big = Cos(huge) h = Tanh(x) wide = MatMul(h, big)
        part = Slice(wide, starts, ends, slices) {last}""")
    model = saved(tmp_path / "net.onnx", nodes, **GROWING)
    check = check_script(tmp_path, f"{HEAVY}sys.exit(nodes.issuperset({needed}))")
    run = reduced(tmp_path, model, *by_command(check))
    assert (run.result["culprits"], run.result["cause"]["status"]) == (needed, "proven"), run.output
    assert operators(run.model()) == left
    assert (run.folder / "reduced.onnx").stat().st_size < 1 << 16
    # the nodes of a candidate are counted alike everywhere: those that come along are some of them
    assert run.result["nodes"] == {"before": len(nodes), "after": len(left)}
    for whole in ("the model file", "the whole model"):
        assert f"{whole} ({len(nodes)} nodes): FAIL" in run.log
    assert f"as handed over ({counted(len(left), 'node')}): FAIL" in run.log
