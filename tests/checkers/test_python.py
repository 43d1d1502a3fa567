from __future__ import annotations

import numpy as np
import pytest

from runner.checkers.checker import Tools
from runner.checkers.python import PythonCheck
from runner.errors import UsageError
from runner.schema.checker import PythonChecker
from strategies.outcome import Outcome
from tests.checkers.conftest import MakeCandidate

X = {"x": np.array([1, 2], np.float32)}


def build(tools: Tools, body: str, **settings: object) -> PythonCheck:
    (tools.cwd / "mine.py").write_text(f"def check(model, inputs, expected):\n    {body}\n")
    return PythonCheck(PythonChecker(file="mine.py", **settings), tools)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "outcome", "detail"),
    [
        ("return True", Outcome.PASS, None),
        ("return inputs[1]['x'].sum() == 4", Outcome.FAIL, ""),
        ("return expected[0]['y'][0] == 7 and len(inputs) == 2", Outcome.PASS, None),
        ("return 'different'", Outcome.DIFFERENT, ""),
        ("return 'unresolved'", Outcome.UNRESOLVED, None),
        ("return {'outcome': 'fail', 'detail': 'off by 3', 'error': 0.5}", Outcome.FAIL, "off by #"),
        ("return {'outcome': True}", Outcome.PASS, None),
        ("return 'maybe'", Outcome.UNRESOLVED, None),
        ("return 1", Outcome.UNRESOLVED, None),
        ("return None", Outcome.UNRESOLVED, None),
        ("raise ValueError('what')", Outcome.UNRESOLVED, None),
    ],
)
def test_what_a_function_can_say(
    tools: Tools, candidate: MakeCandidate, body: str, outcome: Outcome, detail: str | None
) -> None:
    verdict = build(tools, body).check(candidate(None, X, X, expected={"y": np.array([7])}))
    assert verdict.outcome is outcome, verdict
    assert (verdict.signature.detail if verdict.signature else None) == detail
    if "error" in body:
        assert verdict.metrics == {"error": 0.5}
    if "raise" in body:
        assert "ValueError: what" in verdict.reason


def test_what_it_prints_is_kept(tools: Tools, candidate: MakeCandidate) -> None:
    verdict = build(tools, "print('spoken'); return True").check(candidate(None, X))
    assert verdict.log and "spoken" in (tools.run_folder / verdict.log).read_text()


def test_deaths_and_time(tools: Tools, candidate: MakeCandidate) -> None:
    verdict = build(tools, "import os; os.kill(os.getpid(), 11)").check(candidate(None, X))
    assert str(verdict.signature) == "check: death MEMORY" and verdict.outcome is Outcome.FAIL
    verdict = build(tools, "import time; time.sleep(60)", timeout=0.5).check(candidate(None, X))
    assert str(verdict.signature) == "check: timeout"


def test_files_and_functions_that_do_not_exist(tools: Tools, candidate: MakeCandidate) -> None:
    with pytest.raises(UsageError, match=r"checker\.file is missing"):
        PythonCheck(PythonChecker(), tools)
    with pytest.raises(UsageError, match="no such file"):
        PythonCheck(PythonChecker(file="none.py"), tools)
    with pytest.raises(UsageError, match="chekc"):
        build(tools, "return True", function="chekc").check(candidate(None, X))


def test_identity_follows_the_file(tools: Tools) -> None:
    assert build(tools, "return True").identity() != build(tools, "return False").identity()
