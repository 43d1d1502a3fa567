"""Outcomes of a check, and the answers that a search gets for them."""

from __future__ import annotations

from enum import Enum


class Outcome(str, Enum):
    """The four things that a check can find.

    ``DIFFERENT`` is a failure, but not the one under study; ``UNRESOLVED`` is no answer at all
    (an invalid candidate, a non-finite feed, a broken check).
    """

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    DIFFERENT = "different"
    UNRESOLVED = "unresolved"


class Answer(str, Enum):
    """What a search is told: does the trial have the property that is looked for?"""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def answer_of(outcome: Outcome, wanted: Outcome = Outcome.FAIL) -> Answer:
    """Translate an outcome for a search that looks for ``wanted`` (FAIL to reduce, PASS to raise precision).

    A DIFFERENT failure answers "no" and not "unknown": the failure under study did not show.
    """
    if outcome is Outcome.UNRESOLVED:
        return Answer.UNKNOWN
    return Answer.YES if outcome is wanted else Answer.NO
