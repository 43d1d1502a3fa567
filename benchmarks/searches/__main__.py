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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.result_folder import measured_with, result_folder
from benchmarks.searches import tables

HALVES = (0, 1)
"""Seeds of the tables whose cases are drawn one after the other."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="cases of a row of the simulation")
    parser.add_argument("--cases", type=int, default=100, help="cases of a row of the other tables")
    parser.add_argument("--out", type=Path, help="else benchmarks/results/DATE-VERSION")
    with ProcessPoolExecutor() as pool:
        makers: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
            "simulation": lambda given: tables.simulation(given.seeds, pool),
            "kinds": lambda given: tables.kinds(given.cases, HALVES),
            "unanswered": lambda given: tables.unanswered(given.cases, HALVES[-1]),
            "not_monotone": lambda given: tables.not_monotone(given.cases, HALVES[-1]),
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
