"""How many checks does each search need? Counted on random culprits, beside the information bound.

    python -m benchmarks.searches [--cases 200] [--seed 0]

`plain` is what one would write first: bisect the end, bisect the start, QuickXplain in the window, then remove one at a
time. The bound is log2 of the number of possible answers, plus the k checks that prove an answer of k nodes 1-minimal.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from random import Random
from statistics import mean

from strategies.bisect import bisect
from strategies.minimal import linear, reduce
from strategies.outcome import Answer
from strategies.search import Search, Step
from strategies.search_space import Space
from strategies.trial import Trial

Condition = Callable[[frozenset[int]], bool]


def graph(size: int, random: Random) -> Space:
    """A chain with skips, as residual networks have them."""
    parents = [()] + [
        (i - 1, *([random.randrange(max(0, i - 12), i)] if random.random() < 0.2 else [])) for i in range(1, size)
    ]
    return Space(tuple(range(size)), tuple(tuple(sorted(set(p))) for p in parents))


def culprits(space: Space, kind: str, random: Random) -> frozenset[int]:
    size = len(space.order)
    if kind == "one":
        return frozenset([random.randrange(size)])
    if kind == "two apart":
        return frozenset(random.sample(range(size), 2))
    if kind == "five apart":
        return frozenset(random.sample(range(size), 5))
    start = random.randrange(size)
    found, edge = {start}, [start]
    while len(found) < 5 and edge:  # a connected pattern, as fusions match them
        element = random.choice(edge)
        near = [e for e in (*space.children[element], *space.parents[element]) if e not in found]
        if not near:
            edge.remove(element)
            continue
        found.add(near[0])
        edge.append(near[0])
    return frozenset(found)


def counted(space: Space, first: Step, condition: Condition) -> tuple[int, float, Trial | None]:
    """Return checks, seconds of overhead per check, and the answer."""
    started = time.perf_counter()
    search, checks = Search(space, first, {space.whole: Answer.YES}), 0
    while not search.done:
        (question,) = search.ask(1)
        search.tell(question.trial, Answer.YES if condition(question.trial.elements) else Answer.NO)
        checks += 1
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kinds = {"one": 1, "two apart": 2, "pattern of five": 5, "five apart": 5}
    searches: dict[str, Callable[[Space], Step]] = {
        "reduce": reduce,
        "bisect": bisect,
        "linear": linear,
    }
    columns = ("nodes", "culprits", "bound + proof", "plain", *searches, "reduce: µs of thought per check")
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for size in (50, 400, 3000):
        for kind, count in kinds.items():
            random = Random(given.seed)
            rows: dict[str, list[float]] = {name: [] for name in ("plain", "thought", *searches)}
            for _ in range(given.cases if size < 3000 else given.cases // 5):
                space = graph(size, random)
                wanted = culprits(space, kind, random)
                condition = wanted.issubset
                rows["plain"].append(plain(space, condition))
                for name, start in searches.items():
                    if name == "linear" and size > 400:
                        continue
                    checks, thought, answer = counted(space, start(space), condition)
                    assert name == "bisect" or answer == Trial(wanted)
                    rows[name].append(checks)
                    if name == "reduce":
                        rows["thought"].append(thought * 1e6)
            bound = math.log2(math.comb(size, count)) + count
            figures = [f"{mean(rows[name]):.1f}" if rows[name] else "-" for name in ("plain", *searches, "thought")]
            print("| " + " | ".join([str(size), kind, f"{bound:.1f}", *figures]) + " |")


if __name__ == "__main__":
    main()
