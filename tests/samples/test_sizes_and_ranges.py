"""Inputs that are made up are such that a model takes them: caches, masks, positions, lengths, by any name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from runner.cli.app import run as run_line
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.samples import samples
from runner.samples.ask_reference import Taken, taken, template
from runner.samples.sizes_and_ranges import accepted, made_up
from runner.schema.backend import OnnxRuntimeBackend, Optimization
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.sweeps.sweep import Sweep
from runner.verdict import Raised, Signature
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from tests.harness import winnow
from tests.matrix import slow
from tests.model.models import model_of, nodes_of

ROWS, POSITIONS, WIDTH = 50, 16, 4
Dims = Sequence[int | str | None]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with Guardian() as guardian, Pool(tmp_path_factory.mktemp("pool"), guardian) as pool:
        yield pool


def value(name: str, dims: Dims, dtype: int = T.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def model(
    text: str, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto], **held: Any
) -> onnx.ModelProto:
    """A model whose nodes are named after what they make."""
    nodes = nodes_of(text)
    for one in nodes:
        one.name = f"node_{one.output[0]}"
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    return model_of(nodes, inputs, outputs, tensors)


# every place of the cache is looked up in the mask: one that is too short is refused
ATTENTION = """x = Gather (embed, ids)  at = Gather (places, pos)  h = Add (x, at)  q = Unsqueeze (h, one)
    present = Concat <axis = 2> (past, q)  turned = Transpose <perm = [0, 1, 3, 2]> (present)
    scores = MatMul (q, turned)  shape = Shape (present)  length = Gather (shape, two)
    every = Range (zero, length, step)  bools = Cast <to = 9> (mask)  counts = Gather <axis = 1> (bools, every)
    wide = Unsqueeze (counts, spread)  masked = Where (wide, scores, low)  y = Softmax <axis = -1> (masked)"""
HELD: dict[str, Any] = {
    "embed": np.ones((ROWS, WIDTH), np.float32),
    "places": np.ones((POSITIONS, WIDTH), np.float32),
    "one": np.array([1]),
    "two": np.array(2),
    "zero": np.array(0),
    "step": np.array(1),
    "spread": np.array([1, 2]),
    "low": np.float32(-1e9),
}


def decoder(ids: Dims, past: Dims, mask: Dims, present: Dims) -> onnx.ModelProto:
    inputs = [value("ids", ids, T.INT64), value("mask", mask, T.INT64), value("pos", ids, T.INT64), value("past", past)]
    return model(ATTENTION, inputs, [value("y", [None] * 4), value("present", present)], **HELD)


DECODERS = {
    "names say nothing": decoder(["b", "s"], ["b", 1, "p", WIDTH], ["b", "t"], ["b", 1, "t", WIDTH]),
    "a sum": decoder(
        ["batch_size", "sequence_length"],
        ["batch_size", 1, "past_sequence_length", WIDTH],
        ["batch_size", "past_sequence_length + sequence_length"],
        ["batch_size", 1, "past_sequence_length + sequence_length", WIDTH],
    ),
    "one more": decoder(
        ["batch", 1], ["batch", 1, "past_len", WIDTH], ["batch", "past_len + 1"], ["batch", 1, "past_len + 1", WIDTH]
    ),
    "a mask with an axis of its own": decoder(
        ["s0", "s1"], ["s0", 1, "s2", WIDTH], ["s0", "s9"], ["s0", 1, "s1 + s2", WIDTH]
    ),
    "a mask and a total of different names": decoder(
        ["b", "s"], ["b", 1, "p", WIDTH], ["b", "m"], ["b", 1, "total", WIDTH]
    ),
    "fixed": decoder([1, 3], [1, 1, 5, WIDTH], [1, 8], [1, 1, 8, WIDTH]),
    "a fixed cache": decoder(["b", 3], ["b", 1, 5, WIDTH], ["b", "t"], ["b", 1, "t", WIDTH]),
}


def feeds(settings: RandomInputs, one: onnx.ModelProto, pool: Pool, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {name: recorded.read(file) for name, file in samples(settings, Graph.of(one), pool, folder)[0].items()}


def run(one: onnx.ModelProto, fed: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, fed))


@pytest.mark.parametrize("name", DECODERS)
def test_a_cache_and_what_spans_it(pool: Pool, tmp_path: Path, name: str) -> None:
    one = DECODERS[name]
    fed = feeds(RandomInputs(), one, pool, tmp_path)
    y, present = run(one, fed)
    assert np.isfinite(y).all() and fed["mask"].shape[1] == present.shape[2]
    assert (fed["mask"] == 1).all() and fed["pos"].max() < POSITIONS
    several = {int(feeds(RandomInputs(seed=seed), one, pool, tmp_path / str(seed))["ids"].max()) for seed in range(9)}
    assert 1 < max(several) < ROWS  # any row of the embedding, and none beyond it


def test_a_size_that_is_given_is_that_of_its_name_everywhere(pool: Pool, tmp_path: Path) -> None:
    one = DECODERS["names say nothing"]
    given = RandomInputs(shapes={"ids": [2, 3], "past": [2, 1, 4, WIDTH]}, ranges={"mask": [0, 2]})
    fed = feeds(given, one, pool, tmp_path)
    assert fed["mask"].shape == (2, 7) and fed["pos"].shape == (2, 3) and not fed["mask"].all()
    run(one, fed)
    # a cache that is empty yet
    one = DECODERS["a mask with an axis of its own"]
    fed = feeds(RandomInputs(shapes={"ids": [1, 3], "past": [1, 1, 0, WIDTH]}), one, pool, tmp_path / "empty")
    assert fed["mask"].shape == (1, 3)
    run(one, fed)


# ---- where nothing in the file tells, the reference is asked

HIDDEN = decoder(["b", "s"], ["b", 1, "p", WIDTH], ["b", "t"], [None] * 4)


def asked(one: onnx.ModelProto, pool: Pool, folder: Path, **given: Any) -> Any:
    path = folder / "net.onnx"
    onnx.save(one, str(path))
    backend = OnnxRuntimeBackend(optimization=Optimization.none)
    settings = Settings(model=str(path), inputs=RandomInputs(**given), target=backend, reference=backend)
    return taken(settings, backend, Graph.of(one), path, pool, folder / "attempts")


def test_other_sizes_are_tried_where_the_reference_refuses(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="out of data bounds"):
        run(HIDDEN, feeds(RandomInputs(), HIDDEN, pool, tmp_path / "first"))
    found = asked(HIDDEN, pool, tmp_path)
    assert not found.refused
    run(HIDDEN, feeds(found.inputs, HIDDEN, pool, tmp_path / "then"))
    # what it takes at once, and what is not made up, stays as the user has it
    assert asked(DECODERS["a sum"], pool, tmp_path).inputs == RandomInputs()


def test_an_axis_that_has_to_be_long(pool: Pool, tmp_path: Path) -> None:
    text = "c = Conv <strides = [2]> (x, w)  y = Conv <strides = [2]> (c, w)"
    one = model(text, [value("x", ["n", 1, "time"])], [value("y", None)], w=np.ones((1, 1, 5), np.float32))
    found = asked(one, pool, tmp_path)
    assert found.inputs.shapes == {"x": [1, 1, 64]} and not found.refused


def test_a_batch_that_may_not_be_one(pool: Pool, tmp_path: Path) -> None:
    text = "m = MatMul (x, w)  y = Reshape (m, shape)"
    held = {"w": np.ones((8, 6), np.float32), "shape": np.array([4, -1])}
    found = asked(model(text, [value("x", ["b", 8])], [value("y", None)], **held), pool, tmp_path)
    assert found.inputs.shapes == {"x": [2, 8]} and not found.refused


def test_an_axis_that_has_to_fit_a_weight(pool: Pool, tmp_path: Path) -> None:
    held = {"w": np.arange(18, dtype=np.float32).reshape(6, 3), "low": np.float32(-600)}
    ends = [value("x", ["b", "k"])], [value("y", None)]
    found = asked(model("y = MatMul (x, w)", *ends, **held), pool, tmp_path)
    assert found.inputs.shapes == {"x": [1, 6]} and not found.refused
    # a NaN is looked into with these sizes as well
    one = model("m = MatMul (x, w)  n = Add (m, low)  y = Sqrt (n)", *ends, **held)
    run = winnow("reduce", str(saved(one, tmp_path)), folder=tmp_path / "run")
    told = yaml.safe_load((run.folder / "inputs.yaml").read_text())["inputs"]
    assert run.code == 3 and told == {"name": "random", "shapes": {"x": [1, 6]}, "ranges": {"x": [100, 101]}}


def test_what_the_reference_refuses_in_any_size(pool: Pool, tmp_path: Path) -> None:
    one = model("y = Reshape (x, shape)", [value("x", ["n", "m"])], [value("y", None)], shape=np.array([7, 11]))
    assert "Reshape" in asked(one, pool, tmp_path).refused
    # given by the user: the model's own failure
    assert not asked(one, pool, tmp_path, shapes={"x": [2, 2]}).refused


# ---- other models

FRAMES = """shape = Shape (feats)  length = Gather (shape, one)  every = Range (zero, length, step)
    column = Unsqueeze (lengths, last)  inside = Less (every, column)  bias = Where (inside, nothing, low)
    level = ReduceMean <axes = [2], keepdims = 0> (feats)  masked = Add (level, bias)
    y = Softmax <axis = -1> (masked)"""


@pytest.mark.parametrize("frames", ["time", 30])
def test_a_length_is_within_its_axis(pool: Pool, tmp_path: Path, frames: int | str) -> None:
    held = {"one": np.array(1), "zero": np.array(0), "step": np.array(1), "last": np.array([1])}
    floats = {"nothing": np.float32(0), "low": np.float32(-np.inf)}
    inputs = [value("feats", ["b", frames, 8]), value("lengths", ["b"], T.INT64)]
    one = model(FRAMES, inputs, [value("y", ["b", frames])], **held, **floats)
    fed = feeds(RandomInputs(), one, pool, tmp_path)
    assert fed["lengths"].tolist() == [fed["feats"].shape[1]]
    assert np.isfinite(run(one, fed)[0]).all()
    if frames == "time":
        longer = feeds(RandomInputs(shapes={"feats": [2, 12, 8]}), one, pool, tmp_path / "2")
        assert longer["lengths"].tolist() == [12, 12]


def test_a_cache_position_stays_within_a_cache(pool: Pool, tmp_path: Path) -> None:
    text = "at = Reshape (cache_position, column)  y = ScatterND (cache, at, new)"
    inputs = [value("cache", [6, 4]), value("cache_position", ["s"], T.INT64), value("new", ["s", 4])]
    one = model(text, inputs, [value("y", [6, 4])], column=np.array([-1, 1]))
    assert accepted(RandomInputs(), Graph.of(one)).ranges == {"cache_position": [0, 6]}
    run(one, feeds(RandomInputs(), one, pool, tmp_path))


def test_what_is_inside_a_branch_tells_as_well(pool: Pool, tmp_path: Path) -> None:
    text = """y = If (use_cache_branch) <then_branch = cached () => (float[] c) { c = Gather (embed, ids) },
        else_branch = fresh () => (float[] f) { f = Gather (embed, ids) }>"""
    inputs = [value("ids", ["b", 1], T.INT64), value("use_cache_branch", [1], T.BOOL)]
    one = model(text, inputs, [value("y", None)], embed=np.ones((ROWS, WIDTH), np.float32))
    assert accepted(RandomInputs(), Graph.of(one)).ranges == {"ids": [0, ROWS], "use_cache_branch": [1, 2]}
    run(one, feeds(RandomInputs(), one, pool, tmp_path))


def test_the_mask_of_an_encoder_beside_a_cache(pool: Pool, tmp_path: Path) -> None:
    """Its axis is nobody else's either, and not the total of the cache: then the reference is asked."""
    text = """x = Gather (embed, ids)  q = Unsqueeze (x, one)  present = Concat <axis = 2> (past, q)
        turned = Transpose <perm = [0, 1, 3, 2]> (cross)  scores = MatMul (q, turned)
        float_mask = Cast <to = 1> (mask)  missing = Sub (unit, float_mask)  bias = Mul (missing, low)
        wide = Unsqueeze (bias, spread)  masked = Add (scores, wide)  y = MatMul (masked, cross)"""
    inputs = [
        *(value("ids", ["b", 1], T.INT64), value("mask", ["b", "encoder"], T.INT64)),
        *(value("past", ["b", 1, "past", WIDTH]), value("cross", ["b", 1, "encoder_out", WIDTH])),
    ]
    outputs = [value("y", None), value("present", ["b", 1, "past + 1", WIDTH])]
    one = model(text, inputs, outputs, **HELD, unit=np.float32(1))
    found = asked(one, pool, tmp_path)
    assert not found.refused
    run(one, feeds(found.inputs, one, pool, tmp_path / "then"))


