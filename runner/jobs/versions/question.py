"""The question of a search through releases: which of them fail as the first one does?"""

from __future__ import annotations

from dataclasses import dataclass

from runner.session.question import Question
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome

NEITHER = FAILS_OTHERWISE, NOT_KNOWN = "fails otherwise", "not known"
"""What a release is called that is neither broken nor good: it fails, but not as the first one, or was not judged."""
_WORDS = {Outcome.FAIL: "broken", Outcome.PASS: "good", Outcome.DIFFERENT: FAILS_OTHERWISE}


@dataclass(frozen=True)
class VersionsQuestion(Question):
    """A release that fails otherwise is neither broken nor good: that other failure may hide the one under study."""

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict says."""
        return Answer.UNKNOWN if verdict.outcome is Outcome.DIFFERENT else super().answer(verdict)


def word_of(verdict: Verdict) -> str:
    """Return what a release with this verdict is called."""
    return _WORDS.get(verdict.outcome, NOT_KNOWN)
