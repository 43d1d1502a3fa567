"""The mutants of a room: a draw is the same each time, each of them is Python, and half is held back."""

from __future__ import annotations

import ast
import json
import subprocess
import sysconfig
from pathlib import Path

import pytest

from benchmarks import mutations, reached

SOURCE = '''
"""Texts stay: 1 < 2."""
log.info("a", 1)
def first(least: int = 3) -> bool:
    if not least or (least < 4 and True):
        raise ValueError(1)
    least += 1
    return max(least, key=abs) is Answer.YES
'''
NEW = {"((not least))", "((least < 4 and True))", " and (", "bool(least)", "((True))", "((least < 4))", " <= ", " or "}
NEW |= {"", "pass", "min", "Answer.NO", " is not ", "4", "5", "2", "False"}


def test_what_is_changed_and_what_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "one.py").write_text(SOURCE)
    drawn = mutations.drawn(tmp_path, "strategies", 100, 1)
    assert drawn == mutations.drawn(tmp_path, "strategies", 100, 1)
    changed = [mutant.of(SOURCE.encode()).decode() for mutant in drawn]
    assert all(ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE)) for text in changed)
    assert all("1 < 2" in text and '"a", 1' in text and "ValueError(1)" in text for text in changed)
    assert {mutant.new for mutant in drawn} == NEW
    assert [mutant.held for mutant in drawn] == [bool(at % 2) for at in range(len(drawn))]


@pytest.mark.parametrize("room", mutations.ROOMS)
def test_each_room_has_modules_and_tests(room: str) -> None:
    modules, tests = mutations.ROOMS[room]
    assert all(list(mutations.ROOT.glob(pattern)) for pattern in modules.split())
    assert all((mutations.ROOT / place).exists() for place in tests.split())


def test_a_process_with_an_empty_environment_runs_the_copy(tmp_path: Path) -> None:
    mutations.copied(copy := tmp_path / "winnow")
    paths = {path: path.read_text() for path in Path(sysconfig.get_path("purelib")).glob("*.pth")}
    python = mutations.installed(copy)
    assert paths == {path: path.read_text() for path in paths}  # where the tests themselves run nothing changes
    text = copy / "runner" / "text.py"
    text.write_text(f"{text.read_text()}\nMUTATED = True\n")
    asked = [python, "-c", "from runner.text import MUTATED; import onnx, numpy; print(MUTATED)"]
    assert subprocess.run(asked, cwd="/", env={}, text=True, check=True, capture_output=True).stdout == "True\n"
    subprocess.run([python, "-m", "ruff", "--version"], cwd="/", check=True, capture_output=True)


BLOCKS = '''
def first(least):
    """Its text."""
    if least:
        return 1
    elif least is None:
        return [
            2]
    return 3
LIMIT = 4
'''
SEEN = [
    {"block": "one.py:4", "test": "tests/a.py::first (call)", "own": True},
    {"block": "one.py:7", "test": "tests/a.py::first (setup)", "own": True},
    {"block": "one.py:5", "test": "tests/b.py::second[a b] (call)", "own": False},
    {"test": "tests/a.py::first", "seconds": 3.0, "failed": True},
    {"test": "tests/a.py::third", "seconds": 1.0, "failed": False},
    {"test": "tests/b.py::second[a b]", "seconds": 2.0, "failed": False},
]


def test_a_line_is_run_by_the_tests_that_run_its_block(tmp_path: Path) -> None:
    assert reached.blocks(BLOCKS) == {4: 9, 5: 5, 7: 8}
    changed = reached.with_calls(BLOCKS, "one.py")
    assert ast.get_docstring(ast.parse(changed).body[0]) == "Its text."  # type: ignore[arg-type]
    assert changed.count("__import__") == 3
    (file := tmp_path / "reached.jsonl").write_text("\n".join(map(json.dumps, SEEN)))
    found = reached.Reached.read(file)
    assert found.failed == ["tests/a.py::first"]
    every = ["tests/b.py::second[a b]", "tests/a.py::third", "tests/a.py::first"]
    for line, tests in ((6, every[2:]), (8, every[1:]), (5, every[:1]), (10, every)):
        assert found.of("one.py", BLOCKS, line) == tests
