"""python -m benchmarks.beside_nncf PYTHON_WITH_NNCF: which layers stay float, beside NNCF's accuracy control.

The networks of `quantized_layers` in static int8, from the float model. Both are given the same samples and tolerance;
calibration counts. Evaluations: each call of the validation function, each check of Winnow's.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

from benchmarks.quantized_layers import LAYERS, SPECS, Planted, ask, error, made, ran

NNCF = """
import json, sys, time, warnings
import nncf, numpy as np, onnx, onnxruntime
from pathlib import Path

at, rtol, count = Path(sys.argv[1]), float(sys.argv[2]), 0
samples = [dict(np.load(at / "samples" / f"{number}.npz")) for number in range(len(list((at / "samples").iterdir())))]

def ran(model, number):
    # its models are not loaded where ONNX Runtime's fusions rename what they make
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, samples[one]) for one in number]

model = onnx.load(at / "float.onnx")
good = ran(model, range(len(samples)))

def validate(model, data):
    global count
    count += 1
    data = list(data)
    pairs = zip(ran(model, data), (good[one] for one in data))
    errors = [max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(mine, best)) for mine, best in pairs]
    return 1 - max(errors), [1 - one for one in errors]

begun = time.time()
data = nncf.Dataset(list(range(len(samples))))
searched = [one for number, one in enumerate(samples) if number % 3 != 2]
told = dict(max_drop=rtol, drop_type=nncf.DropType.ABSOLUTE)
made = nncf.quantize_with_accuracy_control(model, nncf.Dataset(searched), data, validate, **told)
onnx.save(made, at / "nncf.onnx")
print(json.dumps({"evaluations": count, "seconds": time.time() - begun}))
"""


def stays(model: onnx.ModelProto, layers: list[str]) -> int:
    """Return how many layers read something that is not quantized."""
    made_by = {name: node.op_type for node in model.graph.node for name in node.output}
    held = (node for node in model.graph.node if node.name in layers and node.op_type in LAYERS)
    return sum(any(made_by.get(name) != "DequantizeLinear" for name in node.input[:2]) for node in held)


def rows(planted: Planted, at: Path, python: str) -> list[tuple[str, ...]]:
    """Return the rows of both for a network."""
    begun = time.time()
    told = ask(planted, at, "float")
    seconds, good = time.time() - begun, ran(planted.tool.parent, planted.fresh)
    checks = sum(told["checks"][key] for key in ("search", "trust"))
    mixed = onnx.load(at / "run" / "mixed.onnx")
    answers = [("Winnow", len(told["culprits"]), mixed, checks, seconds)]
    done = subprocess.run([python, "-c", NNCF, str(at), str(planted.rtol)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        other, model = json.loads(done.stdout.strip().splitlines()[-1]), onnx.load(at / "nncf.onnx")
        kept = stays(model, planted.tool.layers)
        answers.append(("NNCF", kept, model, other["evaluations"], other["seconds"]))
    found = []
    for who, kept, model, evaluations, spent in answers:
        off = error(ran(model, planted.fresh), good) / planted.rtol
        counts = f"{kept} of {len(planted.tool.layers)}", f"{off:.2f}", str(evaluations), f"{spent:.1f}"
        found.append((planted.spec.name, planted.spec.half, who, *counts))
    return found


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    titles = "network", "half", "tool", "layers in float", "error / tolerance, fresh", "evaluations", "seconds"
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|", flush=True)
    with tempfile.TemporaryDirectory(prefix="beside-nncf-") as folder:
        for spec in (one for one in SPECS if one.form == "static int8"):
            with contextlib.redirect_stdout(io.StringIO()):
                planted = made(spec)
            for row in rows(planted, Path(folder) / spec.name.replace(" ", "_"), sys.argv[1]):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
