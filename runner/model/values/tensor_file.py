"""A recorded value: a serialized TensorProto, which holds every ONNX dtype. ``containers`` has the others.

This module also runs in workers under older interpreters (Python 3.8, onnx 1.13, numpy 1).
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from onnx import TensorProto, TypeProto, numpy_helper

from runner.model.values import mapped_tensor, tensor_bytes, wire
from runner.model.values.dtypes import BY_NUMBER, BY_NUMPY, finiteness, is_integer
from runner.model.values.value_types import Shape, Structure, frozen, tensor_type, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Array = Any  # numpy.ndarray of any dtype; numpy's own generic differs between the versions that this runs under

# onnx.TensorProto.DataType of the dtypes that numpy has itself
NUMPY = {number: kind.numpy_name for number, kind in BY_NUMBER.items() if kind.native and number != tensor_bytes.STRING}
# all that arrays may have, those of the ml_dtypes package included
_BY_NAME = {**{name: kind.number for name, kind in BY_NUMPY.items()}, "float6_e2m3fn": 27, "float6_e3m2fn": 28}
INTEGERS = (tensor_bytes.STRING, *(number for number in BY_NUMBER if is_integer(number)))
# numbers of the fields raw_data and name of TensorProto, and name of the other messages
_RAW_DATA, _NAME, _OTHER_NAME = 9, 8, 1


@dataclass(frozen=True)
class TensorFile:
    """One value on disk: nearly always a tensor.

    ``place``: where its file is, or is to be; see ``path``. ``dtype``: an ``onnx.TensorProto.DataType`` number.
    ``finite`` / ``nan``: whether all its elements are finite / any is NaN (integers and strings are finite).
    ``structure``: None for a tensor; else what the value is (see ``types``), the file is the SequenceProto,
    OptionalProto or MapProto, ``dtype`` is UNDEFINED, ``shape`` empty, and ``elements`` are the shapes of the tensors
    inside, in order. ``packed``: (file, first byte, bytes) of a small value that was written with others.
    ``recompute``: makes the files of values that need not be there, and keeps them for as long as these objects live;
    ``length``: the bytes of such a file.
    """

    name: str
    place: Path
    dtype: int
    shape: tuple[int, ...]
    finite: bool = True
    nan: bool = False
    structure: Structure | None = None
    elements: tuple[Shape, ...] = ()
    packed: tuple[Path, int, int] | None = None
    length: int | None = None
    recompute: Callable[[list[TensorFile]], None] | None = field(default=None, compare=False, repr=False)

    @property
    def path(self) -> Path:
        """A file that holds this value alone, a serialized ``onnx.TensorProto``.

        A packed one is written out first, one that was not kept is computed again. Raises OSError.
        """
        if self.recompute is not None:
            self.recompute([self])
        if self.packed is not None and not self.place.exists():
            # two threads may ask for the same file
            partial = self.place.with_name(f"{self.place.name}.{os.getpid()}.{threading.get_ident()}.part")
            try:
                partial.write_bytes(self.content())
                partial.replace(self.place)
            except OSError:  # a full disk, say: nothing half-written takes what room is left
                with contextlib.suppress(OSError):
                    partial.unlink()
                raise
        return self.place

    @property
    def size(self) -> int:
        """The bytes of ``content``."""
        if self.packed is not None:
            return self.packed[2]
        return self.path.stat().st_size if self.length is None else self.length

    def content(self) -> bytes:
        """Return what the file holds, without writing a packed value out. Raises OSError."""
        if self.packed is None:
            return self.path.read_bytes()
        pack, start, length = self.packed
        with pack.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        found = {
            "name": self.name,
            "path": str(self.path),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "finite": self.finite,
            "nan": self.nan,
        }
        if self.structure is not None:
            found.update(structure=self.structure, elements=[list(shape) for shape in self.elements])
        return found

    @staticmethod
    def from_json(data: dict[str, Any]) -> TensorFile:
        """Read what ``to_json`` or a worker wrote."""
        packed = data.get("packed")
        return TensorFile(
            intern(data["name"]),
            Path(data["path"]),
            data["dtype"],
            tuple(data["shape"]),
            data["finite"],
            data["nan"],
            frozen(data.get("structure")),
            tuple(tuple(shape) for shape in data.get("elements", ())),
            (_parsed(packed[0]), packed[1], packed[2]) if packed else None,
            data.get("length"),
        )

    @property
    def type(self) -> TypeProto:
        """The value's type, with the concrete shape; of a sequence, with what the shapes inside have in common."""
        if self.structure is None:
            return tensor_type(self.dtype, self.shape)
        return type_of(self.structure, self.elements)


@lru_cache(maxsize=8)
def _parsed(path: str) -> Path:
    """Return the path of a pack: thousands of values share it."""
    return Path(path)


def paths(files: Mapping[str, TensorFile]) -> dict[str, str]:
    """Return the path of each file; those that have to be computed first are computed together."""
    together: dict[Any, list[TensorFile]] = {}
    for file in files.values():
        if file.recompute is not None:
            together.setdefault(file.recompute, []).append(file)
    for recompute, wanted in together.items():
        recompute(wanted)
    return {name: str(file.path) for name, file in files.items()}


def load(file: TensorFile | Path) -> TensorProto:
    """Read a tensor file as the protobuf that it is. Raises OSError, or ValueError for a file that is none."""
    tensor, raw = _parts(file)
    if raw is not None:
        tensor.raw_data = bytes(raw)
    return tensor


