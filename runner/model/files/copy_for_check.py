"""The user's own model, as a check is given it: a copy, for a check may edit its model in place."""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

LARGEST = 256 << 20
"""Bytes up to which a model is copied for each check of it."""
# what a model has that reads files beside it: they are not copied, so a copy would be another model
_BESIDE = (b"location", b"ep_cache_context")


def copy_for_check(file: Path, folder: Path) -> Path:
    """Return a copy of the model in ``folder``; the file itself where it refers to other files or is too large.

    Raises OSError where it cannot be copied.
    """
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if not 0 < size <= LARGEST:
            return file
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if any(content.find(word) >= 0 for word in _BESIDE):
                return file
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(file, folder / "model.onnx"))
