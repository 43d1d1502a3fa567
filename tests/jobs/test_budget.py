"""A budget that ends a run before anything was shown: exit code 3, and the command that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import by_command, check_script, winnow
from tests.jobs.models import saved


@pytest.fixture
def overflow(tmp_path: Path) -> Path:
    text = """g (float[4] x) => (float[4] y) <float a = {1000.0}, float b = {1000000.0}> {
        [up] h = Mul(x, a) [more] i = Mul(h, a) [down] y = Div(i, b) }"""
    return saved(tmp_path / "m.onnx", text)


def test_all_layers_are_no_answer_of_a_precision(overflow: Path, tmp_path: Path) -> None:
    run = winnow("strategy=precision", f"model={overflow}", "budget.checks=0", folder=tmp_path / "run")
    assert run.code == 3, run.output
    assert run.result["message"].startswith(
        "the budget was reached before a smaller set than the whole was shown to pass"
    )
    assert not (run.folder / "mixed.onnx").exists()
    assert "budget.checks=null budget.seconds=null" in run.output


@pytest.mark.slow
def test_no_iteration_is_no_answer_of_a_repeat(overflow: Path, tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "pass"))
    run = winnow("strategy=repeat", f"model={overflow}", *check, "budget.checks=0", folder=tmp_path / "run")
    assert run.code == 3, run.output


def test_a_repeat_that_is_planned_checks_nothing(tmp_path: Path) -> None:
    given = (*by_command(check_script(tmp_path, "pass")), "plan=true")
    run = winnow("strategy=repeat", *given, folder=tmp_path / "run")
    assert run.result["status"] == "planned" and not any(run.result["checks"].values()), run.output
    assert "plan     search: as many checks as it takes (strategy.until)\n" in run.output, run.output
    assert "confirm:" not in run.output and "time:" not in run.output, run.output
