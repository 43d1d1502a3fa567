"""The parent's values in the child's types; prints; the map of the user; inputs that were renamed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from runner.exit_codes import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.reference.fingerprints import (
    CLEARLY,
    CLOSE,
    TWINS,
    Fingerprint,
    FingerprintIndex,
    Weights,
    agree,
    distance,
    print_of,
)
from runner.reference.good_values import UnfitError, cast, good_value
from runner.reference.input_pairs import matched_inputs
from runner.reference.parent import read_map
from runner.reference.teacher_forcing import doubtful, restored
from runner.samples.declared_inputs import Declared
from tests.model.models import model_of, tensor

HALF, BF16 = int(TensorProto.FLOAT16), int(TensorProto.BFLOAT16)


def given(folder: Path, array: np.ndarray, dtype: int, own: np.ndarray | None = None, *, reshaped: bool = False):
    theirs = recorded.write(array, "theirs", folder / "theirs.pb")
    mine = None if own is None else recorded.write(own, "mine", folder / "own.pb")
    return good_value(theirs, "mine", dtype, mine, folder / "golden.pb", reshaped=reshaped)


def test_a_value_is_rounded_to_the_childs_type(tmp_path: Path) -> None:
    array = np.array([1.0, 1 / 3, -2e4], np.float32)
    for dtype, kind in ((HALF, np.float16), (BF16, ml_dtypes.bfloat16)):
        found = given(tmp_path, array, dtype)
        assert not found.unfit and found.file.dtype == dtype and found.file.name == "mine"
        assert np.array_equal(recorded.read(found.file), array.astype(kind))


def test_what_does_not_fit_shows_an_overflow_and_is_not_fed(tmp_path: Path) -> None:
    found = given(tmp_path, np.array([1.0, 7e4, -1e5], np.float32), HALF)
    assert "does not fit into float16" in found.unfit
    assert recorded.read(found.file).tolist() == [1.0, 65504.0, -65504.0]


@pytest.mark.parametrize(
    ("held", "dtype", "kept"),
    [
        (np.array([1e38, 2.0], ml_dtypes.bfloat16), HALF, [65504.0, 2.0]),
        (np.array([1e38, 2.0], ml_dtypes.bfloat16), int(TensorProto.FLOAT8E4M3FN), [448.0, 2.0]),
        (np.array([100000, 2], np.int64), HALF, [65504.0, 2.0]),
        (np.array([2**40, 2], np.int64), int(TensorProto.INT32), [2**31 - 1, 2]),
        (np.array([-1, 2], np.int64), int(TensorProto.UINT8), [0, 2]),
        (np.array([200, 2], np.uint8), int(TensorProto.INT8), [127, 2]),
        (np.array([200, 2], np.int32), int(TensorProto.UINT4), [15, 2]),
        (np.array([3e9, 2.0], np.float32), int(TensorProto.INT32), [2**31 - 1, 2]),
        (np.array([2.0**63, 2.0], np.float64), int(TensorProto.INT64), [2**63 - 1024, 2]),
        (np.array([1e39, 2.0], np.float64), int(TensorProto.FLOAT), [float(np.finfo(np.float32).max), 2.0]),
    ],
)
def test_no_value_overflows_or_wraps_in_the_childs_type(
    tmp_path: Path, held: np.ndarray, dtype: int, kept: list[float]
) -> None:
    found = given(tmp_path, held, dtype)
    assert "does not fit" in found.unfit
    assert [float(one) for one in recorded.read(found.file)] == [float(one) for one in kept]


def test_the_ends_of_an_integer_type_are_those_of_a_narrower_one(tmp_path: Path) -> None:
    """A Slice to the end has the largest int64 for an end; -1, which it would wrap to, is another one."""
    found = given(tmp_path, np.array([2**63 - 1, -(2**63), 7], np.int64), int(TensorProto.INT32))
    assert not found.unfit
    assert recorded.read(found.file).tolist() == [2**31 - 1, -(2**31), 7]


def test_inputs_and_outputs_that_a_type_cannot_hold_are_refused(tmp_path: Path) -> None:
    sample = {"x": recorded.write(np.array([1e38, 1.0], ml_dtypes.bfloat16), "x", tmp_path / "x.pb")}
    with pytest.raises(UnfitError, match=r"'x' holds 9.*e\+37, which float16 cannot hold"):
        cast(sample, {"x": HALF}, tmp_path / "half")
    mask = {"x": recorded.write(np.array([-3.4e38, 0.0, -3.4e38], np.float32), "x", tmp_path / "mask.pb")}
    with np.errstate(over="ignore"):
        assert recorded.read(cast(mask, {"x": HALF}, tmp_path / "mask")["x"]).tolist() == [-np.inf, 0.0, -np.inf]


@pytest.mark.parametrize(("own", "last"), [(-65504.0, -65504.0), (-np.inf, -np.inf)])
def test_a_mask_is_as_the_child_writes_it(tmp_path: Path, own: float, last: float) -> None:
    mask = np.array([0.0, -3.4e38, -3.4e38], np.float32)
    found = given(tmp_path, mask, HALF, np.array([0.0, own, own], np.float16))
    assert not found.unfit
    assert recorded.read(found.file).tolist() == [0.0, last, last]


def test_a_value_takes_the_childs_shape_if_it_is_known_to_be_reshaped(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    own = np.zeros((2, 3), np.float32)
    assert recorded.read(given(tmp_path, array, 1, own, reshaped=True).file).tolist() == array[0].tolist()
    assert recorded.read(given(tmp_path, array, 1, own).file).shape == (1, 2, 3)


def test_prints_know_a_tensor_again() -> None:
    generator = np.random.default_rng(3)
    one, other = generator.normal(size=(2, 40, 40)).astype(np.float32)
    held = print_of([one])
    assert agree(print_of([one.astype(np.float16)]), held)
    assert agree(print_of([np.round(one * 30) / 30]), held)  # eight bits or so
    assert not agree(print_of([other]), held)
    assert not agree(print_of([one.T]), held)
    assert not agree(print_of([one[None]]), held)
    assert not agree(print_of([one * 1.1]), held)
    assert not agree(held, print_of([np.zeros_like(one)]))


def test_tensors_that_no_probe_tells_apart_are_told_apart_by_all_elements() -> None:
    generator = np.random.default_rng(0)
    every, free = np.zeros((70, 512)), np.setdiff1d(np.arange(512), np.linspace(0, 511, 16).astype(int))
    for one in every:
        one[generator.choice(free, 40, replace=False)] = generator.normal(size=40)
    index = FingerprintIndex({str(at): print_of([one]) for at, one in enumerate(every)})
    assert [names for _, names in index.near(print_of([every[3] * (1 + 1e-5)]))] == [("3",)]


def test_odd_elements_among_the_probes_hide_nothing_as_near() -> None:
    """A tensor and what clips it, with the few elements that differ at the first probes: neither is told from both."""
    generator = np.random.default_rng(0)
    one = np.clip(generator.normal(size=512), -4, 4)
    one[[*np.linspace(0, 511, 16).astype(int)[:2], 100]] = 5.1
    index = FingerprintIndex({"a": print_of([one]), "b": print_of([np.clip(one, -5, 5)])})
    held = np.clip(one, -5, 5) + generator.uniform(-1e-4, 1e-4, 512)
    assert {names for _, names in index.near(print_of([held]))} == {("a",), ("b",)}


@pytest.mark.parametrize("seed", range(1))
def test_what_an_index_rules_out_is_far_off(seed: int) -> None:
    """Rows in crowds, in which few probes tell one from another, some twice, some with numbers that are not finite."""
    generator = np.random.default_rng(seed)
    every = generator.normal(size=(5, 24))[generator.integers(0, 5, 80)] + 0.03 * generator.normal(size=(80, 24))
    every[generator.random(every.shape) < 0.02] = np.inf
    prints = {f"{at % 2}{at}": print_of([one]) for at, one in enumerate([*every, *every[:20]])}
    index = FingerprintIndex(prints)
    for one in (*every, *every + 3e-3 * generator.normal(size=every.shape)):
        held = print_of([one])
        found = index.near(held)
        assert found == sorted(found)
        far = {name: distance(held, other) for name, other in prints.items() if probably_alike(held, other)}
        limit = min(CLOSE, max(TWINS, CLEARLY * min(far.values())))
        assert {name for _, names in found for name in names} == {name for name in far if far[name] <= limit}


def probably_alike(held: Fingerprint, other: Fingerprint) -> bool:
    """The rule that goes before the comparison: at most four of sixteen elements off."""
    places = np.unique(np.linspace(0, held.numbers.size - 1, 16).astype(int))
    with np.errstate(invalid="ignore"):
        off = np.abs(other.numbers[places] - held.numbers[places]) > 0.04 * held.scale
    return bool(off.sum() <= 4)


def chain() -> Graph:
    """x > a > b > c, and d of a."""
    return Graph.of(model_of("a = Relu (x)  b = Relu (a)  c = Relu (b)  d = Relu (a)", ["x"], ["c", "d"]))


def test_what_something_right_depends_on_is_not_doubtful() -> None:
    graph = chain()
    assert doubtful(graph, {"x", "c", "d"}, {"x"}) == ("a", "b")
    assert doubtful(graph, {"x", "c", "d"}, {"x", "d"}) == ("b",)
    assert doubtful(graph, {"x", "c", "d"}, {"x", "c"}) == ()
    assert doubtful(graph, {"x"}, {"x"}) == ()


@pytest.mark.parametrize(("scale", "good"), [(0.1, True), (0.001, False)])
@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8])
def test_a_scale_gives_a_value_back_but_for_what_its_type_rounds_off(
    tmp_path: Path, kind: type, scale: float, good: bool
) -> None:
    scale = scale if kind is np.int8 else scale / 1e2 if kind is ml_dtypes.float8_e5m2 else scale / 4
    held = [tensor("scale", np.float32(scale)), tensor("zero", np.zeros((), kind))]
    graph = Graph.of(model_of("[q] q = QuantizeLinear (x, scale, zero)", [], [], held))
    x = np.linspace(-10, 10, 101, dtype=np.float32) + np.float32(0.07)
    most = 127 if kind is np.int8 else float(ml_dtypes.finfo(kind).max)
    q = np.clip(x / scale, -most, most)
    files = [
        {name: recorded.write(array, name, tmp_path / f"{name}.pb")}
        for name, array in (("x", x), ("q", (np.rint(q) if kind is np.int8 else q).astype(kind)))
    ]
    assert restored(graph, "q", files[:1], files[1:], Weights(graph, Store(tmp_path / "store"))) is good


@pytest.mark.parametrize(("scale", "good"), [(0.08, True), (0.02, False)])
def test_what_is_quantized_at_run_time_is_given_back_by_the_scale_beside_it(
    tmp_path: Path, scale: float, good: bool
) -> None:
    graph = Graph.of(model_of("[q] q, scale, zero = DynamicQuantizeLinear (x)", [], []))
    x = np.linspace(-10, 10, 101, dtype=np.float32)
    q = np.clip(np.rint(x / scale) + 128, 0, 255).astype(np.uint8)
    held = {"x": x, "q": q, "scale": np.float32(scale), "zero": np.uint8(128)}
    files = {name: recorded.write(np.asarray(one), name, tmp_path / f"{name}.pb") for name, one in held.items()}
    weights = Weights(graph, Store(tmp_path / "store"))
    assert {restored(graph, name, [files], [files], weights) for name in graph.nodes[0].outputs} == {good}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            {"aa": "d", "b": "cc"},
            "model has no tensor 'aa'; close: 'a'; reference.model has no tensor 'cc'; close: 'c'",
        ),
        ("missing.json", "reference.map=missing.json: it cannot be read"),
        ([1], "it must be a mapping"),
    ],
)
def test_a_wrong_map_says_what_is_wrong(told: object, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        read_map(told, chain(), chain())


def test_a_file_that_is_no_map(tmp_path: Path) -> None:
    for text in ("{a: [", "{a: " + "[" * 3000, "a: 2026-02-31"):
        (tmp_path / "map.json").write_text(text)
        with pytest.raises(UsageError, match="neither JSON nor YAML"):
            read_map(str(tmp_path / "map.json"), chain(), chain())
    (tmp_path / "map.json").write_text("a: &a [1]\nb: &b [*a, *a]")
    with pytest.raises(UsageError, match="it must be a mapping"):
        read_map(str(tmp_path / "map.json"), chain(), chain())


def inputs(*ones: tuple[str, int, tuple[int | str | None, ...]]) -> dict[str, Declared]:
    return {name: Declared(name, dtype, dims) for name, dtype, dims in ones}


def test_inputs_by_map_by_name_by_place() -> None:
    mine = inputs(("p", 10, (1, "N")), ("ids", 6, (4,)), ("q", 1, (2,)))
    theirs = inputs(("ids", 7, (4,)), ("x", 1, (1, 8)), ("y", 1, (2,)))
    assert matched_inputs(mine, theirs, {}) == {"ids": "ids", "x": "p", "y": "q"}
    alike = inputs(("p", 1, (2,)), ("q", 1, (2,)))
    assert matched_inputs(alike, inputs(("x", 1, (2,)), ("y", 1, (2,))), {"p": "y"}) == {"y": "p", "x": "q"}


def test_the_parent_may_have_fewer_inputs_but_no_other() -> None:
    mine = inputs(("p", 1, (2,)), ("mask", 9, (2,)))
    assert matched_inputs(mine, inputs(("x", 1, (2,))), {}) == {"x": "p"}
    with pytest.raises(UsageError, match=r"its input x \(float \[3\]\) is none of the model's, which are p \(float"):
        matched_inputs(mine, inputs(("x", 1, (3,))), {})
    with pytest.raises(UsageError, match=r"reference\.map='\{input of the model: x\}'"):
        matched_inputs(inputs(("p", 1, (2,))), inputs(("x", 1, (2,)), ("y", 1, (2,))), {})