def test_what_is_not_made_up() -> None:
    assert made_up(RandomInputs(), Graph.of(DECODERS["fixed"])) == []  # nodes tell all of it
    assert made_up(RandomInputs(), Graph.of(DECODERS["one more"])) == ["ids", "mask", "pos", "past"]
    unknown = Graph.of(model("y = Add (x, x)", [value("x", [2], T.INT64)], [value("y", [2], T.INT64)]))
    assert made_up(RandomInputs(), unknown) == ["x"] and not made_up(RandomInputs(ranges={"": [0, 1]}), unknown)


def test_the_file_to_edit_says_what_is_made_up(pool: Pool, tmp_path: Path) -> None:
    graph = Graph.of(DECODERS["names say nothing"])
    text = template("net.onnx", graph, RandomInputs())
    told = yaml.safe_load(text)
    assert told["inputs"]["shapes"] == {"ids": [1, 1], "mask": [1, 2], "pos": [1, 1], "past": [1, 1, 1, WIDTH]}
    assert told["inputs"]["ranges"] == {"ids": [0, 50], "mask": [1, 2], "pos": [0, 16], "past": [-1, 1]}
    assert "t=2 (p + s)" in text and "picks from axis 0 of embed" in text
    fixed = model("y = Abs (x)", [value("x", [2])], [value("y", [2])])
    assert "\n# its shape is fixed: x (float [2])\n" in template("net.onnx", Graph.of(fixed), RandomInputs())
    given = RandomInputs(**told["inputs"])
    assert {name: one.shape for name, one in samples(given, graph, pool, tmp_path)[0].items()}["mask"] == (1, 2)


