"""Recorded values: tensors, sequences and maps in files, seeded ones, and the forms that checks know.

A recorded value: a serialized TensorProto, which holds every ONNX dtype. ``containers`` has the others.

This module also runs in workers under older interpreters (Python 3.8, onnx 1.13, numpy 1).
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
from onnx import MapProto, OptionalProto, SequenceProto, TensorProto, TypeProto, helper, numpy_helper

from runner.model.values import tensor_bytes, wire
from runner.model.values.dtypes import BY_NUMBER, BY_NUMPY, finiteness, is_integer, limits_of
from runner.model.values.value_types import Shape, Structure, frozen, leaf_dtype, tensor_type, type_of

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
            tensor_bytes.write_whole(self.place, [self.content()])
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
            (Path(packed[0]), packed[1], packed[2]) if packed else None,
            data.get("length"),
        )

    @property
    def type(self) -> TypeProto:
        """The value's type, with the concrete shape; of a sequence, with what the shapes inside have in common."""
        if self.structure is None:
            return tensor_type(self.dtype, self.shape)
        return type_of(self.structure, self.elements)


def pack(file: TensorFile, into: Path, largest: int) -> TensorFile:
    """Move a value of at most ``largest`` bytes to the end of a file that holds many: one of its own is not left."""
    if file.packed is not None or file.recompute is not None or file.size > largest:
        return file
    content = file.content()
    with into.open("ab") as held:
        start = held.tell()
        held.write(content)
    file.place.unlink()
    return replace(file, packed=(into, start, len(content)))


def compute_together(files: Iterable[TensorFile]) -> None:
    """Have values there that have to be computed first: in one run each for those that one run gives."""
    together: dict[Any, list[TensorFile]] = {}
    for file in files:
        if file.recompute is not None:
            together.setdefault(file.recompute, []).append(file)
    for recompute, wanted in together.items():
        recompute(wanted)


def paths(files: Mapping[str, TensorFile]) -> dict[str, str]:
    """Return where each value lies, as workers read it (see `tensor_files.opened`): its file, or its part of a pack.

    Those that have to be computed first are computed together.
    """
    compute_together(files.values())
    return {
        name: "\0".join(map(str, file.packed)) if file.packed and not file.place.exists() else str(file.path)
        for name, file in files.items()
    }


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
    array = tensor_bytes.array_of(tensor, raw)
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
        data = file.content() if isinstance(file, TensorFile) and file.packed else tensor_bytes.content(path)
        return tensor_bytes.split(data)
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
        try:
            return numpy_helper.to_array(tensor)
        except KeyError:
            raise ValueError(f"{tensor.name!r} has type {tensor.data_type}, which onnx does not know") from None
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
    if not isinstance(value, TensorProto):
        array = np.asarray(value)
        dtype = dtype_of(array)
        if dtype is None:
            raise ValueError(f"{name!r}: ONNX has no dtype for numpy's {array.dtype}")
        if dtype == tensor_bytes.STRING:
            value = TensorProto(data_type=dtype, dims=array.shape)
            value.string_data.extend(_encoded(item) for item in array.ravel().tolist())
        elif tensor_bytes.BITS[dtype] % 8:
            value = numpy_helper.from_array(array)
        else:
            return _write_array(array, dtype, name, path)
    tensor = TensorProto()
    tensor.CopyFrom(value)
    tensor.name = name
    _make_raw(tensor)
    path.write_bytes(tensor.SerializeToString())
    return TensorFile(name, path, tensor.data_type, tuple(tensor.dims), *finite_of(tensor))


def _write_array(array: Array, dtype: int, name: str, path: Path) -> TensorFile:
    header = TensorProto(name=name, data_type=dtype, dims=array.shape).SerializeToString()
    little = np.ascontiguousarray(array)
    if little.dtype.byteorder == ">" or (little.dtype.byteorder == "=" and not np.little_endian):
        little = little.astype(little.dtype.newbyteorder("<"))
    raw = little.reshape(-1).view(np.uint8)
    with path.open("wb") as file:
        file.write(header + wire.delimited(_RAW_DATA, raw.nbytes))
        file.write(raw.data)
    return TensorFile(name, path, dtype, tuple(array.shape), *finiteness(raw, BY_NUMBER[dtype]))


def _make_raw(tensor: TensorProto) -> None:
    """Keep elements as raw data, the only form that workers read, where they have it."""
    raw = tensor_bytes.raw_bytes(tensor)
    if raw is not None:
        tensor_bytes.set_raw(tensor, raw)


