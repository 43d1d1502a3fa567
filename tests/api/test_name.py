"""`import winnow_onnx as winnow`: the same names as `runner.api`, whatever other package is called runner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import runner.api
import winnow_onnx
from tests.harness import ROOT


def test_it_gives_what_the_api_gives() -> None:
    assert {*dir(winnow_onnx)} == {*runner.api.__all__}
    assert all(getattr(winnow_onnx, name) is getattr(runner.api, name) for name in runner.api.__all__)
    assert not hasattr(winnow_onnx, "nothing_like_it")


def test_another_package_called_runner_is_in_nobody_s_way(tmp_path: Path) -> None:
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "__init__.py").write_text("own = 1\n")

    def said(script: str) -> subprocess.CompletedProcess[str]:
        start = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({str(ROOT)!r})\n"
        argv = [sys.executable, "-c", start + script]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    first = said(
        "import winnow_onnx as winnow; from winnow_onnx import *; print(winnow.Result is Result, len(sys.path))"
    )
    assert first.stdout.startswith("True"), first.stderr
    theirs = said("import runner, winnow_onnx as winnow; print(runner.own); winnow.reduce")
    assert theirs.stdout == "1\n" and "Winnow has a package of this name. Import winnow_onnx first" in theirs.stderr
