"""The user's own model, as a check is given it: a copy, for a check may edit its model in place."""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

from runner.model.files.external_data import OWN_FILE
from runner.model.files.parse_without_weights import parse_without_weights
from runner.model.values.wire import delimited

LARGEST = 256 << 20
"""Bytes up to which a model is copied for each check of it."""
_WALKED = 32 << 20
"""Bytes of a model from which on to look at its structure alone is faster than to look at all of it."""
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
            if _reads_others(file, content):
                return file
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / "model.onnx"
    try:
        return Path(shutil.copyfile(file, copy))
    except OSError:
        copy.unlink(missing_ok=True)  # on a full disk it takes what the run needs to say so
        raise


def _reads_others(file: Path, content: mmap.mmap) -> bool:
    """Whether a model may read files beside it; of a large one its weights are left out, which hold any bytes."""
    if len(content) >= _WALKED:
        model = parse_without_weights(file)
        if model is not None:
            text, (location, context) = model.SerializeToString(), _BESIDE
            left = location + delimited(2, len(OWN_FILE)) + OWN_FILE.encode()  # stands in place of each weight
            return context in text or text.count(location) > text.count(left)
    return any(content.find(word) >= 0 for word in _BESIDE)
