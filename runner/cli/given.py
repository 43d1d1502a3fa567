"""Whether what the settings name is there: a missing file is one clear line, before any work."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from runner.errors import UsageError
from runner.schema.root import Settings
from runner.schema.strategy import SubjectKind


def check_given(settings: Settings) -> None:
    """Raise UsageError for a model, a model of a backend, a user's file or a run folder that is not there."""
    if settings.model is None:
        if settings.strategy.subject is not SubjectKind.command:
            raise UsageError(
                f"model=: which model? strategy={settings.strategy.name} needs one. "
                f"Next: python -m runner strategy={settings.strategy.name} model=net.onnx"
            )
    else:
        _file("model", settings.model, "*.onnx")
    for key, backend in (("target", settings.target), ("reference", settings.reference)):
        if backend.model is not None:
            _file(f"{key}.model", backend.model, "*.onnx")
    for key, section, needed in (
        ("checker", settings.checker, "checker=python"),
        ("inputs", settings.inputs, "inputs=python"),
    ):
        if not hasattr(section, "file"):
            continue
        if section.file is None:
            raise UsageError(
                f"{key}.file=: which Python file? {needed} needs one. Next: add {key}.file=path/to/file.py"
            )
        _file(f"{key}.file", section.file, "*.py")
    if settings.resume is not None and not Path(settings.resume).is_dir():
        raise UsageError(f"resume={settings.resume}: no such folder. Give the run folder of an interrupted run.")


def _file(key: str, name: str, pattern: str) -> None:
    path = Path(name)
    if path.is_file():
        return
    if path.is_dir():
        raise UsageError(f"{key}={name}: this is a folder. Give a file.{_beside(path, '', pattern)}")
    raise UsageError(f"{key}={name}: no such file (looked in {Path.cwd()}).{_beside(path.parent, path.name, pattern)}")


def _beside(folder: Path, name: str, pattern: str) -> str:
    """Name the files that could be meant: close ones, else a few."""
    if not folder.is_dir():
        return f" There is no folder {folder} either."
    there = sorted(path.name for path in folder.glob(pattern))
    meant = get_close_matches(name, there, n=3, cutoff=0.5) or there[:5]
    return f" There is: {', '.join(str(folder / file) for file in meant)}." if meant else f" {folder} has no {pattern}."