# ---- as a user sees it


def saved(one: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(one, str(folder / "net.onnx"))
    return folder / "net.onnx"


REFUSED = model("y = Reshape (x, shape)", [value("x", ["n", 2])], [value("y", None)], shape=np.array([7, 11]))


@pytest.mark.parametrize("strategy", [slow("triage"), "reduce"])
def test_what_the_reference_refuses_is_no_bug(tmp_path: Path, strategy: str) -> None:
    run = winnow(f"strategy={strategy}", f"model={saved(REFUSED, tmp_path)}", folder=tmp_path / "run")
    assert run.code == 3 and "no bug is shown" in run.output and "found" not in run.result["status"]
    assert f" {strategy} {run.folder}/inputs.yaml" in run.output or f" {strategy} run/inputs.yaml" in run.output
    told = yaml.safe_load((tmp_path / "run" / "inputs.yaml").read_text())
    assert told["inputs"]["shapes"] == {"x": [1, 2]} and told["model"] == str(tmp_path / "net.onnx")


@pytest.mark.parametrize("strategy", [slow("triage"), "reduce"])
def test_a_sound_model_is_run_on_sizes_that_it_takes(tmp_path: Path, strategy: str) -> None:
    run = winnow(f"strategy={strategy}", f"model={saved(HIDDEN, tmp_path)}", folder=tmp_path / "run")
    assert run.code == 4 and run.result["status"] == "nothing_to_find", run.output
    assert any("t=2 (s + p)" in warning for warning in run.result["warnings"])


# ---- a NaN of values that were made up

X, Y = value("x", [2, 8]), [value("y", None)]
F = np.float32
HALF: tuple[Any, ...] = ([value("x", [2, 8], T.FLOAT16)], [value("y", None, T.FLOAT16)])
N2 = value("n", [2], T.INT64)
MADE_OF_INPUTS = {
    "root": model("y = Sqrt (x)", [X], Y),
    "logarithm, turned": model("t = Transpose (x)  y = Log (t)", [X], Y),
    "power": model("y = Pow (x, p)", [X], Y, p=F(0.5)),
    "integers": model("c = Cast <to = 1> (n)  y = Div (x, c)", [X, value("n", [2, 8], T.INT64)], Y),
    "variance": model("a = Add (v, e)  c = Sqrt (a)  y = Div (x, c)", [X, value("v", [8])], Y, e=F(1e-5)),
    "scales": model('y = Resize <mode = "linear"> (x, , v)', [value("x", [1, 1, 4, 4]), value("v", [4])], Y),
    "shape": model("e = Expand (one, n)  y = ReduceLogSum (e)", [N2], Y, one=F(1)),
    "half": model("y = Sqrt (x)", *HALF),
}
OF_THE_MODEL = {
    "a negative weight": model("q = Sqrt (w)  y = Add (x, q)", [X], Y, w=-np.ones(8, F)),
    "0/0": model("q = Div (w, w)  y = Add (x, q)", [X], Y, w=np.zeros(8, F)),
    "an input and a weight": model("s = Sqrt (x)  n = Sqrt (w)  y = Add (s, n)", [X], Y, w=-np.ones(8, F)),
    "no input itself": model("s = Mul (x, x)  n = Sub (zero, s)  y = Log (n)", [X], Y, zero=F(0)),
    "too small for float16": model("t = Mul (x, tiny)  y = Reciprocal (t)", *HALF, tiny=np.float16(1e-5)),
    "a whole power": model("q = Pow (x, p)  y = Div (q, w)", [X], Y, p=F(2), w=np.zeros(8, F)),
}


@pytest.mark.parametrize("name", MADE_OF_INPUTS)
def test_a_nan_of_made_up_values(pool: Pool, tmp_path: Path, name: str) -> None:
    one = MADE_OF_INPUTS[name]
    # one whole number in two is zero
    tried = (asked(one, pool, tmp_path, seed=seed) for seed in range(9 if name == "shape" else 1))
    found = next(found for found in tried if found.refused)
    assert found.refused and found.not_finite == (name != "scales") and not found.sizes
    assert all(np.isfinite(array).all() for array in run(one, feeds(found.offered, one, pool, tmp_path / "then")))
    # what the user says of values is taken as it is
    assert not asked(one, pool, tmp_path, ranges={"": [-1, 2]} if name != "half" else {"x": [-1, 1]}).refused


@pytest.mark.parametrize("name", OF_THE_MODEL)
def test_a_nan_of_the_model_stays_a_finding(pool: Pool, tmp_path: Path, name: str) -> None:
    one = OF_THE_MODEL[name]
    with np.errstate(all="ignore"):
        assert not all(
            np.isfinite(array).all() for array in run(one, feeds(RandomInputs(), one, pool, tmp_path / "at"))
        )
    assert not asked(one, pool, tmp_path).refused


def shifted(op: str, last: str = "Identity", **held: Any) -> onnx.ModelProto:
    """A model that makes ``y`` by an operator of ``(x - shift) * scale``, then by ``last``."""
    reads = "c, w" if last in ("MatMul", "Mul") else "c"
    text = f"a = Sub (x, shift)  b = Mul (a, scale)  c = {op} (b)  y = {last} ({reads})"
    return model(text, [X], Y, **{"shift": F(0), "scale": F(1), **held})


MASK = value("mask", [2, 8], T.INT64)
BAD = np.full((8, 3), np.nan, F)
MASKED = """m = Cast <to = 1> (mask)  rest = Sub (one, m)  part = Mul (x, rest)  sum = ReduceSum (part, axes)
    count = ReduceSum (rest, axes)  y = Div (sum, count)"""
SPREAD = """mean = ReduceMean <axes = [1]> (x)  d = Sub (x, mean)  q = Mul (d, d)  v = ReduceMean <axes = [1]> (q)
    u = Sub (v, least)  s = Sqrt (u)  y = Div (d, s)"""
BIG = "a = Add (x, big)  b = Sub (a, big)  c = Sub (b, x) "


def branches(text: str) -> str:
    other = "else_branch = e () => (float[] other) { other = Neg (x) }"
    return f"y = If (yes) <then_branch = t () => (float[] root) {{ {text} }}, {other}>"


NONE = """h = MatMul (x, w)  above = Greater (h, least)  at = NonZero (above)  many = Size (at)
    count = Cast <to = 1> (many)  y = Div (x, count)"""
QUICK = ("inside a branch", "a count of none", "an integer", "cancellation")
LOOP = """up = Add (x, three)  y = Loop (n, yes, up) <
    body = step (int64 i, bool go, float[2,8] s) => (bool goes, float[2,8] next) <float zero = {0}> {
        goes = Identity (go)  less = Sub (s, three)  log = Log (s)  none = Mul (log, zero)
        next = Add (less, none) }>"""
ROOT = nodes_of("three = Constant <value_float = 3.0> ()  d = Sub (x, three)  y = Sqrt (d)")
CALLED = model("y = own.Root (x)", [X], Y)
CALLED.opset_import.append(helper.make_opsetid("own", 1))
CALLED.functions.append(helper.make_function("own", "Root", ["x"], ["y"], ROOT, CALLED.opset_import[:1]))
ENDS: dict[str, tuple[onnx.ModelProto, str]] = {
    "inside a branch": (
        model(branches("d = Sub (x, three)  root = Sqrt (d)"), [X], Y, yes=np.array(True), three=F(3)),
        "",
    ),
    "a later iteration": (model(LOOP, [X], Y, n=3, yes=True, three=F(3)), ""),
    "inside a function": (CALLED, ""),
    "rounding inside a branch": (
        model(branches(f"{BIG} root = Sqrt (c)"), [X], Y, yes=np.array(True), big=F(1000)),
        "node_y",
    ),
    "a shift by hundreds": (shifted("Sqrt", shift=F(437)), ""),
    "a scale": (shifted("Asin", scale=F(100)), ""),
    "a negative scale": (shifted("Acosh", scale=F(-7), shift=F(-2)), ""),
    "a small window": (shifted("Atanh", scale=F(1000), shift=F(0.5)), ""),
    "a spread": (model(SPREAD, [X], Y, least=F(0.9)), ""),
    "a mask": (model(MASKED, [X, MASK], Y, one=F(1), axes=np.array([1])), ""),
    "a count of none": (model(NONE, [X], Y, w=np.ones((8, 1), F), least=F(30)), ""),
    "a root, and a weight": (shifted("Sqrt", "MatMul", w=BAD), "node_y"),
    "never": (model("n = Neg (x)  a = Mul (x, n)  y = Log (a)", [X], Y), "node_y"),
    "an integer": (model("c = Cast <to = 1> (n)  y = Div (c, c)", [N2], Y), "node_y"),
    "an overflow": (shifted("Exp", scale=F(1000)), "node_c"),
    "cancellation": (model(f"{BIG} y = Sqrt (c)", [X], Y, big=F(1000)), "node_y"),
}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *((name, "reduce") if name in QUICK else slow((name, "reduce")) for name in ENDS),
        *(slow((name, "triage")) for name in ("a shift by hundreds", "a mask", "an integer", "cancellation")),
    ],
)
def test_whose_a_nan_of_made_up_inputs_is(name: str, word: str, tmp_path: Path) -> None:
    """A reduction and a triage say the same."""
    one, culprit = ENDS[name]
    seed = "inputs.seed=3" if name == "an integer" else "inputs.seed=1"  # that has a zero
    run = winnow(word, str(saved(one, tmp_path)), "checker.flaky=never", seed, folder=tmp_path / "run")
    assert run.code == (0 if culprit else 3), run.output
    if not culprit:  # what is offered is taken
        again = winnow(word, str(run.folder / "inputs.yaml"), folder=tmp_path / "again")
        assert again.code == 4, again.output
        return
    assert run.result["culprits"] == [culprit]
    assert run.result["whose"] == ("not known" if name == "an integer" else "model"), run.output


