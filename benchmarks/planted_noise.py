"""python -m benchmarks.planted_noise [--out DIR] [--only NAME ...] [--half seen|held]: is rounding taken for the cause?

Each model is a parent in fp32 and a child, quantized (QDQ) or in fp16, with a planted fault whose error at the outputs
is five times the tolerance or more, and noise: nodes that are just over the tolerance on their own inner tensor, and
far below it at the outputs. Noise stands before the fault, after it, beside it, or on both sides. What is planted is
verified here with ONNX Runtime node by node; a model that does not have these properties is not used.

For each model Winnow runs with ``checker=compare``, and with a command that prints its error, with and without
``checker.measure``; each time with both orders of bisection (``strategy.first``).
"""

from __future__ import annotations

import argparse
import json
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks.planted_faults import generated
from benchmarks.planted_models import (
    ATOL,
    RTOL,
    SPECS,
    Planted,
    Spec,
    UnfitError,
    in_tolerances,
    minimal,
    outputs,
)
from benchmarks.planted_networks import Evaluator

CLIENT = """import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall(("\\n".join(sys.argv[2:]) + "\\n\\n").encode())
code, _, text = link.makefile().read().partition("\\n")
print(text)
sys.exit(int(code))
"""


class Checks(socketserver.ThreadingUnixStreamServer):
    """Judges for the command that Winnow runs, so that no check waits for Python to import a runtime."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Check)
        self.evaluator = Evaluator()
        self.lock = threading.Lock()


class _Check(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        words = []
        while line := self.rfile.readline().decode().strip():
            words.append(line)
        assert isinstance(self.server, Checks)
        try:
            with self.server.lock, np.errstate(all="ignore"):
                error = judged(*words, evaluator=self.server.evaluator)
            code, said = (
                (3, "nothing to compare") if error is None else (int(error > 1), f"error {min(error, 1e30):.4g}")
            )
        except Exception as error:  # noqa: BLE001 - it is told
            code, said = 3, f"{type(error).__name__}: {error}"
        self.wfile.write(f"{code}\n{said}".encode())


def judged(model: str, inputs: str, references: str, *, evaluator: Evaluator) -> float | None:
    """Return the error of a candidate in tolerances; None where nothing says what its outputs should be."""
    candidate = onnx.load(model)
    with np.load(inputs) as feeds, np.load(references) as good:
        values = evaluator.run(candidate, dict(feeds))
        names = [name for name in outputs(candidate) if name in good]
        return max(in_tolerances(values[name], good[name]) for name in names) if names else None


@dataclass(frozen=True)
class Way:
    """How Winnow is asked: the checker, and which end is looked for first."""

    check: str
    first: str

    def options(self, folder: Path) -> list[str]:
        """Return the overrides on the command line; ``folder``: where the command's client lies."""
        if self.check == "compare":
            return ["checker=compare", "checker.metric=scale", f"checker.rtol={RTOL}", f"checker.atol={ATOL}"]
        argv = [sys.executable, "-S", "-E", str(folder / "client.py"), str(folder / "socket"),
                "{model}", "{inputs}", "{references}"]  # fmt: skip
        options = ["checker=command", f"checker.command={json.dumps(argv)}", "checker.invalid_codes=[3]"]
        return options + (["checker.measure='error ([0-9.e+-]+)'"] if self.check == "measured" else [])


WAYS = (Way("compare", "start"), Way("compare", "end"), Way("measured", "start"), Way("plain", "start"))


def right(planted: Planted, nodes: Collection[str], evaluator: Evaluator) -> str:
    """Return ``right`` for a set that holds a faulty node and of which none can be spared, else what it is."""
    held = [fault for fault in planted.faults if fault & set(nodes)]
    # what a quantized tensor should hold may be told by its node, or by nobody: both are right; the first node of an
    # overflow fails alone where the check compares it with a good value that fp16 does not have
    if held and (
        (len(nodes) == 1)
        or set(nodes) in planted.faults
        or any(minimal(planted, nodes, evaluator, made_too=x) for x in (0, 1))
    ):
        return "right"
    if held:
        return "large"
    return "noise" if any(set(nodes) & noise for noise in planted.noise) else "other"


