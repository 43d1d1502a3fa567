"""The values that a check asked for, kept beside its candidate: whoever checks that again feeds it the same."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

from runner.artifacts.folder import ArtifactFolder, size_of
from runner.candidate import Candidate

_LOG = logging.getLogger(__name__)
# what they are called in an iteration's folder: npz files of a sample, or data sets of all
_VALUES = re.compile(r"(inputs|references)(_[0-9]+)?\.npz|data")


def keep(candidate: Candidate, place: Path, kept: ArtifactFolder) -> None:
    """Move what the check was given beside the kept candidate at ``place``: ``NAME.inputs.npz``. Raises OSError."""
    # a check that was made again may have been given them twice, and `artifacts.paths` may have taken them
    for source in filter(os.path.lexists, dict.fromkeys(candidate.values)):
        target = place.with_name(f"{_stem(place)}.{source.name}")
        if not _is_plain(source):
            _LOG.warning("artifacts: %s is not what the check was given any more, and is not kept", source)
        elif kept.afford(size_of(source), source.name):
            shutil.move(source, target)


def beside(place: Path) -> list[Path]:
    """Return what was kept beside the candidate at ``place``."""
    start = f"{_stem(place)}."
    return [
        path
        for path in place.parent.iterdir()
        if path.name.startswith(start) and _VALUES.fullmatch(path.name[len(start) :])
    ]


def _stem(place: Path) -> str:
    return place.name.removesuffix(".txt").removesuffix(".onnx")


def _is_plain(source: Path) -> bool:
    """Whether these are files, and nothing else that a check has put there."""
    inner = source.rglob("*") if source.is_dir() else ()
    return all(not path.is_symlink() and (path.is_file() or path.is_dir()) for path in (source, *inner))
