"""The nearest element without a property on either side of one that has it, in an ordered history.

Galloping away from the start (distances 1, 2, 4, ...) until one has not the property, then halving between the last
that has and the first that has not: 2 log2(d) questions for a distance d (Bentley and Yao, "An almost optimal algorithm
for unbounded searching", 1976). A history need not be monotone: what the answer says is true of the elements that were
asked, and the pair that it ends with are neighbors.
"""

from __future__ import annotations

from collections.abc import Callable

from strategies.outcome import Answer
from strategies.procedure import Procedure, Task
from strategies.search import Ask, Claim, Done, Step
from strategies.trial import Trial

PHASE = "nearest"
Label = Callable[[int], str]
"""What the label of a check calls an element."""


def nearest(order: tuple[int, ...], start: int, label: Label = str) -> Step:
    """Return the first step; a question is one element, YES means that it has the property, as ``start`` does.

    An element without an answer is left out, and the next one takes its place.
    """
    at = order.index(start)
    end = Done(Trial.of([start]), Claim.COUNTED)
    earlier, later = order[:at][::-1], order[at + 1 :]
    return _gallop(later, label, 0, 1, lambda: _gallop(earlier, label, 0, 1, lambda: end))


def each(order: tuple[int, ...], start: int, label: Label = str) -> Step:
    """Return the first step of asking all elements, the oldest first."""
    left = tuple(element for element in order if element != start)

    def step(number: int) -> Step:
        if number == len(left):
            return Done(Trial.of([start]), Claim.COUNTED)
        return Ask(
            Trial.of([left[number]]), lambda _: step(number + 1), PHASE, label(left[number]), left=len(left) - number
        )

    return step(0)


def _gallop(line: tuple[int, ...], label: Label, having: int, distance: int, then: Callable[[], Step]) -> Step:
    """Ask farther and farther elements of ``line``, the nearest first; the first ``having`` need no question."""
    if having >= len(line):
        return then()
    at = min(having + distance, len(line)) - 1

    def answered(answer: Answer) -> Step:
        if answer is Answer.YES:
            return _gallop(line, label, at + 1, 2 * distance, then)
        if answer is Answer.NO:
            return _halve(line, label, having, at, then)
        return _gallop(line[:at] + line[at + 1 :], label, having, distance, then)

    return Ask(Trial.of([line[at]]), answered, PHASE, label(line[at]), left=2 * distance.bit_length())


def _halve(line: tuple[int, ...], label: Label, having: int, without: int, then: Callable[[], Step]) -> Step:
    """Ask between the element before ``having``, which has the property, and that at ``without``, which has not."""
    if having == without:
        return then()
    at = (having + without) // 2

    def answered(answer: Answer) -> Step:
        if answer is Answer.YES:
            return _halve(line, label, at + 1, without, then)
        if answer is Answer.NO:
            return _halve(line, label, having, at, then)
        return _halve(line[:at] + line[at + 1 :], label, having, without - 1, then)

    return Ask(Trial.of([line[at]]), answered, PHASE, label(line[at]), left=(without - having).bit_length())


NEAREST = Procedure(
    "nearest",
    Task.HISTORY,
    lambda space, told: (each if told.exhaustive else nearest)(space.order, told.start, told.label),
    ("exhaustive",),
)