def read(file: TensorFile | Path) -> Array:
    """Read a tensor file as an array.

    Strings come as an object array of str. A dtype that numpy lacks comes in the one of ml_dtypes, or, where onnx is
    too old to use that, as the float32 or int8 that onnx gives. Raises OSError, or ValueError for a file that is none.
    """
    return np.array(mapped(file))


def mapped(file: TensorFile | Path) -> Array:
    """Return what ``read`` does, for as long as nothing writes the file: numbers are not copied, but mapped from it.

    Those of 4 bits and less are copied, as are strings, and what is not stored as raw data.
    """
    tensor, raw = _parts(file)
    array = mapped_tensor.array_of(tensor, raw)
    if array is None and raw is not None:
        tensor.raw_data = bytes(raw)
    return to_array(tensor) if array is None else array


def _parts(file: TensorFile | Path) -> tuple[TensorProto, Any]:
    """Return the tensor without its raw data, and that where it lies. Raises as ``load`` does."""
    path = file.place if isinstance(file, TensorFile) else Path(file)
    if isinstance(file, TensorFile) and file.structure is not None:
        raise ValueError(f"{path} holds no tensor but a {file.structure[0]}")
    if isinstance(file, TensorFile) and file.packed is None:
        path = file.path
    try:
        data = file.content() if isinstance(file, TensorFile) and file.packed else mapped_tensor.content(path)
        return mapped_tensor.split(data)
    except ValueError as error:
        raise ValueError(f"{path} is not a serialized TensorProto") from error


def to_array(tensor: TensorProto) -> Array:
    """Return an inline tensor's elements as an array; see ``read``."""
    shape = tuple(tensor.dims)
    if tensor.data_type == tensor_bytes.STRING:
        strings = [item.decode("utf-8", "surrogateescape") for item in tensor.string_data]
        array = np.empty(len(strings), dtype=object)
        array[:] = strings
        return array.reshape(shape)
    name = NUMPY.get(tensor.data_type)
    if name is None:
        return numpy_helper.to_array(tensor)
    raw = tensor_bytes.raw_bytes(tensor)
    assert raw is not None
    return np.frombuffer(raw, dtype=np.dtype(name).newbyteorder("<")).reshape(shape)


def dtype_of(array: Array) -> int | None:
    """Return the ONNX dtype of an array, or None where it has none (objects that are no strings, dates...)."""
    if array.dtype.kind in "US":
        return tensor_bytes.STRING
    if array.dtype.kind == "O":
        return tensor_bytes.STRING if all(isinstance(item, (str, bytes)) for item in array.ravel()) else None
    return _BY_NAME.get(array.dtype.name)


def write(value: Array | TensorProto, name: str, path: Path) -> TensorFile:
    """Write an array or a tensor under this name.

    Raises ValueError for an array whose dtype ONNX lacks. Large arrays are written from where they lie, without a
    second copy.
    """
    path = Path(path)
    if isinstance(value, TensorProto):
        tensor = TensorProto()
        tensor.CopyFrom(value)
        tensor.name = name
        path.write_bytes(tensor.SerializeToString())
        finite, nan = finite_of(tensor)
        return TensorFile(name, path, tensor.data_type, tuple(tensor.dims), finite, nan)
    array = np.asarray(value)
    dtype = dtype_of(array)
    if dtype is None:
        raise ValueError(f"{name!r}: ONNX has no dtype for numpy's {array.dtype}")
    header = TensorProto(name=name, data_type=dtype, dims=array.shape)
    finite, nan = True, False
    with path.open("wb") as file:
        if dtype == tensor_bytes.STRING:
            header.string_data.extend(_encoded(item) for item in array.ravel().tolist())
            file.write(header.SerializeToString())
        elif tensor_bytes.BITS[dtype] % 8:
            packed = numpy_helper.from_array(array, name)
            file.write(packed.SerializeToString())
        else:
            file.write(header.SerializeToString())
            little = np.ascontiguousarray(array)
            if little.dtype.byteorder == ">" or (little.dtype.byteorder == "=" and not np.little_endian):
                little = little.astype(little.dtype.newbyteorder("<"))
            _write_field(file, _RAW_DATA, little)
            finite, nan = finiteness(little.reshape(-1).view(np.uint8), BY_NUMBER[dtype])
    return TensorFile(name, path, dtype, tuple(array.shape), finite, nan)


def finite_of(tensor: TensorProto) -> tuple[bool, bool]:
    """Return (all elements are finite, some element is NaN) of an inline tensor; a damaged one counts as finite."""
    raw, kind = tensor_bytes.raw_bytes(tensor), BY_NUMBER.get(tensor.data_type)
    whole = raw is not None and kind is not None and len(raw) % max(kind.bits // 8, 1) == 0
    return finiteness(raw, kind) if raw and kind and whole else (True, False)


def renamed(file: TensorFile, name: str, path: Path) -> TensorFile:
    """Copy a file under another name, whatever it holds."""
    data = name.encode()
    with Path(path).open("wb") as target, file.path.open("rb") as source:
        while piece := source.read(1 << 22):
            target.write(piece)
        # of a field that is given twice the last one counts
        _write_field(target, _NAME if file.structure is None else _OTHER_NAME, np.frombuffer(data, dtype=np.uint8))
    return replace(file, name=name, place=Path(path), packed=None, length=None, recompute=None)


def _encoded(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")


def _write_field(file: BinaryIO, number: int, data: Array) -> None:
    """Append one length-delimited protobuf field whose content is the array's memory."""
    file.write(wire.delimited(number, data.nbytes))
    if data.nbytes:
        file.write(memoryview(data.reshape(-1).view(np.uint8)))
