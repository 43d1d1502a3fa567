"""What a model declares about its inputs, how values are made to fit, and random ones."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import MapProto, OptionalProto, SequenceProto, TensorProto, TensorShapeProto, TypeProto, helper, numpy_helper

from runner import machine
from runner.judgment import NotApplicable, UsageError
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.dtypes import is_integer, limits_of
from runner.model.values.recorded import NUMPY, TensorFile
from runner.model.values.tensor_bytes import BITS, beyond, clipped
from runner.model.values.value_types import Structure, leaf_dtype, structure_of, structure_text
from runner.schema.inputs import RandomInputs
from runner.workers.pool import Pool

_MOST_SIZES = 16  # of a shape that a file claims, in messages


@dataclass(frozen=True)
class Declared:
    """One input of the model.

    ``dtype``: an ``onnx.TensorProto.DataType`` number. ``dims``: a size, the name of a dynamic dimension, or None
    where nothing is said; None as a whole where not even the rank is. ``structure``: None for a tensor; else what the
    input is (a sequence, an optional, a map), ``dtype`` is UNDEFINED, and ``dims`` are those of the tensors inside.
    """

    name: str
    dtype: int
    dims: tuple[int | str | None, ...] | None
    structure: Structure | None = None

    @property
    def inside(self) -> Declared:
        """What is declared of the tensors inside; of a tensor, itself."""
        if self.structure is None:
            return self
        return Declared(self.name, leaf_dtype(self.structure), self.dims)

    def mismatch(self, dtype: int, shape: Sequence[int]) -> str:
        """Why a tensor of this type and shape cannot be fed; "" if it can."""
        if dtype != self.dtype:
            return f"has type {type_name(dtype)}, the model declares {type_name(self.dtype)}"
        if self.dims is None:
            return ""
        if len(shape) != len(self.dims):
            return f"has rank {len(shape)} (shape {_sizes(shape)}), the model declares {self.shape_text}"
        if any(isinstance(dim, int) and dim != size for dim, size in zip(self.dims, shape, strict=True)):
            return f"has shape {list(shape)}, the model declares {self.shape_text}"
        return ""

    @property
    def shape_text(self) -> str:
        """The declared shape as people write it: ``[N, 3, ?]``."""
        if self.dims is None:
            return "[...]"
        return f"[{', '.join('?' if dim is None else str(dim) for dim in self.dims)}]"

    def __str__(self) -> str:
        what = f"{structure_text(self.structure)} of " if self.structure else ""
        return f"{self.name} ({what}{type_name(self.inside.dtype)} {self.shape_text})"


def _sizes(shape: Sequence[int]) -> str:
    sizes = [*map(str, shape[:_MOST_SIZES]), *(["..."] if len(shape) > _MOST_SIZES else [])]
    return f"[{', '.join(sizes)}]"


def type_name(dtype: int) -> str:
    """The name of an ONNX element type, in small letters."""
    try:
        return str(TensorProto.DataType.Name(dtype)).lower()
    except ValueError:
        return f"type {dtype}"


def declared(graph: Graph) -> dict[str, Declared]:
    """The inputs that must be fed, in the model's order. Raises NotApplicable for one whose type is not known."""
    return {name: _declared(name, graph.value_types.get(name)) for name in graph.inputs}


def declared_outputs(graph: Graph) -> dict[str, Declared]:
    """The outputs, in the model's order. Raises NotApplicable for one whose type is not known."""
    return {name: _declared(name, graph.value_types.get(name), "output") for name in graph.outputs}


def _declared(name: str, proto: TypeProto | None, word: str = "input") -> Declared:
    structure = structure_of(proto) if proto is not None else None
    if proto is None or structure is None:
        kind = proto.WhichOneof("value") if proto is not None else None
        what = "no type" if kind in (None, "tensor_type") else str(kind).removesuffix("_type")
        raise NotApplicable(
            f"the model's {word} {name!r} has a type that cannot be fed ({what}): Winnow feeds tensors, and sequences, "
            "optionals and maps of them"
        )
    if leaf_dtype(structure) not in TensorProto.DataType.values():
        raise NotApplicable(
            f"the model's {word} {name!r} has {type_name(leaf_dtype(structure))}, which the installed onnx does not "
            "know"
        )
    dims = _dims(proto)
    return Declared(name, structure[1], dims) if structure[0] == "tensor" else Declared(name, 0, dims, structure)


