"""The folder that a run writes into, and the one that it stands in."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import UsageError
from runner.report.result import RESULT_NAME, read_result

#: there while a job runs (it removes them at its end), so a killed run leaves them beside its workers/
_PASSING = ("inputs", "values", "target")
#: what a job leaves
_LASTING = (
    *("store", "checks", "artifacts", "test_data_set_*", "reduced.onnx*", "min_good.onnx*"),
    *("repro.py", "rounded.onnx", "REPORT.md", "replay.yaml", RESULT_NAME),
)


#: what names the folder: of a run, of a sweep's job
_KEYS = ("hydra.run.dir", "hydra.sweep.dir")


class FolderTakenError(UsageError):
    """The run's folder is not free; nothing may be written there, not even a result."""


@contextmanager
def holding(folder: Path, *, sweep: bool = False) -> Iterator[None]:
    """Have ``folder`` for this run alone; the lock goes with the process, however that ends. ``sweep``: it is a job.

    Raises FolderTakenError if another run is at work in it, or if it holds files that are no run's.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder, _KEYS[sweep])
        _refuse_foreign(folder, _KEYS[sweep])
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, key: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderTakenError(
            f"another run is at work in {folder}. Wait for its end, or give this one its own: {key}=FOLDER"
        ) from None
    except OSError:  # a file system that locks no folders
        return


def _refuse_foreign(folder: Path, key: str) -> None:
    """``hydra.run.dir=.`` is all it takes to lose data, where somebody keeps it in a folder called inputs."""
    running = (folder / "workers").is_dir()
    ended = "exit_code" in (read_result(folder) or {}) or (folder / "journal.jsonl").is_file()
    patterns = (*(() if running else _PASSING), *(() if running or ended else _LASTING))
    found = sorted(path.name for pattern in patterns for path in folder.glob(pattern))
    if found:
        raise FolderTakenError(
            f"{folder} holds files that are no run's and that this run would write over: {', '.join(found)}. "
            f"Give it a folder of its own: {key}=FOLDER"
        )


@contextmanager
def standing_in(folder: str | None) -> Iterator[None]:
    """Run the block with ``folder`` as the current one; None: where the user stands."""
    before = Path.cwd()
    try:
        if folder is not None:
            os.chdir(folder)
        yield
    finally:
        os.chdir(before)
