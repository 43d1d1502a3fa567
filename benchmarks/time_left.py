"""Does the time left that a run shows hold the truth? Real runs, of which each line of the log is taken with its time.

    python -m benchmarks.time_left [--seeds 61 62] [--at-once 5] [--kinds single,flaky,...]

Half-time: half of the time from start to exit is over. A range holds where the run ended in it. Four readings:

- strict: of a run, 9 of 10 ranges from half-time on hold, and none is wider than a factor of two;
- at half-time: the first range that is shown from half-time on holds, and is no wider than that;
- at each moment (50 % to 90 % of the time): the range that was shown last holds;
- median: the share of a run's ranges from half-time on that hold, in the median of all runs.

A line without a range does not hold. ``widest``: the larger end by the smaller one; a line that says "under 2 s" has
none, and is counted apart. Of a triage it is the time left of the step under way. Checks sleep for a time with noise.
The rules were made with chains of other seeds. `benchmarks.time_left_replay` scores hundreds of runs without waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import onnx
from onnx import TensorProto, helper

from benchmarks.chain_models import chain
from tests.harness import LIGHT
from tests.jobs.optimizer_defect import defective

ROOT = Path(__file__).parents[1]
HELD, RUNS_HELD, WIDTH = 0.9, 0.8, 2.0
MOMENTS = (0.5, 0.6, 0.7, 0.8, 0.9)
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_RANGE, _SHORT = re.compile(r"([0-9.]+) to ([0-9.]+) (s|min|h)\b"), re.compile(r"under ([0-9.]+) s")
_LEFT = re.compile(r"left \(([^()]*)\)")
_CHECK = re.compile(r"^INFO \[[0-9]+\] .*: [A-Z]+ in [0-9.]+ s")
_STEP = re.compile(r"^INFO (step [0-9]+, |[a-z]+: not asked)")
RUN = """
import sys
import onnxruntime
onnxruntime.set_default_logger_severity(4)
import numpy as np
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
feeds = {one.name: np.ones([1, 8], np.float32 if one.type == "tensor(float)" else np.float16)
         for one in session.get_inputs()}
