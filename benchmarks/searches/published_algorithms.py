"""Published algorithms to compare with, as they were written down; each distinct set is checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Condition = Callable[[frozenset[int]], bool]


class Counted:
    """A condition that remembers its answers and counts how often it had to be checked.

    That the whole fails and nothing at all passes is known.
    """

    def __init__(self, whole: Sequence[int], condition: Condition) -> None:
        self._condition = condition
        self._seen = {frozenset(whole): True, frozenset(): False}

    def __call__(self, kept: frozenset[int]) -> bool:
        """Return whether these fail."""
        if kept not in self._seen:
            self._seen[kept] = self._condition(kept)
        return self._seen[kept]

    @property
    def checks(self) -> int:
        """How many distinct sets had to be checked."""
        return len(self._seen) - 2


def quickxplain(elements: Sequence[int], fails: Condition) -> frozenset[int]:
    """Return a minimal failing set, after Junker, "QuickXplain: preferred explanations and relaxations" (AAAI 2004).

    All elements together fail; ``fails`` is monotone.
    """

    def explain(base: frozenset[int], grown: bool, rest: tuple[int, ...]) -> frozenset[int]:
        if grown and fails(base):
            return frozenset()
        if len(rest) == 1:
            return frozenset(rest)
        half = len(rest) // 2
        second = explain(base | frozenset(rest[:half]), True, rest[half:])
        return second | explain(base | second, bool(second), rest[:half])

    return explain(frozenset(), False, tuple(elements))


def ddmin(elements: Sequence[int], fails: Condition) -> frozenset[int]:
    """Return a 1-minimal failing set; all elements together fail.

    After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (IEEE TSE, 2002).
    """
    kept, parts = list(elements), 2
    while len(kept) > 1:
        edges = [len(kept) * at // parts for at in range(parts + 1)]
        pieces = [kept[low:high] for low, high in pairwise(edges)]
        rests = [kept[:low] + kept[high:] for low, high in pairwise(edges)]
        piece = next((piece for piece in pieces if fails(frozenset(piece))), None)
        rest = next((rest for rest in rests if fails(frozenset(rest))), None) if piece is None else None
        if piece is not None:
            kept, parts = piece, 2
        elif rest is not None:
            kept, parts = rest, max(parts - 1, 2)
        elif parts < len(kept):
            parts = min(2 * parts, len(kept))
        else:
            break
    return frozenset(kept)


def windowed(elements: Sequence[int], fails: Condition) -> frozenset[int]:
    """Return a 1-minimal failing set, as one would write it first.

    Bisect the end, bisect the start, QuickXplain in the window, then remove one at a time.
    """

    def boundary(no: int, yes: int, kept: Callable[[int], frozenset[int]]) -> int:
        while abs(yes - no) > 1:
            middle = (yes + no) // 2
            yes, no = (middle, no) if fails(kept(middle)) else (yes, middle)
        return yes

    end = boundary(-1, len(elements) - 1, lambda at: frozenset(elements[: at + 1]))
    start = boundary(end + 1, 0, lambda at: frozenset(elements[at : end + 1]))
    answer = quickxplain(elements[start : end + 1], fails)
    for element in sorted(answer):
        if fails(answer - {element}):
            answer -= {element}
    return answer
