"""Writing candidate models: small ones whole in their trial's folder, large ones beside the shared weights file."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from runner.model.files.parse_without_weights import WEIGHTS, WeightsWriter, chunks, free_all_but
from runner.model.files.read_model import INLINE_LIMIT, STRUCTURE
from runner.model.graph import scopes
from runner.model.graph.cut import LARGEST_FILE, CutError, too_large
from runner.model.graph.edits import copy_of
from runner.model.values import tensor_bytes, wire
from runner.model.values.recorded import to_array
from runner.model.values.tensor_bytes import array_of

# numbers of the fields, see onnx.proto
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


class Store:
    """The folder that ``ingest`` filled: the structure, its weights, and the candidates too large to carry theirs.

    ``inline_limit``: bytes of weights that a candidate carries inside at most. ``file_limit``: bytes of tensors from
    which on a file cannot have them.
    """

    def __init__(self, folder: Path, inline_limit: int = INLINE_LIMIT, file_limit: int = LARGEST_FILE) -> None:
        self.folder = Path(folder)
        self.inline_limit = inline_limit
        self.file_limit = file_limit

    @property
    def structure(self) -> Path:
        """The whole model without its large weights."""
        return self.folder / STRUCTURE

    @property
    def weights(self) -> Path:
        """The weights file; it is absent where the structure holds all weights."""
        return self.folder / WEIGHTS

    def kept_bytes(self, model: ModelProto) -> int:
        """Return the bytes of weights that a model of this store refers to."""
        return sum(_length(tensor) for tensor in _references(model))

    def write(self, model: ModelProto, folder: Path, stem: str = "model") -> Path:
        """Write a candidate and return its path.

        A candidate whose weights are small gets them inside (``model`` is changed in place so) and lies in ``folder``
        as ``STEM.onnx``; a larger one lies in the store's folder under a name made of ``folder`` and ``stem``, and
        refers to the weights file there. Raises CutError for one that no file can hold.
        """
        tensors = list(scopes.initializers(model))
        external = [tensor for tensor in tensors if tensor_bytes.is_external(tensor)]
        small = sum(map(_length, external)) <= self.inline_limit
        size = sum(map(_length, tensors)) - (0 if small else sum(map(_length, external)))
        if size >= self.file_limit:
            raise too_large(size)
        path = folder / f"{stem}.onnx" if small else self.folder / f"{folder.name}.{stem}.onnx"
        try:
            self._fill(external if small else ())
            content = model.SerializeToString()
        except (ValueError, EncodeError) as error:  # tensors in attributes, strings
            raise CutError(f"the candidate does not fit into a model file of 2 GiB ({error})") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def inline(self, model: ModelProto) -> None:
        """Read the weights that a model refers to into it, in place."""
        self._fill(_references(model))

    def array(self, tensor: TensorProto) -> Any:
        """Return the elements of a tensor as an array; numbers in a weights file are mapped from there."""
        if not tensor_bytes.is_external(tensor):
            return to_array(tensor)
        location, offset, _ = tensor_bytes.reference(tensor)
        raw = np.memmap(self._file(location), np.uint8, "r", offset, (_length(tensor),))
        if (found := array_of(tensor, raw)) is not None:
            return found
        whole = copy_of(tensor)
        self._fill([whole])
        return to_array(whole)

    def blocks(self, tensor: TensorProto, most: int = 1 << 24) -> list[Any]:
        """Return an array in blocks along its first axis, of about ``most`` bytes."""
        array = np.atleast_1d(self.array(tensor))
        return np.array_split(array, min(1 + array.nbytes // most, max(1, len(array))))

    def standalone(
        self,
        model: ModelProto,
        path: Path,
        *,
        external_data: str | None = None,
        threshold: int = 1024,
        one_file: bool = True,
    ) -> list[Path]:
        """Write a model that stands alone, with its own weights; return all files written, the model first.

        The weights are inside if that is less than 2 GiB and ``external_data`` (a plain file name) is None, else
        beside it: tensors of ``threshold``
        bytes or more in that file (``one_file``), or each in a file of that name with a number. The model appears last
        and whole. ``model`` is not changed.
        Raises ValueError for an ``external_data`` that is not a plain name, OSError where nothing can be written.
        """
        path = Path(path)
        whole = copy_of(model)
        path.parent.mkdir(parents=True, exist_ok=True)
        if external_data is None and self._fits(whole):
            content, written = self._with_weights(whole), []
        else:
            name = external_data or f"{path.name}.data"
            if Path(name).name != name or name in ("..", path.name) or "\\" in name:
                raise ValueError(f"external_data={name!r} must be a plain file name, other than the model's")
            written = self._externalise(whole, path.parent, name, threshold, one_file)
            content = iter([whole.SerializeToString()])
        tensor_bytes.write_whole(path, content)
        return [path, *written]

    def leave_only(self, kept: Collection[Path]) -> None:
        """Remove all that lies here but these candidates and the weights that they refer to."""
        used: dict[Path, list[tuple[int, int]]] = {}
        for path in kept:
            for (file, offset), length in self.regions(path).items():
                used.setdefault(file, []).append((offset, offset + length))
        for path in self.folder.iterdir():
            if path in used:
                free_all_but(path, used[path])
            elif path.is_dir():  # a check may have put it there
                shutil.rmtree(path, ignore_errors=True)
            elif path not in kept:
                path.unlink(missing_ok=True)

    def regions(self, path: Path) -> dict[tuple[Path, int], int]:
        """Return the bytes at each place, (file, offset), that a candidate refers to."""
        found = {}
        with suppress(OSError, ValueError, DecodeError):  # a check may have written over it
            for tensor in _references(ModelProto.FromString(path.read_bytes())):
                location, offset, _ = tensor_bytes.reference(tensor)
                found[self._file(location), offset] = _length(tensor)
        return found

    def _fill(self, tensors: Iterable[TensorProto]) -> None:
        for tensor in tensors:
            tensor_bytes.set_raw(tensor, self._read(tensor))

    def _fits(self, model: ModelProto) -> bool:
        """Whether one file can hold a model with its weights."""
        # tensors first: protobuf cannot even say how large a message beyond 2 GiB is
        inside = sum(map(_length, scopes.initializers(model))) < self.file_limit
        return inside and model.ByteSize() + self.kept_bytes(model) < self.file_limit

    def _with_weights(self, model: ModelProto) -> Iterator[bytes]:
        """Yield the file of a model that carries its weights: memory holds the structure and one piece of a weight.

        Protobuf puts a message's length before its bytes, and fields may stand in any order, so the weights of the main
        graph come last in it: the lengths are known before the first byte of a weight is read. ``model`` is changed.
        """
        graph, parts = model.graph, []
        _, *nested = scopes.graphs_below(graph)
        self._fill(one for below in nested for one in below.initializer if tensor_bytes.is_external(one))
        kept = [tensor for tensor in graph.initializer if not tensor_bytes.is_external(tensor)]
        for tensor in (copy_of(one) for one in graph.initializer if tensor_bytes.is_external(one)):
            length, content = self.region(tensor)
            tensor_bytes.set_raw(tensor, None)
            head = tensor.SerializeToString() + wire.delimited(_RAW_DATA, length)
            parts.append((wire.delimited(_INITIALIZER, len(head) + length) + head, length, content))
        del graph.initializer[:]
        graph.initializer.extend(kept)
        rest = graph.SerializeToString()
        model.ClearField("graph")
        total = len(rest) + sum(len(head) + length for head, length, _ in parts)
        yield model.SerializeToString() + wire.delimited(_GRAPH, total) + rest
        for head, _, content in parts:
            yield head
            yield from content

    def region(self, tensor: TensorProto) -> tuple[int, Iterator[bytes]]:
        """Return how many bytes a tensor has in its weights file, and these, piece by piece."""
        location, offset, _ = tensor_bytes.reference(tensor)
        return _length(tensor), chunks(self._file(location), offset, _length(tensor))

    def _file(self, location: str) -> Path:
        """A weights file of this store: the one that was read, or one made of it in another type."""
        return self.folder / Path(location).name

    def _externalise(self, model: ModelProto, folder: Path, name: str, threshold: int, one_file: bool) -> list[Path]:
        """Write the large weights of a model beside it and make it refer to them."""
        large = [tensor for tensor in scopes.initializers(model) if _length(tensor) >= threshold]
        for tensor in _references(model):
            if _length(tensor) < threshold:
                tensor_bytes.set_raw(tensor, self._read(tensor))
        # what is there may be the weights file of this very model, or of another that somebody still reads: it is
        # replaced, never written into
        written = []
        for number, group in enumerate([large] if one_file and large else [[tensor] for tensor in large]):
            part = name if one_file else f"{name}.{number}"
            with WeightsWriter(folder / part) as weights:
                moved = [(tensor, offset) for tensor in group if (offset := self._add(tensor, weights)) is not None]
            for tensor, offset in moved:
                tensor_bytes.set_reference(tensor, part, offset, _length(tensor))
            if moved:
                written.append(folder / part)
            else:
                (folder / part).unlink()
        return written

    def _add(self, tensor: TensorProto, weights: WeightsWriter) -> int | None:
        """Add a tensor's bytes to a weights file; return their offset, None where it has no such form."""
        length = _length(tensor)
        if tensor_bytes.is_external(tensor):
            location, offset, _ = tensor_bytes.reference(tensor)
            region = (self._file(location), offset, length)
            return weights.add(chunks(*region), length, None, region)
        raw = tensor_bytes.raw_bytes(tensor)
        return None if raw is None else weights.add([raw], length)

    def _read(self, tensor: TensorProto) -> bytes:
        return b"".join(self.region(tensor)[1])


def _references(model: ModelProto) -> Iterable[TensorProto]:
    return [tensor for tensor in scopes.initializers(model) if tensor_bytes.is_external(tensor)]


def _length(tensor: TensorProto) -> int:
    return tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0


# The user's own model, as a check is given it: a copy, for a check may edit its model in place.

LARGEST = 256 << 20
"""Bytes up to which a model is copied for each check of it."""
# what a model has that reads files beside it: they are not copied, so a copy would be another model
_BESIDE = (b"location", b"ep_cache_context")


def copy_for_check(file: Path, folder: Path) -> Path:
    """Return a copy of the model in ``folder``; the file itself where it refers to other files or is too large.

    Raises OSError where it cannot be copied; then no part of it is left.
    """
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if not 0 < size <= LARGEST:
            return file
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if any(content.find(word) >= 0 for word in _BESIDE):
                return file
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / "model.onnx"
    try:
        return Path(shutil.copyfile(file, copy))
    except OSError:
        copy.unlink(missing_ok=True)  # on a full disk it takes what the run needs to say so
        raise
