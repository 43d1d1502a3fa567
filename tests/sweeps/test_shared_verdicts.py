"""Jobs of a sweep share verdicts on the same question, and on no other: each answers as it does alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from tests.fork_server import run_forked

HEAD = '<ir_version: 9, opset_import: ["": 18]> g '
_PRECISION = ("strategy=precision", "strategy.layer_errors=false", "checker.flaky=never")


def overflowing(folder: Path) -> Path:
    """Its input and one node leave the range of fp16, not that of bf16; another node loses the digits of bf16."""
    text = """(float[4] x) => (float[4] y) <float far = {60000}, float some = {3}, float wide = {64}> {
        [a] a = Mul (x, some) [b] b = Mul (a, far) [c] c = Div (b, far)
        [d] d = Add (c, wide) [e] e = Sub (d, wide) [y] y = Tanh (e)
    }"""
    onnx.save(parse_model(HEAD + text), str(folder / "net.onnx"))
    return folder / "net.onnx"


def sweep(folder: Path, *words: str) -> dict[str, dict[str, Any]]:
    """Run a sweep; return the result of each job by its number."""
    argv = [sys.executable, "-m", "runner", "-m", *words, "hydra/launcher=basic", f"hydra.sweep.dir={folder}"]
    done = run_forked(argv, cwd=folder.parent, timeout=300)
    assert done.returncode in (0, 7), done.stdout + done.stderr
    rows = json.loads((folder / "sweep.json").read_text())
    return {str(row["job"]): json.loads((folder / str(row["job"]) / "result.json").read_text()) for row in rows}


Verdicts = dict[tuple[str, int], str]


def verdicts(journals: list[Path]) -> dict[str, Verdicts]:
    """The verdicts of each context, whatever they cost; jobs that ask the same must have got the same."""
    found: dict[str, Verdicts] = {}
    for path in journals:
        header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
        told = {
            (one["ranges"], one["attempt"]): json.dumps([one["verdict"]["outcome"], one["verdict"].get("signature")])
            for one in lines
            if not one.get("void") and not one.get("invalid")
        }
        assert found.setdefault(json.dumps(header["context"]), told) == told
    return found


def alike(folder: Path, *words: str) -> dict[str, dict[str, Any]]:
    """Run a sweep whose jobs share a journal, and the same jobs each for itself; compare all verdicts and answers."""
    together = sweep(folder / "together", *words)
    alone = sweep(folder / "alone", *words, "journal.share=false")
    own = [path for name in alone for path in sorted((folder / "alone" / name).glob("journal*.jsonl"))]
    assert verdicts(sorted((folder / "together" / "journal").glob("*.jsonl"))) == verdicts(own)
    for name, result in together.items():
        told = {key: result[key] for key in ("status", "exit_code", "culprits", "message", "outcomes", "minimality")}
        assert told == {key: alone[name][key] for key in told}, name
    return together


@pytest.mark.slow
def test_precisions_and_types_of_inputs_are_questions_of_their_own(tmp_path: Path) -> None:
    model = overflowing(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([1.3, 2.7, -1.9, 0.4], np.float32))
    sides = ("strategy.low=float16,bfloat16", "strategy.keep_io=true,false", "strategy.margin=0.4,0.5")
    given = (f"model={model}", "inputs=files", f"inputs.path={tmp_path / 'x.npz'}", "checker.rtol=0.02")
    found = alike(tmp_path, *_PRECISION, *sides, *given)
    answers = [tuple(result["culprits"]) for result in found.values()]
    assert answers == [("b", "c")] * 4 + [("d", "e")] * 4
    assert sum(result["checks"]["reused"] for result in found.values()), "the aim changes no verdict"
