"""Search ``from_start``: leaves out the first node as long as what is left still fails."""

from __future__ import annotations

from strategies.outcome import Answer
from strategies.search import Ask, Claim, Done, Step
from strategies.space import Space
from strategies.trial import Trial


def from_start(space: Space, extra: int | None = None, first: object = None) -> Step:
    """Return the first step; the whole is taken to fail."""
    return _without_first(space.order)


def _without_first(kept: tuple[int, ...]) -> Step:
    found = Done(Trial.of(kept), Claim.SMALLEST_SEEN)
    if len(kept) == 1:
        return found

    def then(answer: Answer) -> Step:
        return _without_first(kept[1:]) if answer is Answer.YES else found

    return Ask(Trial.of(kept[1:]), then, "from start", f"the last {len(kept) - 1}", left=len(kept) - 1)
