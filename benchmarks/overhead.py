"""What a check costs beside the check: chains of small nodes, one of which is the culprit, judged by structure alone.

    python -m benchmarks.overhead [--nodes 500 25000 100000] [--weights 0] [--times 3] [--python PYTHON ...]

``between``: from the end of one check to the start of the next, in the middle of all. ``rest``: wall time that is
neither a check nor the recording of values, so with the start, reading the model and handing over. ``job CPU``: that of
the job's own process, the start included, which a busy machine changes less. ``--python``: interpreters that each
import a version of Winnow of their own; they take turns.
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
    *("between ms", "rest ms a check", "job CPU s", "job CPU ms a check", "job peak MB"),
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
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    given = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory() as scratch:
            model = chain(Path(scratch) / "chain.onnx", nodes, given.weights)
            rows: dict[str, list[tuple[float, ...]]] = {python: [] for python in given.python}
            for number in range(given.times):
                for python, measured in rows.items():
                    out = Path(scratch) / f"{number}-{given.python.index(python)}"
                    measured.append(_measured(python, model, f"t{nodes * 3 // 7}", out))
        for python, measured in rows.items():
            exact, *cells = [statistics.median(column) for column in zip(*measured, strict=True)]
            told = [f"{cell:.1f}" for cell in cells]
            row = [nodes, f"{given.weights:g}", python, "yes" if exact else "no", *told]
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


def _measured(python: str, model: Path, culprit: str, out: Path) -> tuple[float, ...]:
    """Return one run's columns, from ``exact`` on."""
    script, stamps = out.with_suffix(".sh"), out.with_suffix(".txt")
    script.write_text(TIMED)
    argv = json.dumps(["sh", str(script), python, str(CHECK), "{model}", culprit])
    settings = [f"model={model}", "checker=command", f"checker.command={argv}", "checker.fail_codes=[1]"]
    command = [python, "-m", "runner", "strategy=reduce", *settings, f"hydra.run.dir={out}", "verbosity=warning"]
    # where the user stands comes first on the path of a module that is started so
    place = Path(python).absolute().parents[2]
    environment = {**os.environ, "STAMPS": str(stamps)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = subprocess.Popen(command, **quiet, cwd=place, env=environment)
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    times = Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()
    job.wait()
    result = json.loads((out / "result.json").read_text())
    cpu = (int(times[11]) + int(times[12])) / TICKS
    checks, seconds = sum(result["outcomes"].values()), result["seconds"]
    rest = seconds["total"] - seconds["checking"] - seconds["recording"]
    exact = result["status"] == "found" and result["nodes"]["after"] == 1
    walls = (seconds["total"], seconds["checking"], seconds["recording"])
    times = [float(line) for line in stamps.read_text().split()]
    between = statistics.median(after - before for before, after in zip(times[1::2], times[2::2], strict=False))
    return (
        exact,
        checks,
        *walls,
        1000 * between,
        1000 * rest / checks,
        cpu,
        1000 * cpu / checks,
        result["peak_rss_mb"]["job"],
    )


if __name__ == "__main__":
    main()
