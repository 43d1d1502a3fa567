"""Where artifacts lie: one folder an outcome, names that are never taken twice, and a disk budget."""

from __future__ import annotations

import logging
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from strategies.outcome import Outcome

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
    if folder_wanted:
        return _at_a_free_name(folder, name, Path.mkdir, with_suffix=False)
    return _at_a_free_name(folder, name, lambda place: place.open("xb").close())


def keep_file(file: Path, folder: Path, name: str, *, spare: bool) -> Path:
    """Put a file under a name that nobody has, and return its path. Raises OSError.

    ``spare``: the caller removes ``file`` next, so it gets a second name and none of its bytes are copied, where the
    file system can do that. A file that has other names as well may be somebody's, who may write to it: it is copied.
    """
    status = file.lstat()
    if spare and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        with suppress(OSError):
            return _at_a_free_name(folder, name, lambda place: place.hardlink_to(file))
    place = reserve(folder, name)
    shutil.copyfile(file, place)
    return place


def _at_a_free_name(folder: Path, name: str, make: Callable[[Path], None], *, with_suffix: bool = True) -> Path:
    """Call ``make`` with places of which it raises FileExistsError where they are taken; return the first that is not.

    ``with_suffix``: the name ends in one, before which the numbers stand.
    """
    stem, dot, suffix = name.rpartition(".")
    for number in range(1, 1_000_000):
        counted = name if number == 1 else f"{stem}_{number}.{suffix}" if dot and with_suffix else f"{name}_{number}"
        place = folder / counted
        try:
            make(place)
        except FileExistsError:
            continue
        return place
    raise FileExistsError(f"no free name for {name} in {folder}")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; links count as such."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
