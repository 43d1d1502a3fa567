"""Recorded values in the forms that a user's check knows: an npz file, an ONNX ``test_data_set`` folder."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.model.values import containers, storage
from runner.model.values.tensor_file import NUMPY, TensorFile, finite_of, load, read, renamed
from runner.model.values.types import Structure

_NUMBERED = re.compile(r"(input|output)_(\d+)\.pb")


def write_npz(feeds: Mapping[str, TensorFile], path: Path) -> tuple[str, ...]:
    """Write tensors for ``numpy.load`` (no pickles in it) and return the names that were left out.

    Names stand as they are, those of ``numpy.savez``'s own parameters too. Left out: sequences, optionals and maps,
    dtypes that numpy lacks, strings that are no text, names that a zip archive cannot hold (NUL, more than 64 KiB),
    and ``x.npy`` where there is ``x`` (``numpy.load`` takes one for the other).
    """
    skipped = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, file in feeds.items():
            array = _numpy_array(file) if _fits_archive(name, feeds) else None
            if array is None:
                skipped.append(name)
                continue
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as target:
                np.lib.format.write_array(target, array, allow_pickle=False)
    return tuple(skipped)


def _fits_archive(name: str, others: Mapping[str, TensorFile]) -> bool:
    ambiguous = name.endswith(".npy") and name[: -len(".npy")] in others
    return "\0" not in name and not ambiguous and len(name.encode("utf-8", "replace")) < 0xFFF0


def _numpy_array(file: TensorFile) -> Any:
    """Return the tensor as an array that needs no pickle, or None."""
    if file.structure is not None:
        return None
    if file.dtype in NUMPY:
        return read(file)
    if file.dtype != storage.STRING:
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


def read_test_data_set(
    folder: Path, inputs: Sequence[Structure | None] = (), outputs: Sequence[Structure | None] = ()
) -> tuple[list[TensorFile], list[TensorFile]]:
    """Return the inputs and the outputs of a ``test_data_set`` folder, in order.

    ``inputs`` and ``outputs`` say by number of those that are no tensors what they are: the files do not. Names are
    empty where the files have none. Raises OSError, or ValueError for a file that holds something else.
    """
    found: dict[str, list[tuple[int, Path]]] = {"input": [], "output": []}
    for path in Path(folder).iterdir():
        match = _NUMBERED.fullmatch(path.name)
        if match:
            found[match[1]].append((int(match[2]), path))
    return (
        [describe(path, _at(inputs, number)) for number, path in sorted(found["input"])],
        [describe(path, _at(outputs, number)) for number, path in sorted(found["output"])],
    )


def _at(structures: Sequence[Structure | None], number: int) -> Structure | None:
    return structures[number] if number < len(structures) else None


def describe(path: Path, structure: Structure | None = None) -> TensorFile:
    """Return what a file holds: a serialized TensorProto, or what ``structure`` says.

    Raises OSError, or ValueError where it holds something else.
    """
    if structure is not None and structure[0] != "tensor":
        try:
            message = containers.parse(Path(path).read_bytes(), structure)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return containers.describe(message, structure, message.name, path)
    tensor = load(path)
    if storage.is_external(tensor):
        raise ValueError(f"{path}: a tensor with external data cannot be used here")
    problem = storage.size_problem(tensor)
    if problem:
        raise ValueError(f"{path} holds no usable tensor: {problem}")
    finite, nan = finite_of(tensor)
    return TensorFile(tensor.name, Path(path), tensor.data_type, tuple(tensor.dims), finite, nan)
