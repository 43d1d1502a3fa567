"""Where the failure of the whole model arises: the last place from which on it is still to be seen.

All that stands before a place in the model's order has good values, what comes after it is computed, and the whole
model is judged at its own outputs. The later the place, the less is computed, so the model fails up to one place and
passes from the next one on; halving finds it. What rounding does inside the model misleads no such question.
"""

from __future__ import annotations

from collections.abc import Collection

from runner.jobs.reduce.cause.splice_experiments import Experiments
from runner.model.graph.splice_good_values import depends_on
from strategies.trial import Trial


def locate(made: Experiments, within: Collection[int]) -> int | None:
    """Return the last element that makes the model fail with what depends on it, all else being good.

    ``within``: elements that fail with what depends on them, and all else good. None: no single one does, or there was
    no time for it.
    """
    order = sorted(set(within) - made.healed)
    low, high = 0, len(order)
    while high - low > 1:
        if made.exhausted:
            return None
        middle = (low + high) // 2
        if made.as_bad(made.from_on(order[middle:])):
            low = middle
        else:
            high = middle
    return order[low] if order and made.as_bad(made.from_on(order[low : low + 1])) else None


def part_from(made: Experiments, place: int) -> Trial | None:
    """Return the smallest part that fails alone among a place and what depends on it, nearest nodes first.

    A fusion that is wrong is seen in the whole model from its first node on, and alone with all of it.
    """
    below = sorted(depends_on(made.model.graph, [place], made.healed) - {place})
    passes, fails, size = -1, len(below), 0
    while passes + 1 < fails and not made.exhausted:
        if made.alone(Trial.of([place, *below[:size]])):
            fails = size
        else:
            passes = size
        size = min(max(1, 2 * passes), (passes + fails) // 2)
    return made.following((place, *below[:fails]))
