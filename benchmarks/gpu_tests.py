"""Run all tests that need a GPU and print one table for the README: ``make gpu``.

    python -m benchmarks.gpu_tests [pytest's own words ...]

Ends with 0 if nothing failed, 1 if something did, and 2 with one line where there is no GPU: nothing was shown then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.backends.versions import versions
from runner.workers.gpus import Machine, installed

Row = tuple[str, str, str]
_LONGEST = 120


class Results:
    """A plugin of pytest that keeps a row (test, how it ended, why) of each test."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear one report; a test has one of its set-up, of itself, and of what cleans up."""
        if report.when != "call" and report.passed:
            return
        why = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            why = report.longrepr[2].removeprefix("Skipped: ")
        elif report.failed:
            said = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E")]
            why = said[0] if said else report.longreprtext.strip().rpartition("\n")[2]
        self.rows.append((report.nodeid, report.outcome, why))


def table(rows: Sequence[Row], machine: Machine, found: dict[str, str], driver: str) -> str:
    """Return the table in Markdown, with the device, its driver and the versions above it."""
    devices = ", ".join(device.model or device.uuid for device in machine.devices)
    names = ("tensorrt", "tensorrt_rtx", "onnxruntime")
    told = ", ".join(f"{name} {found[name]}" for name in names if name in found)
    lines = [f"{devices}, driver {driver}; {told}", "", "| test | ended | why |", "|---|---|---|"]
    lines += [f"| {test} | {ended} | {_cell(why)} |" for test, ended, why in rows]
    counted = (f"{sum(row[1] == word for row in rows)} {word}" for word in ("passed", "failed", "skipped"))
    return "\n".join([*lines, "", ", ".join(counted)])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:_LONGEST]


def _driver() -> str:
    import pynvml  # noqa: PLC0415 - there where a GPU was found through it

    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def main(*words: str) -> int:
    machine = installed()
    if not machine.devices:
        print(f"no GPU: {machine.why}. Nothing was run", file=sys.stderr)
        return 2
    results = Results()
    tests = str(Path(__file__).parents[1] / "tests")
    code = pytest.main(["-m", "gpu", "-q", "-p", "no:cacheprovider", *(words or (tests,))], plugins=[results])
    print(f"\n{table(results.rows, machine, versions({}), _driver())}")
    return int(code != pytest.ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
