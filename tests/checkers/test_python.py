from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runner import machine
from runner.checkers.python import PythonCheck
from runner.exit_codes import NotTried, UsageError
from runner.judgment import MEASURE
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import PythonChecker
from runner.schema.root import Settings
from runner.schema.strategy import ReduceSettings
from runner.verdict import Raised
from strategies.search import Outcome
from tests.checkers.conftest import Here

X = {"x": np.array([1, 2], np.float32)}


def build(here: Here, body: str, **settings: object) -> PythonCheck:
    (here.cwd / "mine.py").write_text(f"def check(model, inputs, expected):\n    {body}\n")
    return PythonCheck(PythonChecker(file="mine.py", **settings), here)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "outcome", "detail"),
    [
        ("return True", Outcome.PASS, None),
        ("return inputs[1]['x'].sum() == 4", Outcome.FAIL, ""),
        ("return expected[0]['y'][0] == 7 and len(inputs) == 2", Outcome.PASS, None),
        ("return 'different'", Outcome.DIFFERENT, ""),
        ("return 'unresolved'", Outcome.UNRESOLVED, None),
        ("return {'outcome': 'fail', 'detail': 'off by 3', 'error': 0.5, 'table': 3}", Outcome.FAIL, "off by #"),
        ("return {'outcome': True}", Outcome.PASS, None),
        ("return 'maybe'", Outcome.UNRESOLVED, None),
        ("return 1", Outcome.UNRESOLVED, None),
        ("return None", Outcome.UNRESOLVED, None),
        ("raise ValueError('what')", Outcome.FAIL, "ValueError at _: what"),
        ("assert inputs[0]['x'].sum() == 3", Outcome.PASS, None),
        ("import no_such_module", Outcome.UNRESOLVED, None),
    ],
)
def test_what_a_function_can_say(here: Here, body: str, outcome: Outcome, detail: str | None) -> None:
    verdict = build(here, body).check(here.candidate(None, X, X, expected={"y": np.array([7])}))
    assert verdict.outcome is outcome, verdict
    assert (verdict.signature.detail if verdict.signature else None) == detail
    if "error" in body:
        assert verdict.metrics == {"error": 0.5}
    if "raise" in body:
        assert verdict.reason == "ValueError at mine.py:2: what"
        assert verdict.signature and verdict.signature.raised == Raised(("ValueError at mine.py:2",), "check")


@pytest.mark.parametrize(
    ("limit", "body", "outcome"),
    [
        ({"max_drop": 0.02}, "return 0.79", Outcome.PASS),
        ({"max_drop": 0.02}, "return 0.77", Outcome.FAIL),
        ({"max_drop": 0.02}, "return 0.9", Outcome.PASS),
        ({"max_drop": "5%"}, "return 0.77", Outcome.PASS),
        ({"max_drop": "5%"}, "return {'value': 0.75, 'images': 12}", Outcome.FAIL),
        ({"max_rise": 0.1}, "return inputs[0]['x'].mean() - 0.65", Outcome.PASS),
        ({"max_rise": "10%"}, "return 1", Outcome.FAIL),
        ({"max_drop": 0.02}, "return float('nan')", Outcome.FAIL),
        ({"max_drop": 0.02}, "return False", Outcome.FAIL),
        ({"max_drop": 0.02}, "return {'images': 12}", Outcome.UNRESOLVED),
    ],
)
def test_a_number_against_a_baseline(here: Here, limit: dict[str, object], body: str, outcome: Outcome) -> None:
    verdict = build(here, body, baseline=0.8, **limit).check(here.candidate(None, X))
    assert verdict.outcome is outcome, verdict
    assert ("that is allowed; " in verdict.reason) is (MEASURE in verdict.metrics and outcome is Outcome.FAIL)
    if body == "return 0.77" and outcome is Outcome.FAIL:
        assert verdict.reason.startswith("0.77, 1.5 times the drop that is allowed; the baseline is 0.8")


def test_the_first_number_that_passes_is_the_baseline(here: Here) -> None:
    check = build(here, "return float(inputs[0]['x'].sum())", max_drop="10%")
    first = check.check(here.candidate(None, X))
    assert (first.outcome, first.metrics) == (Outcome.PASS, {"value": 3.0})
    check.settle(first)
    assert check.check(here.candidate(None, {"x": np.array([2.0], np.float32)})).outcome is Outcome.FAIL
    assert check.check(here.candidate(None, {"x": np.array([2.8], np.float32)})).outcome is Outcome.PASS


