"""Values from files: npz, npy, ONNX `test_data_set` folders, folders of these; and from a function of the user's.

Values of the model's inputs, and expected ones of its outputs: both are written in the same ways. Nothing is unpickled.
"""

from __future__ import annotations

import io
import logging
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.lib import format as npy
from onnx import MapProto, OptionalProto, SequenceProto, TensorProto, helper, numpy_helper

from runner import machine
from runner.disk_space import FULL
from runner.exit_codes import UsageError
from runner.files import is_plain
from runner.model.values import recorded, tensor_bytes
from runner.model.values.dtypes import COMPUTED_IN, is_integer, limits_of
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import BITS
from runner.samples.declared_inputs import NATIVE, Declared, Value, in_range, listing, tensor, type_name
from runner.schema.inputs import FilesInputs, PythonInputs
from runner.text import counted, listed, one_line
from runner.workers.pool import Pool

# Arrays in npy and npz files, which may say anything: no room is made for more than the machine has.

Array: TypeAlias = np.ndarray[Any, Any]

# bytes that are always there; to ask takes a third of a millisecond, and a file may hold thousands of arrays
_SMALL = 1 << 20
# of one that numpy takes
_LONGEST_HEADER = 1 << 16


def npz_arrays(path: Path, judge: Callable[[str, tuple[int, ...]], None]) -> dict[str, Callable[[], Array]]:
    """Return what reads each array of an npz file, by name. Raises OSError or BadZipFile where it is none.

    ``judge``: gets the name and the shape of an array before it is read. Reading raises what that does, and numpy and
    `zipfile` for a damaged one.
    """

    def array(member: str, name: str) -> Array:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            return _read_array(file, partial(judge, name))

    with zipfile.ZipFile(path) as archive:
        members = sorted(archive.namelist(), key=lambda member: member.endswith(".npy"))
    names = {member.removesuffix(".npy"): member for member in members}  # where there are both, with the suffix
    return {name: partial(array, member, name) for name, member in names.items()}


def _read_array(file: IO[bytes], judge: Callable[[tuple[int, ...]], None]) -> Array:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    # numpy reads all of a header before it looks how long that is: up to 4 GiB
    start = io.BytesIO(file.read(_LONGEST_HEADER))
    try:
        shape, _, dtype = read(start)
    except Exception as error:  # the text goes through Python's own parser, which raises half a dozen classes
        raise ValueError(f"its header (version {version[0]}.{version[1]}) cannot be read: {error}") from error
    if dtype.hasobject:
        raise ValueError("it holds pickled objects")
    judge(shape)
    # empty strings have an item size of 0 in the file; numpy makes room for at least one byte each
    needed = math.prod(shape) * max(dtype.itemsize, 1)
    if needed > _SMALL and needed > (free := machine.free_mb() * 2**20):
        raise ValueError(f"{list(shape)} of {dtype} takes {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free")
    file.seek(0)
    return np.asarray(npy.read_array(file, allow_pickle=False))


log = logging.getLogger(__name__)

# what a damaged file may raise; RuntimeError and NotImplementedError: a zip archive that is encrypted, or packed in a
# way that Python does not know
_BROKEN = (
    *(OSError, ValueError, EOFError, KeyError, MemoryError, ArithmeticError, RuntimeError, NotImplementedError),
    *(TypeError, IndexError, AttributeError, struct.error),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, DecodeError),
)
_PROTOBUF_LIMIT = 1 << 31
# a value is read only when its turn comes: one tensor in memory at a time
_Held: TypeAlias = dict[str, Callable[[], Any]]
_SPLIT = frozenset({".npz", ".npy"})
_LONGEST_NAME = 80
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Kind:
    """What is read. ``key``: names the files; ``partial``: some may be missing, and be of another float type."""

    word: str
    key: str
    partial: bool = False

    @property
    def forms(self) -> str:
        """What the files may be, in words."""
        return (
            f"an .npz (arrays by {self.word} name), an .npy or .pb (models with one {self.word}), a test_data_set "
            f"folder ({self.word}_0.pb ...), a folder of test_data_set_* folders or of .npz files, or a list of these"
        )


INPUTS, OUTPUTS = Kind("input", "inputs.path"), Kind("output", "reference.path", partial=True)


