"""Bisection: one end of the failing window, then the other. O(log N) checks.

Either the earliest prefix that fails, then the latest start from which it still fails; or the latest start first, then
the earliest end. Keeping a prefix is monotone on any graph for a failure that needs certain nodes, and so is keeping a
suffix; the two ends of the window are therefore elements that the failure needs. Most failures are local, so the
second end is first looked for close to the first one (sizes 1, 4, 16), which makes a single culprit cost log2(N) + 1
checks in place of 2 log2(N); after Bentley and Yao, "An almost optimal algorithm for unbounded searching" (1976).

The order matters where sets fail that are not the cause: a prefix hands out tensors from inside the model, where
rounding may exceed a tolerance that was meant for the model's own outputs. A suffix hands out only the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from strategies.search import Answer, Ask, Claim, Closure, Done, First, Procedure, Space, Step, Task, Trial

NEAR = (1, 4, 16)
"""Window sizes that are tried first when looking for the second end."""
MAX_PROBES = 6
"""How many neighbors of unanswered positions are probed before an end of the window is left where it is."""


@dataclass(frozen=True)
class Window:
    """The positions ``start..end`` (inclusive) of the order; ``unanswered`` questions were met on the way."""

    start: int
    end: int
    unanswered: int = 0


@dataclass(frozen=True)
class _Range:
    """A search for the boundary between NO (at ``no``) and YES (at ``yes``).

    Both are positions, in either direction.
    """

    no: int
    yes: int
    unknown: frozenset[int] = frozenset()
    near: tuple[int, ...] = ()

    def probe(self) -> int | None:
        """The next position to ask about.

        Galloping first, then the middle, or the nearest neighbor with an answer to give.
        """
        low, high = sorted((self.no, self.yes))
        for position in self.near:
            if low < position < high and position not in self.unknown:
                return position
        middle = (low + high) // 2 if self.no < self.yes else (low + high + 1) // 2
        if len(self.unknown) > MAX_PROBES:
            return None
        spots = (middle + step for step in (0, 1, -1, 2, -2, 4, -4))
        return next((spot for spot in spots if low < spot < high and spot not in self.unknown), None)

    def after(self, position: int, answer: Answer) -> _Range:
        """Return the range after an answer at ``position``."""
        if answer is Answer.UNKNOWN:
            return replace(self, unknown=self.unknown | {position})
        # A YES ends the galloping; a NO goes on to the next size.
        if answer is Answer.YES:
            return replace(self, yes=position, near=(), unknown=frozenset())
        return replace(self, no=position, unknown=frozenset())

    @property
    def left(self) -> int:
        """Questions still to come: the bound of a plain bisection."""
        return max(abs(self.yes - self.no) - 1, 0).bit_length()


def bisect(space: Space, first: First = First.END) -> Step:
    """Return the first step of a search for the failing window of ``space``; the whole is taken to fail."""

    def end(window: Window) -> Step:
        trial = window_trial(space, window)
        return Done(trial, Claim.ONE_MINIMAL if len(trial) == 1 else Claim.WINDOW, window.unanswered)

    return find_window(space, end, first)


BISECT = Procedure("bisect", Task.SUBSET, lambda space, told: bisect(space, told.first or First.END), ("first",))


def window_trial(space: Space, window: Window) -> Trial:
    """The trial that keeps a window."""
    return space.close(space.order[window.start : window.end + 1])


def find_window(space: Space, then: Callable[[Window], Step], first: First = First.END) -> Step:
    """Find the window and go on with ``then``. A closure that keeps one end of the model leaves only the other open."""
    if space.closure not in (Closure.FREE, Closure.PLACE):
        return find_end(space, then, first)
    second = _end if first_end(space, first) is First.START else _start
    return find_end(space, lambda window: second(space, window, then, near=True), first)


def find_end(space: Space, then: Callable[[Window], Step], first: First = First.END) -> Step:
    """Find the end of the window that is looked for first, and go on with ``then``."""
    whole = Window(0, len(space.order) - 1)
    if whole.end < 0:
        return Done(None, Claim.WINDOW)
    return (_start if first_end(space, first) is First.START else _end)(space, whole, then)


def first_end(space: Space, first: First) -> First:
    """Return which end can be looked for first: a closure that keeps one end leaves only the other."""
    if space.closure is Closure.FREE:
        return first
    return First.END if space.closure is Closure.ANCESTORS else First.START


def _end(space: Space, window: Window, then: Callable[[Window], Step], *, near: bool = False) -> Step:
    """Find the earliest end of a window that fails; ``near``: try close to its start first."""
    start = window.start
    sizes = tuple(start + size - 1 for size in NEAR) if near else ()
    at = _Range(no=start - 1, yes=window.end, near=sizes)
    return _boundary(space, at, lambda end: replace(window, end=end), "earliest end", window.unanswered, then)


def _start(space: Space, window: Window, then: Callable[[Window], Step], *, near: bool = False) -> Step:
    """Find the latest start of a window that fails; ``near``: try close to its end first."""
    end = window.end
    sizes = tuple(end + 1 - size for size in NEAR) if near else ()
    at = _Range(no=end + 1, yes=window.start, near=sizes)
    return _boundary(space, at, lambda start: replace(window, start=start), "latest start", window.unanswered, then)


def _boundary(
    space: Space,
    at: _Range,
    window_at: Callable[[int], Window],
    phase: str,
    unanswered: int,
    found: Callable[[Window], Step],
) -> Step:
    """Ask until the boundary is found, or until only unanswered positions are left in between."""
    position = at.probe()
    if position is None:
        return found(replace(window_at(at.yes), unanswered=unanswered))

    def then(answer: Answer) -> Step:
        missed = unanswered + (answer is Answer.UNKNOWN)
        return _boundary(space, at.after(position, answer), window_at, phase, missed, found)

    window = window_at(position)
    label = f"keep {window.start}..{window.end}"
    return Ask(window_trial(space, window), then, phase, label, left=max(at.left, 1))
