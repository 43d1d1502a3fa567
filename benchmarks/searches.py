"""How many checks does each search need? Counted on random culprits, beside the information bound.

    python -m benchmarks.searches [--cases 100] [--seeds 0 1]

`plain` is what one would write first: bisect the end, bisect the start, QuickXplain in the window, then remove one at a
time. The bound is 1.15 log2 of the number of possible answers, plus 2 k checks for an answer of k nodes: k for not
knowing k, and k that prove it 1-minimal. Columns of `reduce`: mean, 95th percentile and mean / bound, by seed;
questions beyond 1-minimality (up to 8) come on top. What is expected of culprits was fitted to residual networks of 50,
400 and 3,000 nodes, with other seeds; branching graphs, 8 scattered ones and the other sizes were held back.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from statistics import mean

from strategies.minimal import linear, reduce
from strategies.outcome import Answer
from strategies.search import Search, Step
from strategies.search_space import Space
from strategies.trial import Trial

Condition = Callable[[frozenset[int]], bool]


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


def counted(
    space: Space, first: Step, condition: Condition, unresolved: float = 0.0, seed: int = 0
) -> tuple[int, float, Trial]:
    """Return checks, seconds of overhead per check, and the answer. So many trials have no verdict."""
    started = time.perf_counter()
    search, checks = Search(space, first, {space.whole: Answer.YES}), 0
    while not search.done:
        (question,) = search.ask(1)
        silent = unresolved and Random(f"{seed} {question.trial.ranges}").random() < unresolved
        told = Answer.UNKNOWN if silent else Answer.YES if condition(question.trial.elements) else Answer.NO
        search.tell(question.trial, told)
        checks += 1
    assert search.done.trial is not None
    return checks, (time.perf_counter() - started) / max(checks, 1), search.done.trial


def plain(space: Space, condition: Condition) -> int:
    """Count the checks of the obvious algorithm; each distinct set is checked once."""
    seen: dict[frozenset[int], bool] = {frozenset(space.order): True, frozenset(): False}

    def fails(kept: frozenset[int]) -> bool:
        return seen.setdefault(kept, condition(kept))

    def boundary(no: int, yes: int, kept: Callable[[int], frozenset[int]]) -> int:
        while abs(yes - no) > 1:
            middle = (yes + no) // 2
            yes, no = (middle, no) if fails(kept(middle)) else (yes, middle)
        return yes

    size = len(space.order)
    end = boundary(-1, size - 1, lambda i: frozenset(range(i + 1)))
    start = boundary(end + 1, 0, lambda i: frozenset(range(i, end + 1)))

    def explain(base: frozenset[int], grown: bool, rest: tuple[int, ...]) -> frozenset[int]:
        if grown and fails(base):
            return frozenset()
        if len(rest) == 1:
            return frozenset(rest)
        half = len(rest) // 2
        second = explain(base | frozenset(rest[:half]), True, rest[half:])
        return second | explain(base | second, bool(second), rest[:half])

    answer = explain(frozenset(), False, tuple(range(start, end + 1)))
    for element in answer:
        fails(answer - {element})
    return len(seen) - 2


KINDS = (
    *((f"{count} scattered", residual, scattered, count) for count in (1, 2, 3, 5, 8, 12)),
    *((f"{count} clustered", residual, clustered, count) for count in (2, 5)),
    *((f"{count} connected", residual, connected, count) for count in (2, 3, 5, 8)),
    *((f"{count} scattered, branching", branching, scattered, count) for count in (2, 5)),
    *((f"{count} connected, branching", branching, connected, count) for count in (2, 5)),
)


def row(*cells: object) -> None:
    print(
        "| " + " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |", flush=True
    )


def header(*names: str) -> None:
    row(*names)
    print("|---" * len(names) + "|")


def high(figures: list[int]) -> int:
    """The 95th percentile."""
    return sorted(figures)[math.ceil(0.95 * len(figures)) - 1]


def reliable(cases: int, seeds: list[int]) -> None:
    """Failures that need certain nodes, and checks that always answer."""
    header(
        "nodes", "culprits", "bound", "plain", *(f"reduce, seed {seed}" for seed in seeds), "µs of thought per check"
    )
    for size in (50, 200, 1000, 10000):
        for kind, graph, culprits, count in KINDS:
            bound = 1.15 * math.log2(math.comb(size, count)) + 2 * count
            simple, thought, cells = [], [], []
            for seed in seeds:
                random, checks = Random(f"{seed} {size} {kind}"), []
                for _ in range(cases if size < 10000 else max(cases // 10, 5)):
                    space = graph(size, random)
                    wanted = culprits(space, count, random)
                    number, seconds, answer = counted(space, reduce(space, 0), wanted.issubset)
                    assert answer == Trial(wanted)
                    checks.append(number)
                    thought.append(seconds * 1e6)
                    if size < 10000:
                        simple.append(plain(space, wanted.issubset))
                cells.append(f"{mean(checks):.1f}, {high(checks)}, {mean(checks) / bound:.2f}")
            row(size, kind, bound, mean(simple) if simple else "-", *cells, mean(thought))


def conditions(space: Space, random: Random) -> Iterator[tuple[str, Condition]]:
    """Failures that come and go with what else is kept."""
    wanted = sorted(scattered(space, 3, random))
    beside = random.randrange(len(space.order))
    yield "hidden by one neighbor", lambda kept: kept.issuperset(wanted) and ((beside in kept) == (beside + 1 in kept))
    yield "either of two sets", lambda kept: kept.issuperset(wanted[:2]) or kept.issuperset((beside, wanted[2]))
    seed = random.random()
    yield "random", lambda kept: len(kept) == len(space.order) or Random(f"{seed}{sorted(kept)}").random() < 0.3


def unreliable(cases: int, seed: int) -> None:
    """Trials without a verdict, and failures that are not monotone: what is found still fails, and is 1-minimal."""
    header("nodes", "culprits", "without a verdict", "checks", "95 %", "nodes in the answer")
    for size in (50, 200, 1000):
        for kind, graph, culprits, count in KINDS[:6]:
            for rate in (0.1, 0.3):
                random, checks, sizes = Random(f"{seed} {size} {kind}"), [], []
                for at in range(cases):
                    space = graph(size, random)
                    wanted = culprits(space, count, random)
                    number, _, answer = counted(space, reduce(space, 0), wanted.issubset, rate, at)
                    assert wanted <= answer.elements
                    checks.append(number)
                    sizes.append(len(answer))
                row(size, kind, f"{rate:.0%}", mean(checks), high(checks), mean(sizes))
    header("nodes", "not monotone", "reduce", "linear", "nodes in the answer", "of linear")
    for size in (50, 200):
        figures: dict[str, list[tuple[int, ...]]] = {}
        for at in range(cases):
            random = Random(f"{seed} {size} {at}")
            space = residual(size, random)
            for name, condition in conditions(space, random):
                if not condition(space.whole.elements):
                    continue
                line = []
                for search in (partial(reduce, extra=0), partial(linear, extra=0)):
                    number, _, answer = counted(space, search(space), condition)
                    assert condition(answer.elements)
                    assert len(answer) == 1 or not any(condition(answer.elements - {one}) for one in answer)
                    line += [number, len(answer)]
                figures.setdefault(name, []).append((line[0], line[2], line[1], line[3]))
        for name, lines in figures.items():
            row(size, name, *(mean(column) + 0.0 for column in zip(*lines, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args()
    reliable(given.cases, given.seeds)
    print()
    unreliable(given.cases, given.seeds[-1])


if __name__ == "__main__":
    main()