fails = not all(np.isfinite(one).all() for one in session.run(None, feeds))
"""


@dataclass(frozen=True)
class Shown:
    """A line of a check. ``at``: seconds since the start; ``least``, ``most``: the range, None: it has none."""

    at: float
    least: float | None
    most: float | None
    end: float

    @staticmethod
    def of(at: float, text: str, end: float) -> Shown:
        """Return what a text says: ``4 to 8 s``, ``under 2 s``, or nothing."""
        span, short = _RANGE.search(text), _SHORT.search(text)
        if span:
            unit = _UNITS[span[3]]
            return Shown(at, float(span[1]) * unit, float(span[2]) * unit, end)
        return Shown(at, 0.0, float(short[1]), end) if short else Shown(at, None, None, end)

    @property
    def holds(self) -> bool:
        """Whether the run ended in the range."""
        return self.least is not None and self.most is not None and self.least <= self.end - self.at <= self.most


@dataclass(frozen=True)
class Row:
    """What a run showed from half-time on, and how long it took."""

    kind: str
    seed: int
    seconds: float
    checks: int
    shown: tuple[Shown, ...]

    @property
    def late(self) -> list[Shown]:
        """The lines from half-time on."""
        return [one for one in self.shown if one.at >= self.seconds / 2]

    @property
    def held(self) -> int:
        """How many of these hold the truth."""
        return sum(one.holds for one in self.late)

    @property
    def at_half_time(self) -> bool:
        """Whether the first of these does, and is narrow enough."""
        first = next(iter(self.late), None)
        return first is not None and first.holds and self._narrow([first])

    def holds_at(self, moment: float) -> bool:
        """Whether the last range that was shown by then holds; ``moment``: the part of the time that is over."""
        before = [one for one in self.shown if one.at <= moment * self.seconds]
        return bool(before) and before[-1].holds

    @staticmethod
    def _narrow(lines: Sequence[Shown]) -> bool:
        return all(one.most <= (WIDTH + 0.01) * one.least for one in lines if one.least and one.most)

    @property
    def short(self) -> int:
        """How many of these give no range."""
        return sum(one.least == 0 for one in self.late)

    @property
    def width(self) -> float:
        """The widest of these ranges."""
        return max((one.most / one.least for one in self.late if one.least and one.most), default=0.0)

    @property
    def good(self) -> bool:
        """Whether it counts as held."""
        return bool(self.late) and self.held >= HELD * len(self.late) and self._narrow(self.late)


# ---- the runs


def planted(
    place: Path, rng: random.Random, culprits: Sequence[int], nodes: int, *more: str, rate: float = 1.0
) -> list[str]:
    """Return the settings of a reduction whose check sleeps; it fails so often where the culprits are there."""
    seconds, fails = rng.uniform(1.0, 2.0), {f"t{at + 1}" for at in culprits}
    slower = rng.choice([1.0, 1.0, 2.0])
    body = (
        f"import random, time\nhit = made.issuperset({fails})\n"
        f"time.sleep(random.lognormvariate(0, 0.25) * {seconds} * ({slower} if hit else 1))\n"
        f"sys.exit(1 if hit and random.random() < {rate} else 0)"
    )
    return [
        "strategy=reduce",
        f"model={chain(place / 'net.onnx', nodes)}",
        *checked(place, LIGHT + body, "-I", "-S"),
        *more,
    ]


def checked(place: Path, text: str, *flags: str) -> list[str]:
    """Return the settings of a check of this text."""
    check = place / "check.py"
    check.write_text(text)
    return ["checker=command", f"checker.command={json.dumps([sys.executable, *flags, str(check), '{model}'])}"]


def single(place: Path, rng: random.Random) -> list[str]:
    """One culprit."""
    nodes = rng.randrange(100, 1500)
    return planted(place, rng, [rng.randrange(nodes)], nodes)


def bisected(place: Path, rng: random.Random) -> list[str]:
    """One culprit, bisected."""
    return [*single(place, rng), "strategy=reduce_bisect"]


def few(place: Path, rng: random.Random) -> list[str]:
    """Two culprits anywhere."""
    nodes = rng.randrange(100, 1500)
    return planted(place, rng, rng.sample(range(nodes), 2), nodes)


def scattered(place: Path, rng: random.Random) -> list[str]:
    """Three to six culprits anywhere."""
    nodes = rng.randrange(100, 1500)
    return planted(place, rng, rng.sample(range(nodes), rng.randrange(3, 7)), nodes)


def cluster(place: Path, rng: random.Random) -> list[str]:
    """Three culprits within eight nodes."""
    nodes = rng.randrange(100, 1500)
    first = rng.randrange(nodes - 8)
    return planted(place, rng, rng.sample(range(first, first + 8), 3), nodes)


def linear(place: Path, rng: random.Random) -> list[str]:
    """Two culprits, one element removed at a time."""
    nodes = rng.randrange(30, 60)
    return [*planted(place, rng, rng.sample(range(nodes), 2), nodes), "strategy=reduce_linear"]


def workers(place: Path, rng: random.Random) -> list[str]:
    """Two culprits, two checks at once."""
    return [*few(place, rng), "workers.count=2"]


def flaky(place: Path, rng: random.Random) -> list[str]:
    """One culprit, and a check that fails most times only."""
    nodes = rng.randrange(60, 200)
    return planted(place, rng, [rng.randrange(nodes)], nodes, rate=rng.uniform(0.7, 0.95))


def precision(place: Path, rng: random.Random) -> list[str]:
    """A chain in which some products are beyond the range of float16, and scaled back right behind."""
    count = rng.randrange(20, 60)
    bad = set(rng.sample(range(count), rng.randrange(1, 4)))
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (("w", 6e4), ("s", 1e-5))]
    nodes, last = [], "x"
    for at in range(count):
        steps = [("Tanh", []), ("Exp", []), *([("Mul", ["w"]), ("Mul", ["s"])] if at in bad else [])]
        for step, (kind, more) in enumerate(steps):
            nodes.append(helper.make_node(kind, [last, *more], [last := f"v{at}_{step}"], name=f"n{at}_{step}"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = place / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    slow = f"import random, time\ntime.sleep(random.lognormvariate(0, 0.25) * {rng.uniform(1.0, 2.0)})\nsys.exit(fails)"
    return ["strategy=precision", f"model={model}", *checked(place, RUN + slow)]


def triage(place: Path, rng: random.Random) -> list[str]:
    """A defect of an optimizer, triaged with a check of the user's own."""
    slow = f"import random, time\ntime.sleep(random.lognormvariate(0, 0.25) * {rng.uniform(1.0, 2.0)})\n"
    model = defective(place / "net.onnx", behind="Exp")
    return ["strategy=triage", f"model={model}", *checked(place, LIGHT + slow + "sys.exit('mul' in nodes)", "-I", "-S")]


