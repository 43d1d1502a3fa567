"""What a build leaves beside its candidate: the engine, everything that was said, and which nodes were fused."""

from __future__ import annotations

import shutil
from pathlib import Path

from runner.artifacts.folder import ArtifactFolder, reserve

SUFFIXES = {"model.engine": ".engine", "build.log": ".build.log", "layers.json": ".layers.json"}
"""Files of an iteration's folder -> what their names end in beside a kept candidate."""


def keep(folder: Path, place: Path, stem: str, kept: ArtifactFolder) -> None:
    """Move what a build left in an iteration's ``folder`` beside the candidate at ``place``. Raises OSError."""
    for name, suffix in SUFFIXES.items():
        source = folder / name
        if source.is_file() and kept.afford(source.stat().st_size, name):
            shutil.move(source, reserve(place.parent, stem + suffix))


def drop(folder: Path) -> None:
    """Remove what a build left in an iteration's ``folder``: engines are large."""
    for name in SUFFIXES:
        (folder / name).unlink(missing_ok=True)


def remove(place: Path, kept: ArtifactFolder) -> None:
    """Remove what was kept beside the candidate at ``place``. Raises OSError."""
    stem = place.name.removesuffix(".txt").removesuffix(".onnx")
    for suffix in SUFFIXES.values():
        beside = place.with_name(stem + suffix)
        if beside.is_file():
            kept.remove(beside)
