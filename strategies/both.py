"""Repetition until a good and a bad iteration were both seen."""

from __future__ import annotations

from strategies.outcome import Answer
from strategies.search import Ask, Claim, Done, Step
from strategies.trial import Trial


def both(most: int) -> Step:
    """Return the first step; iterations count from 0 and YES means bad. ``most``: after so many it ends anyway.

    An iteration without an answer (UNKNOWN) is neither. Raises ValueError unless ``most`` is positive.
    """
    if most < 1:
        raise ValueError(f"most={most}: one iteration or more")
    return _iteration(0, most, frozenset())


def _iteration(number: int, most: int, seen: frozenset[Answer]) -> Step:
    if number == most or {Answer.YES, Answer.NO} <= seen:
        return Done(None, Claim.COUNTED)
    # the kind that was not seen yet is expected next
    likely = 0.9 if Answer.NO in seen else 0.1

    def then(answer: Answer) -> Step:
        return _iteration(number + 1, most, seen | {answer})

    return Ask(Trial.of([number]), then, "repeat", f"iteration {number}", likely, left=most - number)