def test_the_number_of_the_reference_is_the_baseline(here: Here) -> None:
    (here.cwd / "mine.py").write_text("def check(model, inputs, expected):\n    return len(model) / 100\n")
    (here.cwd / "good.onnx").write_bytes(b"")
    checker = PythonChecker(file="mine.py", max_rise=0.03)
    settings = Settings(strategy=ReduceSettings(), checker=checker, reference=OnnxRuntimeBackend())
    with pytest.raises(UsageError, match="which number is good"):
        PythonCheck(checker, here, settings)
    own = replace(settings, reference=OnnxRuntimeBackend(model="good.onnx"))
    for name, outcome in (("goos.onnx", Outcome.PASS), ("a-longer-name.onnx", Outcome.FAIL)):
        assert PythonCheck(checker, here, own).check(here.candidate(here.cwd / name, X)).outcome is outcome
    (here.cwd / "mine.py").write_text("def check(model, inputs, expected):\n    return {'outcome': True}\n")
    silent = PythonCheck(checker, here, own)
    verdict = silent.check(here.candidate(here.cwd / "m.onnx", X))
    assert verdict.outcome is Outcome.UNRESOLVED and "no number of reference.model is known" in verdict.reason
    assert not silent.reads_expected
    (here.cwd / "mine.py").write_text("def check(model, inputs, expected)\n")
    assert not silent.reads_expected


@pytest.mark.parametrize("limits", [{"max_drop": "much"}, {"max_rise": -1}, {"max_drop": 1, "max_rise": 1}])
def test_limits_that_are_none(here: Here, limits: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"checker\.max_(drop|rise)="):
        build(here, "return 1.0", **limits)


def test_what_it_prints_is_kept(here: Here) -> None:
    verdict = build(here, "print('spoken'); return True").check(here.candidate(None, X))
    assert verdict.log and "spoken" in (here.run_folder / verdict.log).read_text()


def test_deaths_and_time(here: Here) -> None:
    verdict = build(here, "import os; os.kill(os.getpid(), 11)").check(here.candidate(None, X))
    assert str(verdict.signature) == "check: death MEMORY" and verdict.outcome is Outcome.FAIL
    assert verdict.failure == "check: crash (bad memory access, or abort)" and "death" not in verdict.reason
    verdict = build(here, "import time; time.sleep(60)", timeout=0.5).check(here.candidate(None, X))
    assert str(verdict.signature) == "check: timeout"


def test_what_takes_the_machines_memory_is_not_judged(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "share_mb", lambda: 300)
    eats = "import time; data = b'x' * (400 << 20); time.sleep(60)"
    with pytest.raises(NotTried, match="300 MiB"):
        build(here, eats).check(here.candidate(None, X))
    assert build(here, eats, memory_mb=300).check(here.candidate(None, X)).outcome is Outcome.FAIL


def test_a_file_that_does_not_exist(here: Here) -> None:
    with pytest.raises(UsageError, match="no such file"):
        PythonCheck(PythonChecker(file="none.py"), here)


def test_identity_follows_what_the_file_imports(here: Here) -> None:
    (here.cwd / "beside.py").write_text("limit = 1")
    first = build(here, "import beside; return True").identity()
    (here.cwd / "beside.py").write_text("limit = 2")
    assert build(here, "import beside; return True").identity() != first


def test_a_module_that_goes_missing_in_mid_run_is_unresolved(here: Here) -> None:
    beside = here.cwd / "beside_mine.py"
    beside.write_text("GOOD = True")
    (here.cwd / "mine.py").write_text("import beside_mine\ndef check(m, i, e):\n    return beside_mine.GOOD\n")
    check = PythonCheck(PythonChecker(file="mine.py"), here)
    draws = {"draws": True}  # in a worker of its own each time
    assert check.check(here.candidate(None, X, **draws)).outcome is Outcome.PASS
    beside.unlink()
    verdict = check.check(here.candidate(None, X, **draws))
    assert verdict.outcome is Outcome.UNRESOLVED and "beside_mine" in verdict.reason
