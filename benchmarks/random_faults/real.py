"""The same cases through the product: a run of `python -m runner`, whose check stands in for the imagined target."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks.random_faults.faults import Case
from benchmarks.random_faults.solve import MEASURES, Judging, Solved, solve
from benchmarks.random_faults.stand_in import write_rules
from benchmarks.result_folder import ROOT

CHECK = """from benchmarks.random_faults.stand_in import checked


def check(model, inputs, expected):
    return checked({rules!r}, model, inputs, expected, measures={measures})
"""
OPTIONS = ("strategy.shrink=false", "checker.flaky=never", "result.find_min_good=false", "checker=python")


@dataclass(frozen=True)
class Both:
    """A case simulated and run; each: the cause's status, the nodes named, checks of the search and for the cause."""

    seed: int
    simulated: tuple[str, tuple[str, ...], int, int]
    ran: tuple[str, tuple[str, ...], int, int]

    @property
    def agree(self) -> bool:
        """Whether both say the same after as many checks."""
        return self.simulated == self.ran


def both(case: Case, folder: Path, judging: Judging = MEASURES) -> Both:
    """Simulate a case, run it in a folder, and return what both said. ``judging``: of the worst sample."""
    return Both(case.seed, simulated(solve(case, judging)), run(case, folder, measures=judging.measures))


def simulated(found: Solved) -> tuple[str, tuple[str, ...], int, int]:
    """Return what a simulation said."""
    names = found.case.target.graph.names
    named = tuple(names[index] for index in sorted(found.answer))
    return found.cause.status.value, named, found.checks["search"], found.checks["cause"]


def run(case: Case, folder: Path, *, measures: bool) -> tuple[str, tuple[str, ...], int, int]:
    """Run Winnow on a case, and return what it said."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(case.made.model, folder / "net.onnx")
    (folder / "inputs").mkdir(exist_ok=True)
    for sample in range(case.made.samples):
        given = {name: value[sample] for name, value in case.made.inputs.items()}
        np.savez(folder / "inputs" / f"sample{sample}.npz", **given)
    write_rules(case.rules, case.made.constant, folder / "rules.json")
    (folder / "check.py").write_text(CHECK.format(rules=str(folder / "rules.json"), measures=measures))
    given = (f"model={folder / 'net.onnx'}", "inputs=files", f"inputs.path={folder / 'inputs'}")
    argv = [*given, *OPTIONS, f"checker.file={folder / 'check.py'}", f"hydra.run.dir={folder / 'run'}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "runner", *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"seed {case.seed}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    result = json.loads((folder / "run" / "result.json").read_text())
    cause, checks = result["cause"], result["checks"]
    named = set(result["culprits"])
    if cause["status"] == "joint":
        named = {name for one in cause["answers"] if one["is_cause"] for name in one["culprits"]}
    order = [node.name for node in case.made.model.graph.node]
    return cause["status"], tuple(sorted(named, key=order.index)), checks["search"] + checks["refine"], checks["cause"]