def ask(planted: Planted, way: Way, folder: Path, at: Path) -> dict:
    """Run Winnow; return its result."""
    run = at / f"{way.check}-{way.first}"
    argv = [
        *(sys.executable, "-m", "runner", f"model={at / 'child.onnx'}", f"reference.model={at / 'parent.onnx'}"),
        *("inputs=files", f"inputs.path={at / 'inputs.npz'}", "target.optimization=none", "checker.flaky=never"),
        f"target.rounding={'on' if planted.spec.dtype == 'fp16' else 'off'}",
        f"strategy.first={way.first}",
        # two faults take a second search
        *(["strategy.cause_checks=60"] if planted.joint else []),
        *way.options(folder),
        f"hydra.run.dir={run}",
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    (at / f"{run.name}.txt").write_text(shlex.join(argv) + "\n" + done.stdout + done.stderr)
    if done.returncode:
        return {"exit": done.returncode, "said": (done.stdout + done.stderr).strip().splitlines()[-1:]}
    return json.loads((run / "result.json").read_text())


def shown(one: dict | None) -> str:
    """An experiment in a cell of the table."""
    if one is None:
        return "-"
    return one["outcome"] + ("" if one["measure"] is None else f" {one['measure']:.2g}")


def line(spec: Spec, way: Way, result: dict, first: str, last: str) -> str:
    """Return a row of the table."""
    if "cause" not in result:
        return f"{spec.name:42} {way.check:8} {way.first:5} exit {result['exit']}: {result['said']}"
    cause, checks = result["cause"], result["checks"]
    main = next(
        (one for one in cause["answers"] if set(one["culprits"]) == set(result["culprits"])), cause["answers"][0]
    )
    return (
        f"{spec.name:42} {way.check:8} {way.first:5} {first:6} {last:6} {cause['status']:10} {len(main['instances']):3}"
        f" {shown(cause['whole']):>11} {shown(main['good_outputs']):>11} {shown(main['good_inputs']):>11} "
        f"{checks['search']:4} {checks['cause']:3}"
    )


def write(planted: Planted, at: Path) -> None:
    """Write a model's files."""
    at.mkdir(parents=True, exist_ok=True)
    onnx.save(planted.parent, at / "parent.onnx")
    onnx.save(planted.child, at / "child.onnx")
    np.savez(at / "inputs.npz", **planted.feeds)
    said = {
        "faults": [sorted(one) for one in planted.faults],
        "noise": [sorted(one) for one in planted.noise],
        "error": planted.error,
        "healthy": planted.healthy,
        "local": planted.local,
    }
    (at / "planted.json").write_text(json.dumps(said, indent=1))


def asked(spec: Spec, ways: list[Way], out: Path, evaluator: Evaluator) -> list[tuple[Spec, Way, dict, str, str]]:
    """Make a model, run Winnow on it in several ways, and print a row of each."""
    try:
        planted = generated(spec, evaluator)
    except UnfitError as error:
        print(f"no model: {error}", flush=True)
        return []
    at = out / spec.name.replace(" ", "_").replace(":", "").replace(",", "")
    write(planted, at)
    print(
        f"# {spec.name} (seed {planted.seed}): {len(planted.child.graph.node)} nodes, {planted.error:.1f} tolerances "
        f"off, {planted.healthy:.2f} without the fault; {len(planted.noise)} x noise",
        flush=True,
    )
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for way, result in zip(ways, pool.map(lambda way: ask(planted, way, out, at), ways), strict=True):
            found = [result["cause"]["answers"][0]["culprits"], result["culprits"]] if "cause" in result else []
            first, last = [right(planted, set(one), evaluator) for one in found] or ["-", "-"]
            rows.append((spec, way, result, first, last))
            print(line(*rows[-1]), flush=True)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--half", choices=["seen", "held"])
    parser.add_argument("--ways", default="", help="compare, measured, plain")
    given = parser.parse_args(arguments)
    out = (given.out or Path(tempfile.mkdtemp(prefix="planted-noise-"))).absolute()
    out.mkdir(parents=True, exist_ok=True)
    evaluator = Evaluator()
    (out / "client.py").write_text(CLIENT)
    (out / "socket").unlink(missing_ok=True)
    rows: list[tuple[Spec, Way, dict, str, str]] = []
    with Checks(out / "socket") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for spec in SPECS:
            if given.only in spec.name and (not given.half or (given.half == "held") is spec.held):
                rows += asked(spec, [way for way in WAYS if given.ways in way.check], out, evaluator)
        server.shutdown()
    for half in (False, True):
        print(f"\n## {'held back' if half else 'seen'}")
        for way in WAYS:
            some = [row for row in rows if row[0].held is half and row[1] == way]
            if some:
                count = {what: sum(test(row) for row in some) for what, test in TOTALS.items()}
                print(
                    f"{way.check:8} first={way.first:5} of {len(some)}: "
                    + ", ".join(f"{what} {n}" for what, n in count.items())
                )


TOTALS: dict[str, Callable[[tuple], bool]] = {
    "first right": lambda row: row[3] == "right",
    "culprits right": lambda row: row[4] == "right",
    "shown to be the cause": lambda row: row[4] == "right" and row[2]["cause"]["status"] in ("proven", "joint"),
    "wrongly proven": lambda row: row[4] not in ("right", "-") and row[2]["cause"]["status"] in ("proven", "joint"),
}


if __name__ == "__main__":
    main()
