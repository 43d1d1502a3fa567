"""python -m benchmarks.precision_natural [--shared DIR] [--samples 12,1] [--only NAME,...]: fp16.

Models that fail in fp16 in natural ways (``benchmarks.precision_networks``), a second of each kind that is held back
while anything is tuned, and with ``--shared`` the given ones of ``DIR/precision``. ``strategy=precision`` sees 12
samples (or one: the sample that comes with a given model); its ``mixed.onnx`` is judged on 20 fresh ones by an
evaluator that owes nothing to Winnow, and so is the range rule of NVIDIA's AutoCast: whatever reads or makes a value
beyond a limit stays in high precision. In brackets: how many of the fresh ones pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator

from benchmarks import print_head, print_row, winnow
from benchmarks.precision_networks import (
    Case,
    Feeds,
    Judge,
    beyond_range,
    error,
    expected,
    infinities,
    natural,
    refused,
    valid,
)

RTOL = 0.01
OUTSIDE = f"strategy=precision checker=compare checker.metric=scale checker.rtol={RTOL} verbosity=error".split()
HEADS = (
    "model", "nodes", "Winnow: raised", "range rule", "checks", "seconds",
    "error / tolerance: given", "fresh", "fresh passed", "new Inf or NaN", "harmful", "loads", "valid", "status",
)  # fmt: skip


def load(path: Path) -> Feeds:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


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

    def row(self, folder: Path) -> tuple[list[Any], list[str]]:
        """Return the cells of the table, and what there is to say besides."""
        path, feeds = folder / "net.onnx", save(self.given, folder / "given")
        onnx.save(self.case.model, str(path))
        start, place = time.monotonic(), folder / "run"
        ended, result = winnow(place, *OUTSIDE, f"model={path}", "inputs=files", f"inputs.path={feeds}")
        seconds, result = time.monotonic() - start, result or {"message": ended.stderr.strip()[-400:]}
        counts, checks = result.get("nodes") or {}, result.get("checks", {})
        paid = " + ".join(f"{count} {name}" for name, count in checks.items() if count and name != "reused")
        cells = [self.case.name, counts.get("before", "-"), counts.get("after", "-"), self._range_rule()]
        cells += [paid, f"{seconds:.0f}"]
        said = [f"{self.case.name}: {warning}" for warning in _warnings(place, result)]
        status = f"{result.get('status', 'no result')}, exit {ended.returncode}"
        if not (place / "mixed.onnx").exists():
            return [*cells, *["-"] * 7, f"{status}: {_line(result.get('message'))}"], said
        try:
            judged, told = self._judged(place / "mixed.onnx")
        except Exception as problem:  # noqa: BLE001 - a model that cannot be run is the result
            return [*cells, *["-"] * 7, f"{status}; it does not run: {_line(problem)}"], said
        return [*cells, *judged, status], [*said, *(f"{self.case.name}: {line}" for line in told)]

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
        wrong = [(", ".join(one.wrong[:3]), one.tensor) for one in rest if one.wrong]
        said += [f"rounding alone makes {names} wrong after {tensor}" for names, tensor in wrong]
        said += [f"no harm: {one.tensor}" for one in rest if not one.wrong][:4]
        said += [f"not loaded at level {level}: {text[:200]}" for level, text in levels.items()]
        return [*cells, len(new), len(harmful), loads, "yes" if valid(path) else "NO"], said

    def _range_rule(self) -> str:
        names = set().union(*(beyond_range(self.case.model, feeds) for feeds in self.given))
        outputs = self.judge.with_raised(self.case.model, names, self.fresh)
        return f"{len(names)}" + (f" ({self.passed(outputs)})" if outputs else "")


def _warnings(folder: Path, result: dict[str, Any]) -> list[str]:
    """Return what ``result.json`` and the log warn of, each once."""
    log = folder / "winnow.log"
    lines = log.read_text().splitlines() if log.exists() else []
    logged = [line.partition(" WARNING ")[2].partition(": ")[2] for line in lines if " WARNING " in line]
    return list(dict.fromkeys([*result.get("warnings", ()), *logged]))


def _line(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "/")[:300]


FRESH = 20
GIVEN_SEED, FRESH_SEED = 1, 2
DRAWS: dict[str, Callable[[Generator], Feeds]] = {
    "a_rms_outlier": lambda rng: {"ids": rng.integers(0, 100, (1, 16))},
    "c_attn_logits": lambda rng: {
        "x": rng.normal(0, 3, (1, 16, 64)).astype(np.float32),
        "mask": (np.arange(16) < rng.integers(8, 16)).astype(np.float32).reshape(1, 1, 1, 16),
    },
    "h_adds_up": lambda rng: {"x": rng.normal(0, 1, (4, 32)).astype(np.float32)},
    "k_detect": lambda rng: {
        "img": rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32),
        "grid": rng.uniform(-1, 1, (1, 16, 16, 2)).astype(np.float32),
    },
}


def given_cases(shared: Path) -> Iterator[Case]:
    """Yield the given models whose inputs are known."""
    for name, draw in DRAWS.items():
        yield Case(name, onnx.load(str(shared / "precision" / name / "model.onnx")), draw)


def main() -> int:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--samples", default="12")
    parser.add_argument("--strict", action="store_true", help="judged with rounding inside reductions and norms")
    parser.add_argument("--seed", type=int, default=0, help="other natural models, which nobody has looked at")
    parser.add_argument("--only", default="", help="models by a part of their name")
    options = parser.parse_args()
    shared = options.shared if options.shared and (options.shared / "precision").is_dir() else None
    judge = Judge(shared, strict=options.strict)
    if shared is None:
        print("No evaluator of its own (--shared): judged with the emulation that Winnow uses as well.\n")
    cases = [case for case in natural(options.seed) if _wanted(case.name, options.only)]
    parts = {"Natural": [case for case in cases if not case.held], "Held back": [case for case in cases if case.held]}
    if shared is not None:
        parts["Given"] = [case for case in given_cases(shared) if _wanted(case.name, options.only)]
    for count in map(int, options.samples.split(",")):
        for part, members in ((part, members) for part, members in parts.items() if members):
            print(f"## {part}, {count} sample{'s' * (count > 1)}\n")
            print_head(*HEADS)
            said: list[str] = []
            for case in members:
                cells, told = row(case, count, shared, judge)
                said += told
                print_row(*cells)
            print("", *(f"- {line}" for line in said), "", sep="\n", flush=True)
    return 0


def _wanted(name: str, only: str) -> bool:
    return any(part in name for part in only.split(","))


def row(case: Case, count: int, shared: Path | None, judge: Judge) -> tuple[list[Any], list[str]]:
    """Return a row of the table, and what there is to say besides."""
    own = shared / "precision" / case.name / "in.npz" if shared else None
    given = [load(own)] if own and own.exists() and count == 1 else case.samples(GIVEN_SEED, count)
    with tempfile.TemporaryDirectory() as folder:
        return Bench(case, given, case.samples(FRESH_SEED, FRESH), judge).row(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
