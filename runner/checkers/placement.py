"""A candidate at a fixed path, for a check that always reads the same file."""

from __future__ import annotations

import json
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import UsageError

# the one file that holds the weights of large candidates; a candidate refers to it by this name
WEIGHTS = "weights.bin"


class Placement:
    """Puts candidates, one at a time, at ``path``; it never touches a file that it did not put there.

    A note in ``run_folder`` remembers what was placed, so that a run which was killed knows its own file when it goes
    on. Large candidates refer to a weights file beside them: it is hard-linked (copied where the file systems differ).
    Raises UsageError if a file of the user's is in the way.
    """

    def __init__(self, path: Path, run_folder: Path, *, keep: bool) -> None:
        self._path = path
        self._keep = keep
        self._note = run_folder / "placed.json"
        self._lock = threading.Lock()
        self._ours = self._read_note()
        self._refuse_foreign(path)

    @contextmanager
    def of(self, model: Path | None) -> Iterator[None]:
        """Have ``model`` at the path inside the `with` block; nothing happens for a candidate without a model."""
        if model is None:
            yield
            return
        with self._lock:
            self._put(model)
            try:
                yield
            finally:
                if not self._keep:
                    self._path.unlink(missing_ok=True)

    def _put(self, model: Path) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        weights, beside = model.parent / WEIGHTS, self._path.parent / WEIGHTS
        if weights.exists() and not (beside in self._ours and _as_large(beside, weights)):
            self._copy(weights, beside)
            if not self._keep:
                weakref.finalize(self, beside.unlink, missing_ok=True)
        self._copy(model, self._path)

    def _copy(self, source: Path, target: Path) -> None:
        self._refuse_foreign(target)
        if target not in self._ours:
            # noted before it is there: a run that is killed in between must know the file
            self._ours.add(target)
            self._note.parent.mkdir(parents=True, exist_ok=True)
            self._note.write_text(json.dumps(sorted(map(str, self._ours))), encoding="utf-8")
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)

    def _refuse_foreign(self, path: Path) -> None:
        if os.path.lexists(path) and path not in self._ours:
            raise UsageError(
                f"checker.place: {path} exists and was not put there by this run; nothing is written over it. "
                "Remove it, or choose another path with checker.place=PATH"
            )

    def _read_note(self) -> set[Path]:
        try:
            return {Path(path) for path in json.loads(self._note.read_text(encoding="utf-8"))}
        except (OSError, ValueError):
            return set()


def _as_large(one: Path, other: Path) -> bool:
    return one.exists() and one.stat().st_size == other.stat().st_size
