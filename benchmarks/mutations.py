"""Small changes of meaning, each against the fast tests: which are noticed?

A mutant is one change in one module: ``<`` for ``<=``, ``and`` for ``or``, an operand, a keyword or a call left out,
another member of an enumeration, a number by one. So many are drawn by a seed, alike from each room; each is written
into a copy of the tree. There the fast tests that run its block (`benchmarks.reached`) run until one fails, those of
its own room first, then the golden runs, then as many others as fit into a minute. Tests that take much longer than
with nothing changed have noticed it too. The copy has a virtual environment of its own, in which it is what is
installed: a process that a test starts runs the mutant whatever its environment and folder. Every second mutant
is held back: its survivors are counted and not named, so that tests which were written for the others are judged by
what nobody saw (``--held`` names them in a file). On a busy machine, run those that timed out again.

No library fits: mutmut switches mutants in the process that runs the tests, while runs of Winnow are other processes;
cosmic-ray changes the tree in which it stands, and has one command of tests for all. Neither draws a sample by room, or
holds a part of it back. Texts, annotations, fractions, and what is raised or logged are left alone.

    python -m benchmarks.mutations [--count 200] [--seed 1] [--rooms strategies,engine] [--held FILE]
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import ROOT, print_head, print_row, reached

#: modules, and the tests of their room, which run first
ROOMS = {
    "strategies": ("strategies/*.py", "tests/strategies"),
    "engine": ("runner/engine/*.py", "tests/engine"),
    "checkers": ("runner/checkers/*.py", "tests/checkers"),
    "reduce": ("runner/jobs/reduce/*.py", "tests/jobs/reduce"),
    "model": ("runner/model/**/*.py", "tests/model"),
    "precision": ("runner/jobs/precision/*.py", "tests/jobs/precision"),
    "reference": ("runner/reference/*.py", "tests/reference"),
    "judgment": ("runner/judgment.py runner/exit_codes.py runner/verdict.py", "tests/test_judgment.py"),
    "report": ("runner/report/[frs]*.py runner/report/diagnosis_sections.py", "tests/report"),
}
GOLDEN = "tests/behaviour"
_COPIED = ("runner", "strategies", "conf", "tests", "benchmarks", "examples", "docs")
_BETWEEN = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"), ast.BitOr: ("|", "&"),
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "YES": "NO", "NO": "YES", "UNKNOWN": "NO"}
_NAMES |= {"PASS": "FAIL", "FAIL": "DIFFERENT", "DIFFERENT": "FAIL", "UNRESOLVED": "FAIL", "ONE_MINIMAL": "UNPROVEN"}
_LOGS = ("debug", "info", "warning", "error", "exception", "cast", "field", "getLogger")
_MEMORY = 12 << 30  # bytes of address space that each process of the tests has: an endless loop may fill all there is
_OTHERS = 60.0  # seconds of tests of other rooms that a mutant may take
_SLOWER, _SLACK = 3.0, 30.0  # how much longer a mutant's tests may take: so many times, and so many seconds besides


@dataclass(frozen=True)
class Mutant:
    """``start`` to ``end`` of a module's bytes are replaced by ``new``; ``held``: it is one of those held back."""

    path: str
    start: int
    end: int
    new: str
    held: bool = False

    def of(self, source: bytes) -> bytes:
        """Return the changed module."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def shown(self, source: bytes) -> str:
        """Return where it is, what it changes, and the line that it makes."""
        first, last = source.rfind(b"\n", 0, self.start) + 1, source.find(b"\n", self.end)
        old, changed = source[self.start : self.end].decode(), self.of(source)[first : last + len(self.new)].decode()
        line = source.count(b"\n", 0, self.start) + 1
        return f"{self.path}:{line}: `{old}` -> `{self.new}` in\n    {changed.splitlines()[0].strip()}"


class _Changes(ast.NodeVisitor):
    """Collects what can be changed in a module: start and end in bytes, and what stands there instead."""

    def __init__(self, source: bytes) -> None:
        self._source, self._lines = source, [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.found: list[tuple[int, int, str]] = []

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _add(self, node: ast.expr | ast.stmt, new: str) -> None:
        self.found.append((*self._span(node), new))

    def _text(self, node: ast.expr) -> str:
        return self._source[slice(*self._span(node))].decode()

    def _operator(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> None:
        """Change an operator, which stands between its operands and perhaps brackets."""
        start, end = self._span(left)[1], self._span(right)[0]
        between = self._source[start:end].decode()
        old, new = _BETWEEN.get(type(operator), ("#", ""))
        if between.count(f" {old} ") == 1 and "#" not in between:
            self.found.append((start, end, between.replace(f" {old} ", f" {new} ")))

    def visit(self, node: ast.AST) -> None:
        """Collect the changes of a node, and of those inside it."""
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.arg | ast.Import | ast.ImportFrom):
            return
        called = getattr(node.value if isinstance(node, ast.Expr) else node, "func", None)
        if getattr(called, "attr", getattr(called, "id", "")) in _LOGS:
            return
        self._operators(node)
        self._words(node)
        for name, value in ast.iter_fields(node):
            left_alone = name in ("annotation", "returns", "decorator_list", "bases")
            for one in () if left_alone else value if isinstance(value, list) else (value,):
                if isinstance(one, ast.AST):
                    self.visit(one)

    def _operators(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                self._operator(left, operator, right)
        elif isinstance(node, ast.BinOp):
            self._operator(node.left, node.op, node.right)
        elif isinstance(node, ast.BoolOp):
            for at, value in enumerate(node.values):
                rest = [self._text(one) for one in node.values if one is not value]
                self._add(node, f"({f' {_BETWEEN[type(node.op)][0]} '.join(f'({one})' for one in rest)})")
                if at:
                    self._operator(node.values[at - 1], node.op, value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._add(node, f"bool({self._text(node.operand)})")

    def _words(self, node: ast.AST) -> None:
        if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            self._add(node, str(not node.value if isinstance(node.value, bool) else node.value + 1))
        elif isinstance(node, ast.Name) and node.id in _NAMES:
            self._add(node, _NAMES[node.id])
        elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
            self._add(node, f"{self._text(node.value)}.{_NAMES[node.attr]}")
        elif isinstance(node, ast.Continue):
            self._add(node, "break")
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            self._add(node, "pass")
        for test in node.ifs if isinstance(node, ast.comprehension) else ():
            self._add(test, "True")
        for word in node.keywords if isinstance(node, ast.Call) else ():
            start, end = self._span(word)
            self.found.append((start, end + (self._source[end : end + 1] == b","), ""))


def modules(root: Path, room: str) -> list[Path]:
    """Return the modules of a room."""
    return sorted(path for pattern in ROOMS[room][0].split() for path in root.glob(pattern))


def drawn(root: Path, room: str, count: int, seed: int) -> list[Mutant]:
    """Draw so many mutants of a room, every second of which is held back."""
    every, taken = list[Mutant](), list[Mutant]()
    for path in modules(root, room):
        changes = _Changes(source := path.read_bytes())
        changes.visit(ast.parse(source))
        every += [Mutant(str(path.relative_to(root)), *change) for change in changes.found]
    random.Random(f"{seed} {room}").shuffle(every)
    for one in every[: 2 * count]:
        with suppress(SyntaxError):
            compile(one.of((root / one.path).read_bytes()), one.path, "exec")
            taken.append(replace(one, held=bool(len(taken) % 2)))
    return taken[:count]


def copied(copy: Path) -> None:
    """Copy what the tests need."""
    copy.mkdir()
    for folder in _COPIED:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy2(file, copy)


def installed(copy: Path) -> Path:
    """Make a virtual environment in which the copy is installed, beside all that is installed here; return its Python.

    Raises RuntimeError where a process with nothing in its environment would run other code.
    """
    here, folder = Path(sysconfig.get_path("purelib")), copy / ".venv"
    venv.create(folder, symlinks=True)
    there = next(folder.glob("lib/python*/site-packages"))
    for entry in here.iterdir():
        if not (entry.match("*editable*winnow*") or entry.match("*winnow*.pth")):
            (there / entry.name).symlink_to(entry)
    (there / "reached.py").symlink_to(copy / "benchmarks" / "reached.py")
    (there / "winnow.pth").write_text(f"{copy}\n")
    for script in Path(sys.executable).parent.iterdir():
        target = folder / "bin" / script.name
        if script.read_bytes().startswith(first := f"#!{sys.executable}\n".encode()):
            target.write_bytes(script.read_bytes().replace(first, f"#!{folder}/bin/python\n".encode(), 1))
            target.chmod(0o755)
        elif not target.exists():  # a program of a package
            target.symlink_to(script)
    python = folder / "bin" / "python"
    asked = [python, "-c", "import runner, strategies; print(runner.__file__, strategies.__file__)"]
    said = subprocess.run(asked, cwd="/", env={}, text=True, check=True, capture_output=True).stdout
    if said.split() != [str(copy / room / "__init__.py") for room in ("runner", "strategies")]:
        raise RuntimeError(f"a process of the tests would run {said}")
    return python


@dataclass(frozen=True)
class Tests:
    """Runs tests in a copy of the tree."""

    copy: Path
    python: Path

    def run(self, tests: Sequence[str], *options: str, seconds: float = math.inf, longest: float = 0) -> str:
        """Return ``killed``, ``survived`` or ``timed out``.

        ``seconds``: that they take with nothing changed; ``longest``: the longest of them.
        """
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        environment["PATH"] = f"{self.python.parent}:{environment['PATH']}"
        (names := self.copy / "tests.txt").write_text("\n".join(tests))
        said = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", *options, f"@{names}"]
        if longest:  # a test in an endless loop ends them all
            said += ["-o", "faulthandler_exit_on_timeout=true"]
            said += ["-o", f"faulthandler_timeout={longest * _SLOWER + _SLACK:.0f}"]
        process = subprocess.Popen(
            [str(self.python), "-m", "pytest", *said], cwd=self.copy, text=True,
            env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        try:
            process.communicate(timeout=seconds * _SLOWER + _SLACK if seconds < math.inf else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timed out"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return "killed" if process.returncode else "survived"

    def recorded(self, rooms: Sequence[str]) -> reached.Reached:
        """Run all fast tests with nothing changed; return which of them run which block of the rooms' modules.

        Tests that count calls may fail where calls are written into the modules; those are run again without. Those
        that fail again, for instance of memory under its limit here, are left out, by name.
        """
        sources = {path: path.read_text() for room in rooms for path in modules(self.copy, room)}
        for path, source in sources.items():
            path.write_text(reached.with_calls(source, str(path.relative_to(self.copy))))
        self.run(["tests"], "-p", "reached", "-n", "2")
        for path, source in sources.items():
            path.write_text(source)
        found = reached.Reached.read(next(self.copy.glob(".venv/lib/python*/site-packages/reached.jsonl")))
        unusable = [test for test in found.failed if self.run([test]) != "survived"]
        if unusable:
            print(f"left out, they fail here with nothing changed: {', '.join(unusable)}", flush=True)
        for test in unusable:
            del found.seconds[test]
        return found

    def judge(self, mutant: Mutant, own: Sequence[str], recorded: reached.Reached) -> str:
        """Run the tests that may run what is changed, a room's ``own`` first; return what became of the mutant."""
        target, tests, others = self.copy / mutant.path, dict[str, float](), 0.0
        source = target.read_bytes()
        reaching = recorded.of(mutant.path, source.decode(), source.count(b"\n", 0, mutant.start) + 1)
        for test in sorted(reaching, key=lambda one: [not one.startswith((*own,)), not one.startswith(GOLDEN)]):
            other = not test.startswith((*own, GOLDEN))
            if not other or others + recorded.seconds[test] <= _OTHERS:
                tests[test] = recorded.seconds[test]
                others += tests[test] * other
        if not tests:
            return "survived"
        target.write_bytes(mutant.of(source))
        outcome = self.run([*tests], "-x", seconds=sum(tests.values()), longest=max(tests.values()))
        target.write_bytes(source)
        return outcome


