"""Random models with a planted fault: how often is the answer right, and how often is a wrong one called proven?

    python -m benchmarks.random_faults [--seeds 1000] [--first 0] [--real 0] [--out DIR]

The search, the refinement and the proof are Winnow's own; the target is simulated, so that a model takes a few
milliseconds. `faults.py` says what is planted and which answers are right. Each cell has two figures: the first and the
second half of the seeds, of which the second is not to be looked at while anything is changed. Rows of one kind
overlap: a model with noise and dead nodes is in both. Checks: median, 90th percentile.

``--real N``: the first N seeds are run through the product as well, with a check that stands in for the target (odd
seeds without a measure); what is said there has to be what was simulated.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.random_faults.faults import Features, Kind, case_of
from benchmarks.random_faults.graphs import UnfitError
from benchmarks.random_faults.real import Both, both
from benchmarks.random_faults.solve import JUDGINGS, MEASURES, VERDICTS, Solved, solve
from benchmarks.result_folder import measured_with, result_folder

HEAD = ("fault", "models", "right", "right, proven", "wrong", "WRONG, PROVEN", "search checks", "cause checks")


@dataclass(frozen=True)
class Row:
    """What came out of one model. ``divided``: no part of the fault makes the model fail by itself."""

    seed: int
    features: Features
    divided: bool
    right: bool
    proven: bool
    search: int
    cause: int


def rows_of(seed: int) -> tuple[int, tuple[Row, ...]]:
    """Return how many models were rejected, and what came out of the one that was not, by what the check tells."""
    try:
        case = case_of(seed)
    except UnfitError:
        return 0, ()
    return case.rejected, tuple(_row(solve(case, judging)) for judging in JUDGINGS)


def _row(found: Solved) -> Row:
    case, checks = found.case, found.checks
    search = checks["search"] + checks["refine"]
    return Row(case.seed, case.features, not case.enough, found.right, found.proven, search, checks["cause"])


GROUPS: dict[str, Callable[[Row], bool]] = {
    "": lambda row: True,
    ", no noise": lambda row: not row.features.noise,
    ", noise": lambda row: row.features.noise,
    ", several samples": lambda row: row.features.samples > 1,
    ", of which some pass": lambda row: row.features.part,
    ", dead nodes": lambda row: row.features.dead,
    ", repeated pattern": lambda row: row.features.repeated,
    ", no part is enough": lambda row: row.divided,
}


def table(rows: Sequence[Row], middle: int) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for kind in (*Kind, None):
        for said, group in GROUPS.items():
            some = [row for row in rows if kind in (row.features.kind, None) and group(row)]
            halves = [row for row in some if row.seed < middle], [row for row in some if row.seed >= middle]
            cells = zip(*map(_cells, halves), strict=True)
            name = f"{kind.value if kind else 'any'}{said}"
            yield f"| {name} | {' | '.join('; '.join(pair) for pair in cells)} |"


def _cells(rows: Sequence[Row]) -> list[str]:
    counts = [
        len(rows),
        sum(row.right for row in rows),
        sum(row.right and row.proven for row in rows),
        sum(not row.right for row in rows),
        sum(row.proven and not row.right for row in rows),
    ]
    checks = [[row.search for row in rows], [row.cause for row in rows]]
    shown = (f"{np.median(one):g}, {np.percentile(one, 90):.0f}" if one else "-" for one in checks)
    return [*map(str, counts), *shown]


def simulations(first: int, seeds: int) -> Iterator[str]:
    """Yield the tables, by what the check tells."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(rows_of, range(first, first + seeds), chunksize=20))
    made = [rows for _, rows in found if rows]
    yield f"seeds {first} to {first + seeds - 1}: {len(made)} models; {sum(count for count, _ in found)} were rejected."
    for at, judging in enumerate(JUDGINGS):
        yield f"\n## checks {judging.name}\n"
        yield from table([rows[at] for rows in made], first + seeds // 2)


def product(first: int, count: int, folder: Path) -> Iterator[str]:
    """Yield a line for each seed: what was simulated, and what a run says."""
    agree = 0
    with ThreadPoolExecutor(2) as pool:
        for one in pool.map(partial(_both, folder=folder), range(first, first + count)):
            agree += one.agree
            yield f"seed {one.seed}: {_said(one.simulated)}" + ("" if one.agree else f"; THE RUN: {_said(one.ran)}")
    yield f"{agree} of {count} runs say what was simulated, after as many checks"


def _both(seed: int, folder: Path) -> Both:
    return both(case_of(seed), folder / str(seed), VERDICTS if seed % 2 else MEASURES)


def _said(told: tuple[str, tuple[str, ...], int, int]) -> str:
    status, nodes, search, cause = told
    return f"{', '.join(nodes)} ({status}; {search} search, {cause} cause)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="run the first N seeds, and nothing else")
    parser.add_argument("--out", type=Path, help="else benchmarks/results/DATE-VERSION")
    given = parser.parse_args()
    if given.real:
        with tempfile.TemporaryDirectory() as folder:
            for line in product(given.first, given.real, Path(folder)):
                print(line, flush=True)
        return
    page = [f"# Random faults\n\n{', '.join(map(' '.join, measured_with().items()))}.\n\n"]
    for line in simulations(given.first, given.seeds):
        print(line, flush=True)
        page.append(f"{line}\n")
    out = given.out or result_folder()
    out.mkdir(parents=True, exist_ok=True)
    (out / "random_faults.md").write_text("".join(page))


if __name__ == "__main__":
    main()
