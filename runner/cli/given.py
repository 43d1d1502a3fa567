"""Whether what the settings name is there and makes sense: what is wrong is one clear line, before any work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from glob import glob
from pathlib import Path

from runner.checkers.rules import rules_of
from runner.errors import UsageError
from runner.schema.root import Settings
from runner.schema.settings import beyond_limits
from runner.schema.strategy import SubjectKind

#: subjects that can do without a model, and the one that nothing is checked of
_RECORDED = SubjectKind.recorded
_SUBJECTS_WITHOUT_MODEL = frozenset({SubjectKind.command, _RECORDED})
#: checkers that can do without a model
_WITHOUT_MODEL = frozenset({"command", "interactive", "python"})


def check_given(settings: Settings) -> None:
    """Raise UsageError for a number beyond its limits, a file or folder that is not there, one that would be lost."""
    wrong = list(beyond_limits(settings))
    if wrong:
        raise UsageError(" ".join(wrong))
    rules_of(settings.checker)
    if not settings.model:
        subject = settings.strategy.subject
        if subject not in _SUBJECTS_WITHOUT_MODEL:
            raise UsageError(
                f"model=: which model? strategy={settings.strategy.name} needs one. "
                f"Next: python -m runner strategy={settings.strategy.name} model=net.onnx"
            )
        checks = subject is not _RECORDED and settings.checker.name not in _WITHOUT_MODEL
        if checks and settings.target.model is None:
            raise UsageError(
                f"model=: which model? checker={settings.checker.name} runs one. Give model=net.onnx, or let a command "
                "judge: checker=command checker.command='python check.py'"
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
    if settings.cwd is not None and not Path(settings.cwd).is_dir():
        raise UsageError(f"cwd={settings.cwd}: no such folder. Give the folder in which commands of yours run.")
    _spare_inputs(settings)


def _spare_inputs(settings: Settings) -> None:
    """What a run reads must not be what it writes or moves away; where it writes must be a place for files."""
    read = {Path(path).resolve(): f"{key}={path}" for key, path in _read(settings)}
    for key, written in _written(settings):
        path = Path(written)
        if path.resolve() in read:
            raise UsageError(
                f"{key}={written}: this is {read[path.resolve()]} and would be written over. Name another."
            )
        if path.is_dir():
            raise UsageError(f"{key}={written}: this is a folder. Give a file.")
        nearest = next(parent for parent in path.absolute().parents if parent.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise UsageError(f"{key}={written}: nothing can be written in {nearest}. Give a path in a folder of yours.")
    start = Path(settings.cwd or ".").absolute()
    for pattern in settings.artifacts.paths:
        for hit in glob(str(Path(pattern).expanduser()), root_dir=start, recursive=True):  # noqa: PTH207
            moved = (start / hit).resolve()
            lost = next((name for path, name in read.items() if path == moved or moved in path.parents), None)
            if lost:
                raise UsageError(f"artifacts.paths=[{pattern}]: it would move {lost} away. Name what the check leaves.")


def _read(settings: Settings) -> Iterator[tuple[str, str]]:
    """The files and folders that a run reads, with their keys."""
    named = {
        "model": settings.model,
        "target.model": settings.target.model,
        "reference.model": settings.reference.model,
        "inputs.path": getattr(settings.inputs, "path", None),
        "inputs.file": getattr(settings.inputs, "file", None),
        "checker.file": getattr(settings.checker, "file", None),
        "strategy.good": getattr(settings.strategy, "good", None),
        "strategy.bad": getattr(settings.strategy, "bad", None),
    }
    for key, value in named.items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and path:
                yield key, path


def _written(settings: Settings) -> Iterator[tuple[str, str]]:
    named = {
        "result.path": settings.result.path,
        "result.min_good": settings.result.min_good,
        "log.file": settings.log.file,
    }
    yield from ((key, path) for key, path in named.items() if path)


def _file(key: str, name: str, pattern: str) -> None:
    path = Path(name)
    if path.is_file():
        if not os.access(path, os.R_OK):
            raise UsageError(f"{key}={name}: this file may not be read. Change its permissions or name another.")
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
    if not meant:
        return f" {folder} has no {pattern}."
    more = f" and {len(there) - len(meant)} more" if len(there) > len(meant) else ""
    return f" There is: {', '.join(str(folder / file) for file in meant)}{more}."
