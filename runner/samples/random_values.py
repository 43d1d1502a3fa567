"""Seeded random values of inputs: the same for the same seed, input name and sample, on every machine."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SequenceProto, TensorProto, helper, numpy_helper

from runner import machine
from runner.exit_codes import UsageError
from runner.model.values import recorded
from runner.model.values.dtypes import is_integer, limits_of
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import Structure
from runner.samples.declared_inputs import Declared, Value, refuse_unknown, tensor, type_name
from runner.schema.inputs import RandomInputs
from runner.workers.pool import Pool

# [low, high)
Span = tuple[float, float]
_FLOAT_RANGE: Span = (-1.0, 1.0)
# 0 and 1: what any index, axis, token id or mask can be
_INTEGER_RANGE: Span = (0, 2)
_ELEMENT_TYPES = {form: int(getattr(SequenceProto, form.upper())) for form in ("tensor", "sequence", "map", "optional")}
_STRINGS = np.array([b"a", b"b"], dtype=object)
# numpy's limit before 2.0
_MOST_DIMENSIONS = 32
# of one element, as drawn and as converted
_BYTES_TO_DRAW = 12


def from_random(
    settings: RandomInputs, inputs: Mapping[str, Declared], _pool: Pool, folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """Values for every input: floats in [-1, 1), integers 0 or 1, unless ``ranges`` says otherwise ([low, high)).

    Open dimensions have sizes by now (`runner.samples.sizes_and_ranges`). A sequence gets two elements, a map two keys,
    an optional a value. Raises UsageError for a bad range or one that the type of its input cannot hold, for
    ``samples`` below 1, for an input of unknown rank without a given shape and for one too large for this machine.
    """
    if settings.samples < 1:
        raise UsageError(f"inputs.samples={settings.samples}: at least 1")
    refuse_unknown("inputs.ranges", [name for name in settings.ranges if name], inputs)
    shapes = {name: _shape(one) for name, one in inputs.items()}
    spans = {name: span_of(settings.ranges, one) for name, one in inputs.items()}
    result = []
    for number in range(settings.samples):
        sample = {}
        for position, (name, one) in enumerate(inputs.items()):
            path = folder / f"sample_{number}" / f"input_{position}.pb"
            path.parent.mkdir(parents=True, exist_ok=True)
            if one.structure is None:
                sample[name] = recorded.write(draw(one, shapes[name], settings.seed, number, spans[name]), name, path)
            else:
                drawn = _container(one, one.structure, shapes[name], (settings.seed, number, spans[name]), "")
                sample[name] = recorded.write_container(drawn, one.structure, name, path)
        result.append(sample)
    return tuple(result)


def draw(one: Declared, shape: Sequence[int], seed: int, sample: int = 0, span: Span | None = None) -> Value:
    """One tensor of ``one``'s type, uniform in ``span`` = [low, high), which the type holds."""
    digest = hashlib.sha256(f"{seed}\0{one.name}\0{sample}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    return tensor(_array(one.dtype, tuple(shape), generator, span), one.name, one.dtype)


def _container(
    one: Declared, structure: Structure, shape: Sequence[int], drawing: tuple[int, int, Span | None], place: str
) -> Any:
    """A sequence, an optional or a map of drawn tensors; ``drawing``: seed, sample and range; ``place``: in it."""
    form, inner = structure[0], structure[-1]
    if form == "tensor":
        named = replace(one.inside, name=f"{one.name}{place}")
        found = draw(named, shape, *drawing)
        return found if isinstance(found, TensorProto) else numpy_helper.from_array(found)
    count, kind = 1 if form == "optional" else 2, _ELEMENT_TYPES[inner[0]]
    items = [_container(one, inner, shape, drawing, f"{place}/{number}") for number in range(count)]
    if form == "optional":
        return helper.make_optional("", kind, items[0])
    held = helper.make_sequence("", kind, items)
    if form == "sequence":
        return held
    return helper.make_map("", structure[1], [b"a", b"b"] if structure[1] == TensorProto.STRING else [0, 1], held)


def _array(
    dtype: int, shape: tuple[int, ...], generator: np.random.Generator, span: Span | None
) -> np.ndarray[Any, Any]:
    if dtype == TensorProto.STRING:
        return np.asarray(_STRINGS[generator.integers(0, 2, shape)], dtype=object).reshape(shape)
    if is_integer(dtype):
        first, end = (math.ceil(bound) for bound in span or _INTEGER_RANGE)
        drawn = np.dtype(np.uint64 if end > 1 << 63 else np.int64)
        return np.asarray(generator.integers(first, end, shape, dtype=drawn))
    low, high = span or _FLOAT_RANGE
    if dtype in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return np.asarray(_uniform(generator, low, high, shape) + 1j * _uniform(generator, low, high, shape))
    if dtype == TensorProto.DOUBLE:
        return _uniform(generator, low, high, shape)
    unit = generator.random(shape, dtype=np.float32)
    # rounding to float32 must not reach the open end (rounding to a smaller type may)
    below = np.nextafter(np.float32(high), np.float32(low))
    if high - low > float(np.finfo(np.float32).max):
        # the ends fit in float32, their difference does not
        return np.asarray(np.minimum(np.float32(low) * (1 - unit) + np.float32(high) * unit, below), dtype=np.float32)
    return np.asarray(np.minimum(np.float32(low) + np.float32(high - low) * unit, below), dtype=np.float32)


def _uniform(generator: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if math.isinf(high - low):  # numpy draws no range so wide
        unit = generator.random(shape)
        return np.asarray(low * (1 - unit) + high * unit)
    return np.asarray(generator.uniform(low, high, shape))


def _shape(one: Declared) -> tuple[int, ...]:
    """Return the shape to draw. Raises UsageError for one that is not known, or that this machine cannot hold."""
    if one.dims is None:
        raise UsageError(
            f"inputs=random: the model does not say what rank its input {one.name!r} has; give its shape, for example "
            f"inputs.shapes.{one.name}=[1,3]"
        )
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in one.dims)
    # a damaged file may say anything
    what = f"inputs=random: the model's input {one.name!r}"
    if len(shape) > _MOST_DIMENSIONS:
        raise UsageError(f"{what} has {len(shape)} dimensions; the most that can be fed are {_MOST_DIMENSIONS}")
    needed, there = math.prod(shape) * _BYTES_TO_DRAW, machine.free_mb() * 2**20
    if needed > there:
        raise UsageError(
            f"{what} is {one.shape_text}, which takes {needed / 2**30:.3g} GiB to draw; {there / 2**30:.3g} GiB are "
            f"free. Write another shape into the model: sanitize.shapes=true inputs.shapes.{one.name}=[..]"
        )
    return shape


def span_of(ranges: Mapping[str, Sequence[Any]], one: Declared) -> Span | None:
    """The range of one input, its own or that of all others; None where the default counts.

    Raises UsageError for one that is none, or that the input's type cannot hold.
    """
    dtype = one.inside.dtype
    own = one.name in ranges
    span = ranges.get(one.name, ranges.get(""))
    # the default range is for numbers only
    if span is None or (not own and dtype in (TensorProto.BOOL, TensorProto.STRING)):
        return None
    key = f"inputs.ranges.{one.name if own else chr(34) * 2}={list(span)}"
    if (
        len(span) != 2
        or not all(isinstance(bound, int | float) for bound in span)
        or not -math.inf < span[0] < span[1] < math.inf
    ):
        raise UsageError(f"{key}: two finite numbers [low, high) with low < high")
    held = limits_of(dtype)
    if held is None:
        raise UsageError(
            f"{key}: the model's input {one.name!r} is {type_name(dtype)}, which has no range; leave it out"
        )
    least, greatest = held
    low, high = span
    if is_integer(dtype):
        first, last = math.ceil(low), math.ceil(high) - 1
    else:
        # 3.4028235e38 is how people write the largest float32, and a bit more than it
        first, last = (min(max(bound, least), greatest) if _nearly(bound, held) else bound for bound in (low, high))
    what = f"{key}: the model's input {one.name!r} is {type_name(dtype)}, which holds"
    instead = "" if own else f", or give it a range of its own with inputs.ranges.{one.name}=[low,high]"
    if first < least or last > greatest:
        end = f"[{least}, {greatest + 1})" if is_integer(dtype) else f"[{least:g}, {greatest:g})"
        raise UsageError(f"{what} {_shown(least)} to {_shown(greatest)}; choose [low, high) within {end}{instead}")
    if is_integer(dtype):
        if first > last:
            raise UsageError(f"{what} whole numbers, and there is none in [{low}, {high}); choose a wider one{instead}")
        return first, last + 1
    return float(first), float(last)


def _nearly(bound: float, held: tuple[float, float]) -> bool:
    """Whether a bound is within the type's numbers but for the last digits of how it was written."""
    return any(abs(bound - end) <= abs(end) * 1e-7 for end in held if abs(bound) < sys.float_info.max)


def _shown(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
