"""The time left of hundreds of runs, without waiting for their checks: recorded once, scored again and again.

    python -m benchmarks.time_left_replay record FOLDER --seeds 101 102 [--kinds single,flaky] [--at-once 2]
    python -m benchmarks.time_left_replay score FOLDER [--seeds 101 102]

A recording is a run of `benchmarks.time_left` in a process of its own, whose check is called there. Its sleep takes no
time: a clock of its own goes on by that, and by the time of the processor that all else takes, which is Winnow as it
is: its search, its trust and what follows an answer. So a machine that is busy does not show. What is recorded are the
checks as an estimate is told of them. The figures of the rules were set with seeds from 101 on; others are held back.
"""

from __future__ import annotations

import argparse
import builtins
import dataclasses
import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.time_left import KINDS, ROOT, Row, Shown, table
from runner.report.live.course import Course
from runner.report.live.ended_check import EndedCheck
from runner.report.live.estimate import Estimate
from runner.report.live.log_lines import LogObserver
from runner.report.live.ranges import time_left
from runner.session.trust.sequential_test import Rates, Repeats

QUIET = 0.06
"""Seconds after which nothing more is taken to begin at this moment of the clock, where several checks run at once."""
LOADED, NEXT_STEP = 0.7, 0.25
"""Seconds until a process has loaded Winnow, and until the next step of a triage begins."""


# ---- recording


class Clock:
    """A clock of its own: sleep takes no time, work takes that of the processor. Safe for threads."""

    def __init__(self, quiet: float) -> None:
        self.slept, self._quiet, self._changed = LOADED, quiet, time.monotonic()
        self._asleep: list[float] = []
        self._woken = threading.Condition()

    def now(self) -> float:
        """Return the time, in seconds."""
        return self.slept + sum(os.times()[:4])

    def sleep(self, seconds: float) -> None:
        """Return once nobody is to wake up sooner."""
        with self._woken:
            wake = self.slept + seconds
            heapq.heappush(self._asleep, wake)
            self._changed = time.monotonic()
            while self.slept < wake:
                if self._asleep[0] == wake and time.monotonic() - self._changed >= self._quiet:
                    self.slept = heapq.heappop(self._asleep)
                    self._changed = time.monotonic()
                else:
                    self._woken.wait(self._quiet / 4)


def record(folder: Path, kind: str, seed: int) -> str:
    """Record one run in a process of its own."""
    into = folder / f"{kind}-{seed}.json"
    if into.exists():
        return f"{into.name}: there already"
    command = [sys.executable, "-m", "benchmarks.time_left_replay", "one", str(into), kind, str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return f"{into.name}: {ended.stderr[-2000:] if ended.returncode or not into.exists() else 'recorded'}"


def _one(into: Path, kind: str, seed: int) -> None:
    """Make one run here, and record it."""
    from runner.checkers.command import command as command_check  # noqa: PLC0415
    from runner.cli.app import run  # noqa: PLC0415
    from runner.sweeps.sweep import Sweep  # noqa: PLC0415
    from runner.workers.run_command import CommandEnd  # noqa: PLC0415

    steps = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        settings = KINDS[kind](place, random.Random(f"{kind} {seed}"))
        body = compile((place / "check.py").read_text(), "check.py", "exec")
        workers = any(one.startswith("workers.count=") for one in settings)
        clock = Clock(QUIET if workers else 0.0)

        def called(argv: Sequence[str], **_: Any) -> CommandEnd:
            wanted, code = [0.0], 0
            # what a real process takes to start is not there
            names = {"argv": list(argv[list(argv).index(str(place / "check.py")) :]), "exit": sys.exit}
            modules = {"sys": SimpleNamespace(**names), "time": SimpleNamespace(sleep=wanted.append)}

            def imported(name: str, *more: Any) -> Any:
                return modules.get(name) or builtins.__import__(name, *more)

            try:
                exec(body, {"__builtins__": {**vars(builtins), "__import__": imported}})
            except SystemExit as end:
                code = int(end.code or 0)
            seconds = sum(wanted)
            clock.sleep(seconds)
            return CommandEnd(code, None, None, seconds, 0.0)

        watched = LogObserver.checked

        def checked(self: LogObserver, told: Any, kept: int) -> None:
            if not steps or steps[-1]["of"] != id(self):
                course = dataclasses.asdict(self.estimate.course)
                steps.append({"of": id(self), "course": course, "checks": []})
            verdict = told.verdict
            of = told.left, told.following, not told.iteration, told.repeats
            done = EndedCheck(told.phase, kept, clock.now(), verdict.seconds, verdict.outcome.value, *of)
            steps[-1]["checks"].append(dataclasses.asdict(done))
            watched(self, told, kept)

        command_check.run_command = called  # type: ignore[assignment]
        LogObserver.checked = checked  # type: ignore[method-assign]
        strategies = [one for one in settings if one.startswith("strategy=")]
        typed = [one for one in settings if one not in strategies[:-1]]
        os.chdir(place)
        code = run("winnow", [*typed, f"hydra.run.dir={place / 'run'}", "journal.share=false"], Sweep())
        end = clock.now()
        os.chdir("/")
    if code:
        raise RuntimeError(f"it ended with {code}")
    into.write_text(json.dumps({"kind": kind, "seed": seed, "steps": steps, "end": end}))


# ---- scoring


def scored(path: Path) -> Row:
    """Return what an estimate shows as it is told of the checks of a recorded run."""
    told = json.loads(path.read_text())
    steps, shown = told["steps"], list[Shown]()
    for step in steps:
        # a step is over as the line of the next one comes
        end = told["end"] if step is steps[-1] else step["checks"][-1]["at"] + NEXT_STEP
        first = step["checks"][0]
        estimate = Estimate(Course(**step["course"]), first["at"] - first["seconds"])
        for check in step["checks"]:
            if kept := check["repeats"]:
                check["repeats"] = Repeats(**{**kept, "rates": Rates(**kept["rates"])})
            estimate.add(EndedCheck(**check))
            shown.append(Shown.of(check["at"], time_left(estimate.seconds), end))
    checks = sum(len(step["checks"]) for step in steps)
    return Row(told["kind"], told["seed"], told["end"], checks, tuple(shown))


def paths(folder: Path, seeds: Iterable[int], kinds: str) -> list[Path]:
    """Return what was recorded of these kinds and seeds."""
    return [path for seed in seeds for kind in kinds.split(",") if (path := folder / f"{kind}-{seed}.json").exists()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "score", "one"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    if given.what == "one":
        _one(given.folder.absolute(), given.rest[0], int(given.rest[1]))
    elif given.what == "record":
        given.folder.mkdir(exist_ok=True)
        asked = [(kind, seed) for seed in given.seeds for kind in given.kinds.split(",")]
        with ThreadPoolExecutor(given.at_once) as pool:
            for said in pool.map(lambda one: record(given.folder.absolute(), *one), asked):
                print(said, flush=True)
    else:
        print(table([scored(path) for path in paths(given.folder, given.seeds, given.kinds)]))


if __name__ == "__main__":
    main()
