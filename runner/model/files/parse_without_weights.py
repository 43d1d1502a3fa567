"""Parsing a large model file without its weights: they stay where they are, and each tensor says where that is.

A file of 1.9 GB is not to be in memory, let alone twice: as bytes and as messages. So the file is walked, field by
field, and what is parsed has in place of each large initializer's raw bytes a reference to them, as external data of
the model's own file (the numbers of fields: see onnx.proto). Weights that lie elsewhere in it are parsed.

Whatever is strange (damaged, or hostile) is parsed whole, and so ends as any model file.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from runner.exit_codes import ModelError
from runner.model.graph import scopes
from runner.model.values import tensor_bytes, wire

# Weights in files beside a model: read within its folder only, written piece by piece.
#
# A model is data from somewhere: a location in it must not make us read another file of the machine, and neither must a
# link that came along with it. In the cache of a model hub all files are links, ``snapshots/REVISION/model.onnx`` and
# ``model.onnx_data`` beside it, into one folder ``blobs``. So a link is followed inside the model's folder, and, where
# the path that the user named is a link itself, into the folder (and those below it) that this one leads to.

OWN_FILE = "\0"
"""The location of what lies in the model's own file: no other file has this name."""
_CHUNK = 1 << 20  # with pieces of 4 MiB the same copy takes half as much CPU time again


def locations(model: ModelProto) -> set[str]:
    """Return the names of the files beside a model that hold its weights. Raises ValueError for a bad reference."""
    every = (*scopes.initializers(model), *scopes.inline_tensors(model))
    names = {tensor_bytes.reference(tensor)[0] for tensor in every if tensor_bytes.is_external(tensor)}
    return names - {OWN_FILE}


def weights_beside(path: Path) -> dict[str, Path]:
    """Return the files beside the model at ``path`` that hold its weights, by name; none where it cannot be read."""
    try:
        names = locations(parse(path))
    except Exception:  # noqa: BLE001 - whatever lies there: loading says what is wrong with it
        return {}
    plain = [name for name in sorted(names) if "\0" not in name and ".." not in Path(name).parts]
    places = {name: path.parent / name for name in plain if not Path(name).is_absolute()}
    # of a link to a model the weights may lie beside its target
    return {name: one if one.exists() else path.resolve().parent / name for name, one in places.items()}


class ExternalFiles:
    """The files that the tensors of one model refer to.

    ``model``: the path as given. The folder is that of this path; where a file is not there and the path is a link,
    that of its target. ``behind_link``: whether any file was found in the second only. ``own``: whether tensors may lie
    in the model's file itself, as `parse_without_weights` leaves them.
    """

    def __init__(self, model: Path, own: bool = False) -> None:
        model = Path(model)
        folders = [model.parent.resolve(), model.resolve().parent]
        self._folders = list(dict.fromkeys(folders))
        self._found = {OWN_FILE: (model, model.stat().st_size)} if own else {}
        self.behind_link = False

    def region(self, tensor: TensorProto) -> tuple[Path, int, int]:
        """Return (file, offset, length in bytes) of an external tensor.

        Raises ModelError where the location leaves the folder, the file is missing, or it is shorter than the tensor.
        """
        where = f"tensor {tensor.name!r}"
        try:
            location, offset, length = tensor_bytes.reference(tensor)
            wanted = tensor_bytes.byte_size(tensor.data_type, tensor.dims)
        except ValueError as error:
            raise ModelError(f"{where}: {error}") from None
        if wanted is None:
            raise ModelError(
                f"{where}: dtype {tensor_bytes.dtype_name(tensor.data_type)} cannot lie in an external file"
            )
        if location not in self._found:
            self._found[location] = self._look_up(location, where)
        path, size = self._found[location]
        if length is not None and length != wanted:
            raise ModelError(f"{where}: {list(tensor.dims)} needs {wanted} bytes, its reference says length={length}")
        if offset + wanted > size:
            raise ModelError(
                f"{where}: external data {location!r} is too short: "
                f"offset={offset} length={wanted}, the file has {size} bytes"
            )
        return path, offset, wanted

    @property
    def total_bytes(self) -> int:
        """Bytes of all files beside the model that were referred to so far."""
        return sum(size for name, (_, size) in self._found.items() if name != OWN_FILE)

    def _look_up(self, location: str, where: str) -> tuple[Path, int]:
        shown = f"{where}: external data {location!r}"
        if "\0" in location:
            raise ModelError(f"{shown} has a NUL in its name")
        parts = location.replace("\\", "/").split("/")
        if location.startswith(("/", "\\")) or ".." in parts or parts[0].endswith(":"):
            raise ModelError(f"{shown} lies outside the model's folder; only files inside it are read")
        for folder in self._folders:
            path = folder / location
            try:
                real = path.resolve(strict=True)
                status = real.stat()
            except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
                continue
            if not any(real == inside or inside in real.parents for inside in self._folders):
                raise ModelError(
                    f"{shown} is a link that leads out of the model's folder, to {real}; put the file itself beside "
                    "the model (links are followed where the model is one too and leads to the same folder)"
                )
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{shown} is not a regular file")
            self.behind_link |= folder != self._folders[0]
            return real, status.st_size
        raise ModelError(f"{shown} is missing in {self._folders[0]}")


