"""Search ``from_start``: leaves out the first node as long as what is left still fails."""

from __future__ import annotations

from strategies.search import Answer, Ask, Claim, Done, Procedure, Step, Task, Trial


def _without_first(kept: tuple[int, ...]) -> Step:
    found = Done(Trial.of(kept), Claim.SMALLEST_SEEN)
    if len(kept) == 1:
        return found

    def then(answer: Answer) -> Step:
        return _without_first(kept[1:]) if answer is Answer.YES else found

    return Ask(Trial.of(kept[1:]), then, "from start", f"the last {len(kept) - 1}", left=len(kept) - 1)


FROM_START = Procedure("from_start", Task.SUBSET, lambda space, options: _without_first(space.order))
"""The whole is taken to fail."""
