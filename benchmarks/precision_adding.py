"""python -m benchmarks.precision_adding [--count N] [--samples N]: where error adds up, what was found is handed over.

Ten residual networks (``precision_networks.adding``) in which no node stands out and dozens have to be raised. From the
journal of each run: the smallest set that passed all its checks, at any time of the search, beside the set that was
handed over, which must not be larger. Exit 1 if it is. Once with the search alone (strategy.margin=1
strategy.held_out=0), and once as it comes, where a set passes that keeps the margin. What says "grown" is larger for a
reason: samples that were held out failed, or nodes that fail when they alone are low are raised too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.precision_bench import save, winnow
from benchmarks.precision_networks import Case, adding
from runner.journal.journal import JOURNAL_NAME, Entry, Records, read_context
from runner.judgment import MEASURE
from runner.schema.strategy import PrecisionSettings
from runner.verdict import Verdict
from strategies.outcome import Outcome
from strategies.search import Claim

CASES = (
    (0, 32, 40, 2.25), (1, 32, 40, 2.25), (2, 32, 40, 1.8), (3, 32, 50, 1.8), (4, 16, 50, 2.0),
    (5, 16, 60, 1.5), (6, 24, 45, 2.0), (7, 24, 55, 1.6), (8, 48, 38, 2.1), (9, 32, 60, 1.6),
)  # fmt: skip
"""Seed, width, depth and gain."""
HEADS = ("model", "nodes", "handed over", "smallest that passed", "at check", "by", "claim", "checks", "seconds", "")


ALONE = ("strategy.margin=1", "strategy.held_out=0")


def smallest(run: Path, margin: float) -> Entry | None:
    """Return the record of the smallest set whose every check kept the margin; the first of equally small ones."""
    journal = run / JOURNAL_NAME
    records = Records(journal, read_context(journal))
    records.read()
    entries = list(records.standing.values())

    def fails(verdict: Verdict) -> bool:
        return verdict.outcome is not Outcome.PASS or float(verdict.metrics.get(MEASURE) or 0.0) > margin

    refuted = {entry.key for entry in entries if fails(entry.verdict)}
    return min((entry for entry in entries if entry.key not in refuted), key=lambda one: len(one.trial), default=None)


def row(case: Case, count: int, options: tuple[str, ...]) -> tuple[list[str], bool]:
    """Return the cells of a row, and whether the set handed over is the best one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx.save(case.model, str(folder / "net.onnx"))
        feeds = save(case.samples(1, count), folder / "given")
        answer = winnow(folder / "net.onnx", ["inputs=files", f"inputs.path={feeds}", *options], folder / "run")
        if answer.mixed is None:
            return [case.name, f"{answer.status}: {answer.result.get('message')}"], False
        nodes, best = answer.result["nodes"], smallest(folder / "run", 1.0 if options else PrecisionSettings().margin)
        assert best is not None
        grown = answer.result["minimality"] == Claim.GROWN.value
        right = nodes["after"] <= len(best.trial) or grown
        found = [nodes["before"], nodes["after"], len(best.trial), best.iteration, best.phase]
        cells = [*found, answer.result["minimality"], answer.checks, f"{answer.seconds:.0f}"]
        return [case.name, *map(str, cells), "" if right else "LARGER"], right


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=len(CASES))
    parser.add_argument("--samples", type=int, default=12)
    options = parser.parse_args()
    wrong = 0
    for title, given in (("The search alone", ALONE), ("As it comes", ())):
        print(f"\n## {title}\n\n|", " | ".join(HEADS), "|\n" + "|---" * len(HEADS) + "|")
        for seed, width, depth, gain in CASES[: options.count]:
            cells, right = row(adding(seed, width, depth, gain), options.samples, given)
            wrong += not right
            print("|", " | ".join(cells), "|", flush=True)
    print(f"\n{wrong} of {2 * min(options.count, len(CASES))} handed over more than the best set that passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
