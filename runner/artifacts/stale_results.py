"""Stale results: what an earlier run handed over in a folder that is used again."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from runner.model.files.external_data import locations
from runner.model.files.parse_without_weights import parse
from runner.run_folder import MIN_GOOD, MIXED, REDUCED, WORKAROUND, own

_NUMBERED = ("answers/*", "test_data_set_*")
_FILES = ("repro.py", "rounded.onnx", "layers.json", "layers.svg", "curve.svg")


def drop(folder: Path, used: Collection[Path]) -> None:
    """Remove the models, answers and data sets of an earlier run; this one may not write all of them again.

    What is not in the run's own list is nobody's but the user's, whatever its name.

    ``used``: files and folders that this run reads; they stay, with what they are in and what is in them.
    """
    listed = own(folder)
    read = {path.resolve() for path in used}
    held = read.union(*(path.parents for path in read))

    def stays(path: Path) -> bool:
        place = path.resolve()
        return place in held or not read.isdisjoint(place.parents)

    models = [*(folder / f"{name}.onnx" for name in (REDUCED, MIN_GOOD, MIXED)), *folder.glob(f"{WORKAROUND}*.onnx")]
    found = (*models, *(folder / name for name in _FILES), *_folders(folder))
    gone = [path for path in found if path.relative_to(folder).parts[0] in listed and not stays(path)]
    weights = [
        path for model in models if model in gone for path in _weights(model) if path.name in listed and not stays(path)
    ]
    for path in (*weights, *gone):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    answers = folder / "answers"
    if answers.is_dir() and not any(answers.iterdir()):
        answers.rmdir()


def _weights(path: Path) -> set[Path]:
    """The files beside a model that it refers to."""
    try:
        names = locations(parse(path))
    except Exception:  # noqa: BLE001 - whatever lies there under this name
        return set()
    return {path.parent / name for name in names if Path(name).name == name and (path.parent / name).is_file()}


def _folders(folder: Path) -> Iterator[Path]:
    for pattern in _NUMBERED:
        yield from (path for path in folder.glob(pattern) if path.name.rpartition("_")[2].isdigit())
