"""Files beside a model: weights are read only from inside the model's folder, and only where the file has them.

A model is data from somewhere: a location in it must not make us read another file of the machine, and neither must a
link that came along with it. In the cache of a model hub all files are links, ``snapshots/REVISION/model.onnx`` and
``model.onnx_data`` beside it, into one folder ``blobs``. So a link is followed inside the model's folder, and, where
the path that the user named is a link itself, into the folder (and those below it) that this one leads to.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from onnx import ModelProto, TensorProto

from runner.model.errors import ModelError
from runner.model.graph import scopes
from runner.model.values import tensor_bytes

OWN_FILE = "\0"
"""The location of what lies in the model's own file: no other file has this name."""
_CHUNK = 1 << 20  # with pieces of 4 MiB the same copy takes half as much CPU time again


def locations(model: ModelProto) -> set[str]:
    """Return the names of the files beside a model that hold its weights. Raises ValueError for a bad reference."""
    every = (*scopes.initializers(model), *scopes.inline_tensors(model))
    names = {tensor_bytes.reference(tensor)[0] for tensor in every if tensor_bytes.is_external(tensor)}
    return names - {OWN_FILE}


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
        self._found: dict[str, tuple[Path, int]] = {}
        self._own = {OWN_FILE: (model, model.stat().st_size)} if own else {}
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
        path, size = self._file(location, where)
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
        return sum(size for _, size in self._found.values())

    def _file(self, location: str, where: str) -> tuple[Path, int]:
        if location in self._own:
            return self._own[location]
        if location not in self._found:
            self._found[location] = self._look_up(location, where)
        return self._found[location]

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