KINDS: dict[str, Callable[[Path, random.Random], list[str]]] = {
    one.__name__: one for one in (single, bisected, few, scattered, cluster, linear, workers, flaky, precision, triage)
}


def measured(kind: str, seed: int) -> Row:
    """Run one and return what it showed."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        settings = KINDS[kind](place, random.Random(f"{kind} {seed}"))
        strategies = [one for one in settings if one.startswith("strategy=")]
        settings = [one for one in settings if one not in strategies[:-1]]
        command = [
            sys.executable,
            "-u",
            "-m",
            "runner",
            *settings,
            f"hydra.run.dir={place / 'run'}",
            "journal.share=false",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout
        lines = [(time.monotonic() - began, line) for line in process.stdout]
        process.wait()
        seconds = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"{kind} {seed} ended with {process.returncode}:\n{''.join(line for _, line in lines[-9:])}")
    return Row(
        kind, seed, seconds, sum(bool(_CHECK.match(line)) for _, line in lines), tuple(_shown(kind, lines, seconds))
    )


def _shown(kind: str, lines: list[tuple[float, str]], seconds: float) -> list[Shown]:
    steps = [at for at, line in lines if _STEP.match(line)] if kind == "triage" else []
    found = []
    for at, line in lines:
        if _CHECK.match(line):
            end = next((step for step in steps if step > at), seconds)
            left = _LEFT.search(line)
            found.append(Shown.of(at, left[1] if left else "", end))
    return found


def table(rows: Sequence[Row]) -> str:
    """Return which part of the runs of each kind hold, by each reading, and in the mean of all kinds."""
    heads = ["strict", "at half-time", "all ranges", *(f"{moment:.0%}" for moment in MOMENTS)]
    lines = [f"| runs | number | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    found = []
    for kind in dict.fromkeys(row.kind for row in rows):
        runs = [row for row in rows if row.kind == kind]
        ranges = [one.holds for row in runs for one in row.late]
        each = [[row.good for row in runs], [row.at_half_time for row in runs], ranges]
        found.append([fmean(one) for one in (*each, *([row.holds_at(moment) for row in runs] for moment in MOMENTS))])
        lines.append(f"| {kind} | {len(runs)} | {' | '.join(f'{share:.0%}' for share in found[-1])} |")
    means = [fmean(column) for column in zip(*found, strict=True)]
    lines.append(f"| mean | {len(rows)} | {' | '.join(f'{share:.0%}' for share in means)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--lines", action="store_true", help="print the lines that did not hold the truth")
    given = parser.parse_args()
    asked = [(kind, seed) for seed in given.seeds for kind in given.kinds.split(",")]
    print("| run | seed | seconds | checks | ranges from then on | held | under 2 s | widest | at half-time | strict |")
    print("|---" * 10 + "|")
    with ThreadPoolExecutor(given.at_once) as pool:
        rows = []
        for row in pool.map(lambda one: measured(*one), asked):
            rows.append(row)
            cells = [row.kind, row.seed, f"{row.seconds:.0f}", row.checks, len(row.late), row.held, row.short]
            cells += [f"{row.width:.2f}", *("yes" if one else "no" for one in (row.at_half_time, row.good))]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            for one in row.late if given.lines else ():
                if not one.holds:
                    print(f"    at {one.at:.1f} s: {one.least} to {one.most} s, in truth {one.end - one.at:.1f} s")
    good, shown = sum(row.good for row in rows), sum(len(row.late) for row in rows)
    print(f"\nstrict: {good} of {len(rows)} runs")
    print(f"at half-time: {sum(row.at_half_time for row in rows)} of {len(rows)} runs")
    print(f"median of the runs: {median(row.held / max(len(row.late), 1) for row in rows):.0%} of their ranges hold")
    print(f"all ranges: {sum(row.held for row in rows)} of {shown}\n\n{table(rows)}")
    return 0 if good >= RUNS_HELD * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
