"""python -m benchmarks.precision_adding [--count N] [--samples N]: where error adds up, what was found is handed over.

Ten residual networks (``precision_networks.adding``) in which no node stands out and dozens have to be raised. From the
journal of each run: the smallest set that passed all its checks, at any time of the search, beside the set that was
handed over, which must not be larger. Exit 1 if it is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.precision_bench import save, winnow
from benchmarks.precision_networks import Case, adding
from runner.journal import JOURNAL_NAME
from runner.records import Entry, Records, read_context
from strategies.outcome import Outcome

CASES = (
    (0, 32, 40, 2.25), (1, 32, 40, 2.25), (2, 32, 40, 1.8), (3, 32, 50, 1.8), (4, 16, 50, 2.0),
    (5, 16, 60, 1.5), (6, 24, 45, 2.0), (7, 24, 55, 1.6), (8, 48, 38, 2.1), (9, 32, 60, 1.6),
)  # fmt: skip
"""Seed, width, depth and gain."""
HEADS = ("model", "nodes", "handed over", "smallest that passed", "at check", "by", "claim", "checks", "seconds", "")


def smallest(run: Path) -> Entry | None:
    """Return the record of the smallest set whose every check passed; the first of equally small ones."""
    journal = run / JOURNAL_NAME
    records = Records(journal, read_context(journal))
    records.read()
    entries = list(records.standing.values())
    refuted = {entry.key for entry in entries if entry.verdict.outcome is not Outcome.PASS}
    return min((entry for entry in entries if entry.key not in refuted), key=lambda one: len(one.trial), default=None)


def row(case: Case, count: int) -> tuple[list[str], bool]:
    """Return the cells of a row, and whether the set handed over is the best one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx.save(case.model, str(folder / "net.onnx"))
        feeds = save(case.samples(1, count), folder / "given")
        answer = winnow(folder / "net.onnx", ["inputs=files", f"inputs.path={feeds}"], folder / "run")
        if answer.mixed is None:
            return [case.name, f"{answer.status}: {answer.result.get('message')}"], False
        nodes, best = answer.result["nodes"], smallest(folder / "run")
        assert best is not None
        right = nodes["after"] <= len(best.trial)
        found = [nodes["before"], nodes["after"], len(best.trial), best.iteration, best.phase]
        cells = [*found, answer.result["minimality"], answer.checks, f"{answer.seconds:.0f}"]
        return [case.name, *map(str, cells), "" if right else "LARGER"], right


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=len(CASES))
    parser.add_argument("--samples", type=int, default=12)
    options = parser.parse_args()
    print("|", " | ".join(HEADS), "|\n" + "|---" * len(HEADS) + "|")
    wrong = 0
    for seed, width, depth, gain in CASES[: options.count]:
        cells, right = row(adding(seed, width, depth, gain), options.samples)
        wrong += not right
        print("|", " | ".join(cells), "|", flush=True)
    print(f"\n{wrong} of {min(options.count, len(CASES))} handed over more than the best set that passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
