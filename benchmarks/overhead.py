"""What a check costs beside the check: chains of small nodes, one of which is the culprit, judged by structure alone.

    python -m benchmarks.overhead [--nodes 500 25000 100000] [--weights 0] [--times 3] [--python PYTHON ...]
    python -m benchmarks.overhead --model net.onnx TENSOR [--times 3] [--python PYTHON ...]

``between``: from the end of one check to the start of the next, in the middle of all: what a check costs. ``rest``:
wall time that is neither a check nor the recording of values, so with the start, reading the model and handing over,
divided by the checks. ``once``: the part of it that is paid once a run, however many checks it has: all of it but
``between`` for each check. ``job CPU``: that of the job's own process, the start included, which a busy machine changes
less; ``workers' CPU``: that of all that it started but the checks. ``read``, ``written``: what all of them moved to and
from the disk; what lies in memory already is not read. ``--model``: a model of your own, and a tensor that its culprit
gives. ``--python``: interpreters that each import a version of Winnow of their own; they take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.beside_peer.tools import CHECK
from benchmarks.chain_models import chain

COLUMNS = (
    *("nodes", "weights MB", "python", "exact", "checks", "wall s", "checking s", "recording s"),
    *("between ms", "once s", "rest ms a check", "job CPU s", "job CPU ms a check", "workers' CPU s", "job peak MB"),
    *("read MB", "written MB"),
)
TIMED = """date +%s.%N >> "$STAMPS"
"$@"
code=$?
date +%s.%N >> "$STAMPS"
exit $code
"""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 25_000, 100_000])
    parser.add_argument("--weights", type=float, default=0.0)
    parser.add_argument("--model", nargs=2, metavar=("MODEL", "TENSOR"))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    if given.model:
        _compare(Path(given.model[0]).absolute(), given.model[1], [given.model[0], ""], given)
    for nodes in [] if given.model else given.nodes:
        with tempfile.TemporaryDirectory() as scratch:
            model = chain(Path(scratch) / "chain.onnx", nodes, given.weights)
            _compare(model, f"t{nodes * 3 // 7}", [str(nodes), f"{given.weights:g}"], given)


def _compare(model: Path, culprit: str, told: list[str], given: argparse.Namespace) -> None:
    """Print a row for each interpreter, which begins with what is ``told`` of the model."""
    rows: dict[str, list[tuple[float, ...]]] = {python: [] for python in given.python}
    for _ in range(given.times):
        for python, measured in rows.items():
            with tempfile.TemporaryDirectory() as scratch:
                measured.append(_measured(python, model, culprit, Path(scratch) / "run"))
    for python, measured in rows.items():
        exact, *cells = [statistics.median(column) for column in zip(*measured, strict=True)]
        row = [*told, python, "yes" if exact else "no", *(f"{cell:.1f}" for cell in cells)]
        print("| " + " | ".join(row) + " |", flush=True)


def _measured(python: str, model: Path, culprit: str, out: Path) -> tuple[float, ...]:
    """Return one run's columns, from ``exact`` on."""
    script, stamps = out.with_suffix(".sh"), out.with_suffix(".txt")
    script.write_text(TIMED)
    argv = json.dumps(["sh", str(script), python, str(CHECK), "{model}", culprit])
    settings = [f"model={model}", "checker=command", f"checker.command={argv}", "checker.fail_codes=[1]"]
    command = [python, "-m", "runner", "strategy=reduce", *settings, f"hydra.run.dir={out}", "verbosity=warning"]
    # where the user stands comes first on the path of a module that is started so
    place = Path(python).absolute().parents[2]
    check_cpu = out.with_suffix(".cpu")
    environment = {**os.environ, "STAMPS": str(stamps), "CHECK_LOG": str(check_cpu)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = subprocess.Popen(command, **quiet, cwd=place, env=environment)
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    # of its own, and of all that it has waited for
    times = Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()
    disk = dict(line.split(": ") for line in Path(f"/proc/{job.pid}/io").read_text().splitlines())
    job.wait()
    result = json.loads((out / "result.json").read_text())
    cpu, started = ((int(times[at]) + int(times[at + 1])) / TICKS for at in (11, 13))
    checks, seconds = sum(result["outcomes"].values()), result["seconds"]
    rest = seconds["total"] - seconds["checking"] - seconds["recording"]
    exact = result["status"] == "found" and result["nodes"]["after"] == 1
    walls = (seconds["total"], seconds["checking"], seconds["recording"])
    times = [float(line) for line in stamps.read_text().split()]
    between = statistics.median(after - before for before, after in zip(times[1::2], times[2::2], strict=False))
    inside = sum(after - before for before, after in zip(times[::2], times[1::2], strict=True))
    workers = started - sum(float(line) for line in check_cpu.read_text().split())
    return (
        exact,
        checks,
        *walls,
        1000 * between,
        seconds["total"] - seconds["recording"] - inside - between * (checks - 1),
        1000 * rest / checks,
        cpu,
        1000 * cpu / checks,
        workers,
        result["peak_rss_mb"]["job"],
        int(disk["read_bytes"]) / 1e6,
        int(disk["write_bytes"]) / 1e6,
    )


if __name__ == "__main__":
    main()
