"""Recorded values in the forms that a user's check knows: an npz file, an ONNX ``test_data_set`` folder."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runner.model.values import tensor_bytes
from runner.model.values.tensor_file import NUMPY, TensorFile, read, renamed


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
