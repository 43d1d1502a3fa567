"""Beyond 1-minimality: smaller answers where failures are not monotone.

Where a set that fails never has a superset that passes, a 1-minimal set is minimal, and every question here would be
wasted. Real runtimes fuse across the cut, so a set can pass and a part of it fail; then removing two elements at once
can succeed where removing either did not, and a smaller answer may lie outside the one that was found. Whether the
answers so far were monotone is known at no cost: where they were, few such questions are asked, unless the user wants
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from strategies.one_at_a_time import claim, sweep
from strategies.outcome import Answer
from strategies.search import Ask, Done, Look, Step, limited
from strategies.search_space import Space
from strategies.trial import Trial

FEW, AUTO = 8, 24
"""Questions where the user named no number: after monotone answers, and after others."""
REFINING = ("several at once", "growing again")
"""The phases of these questions."""
LARGEST = 8
"""Elements that are removed at once, at most."""
LOOKED_AT = 20_000
"""Sets that are looked at for some that may be removed."""


@dataclass(frozen=True)
class _Tried:
    """How many questions of each kind were asked."""

    pairs: int = 0
    larger: int = 0
    grown: int = 0

    def __str__(self) -> str:
        parts = [(self.pairs, "pair"), (self.larger, "larger set"), (self.grown, "grown set")]
        shown = [f"{count} {name}{'s' * (count != 1)}" for count, name in parts if count]
        return f"also tried, after one at a time: {', '.join(shown)}" if shown else ""


def beyond(space: Space, found: Trial, unanswered: int, extra: int | None) -> Step:
    """Go on from a 1-minimal set; ``extra``: how many questions may be spent, None: see `FEW`."""
    if extra == 0 or len(found) < 3:
        return claim(found, unanswered)
    if extra is not None:
        return _remove(space, found, unanswered, extra, None, _Tried())

    def look(asked: tuple[tuple[Trial, Answer], ...]) -> Step:
        few = not unanswered and monotone(asked)
        return _remove(space, found, unanswered, FEW if few else AUTO, None, _Tried())

    return Look(look)


def monotone(asked: Iterable[tuple[Trial, Answer]]) -> bool:
    """Whether no set that has the property was met inside one that has not."""
    line = list(asked)
    having = [_bits(trial) for trial, answer in line if answer is Answer.YES]
    lacking = (_bits(trial) for trial, answer in line if answer is Answer.NO and trial)
    return not any(inner & outer == inner != outer for outer in lacking for inner in having)


def _bits(trial: Trial) -> int:
    """A set as the bits of a number: those of a whole line of questions lie in memory side by side."""
    flags = bytearray(b"0" * (max(trial.elements, default=0) + 1))
    for element in trial.elements:
        flags[element] = 49  # "1"
    return int(flags[::-1], 2)


def _remove(
    space: Space,
    keep: Trial,
    unanswered: int,
    left: int,
    removals: tuple[frozenset[int], ...] | None,
    tried: _Tried,
) -> Step:
    """Try to remove several elements at once: pairs, nearest first, then larger neighborhoods."""
    if removals is None:
        removals = tuple(_removals(space, keep, left))
    if not removals or left < 1:
        return _grow(space, keep, unanswered, left, tried)
    out, rest = removals[0], removals[1:]
    smaller = Trial(keep.elements - out)
    pair = len(out) == 2
    counted = replace(tried, pairs=tried.pairs + pair, larger=tried.larger + (not pair))

    def then(answer: Answer) -> Step:
        if answer is Answer.YES:
            # a sweep over the smaller set, and from there again
            return sweep(space, smaller, lambda trial, open_: _remove(space, trial, open_, left - 1, None, counted))
        return _remove(space, keep, unanswered, left - 1, rest, counted)

    return Ask(smaller, then, "several at once", f"without {len(out)} at once", 0.1, left=min(left, len(removals)))


def _removals(space: Space, keep: Trial, most: int) -> list[frozenset[int]]:
    """Up to ``most`` sets of elements whose removal leaves an allowed, non-empty trial."""
    inside = keep.elements
    elements = sorted(inside, key=space.position.__getitem__)
    found: dict[frozenset[int], None] = {}
    for out in islice(_near_sets(space, elements), LOOKED_AT):
        if len(found) >= most:
            break
        if len(out) < len(inside) and _allowed(space, inside - out):
            found[out] = None
    return list(found)


def _near_sets(space: Space, elements: Sequence[int]) -> Iterator[frozenset[int]]:
    """Pairs, those that are linked first and the nearest first, then larger neighborhoods.

    One after the other as they are asked for: thousands of elements have millions of pairs.
    """
    place = {element: at for at, element in enumerate(elements)}
    linked = {
        (place[parent], place[element])
        for element in elements
        for parent in (space.parents[element] if space.parents else ())
        if place.get(parent, place[element]) < place[element]
    }
    for low, high in sorted(linked, key=lambda pair: (pair[1] - pair[0], -pair[1])):
        yield frozenset([elements[low], elements[high]])
    for gap in range(1, len(elements)):
        for high in reversed(range(gap, len(elements))):
            if (high - gap, high) not in linked:
                yield frozenset([elements[high - gap], elements[high]])
    for size in range(3, min(LARGEST, len(elements) - 1) + 1):
        for element in reversed(elements):
            near = space.by_distance([element], elements)[: size - 1]
            yield frozenset([element, *near])


def _allowed(space: Space, elements: frozenset[int]) -> bool:
    return space.close(elements).elements == elements


def _grow(space: Space, keep: Trial, unanswered: int, left: int, tried: _Tried) -> Step:
    """Add the neighbors; if that fails too, look in it for an answer that is smaller, and another one."""
    ended = replace(claim(keep, unanswered), note=str(tried))
    grown = space.close([*keep, *_neighbors(space, keep)])
    # a sweep over the grown set is worth it only if it can come to an end
    if len(keep) < 3 or len(grown) == len(keep) or left <= len(grown):
        return ended
    counted = replace(tried, grown=tried.grown + 1)
    ended = replace(ended, note=str(counted))
    added: Sequence[int] = tuple(grown.elements - keep.elements)

    def swept(left: int, done: Done | None) -> Step:
        if done is None or done.trial is None or len(done.trial) >= len(keep):
            return ended
        return _remove(space, done.trial, done.unanswered, left, None, counted)

    def then(answer: Answer) -> Step:
        if answer is not Answer.YES:
            return ended
        # what was found before is tried first, so that what was added can take its place
        return limited(sweep(space, grown, claim, last=tuple(added)), left - 1, swept)

    return Ask(grown, then, "growing again", f"with {len(added)} neighbors", 0.5, left=left)


def _neighbors(space: Space, keep: Trial) -> set[int]:
    if not space.parents:
        return set()
    inside = set(space.order)
    near = {e for element in keep for e in (*space.parents[element], *space.children[element])}
    return (near & inside) - keep.elements
