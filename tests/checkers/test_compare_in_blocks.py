"""What is computed block by block is what one block gives, and numpy of the whole array."""

from __future__ import annotations

import math
import os
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from runner.checkers.compare_outputs import blank
from runner.checkers.metrics import BLOCK, at_ranks, blocks, compare, compare_recorded, median, quantile
from runner.checkers.tolerances import nudge
from runner.model.values import wire
from runner.model.values.recorded import TensorFile
from runner.schema.checker import CompareChecker, Metric, NonFinite, Statistic, Tolerance

FLOATS = [np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16]
FLOATS += [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
FLOATS += [ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn]
WHOLE = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.bool_]
WHOLE += [ml_dtypes.int4, ml_dtypes.uint4]
SHAPES = [(), (0, 3), (1,), (2, 3), (7,), (3, 0), (5, 4), (61,)]
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 3.5, 1e-30, 1e-320, 6e4, 1e30, -1e300, np.inf, -np.inf, np.nan)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    dtype, shape = draw(st.sampled_from([*FLOATS, *WHOLE, object])), draw(st.sampled_from(SHAPES))
    count = math.prod(shape)
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype is object:
        texts = np.array(["", "a", "b", "\udc80"], object)
        return tuple(generator.choice(texts, count).reshape(shape) for _ in range(2))  # type: ignore[return-value]
    if dtype in WHOLE:
        limits = (0, 2) if dtype is np.bool_ else (int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max) + 1)
        limits = draw(st.sampled_from([limits, (0, 2)]))
        kind = np.uint64 if limits[1] > 2**63 else np.int64
        made = [generator.integers(*limits, count, dtype=kind, endpoint=False) for _ in range(2)]
    else:
        made = [generator.standard_normal(count)] * 2
        made[1] = made[0] * (1 + draw(st.sampled_from([0.0, 1e-9, 1e-3, 1.0])) * generator.standard_normal(count))
        known = np.array(NUMBERS if draw(st.booleans()) else NUMBERS[:10])
        for array in made:  # also where the numbers are of one array
            odd = generator.random(count) < draw(st.sampled_from([0.0, 0.2, 1.0]))
            array[odd] = generator.choice(known, count)[odd]
    with np.errstate(all="ignore"):
        if np.dtype(dtype).kind == "c":
            made = [array + 1j * array[::-1] for array in made]
        a, b = (array.astype(dtype).reshape(shape) for array in made)
    some = generator.random(shape) < draw(st.sampled_from([0.0, 0.5]))
    return np.where(some, b, a), b


RULES = st.builds(
    CompareChecker,
    metric=st.sampled_from(Metric),
    statistic=st.sampled_from(Statistic),
    quantile=st.sampled_from([0.0, 0.3, 0.5, 0.99, 1.0]),
    fraction=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    rtol=st.sampled_from([0.0, 1e-3, math.inf]),
    atol=st.sampled_from([0.0, 1e-5]),
    nan=st.sampled_from(NonFinite),
    inf=st.sampled_from(NonFinite),
)


@settings(max_examples=400, deadline=None)
@given(tensors(), RULES, st.sampled_from([1, 2, 5, 16]))
def test_several_blocks_give_what_one_does_but_for_rounding(
    pair: tuple[np.ndarray, np.ndarray], rule: CompareChecker, block: int
) -> None:
    """What one block gives is looked at in `test_metrics`."""
    with np.errstate(all="ignore"):
        mine, whole = (asdict(compare(*pair, rule, 2.0**-10, size)) for size in (block, BLOCK))
    for name, number in whole.items():
        # of 1 - cos nearly all digits may cancel
        assert mine[name] == (pytest.approx(number, rel=1e-12, abs=1e-14) if isinstance(number, float) else number)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 5e-324, 1.0, 1.0 + 2**-52, 2.0, 1e300, math.inf]) | st.floats(0, 10), min_size=1),
    st.floats(0, 1),
    st.integers(1, 9),
)
def test_order_statistics_are_exact(numbers: list[float], share: float, most: int) -> None:
    array = np.array(numbers)
    of = (lambda: blocks(array, 3), array.size)
    with np.errstate(all="ignore"):
        assert at_ranks(*of, range(array.size), most) == sorted(numbers)
        assert median(*of, most) == np.median(array)
        assert quantile(*of, share, most) == pytest.approx(np.quantile(array, share), rel=0, abs=0, nan_ok=True)


def test_the_cosine_of_complex_numbers_whose_size_no_float_holds() -> None:
    b = np.full(3, 1.7e308 + 1.7e308j)
    assert compare(b, b, CompareChecker(metric=Metric.cosine)).cosine == pytest.approx(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_neighbors_do_not_depend_on_the_blocks(dtype: type) -> None:
    array = np.random.default_rng(0).standard_normal(2 * BLOCK + 5).astype(dtype)
    moved = nudge(array, np.random.default_rng(1))
    coins = np.random.default_rng(1).integers(0, 2, array.size, dtype=np.int8)
    bits, kind = moved.view(f"u{array.itemsize}"), f"u{array.itemsize}"
    step = bits.astype(np.int64) - array.view(kind).astype(np.int64)
    assert ((step == coins * 2 - 1) | (step == 0)).all() and (step != 0).mean() > 0.9


def zeros(path: Path, count: int) -> TensorFile:
    """A file with holes: it takes no space on the disk."""
    header = TensorProto(name="x", data_type=TensorProto.FLOAT, dims=[count]).SerializeToString()
    header += wire.delimited(9, 4 * count)
    path.write_bytes(header)
    os.truncate(path, len(header) + 4 * count)
    return TensorFile("x", path, TensorProto.FLOAT, (count,))


@pytest.mark.variants
@pytest.mark.parametrize(
    ("count", "rule"),
    [
        (1 << 24, CompareChecker(metric=Metric.fraction)),
        (1 << 22, CompareChecker(metric=Metric.elementwise, statistic=Statistic.quantile, tolerance=Tolerance.auto)),
    ],
)
def test_large_tensors_are_compared_in_little_memory(count: int, rule: CompareChecker, tmp_path: Path) -> None:
    right, wrong = zeros(tmp_path / "right.pb", count), zeros(tmp_path / "wrong.pb", count)
    with wrong.path.open("r+b") as file:
        file.seek(-4 * (count // 50), os.SEEK_END)
        file.write(np.random.default_rng(0).random(count // 50, np.float32).tobytes())
    tracemalloc.start()
    try:
        found = compare_recorded(wrong, right, rule)
        assert blank(["x"], [{"x": right}], ()) == ("x",)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.fails() and 0.01 < found.fraction <= 0.02
    assert peak < 64e6
