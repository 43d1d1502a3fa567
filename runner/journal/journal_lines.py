"""What the lines of a journal say: records of verdicts, and the context in its first line.

A reader takes complete lines only, whoever writes at the same time, and skips what is no record.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner.errors import OtherConditionsError, UsageError
from runner.report.replay import drift
from runner.verdict import CAUGHT, Verdict
from strategies.trial import Trial, size_of

#: how many bad lines of a journal are named, and how much of what is wrong with one
_SKIPPED_SHOWN, _SHOWN = 5, 200
#: of elements below a million: no graph has more nodes, and such a text stays small as a set
_RANGES = re.compile(r"(\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*)?")
_LOG = logging.getLogger(__name__)
#: the format of journals that this version reads and writes; in 1 verdicts on different questions shared a journal,
#: in 2 contexts had other parts
FORMAT = 3


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
            if differences(context, self._context):
                raise OtherConditionsError(refusal(self.path, context, self._context, f"journal={self.path}"))
            return 0
        try:
            record = json.loads(line)
            place = (str(record["key"]), int(record["attempt"]))
            if "invalid" in record:
                self.invalid[place] = str(record["invalid"])
                return 0
            entry = None if record.get("void") else _entry(record)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            self._skip(error)
            return 0
        if entry is None:
            self.standing.pop(place, None)
            self.voided.add(place)
        elif place not in self.standing:
            self.standing[place] = entry
            self.voided.discard(place)
        return 1

    def _skip(self, error: Exception) -> None:
        self._skipped += 1
        if self._skipped <= _SKIPPED_SHOWN:
            more = "" if self._skipped < _SKIPPED_SHOWN else "; others are skipped without a word"
            what = repr(error)[:_SHOWN]
            _LOG.warning("%s: line %d is no record and is skipped (%s)%s", self.path, self._line_number, what, more)


def read_context(path: Path) -> dict[str, str]:
    """Return the context that the journal at ``path`` belongs to. Raises UsageError where it is no journal."""
    with path.open("rb") as file:
        return _context_of(file.readline(), path)


def _context_of(line: bytes, path: Path) -> dict[str, str]:
    try:
        header = json.loads(line)
        if header["winnow"] != FORMAT:
            raise UsageError(
                f"{path} is a journal of format {header['winnow']!r}, written by another version of Winnow; this one "
                f"reads format {FORMAT} only: start a new run folder (without resume= and journal.reuse=)"
            )
        return {str(name): str(value) for name, value in header["context"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(not_a_journal(path)) from error


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """Name each part in which two contexts differ."""
    names = sorted({*theirs, *ours})
    return [
        f"{name}: {theirs.get(name, '(none)')} -> {ours.get(name, '(none)')}"
        for name in names
        if theirs.get(name) != ours.get(name)
    ]


def refusal(path: Path, theirs: Mapping[str, str], ours: Mapping[str, str], where: str) -> str:
    """Say why the journal at ``path`` is refused, which ``where`` named."""
    changed = "; ".join(drift(theirs, ours)) or "; ".join(differences(theirs, ours))
    return (
        f"{where}: the verdicts in {path} were found under other conditions and cannot be used here: {changed}. "
        "Restore what changed, or start a new run folder (without resume= and journal.reuse=)"
    )


def not_a_journal(path: Path) -> str:
    """Say that the file at ``path`` is no journal."""
    return f"{path} is not a journal (its first line is no header); name another file or start a new run folder"


def _entry(record: Mapping[str, Any]) -> Entry:
    """Return the entry of a record. Raises KeyError, TypeError or ValueError for what no run of Winnow's writes."""
    verdict, ranges, key = Verdict.from_json(record["verdict"]), record["ranges"], record["key"]
    if not isinstance(ranges, str) or hashlib.sha256(ranges.encode()).hexdigest()[: len(Trial.of(()).key)] != key:
        raise ValueError("its key is not its trial's")
    if not _RANGES.fullmatch(ranges):
        raise ValueError("its trial is none")
    _check(verdict)
    return Entry(
        ranges=ranges,
        key=key,
        attempt=int(record["attempt"]),
        verdict=verdict,
        phase=sys.intern(str(record["phase"])),
        label=str(record["label"]),
        iteration=int(record["iteration"]),
        writer=sys.intern(str(record.get("writer", ""))),
    )


def _check(verdict: Verdict) -> None:
    """Raise ValueError where a part of a verdict is not of its type: whoever reads it later relies on that."""
    numbers = (verdict.seconds, verdict.peak_rss_mb)
    texts = [verdict.reason, *([verdict.log] if verdict.log is not None else [])]
    if verdict.signature:
        texts += [verdict.signature.stage, verdict.signature.kind, verdict.signature.detail]
    raised = [verdict.signature.raised.to_json()] if verdict.signature and verdict.signature.raised else []
    raised += [verdict.metrics[CAUGHT]] if isinstance(verdict.metrics, dict) and verdict.metrics.get(CAUGHT) else []
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(isinstance(number, int | float) and 0 <= number < math.inf for number in numbers)
        or not isinstance(verdict.returncode, int | None)
        or not all(_is_raised(one) for one in raised)
        or not isinstance(verdict.metrics, dict)
        or not all(
            _METRICS[name](value) for name, value in verdict.metrics.items() if value is not None and name in _METRICS
        )
    ):
        raise ValueError("its verdict is none")


def _is_raised(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 2:
        return False
    return isinstance(value[1], bool) and all(isinstance(text, str) for text in (value[0], *value[2:]))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _are_layers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and _are_texts(one.get("nodes")) for one in value)


#: what is read of a verdict's metrics later and must be of its kind; a number that is none is passed over there
_METRICS: Mapping[str, Callable[[Any], bool]] = MappingProxyType(
    {
        "left_out": _are_texts,
        "constant": _are_texts,
        "fused": _are_layers,
        "reference": lambda value: isinstance(value, str),
    }
)
