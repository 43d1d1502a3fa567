"""Folders of artifacts: where they lie, what users' checks leave in them, and what an earlier run left there.

Where artifacts lie: one folder an outcome, names that are never taken twice, and a disk budget.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path

from runner.model.files.parse_without_weights import weights_beside
from runner.run_folder import MIN_GOOD, MIXED, REDUCED, WORKAROUND, own
from runner.verdict import Candidate
from strategies.search import Outcome

_LOG = logging.getLogger(__name__)
_FOLDERS = {
    Outcome.PASS: "good",
    Outcome.FAIL: "bad",
    Outcome.DIFFERENT: "different",
    Outcome.UNRESOLVED: "unresolved",
}


class ArtifactFolder:
    """The folder of a run's artifacts. What it holds already counts towards ``budget_mb``.

    Raises OSError where the folder cannot be made.
    """

    def __init__(self, folder: Path, budget_mb: int) -> None:
        self.folder = folder
        self._budget_mb = budget_mb
        folder.mkdir(parents=True, exist_ok=True)
        self._left = budget_mb * 1024 * 1024 - size_of(folder)

    def of(self, outcome: Outcome) -> Path:
        """Return the folder of an outcome, made if need be."""
        folder = self.folder / _FOLDERS[outcome]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def afford(self, size: int, what: str) -> bool:
        """Take ``size`` bytes from the budget; where they are not left, say so and return False."""
        if size > self._left:
            _LOG.warning(
                "artifacts: %s (%.1f MiB) is not kept, %.1f MiB are left of artifacts.disk_budget_mb=%d",
                what,
                size / 1048576,
                max(0, self._left) / 1048576,
                self._budget_mb,
            )
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Return ``size`` bytes that ``afford`` took."""
        self._left += size

    def remove(self, place: Path) -> None:
        """Remove a file or folder; its bytes may be used again. Raises OSError."""
        size = size_of(place)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
        self.give_back(size)

    def relative(self, place: Path) -> str:
        """Return ``place`` as the index names it."""
        return place.relative_to(self.folder).as_posix()


def safe(text: str, longest: int) -> str:
    """Text as a part of a file name: plain characters only, no leading dot, bounded; the end (the suffix) survives."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-").lstrip(".")
    return plain if len(plain) <= longest else plain[: longest - 17] + "-" + plain[-16:]


def reserve(folder: Path, name: str, *, folder_wanted: bool = False) -> Path:
    """Make an empty file or folder of a name that nobody has, and return its path."""
    stem, dot, suffix = name.rpartition(".")
    for number in range(1, 1_000_000):
        counted = f"{stem}_{number}.{suffix}" if dot and not folder_wanted else f"{name}_{number}"
        place = folder / (counted if number > 1 else name)
        with suppress(FileExistsError):
            if folder_wanted:
                place.mkdir()
            else:
                place.touch(exist_ok=False)
            return place
    raise FileExistsError(f"no free name for {name} in {folder}")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; links count as such."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


# The files that a user's checks leave behind, moved beside the candidates after each iteration.


class UserFiles:
    """Files, folders or globs. They start at ``cwd``; ``{dir}`` is the iteration's own folder.

    What holds ``run_folder`` or the artifacts is never moved, nor what is or holds a device, nor a pipe, nor what was
    there before the run and has not changed since: no check has left it.
    """

    def __init__(self, patterns: Sequence[str], kept: ArtifactFolder, run_folder: Path, cwd: Path) -> None:
        self._patterns = patterns
        self._kept = kept
        self._run_folder = run_folder
        self._cwd = cwd
        found = [path for pattern in patterns if "{dir}" not in pattern for path in self._find(pattern)]
        self._before = {path: _stamp(path) for path in found if not self._holds_run(path)}

    def move(self, candidate: Candidate, outcome: Outcome, name: str) -> tuple[list[str], list[str]]:
        """Move what is there after an iteration; return the new places, and the patterns that named nothing."""
        moved: list[str] = []
        missing: list[str] = []
        for pattern in self._patterns:
            found = self._find(pattern.replace("{dir}", str(candidate.folder)))
            sources = [path for path in found if path not in self._before or self._before[path] != _stamp(path)]
            if not sources:
                _LOG.error("artifacts: %s is not there after iteration %d", pattern, candidate.iteration)
                missing.append(pattern)
            for source in sources:
                try:
                    place = self._move_one(source, self._kept.of(outcome), name)
                except OSError as error:
                    _LOG.error("artifacts: %s was not moved: %s", source, error)
                    place = None
                if place:
                    moved.append(self._kept.relative(place))
        return moved, missing

    def _find(self, pattern: str) -> list[Path]:
        pattern = str(Path(pattern).expanduser())
        if os.path.lexists(self._cwd / pattern):
            return [self._cwd / pattern]
        # Path.glob wants a relative pattern, and the user's may start anywhere; the folder's own name is no pattern
        return [self._cwd / hit for hit in sorted(glob(pattern, root_dir=self._cwd, recursive=True))]  # noqa: PTH207

    def _holds_run(self, path: Path) -> bool:
        real = path.resolve()
        places = (self._kept.folder.resolve(), self._run_folder.resolve())
        return any(place == real or real in place.parents for place in places)

    def _move_one(self, source: Path, folder: Path, name: str) -> Path | None:
        """Return where a file or folder lies now; None: the budget does not allow it. Raises OSError."""
        real = source.resolve(strict=True)
        is_folder = real.is_dir()
        if not real.is_file() and not is_folder:
            raise OSError("it is neither a file nor a folder")
        if self._holds_run(source):
            raise OSError("it holds the run itself")
        # where it cannot be renamed it would be copied, without end, and then removed
        for path in real.rglob("*") if is_folder else ():
            if not path.is_symlink() and (path.is_char_device() or path.is_block_device()):
                raise OSError(f"it holds a device ({path})")
        if not self._kept.afford(size_of(real), str(source)):
            return None
        place = reserve(folder, f"{name}__{safe(source.name, 120)}", folder_wanted=is_folder)
        if is_folder:
            place.rmdir()
        if not source.is_symlink():
            shutil.move(source, place)
            return place
        if is_folder:
            shutil.copytree(real, place, symlinks=True)
        else:
            shutil.copy2(real, place)
        source.unlink()
        return place


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a file or folder does; of a folder, when anything in it does."""
    try:
        state = path.lstat()
        inner = [inside.lstat() for inside in path.rglob("*")] if path.is_dir() else []
    except OSError:
        return None
    latest = max((one.st_mtime_ns for one in inner), default=0)
    return state.st_ino, state.st_size, state.st_mtime_ns, len(inner), latest


# Stale results: what an earlier run handed over in a folder that is used again.

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
    beside = {path for model in models if model in gone for path in weights_beside(model).values()}
    weights = [
        one for one in beside if one.parent == folder and one.is_file() and one.name in listed and not stays(one)
    ]
    for path in (*weights, *gone):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    answers = folder / "answers"
    if answers.is_dir() and not any(answers.iterdir()):
        answers.rmdir()


def _folders(folder: Path) -> Iterator[Path]:
    for pattern in _NUMBERED:
        yield from (path for path in folder.glob(pattern) if path.name.rpartition("_")[2].isdigit())
