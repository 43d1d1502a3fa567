"""python -m benchmarks.trt_failures PYTHON_WITH_TENSORRT [NAME ...]: planted build failures, and what is found of them.

Each is planted in the middle of a ResNet-50 of more than 150 nodes and reduced with ``checker=builds``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.trt_networks import CULPRIT, FAILURES, resnet


def main(python: str, *names: str) -> int:
    """Print a row for each failure; return how many were not cut down to their culprits."""
    wrong = 0
    print("| planted | nodes | found | search | trust | seconds | minimal | fails with |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names or FAILURES:
        failure = FAILURES[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            model = resnet(failure.opset, failure.plant)
            onnx.save(model, str(folder / "net.onnx"))
            given = [f"model={folder / 'net.onnx'}", "checker=builds", "target=tensorrt", f"target.python={python}"]
            command = [sys.executable, "-m", "runner", *given, *failure.options, f"hydra.run.dir={folder / 'run'}"]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            result = json.loads((folder / "run" / "result.json").read_text())
        planted = {node.name for node in model.graph.node if node.name.startswith(CULPRIT)}
        found = result["culprits"] or [result["message"] or ended.stderr[-200:]]
        signature = result["signature"] or {}
        said = f"{signature.get('stage')}: {signature.get('kind')}"
        right = set(result["culprits"] or ()) <= planted and result["status"] == "found" and failure.said in said
        wrong += not right
        checks, seconds = result["checks"], result["seconds"]["total"]
        row = (name, len(model.graph.node), ", ".join(found), checks["search"], checks["trust"], f"{seconds:.1f}")
        print(
            "|",
            " | ".join(map(str, (*row, result.get("minimality"), said))),
            "|" if right else "| <- WRONG",
            flush=True,
        )
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else print(__doc__) or 2)
