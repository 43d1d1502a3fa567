"""The tables of the searches: line by line, as their cells are counted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import mean, median

from benchmarks.searches.published_algorithms import Counted, ddmin, quickxplain, windowed
from benchmarks.searches.random_culprits import KINDS, clustered, conditions, residual, scattered
from benchmarks.searches.simulated_workers import simulate
from strategies.minimal import linear, reduce
from strategies.trial import Trial

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
                alone = [case.winnow[0][0] for case in part]
                rounds = [[case.winnow[at][1] for case in part] for at in range(len(WORKERS))]
                checks = [[case.winnow[at][0] for case in part] for at in range(len(WORKERS))]
                yield row(
                    *(f"{count} {layout}", f"{first} to {end - 1}", entropy, bound(SIZE, count)),
                    *(spread([case.baselines[at] for case in part]) for at in range(len(BASELINES))),
                    spread(alone),
                    *(f"{spread(rounds[at])}; {spread(checks[at])}" for at in range(1, len(WORKERS))),
                    f"{median(alone) / bound(SIZE, count):.2f}",
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
                line = []
                for search in (partial(reduce, extra=0), partial(linear, extra=0)):
                    ended = simulate(space, search(space), condition)
                    answer = ended.trial
                    assert condition(answer.elements)
                    assert len(answer) == 1 or not any(condition(answer.elements - {one}) for one in answer)
                    line += [ended.checks, len(answer)]
                figures.setdefault(name, []).append((line[0], line[2], line[1], line[3]))
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
