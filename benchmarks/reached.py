"""Which tests run which blocks of a module: each block says so, in whatever process of a test it runs.

A call stands before the first statement of each block of a function (`with_calls`). The first time in a test, it writes
a line to a file, so nothing is lost of a process that is killed. pytest tells a test's name to all processes of a test
through a variable. As a plugin of pytest, this file writes how long each test takes.

No library fits: coverage.py writes what it knows at the end of a process, and workers are killed.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

EVERY = "every test"
_FILE = Path(__file__).with_suffix(".jsonl")
_CALL = "__import__('reached').at({!r})"
_VARIABLE = "PYTEST_CURRENT_TEST"
_state = SimpleNamespace(test="", seen=set(), pytest=0)


def at(block: str) -> None:
    """Write down that a block runs, where it is the first time in this test."""
    test = os.environ.get(_VARIABLE, "")
    if test != _state.test:
        _state.test, _state.seen = test, set()
    if block not in _state.seen:
        _state.seen.add(block)
        _write(block=block, test=test, own=os.getpid() == _state.pytest)


def pytest_configure() -> None:
    """Know the process in which the tests themselves run."""
    _state.pytest = os.getpid()


def pytest_runtest_logreport(report: SimpleNamespace) -> None:
    """Write down how long a test takes, and whether it fails."""
    if report.when == "call" or report.failed:
        _write(test=report.nodeid, seconds=report.duration, failed=report.failed)


def _write(**line: object) -> None:
    with open(_FILE, "a", encoding="utf-8") as file:  # noqa: PTH123 - quick, and open only here: a fork closes files
        file.write(json.dumps(line) + "\n")


def blocks(source: str) -> dict[int, int]:
    """Return the first and the last line of each block of a function that starts on a line of its own."""
    found, lines = dict[int, int](), source.splitlines()
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in (inner for function in functions for inner in ast.walk(function)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, ())
            if not isinstance(block, list) or not block or isinstance(node, ast.ClassDef):
                continue
            described = isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None
            for one in block[described : described + 1]:
                first = min(part.lineno for part in (one, *getattr(one, "decorator_list", ())))
                before = lines[first - 1].encode()[: one.col_offset]
                if not before.strip(b" @") and not lines[first - 1].lstrip().startswith("elif"):
                    found[first] = block[-1].end_lineno or first
    return found


def with_calls(source: str, path: str) -> str:
    """Return a module with a call in each block."""
    lines, starts = source.splitlines(keepends=True), blocks(source)
    for first in starts:
        line = lines[first - 1]
        indent = line[: len(line) - len(line.lstrip())]
        lines[first - 1] = f"{indent}{_CALL.format(f'{path}:{first}')}\n{line}"
    return "".join(lines)


@dataclass
class Reached:
    """The tests that run each block, how long each test takes, and those that fail."""

    tests: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Reached:
        """Read what was written; the file goes.

        What runs before a test is for all of its file, and in another process, or outside of all tests, for every test.
        """
        found = cls()
        for line in map(json.loads, file.read_text().splitlines()):
            if "seconds" in line:
                found.seconds[line["test"]] = line["seconds"]
                found.failed += [line["test"]] * (line["failed"] and line["test"] not in found.failed)
                continue
            test, _, phase = line["test"].rpartition(" ")
            if phase != "(call)":
                test = test.partition("::")[0] if test and line["own"] else EVERY
            found.tests[line["block"]].add(test)
        file.unlink()
        return found

    def of(self, path: str, source: str, line: int) -> list[str]:
        """Return the tests that may run a line, quick files first."""
        around = [(last - first, first) for first, last in blocks(source).items() if first <= line <= last]
        names = self.tests[f"{path}:{min(around)[1]}"] if around else {EVERY}
        files, tests = defaultdict[str, float](float), list[tuple[str, str]]()
        for one, seconds in self.seconds.items():
            if not names.isdisjoint({one, file := one.partition("::")[0], EVERY}):
                tests.append((file, one))
                files[file] += seconds
        return [one for _, one in sorted(tests, key=lambda test: (files[test[0]], test[0], self.seconds[test[1]]))]