def _dims(proto: TypeProto) -> tuple[int | str | None, ...] | None:
    """The declared shape of a tensor, or of the tensors inside."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return tuple(_dim(dim) for dim in proto.tensor_type.shape.dim) if proto.tensor_type.HasField("shape") else None
    return _dims(proto.map_type.value_type if kind == "map_type" else getattr(proto, kind).elem_type)


def _dim(dim: TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) if dim.HasField("dim_param") and dim.dim_param else None


def concrete(inputs: Mapping[str, Declared], shapes: Mapping[str, Sequence[int]]) -> dict[str, Declared]:
    """The inputs with the shapes that the user gives (``inputs.shapes``) in the place of the declared ones.

    Raises UsageError for an unknown name, another rank, a negative size, or a size that the model fixes otherwise.
    """
    refuse_unknown("inputs.shapes", shapes, inputs)
    result = dict(inputs)
    for name, shape in shapes.items():
        sizes = tuple(int(size) for size in shape)
        why = (
            "has a negative size"
            if any(size < 0 for size in sizes)
            else inputs[name].inside.mismatch(inputs[name].inside.dtype, sizes)
        )
        if why:
            raise UsageError(f"inputs.shapes.{name}={list(shape)}: {why}")
        result[name] = replace(inputs[name], dims=sizes)
    return result


def refuse_unknown(key: str, names: Iterable[str], inputs: Mapping[str, Declared]) -> None:
    """Raise UsageError if ``names`` has one that is no input of the model."""
    if unknown := [name for name in names if name not in inputs]:
        raise UsageError(f"{key}: the model has no input {', '.join(map(repr, unknown))}; {listing(inputs)}")


def listing(inputs: Mapping[str, Declared], word: str = "input") -> str:
    """The model's inputs, or outputs, for messages."""
    return f"the model's {word}s: {', '.join(map(str, inputs.values()))}" if inputs else f"the model has no {word}s"


# Converts a value that was read to the type that a model's input declares, or says why it does not fit.

# the element types that numpy has itself: everything else (bfloat16, float8, int4) travels through files as something
# else
_NATIVE = frozenset({*NUMPY, TensorProto.STRING})
FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
# FLOAT4E2M1, FLOAT6E2M3, FLOAT6E3M2
_WITHOUT_NAN = (23, 27, 28)
# what `values.write` takes: an array, or a tensor of a type that numpy lacks
Value: TypeAlias = np.ndarray[Any, Any] | TensorProto


def tensor(array: np.ndarray[Any, Any], name: str, dtype: int) -> Value:
    """``array``'s values in the ONNX type ``dtype`` (rounded where the array's type is wider)."""
    if dtype == TensorProto.STRING:
        return array.astype(object)
    if dtype in _NATIVE:
        return array.astype(helper.tensor_dtype_to_np_dtype(dtype), copy=False)
    return helper.make_tensor(name, dtype, array.shape, array.reshape(-1).astype(np.float32))


def fitted(value: Value, one: Declared, source: Path) -> Value:
    """``value`` as a tensor for input ``one``.

    Where numpy has no such type, an array of the raw bits (a void type of the same size, which is how npz files hold
    bfloat16) or of float32, int8 or uint8 values is taken. Raises UsageError, naming ``source``, for another type or
    shape, and for a value that the type cannot hold (rounding aside).
    """
    if isinstance(value, TensorProto):
        if why := one.mismatch(value.data_type, value.dims):
            raise UsageError(f"{source}: {one.name!r} {why}")
        return value
    found = _onnx_type(value, one.dtype)
    if why := one.mismatch(found, value.shape):
        raise UsageError(f"{source}: {one.name!r} {why}")
    if value.dtype.kind == "V" and value.dtype.name not in type_name(one.dtype):
        return helper.make_tensor(one.name, one.dtype, value.shape, value.tobytes(), raw=True)
    if one.dtype not in _NATIVE and value.dtype.kind in "fiu":
        _refuse_misfits(value, one, source)
    return tensor(value, one.name, one.dtype)


