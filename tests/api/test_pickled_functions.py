"""Functions by value: which are the same, what they return, what cannot be sent."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.api.pickled_functions import PATHS, confirm_parameters, file_of, name_of, returns_nothing
from runner.api.run import Given
from runner.exit_codes import UsageError
from runner.report.bundled_check_files import BY_VALUE, texts_of
from runner.schema.checker import PythonChecker
from tests.api.programs import lacks, script

LIMIT = 3


def asserts(model: str, inputs: Any, expected: Any) -> None:
    if not model:
        return
    assert len(inputs) < LIMIT


def judges(model: str, inputs: Any, expected: Any) -> bool | None:
    return True if inputs else None


async def later(model: str, inputs: Any, expected: Any) -> None:
    asserts(model, inputs, expected)


class Judge:
    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, model: str, inputs: Any, expected: Any) -> bool:
        return len(inputs) < self.most

    def silently(self, model: str, inputs: Any, expected: Any) -> None:
        assert len(inputs) < self.most


def called(function: Callable[..., Any], inputs: list[int]) -> Any:
    space: dict[str, Any] = {"__file__": "check.py"}
    exec(file_of(function, "check").text, space)
    return space[name_of(function, "check")]("model", inputs, [])


def test_the_same_function_is_the_same_file_and_another_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_of(lacks("Neg"), "check").text == file_of(lacks("Neg"), "check").text
    texts = [file_of(one, "check").text for one in (lacks("Neg"), lacks("Abs"), asserts, Judge(2), Judge(3))]
    monkeypatch.setitem(globals(), "LIMIT", 4)  # what a function uses of its module is part of it
    texts.append(file_of(asserts, "check").text)
    assert len(set(texts)) == len(texts)


def test_every_process_writes_the_same_file_also_of_a_module_that_was_compiled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judged.py").write_text("import sys\n\ndef check(model, inputs, expected):\n    return sys.platform\n")
    body = (
        "from runner.api.pickled_functions import file_of\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "sys.dont_write_bytecode = False\n"
        "from judged import check\n"
        "sys.stdout.write(file_of(check, 'check').text)"
    )
    said = subprocess.run(script(body), capture_output=True, text=True, check=True).stdout
    assert (tmp_path / "__pycache__").is_dir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert file_of(importlib.import_module("judged").check, "check").text == said


def test_a_cell_of_a_notebook_is_the_same_function_in_another_kernel() -> None:
    texts = set()
    for kernel in (12, 345):
        space: dict[str, Any] = {"__name__": "__main__"}
        cell = "def check(*_):\n    return lambda: True\n"
        exec(compile(cell, f"/tmp/ipykernel_{kernel}/67.py", "exec"), space)
        texts.add(file_of(space["check"], "check").text)
    assert len(texts) == 1


def test_a_file_begins_with_the_source_and_says_what_reads_it() -> None:
    text = file_of(asserts, "check").text
    source, _, rest = text.partition(f"{BY_VALUE}\n")
    assert source.startswith("# def asserts(model: str, inputs: Any, expected: Any) -> None:\n#     if not model:\n")
    assert rest.startswith('"""The check that a program gave to winnow')
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]} reads it" in rest
    assert file_of(print, "check").text.startswith("# (a function without source)\n")


def test_no_line_of_a_source_leaves_its_comment(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_bytes(b'def odd(*_):\n    return """\r  raise SystemExit(7)\r\n\x0c"""\n')
    space: dict[str, Any] = {}
    exec(compile(file.read_bytes(), str(file), "exec"), space)
    source = file_of(space["odd"], "check").text.partition(BY_VALUE)[0]
    assert ast.parse(source).body == []


def test_where_a_program_finds_modules_is_not_in_the_file_that_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_mine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "of_mine"))
    given = Given(tmp_path)
    given.add_check(asserts, None)
    holding = {path.name for path, content in given.contents.items() if b"of_mine" in content}
    assert holding == {PATHS}


