"""One row of ``python -m benchmarks.precision_natural``: a model, what Winnow and its rivals make of it, how it fares.

Winnow runs as a user runs it; what it hands over is judged by ``benchmarks.precision_judge``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.precision_harm import infinities
from benchmarks.precision_judge import Judge, error, expected, refused, valid
from benchmarks.precision_networks import Case, Feeds
from benchmarks.precision_rivals import beyond_range

RTOL = 0.01
OUTSIDE = f"strategy=precision checker=compare checker.metric=scale checker.rtol={RTOL} verbosity=error".split()
HEADS = (
    "model", "nodes", "Winnow: raised", "range rule", "AutoCast", "auto_convert_mixed_precision", "checks", "seconds",
    "error / tolerance: given", "fresh", "fresh passed", "new Inf or NaN", "harmful", "loads", "valid", "status",
)  # fmt: skip
Rivals = Callable[[Path, Path, bool], dict[str, Any]]


def load(path: Path) -> Feeds:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


@dataclass(frozen=True)
class Answer:
    """What a run of Winnow left behind."""

    code: int
    seconds: float
    result: dict[str, Any]
    mixed: Path | None
    log: tuple[str, ...]

    @property
    def status(self) -> str:
        """How the run ended."""
        return f"{self.result.get('status', 'no result')}, exit {self.code}"

    @property
    def warnings(self) -> list[str]:
        """What ``result.json`` and the log warn of, each once."""
        return list(dict.fromkeys([*self.result.get("warnings", ()), *self.log]))

    @property
    def checks(self) -> str:
        """What was paid for, by what it was paid for."""
        paid = {name: count for name, count in self.result.get("checks", {}).items() if count and name != "reused"}
        return " + ".join(f"{count} {name}" for name, count in paid.items())


def winnow(model: Path, inputs: Sequence[str], folder: Path, *more: str) -> Answer:
    """Run ``strategy=precision`` as a user does."""
    start = time.monotonic()
    command = [sys.executable, "-m", "runner", *OUTSIDE, f"model={model}", *inputs, f"hydra.run.dir={folder}", *more]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    told = folder / "result.json"
    result = json.loads(told.read_text()) if told.exists() else {"message": ended.stderr.strip()[-400:]}
    log = folder / "winnow.log"
    lines = log.read_text().splitlines() if log.exists() else []
    warned = tuple(line.partition(" WARNING ")[2].partition(": ")[2] for line in lines if " WARNING " in line)
    mixed = folder / "mixed.onnx"
    return Answer(ended.returncode, seconds, result, mixed if mixed.exists() else None, warned)


def save(samples: Sequence[Feeds], folder: Path) -> Path:
    """Write one npz a sample."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, feeds in enumerate(samples):
        np.savez(folder / f"{number:02}.npz", **feeds)
    return folder


@dataclass(frozen=True)
class Bench:
    """One model with the samples that are searched and the fresh ones, and what is expected of both."""

    case: Case
    given: list[Feeds]
    fresh: list[Feeds]
    judge: Judge

    def errors(self, outputs: Sequence[Feeds], samples: Sequence[Feeds]) -> list[float]:
        """Return the error of each sample in units of the tolerance."""
        good = expected(self.case.model, samples)
        return [error(found, wanted, RTOL) for found, wanted in zip(outputs, good, strict=True)]

    def passed(self, outputs: Sequence[Feeds]) -> str:
        """Say how many of the fresh samples are within the tolerance."""
        return f"{sum(one <= 1 for one in self.errors(outputs, self.fresh))} of {len(self.fresh)}"

    def row(self, folder: Path, rivals: Rivals) -> tuple[list[Any], list[str]]:
        """Return the cells of the table, and what there is to say besides."""
        path, feeds = folder / "net.onnx", save(self.given, folder / "given")
        onnx.save(self.case.model, str(path))
        answer = winnow(path, ["inputs=files", f"inputs.path={feeds}"], folder / "run")
        counts = answer.result.get("nodes") or {}
        cells = [self.case.name, counts.get("before", "-"), counts.get("after", "-"), self._range_rule()]
        cells += [self._rival(rivals(path, feeds, own), folder / "rival.onnx") for own in (True, False)]
        cells += [answer.checks, f"{answer.seconds:.0f}"]
        said = [f"{self.case.name}: {warning}" for warning in answer.warnings]
        if answer.mixed is None:
            return [*cells, *["-"] * 7, f"{answer.status}: {_line(answer.result.get('message'))}"], said
        try:
            judged, told = self._judged(answer.mixed)
        except Exception as problem:  # noqa: BLE001 - a model that cannot be run is the result
            return [*cells, *["-"] * 7, f"{answer.status}; it does not run: {_line(problem)}"], said
        return [*cells, *judged, answer.status], [*said, *(f"{self.case.name}: {line}" for line in told)]

    def _judged(self, path: Path) -> tuple[list[Any], list[str]]:
        mixed, samples = onnx.load(str(path)), [*self.given, *self.fresh]
        after = self.judge.tables(mixed, samples)
        errors = self.errors([outputs for outputs, _ in after], samples)
        before = [table for _, table in self.judge.tables(self.case.model, samples)]
        new = infinities(mixed, samples, before, [table for _, table in after])
        harmful = [one for one in new if one.harmed]
        fresh = errors[len(self.given) :]
        levels = refused(path)
        loads = "yes" if not levels else f"NOT at {', '.join(map(str, levels))}"
        cells = [f"{max(errors[: len(self.given)]):.2f}", f"{max(fresh):.2f}", f"{sum(one <= 1 for one in fresh)}"]
        said = [f"harmful: {one.tensor} -> {', '.join(one.harmed[:3])}" for one in harmful[:4]]
        rest = [one for one in new if not one.harmed]
        said += [
            f"rounding alone makes {', '.join(one.wrong[:3])} wrong after {one.tensor}" for one in rest if one.wrong
        ]
        said += [f"no harm: {one.tensor}" for one in rest if not one.wrong][:4]
        said += [f"not loaded at level {level}: {text[:200]}" for level, text in levels.items()]
        return [*cells, len(new), len(harmful), loads, "yes" if valid(path) else "NO"], said

    def _range_rule(self) -> str:
        names = set().union(*(beyond_range(self.case.model, feeds) for feeds in self.given))
        outputs = self.judge.with_raised(self.case.model, names, self.fresh)
        return f"{len(names)}" + (f" ({self.passed(outputs)})" if outputs else "")

    def _rival(self, told: dict[str, Any], path: Path) -> str:
        if "raised" not in told:
            return _line(told.get("error", "-"))
        try:
            outputs = [outputs for outputs, _ in self.judge.tables(onnx.load(str(path)), self.fresh)]
            passed = self.passed(outputs)
        except Exception as problem:  # noqa: BLE001 - a model that cannot be run is the rival's result
            passed = f"does not run: {type(problem).__name__}"
        return f"{len(told['raised'])} ({passed})"


def _line(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "/")[:300]