def chunks(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield a region of a file piece by piece. Raises ModelError where the file has become shorter."""
    with path.open("rb") as file:
        file.seek(offset)
        while length:
            piece = file.read(min(_CHUNK, length))
            if not piece:
                raise ModelError(f"{path.name} ended {length} bytes too early")
            length -= len(piece)
            yield piece


# Writing large files whole: the one file with all large weights, streamed piece by piece, and models.

# the name by which candidates refer to it: a plain name beside the model is the only form that checkers and runtimes
# all accept
WEIGHTS = "weights.bin"
# what the widest vector loads want, for readers that map the file
_ALIGNMENT = 64
# of Linux: fallocate(2)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class WeightsWriter:
    """Writes a weights file; it appears under its name only when all of it is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".part")
        self._file: BinaryIO | None = None
        self._regions: dict[tuple[Path, int, int] | None, int] = {}

    def __enter__(self) -> WeightsWriter:
        self._file = self._temporary.open("wb")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        assert self._file is not None
        self._file.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)

    def add(
        self, pieces: Iterable[bytes], length: int, digest: Any = None, region: tuple[Path, int, int] | None = None
    ) -> int:
        """Append ``length`` bytes and return their offset. ``digest`` (of hashlib) is fed with them as well.

        ``region``: where they come from; one that was added before (tied weights) is not read again.
        """
        assert self._file is not None
        if region in self._regions:
            return self._regions[region]
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        offset = self._file.tell()
        for piece in pieces:
            self._file.write(piece)
            if digest is not None:
                digest.update(piece)
        assert self._file.tell() - offset == length
        if region is not None:
            self._regions[region] = offset
        return offset


def free_all_but(path: Path, kept: Iterable[tuple[int, int]]) -> None:
    """Give back the room on the disk of all bytes of a file but those of the ranges ``kept`` (start, end).

    The others stay where they are, and those that went read as zeros. Where the system or the file system cannot do
    that, the file stays as it is; so it does where it is a link, or has another name: it may be somebody else's.
    """
    with suppress(OSError, AttributeError):
        fallocate = ctypes.CDLL(None).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status, at = os.fstat(descriptor), 0
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                return
            for start, end in sorted([*kept, (status.st_size, status.st_size)]):
                if start > at:
                    fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, at, start - at)
                at = max(at, end)
        finally:
            os.close(descriptor)


LARGE_FILE = 32 << 20
"""Bytes of a model file from which on its weights stay in it; smaller ones are parsed whole."""
_LEFT_FROM = 4096  # more than stays in the structure of a model
_WAY = (7, 5, 9)
"""The fields that lead to weights: the graph, an initializer, its raw bytes."""
_OTHERS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "data_location")
# fields of a whole file; a model of a million nodes has fewer, and each takes about a microsecond
_MOST_STEPS = 4_000_000
_BUFFER = 1 << 16


