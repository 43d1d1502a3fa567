"""What lies at a fixed path for a check that always reads the same file: the candidate, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from runner.candidate import Candidate
from runner.checkers.checker import Tools
from runner.disk_space import FULL
from runner.errors import ModelError, UsageError
from runner.files import json_of, stamp
from runner.model.files.parse_without_weights import LARGE_FILE, is_own, parse
from runner.model.files.weights import ExternalFiles
from runner.model.graph import scopes
from runner.model.values import tensor_bytes
from runner.schema.checker import CommandChecker, InteractiveChecker

Placed = AbstractContextManager[object]

# the key of an entry that names a file of weights: a model without it has all of them inside
_LOCATION = b"location"


class Placement:
    """Puts candidates, one at a time, at ``path``; it never touches a file that it did not put there.

    A note in ``run_folder`` remembers what was placed, so that a run which was killed knows its own file when it goes
    on: by its inode, for the note may be anybody's, and so may be what lies there by now. All files of weights that a
    candidate refers to (a large one, or the user's own model) are copied beside it under the names by which it refers
    to them, once: a copy is used again as long as neither it nor what it is a copy of has changed. Raises UsageError if
    a file of the user's is in the way.
    """

    def __init__(self, path: Path, run_folder: Path, *, keep: bool) -> None:
        self._path = path
        self._keep = keep
        self._note = run_folder / "placed.json"
        self._lock = threading.Lock()
        # the files that are ours, with their inodes
        self._ours = self._read_note()
        # of each file of weights that this process has placed, what it was copied from and what it was then
        self._copied: dict[Path, tuple[object, ...]] = {}
        self._refuse_foreign(path)

    @contextmanager
    def of(self, model: Path | None) -> Iterator[None]:
        """Have ``model`` at the path inside the `with` block; nothing happens for a candidate without a model."""
        if model is None:
            yield
            return
        with self._lock:
            try:
                self._put(model)
            except OSError as error:
                raise unwritable("checker.place", self._path, error) from error
            try:
                yield
            finally:
                if not self._keep:
                    self._take_away()

    def _take_away(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:  # a check may have put a folder there
            raise unwritable("checker.place", self._path, error) from error

    def _put(self, model: Path) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for location, source in _weights(model).items():
            self._put_weights(source, self._path.parent / location)
        self._copy(model, self._path)

    def _put_weights(self, source: Path, target: Path) -> None:
        if target == self._path:
            raise UsageError(
                f"checker.place={self._path}: the model's weights lie in a file of this name; choose another path"
            )
        if target.exists() and target not in self._ours and target.samefile(source):
            return  # the user's own weights, and the path is in their folder
        if target.exists() and self._copied.get(target) == (source, stamp(source), stamp(target)):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        self._copy(source, target)
        if not self._keep and target not in self._copied:
            weakref.finalize(self, target.unlink, missing_ok=True)
        self._copied[target] = source, stamp(source), stamp(target)

    def _copy(self, source: Path, target: Path) -> None:
        self._refuse_foreign(target)
        if target not in self._ours:
            # noted before it is there: a run that is killed in between must know the file, which is empty then
            self._remember(target, None)
        target.unlink(missing_ok=True)
        with target.open("xb") as file:
            inode = os.fstat(file.fileno()).st_ino
        if self._ours.get(target) != inode:
            self._remember(target, inode)
        shutil.copyfile(source, target)

    def _remember(self, target: Path, inode: int | None) -> None:
        self._ours[target] = inode
        self._note.parent.mkdir(parents=True, exist_ok=True)
        partial = self._note.with_name(f"{self._note.name}.partial")
        partial.write_text(json.dumps({str(path): inode for path, inode in self._ours.items()}), encoding="utf-8")
        partial.replace(self._note)

    def _refuse_foreign(self, path: Path) -> None:
        if os.path.lexists(path) and path not in self._ours:
            raise UsageError(
                f"checker.place: {path} exists and was not put there by this run; nothing is written over it. "
                "Remove it, or choose another path with checker.place=PATH"
            )

    def _read_note(self) -> dict[Path, int | None]:
        noted = json_of(self._note)
        found = noted.items() if isinstance(noted, dict) else ()
        return {Path(path): inode for path, inode in found if _is(Path(path), inode)}


def placing(settings: CommandChecker | InteractiveChecker, tools: Tools) -> Callable[[Path | None], Placed]:
    """Return what has a model at ``checker.place`` inside a `with` block; it does nothing where no place is set."""
    if not settings.place:
        return nullcontext
    return Placement(tools.at(settings.place), tools.run_folder, keep=settings.keep_placed).of


class IterationInfo:
    """Says of each candidate, in the JSON file ``path``, which one it is.

    Raises UsageError where a file of the user's is in the way: one that holds anything else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            there = path.exists()
        except OSError as error:
            raise unwritable("checker.iteration_info", path, error) from error
        held = json_of(path) if there else {}
        if there and not (isinstance(held, dict) and held.keys() == {"iteration", "phase", "label", "nodes"}):
            raise UsageError(f"checker.iteration_info: {path} exists and holds something else; choose another path")

    def write(self, candidate: Candidate) -> None:
        """Write it for this candidate."""
        told = {"iteration": candidate.iteration, "phase": candidate.phase, "label": candidate.label}
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps({**told, "nodes": list(candidate.nodes)}), encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            raise unwritable("checker.iteration_info", self._path, error) from error


def _is(path: Path, inode: object) -> bool:
    """Return whether the file of this number lies there, or an empty one; also where there is none."""
    try:
        found = path.lstat()
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(found.st_mode) and (found.st_ino == inode or not found.st_size)


def unwritable(key: str, path: Path, error: OSError) -> Exception:
    """Return what to raise where a file at a fixed path cannot be written; a full disk is not the path's fault."""
    if error.errno in FULL:
        return error
    return UsageError(f"{key}={path} cannot be written ({error.strerror or error}); choose another path")


def _weights(model: Path) -> dict[str, Path]:
    """The files that a model refers to, by the names that it has for them.

    Raises UsageError where one is missing: what a run starts with was read, so somebody took it away.
    """
    if model.stat().st_size <= LARGE_FILE and _LOCATION not in model.read_bytes():
        return {}
    proto, files = parse(model), ExternalFiles(model)
    found: dict[str, Path] = {}
    for tensor in (*scopes.initializers(proto), *scopes.inline_tensors(proto)):
        if tensor_bytes.is_external(tensor) and not is_own(tensor):
            try:
                found[tensor_bytes.reference(tensor)[0]] = files.region(tensor)[0]
            except (ModelError, ValueError) as error:
                raise UsageError(f"checker.place: {model} cannot be placed: {error}") from error
    return found
