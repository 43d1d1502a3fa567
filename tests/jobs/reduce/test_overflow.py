"""Real runs of models that overflow whoever runs them, and of those that have no value at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from runner.jobs.reduce.exact_values import _found
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import saved
from tests.matrix import sample, slow
from tests.model.models import model_of, tensor

Step = tuple[str, str, str]
ROUNDED, EVALUATED = "target.rounding=on", "target=onnx_reference"
X = np.linspace(1.5, 3, 8).reshape(2, 4)
FINITE = """
import sys
import numpy as np, onnx.reference
with np.load(sys.argv[2]) as data:
    made = onnx.reference.ReferenceEvaluator(sys.argv[1]).run(None, dict(data))
sys.exit(0 if all(np.isfinite(one).all() for one in made) else 1)
"""


def model(folder: Path, steps: list[Step], weights: dict[str, np.generic], dtype: int = TensorProto.FLOAT16) -> str:
    """Save a model that makes ``z`` of ``x``, with its input; a node is called as its output."""
    kind, nodes = TensorProto.DataType.Name(dtype).lower(), []
    for operator, reads, gives in steps:
        to = f"<to = {1 if gives.startswith('wide') else 10}>" if operator == "Cast" else ""
        nodes.append(f"[{gives}] {gives} = {operator}{to}({', '.join(reads.split())})")
    path = saved(folder / "net.onnx", f"g ({kind}[2,4] x) => ({kind}[2,4] z) {{ {' '.join(nodes)} }}", **weights)
    np.savez(folder / "x.npz", x=X.astype(helper.tensor_dtype_to_np_dtype(dtype)))
    return str(path)


def reduced(folder: Path, path: str, *more: str) -> Run:
    given = (f"model={path}", "inputs=files", f"inputs.path={folder / 'x.npz'}", "checker.flaky=never", *more)
    return winnow(*given, folder=folder / "run")


HALF = {"big": np.float16(60000), "near": np.float16(0.999), "tiny": np.float16(0.001)}
# what overflows reaches the end as Inf - Inf alone
LOST = [("Abs", "x", "a"), ("Mul", "a big", "b"), ("Mul", "b near", "c"), ("Sub", "b c", "d"), ("Mul", "d tiny", "z")]


@pytest.mark.parametrize("target", sample([ROUNDED, EVALUATED], 2))
def test_an_overflow_that_a_division_absorbs_is_the_models_own(target: str, tmp_path: Path) -> None:
    """Nothing is NaN or Inf at the end: what is divided by the Inf is 0."""
    steps = [("Mul", "x k", "a"), ("Mul", "a a", "square"), ("Div", "a square", "n"), ("Mul", "n k", "z")]
    run = reduced(tmp_path, model(tmp_path, steps, {"k": np.float16(1000)}), target, "reference.rounding=off")
    assert (run.code, run.result["cause"]["status"], run.result["whose"]) == (0, "proven", "model"), run.output
    assert "square" in run.result["culprits"] and run.result["cause"]["wider"]["tensor"] == "square"
    report = (run.folder / "REPORT.md").read_text()
    assert "exact values exceed float16" in report and "Report the failure" not in report


TWICE = [("Mul", "x big", "b"), ("Mul", "b tiny", "c"), ("Sub", "c c", "d"), ("Add", "d x", "e"), ("Sqrt", "e", "r")]
TWICE += [("Mul", "r big", "f"), ("Mul", "f tiny", "g"), ("Sub", "g g", "h"), ("Add", "h x", "z")]
CAST = [
    ("Cast", "x", "wide"),
    ("Mul", "wide big", "b"),
    ("Cast", "b", "c"),
    ("Mul", "c tiny", "d"),
    ("Sub", "d d", "z"),
]
EXPONENTIAL = [("Mul", "x big", "a"), ("Exp", "a", "b"), ("Div", "b b", "c"), ("Add", "c x", "z")]
OVERFLOWS = {
    "a Cast, of what it reads": (CAST, {**HALF, "big": np.float32(1e6)}, (EVALUATED,), "c", []),
    "float32, proven in float64": (EXPONENTIAL, {"big": np.float32(100)}, (), "b", []),
    "an output, which is wider then": (
        [("Abs", "x", "a"), ("Mul", "a big", "z")], HALF, (EVALUATED, "checker=finite"), "z", [],
    ),
    "a pattern that stands twice, raised at both places": (TWICE, HALF, (EVALUATED,), "b", ["b", "f"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", OVERFLOWS)
def test_an_overflow_is_proven_in_the_wider_type(tmp_path: Path, case: str) -> None:
    steps, weights, options, named, raised = OVERFLOWS[case]
    dtype = TensorProto.FLOAT if steps is EXPONENTIAL else TensorProto.FLOAT16
    run = reduced(tmp_path, model(tmp_path, steps, weights, dtype), *options)
    cause = run.result["cause"]
    assert (run.code, run.result["culprits"], cause["status"]) == (0, [named], "proven"), run.output
    assert {*raised} <= {*cause["wider"]["raised"]}
    assert cause["wider"]["wider"] == ("float64" if steps is EXPONENTIAL else "float32")
    if steps is CAST:
        assert cause["wider"]["largest"] == pytest.approx(3e6, rel=1e-3)


@pytest.mark.slow
def test_beyond_float64_nothing_is_known(tmp_path: Path) -> None:
    run = reduced(tmp_path, model(tmp_path, EXPONENTIAL, {"big": np.float64(1000)}, TensorProto.DOUBLE))
    assert (run.result["cause"]["status"], run.result["whose"]) == ("untested", "not known"), run.output
    assert "float64 has no wider type" in run.result["cause"]["reason"]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            [("Sub", "x x", "a"), ("Div", "a a", "b")],
            "b (Div) computes NaN from 0 (a, output of a) and 0 (a, output of a)",
        ),
        ([("Neg", "x", "a"), ("Sqrt", "a", "b")], "b (Sqrt) computes NaN from -1.5 (a, output of a)"),
    ],
)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.FLOAT])
def test_what_no_type_heals_is_told_by_its_operands(steps: list[Step], said: str, dtype: int, tmp_path: Path) -> None:
    run = reduced(tmp_path, model(tmp_path, [*steps, ("Add", "b x", "z")], {}, dtype), EVALUATED)
    cause = run.result["cause"]
    assert (run.code, run.result["culprits"], cause["status"]) == (0, ["b"], "untested"), run.output
    assert cause["no_value"] == said and run.result["whose"] == "model"
    assert said in " ".join(run.output.split()), run.output


@pytest.mark.parametrize("word", sample(["reduce", "triage"], 2))
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([("Neg", "w", "a"), ("Sqrt", "a", "b"), ("Div", "x b", "z")], "b (Sqrt) computes NaN from -2 (a, output of"),
        slow(
            ([("Neg", "x", "a"), ("Sub", "w w", "s"), ("Div", "a s", "z")], "z (Div) computes -Inf from -1.5 (a, out")
        ),
    ],
)
def test_what_weights_alone_make_is_the_models_own(word: str, steps: list[Step], said: str, tmp_path: Path) -> None:
    """No good value is known of a node that no input reaches; an Inf that both sides make is a failure as a NaN is."""
    path = model(tmp_path, steps, {"w": np.float32(2)}, TensorProto.FLOAT)
    run = winnow(word, path, "--inputs", str(tmp_path / "x.npz"), folder=tmp_path / "run")
    culprits, kind = [said.split(maxsplit=1)[0]], said.split()[3].lower().removeprefix("-")
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, culprits, "model"), run.output
    assert run.result["signature"]["kind"] == kind and said in run.result["cause"]["no_value"]


def test_what_fails_in_the_wider_type_as_well_is_not_proven(tmp_path: Path) -> None:
    """The exponential of what overflows in float16 does so in float32."""
    steps = [("Mul", "x big", "b"), ("Mul", "b tiny", "c"), ("Exp", "c", "d"), ("Div", "d d", "z")]
    run = reduced(tmp_path, model(tmp_path, steps, HALF), EVALUATED)
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (8, ["b"], "not proven"), run.output
    assert "fails in float32 too" in run.result["cause"]["reason"]


@pytest.mark.slow
def test_no_more_models_than_allowed_are_tried(tmp_path: Path) -> None:
    run = reduced(tmp_path, model(tmp_path, LOST, HALF), EVALUATED, "strategy.cause_checks=2")
    assert run.result["cause"]["status"] == "not proven" and "used up" in run.result["cause"]["reason"], run.output
    assert run.result["checks"]["cause"] == 1


def beside_a_parent(folder: Path, steps: list[Step], *check: str) -> Run:
    path = model(folder, steps, {name: np.float32(one) for name, one in HALF.items()}, TensorProto.FLOAT)
    parent = Path(path).rename(folder / "parent.onnx")
    return reduced(folder, model(folder, steps, HALF), f"reference.model={parent}", *check)


AGAIN_SMALL = [("Mul", "x big", "b"), ("Mul", "b near", "c"), ("Mul", "c tiny", "d"), ("Add", "d x", "z")]


@pytest.mark.slow
@pytest.mark.parametrize("check", ["compare", "command", "of the whole model only"])
def test_a_good_value_of_a_parent_that_does_not_fit_is_an_overflow_too(tmp_path: Path, check: str) -> None:
    """In a model that holds good values itself the exact value is that of the node cut out, without what is put in."""
    body = FINITE.replace("run(None", "run(['z']") if check == "of the whole model only" else FINITE
    own = by_command(check_script(tmp_path, body), "{inputs}")
    run = beside_a_parent(tmp_path, AGAIN_SMALL, *([EVALUATED] if check == "compare" else own))
    cause, whose = run.result["cause"], run.result["whose"]
    assert (run.code, run.result["culprits"], cause["status"], whose) == (0, ["b"], "proven", "model"), run.output
    assert (cause["wider"]["tensor"], cause["wider"]["beyond"], cause["wider"]["limit"]) == ("b", 8, 65504)


def test_what_overflows_beside_a_parent_is_kept_in_a_wider_type(tmp_path: Path) -> None:
    """The weights are right and the type is the fault."""
    run = beside_a_parent(tmp_path, AGAIN_SMALL, EVALUATED)
    assert (run.result["whose"], "weights" in run.result["cause"]) == ("model", False), run.output
    (joint,) = (one for one in run.result["warnings"] if one.startswith("the nodes "))
    assert (
        joint
        == "the nodes after b, c are judged only with those before: the good value of 'b' does not fit into float16"
    )
    title = (run.folder / "REPORT.md").read_text().partition("\n")[0]
    assert "the model's own" in title and "conversion" not in title


def test_all_that_exceeds_the_type_is_counted_where_anything_becomes_infinite() -> None:
    """What is beyond the end by less than half a step is rounded to it; that alone is no overflow."""
    for values, beyond in (([65503.0, 65508.5, -7e4], 2), ([65503.0, 65508.5], 0)):
        assert _found("t", TensorProto.FLOAT16, (np.array(values),)).beyond == beyond


NARROW = [
    *[("Add", "x big", "a"), ("Abs", "a", "b"), ("Mul", "x tiny", "t"), ("Add", "t big", "k")],
    *[("Sub", "b k", "c"), ("Sub", "k b", "d"), ("Sub", "c d", "e"), ("Mul", "e near", "z")],
]


@pytest.mark.parametrize(
    ("kind", "near", "named", "whose"),
    [
        ("float16", 0.999, ["a", "b", "c", "d"], "model"),
        ("bfloat16", 0.999, ["a", "b", "c", "d"], "model"),
        ("float16", 0.5, ["z"], "conversion"),
    ],
)
def test_a_type_that_loses_digits_which_later_nodes_need_is_the_fault(
    kind: str, near: float, named: list[str], whose: str, tmp_path: Path
) -> None:
    """All from a to where it cancels has to stay in float32, and k may be rounded. A wrong weight is told from that."""
    weights = {"big": np.float32(1000), "tiny": np.float32(0.001), "near": np.float32(0.999)}
    parent = Path(model(tmp_path, NARROW, weights, TensorProto.FLOAT)).rename(tmp_path / "parent.onnx")
    dtype = TensorProto.DataType.Value(kind.upper())
    low = helper.tensor_dtype_to_np_dtype(dtype).type
    path = model(tmp_path, NARROW, {name: low(one) for name, one in {**weights, "near": near}.items()}, dtype)
    run = reduced(tmp_path, path, f"reference.model={parent}", EVALUATED)
    assert (run.result["culprits"], run.result["whose"]) == (named, whose), run.output
    assert run.result["cause"]["status"] == "proven"
    assert (f"{kind} has too few digits for b, which c reads" in run.output) == (whose == "model")


def test_a_mask_does_not_hide_whose_a_difference_is(tmp_path: Path) -> None:
    """Beside -1e9 a wrong bias is smaller than what rounding does to the largest values."""
    steps = [("Add", "x mask", "m"), ("Softmax", "m", "s"), ("Mul", "s near", "z")]
    mask, near = np.array([0, 0, -1e9, -1e9], np.float32), np.float32(0.999)
    parent = Path(model(tmp_path, steps, {"mask": mask, "near": near}, TensorProto.FLOAT))
    parent = parent.rename(tmp_path / "parent.onnx")
    path = model(tmp_path, steps, {"mask": mask + np.eye(4, dtype=np.float32)[0], "near": near}, TensorProto.FLOAT)
    run = reduced(tmp_path, path, f"reference.model={parent}")
    assert (run.result["culprits"], run.result["whose"]) == (["m"], "conversion"), run.output


def test_what_overflows_by_a_weight_that_was_converted_wrong_is_the_conversions(tmp_path: Path) -> None:
    steps = [("Mul", "x near", "b"), ("Mul", "b tiny", "c"), ("Add", "c x", "z")]
    right = model(tmp_path, steps, {name: np.float32(one) for name, one in HALF.items()}, TensorProto.FLOAT)
    parent = Path(right).rename(tmp_path / "parent.onnx")
    child = model(tmp_path, steps, {**HALF, "near": np.float16(59940)})
    run = reduced(tmp_path, child, f"reference.model={parent}", EVALUATED)
    assert (run.result["culprits"], run.result["whose"]) == (["b"], "conversion"), run.output
    assert run.result["cause"]["weights"] == ["near is 59936; the original's is 0.999023"]


@pytest.mark.slow
def test_nodes_that_hand_on_what_their_type_cannot_hold_are_one_fault(tmp_path: Path) -> None:
    """No good value can stand between them: (a) and (b) are asked of all of them, and of none alone."""
    steps = [("Mul", "x big", "b"), ("Min", "b most", "c"), ("Max", "c least", "d"), ("Mul", "d tiny", "e")]
    steps += [("Add", "e x", "f"), ("Tanh", "x", "t"), ("Mul", "f t", "z")]
    wide = {
        **{name: np.float32(one) for name, one in HALF.items()},
        "most": np.float32(3e38),
        "least": np.float32(-3e38),
    }
    parent = Path(model(tmp_path, steps, wide, TensorProto.FLOAT)).rename(tmp_path / "parent.onnx")
    child = model(tmp_path, steps, {**HALF, "most": np.float16(65504), "least": np.float16(-65504)})
    run = reduced(tmp_path, child, f"reference.model={parent}", "checker=compare", "checker.rtol=0.02")
    cause = run.result["cause"]
    assert (run.code, run.result["culprits"], cause["status"]) == (0, ["b", "c", "d", "e"], "proven"), run.output


@pytest.mark.slow
def test_an_epsilon_that_became_zero_is_no_overflow(tmp_path: Path) -> None:
    """Of the logarithm of 0 there is no exact value either."""
    for name, kind, epsilon in (("original", "float", np.float32(1e-10)), ("converted", "float16", np.float16(0))):
        text = f"g ({kind}[4] x) => ({kind}[4] y) {{ [relu] r = Relu(x) [add] a = Add(r, eps) [log] y = Log(a) }}"
        saved(tmp_path / f"{name}.onnx", text, eps=epsilon)
    np.savez(tmp_path / "x.npz", x=np.array([-1, 2, 3, 4], np.float16))
    given = (f"model={tmp_path / 'converted.onnx'}", f"reference.model={tmp_path / 'original.onnx'}")
    run = winnow(*given, "inputs=files", f"inputs.path={tmp_path / 'x.npz'}", folder=tmp_path / "run")
    assert run.code in (0, 8) and "overflow" not in run.output, run.output
    assert run.result["cause"]["wider"] is None


def test_an_overflow_inside_a_loop_is_the_models_own(tmp_path: Path) -> None:
    text = """g (float16[2,4] x) => (float16[2,4] z) <int64 count = {1}, bool start = {1}> {
        [loop] l = Loop(count, start, x) <body = body (int64 at, bool go, float16[2,4] v) => (bool on, float16[2,4] w) {
            [b] w = Mul(v, big) [i] on = Identity(go) }>
        [z] z = Neg(l) }"""
    path = saved(tmp_path / "net.onnx", text, big=HALF["big"])
    np.savez(tmp_path / "x.npz", x=X.astype(np.float16))
    run = reduced(tmp_path, str(path), ROUNDED)
    assert (run.code, run.result["nested"], run.result["whose"]) == (0, ["loop.body/b"], "model"), run.output
    assert run.result["cause"]["reason"].endswith(
        "exceed 65,504; the largest is 180,000; a body is not tried in float32"
    )


@pytest.mark.parametrize("original", [False, True])
def test_a_weight_that_holds_nan_is_told_where_its_reader_has_no_exact_values(original: bool, tmp_path: Path) -> None:
    attributes, quantized = "K = 32, N = 2, bits = 4, block_size = 32", np.arange(32, dtype=np.uint8).reshape(2, 1, 16)
    nodes = f"[m] y = com.microsoft.MatMulNBits <{attributes}> (x, q, s) [t] z = Tanh(y)"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 32), ("z", 2))]
    for name, scale in (("net", np.nan), ("parent", 0.1)):
        held = [tensor("q", quantized), tensor("s", np.array([0.1, scale], np.float32))]
        made = model_of(nodes, ends[:1], ends[1:], held, domains=["com.microsoft"])
        onnx.save(made, str(tmp_path / f"{name}.onnx"))
    beside = [f"reference.model={tmp_path / 'parent.onnx'}"] * original
    run = winnow(f"model={tmp_path / 'net.onnx'}", *beside, folder=tmp_path / "run")
    whose = "conversion" if original else "model"
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["m"], whose), run.output
    said = "computes NaN from s (a weight, 1 of 2 elements is NaN)"
    assert ("the scale of q is NaN for 32 of 64 elements" if original else said) in run.output, run.output
