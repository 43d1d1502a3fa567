"""Jobs of a sweep share verdicts on the same question, and on no other: each answers as it does alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.fork_server import run_forked

_PRECISION = ("strategy=precision", "strategy.layer_errors=false", "checker.flaky=never")


def overflowing(folder: Path) -> Path:
    """Its input and one node leave the range of fp16, not that of bf16; another node loses the digits of bf16."""
    weights = {"far": 60000.0, "some": 3.0, "wide": 64.0}
    made = [("Mul", "x", "some", "a"), ("Mul", "a", "far", "b"), ("Div", "b", "far", "c"), ("Add", "c", "wide", "d"),
            ("Sub", "d", "wide", "e"), ("Tanh", "e", None, "y")]  # fmt: skip
    nodes = [helper.make_node(op, [one for one in (a, b) if one], [out], name=out) for op, a, b, out in made]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])] for name in ("x", "y")]
    given = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "chain", *ends, given)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return path


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


@pytest.mark.slow
def test_what_is_kept_is_a_question_of_its_own(tmp_path: Path) -> None:
    """The failure needs Split, and that what it reads is no output: which prefix fails depends on what is shown."""
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [6]) for name in "xyz")
    y.type.tensor_type.shape.dim[0].dim_value = 2
    made = [("Relu", "x", "a"), ("Abs", "a", "b"), ("Split", "b", "s t u"), ("Sum", "s t u", "y"), ("Neg", "b", "z")]
    nodes = [helper.make_node(op, reads.split(), gives.split(), name=op) for op, reads, gives in made]
    nodes[2].attribute.append(helper.make_attribute("num_outputs", 3))
    graph = helper.make_graph(nodes, "split", [x], [y, z])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "net.onnx"
    )
    check = tmp_path / "check.py"
    check.write_text(
        "import onnx\n"
        "def check(model, inputs, expected):\n"
        "    graph = onnx.load(model).graph\n"
        "    hidden = 'b' not in {one.name for one in graph.output}\n"
        "    return not (hidden and 'Split' in {node.name for node in graph.node})\n"
    )
    sides = ("strategy=reduce_bisect", "strategy.reduce_inputs=true,false")
    given = (f"model={tmp_path / 'net.onnx'}", "checker=python", f"checker.file={check}", "checker.flaky=never")
    found = alike(tmp_path, *sides, *given)
    answers = [result["culprits"] for result in found.values()]
    assert answers == [["Split"], ["Relu", "Abs", "Split"]]
