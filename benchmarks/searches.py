"""How many checks does each search need? Counted on random culprits, beside the information bound.

    python -m benchmarks.searches [--seeds 1000] [--cases 100] [--tables simulation kinds unanswered not_monotone]

`simulation`: 1,000 nodes; 1, 2, 4 or 8 culprits, scattered and clustered; 1, 2 and 4 workers whose checks all take the
same time; beside published algorithms. Each cell: median, 95th percentile. Two rows each: the halves of the seeds.
`windowed` is what one would write first: bisect the end, bisect the start, QuickXplain in the window, then remove one
at a time. The bound is 1.15 log2 of the number of possible answers, plus 2 k checks for an answer of k nodes: k for not
knowing k, and k that prove it 1-minimal (QuickXplain proves nothing: it takes the failure to be monotone). Columns of
`reduce` in `kinds`: mean, 95th percentile and mean / bound, by seed; questions beyond 1-minimality come on top.

What is expected of culprits was fitted to residual networks of 50, 400 and 3,000 nodes, with other seeds; branching
graphs, 8 scattered ones and the other sizes were held back.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean, median

from benchmarks import measured_with, result_folder
from strategies.minimal import linear, reduce
from strategies.search import Answer, Search, Space, Step, Trial

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
        if piece := next((piece for piece in pieces if fails(frozenset(piece))), None):
            kept, parts = piece, 2
        elif rest := next((rest for rest in rests if fails(frozenset(rest))), None):
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


def residual(size: int, random: Random) -> Space:
    """A chain with skips, as residual networks have them."""
    skips = ([random.randrange(max(0, i - 12), i)] if random.random() < 0.2 else [] for i in range(1, size))
    return _space([(), *((i, *skip) for i, skip in enumerate(skips))])


def branching(size: int, random: Random) -> Space:
    """Any node may read any of the last hundred: many branches side by side."""
    reads = ([random.randrange(max(0, i - 100), i) for _ in range(random.choice((1, 1, 1, 2)))] for i in range(1, size))
    return _space([(), *reads])


def _space(parents: Sequence[Sequence[int]]) -> Space:
    return Space(tuple(range(len(parents))), tuple(tuple(sorted(set(read))) for read in parents))


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


@dataclass(frozen=True)
class Ended:
    """A search that has ended. ``checks``: also those that came to nothing; ``thought``: seconds without the checks."""

    trial: Trial
    checks: int
    rounds: int
    thought: float


def simulate(
    space: Space, first: Step, condition: Condition, workers: int = 1, unresolved: float = 0.0, seed: int = 0
) -> Ended:
    """Run a search to its end. ``unresolved``: the share of trials that have no verdict, drawn with ``seed``."""
    started = time.perf_counter()
    search, checks, rounds = Search(space, first, {space.whole: Answer.YES}), 0, 0
    while not search.done:
        asked = search.ask(workers)
        for question in asked:
            silent = unresolved and Random(f"{seed} {question.trial.ranges}").random() < unresolved
            told = Answer.UNKNOWN if silent else Answer.YES if condition(question.trial.elements) else Answer.NO
            search.tell(question.trial, told)
        checks, rounds = checks + len(asked), rounds + 1
    assert search.done.trial is not None
    return Ended(search.done.trial, checks, rounds, time.perf_counter() - started)


SIZE, COUNTS, WORKERS = 1000, (1, 2, 4, 8), (1, 2, 4)
BASELINES = (quickxplain, ddmin, windowed)
LAYOUTS = {"scattered": scattered, "clustered": clustered}


@dataclass(frozen=True)
class Simulated:
    """One case: checks of each algorithm in BASELINES, and (checks, rounds) for each number in WORKERS."""

    baselines: tuple[int, ...]
    winnow: tuple[tuple[int, int], ...]


def simulated(count: int, layout: str, seed: int) -> Simulated:
    """Search for so many culprits among SIZE nodes with all algorithms, and see that all answers are right."""
    random = Random(f"simulation {seed} {count} {layout}")
    space = residual(SIZE, random)
    wanted = LAYOUTS[layout](space, count, random)
    checks = []
    for algorithm in BASELINES:
        counted = Counted(space.order, wanted.issubset)
        assert algorithm(space.order, counted) == wanted
        checks.append(counted.checks)
    ended = [simulate(space, reduce(space, 0), wanted.issubset, workers) for workers in WORKERS]
    assert all(one.trial == Trial(wanted) for one in ended)
    return Simulated(tuple(checks), tuple((one.checks, one.rounds) for one in ended))


def simulation(seeds: int, pool: Executor) -> Iterator[str]:
    """Print medians and 95th percentiles beside the bound, of both halves of the seeds."""
    names = ("QuickXplain", "ddmin", "windowed", "Winnow", *(f"{n} workers: rounds, checks" for n in WORKERS[1:]))
    yield from header("culprits", "seeds", "log2 C", "bound", *names, "of the bound", "rounds of one worker's")
    for count in COUNTS:
        entropy = math.log2(math.comb(SIZE, count))
        for layout in LAYOUTS if count > 1 else ("scattered",):
            cases = list(pool.map(partial(simulated, count, layout), range(seeds), chunksize=20))
            for first, end in ((0, seeds // 2), (seeds // 2, seeds)):
                part = cases[first:end]
                # by the number of workers
                checks, rounds = (
                    [[case.winnow[at][what] for case in part] for at in range(len(WORKERS))] for what in (0, 1)
                )
                yield row(
                    *(f"{count} {layout}", f"{first} to {end - 1}", entropy, bound(SIZE, count)),
                    *(spread([case.baselines[at] for case in part]) for at in range(len(BASELINES))),
                    spread(checks[0]),
                    *(f"{spread(rounds[at])}; {spread(checks[at])}" for at in range(1, len(WORKERS))),
                    f"{median(checks[0]) / bound(SIZE, count):.2f}",
                    ", ".join(f"{median(some) / median(rounds[0]):.2f}" for some in rounds[1:]),
                )


def kinds(cases: int, halves: Sequence[int]) -> Iterator[str]:
    """Failures that need certain nodes, and checks that always answer: by size, and kind of graph and culprits."""
    names = (*(f"reduce, seed {seed}" for seed in halves), "µs of thought per check")
    yield from header("nodes", "culprits", "bound", "windowed", *names)
    for size in (50, 200, 1000, 10000):
        for kind, graph, culprits, count in KINDS:
            simple, thought, cells = [], [], []
            for seed in halves:
                random, checks = Random(f"{seed} {size} {kind}"), []
                for _ in range(cases if size < 10000 else max(cases // 10, 5)):
                    space = graph(size, random)
                    wanted = culprits(space, count, random)
                    ended = simulate(space, reduce(space, 0), wanted.issubset)
                    assert ended.trial == Trial(wanted)
                    checks.append(ended.checks)
                    thought.append(ended.thought / max(ended.checks, 1) * 1e6)
                    if size < 10000:
                        counted = Counted(space.order, wanted.issubset)
                        windowed(space.order, counted)
                        simple.append(counted.checks)
                cells.append(f"{mean(checks):.1f}, {high(checks)}, {mean(checks) / bound(size, count):.2f}")
            yield row(size, kind, bound(size, count), mean(simple) if simple else "-", *cells, mean(thought))


def unanswered(cases: int, seed: int) -> Iterator[str]:
    """Trials without a verdict: what is found still fails."""
    yield from header("nodes", "culprits", "without a verdict", "checks", "95 %", "nodes in the answer")
    for size in (50, 200, 1000):
        for kind, graph, culprits, count in KINDS[:6]:
            for rate in (0.1, 0.3):
                random, checks, sizes = Random(f"{seed} {size} {kind}"), [], []
                for at in range(cases):
                    space = graph(size, random)
                    wanted = culprits(space, count, random)
                    ended = simulate(space, reduce(space, 0), wanted.issubset, 1, rate, at)
                    assert wanted <= ended.trial.elements
                    checks.append(ended.checks)
                    sizes.append(len(ended.trial))
                yield row(size, kind, f"{rate:.0%}", mean(checks), high(checks), mean(sizes))


def not_monotone(cases: int, seed: int) -> Iterator[str]:
    """Failures that come and go with what else is kept: what is found still fails, and is 1-minimal."""
    yield from header("nodes", "not monotone", "reduce", "linear", "nodes in the answer", "of linear")
    for size in (50, 200):
        figures: dict[str, list[tuple[int, ...]]] = {}
        for at in range(cases):
            random = Random(f"{seed} {size} {at}")
            space = residual(size, random)
            for name, condition in conditions(space, random):
                if not condition(space.whole.elements):
                    continue
                both = [simulate(space, search(space, extra=0), condition) for search in (reduce, linear)]
                for answer in (ended.trial for ended in both):
                    assert condition(answer.elements)
                    assert len(answer) == 1 or not any(condition(answer.elements - {one}) for one in answer)
                line = (*(ended.checks for ended in both), *(len(ended.trial) for ended in both))
                figures.setdefault(name, []).append(line)
        for name, lines in figures.items():
            yield row(size, name, *(mean(column) + 0.0 for column in zip(*lines, strict=True)))


def bound(size: int, count: int) -> float:
    """Return the checks that are worth aiming at: for the possible answers, for not knowing k, and for the proof."""
    return 1.15 * math.log2(math.comb(size, count)) + 2 * count


def header(*names: str) -> tuple[str, str]:
    return row(*names), "|---" * len(names) + "|"


def row(*cells: object) -> str:
    return "| " + " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |"


def spread(figures: Sequence[int]) -> str:
    """Return the median and the 95th percentile."""
    return f"{median(figures):g}, {high(figures)}"


def high(figures: Sequence[int]) -> int:
    """Return the 95th percentile: the least figure that as many reach."""
    return sorted(figures)[math.ceil(0.95 * len(figures)) - 1]


HALVES = (0, 1)
"""Seeds of the tables whose cases are drawn one after the other."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="cases of a row of the simulation")
    parser.add_argument("--cases", type=int, default=100, help="cases of a row of the other tables")
    parser.add_argument("--out", type=Path, help="else benchmarks/results/DATE-VERSION")
    with ProcessPoolExecutor() as pool:
        makers: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
            "simulation": lambda given: simulation(given.seeds, pool),
            "kinds": lambda given: kinds(given.cases, HALVES),
            "unanswered": lambda given: unanswered(given.cases, HALVES[-1]),
            "not_monotone": lambda given: not_monotone(given.cases, HALVES[-1]),
        }
        parser.add_argument("--tables", nargs="+", choices=list(makers), default=list(makers))
        given = parser.parse_args()
        page = [f"# Checks of the searches\n\n{', '.join(map(' '.join, measured_with().items()))}.\n"]
        out = given.out or result_folder()
        out.mkdir(parents=True, exist_ok=True)
        for name in given.tables:
            page.append(f"\n## {name}\n\n")
            print(f"\n{name}\n", flush=True)
            for line in makers[name](given):
                print(line, flush=True)
                page.append(line + "\n")
            (out / "searches.md").write_text("".join(page))


if __name__ == "__main__":
    main()
