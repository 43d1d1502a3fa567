"""Arrays in npy and npz files, which may say anything: what a header claims is compared with what is there.

A file of a kilobyte can claim 2^50 elements, and numpy would make room for them before it reads any. Nothing is
unpickled.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from runner import machine

Array: TypeAlias = np.ndarray[Any, Any]
# says why an array of this shape is of no use, before it is read
Judge: TypeAlias = Callable[[tuple[int, ...]], None]

# bytes that are always there; to ask takes a third of a millisecond, and a file may hold thousands of arrays
_SMALL = 1 << 20
# as much as numpy itself takes
_LONGEST_HEADER = 10_000
# largest compression ratio of each method; bzip2 and LZMA have no such bound
_BEST_RATIO = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
_BEFORE_LENGTH = len(npy.MAGIC_PREFIX) + 2


def read_npy(path: Path, judge: Judge) -> Array:
    """Return the array of an npy file. Raises ValueError or OSError where there is none, and what ``judge`` raises."""
    with path.open("rb") as file:
        return _read(file, path.stat().st_size, judge)


def members(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in an npz file. Raises ValueError, OSError or BadZipFile where it is none."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no npz archive")
    with zipfile.ZipFile(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def read_member(path: Path, name: str, judge: Judge) -> Array:
    """Return one array of an npz file. Raises as ``read_npy`` does, and what `zipfile` does for a damaged one."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = archive.getinfo(f"{name}.npy" if f"{name}.npy" in names else name)
        ratio = _BEST_RATIO.get(info.compress_type)
        packed = min(info.compress_size, path.stat().st_size)
        if ratio is not None and info.file_size > packed * ratio:
            raise ValueError(f"it claims {info.file_size} bytes, which {packed} compressed ones cannot hold")
        with archive.open(info) as file:
            return _read(file, info.file_size, judge)


def _read(file: IO[bytes], size: int, judge: Judge) -> Array:
    """Read an array from the start of a file of ``size`` bytes."""
    start, dtype, shape = _header(file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects")
    judge(shape)
    # empty strings have an item size of 0 in the file; numpy makes room for at least one byte each
    needed, there = math.prod(shape) * max(dtype.itemsize, 1), size - start
    if needed > there:
        raise ValueError(f"its header claims {list(shape)} of {dtype}, {needed} bytes, and there are {there}")
    if needed > _SMALL and needed > (free := machine.free_mb() * 2**20):
        raise ValueError(f"{list(shape)} of {dtype} takes {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free")
    file.seek(0)
    return np.asarray(npy.read_array(file, allow_pickle=False, max_header_size=_LONGEST_HEADER))


def _header(file: IO[bytes]) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
    """Read the header; return how long it is, and the type and the shape that it claims."""
    start = file.read(_BEFORE_LENGTH)
    major, minor = npy.read_magic(io.BytesIO(start))
    prefix = file.read(2 if major == 1 else 4)
    length = int.from_bytes(prefix, "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header claims {length} bytes of text")
    text = prefix + file.read(length)
    read = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
    try:
        shape, _, dtype = read(io.BytesIO(text), max_header_size=_LONGEST_HEADER)
    except Exception as error:  # the text goes through Python's own parser, which raises half a dozen classes
        raise ValueError(f"its header (version {major}.{minor}) cannot be read: {error}") from error
    if any(size < 0 for size in shape):
        raise ValueError(f"its header claims a negative size: {list(shape)}")
    return len(start + text), dtype, tuple(int(size) for size in shape)
