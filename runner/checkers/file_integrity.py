"""Files of a check that must not change: what it is given, and what it consists of.

What a check is given, as it was before: a verdict on a file that the check itself has changed is about another one.

Whoever runs as root may write whatever is read-only, so files are compared and not protected.
"""

from __future__ import annotations

import hashlib
import logging
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto

from runner.candidate import Candidate
from runner.checkers.command_template import digest
from runner.errors import CannotJudge
from runner.files import read_plain, stamp
from runner.model.files.parse_without_weights import WEIGHTS, locations
from runner.model.files.read_model import STRUCTURE
from strategies.outcome import Outcome

DIGESTED = 4 << 20
"""Bytes up to which a file is read; of a larger one inode, size and time of the last change are compared."""
_LOCATION = b"location"

_Stamp = tuple[int, int | str, int]
"""Size, then digest and 0, or inode and nanoseconds."""


class Tampered(CannotJudge):
    """The check has changed the files that it was given."""


@dataclass(frozen=True)
class Seal:
    """The files of a candidate, with the weights that they refer to, before its check."""

    stamps: Mapping[Path, _Stamp | None]

    @staticmethod
    def of(candidate: Candidate) -> Seal:
        """Look at the files that a check is going to be given."""
        given = [path for path in (candidate.model, candidate.engine) if path]
        weights = _weights(candidate.model) if candidate.model else []
        return Seal({path: _stamp(path) for path in (*given, *weights)})

    def confirm(self) -> None:
        """Raise Tampered where one of them is not as it was."""
        for path, before in self.stamps.items():
            now = _stamp(path)
            if now != before:
                what = "is no file any more" if now is None else "was changed"
                raise Tampered(
                    f"the check changes the files that it is given: {path} {what}. Its verdict was not taken, since it "
                    "may be about another model. Let the check work on a copy: {dir} is a folder of its own"
                )


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    if found.st_size <= DIGESTED:
        return found.st_size, hashlib.sha256(read_plain(path, DIGESTED)).hexdigest(), 0
    return found.st_size, found.st_ino, found.st_mtime_ns


def _weights(model: Path) -> list[Path]:
    """The files that hold a model's weights: those of the store that it lies in, or those that it names."""
    if (model.parent / STRUCTURE).exists():
        return list(model.parent.glob(f"{Path(WEIGHTS).stem}*.bin"))
    try:
        # one that lies outside the store and is larger than this carries its weights
        content = read_plain(model, DIGESTED) if model.stat().st_size <= DIGESTED else b""
    except OSError:
        return []
    if _LOCATION not in content:
        return []
    try:
        named = locations(ModelProto.FromString(content))
    except (DecodeError, ValueError, RecursionError):
        return []  # a file that no runtime reads either
    return sorted(model.parent / name for name in named)


# The files that a check consists of: a verdict that a changed script gave is no verdict of this run.

log = logging.getLogger(__name__)
_NONE: Mapping[str, Path] = {}


class Watched:
    """Files as they were when the check was made. Safe for threads.

    ``files``: by the words that name them. ``outputs``: those that the check itself may write; one that changes in the
    first check that passes, or in the first that fails, is no longer watched (a log of what passed). ``modules``: what
    it imports; of one that is gone its interpreter tells.
    ``run_folder``: for the message.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        run_folder: Path,
        outputs: frozenset[str] = frozenset(),
        modules: Mapping[str, Path] = _NONE,
    ) -> None:
        self._modules = {f"module {name}": path for name, path in modules.items()}
        files = self._files = {**files, **self._modules}
        self._outputs = outputs
        self._run_folder = run_folder
        self._stamps = {word: stamp(path) for word, path in files.items()}
        self.digests = {word: digest(path) for word, path in files.items()}
        self._seen: set[Outcome] = set()
        self._lock = threading.Lock()

    def confirm(self, judged: Outcome | None = None) -> None:
        """See that all are as they were; ``judged``: a check has just ended so. Raises CannotJudge where one is not."""
        with self._lock:
            for word, path in list(self._files.items()):
                now = stamp(path)
                if now == self._stamps[word] or (now is None and word in self._modules):
                    continue
                if now is not None and digest(path) == self.digests[word]:
                    self._stamps[word] = now
                elif judged and judged not in self._seen and word in self._outputs:
                    log.warning("%s: the check writes this file, so changes of it are not looked at", word)
                    del self._files[word]
                else:
                    self._refuse(word, path, gone=now is None)
            self._seen |= {judged} if judged else set()

    def _refuse(self, word: str, path: Path, *, gone: bool) -> None:
        what = "is no longer there" if gone else "was changed"
        raise CannotJudge(
            f"{word} {what} while the run was under way ({path}); what the check said since then was not taken. Put "
            f"it back as it was when the run began and go on with resume={self._run_folder}, or start a new run"
        )
