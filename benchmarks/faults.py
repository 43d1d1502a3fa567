"""The fault matrix: what is done to a run, and what becomes of its answer.

Each fault is done to a small run whose undisturbed answer is known. Afterwards the run goes on as its last line says
(``resume=``), and what it hands over is compared. Counted are trials in which

- the answer was *lost*: no answer, or none that is clear, though the fault is over,
- something was *wrong*: another answer, files that do not hold it, an exit code that no page names or that blames the
  user, a traceback,
- something was *left* behind: processes, temporary files, what only a run at work has in its folder,
- a check was paid for *twice* that was not under way, and whose subject is not handed over.

    python -m benchmarks.faults [--share 0.1] [--only kill] [--seed 1] [--light]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.fault_kinds import ANSWERED, FAULTS, Fault, Scene

ROOT = Path(__file__).parents[1]
STRACE = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=socket,socketpair")
_FAMILY = re.compile(r"socket(?:pair)?\((\w+)")


def products(path: Path, nodes: int = 4) -> None:
    """Write a chain of products in fp16, which rounds otherwise when it is optimized."""
    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((draw.standard_normal((256, 256)) / 16).astype(np.float16), f"w{i}")
        for i in range(nodes)
    ]
    made = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"n{i}") for i in range(nodes)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 256]) for name in ("t0", f"t{nodes}")]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def sockets(place: Path) -> Counter[str]:
    """Run it; return how many sockets all its processes have opened, by family. It must find an answer."""
    place.mkdir(parents=True, exist_ok=True)
    products(place / "net.onnx")
    traced = place / "traced"
    exact = ["checker=compare", "checker.rtol=0", "checker.atol=0", "checker.flaky=never"]
    command = [sys.executable, "-m", "runner", "model=net.onnx", "strategy=reduce_bisect", *exact, "hydra.run.dir=out"]
    unguarded = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}  # a run sets it
    done = subprocess.run(
        [*STRACE, "-o", str(traced), *command],
        cwd=place,
        env={**unguarded, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Counter(_FAMILY.findall(traced.read_text()))


#: what a resumed run hands over is checked again: the reduced model and the smallest that passes
HANDED_OVER = 2
USAGE = 2


@dataclass(frozen=True)
class Undisturbed:
    """What a run answers and what it pays for, by whether it is a sweep of two."""

    answers: dict[bool, list[Any]]
    paid: dict[bool, Counter[str]]

    @staticmethod
    def of(place: Path, kinds: Iterable[bool]) -> Undisturbed:
        """Run it undisturbed."""
        scenes = {sweep: Scene(place / f"undisturbed-{sweep}", sweep=sweep) for sweep in kinds}
        for scene in scenes.values():
            end = scene.end(scene.start())
            assert end.code == 0 and None not in scene.answers(), end.output
        return Undisturbed(
            {sweep: scene.answers() for sweep, scene in scenes.items()},
            {sweep: scene.paid() for sweep, scene in scenes.items()},
        )


@dataclass(frozen=True)
class Trial:
    """What became of one trial; ``notes`` say why."""

    lost: bool
    wrong: bool
    left: bool
    twice: bool
    notes: tuple[str, ...]


def tried(fault: Fault, place: Path, normal: Undisturbed, draw: random.Random, share: float) -> Trial:
    """Try a fault once. ``share``: how far the run is when it strikes, from 0 to 1."""
    scene, ends = fault.act(place, draw, share)
    answers, good = scene.answers(), normal.answers[scene.sweep]
    codes = [end.code for end in ends]
    answered = codes[-1] in ANSWERED
    clear = ends[-1].clear
    usage = [end for end in ends if end.code == USAGE and not fault.usage]
    struck = [*usage, *(end for end in ends if not (end.clear or end.code in scene.killed))]
    wrong = bool(struck) or (answered and answers != good)
    lost = not answered and not (fault.clear and clear)
    paid = sum((scene.paid() - normal.paid[scene.sweep]).values()) if answered else 0
    again = len(ends) - 1
    allowed = again * (fault.twice + HANDED_OVER * (1 + scene.sweep)) + scene.retried
    left = scene.left()
    notes = (
        *(f"exit codes {codes}: {end.output[-400:]}" for end in struck or ends[-1:] if wrong or lost),
        *(f"{answers} instead of {good}" for _ in range(1) if answered and answers != good),
        *left,
        *(f"{paid} checks paid for again, {allowed} allowed" for _ in range(1) if paid > allowed),
    )
    return Trial(lost, wrong, bool(left), paid > allowed, notes)


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    fault: Fault
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        if self.fault.needs:
            return f"| {self.fault.name} | {self.fault.how} | {self.fault.needs} | | | | |"
        counts = [sum(getattr(one, name) for one in self.trials) for name in ("lost", "wrong", "left", "twice")]
        return f"| {self.fault.name} | {self.fault.how} | {len(self.trials)} | {' | '.join(map(str, counts))} |"

    @property
    def notes(self) -> list[str]:
        """Why the row is not all zeros."""
        return [note for one in self.trials for note in one.notes]


HEAD = "| fault | how | tried | lost | wrong | left behind | paid twice |\n|---|---|---|---|---|---|---|"


def row(fault: Fault, times: int, place: Path, normal: Undisturbed, seed: int = 1) -> Row:
    """Try a fault so many times, at moments that are spread over the run."""
    draw = random.Random(f"{seed} {fault.name}")
    trials = []
    for number in range(0 if fault.needs else times):
        where = place / f"{fault.name.replace('/', '').replace(' ', '-')}-{number}"
        share = (number + draw.random()) / times
        trials.append(tried(fault, where, normal, draw, share))
        if not trials[-1].notes:
            shutil.rmtree(where)
    return Row(fault, tuple(trials))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials of the whole matrix")
    parser.add_argument("--only", default="", help="faults with this in their names")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--light", action="store_true", help="the small matrix of the tests: each kind of fault once")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="winnow-faults-", dir=os.environ.get("TMPDIR")))
    normal = Undisturbed.of(place, (False,) if given.light else (False, True))
    print(HEAD)
    notes = []
    for fault in FAULTS:
        if given.only not in fault.name or (given.light and not fault.light):
            continue
        times = 1 if given.light else max(1, round(fault.full * given.share))
        found = row(fault, times, place, normal, given.seed)
        print(found, flush=True)
        notes += [f"{fault.name}: {note}" for note in found.notes]
    print("\n".join(["", *notes]) if notes else "")
    if shutil.which("strace"):
        print(f"sockets opened by a reduction with ONNX Runtime, under strace: {dict(sockets(place / 'sockets'))}")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print("CPU seconds:", *(round(one.ru_utime + one.ru_stime, 1) for one in used))
    print(f"what is not as it should be lies in {place}" if notes else "")


if __name__ == "__main__":
    main()