@dataclass(frozen=True)
class _Walk:
    """One walk through a file. ``left``: places of bytes that were left there; ``steps``: those that it may take."""

    file: BinaryIO
    left: list[int] = field(default_factory=list)
    steps: Iterator[int] = field(default_factory=lambda: iter(range(_MOST_STEPS)))


def parse(path: Path) -> ModelProto:
    """Return the model of a file; a large one without its large tensors' bytes.

    Raises OSError, and DecodeError (or what else protobuf raises) for a file that holds no model.
    """
    model = parse_without_weights(path) if path.stat().st_size > LARGE_FILE else None
    return model or ModelProto.FromString(path.read_bytes())


def structure(path: str | None) -> ModelProto:
    """Return the same of a path as the user wrote it; nothing where no model can be read there, as loading it says."""
    try:
        return parse(Path(path or "").expanduser())
    except Exception:  # noqa: BLE001 - native code raises what it likes
        return ModelProto()


def parse_without_weights(path: Path) -> ModelProto | None:
    """Return the model of a file without its large tensors' bytes; None where it must be parsed whole.

    Raises OSError.
    """
    try:
        with path.open("rb", buffering=_BUFFER) as file:
            walk = _Walk(file)
            pieces = _structure(walk, _WAY, 0, path.stat().st_size)
        model = ModelProto.FromString(b"".join(pieces))
    except (DecodeError, ValueError):
        return None
    own = [one for one in (*scopes.initializers(model), *scopes.inline_tensors(model)) if is_own(one)]
    # a tensor that nobody would look at, or one that is put together from two, is none of ours
    if len(own) != len(walk.left) or not all(map(_is_sound, own)):
        return None
    for tensor in own:
        tensor.data_location = TensorProto.EXTERNAL
    return model


def is_own(tensor: TensorProto) -> bool:
    """Whether the elements lie in the model's own file."""
    return any(entry.key == "location" and entry.value == OWN_FILE for entry in tensor.external_data)


def _is_sound(tensor: TensorProto) -> bool:
    """Whether a tensor refers to as many bytes as it must have, and has and names no others."""
    try:
        _, _, length = tensor_bytes.reference(tensor)
        wanted = tensor_bytes.byte_size(tensor.data_type, tensor.dims)
    except ValueError:
        return False
    held = {field.name for field, _ in tensor.ListFields()}
    return length == wanted and len(tensor.external_data) == 3 and held.isdisjoint(_OTHERS)


def _structure(walk: _Walk, way: tuple[int, ...], start: int, end: int) -> list[bytes]:
    """Return the content of a message without the large fields at the end of ``way``, whose places are noted."""
    pieces, copied = [], start
    for number, kind, at, body, stop in _fields(walk, start, end):
        if kind != wire.BYTES or stop - body < _LEFT_FROM or number != way[0]:
            continue
        pieces.append(_read(walk.file, copied, at))
        if len(way) > 1:
            inside = _structure(walk, way[1:], body, stop)
            pieces += [wire.delimited(number, sum(map(len, inside))), *inside]
        else:
            reference = TensorProto()
            tensor_bytes.set_reference(reference, OWN_FILE, body, stop - body)
            reference.ClearField("data_location")  # which the tensor itself must not have
            pieces.append(reference.SerializeToString())
            walk.left.append(body)
        copied = stop
    return [*pieces, _read(walk.file, copied, end)]


def _fields(walk: _Walk, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, start, start of the content and end of the fields of a message."""
    while at < end:
        if next(walk.steps, None) is None:
            raise ValueError("not as a model file is")
        walk.file.seek(at)
        number, kind, body, stop = wire.field(walk.file.read(wire.LONGEST_HEAD), 0)
        body, stop = at + body, at + stop
        if stop > end or not number:
            raise ValueError("not as a model file is")
        yield number, kind, at, body, stop
        at = stop


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    data = file.read(end - start)
    if len(data) < end - start:
        raise ValueError("not as a model file is")
    return data