def test_a_function_that_closes_over_much_has_it_beside_and_says_so_where_it_is_not(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    given = Given(tmp_path)
    given.add_check(lambda *_: data, None)
    given.write()
    (file,) = (tmp_path / "given").glob("*.py")
    (beside,) = (tmp_path / "given").glob("*.bin")
    assert file.stat().st_size < 10_000
    space: dict[str, Any] = {"__file__": str(file)}
    exec(file.read_text(), space)
    assert space["check"]("model", [], []) == data
    beside.write_bytes(b"other")
    with pytest.raises(ImportError, match="incomplete or was changed"):
        exec(file.read_text(), space)
    beside.unlink()
    with pytest.raises(ImportError, match=rf"bytes lie in {beside.name}"):
        exec(file.read_text(), space)


def test_the_modules_that_a_function_uses_are_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "of_program"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "judge": "from . import limits\n",
        "limits": "import json\nMOST = 2\n",
        "lazy": "",
        "other": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    judge = importlib.import_module("of_program.judge")

    def check(model: str, inputs: Any, expected: Any) -> Any:
        import of_program.lazy  # noqa: PLC0415

        return judge, of_program

    texts = [file_of(check, "check").text]
    for name in ("limits", "lazy", "judge", "__init__"):
        (package / f"{name}.py").write_text("# changed\n" + (package / f"{name}.py").read_text())
        texts.append(file_of(check, "check").text)
    assert len(set(texts)) == 5
    (package / "other.py").write_text("# changed\n")
    assert file_of(check, "check").text == texts[-1]
    assert "    of_program.limits (sha256 " in texts[-1]
    assert "json (" not in texts[-1]


@pytest.mark.parametrize(
    ("function", "key", "message"),
    [
        (lambda model: True, "check", r"^check: check\(model\) cannot be called .*check\(model, inputs, expected\)$"),
        (lambda model: {}, "inputs", r"^inputs: inputs\(model\) cannot be called .*called as inputs\(\)$"),
        (lambda model, inputs, expected, *, more: True, "check", "missing a required"),
        (dict, "check", "^check: the class dict is no function"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(function: Any, key: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        confirm_parameters(function, key)


def test_functions_methods_partials_and_objects_do_there_what_they_do_here() -> None:
    assert called(Judge(2), [1]) is True
    assert called(Judge(2), [1, 2]) is False
    assert called(functools.partial(lambda most, model, inputs, expected: len(inputs) < most, 2), [1, 2]) is False
    assert called(asserts, [1]) is None
    with pytest.raises(AssertionError):
        called(Judge(1).silently, [1])


@pytest.mark.parametrize(
    ("function", "silent"),
    [
        (asserts, True),
        (judges, False),
        (Judge(1), False),
        (Judge(1).silently, True),
        (functools.partial(asserts, "model"), True),
        (lambda *_: True, False),
        (print, False),
        (later, False),
    ],
)
def test_a_function_that_returns_nothing_is_known(function: Callable[..., Any], silent: bool) -> None:
    assert returns_nothing(function) is silent
    assert ("return GIVEN" in file_of(function, "check").text) is not silent


def test_functions_that_can_be_called_are_taken_and_keep_their_names() -> None:
    functions = (asserts, Judge(1).silently, Judge(1), functools.partial(asserts, "model"), lambda *_: True, print)
    for one in (*functions[:3], functools.partial(asserts), *functions[4:]):
        confirm_parameters(one, "check")
    assert [name_of(one, "check") for one in functions] == ["asserts", "silently", "check", "asserts", "check", "print"]


def test_what_cannot_be_sent_is_one_clear_error() -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"^check: the function cannot be sent to a worker .*\(a session, a file, a"):
        file_of(lambda *_: lock.locked(), "check")


def test_another_version_of_python_says_that_it_cannot_read_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    text = file_of(asserts, "check").text
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(ImportError, match=r"written by Python 3\.\d+, and other versions cannot read it"):
        exec(text, {})


def test_a_report_shows_the_source_alone(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(file_of(asserts, "check").text)
    (text,) = texts_of(PythonChecker(file="check.py", function="check"), tmp_path).values()
    assert "assert len(inputs) < LIMIT" in text and "cloudpickle" not in text
