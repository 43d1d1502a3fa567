"""Check scripts as people write them: a sample; the benchmark has all."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
check_scripts = pytest.importorskip("benchmarks.check_scripts")

ROWS = [
    ("by name, assert_allclose", "nan"),
    ("by name, swallowed", "mismatch"),
    ("a child process", "crash"),
    ("a function, assert", "mismatch"),
    ("references by key", "crash"),
    ("own feed, assert_allclose", "crash"),
    ("own feed, sys.exit(str(e))", "crash"),
    ("own feed, a function", "crash"),
    ("random data, own parent", "crash"),
    ("given inputs, own expected", "crash"),
    ("a module that goes missing", "crash"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "model"), ROWS)
def test_right_or_exit_3_with_advice(tmp_path: Path, script: str, model: str) -> None:
    row = check_scripts.judge(model, script, tmp_path / "work")
    assert row.right, row
