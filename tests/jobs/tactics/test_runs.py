"""Where tactics cannot be had: said before any work, with the next command."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.harness import ROOT, winnow

MODEL = f"model={ROOT / 'examples' / 'overflow.onnx'}"


@pytest.mark.parametrize("strategy", ["tactic_repeat", "tactic_isolate"])
def test_rtx_times_no_tactics(strategy: str, rtx_python: str, tmp_path: Path) -> None:
    run = winnow(
        *(f"strategy={strategy}", MODEL, "target=tensorrt", f"target.python={rtx_python}", "checker=builds"),
        folder=tmp_path / "run",
    )
    assert (run.code, run.result["status"]) == (6, "not_applicable"), run.output
    assert "times no tactics" in run.output
    assert "strategy=repeat checker=builds target=tensorrt" in run.output
    assert not (run.folder / "store").exists() and not (run.folder / "journal.jsonl").exists(), "before any work"


@pytest.mark.variants
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("target=onnxruntime", "checker=runs"), "no engine is built there. Set target=tensorrt"),
        (("target=tensorrt", "checker=python", "checker.file=x.py"), "it is handed no engine"),
        (("target=tensorrt", "checker=builds", "sanitize.fold=true"), "Sanitize the file before"),
        (("target=tensorrt", "checker=builds", "target.timing_cache=x"), "all builds choose alike"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def check(model, inputs, expected):\n    return True\n")
    run = winnow("strategy=tactic_repeat", MODEL, *words, folder=tmp_path / "run")
    assert run.code == 2 and said in run.output, run.output


def test_without_tensorrt_one_line_says_what_to_install(tmp_path: Path) -> None:
    for name in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        if importlib.util.find_spec(name):
            pytest.skip(f"{name} is installed under this interpreter")
    run = winnow("strategy=tactic_repeat", MODEL, "target=tensorrt", "checker=builds", folder=tmp_path / "run")
    assert run.code == 2 and "pip install tensorrt" in run.output.splitlines()[-1]
