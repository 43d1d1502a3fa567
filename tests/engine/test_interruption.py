"""Ctrl-C and SIGTERM while a check hangs: the run ends at once, with the best so far, and can go on."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import onnx
import pytest

from tests.harness import ROOT, by_command, check_script, goes_on, interrupted, winnow

MODEL = f"model={ROOT / 'examples' / 'overflow.onnx'}"
CULPRIT = "/bert/encoder/layer.5/output/dense/MatMul"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "workers"), [(signal.SIGINT, 130, 3), (signal.SIGTERM, 143, 1)])
def test_an_interruption_while_a_check_hangs(tmp_path: Path, number: signal.Signals, code: int, workers: int) -> None:
    hanging, hang = tmp_path / "hanging", tmp_path / "hang"
    hang.touch()
    body = (
        "import os, time\n"
        f"if len(nodes) < 100 and os.path.exists({str(hang)!r}):\n"
        f"    open({str(hanging)!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        f"sys.exit(1 if {CULPRIT!r} in nodes else 0)"
    )
    given = (MODEL, f"workers.count={workers}", *by_command(check_script(tmp_path, body)))
    folder = tmp_path / "run"
    assert interrupted(*given, folder=folder, ready=hanging, number=number, pause=0.5) == code
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["exit_code"]) == ("interrupted", code)
    assert goes_on(folder)
    assert result["checks"]["search"] + result["checks"]["trust"] == sum(result["outcomes"].values())
    if result["model"]:
        assert len(onnx.load(str(folder / result["model"])).graph.node) == result["nodes"]["after"] < 561
        assert CULPRIT in result["culprits"]
    hang.unlink()
    run = winnow(*given, f"resume={folder}", folder=folder)
    assert run.code == 0, run.output
    assert run.result["culprits"] == [CULPRIT]
    assert run.result["checks"]["reused"] > 0


@pytest.mark.slow
def test_repeats_of_what_is_handed_over_are_paid_for_once(tmp_path: Path) -> None:
    """A run that is resumed checks its files once more; that they fail reliably is known."""
    body = f"open({str(tmp_path / 'seen')!r}, 'a').write('.')\nsys.exit(1 if {CULPRIT!r} in nodes else 0)"
    command = [word for word in by_command(check_script(tmp_path, body)) if "flaky" not in word]
    folder, seen = tmp_path / "run", tmp_path / "seen"
    first = winnow(MODEL, *command, folder=folder)
    assert first.code == 0, first.output
    paid = len(seen.read_text())
    again = winnow(MODEL, *command, f"resume={folder}", folder=folder)
    assert again.result["culprits"] == first.result["culprits"] == [CULPRIT]
    assert len(seen.read_text()) - paid == 2, again.output  # reduced.onnx, min_good.onnx
