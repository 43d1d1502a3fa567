"""The nearest element without a property on either side of one that has it, in an ordered history.

Galloping away from the start (distances 1, 2, 4, ...) until one has not the property, then halving between the last
that has and the first that has not: 2 log2(d) questions for a distance d (Bentley and Yao, "An almost optimal algorithm
for unbounded searching", 1976). A history need not be monotone: what the answer says is true of the elements that were
asked, and the pair that it ends with are neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from strategies.search import Answer, Ask, Claim, Done, Look, Procedure, Step, Task, Trial

PHASE = "nearest"
Label = Callable[[int], str]
"""What the label of a check calls an element."""


def nearest(order: tuple[int, ...], start: int, label: Label = str, coarse: tuple[int, ...] = ()) -> Step:
    """Return the first step; a question is one element, YES means that it has the property, as ``start`` does.

    An element without an answer is left out, and the next one takes its place. ``coarse``: elements that are searched
    before the others, which lie between them.
    """
    earlier, later = _sides([one for one in order if one in {*coarse, start}], start)
    return _gallop(later, label, 0, 1, lambda: _gallop(earlier, label, 0, 1, lambda: _refine(order, start, label)))


def each(order: tuple[int, ...], start: int, label: Label = str, coarse: tuple[int, ...] = ()) -> Step:
    """Return the first step of asking all elements, the oldest first, and then as `nearest` does."""
    left = tuple(element for element in coarse or order if element != start)

    def step(number: int) -> Step:
        if number == len(left):
            return _refine(order, start, label)
        return Ask(
            Trial.of([left[number]]), lambda _: step(number + 1), PHASE, label(left[number]), left=len(left) - number
        )

    return step(0)


def _sides(order: Sequence[int], start: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what is before the start and what is after it, the nearest first."""
    at = order.index(start)
    return tuple(order[:at][::-1]), tuple(order[at + 1 :])


def _refine(order: tuple[int, ...], start: int, label: Label) -> Step:
    """Go on among the elements that were left out between what has the property and the nearest that has not."""

    def side(line: tuple[int, ...], known: Mapping[int, Answer], then: Callable[[], Step]) -> Step:
        line = tuple(element for element in line if known.get(element) is not Answer.UNKNOWN)
        without = next((at for at, element in enumerate(line) if known.get(element) is Answer.NO), None)
        nearer = line[:without]
        having = max((at + 1 for at, element in enumerate(nearer) if known.get(element) is Answer.YES), default=0)
        if without is None:
            return _gallop(line, label, having, 1, then)
        return _halve(line, label, having, without, then)

    def look(asked: tuple[tuple[Trial, Answer], ...]) -> Step:
        known = {element: answer for trial, answer in asked for element in trial}
        earlier, later = _sides(order, start)
        end = Done(Trial.of([start]), Claim.COUNTED)
        return side(later, known, lambda: side(earlier, known, lambda: end))

    return Look(look)


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
    lambda space, told: (each if told.exhaustive else nearest)(space.order, told.start, told.label, told.coarse),
    ("exhaustive",),
)
