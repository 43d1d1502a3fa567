"""The files that a user's checks leave behind, moved beside the candidates after each iteration."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from runner.artifacts.folder import ArtifactFolder, reserve, safe, size_of
from runner.candidate import Candidate
from strategies.outcome import Outcome

_LOG = logging.getLogger(__name__)


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
                except (OSError, shutil.Error) as error:
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
        real = source.resolve(strict=True)
        if not real.is_file() and not real.is_dir():
            _LOG.error("artifacts: %s is neither a file nor a folder and is not moved", source)
            return None
        if self._holds_run(source):
            _LOG.error("artifacts: %s holds the run itself and is not moved", source)
            return None
        device = next((path for path in (real.rglob("*") if real.is_dir() else ()) if _is_device(path)), None)
        if device is not None:  # where it cannot be renamed it would be copied, without end, and then removed
            _LOG.error("artifacts: %s holds a device (%s) and is not moved", source, device)
            return None
        if not self._kept.afford(size_of(real), str(source)):
            return None
        place = reserve(folder, f"{name}__{safe(source.name, 120)}", folder_wanted=real.is_dir())
        if not source.is_symlink():
            try:
                source.replace(place)
            except OSError:  # another file system
                pass
            else:
                return place
        if real.is_dir():
            shutil.copytree(real, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(real, place)
        if source.is_dir() and not source.is_symlink():
            shutil.rmtree(source)
        else:
            source.unlink()
        return place


def _is_device(path: Path) -> bool:
    return not path.is_symlink() and (path.is_char_device() or path.is_block_device())


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a file or folder does; of a folder, when anything in it does."""
    try:
        state = path.lstat()
        inner = [inside.lstat() for inside in path.rglob("*")] if path.is_dir() else []
    except OSError:
        return None
    latest = max((one.st_mtime_ns for one in inner), default=0)
    return state.st_ino, state.st_size, state.st_mtime_ns, len(inner), latest
