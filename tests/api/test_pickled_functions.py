"""Functions by value: which are the same, what they return, what cannot be sent."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runner.api.pickled_functions import file_of, name_of, returns_nothing
from runner.errors import UsageError
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


def test_the_same_function_is_the_same_file_and_another_is_another() -> None:
    assert file_of(lacks("Neg"), "check").text == file_of(lacks("Neg"), "check").text
    texts = [file_of(one, "check").text for one in (lacks("Neg"), lacks("Abs"), asserts, Judge(2), Judge(3))]
    assert len(set(texts)) == len(texts)


def test_what_a_function_uses_of_its_module_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = file_of(asserts, "check").text
    monkeypatch.setitem(globals(), "LIMIT", 4)
    assert file_of(asserts, "check").text != before


def test_every_process_writes_the_same_file() -> None:
    body = (
        "from runner.api.pickled_functions import file_of\n"
        "from tests.api.programs import lacks\n"
        "sys.stdout.write(file_of(lacks('Neg'), 'check').text)"
    )
    said = {subprocess.run(script(body), capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(said) == 1


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


def test_a_function_keeps_its_name_where_it_has_one() -> None:
    functions = (asserts, Judge(1).silently, Judge(1), functools.partial(asserts, "model"), lambda *_: True, print)
    assert [name_of(one, "check") for one in functions] == ["asserts", "silently", "check", "asserts", "check", "print"]


def test_what_cannot_be_sent_is_one_clear_error() -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"^check: the function cannot be sent to a worker .*in_process=True$"):
        file_of(lambda *_: lock.locked(), "check")


def test_another_version_of_python_says_that_it_cannot_read_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    text = file_of(asserts, "check").text
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(ImportError, match=r"written by Python 3\.\d+, and other versions cannot read it"):
        exec(text, {})
