"""Random graphs, and culprits in them: scattered, clustered, connected, and failures that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.searches.published_algorithms import Condition
from strategies.search_space import Space


def residual(size: int, random: Random) -> Space:
    """A chain with skips, as residual networks have them."""
    parents = [()] + [
        (i - 1, *([random.randrange(max(0, i - 12), i)] if random.random() < 0.2 else [])) for i in range(1, size)
    ]
    return Space(tuple(range(size)), tuple(tuple(sorted(set(p))) for p in parents))


def branching(size: int, random: Random) -> Space:
    """Any node may read any of the last hundred: many branches side by side."""
    parents = [()] + [
        tuple(sorted({random.randrange(max(0, i - 100), i) for _ in range(random.choice((1, 1, 1, 2)))}))
        for i in range(1, size)
    ]
    return Space(tuple(range(size)), tuple(parents))


def scattered(space: Space, count: int, random: Random) -> frozenset[int]:
    return frozenset(random.sample(space.order, count))


def clustered(space: Space, count: int, random: Random) -> frozenset[int]:
    """Some of the nodes around one."""
    start = random.choice(space.order)
    return frozenset([start, *random.sample(space.by_distance([start], space.order)[: 4 * count], count - 1)])


def connected(space: Space, count: int, random: Random) -> frozenset[int]:
    """A pattern, as fusions match them."""
    found = {random.choice(space.order)}
    while len(found) < count:
        near = {e for element in found for e in (*space.children[element], *space.parents[element])} - found
        found.add(random.choice(sorted(near)) if near else random.choice(space.order))
    return frozenset(found)


KINDS = (
    *((f"{count} scattered", residual, scattered, count) for count in (1, 2, 3, 5, 8, 12)),
    *((f"{count} clustered", residual, clustered, count) for count in (2, 5)),
    *((f"{count} connected", residual, connected, count) for count in (2, 3, 5, 8)),
    *((f"{count} scattered, branching", branching, scattered, count) for count in (2, 5)),
    *((f"{count} connected, branching", branching, connected, count) for count in (2, 5)),
)


def conditions(space: Space, random: Random) -> Iterator[tuple[str, Condition]]:
    """Failures that come and go with what else is kept."""
    wanted = sorted(scattered(space, 3, random))
    beside = random.randrange(len(space.order))
    yield "hidden by one neighbor", lambda kept: kept.issuperset(wanted) and ((beside in kept) == (beside + 1 in kept))
    yield "either of two sets", lambda kept: kept.issuperset(wanted[:2]) or kept.issuperset((beside, wanted[2]))
    seed = random.random()
    yield "random", lambda kept: len(kept) == len(space.order) or Random(f"{seed}{sorted(kept)}").random() < 0.3