OWN = """import numpy as np
import onnxruntime


def check(model, inputs, expected):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return all(np.isfinite(one).all() for fed in inputs for one in session.run(None, fed))
"""
FEEDS = OWN.replace("in inputs", "in [{name.name: -np.ones(name.shape, np.float32) for name in session.get_inputs()}]")


@pytest.mark.parametrize(
    ("word", "one", "text", "code"),
    [
        ("reduce", ENDS["a later iteration"][0], OWN, 3),
        ("reduce", REFUSED, OWN, 3),
        ("triage", MADE_OF_INPUTS["root"], OWN, 3),
        slow(("triage", REFUSED, OWN, 3)),
        ("reduce", MADE_OF_INPUTS["root"], FEEDS, 0),
        slow(("triage", MADE_OF_INPUTS["root"], FEEDS, 0)),
    ],
)
def test_made_up_inputs_are_no_evidence_for_a_check_of_ones_own(
    word: str, one: onnx.ModelProto, text: str, code: int, tmp_path: Path
) -> None:
    """Unless it feeds its own. The file to edit has the check, too."""
    (tmp_path / "own.py").write_text(text)
    check = ["checker=python", f"checker.file={tmp_path / 'own.py'}", "checker.flaky=never"]
    run = winnow(word, str(saved(one, tmp_path)), *check, folder=tmp_path / "run")
    assert run.code == code and ("no bug is shown" in run.output) == (code == 3), run.output
    if code == 3 and one is not REFUSED:
        again = winnow(word, str(run.folder / "inputs.yaml"), folder=tmp_path / "again")
        assert (again.code, again.result["checker"]) == (4, "python"), again.output