def finite_of(tensor: TensorProto) -> tuple[bool, bool]:
    """Return (all elements are finite, some element is NaN) of an inline tensor; a damaged one counts as finite."""
    raw, kind = tensor_bytes.raw_bytes(tensor), BY_NUMBER.get(tensor.data_type)
    whole = raw is not None and kind is not None and len(raw) % max(kind.bits // 8, 1) == 0
    return finiteness(raw, kind) if raw and kind and whole else (True, False)


def renamed(file: TensorFile, name: str, path: Path) -> TensorFile:
    """Copy a file under another name, whatever it holds."""
    data, number = name.encode(), _NAME if file.structure is None else _OTHER_NAME
    with Path(path).open("wb") as target:
        target.write(file.content() if file.packed else tensor_bytes.content(file.path))
        # of a field that is given twice the last one counts
        target.write(wire.delimited(number, len(data)) + data)
    return replace(file, name=name, place=Path(path), packed=None, length=None, recompute=None)


def _encoded(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")


# Recorded values that are no tensors: a serialized SequenceProto, OptionalProto or MapProto a file.

Container = Any  # one of the three messages below

MESSAGES = {"tensor": TensorProto, "sequence": SequenceProto, "optional": OptionalProto, "map": MapProto}


def parse(data: bytes, structure: Structure) -> Container:
    """Return the message of this structure in ``data``. Raises ValueError for bytes that are none, or hold another."""
    message = MESSAGES[structure[0]]()
    try:
        message.ParseFromString(data)
    except Exception as error:  # the class that protobuf raises differs between its versions
        raise ValueError(f"no serialized {structure[0]}") from error
    for tensor in tensors(message, structure):
        if tensor_bytes.is_external(tensor):
            raise ValueError("a tensor in it refers to data outside the file")
        problem = tensor_bytes.size_problem(tensor)
        if problem:
            raise ValueError(f"a tensor in it cannot be used: {problem}")
        if tensor.data_type != leaf_dtype(structure):
            raise ValueError(f"it holds tensors of type {tensor_bytes.dtype_name(tensor.data_type)}")
    return message


def write_container(message: Container, structure: Structure, name: str, path: Path) -> TensorFile:
    """Write a sequence, an optional or a map under this name."""
    copy = MESSAGES[structure[0]]()
    copy.CopyFrom(message)
    copy.name = name
    for tensor in tensors(copy, structure):
        _make_raw(tensor)
    Path(path).write_bytes(copy.SerializeToString())
    return describe(copy, structure, name, path)


def describe(message: Container, structure: Structure, name: str, path: Path) -> TensorFile:
    """Return what is known of a value whose file lies at ``path``."""
    found = list(tensors(message, structure))
    finite = [finite_of(tensor) for tensor in found]
    return TensorFile(
        name,
        Path(path),
        TensorProto.UNDEFINED,
        (),
        all(one for one, _ in finite),
        any(nan for _, nan in finite),
        structure,
        tuple(tuple(tensor.dims) for tensor in found),
    )


def contents(file: TensorFile) -> Any:
    """Read a value: an array, a list for a sequence, a dict for a map, and None for an optional without a value.

    Raises OSError, or ValueError for a file that holds something else.
    """
    if file.structure is None:
        return read(file)
    return plain(parse(file.content(), file.structure), file.structure)


def tensors(message: Container, structure: Structure) -> Iterator[TensorProto]:
    """Yield the tensors in a value, in order."""
    if structure[0] == "tensor":
        yield message
        return
    for item in _items(message, structure):
        yield from tensors(item, structure[-1])


def _items(message: Container, structure: Structure) -> list[Any]:
    """The values right inside. Raises ValueError where the message has values of another form."""
    form, inner = structure[0], structure[-1][0]
    if form == "map":
        items = _items(message.values, ("sequence", structure[-1]))
        if len(items) != len(_keys(message)):
            raise ValueError(f"a map of {len(_keys(message))} keys and {len(items)} values")
        return items
    name = f"{inner}_values" if form == "sequence" else f"{inner}_value"
    held = {field.name: value for field, value in message.ListFields() if field.name not in ("name", "elem_type")}
    if not held.keys() <= {name}:
        raise ValueError(f"a value of form {form} that holds something else than {inner} values")
    return list(held.get(name, ())) if form == "sequence" else list(held.values())


def _keys(message: Container) -> list[Any]:
    return list(message.keys) or [key.decode("utf-8", "surrogateescape") for key in message.string_keys]


def plain(message: Container, structure: Structure, leaf: Callable[[TensorProto], Any] = to_array) -> Any:
    """Return a message as Python's lists, dicts and None; ``leaf``: what is made of a tensor."""
    if structure[0] == "tensor":
        return leaf(message)
    items = [plain(item, structure[-1], leaf) for item in _items(message, structure)]
    if structure[0] == "map":
        return dict(zip(_keys(message), items))  # noqa: B905 - equally long
    if structure[0] == "optional":
        return items[0] if items else None
    return items


# Random values that are the same for the same name and seed, on every machine.


def seeded(name: str, dtype: int, shape: tuple[int, ...], seed: int = 0, *, path: Path) -> TensorFile:
    """Write random values, see ``seeded_array``. They depend on the name, the dtype, the shape and the seed only."""
    array = seeded_array(name, dtype, shape, seed)
    own = dtype in NUMPY or dtype == tensor_bytes.STRING
    return write(array if own else array.astype(helper.tensor_dtype_to_np_dtype(dtype)), name, path)


def seeded_array(name: str, dtype: int, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return random values: floats in [0, 1), integers from 1 to 25 or all that a small dtype has, strings of digits.

    A dtype that numpy lacks comes as float32 or int64 values for it.
    """
    digest = hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    if dtype == 9:
        return rng.integers(0, 2, size=shape).astype(bool)
    if dtype in INTEGERS:
        ends = limits_of(dtype)
        first, last = (1, 25) if ends is None or ends[1] > 25 else map(int, ends)
        drawn = np.asarray(rng.integers(first, last, size=shape, dtype=np.int64, endpoint=True))
        strings = dtype == tensor_bytes.STRING
        return drawn.astype(str).astype(object) if strings else drawn.astype(NUMPY.get(dtype, "int64"))
    drawn = np.asarray(rng.random(size=shape))
    if dtype in (14, 15):
        drawn = drawn + 1j * rng.random(size=shape)
    return np.asarray(drawn).astype(NUMPY.get(dtype, "float32"))


# Recorded values in the forms that a user's check knows: an npz file, an ONNX ``test_data_set`` folder.


def write_npz(feeds: Mapping[str, TensorFile], path: Path) -> tuple[str, ...]:
    """Write tensors for ``numpy.load`` (no pickles in it) and return the names that were left out.

    Names stand as they are, those of ``numpy.savez``'s own parameters too. Left out: sequences, optionals and maps,
    dtypes that numpy lacks, strings that are no text, names that a zip archive cannot hold (NUL, more than 64 KiB),
    and ``x.npy`` where there is ``x`` (``numpy.load`` takes one for the other).
    """
    skipped = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, file in feeds.items():
            array = _numpy_array(file) if fits_npz(name, feeds) else None
            if array is None:
                skipped.append(name)
                continue
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as target:
                np.lib.format.write_array(target, array, allow_pickle=False)
    return tuple(skipped)


def fits_npz(name: str, others: Collection[str]) -> bool:
    """Whether an npz can hold an array of that name beside these others."""
    ambiguous = name.endswith(".npy") and name[: -len(".npy")] in others
    return "\0" not in name and not ambiguous and len(name.encode("utf-8", "replace")) < 0xFFF0


def _numpy_array(file: TensorFile) -> Any:
    """Return the tensor as an array that needs no pickle, or None."""
    if file.structure is not None:
        return None
    if file.dtype in NUMPY:
        return read(file)
    if file.dtype != tensor_bytes.STRING:
        return None
    strings = read(file)
    # numpy's text drops NULs at the end and cannot hold bytes that are no text
    if any(item.endswith("\0") or any(0xDC80 <= ord(sign) <= 0xDCFF for sign in item) for item in strings.ravel()):
        return None
    return strings.astype(str)


def write_test_data_set(inputs: Mapping[str, TensorFile], outputs: Mapping[str, TensorFile], folder: Path) -> None:
    """Write ``input_0.pb``, ``output_0.pb`` and so on, names set.

    The order is the given one: that of the model's inputs and outputs.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, files in (("input", inputs), ("output", outputs)):
        for number, (name, file) in enumerate(files.items()):
            renamed(file, name, folder / f"{kind}_{number}.pb")
