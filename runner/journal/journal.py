"""The journal: verdicts on disk, what its lines say, and how they are appended and read.

The journal: every verdict that was paid for, one JSON line each, append-only.

A verdict is written before anybody acts on it, by one ``write`` of a whole line to a file opened for appending, under a
lock, and synced. A process that is killed leaves at most an unfinished last line, which readers ignore and the next
writer repairs. So several processes may share one file, and what one of them found is at once known to all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.disk_space import FULL, Room
from runner.exit_codes import OtherConditionsError, UsageError
from runner.files import sync_folder, write_line
from runner.journal.replay_yaml import drift
from runner.text import hide_environment, one_line
from runner.verdict import Verdict
from strategies.search import Trial, size_of

# What the lines of a journal say: records of verdicts, and the context in its first line.
#
# A reader takes complete lines only, whoever writes at the same time, and skips what is no record: a record ends in a
# digest of what it says.

#: how many bad lines of a journal are named
_SKIPPED_SHOWN = 5
#: before the digest of a record, and how long that is
_DIGEST, _DIGITS = b', "digest": "', 16
_LOG = logging.getLogger(__name__)
#: the format of journals that this version reads and writes; in 1 verdicts on different questions shared a journal,
#: in 2 contexts had other parts, in 3 records had no digest
FORMAT = 4


@dataclass(frozen=True)
class Entry:
    """One record of a journal.

    ``ranges`` and ``key`` are the trial's; ``attempt`` counts repeated checks of one trial from 0; ``writer`` names the
    run that paid for the check (several may share a journal).
    """

    ranges: str
    key: str
    attempt: int
    verdict: Verdict
    phase: str
    label: str
    iteration: int
    writer: str = ""

    @property
    def trial(self) -> Trial:
        """The trial that was checked."""
        return Trial.parse(self.ranges)

    @property
    def place(self) -> tuple[str, int]:
        """What no other record that stands in the same journal has."""
        return self.key, self.attempt


class Records:
    """What the complete lines of one journal file say, read on from where the last reading stopped."""

    def __init__(self, path: Path, context: Mapping[str, str]) -> None:
        self.path = path
        self.standing: dict[tuple[str, int], Entry] = {}
        self.voided: set[tuple[str, int]] = set()
        # of what no candidate could be made, and why
        self.invalid: dict[tuple[str, int], str] = {}
        self._context = context
        self._read_to = 0
        self._inode = 0
        self._line_number = 0
        self._skipped = 0

    def read(self) -> int:
        """Read the complete lines not yet read; return how many records were among them."""
        status = self.path.stat()
        if status.st_ino != self._inode or status.st_size < self._read_to:
            self.standing, self.voided, self.invalid = {}, set(), {}
            self._read_to, self._inode, self._line_number = 0, status.st_ino, 0
        if status.st_size == self._read_to:
            return 0
        count = 0
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                self._line_number += 1
                count += self._take(line)
        return count

    def removals(self, trial: Trial) -> Iterator[tuple[int, Entry]]:
        """Yield the first verdicts on sets that lack a single element of a trial, with that element."""
        for entry in self.standing.values():
            if not entry.attempt and size_of(entry.ranges) == len(trial) - 1:
                lacks = trial.elements - entry.trial.elements
                if len(lacks) == 1:
                    yield min(lacks), entry

    def _take(self, line: bytes) -> int:
        if self._line_number == 1:
            context = _context_of(line, self.path)
            if context != self._context:
                said = refusal(self.path, context, self._context, f"journal={self.path}")
                raise OtherConditionsError(said, _changed(context, self._context))
            return 0
        begun = line.rpartition(_DIGEST)[0]
        try:
            if line != _line_of(begun):
                raise ValueError("not as it was written")
            return self._keep(json.loads(begun + b"}"))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            self._skipped += 1
            if self._skipped <= _SKIPPED_SHOWN:
                more = "" if self._skipped < _SKIPPED_SHOWN else "; others are skipped without a word"
                _LOG.warning("%s: line %d is no record and is skipped%s", self.path, self._line_number, more)
            return 0

    def _keep(self, record: dict[str, Any]) -> int:
        place = record["key"], record["attempt"]
        if "invalid" in record:
            self.invalid[place] = record["invalid"]
            return 0
        if record.get("void"):
            self.standing.pop(place, None)
            self.voided.add(place)
        elif place not in self.standing:
            self.standing[place] = Entry(**record | {"verdict": Verdict.from_json(record["verdict"])})
            self.voided.discard(place)
        return 1


def read_context(path: Path) -> dict[str, str]:
    """Return the context that the journal at ``path`` belongs to. Raises UsageError where it is no journal."""
    with path.open("rb") as file:
        return _context_of(file.readline(), path)


def _context_of(line: bytes, path: Path) -> dict[str, str]:
    try:
        header = json.loads(line)
        if header["winnow"] != FORMAT:
            raise UsageError(
                f"{path} is a journal of format {one_line(header['winnow'], 20)}, written by another version of Winnow;"
                f" this one reads format {FORMAT} only: start a new run folder (without resume= and journal.reuse=)"
            )
        return {str(name): str(value) for name, value in header["context"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(not_a_journal(path)) from error


def refusal(path: Path, theirs: Mapping[str, str], ours: Mapping[str, str], where: str) -> str:
    """Say why the journal at ``path`` is refused, which ``where`` named."""
    return (
        f"{where}: the verdicts in {path} were found under other conditions and cannot be used here: "
        f"{_changed(theirs, ours)}. "
        "Restore what changed, or start a new run folder (without resume= and journal.reuse=)"
    )


def _changed(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    return "; ".join(drift(theirs, ours)) or "all of them"


def not_a_journal(path: Path) -> str:
    """Say that the file at ``path`` is no journal."""
    return f"{path} is not a journal (its first line is no header); name another file or start a new run folder"


_HEADER_START = b'{"winnow": '
JOURNAL_NAME = "journal.jsonl"
UNLOCKABLE = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
"""What file systems without locks say (some network and user-space ones)."""


def _drop_without_verdicts(descriptor: int, context: Mapping[str, str], path: Path) -> None:
    """Empty a journal of another context that holds nothing: a run that was refused at once must not bar the next."""
    start = os.pread(descriptor, 1 << 20, 0)
    alone = start.startswith(_HEADER_START) and b"\n" not in start[:-1]
    if alone and _is_object(start) and read_context(path) != context:
        os.ftruncate(descriptor, 0)


def context_digest(context: Mapping[str, str]) -> str:
    """Return 16 hex digits that name a context or an identity: equal ones give the same, in any order."""
    return hashlib.sha256(json.dumps(dict(context), sort_keys=True).encode()).hexdigest()[:16]


class Journal:
    """The verdicts of one context in one file.

    Of two records of the same trial and attempt the first in the file counts, for every process alike, until it is
    voided by ``forget``. That a check could not run is voided when the journal is opened again (one that is ``shared``:
    by the same ``writer``): a person mends that and goes on. Safe for threads and for processes.

    Raises UsageError where the file exists and is not a journal, or is one of another context, and OSError where it
    cannot be written.
    """

    def __init__(self, path: Path, context: Mapping[str, str], *, writer: str = "", shared: bool = False) -> None:
        self.path = path
        self.context = dict(context)
        self._writer = writer
        self._lock = threading.RLock()
        self._reused: list[Records] = []
        self._name_lasts = False
        self._own = Records(path, self.context)
        path.parent.mkdir(parents=True, exist_ok=True)
        claims = path.with_suffix(".claims")
        self._claims = os.open(claims, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644) if shared else None
        with self._locked() as descriptor:
            if not shared:
                _drop_without_verdicts(descriptor, self.context, path)
            self._own.read()  # refuses another context's journal before anything in it is touched
            self._repair(descriptor)
        self._own.read()
        for entry in self.entries():
            if entry.verdict.never_ran and (entry.writer == writer or not shared):
                self.forget(entry.trial, entry.attempt)

    def get(self, trial: Trial, attempt: int = 0) -> Verdict | None:
        """Return the verdict of this trial and attempt, from this journal or a reused one, or None."""
        with self._lock:
            place = (trial.key, attempt)
            if place in self._own.standing:
                return self._own.standing[place].verdict
            if place in self._own.voided:
                return None
            return next(
                (records.standing[place].verdict for records in self._reused if place in records.standing), None
            )

    def removals(self, trial: Trial) -> tuple[Verdict, ...]:
        """Return the first verdicts on sets that lack a single element of a trial, by that element, ascending.

        They are looked for among the records: to ask for each removal from a set of thousands would take minutes.
        """
        found: dict[int, Verdict] = {}
        with self._lock:
            for records in (*reversed(self._reused), self._own):  # the first one counts
                taken_back = () if records is self._own else self._own.voided
                found |= {lacks: one.verdict for lacks, one in records.removals(trial) if one.place not in taken_back}
        return tuple(found[lacks] for lacks in sorted(found))

    def put(self, trial: Trial, attempt: int, verdict: Verdict, phase: str, label: str, iteration: int) -> Verdict:
        """Record a verdict; it is on disk when this returns. Return the one that counts.

        That is another one where another process recorded the same trial and attempt first.
        """
        told = {"phase": phase, "label": label, "iteration": iteration, "writer": self._writer}
        with self._lock:
            self._append(trial, attempt, {"verdict": verdict.to_json(), **told})
            standing = self._own.standing.get((trial.key, attempt))
            return standing.verdict if standing else verdict

    def note(self, trial: Trial, attempt: int, reason: str, phase: str, label: str, iteration: int) -> None:
        """Write down why no candidate could be made of a trial. That is no verdict: it is tried anew in another run."""
        told = {"phase": phase, "label": label, "iteration": iteration, "writer": self._writer}
        with self._lock:
            if (trial.key, attempt) not in self._own.invalid:
                self._append(trial, attempt, {"invalid": reason, **told})

    def forget(self, trial: Trial, attempt: int = 0) -> None:
        """Void what is known of this trial and attempt (a person took an answer back); a later ``put`` counts again."""
        with self._lock:
            self._append(trial, attempt, {"void": True})

    @contextmanager
    def claimed(self, trial: Trial, attempt: int = 0) -> Iterator[None]:
        """Hold the right to check a trial: other processes that ask for the same one wait, and then find the verdict.

        The lock goes with the process. It is one of 2^24 bytes chosen by the trial's key, so that now and then two
        different trials wait for each other; that costs time, never an answer. Threads of one process do not wait,
        and nobody does for a journal that is not ``shared``.
        """
        if self._claims is None:
            yield
            return
        place = int(hashlib.sha256(f"{trial.key} {attempt}".encode()).hexdigest()[:6], 16)
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX, 1, place)
        except OSError as error:
            if error.errno not in UNLOCKABLE:
                raise
            raise self._without_locks(error) from error
        try:
            yield
        finally:
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, place)

    def refresh(self) -> int:
        """Read what other processes appended since (one ``stat`` if nothing); return how many records that were."""
        with self._lock:
            return self._own.read()

    def entries(self) -> tuple[Entry, ...]:
        """Return the records of this journal's own file that stand (first of their place, not voided), in order."""
        with self._lock:
            return tuple(self._own.standing.values())

    def reuse(self, paths: Iterable[Path], *, needed: bool = True) -> int:
        """Also consult the journals of other run folders (or journal files), read-only; return how many verdicts.

        Raises UsageError for a path that holds no journal, or (if it is ``needed``) only journals of another context.
        """
        added = 0
        for path in paths:
            files = _journals_in(path)
            matching = [file for file in files if read_context(file) == self.context]
            if not matching and needed:
                raise UsageError(refusal(files[0], read_context(files[0]), self.context, f"journal.reuse={path}"))
            for file in matching:
                records = Records(file, self.context)
                records.read()
                records.standing = {at: one for at, one in records.standing.items() if not one.verdict.never_ran}
                added += len(records.standing)
                with self._lock:
                    self._reused.append(records)
        return added

    def _append(self, trial: Trial, attempt: int, record: Mapping[str, Any]) -> None:
        text = _text({"key": trial.key, "attempt": attempt, **record, "ranges": trial.ranges})
        line = _line_of(text.removesuffix(b"}"))
        try:
            with self._locked() as descriptor:
                self._repair(descriptor)
                write_line(descriptor, line)
                os.fsync(descriptor)
                if not self._name_lasts:  # whoever made the file may not have come so far
                    sync_folder(self.path.parent)
                    self._name_lasts = True
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise Room(Path(self._writer or self.path.parent)).none(f"{self.path}: {error.strerror}") from error
        self._own.read()

    @contextmanager
    def _locked(self) -> Iterator[int]:
        # Opened anew each time: a lock belongs to the open file, and a forked child would share that of its parent.
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock_file(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock_file(self, descriptor: int) -> None:
        """Lock the whole file. Raises UsageError where its file system has no locks and others may write to it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in UNLOCKABLE:
                raise
            if self._claims is not None:
                raise self._without_locks(error) from error

    def _without_locks(self, error: OSError) -> UsageError:
        return UsageError(
            f"the jobs of this sweep cannot share their verdicts: the file system of {self.path.parent} has no locks "
            f"({error.strerror}). Give each job its own journal (journal.share=false), or put the sweep elsewhere "
            "(hydra.sweep.dir=FOLDER)"
        )

    def _repair(self, descriptor: int) -> None:
        """Make the file end in a whole line and begin with a header. Only called under the lock."""
        size = os.fstat(descriptor).st_size
        tail = _unfinished_tail(descriptor, size)
        begun = tail.rstrip(b"\0")  # zeros: a power cut before the header was synced
        if tail and len(tail) == size and not (begun.startswith(_HEADER_START) or _HEADER_START.startswith(begun)):
            raise UsageError(not_a_journal(self.path))
        if tail and _is_object(tail):
            write_line(descriptor, b"\n")
        elif tail:
            os.ftruncate(descriptor, size - len(tail))
        if os.fstat(descriptor).st_size == 0:
            # synced with the first verdict
            write_line(descriptor, _text({"winnow": FORMAT, "context": self.context}) + b"\n")


def _journals_in(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = [path / JOURNAL_NAME, *sorted(path.glob("journal*/*.jsonl")), *sorted(path.glob("journal-*.jsonl"))]
    found = [file for file in files if file.is_file()]
    if not found:
        raise UsageError(
            f"no journal at journal.reuse={path}; give a run folder (with {JOURNAL_NAME}) or a journal file"
        )
    return found


def _text(record: Mapping[str, Any]) -> bytes:
    return hide_environment(json.dumps(record, default=_plain)).encode()


def _line_of(begun: bytes) -> bytes:
    """Return the line of a record, given as JSON but for its last brace, with a digest of that."""
    return begun + _DIGEST + hashlib.sha256(begun).hexdigest()[:_DIGITS].encode() + b'"}\n'


def _plain(value: Any) -> Any:
    """Turn what a checker left in its metrics into JSON: a verdict that was paid for is not lost to a stray type."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else str(value)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _unfinished_tail(descriptor: int, size: int) -> bytes:
    """Return what follows the last line end of the file, read backwards in growing steps."""
    step = 4096
    while True:
        start = max(0, size - step)
        chunk = os.pread(descriptor, size - start, start)
        _, newline, tail = chunk.rpartition(b"\n")
        if newline or start == 0:
            return tail
        step *= 8