def test_what_a_nan_of_made_up_inputs_explains_to_a_check() -> None:
    known = Taken(RandomInputs(), refused="NaN", not_finite=True)
    shows = [Signature("check", kind) for kind in ("exit 1", "raised", "returned fail")]
    refused = Signature("check", "exit 1", raised=Raised(("Fail at check.py:1",), "model"))
    others = [Signature("check", "death MEMORY"), Signature("check", "timeout"), Signature("load", "error"), refused]
    assert all(map(known.explains, shows)) and not any(map(known.explains, others))
    assert Taken(RandomInputs(), refused="it does not run").explains(refused)


@pytest.mark.variants
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integers_that_are_drawn_again_are_said(op: str, tmp_path: Path) -> None:
    ends = [value(name, [64], T.INT64) for name in "mny"]
    one = model(f"y = {op} (m, n)", ends[:2], ends[2:])
    run = winnow("reduce", str(saved(one, tmp_path)), "inputs.ranges.m=[0,9]", folder=tmp_path / "run")
    assert run.code == 4, run.output
    said = [warning for warning in run.result["warnings"] if "made up" in warning]
    assert len(said) == 1 and "with n in [1, 8) the reference runs" in said[0] and "by zero" in said[0], said


def test_a_long_way_back_to_the_inputs_is_no_recursion(tmp_path: Path) -> None:
    steps = "".join(f"t{number + 1} = Relu (t{number}) " for number in range(1200))
    one = model(f"{steps} y = Reciprocal (t1200)", [value("t0", [2, 8])], Y)
    run = winnow("reduce", str(saved(one, tmp_path)), "checker.flaky=never", folder=tmp_path / "run")
    assert run.code == 3 and "With t0 in [0.5, 1.5) the outputs are finite" in run.output, run.output
    assert "(runs with these ranges; edit them if yours differ)" in run.output


