"""Which sockets a run opens: a reduction with ONNX Runtime on both sides, under strace.

The C library asks a daemon of this machine (nscd) for the name of a user through a local socket, where it has one. That
is the only one there may be: nothing of a user's model leaves the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[1]
STRACE = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=socket,socketpair")
_FAMILY = re.compile(r"socket(?:pair)?\((\w+)")


def products(path: Path, nodes: int = 4) -> None:
    """Write a chain of products in fp16, which rounds otherwise when it is optimized."""
    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((draw.standard_normal((256, 256)) / 16).astype(np.float16), f"w{i}")
        for i in range(nodes)
    ]
    made = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"n{i}") for i in range(nodes)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 256]) for name in ("t0", f"t{nodes}")]
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def sockets(place: Path) -> Counter[str]:
    """Run it; return how many sockets all its processes have opened, by family. It must find an answer."""
    place.mkdir(parents=True, exist_ok=True)
    products(place / "net.onnx")
    traced = place / "traced"
    exact = ["checker=compare", "checker.rtol=0", "checker.atol=0", "checker.flaky=never"]
    command = [sys.executable, "-m", "runner", "model=net.onnx", "strategy=reduce_bisect", *exact, "hydra.run.dir=out"]
    unguarded = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}  # a run sets it
    done = subprocess.run(
        [*STRACE, "-o", str(traced), *command],
        cwd=place,
        env={**unguarded, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Counter(_FAMILY.findall(traced.read_text()))
