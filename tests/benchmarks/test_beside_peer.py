"""What a command costs, and what its answer is; models that are written piece by piece."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import generated_models
from benchmarks.beside_peer import (
    Limits,
    Question,
    Tool,
    measure,
    run,
)
from benchmarks.generated_models import by_nodes, by_weights, culprit, decoder_stack

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@pytest.mark.parametrize("inside", [True, False])
def test_models_are_valid_whether_their_weights_lie_inside_or_not(tmp_path: Path, monkeypatch, inside: bool) -> None:
    if not inside:
        monkeypatch.setattr(generated_models, "_MOST_INSIDE", 100)
    for write, count in ((lambda path: by_nodes(40, path), 40), (lambda path: decoder_stack(1, 8, path), 29)):
        path = tmp_path / "folder" / "model.onnx"
        write(path)
        assert (tmp_path / "folder" / "weights.bin").is_file() is not inside
        onnx.checker.check_model(path, full_check=True)
        model = onnx.load(path)
        assert len(model.graph.node) == count
        assert all(np.isfinite(onnx.numpy_helper.to_array(tensor)).all() for tensor in model.graph.initializer)
        assert culprit(path, 0.5) == (f"v{count // 2}", count)


def test_weights_have_the_size_that_was_asked_for(tmp_path: Path) -> None:
    by_weights(1, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size == pytest.approx(1e6, rel=0.03)


@linux
def test_memory_of_a_process_and_of_those_that_it_starts(tmp_path: Path) -> None:
    child = "import time; held = b'x' * 80_000_000; time.sleep(0.3)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}]); sys.exit(3)"
    cost = measure([sys.executable, "-S", "-c", code], tmp_path, {}, Limits(60), tmp_path / "log")
    assert cost.code == 3
    assert cost.stopped == ""
    assert cost.tree_mb > 80 > cost.job_mb > 1


@linux
@pytest.mark.parametrize(("limits", "words"), [(Limits(0.1), "0 s"), (Limits(60, 0.5), "0 MB")])
def test_a_command_that_takes_too_much_is_killed_with_all_that_it_started(tmp_path: Path, limits, words) -> None:
    cost = measure(["sh", "-c", "sleep 600 & echo $!; wait"], tmp_path, {}, limits, tmp_path / "log")
    assert cost.stopped == words
    assert cost.code == -9
    # it may have been stopped before it had started anything
    assert not [number for number in (tmp_path / "log").read_text().split() if Path(f"/proc/{number}/exe").exists()]


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    "tool", [Tool("winnow"), Tool("plain", options=("checker.preload=[]",)), Tool("a function", function=True)]
)
def test_winnow_is_measured(tmp_path: Path, tool: Tool) -> None:
    by_nodes(8, tmp_path / "model.onnx")
    found = run(tool, Question(tmp_path / "model.onnx", "v3"), tmp_path / "scratch", Limits(120))
    assert (found.left, found.exact, found.error) == (1, True, "")
    assert found.checks == found.search + found.trust > 4
    assert 0 < found.beside < found.cost.cpu
    assert found.disk_mb > 0