def from_files(
    settings: FilesInputs, inputs: Mapping[str, Declared], _pool: Pool | None, folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """One sample for each npz, npy, pb or data set that ``settings.path`` names.

    Raises UsageError, naming the file, if it cannot be read, misses an input or holds one of another type or shape.
    """
    return read(settings.path, INPUTS, inputs, folder, settings.split)


def read(
    path: object, kind: Kind, declared: Mapping[str, Declared], folder: Path, split: int | None = None
) -> tuple[dict[str, TensorFile], ...]:
    """Return one sample for each npz, npy, pb or data set that ``path`` names, written into ``folder``.

    ``declared``: what the model says of what is read. ``split``: so many samples of each npz or npy, along the first
    axis of its arrays. Raises UsageError as `from_files` does.
    """
    result: list[dict[str, TensorFile]] = []
    for source in sources(path, kind):
        parts = split if source.suffix in _SPLIT else None
        whole = {name: replace(one, dims=(None, *one.dims[1:])) if one.dims else one for name, one in declared.items()}
        held = _held(source, kind, whole if parts else declared)
        held = {name: cache(reader) for name, reader in held.items()} if parts else held
        for part in range(parts) if parts else (None,):
            target = folder / f"sample_{len(result)}"
            target.mkdir(parents=True, exist_ok=True)
            result.append(dict(_read_source(source, kind, declared, held, target, part)))
    return tuple(result)


def sources(path: object, kind: Kind) -> list[Path]:
    """Return the samples that a path, or a list of these, names. Raises UsageError where there is none."""
    entries = [path] if isinstance(path, str) else list(path) if isinstance(path, Sequence) else []
    if not entries or not all(isinstance(entry, str) and entry for entry in entries):
        choice = kind.key.replace(".path", "=files")
        raise UsageError(f"{kind.key}={path!r}: {choice} needs a path: {kind.forms}")
    return [source for entry in entries for source in _sources(Path(entry).expanduser(), kind)]


def _sources(path: Path, kind: Kind) -> list[Path]:
    """The samples that one entry holds, in their natural order."""
    if not path.exists():
        raise UsageError(f"{kind.key}: {path} does not exist (seen from {Path.cwd()})")
    if path.is_file():
        if path.suffix not in {".npz", ".npy", ".pb"}:
            raise UsageError(f"{kind.key}: {path} is none of: {kind.forms}")
        return [path]
    if any(path.glob(f"{kind.word}_*.pb")):
        return [path]
    for pattern in ("test_data_set_*", "*.npz"):
        if found := [one for one in path.glob(pattern) if one.is_dir() == (pattern != "*.npz")]:
            return sorted(found, key=_natural)
    raise UsageError(f"{kind.key}: the folder {path} has no {kind.word}_*.pb, no test_data_set_* and no *.npz")


def _natural(path: Path) -> list[tuple[int, str]]:
    """`_2` before `_10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _held(source: Path, kind: Kind, inputs: Mapping[str, Declared]) -> _Held:
    """Return what a source holds, by name. Raises UsageError where it cannot be read, or lacks some."""
    reader = _data_set if source.is_dir() else _npz if source.suffix == ".npz" else _one_array
    try:
        if not (source.is_dir() or is_plain(source)):  # a pipe would be waited for, a device never ends
            raise ValueError("it is no plain file")
        held = reader(source, kind, inputs)
    except UsageError:
        raise
    except _BROKEN as error:
        raise _unreadable(source, error, kind) from error
    missing = [name for name in inputs if name not in held]
    if missing and not (kind.partial and len(missing) < len(inputs)):
        only = f", only for {listed([one_line(name, _LONGEST_NAME) for name in held])}" if held else ""
        lacks = (" or " if kind.partial else ", ").join(map(repr, missing))
        one = len(held) == len(inputs) == 1 and not kind.partial  # another name, as the model's original has, say
        mend = f". If {', '.join(held)} is the same, save it under the name {lacks}" if one else ""
        raise UsageError(f"{source}: no value for {kind.word} {lacks}{only}; {listing(inputs, kind.word)}{mend}")
    if extra := [name for name in held if name not in inputs]:
        names = listed([one_line(name, _LONGEST_NAME) for name in extra])
        log.warning("%s: the model has no %s called %s, so it is not used", source, kind.word, names)
    return held


def _read_source(
    source: Path, kind: Kind, inputs: Mapping[str, Declared], held: _Held, target: Path, part: int | None
) -> Iterator[tuple[str, TensorFile]]:
    """Write a sample of a source. ``part``: which of several along the first axis; None: the source is one."""
    for position, (name, one) in enumerate(inputs.items()):
        if name not in held:
            continue
        path = target / f"{kind.word}_{position}.pb"
        try:
            value = held[name]()
            value = value if part is None else _part(value, part, one, source)
            if one.structure is None:
                value = rounded(value, one) if kind.partial else value
                found = recorded.write(fitted(value, one, source), name, path)
            else:
                found = _contained(value, one, source, path)
        except UsageError:
            raise
        except _BROKEN as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            raise _unreadable(source, error, kind, name) from error
        yield name, found


def _part(value: Array, part: int, one: Declared, source: Path) -> Array:
    """Return the rows of one of several samples: as many as the model declares, or one."""
    rows = one.dims[0] if one.dims and isinstance(one.dims[0], int) else 1
    found = value[part * rows : (part + 1) * rows] if value.ndim else value
    if value.ndim and len(found) < rows:
        whole = len(value) // rows
        raise UsageError(f"{source}: {one.name!r} holds {counted(whole, 'sample')}. Take no more: inputs.split={whole}")
    return found


def _contained(value: object, one: Declared, source: Path, path: Path) -> TensorFile:
    """A sequence, an optional or a map, which only a data set can hold."""
    assert one.structure is not None
    if not isinstance(value, (SequenceProto, OptionalProto, MapProto)):
        raise UsageError(
            f"{source}: {one.name!r} is {type_name(one.inside.dtype)} arrays, the model declares {one}; "
            "only a test_data_set folder or a function (inputs=python) can give that"
        )
    for held in recorded.tensors(value, one.structure):
        if why := one.inside.mismatch(held.data_type, held.dims):
            raise UsageError(f"{source}: {one.name!r} holds a tensor that {why}")
    return recorded.write_container(value, one.structure, one.name, path)


def _npz(source: Path, kind: Kind, inputs: Mapping[str, Declared]) -> _Held:
    return npz_arrays(source, lambda name, shape: _judge(source, inputs[name], shape))


def _one_array(source: Path, kind: Kind, inputs: Mapping[str, Declared]) -> _Held:
    if len(inputs) != 1:
        told = listing(inputs, kind.word)
        raise UsageError(f"{source}: an {source.suffix} file is for models with one {kind.word}; {told}. Use an .npz")
    ((name, one),) = inputs.items()
    return {name: partial(_message, source, one) if source.suffix == ".pb" else partial(_npy, source, one)}


def _npy(source: Path, one: Declared) -> Array:
    with source.open("rb") as file:
        return _read_array(file, partial(_judge, source, one))


def _judge(source: Path, one: Declared, shape: tuple[int, ...]) -> None:
    """Raise UsageError for an array of a shape that does not fit, before it is read."""
    if one.structure is None and (why := one.mismatch(one.dtype, shape)):
        rows = one.dims[0] if one.dims and isinstance(one.dims[0], int) else 0
        several = rows and shape and shape[0] > rows and not one.mismatch(one.dtype, (rows, *shape[1:]))
        offer = f". To take them as samples: inputs.split={shape[0] // rows}, or fewer" if several else ""
        raise UsageError(f"{source}: {one.name!r} {why}{offer}")


def _data_set(source: Path, kind: Kind, inputs: Mapping[str, Declared]) -> _Held:
    """Files stand for inputs by the name inside them if all those names are inputs, else by their number.

    A file does not say what kind of message it holds, so where an input is no tensor its number counts.
    """
    files = sorted(source.glob(f"{kind.word}_*.pb"), key=_natural)
    if not files:
        if inputs:
            raise UsageError(f"{source}: no {kind.word}_*.pb in it")
        return {}
    if all(one.structure is None for one in inputs.values()):
        protos = {file: _tensor(file).name for file in files}
        names = list(protos.values())
        if len(set(names)) == len(names) and all(name in inputs for name in names):
            return {name: partial(_message, file, inputs[name]) for file, name in protos.items()}
    if len(files) != len(inputs):
        counts = f"{len(files)} {kind.word} files for {len(inputs)} {kind.word}s"
        raise UsageError(f"{source}: {counts}; {listing(inputs, kind.word)}")
    return {name: partial(_message, file, inputs[name]) for name, file in zip(inputs, files, strict=True)}


def _message(file: Path, one: Declared) -> Any:
    """The message in a file, of the kind that the input is."""
    if one.structure is None:
        return _tensor(file)
    try:
        return recorded.parse(_bytes(file), one.structure)
    except ValueError as error:
        raise ValueError(f"{error}; the model declares {one}") from error


def _tensor(file: Path) -> TensorProto:
    tensor = TensorProto()
    tensor.ParseFromString(_bytes(file))
    if tensor.data_location == TensorProto.EXTERNAL:
        raise ValueError(f"{file.name} refers to data outside it")
    if problem := tensor_bytes.size_problem(tensor):
        raise ValueError(f"the tensor in {file.name}: {problem}")
    return tensor


def _bytes(file: Path) -> bytes:
    if not is_plain(file):
        raise ValueError(f"{file.name[:_LONGEST_NAME]} is no plain file")
    if (size := file.stat().st_size) >= _PROTOBUF_LIMIT:
        raise ValueError(f"{file.name} has {size} bytes; a protobuf file has less than 2 GiB")
    return file.read_bytes()


def _unreadable(source: Path, error: Exception, kind: Kind, name: str | None = None) -> UsageError:
    why = one_line(error, _LONGEST_REASON) or type(error).__name__
    if "allow_pickle" in why or "pickled" in why.lower():
        why = "it holds Python objects (pickle), which are never loaded; save plain arrays"
    where = f" (array {name!r})" if name else ""
    return UsageError(f"{kind.key}: {source}{where} cannot be read: {why}")


# Values from a function of the user's, which runs in a worker.

_EXAMPLE = "it returns (or yields) dictionaries, input name to numpy array, one for each sample"


def from_python(
    settings: PythonInputs, inputs: Mapping[str, Declared], pool: Pool, folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """What ``settings.function`` of ``settings.file`` returns.

    Raises UsageError if there is no such file or function, if it raises, dies or takes longer than ``timeout``,
    and for values that do not fit the model.
    """
    if not settings.file:
        raise UsageError(f"inputs.file is missing: inputs=python needs a Python file with a function; {_EXAMPLE}")
    file = Path(settings.file).expanduser().absolute()
    if not file.is_file():
        raise UsageError(f"inputs.file={settings.file}: no such file (seen from {Path.cwd()})")
    call = f"{file.name}:{settings.function}"
    out = folder / "values"
    out.mkdir(parents=True, exist_ok=True)
    structures = {name: one.structure for name, one in inputs.items() if one.structure is not None}
    arguments = {"file": str(file), "function": settings.function, "out": str(out), "structures": structures}
    reply = pool.call("user_inputs", arguments, timeout=settings.timeout, lease=pool.user_kind)
    if reply.failure:
        # the stage "setup": it could not even be called
        raised = "" if reply.failure.stage == "setup" else f"{call} raised {reply.failure.type}: "
        raise UsageError(f"inputs=python: {raised}{reply.failure.message}; {_EXAMPLE}")
    if reply.death or reply.value is None:
        raise UsageError(f"inputs=python: {call} ended with {reply.death}")
    result = tuple(
        _returned([TensorFile.from_json(tensor) for tensor in sample.values()], inputs, f"{call}, sample {number}")
        for number, sample in enumerate(reply.value["samples"])
    )
    if not result:
        raise UsageError(f"inputs=python: {call} gave no sample; {_EXAMPLE}")
    return result


def _returned(tensors: list[TensorFile], inputs: Mapping[str, Declared], where: str) -> dict[str, TensorFile]:
    held = {tensor.name: tensor for tensor in tensors}
    if missing := [name for name in inputs if name not in held]:
        raise UsageError(f"{where}: no value for input {', '.join(map(repr, missing))}; {listing(inputs)}")
    for name, one in inputs.items():
        shapes = (held[name].shape,) if one.structure is None else held[name].elements
        dtype = held[name].dtype if one.structure is None else one.inside.dtype
        for shape in shapes:
            if why := one.inside.mismatch(dtype, shape):
                raise UsageError(f"{where}: {name!r} {why}")
    return {name: held[name] for name in inputs}


# Converts a value that was read to the type that a model's input declares, or says why it does not fit.

# FLOAT4E2M1, FLOAT6E2M3, FLOAT6E3M2
_WITHOUT_NAN = (23, 27, 28)


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
    if one.dtype not in NATIVE and value.dtype.kind in "fiu":
        _refuse_misfits(value, one, source)
    return tensor(value, one.name, one.dtype)


def rounded(value: Value, one: Declared) -> Value:
    """``value`` in the float type that is declared, where both are floats, else as it is; see `in_range`."""
    theirs = value.data_type if isinstance(value, TensorProto) else _onnx_type(value, TensorProto.FLOAT)
    if theirs == one.dtype or not {theirs, one.dtype} <= COMPUTED_IN:
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
    if wanted not in NATIVE:
        raw = array.dtype.kind == "V" and array.dtype.itemsize == BITS.get(wanted, 0) // 8
        if raw or array.dtype in (np.float32, np.int8, np.uint8):
            return wanted
    try:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")))
    except (KeyError, ValueError, TypeError):
        return int(TensorProto.UNDEFINED)
