"""The question of a search through releases: which of them fail as the first one does?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.files import read_plain
from runner.session.question import Question
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome

NEITHER = FAILS_OTHERWISE, CANNOT_TELL, NOT_KNOWN = "fails otherwise", "cannot tell", "not known"
"""What a release is called that is neither broken nor good.

It fails, but not as the first one; or it cannot read the file; or it was not judged.
"""
CANNOT_READ = "it cannot read the file"
_LONGEST = 300
_UNREADABLE = re.compile(
    "|".join(
        (
            r"Unsupported model IR version[^\n]*|ir_version \d+ is higher than[^\n]*",
            r"Opset \d+ is under development[^\n]*|[Uu]nsupported opset[^\n]*",
            r"No Op registered for [^\n]*|[^\n]* is not a registered function/op[^\n]*",
            r"No schema registered for [^\n]*|No importer registered for op[^\n]*|Unrecognized attribute: [^\n]*",
        )
    )
)
"""What ONNX Runtime, onnx and TensorRT say of a file that is newer than they are."""
_WORDS = {Outcome.FAIL: "broken", Outcome.PASS: "good", Outcome.DIFFERENT: FAILS_OTHERWISE}


@dataclass(frozen=True)
class VersionsQuestion(Question):
    """A release that fails otherwise is neither broken nor good: that other failure may hide the one under study.

    ``cannot_read``: says why a release cannot read the file, "" where it can.
    """

    cannot_read: Callable[[Verdict], str] = lambda _: ""

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict says."""
        unknown = verdict.outcome is Outcome.DIFFERENT or self.cannot_read(verdict)
        return Answer.UNKNOWN if unknown else super().answer(verdict)


def word_of(verdict: Verdict) -> str:
    """Return what a release with this verdict is called."""
    if verdict.outcome is Outcome.UNRESOLVED and verdict.reason.startswith(CANNOT_READ):
        return CANNOT_TELL
    return _WORDS.get(verdict.outcome, NOT_KNOWN)


def unreadable(verdict: Verdict, folder: Path) -> str:
    """Return what a check that did not pass says of a file that is newer than its reader; ``folder``: the run's."""
    if verdict.outcome is Outcome.PASS:
        return ""
    log = read_plain(folder / verdict.log).decode("utf-8", "replace") if verdict.log else ""
    found = _UNREADABLE.search(f"{verdict.reason}\n{log}")
    return f"{CANNOT_READ}: {found[0].strip()[:_LONGEST]}" if found else ""
