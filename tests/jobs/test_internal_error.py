"""A mistake of Winnow's own ends a run; what was paid for before is told all the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from runner.cli.task import _failed, ensure_result
from runner.jobs.run import run
from runner.report.summary import MistakeError
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.checker import CommandChecker
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.schema.strategy import ReduceSettings, StrategySettings, TriageSettings
from tests.jobs.models import saved
from tests.matrix import slow


def settings_of(folder: Path, strategy: StrategySettings) -> Settings:
    """A model of one node, and a command that passes everything."""
    saved(folder / "m.onnx", "g (float[2] x) => (float[2] y) { [neg] y = Neg(x) }")
    check = CommandChecker(command=[sys.executable, "-S", "-c", "import sys; sys.exit(0)", "{model}"])
    given = {"target": OnnxRuntimeBackend(), "reference": as_reference(OnnxRuntimeBackend)(), "inputs": RandomInputs()}
    return Settings(strategy=strategy, checker=check, model=str(folder / "m.onnx"), **given)


def boom(*_: Any, **__: Any) -> None:
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("strategy", "where"),
    [
        slow((ReduceSettings(), "runner.report.progress.LogObserver.finished")),
        (TriageSettings(), "runner.jobs.triage.run.write_bundle"),
    ],
    ids=["behind the last check", "between the steps of a triage"],
)
def test_all_checks_are_counted_wherever_it_happens(
    strategy: StrategySettings, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, boom)
    folder = tmp_path / "run"
    with pytest.raises(MistakeError) as caught:
        run(settings_of(tmp_path, strategy), folder, ())
    lines = [line for path in folder.rglob("journal*.jsonl") for line in path.read_text().splitlines()]
    assert caught.value.checks.search + caught.value.checks.trust == sum('"outcome"' in line for line in lines) > 0
    assert "boom" in str(caught.value.__cause__)


def test_the_checks_that_were_made_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.jobs.reduce.run.answered", boom)
    folder = tmp_path / "run"
    with pytest.raises(MistakeError) as caught:
        run(settings_of(tmp_path, ReduceSettings()), folder, ())
    ensure_result(_failed(caught.value, OmegaConf.create({}), folder), folder)
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "internal_error" and "RuntimeError: boom" in result["message"]
    lines = [line for path in folder.glob("journal*.jsonl") for line in path.read_text().splitlines()]
    assert result["checks"]["trust"] == sum('"outcome"' in line for line in lines) > 0
