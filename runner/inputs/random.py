"""Seeded random values: the same for the same seed, input name and sample, on every machine."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from onnx import MapProto, OptionalProto, SequenceProto, TensorProto, numpy_helper

from runner.errors import UsageError
from runner.inputs.declared import Declared, refuse_unknown, type_name
from runner.inputs.fit import Value, tensor
from runner.model import values
from runner.model.types import Structure
from runner.model.values import TensorFile
from runner.schema.inputs import RandomInputs

log = logging.getLogger(__name__)

_FLOAT_RANGE = (-1.0, 1.0)
# 0 and 1: what any index, axis, token id or mask can be
_INTEGER_RANGE = (0.0, 2.0)
_ELEMENT_TYPES = {form: int(getattr(SequenceProto, form.upper())) for form in ("tensor", "sequence", "map", "optional")}
_STRINGS = np.array([b"a", b"b"], dtype=object)
# numpy's limit before 2.0
_MOST_DIMENSIONS = 32
# of one element, as drawn and as converted
_BYTES_TO_DRAW = 12


def from_random(
    settings: RandomInputs, inputs: Mapping[str, Declared], folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """Values for every input: floats in [-1, 1), integers 0 or 1, unless ``ranges`` says otherwise ([low, high)).

    A dynamic dimension without a given shape becomes 1, which is logged. A sequence gets two elements, a map two keys,
    an optional a value. Raises UsageError for a bad range, for
    ``samples`` below 1, for an input of unknown rank without a given shape and for one too large for this machine.
    """
    if settings.samples < 1:
        raise UsageError(f"inputs.samples={settings.samples}: at least 1")
    refuse_unknown("inputs.ranges", [name for name in settings.ranges if name], inputs)
    shapes = {name: _shape(one) for name, one in inputs.items()}
    result = []
    for number in range(settings.samples):
        sample = {}
        for position, (name, one) in enumerate(inputs.items()):
            path = folder / f"sample_{number}" / f"input_{position}.pb"
            path.parent.mkdir(parents=True, exist_ok=True)
            span = _range(settings.ranges, name)
            if one.structure is None:
                sample[name] = values.write(draw(one, shapes[name], settings.seed, number, span), name, path)
            else:
                drawn = _container(one, one.structure, shapes[name], (settings.seed, number, span), "")
                sample[name] = values.write_container(drawn, one.structure, name, path)
        result.append(sample)
    return tuple(result)


def draw(
    one: Declared, shape: Sequence[int], seed: int, sample: int = 0, span: tuple[float, float] | None = None
) -> Value:
    """One tensor of ``one``'s type, uniform in ``span`` = [low, high)."""
    digest = hashlib.sha256(f"{seed}\0{one.name}\0{sample}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    return tensor(_array(one.dtype, tuple(shape), generator, span), one.name, one.dtype)


def _container(
    one: Declared,
    structure: Structure,
    shape: Sequence[int],
    drawing: tuple[int, int, tuple[float, float] | None],
    place: str,
) -> Any:
    """A sequence, an optional or a map of drawn tensors; ``drawing``: seed, sample and range; ``place``: in it."""
    form, inner = structure[0], structure[-1]
    if form == "tensor":
        named = replace(one.inside, name=f"{one.name}{place}")
        found = draw(named, shape, *drawing)
        return found if isinstance(found, TensorProto) else numpy_helper.from_array(found)
    count = 1 if form == "optional" else 2
    items = [_container(one, inner, shape, drawing, f"{place}/{number}") for number in range(count)]
    if form == "optional":
        return OptionalProto(elem_type=_ELEMENT_TYPES[inner[0]], **{f"{inner[0]}_value": items[0]})
    if form == "sequence":
        return SequenceProto(elem_type=_ELEMENT_TYPES[inner[0]], **{f"{inner[0]}_values": items})
    keys = {"string_keys": [b"a", b"b"]} if structure[1] == TensorProto.STRING else {"keys": [0, 1]}
    inside = SequenceProto(elem_type=_ELEMENT_TYPES[inner[0]], **{f"{inner[0]}_values": items})
    return MapProto(key_type=structure[1], values=inside, **keys)


def _array(
    dtype: int, shape: tuple[int, ...], generator: np.random.Generator, span: tuple[float, float] | None
) -> np.ndarray[Any, Any]:
    if dtype == TensorProto.STRING:
        return np.asarray(_STRINGS[generator.integers(0, 2, shape)], dtype=object).reshape(shape)
    if dtype == TensorProto.BOOL:
        return np.asarray(generator.integers(0, 2, shape), dtype=np.bool_)
    if type_name(dtype).startswith(("int", "uint")):
        low, high = span or _INTEGER_RANGE
        return np.asarray(generator.integers(math.ceil(low), max(math.ceil(high), math.ceil(low) + 1), shape))
    low, high = span or _FLOAT_RANGE
    if dtype in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return np.asarray(generator.uniform(low, high, shape) + 1j * generator.uniform(low, high, shape))
    if dtype == TensorProto.DOUBLE:
        return generator.uniform(low, high, shape)
    unit = generator.random(shape, dtype=np.float32)
    # rounding to float32 must not reach the open end (rounding to a smaller type may)
    below = np.nextafter(np.float32(high), np.float32(low))
    return np.asarray(np.minimum(np.float32(low) + np.float32(high - low) * unit, below), dtype=np.float32)


def _shape(one: Declared) -> tuple[int, ...]:
    if one.dims is None:
        raise UsageError(
            f"inputs=random: the model does not say what rank its input {one.name!r} has; give its shape, for example "
            f"inputs.shapes.{one.name}=[1,3]"
        )
    if dynamic := [str(dim or "?") for dim in one.dims if not isinstance(dim, int)]:
        log.info(
            "input %s is %s: %s taken as 1; set inputs.shapes.%s=[..] for another size",
            one.name,
            one.shape_text,
            ", ".join(dynamic),
            one.name,
        )
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in one.dims)
    _refuse_absurd(one, shape)
    return shape


def _refuse_absurd(one: Declared, shape: tuple[int, ...]) -> None:
    """Raise UsageError for a shape that numpy or this machine cannot hold; a damaged file may say anything."""
    what = f"inputs=random: the model's input {one.name!r}"
    if len(shape) > _MOST_DIMENSIONS:
        raise UsageError(f"{what} has {len(shape)} dimensions; the most that can be fed are {_MOST_DIMENSIONS}")
    needed, there = math.prod(shape) * _BYTES_TO_DRAW, psutil.virtual_memory().available
    if needed > there:
        raise UsageError(
            f"{what} is {one.shape_text}, which takes {needed / 2**30:.3g} GiB to draw; {there / 2**30:.3g} GiB are "
            f"free. Write another shape into the model: sanitize.shapes=true inputs.shapes.{one.name}=[..]"
        )


def _range(ranges: Mapping[str, Sequence[Any]], name: str) -> tuple[float, float] | None:
    span = ranges.get(name, ranges.get(""))
    if span is None:
        return None
    numbers = [float(bound) for bound in span if isinstance(bound, int | float)]
    if len(numbers) != len(span) or len(numbers) != 2 or not -math.inf < numbers[0] < numbers[1] < math.inf:
        raise UsageError(f"inputs.ranges.{name}={list(span)}: two finite numbers [low, high) with low < high")
    return numbers[0], numbers[1]