def in_range(array: np.ndarray[Any, Any], name: str, dtype: int) -> Value:
    """``array``'s numbers in a float type; those beyond its range become its ends, which are no infinities."""
    return tensor(np.where(beyond(array, dtype), clipped(array, dtype), array), name, dtype)


def rounded(value: Value, one: Declared) -> Value:
    """``value`` in the float type that is declared, where both are floats, else as it is; see `in_range`."""
    theirs = value.data_type if isinstance(value, TensorProto) else _onnx_type(value, TensorProto.FLOAT)
    if theirs == one.dtype or not {theirs, one.dtype} <= FLOATS:
        return value
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
    return in_range(array, one.name, one.dtype)


def _refuse_misfits(array: np.ndarray[Any, Any], one: Declared, source: Path) -> None:
    """Raise UsageError for a value that the input's type cannot hold.

    Of the types that numpy lacks only bfloat16 is given infinities.
    """
    least, greatest = limits_of(one.dtype) or (-np.inf, np.inf)
    if is_integer(one.dtype):
        # NaN fails both comparisons
        bad = ~((array >= least) & (array <= greatest) & (array == np.floor(array)))
    else:
        bad = (array < min(least, 0)) | (array > greatest)
        bad = bad & np.isfinite(array) if one.dtype == TensorProto.BFLOAT16 else bad
        bad = bad | np.isnan(array) if one.dtype in _WITHOUT_NAN else bad
    if bad.any():
        what = "whole numbers" if is_integer(one.dtype) else "numbers"
        raise UsageError(
            f"{source}: {one.name!r} has {array[bad].flat[0]:g}, which {type_name(one.dtype)} cannot hold: it has "
            f"{what} from {least:g} to {greatest:g}"
        )


def _onnx_type(array: np.ndarray[Any, Any], wanted: int) -> int:
    """The ONNX type of the array, ``wanted`` if it can stand for that one."""
    if wanted == TensorProto.STRING and array.dtype.kind in "USO":
        return wanted
    if wanted not in _NATIVE:
        raw = array.dtype.kind == "V" and array.dtype.itemsize == BITS.get(wanted, 0) // 8
        if raw or array.dtype in (np.float32, np.int8, np.uint8):
            return wanted
    try:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")))
    except (KeyError, ValueError, TypeError):
        return int(TensorProto.UNDEFINED)


# Seeded random values: the same for the same seed, input name and sample, on every machine.

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

    Open dimensions have sizes by now (`runner.samples.made_up_inputs`). A sequence gets two elements, a map two keys,
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
    one: Declared,
    structure: Structure,
    shape: Sequence[int],
    drawing: tuple[int, int, Span | None],
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
    if one.dims is None:
        raise UsageError(
            f"inputs=random: the model does not say what rank its input {one.name!r} has; give its shape, for example "
            f"inputs.shapes.{one.name}=[1,3]"
        )
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in one.dims)
    _refuse_absurd(one, shape)
    return shape


def _refuse_absurd(one: Declared, shape: tuple[int, ...]) -> None:
    """Raise UsageError for a shape that numpy or this machine cannot hold; a damaged file may say anything."""
    what = f"inputs=random: the model's input {one.name!r}"
    if len(shape) > _MOST_DIMENSIONS:
        raise UsageError(f"{what} has {len(shape)} dimensions; the most that can be fed are {_MOST_DIMENSIONS}")
    needed, there = math.prod(shape) * _BYTES_TO_DRAW, machine.free_mb() * 2**20
    if needed > there:
        raise UsageError(
            f"{what} is {one.shape_text}, which takes {needed / 2**30:.3g} GiB to draw; {there / 2**30:.3g} GiB are "
            f"free. Write another shape into the model: sanitize.shapes=true inputs.shapes.{one.name}=[..]"
        )


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