def test_where_no_values_are_found_the_model_is_not_accused(tmp_path: Path) -> None:
    held = {"w": np.array([[1, -1]], F), "v": F(0.5)}
    one = model("a = MatMul (x, w)  b = Sub (a, v)  y = Log (b)", [value("x", [4, 1])], Y, **held)
    run = winnow("reduce", str(saved(one, tmp_path)), "checker.flaky=never", folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["node_y"], "not known"), run.output
    assert (
        "the inputs are made up, and no values that work were found (tried: x in [" in run.result["cause"]["no_value"]
    )


def test_the_command_that_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*words: str) -> tuple[int, str, str]:
        return run_line(["inputs", *words], Sweep()), *capsys.readouterr()

    path = str(saved(HIDDEN, tmp_path))
    code, told, _ = asked(path)
    assert code == 0 and "mask: [1, 2]  # int64 [b, t]" in told
    (tmp_path / "inputs.yaml").write_text(told)
    assert asked(str(tmp_path / "inputs.yaml"), "--check")[0] == 0, "what is written is what the reference takes"
    (tmp_path / "inputs.yaml").write_text(told.replace("mask: [1, 2]", "mask: [1, 1]", 1))
    code, _, said = asked(str(tmp_path / "inputs.yaml"), "--check")
    assert code == 3 and "out of data bounds" in said
    (tmp_path / "inputs.yaml").write_text(told.replace("mask: [1, 2]  # a", "mask: [1, 1]  # a"))
    code, _, said = asked(str(tmp_path / "inputs.yaml"), "--check")
    assert code == 3 and "inputs.ranges" in said, "a range that holds no number is not taken"
    code, told, said = asked(path, "--check")
    assert code == 0 and "mask: [1, 2]" in told and "runs the model on these" in said
    broken = tmp_path / "broken"
    broken.mkdir()
    path = str(saved(model("y = Nothing (x)", [value("x", ["n"])], [value("y", None)]), broken))
    code, _, said = asked(path, "--check")
    assert code == 3 and "Nothing" in said
    code, told, said = asked(path)
    assert code == 0 and "x: [1]" in told and "Nothing" in said
    for words in ([], ["a", "b"], [str(tmp_path / "none.onnx")], ["--checks"]):
        assert asked(*words)[0] == 2


def test_an_axis_is_a_sum_only_where_the_graph_makes_one_tensor_longer_by_another() -> None:
    """Here an output looks like an input that grew, but nothing is put behind it."""
    one = model(
        "r = Relu (x)  t = Transpose <perm = [0, 2, 1]> (q)  y = MatMul (t, r)",
        [value("x", [1, 8, 16]), value("q", [1, 8, "S2"]), value("z", [3, "S1"])],
        [value("y", [1, "S2", 16])],
    )
    assert not any(" + " in size for size in accepted(RandomInputs(), Graph.of(one)).sizes)