def print_table(counts: Mapping[tuple[str, bool], Counter[str]]) -> None:
    """Print what became of the mutants of each room and half."""
    print_head("room", "half", "mutants", "killed", "survived", "timed out")
    for held in (False, True):
        rows = [(room, found) for (room, half), found in counts.items() if half == held]
        for room, found in [*rows, ("all", sum((found for _, found in rows), Counter()))]:
            figures = (found[one] for one in ("killed", "survived", "timed out"))
            print_row(room, "held back" if held else "seen", found.total(), *figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants, alike from each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="some of them")
    parser.add_argument("--held", type=Path, help="a file for the survivors among those held back")
    given = parser.parse_args()
    names = given.rooms.split(",")
    counts: defaultdict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory(prefix="winnow-mutations-") as place:
        copy = Path(place) / "winnow"
        copied(copy)
        tests = Tests(copy, installed(copy))
        recorded = tests.recorded(names)
        print(f"{sum(recorded.seconds.values()):.0f} s of tests with nothing changed", flush=True)
        for at, name in enumerate(names):
            for mutant in drawn(copy, name, (given.count + at) // len(names), given.seed):
                outcome = tests.judge(mutant, ROOMS[name][1].split(), recorded)
                counts[name, mutant.held][outcome] += 1
                line = f"{outcome}: {mutant.shown((copy / mutant.path).read_bytes())}"
                if outcome != "killed" and not mutant.held:
                    print(line, flush=True)
                elif outcome != "killed" and given.held:
                    with given.held.open("a") as held:
                        print(line, file=held)
                print(f"{name}: {sum(counts[name, half].total() for half in (False, True))} judged", flush=True)
            print_table({key: found for key, found in counts.items() if key[0] == name})
    print(f"seed {given.seed}\n")
    print_table(counts)


if __name__ == "__main__":
    main()
