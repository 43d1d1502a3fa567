"""Repetition: the same thing again, until it is good, until it is bad, until both were seen, or a number of times."""

from __future__ import annotations

from strategies.search import Answer, Ask, Claim, Done, Procedure, Step, Task, Trial

_MOST_SILENT = 20


def repeat(until: str) -> Step:
    """Return the first step; iterations count from 0 and YES means bad. ``until``: good, bad, or a number.

    A wait for good or bad ends after 20 iterations if none of them had an answer: that check cannot run. Else nobody
    knows how many are left (0). Raises ValueError for anything else.
    """
    if until in ("good", "bad"):
        return _iteration(0, None, Answer.YES if until == "bad" else Answer.NO)
    if not until.isdigit() or int(until) < 1:
        raise ValueError(f"until={until!r}: good, bad, or a number of iterations (1 or more)")
    return _iteration(0, int(until), None)


def _iteration(number: int, limit: int | None, stop_at: Answer | None, *, answered: bool = False) -> Step:
    if number == (_MOST_SILENT if limit is None and not answered else limit):
        return Done(None, Claim.COUNTED)
    trial = Trial.of([number])

    def then(answer: Answer) -> Step:
        if stop_at is not None and answer is stop_at:
            return Done(trial, Claim.COUNTED)
        return _iteration(number + 1, limit, stop_at, answered=answered or answer is not Answer.UNKNOWN)

    return Ask(trial, then, "repeat", f"iteration {number + 1}", left=limit - number if limit is not None else 0)


def both(most: int) -> Step:
    """Return the first step; iterations count from 0 and YES means bad. ``most``: after so many it ends anyway.

    It ends once one iteration was good and one was bad. One without an answer (UNKNOWN) is neither. Raises ValueError
    unless ``most`` is positive.
    """
    if most < 1:
        raise ValueError(f"most={most}: one iteration or more")
    return _until_both(0, most, frozenset())


def _until_both(number: int, most: int, seen: frozenset[Answer]) -> Step:
    if number == most or {Answer.YES, Answer.NO} <= seen:
        return Done(None, Claim.COUNTED)
    # the kind that was not seen yet is expected next
    likely = 0.9 if Answer.NO in seen else 0.1

    def then(answer: Answer) -> Step:
        return _until_both(number + 1, most, seen | {answer})

    return Ask(Trial.of([number]), then, "repeat", f"iteration {number + 1}", likely, left=most - number)


REPEAT = Procedure("repeat", Task.REPEAT, lambda _, told: repeat(told.until), ("until",))
