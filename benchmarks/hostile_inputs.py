"""Hand over input files that lie: one clear line each or values that fit, and nothing read elsewhere.

    python -m benchmarks.hostile_inputs [--seed 1] [--every 20] [--keep FOLDER]

npz, npy and pb files and test_data_set folders, damaged at random (seed 0 was looked at while the reader was written,
others were not) and forged on purpose. Each is read as a run reads it (`inputs=files`), in a process of its own; every
``--every``-th goes through the whole of `python -m runner` as well. Prints a table by kind, then each problem: another
exception than a usage error, an error of more than one line or without the file's name, a reading that does not end
within 10 s or takes more than 1 GiB, a file outside that was opened.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.hostile_input_files import FORGED, Hostile, damaged
from benchmarks.hostile_input_models import TARGETS
from benchmarks.malformed import Watched, unclear
from runner.errors import UsageError
from runner.model.graph.graph_index import Graph
from runner.samples.declared_inputs import declared
from runner.samples.files import from_files
from runner.schema.inputs import FilesInputs

SECONDS = 10
MOST_MIB = 1024
OUTSIDE = "outside"


@dataclass
class Row:
    """What became of one file: ``answer`` is the error, or what was read."""

    file: Hostile
    path: Path
    answer: str = ""
    code: int | None = None
    mib: float = 0.0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def everything(seed: int) -> list[Hostile]:
    """Return all files of a seed, the same ones in the same order each time."""
    return [*damaged(seed), *FORGED]


def read(file: Hostile, folder: Path) -> Row:
    """Write a file and read it as a run does, in a process of its own."""
    folder.mkdir(parents=True)
    row = Row(file, file.write(folder / "given", folder.parent / OUTSIDE))
    started = time.monotonic()
    ready, answer = os.pipe()
    child = os.fork()
    if not child:
        os.close(ready)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_MIB << 20, 4 * MOST_MIB << 20))
        os.write(answer, _answer(row, folder).encode(errors="backslashreplace")[:4000])
        os._exit(0)
    os.close(answer)
    with os.fdopen(ready, "rb") as pipe:
        row.answer = pipe.read().decode()
    _, status, used = os.wait4(child, 0)
    row.seconds, row.mib = time.monotonic() - started, used.ru_maxrss / 1024
    if status:
        row.problems.append(f"the reading process ended with {status}")
    return _judged(row)


def _answer(row: Row, folder: Path) -> str:
    """Read the file; say what came of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        inputs = declared(Graph.of(TARGETS[row.file.target]))
        samples = from_files(FilesInputs(path=str(row.path)), inputs, None, folder / "values")
        told = f"read {len(samples)}"
    except UsageError as error:
        told = f"usage: {error}"
    except BaseException as error:  # noqa: BLE001 - whatever else comes is what is looked for
        told = f"raised {type(error).__name__}: {error}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return told if grown < MOST_MIB else f"took {grown:.0f} MiB; {told}"


def _judged(row: Row) -> Row:
    message = row.answer.removeprefix("usage: ")
    if row.answer.startswith("read "):
        return row
    if message == row.answer:
        row.problems.append(row.answer[:300])
        return row
    row.problems += unclear(message)
    if str(row.path) not in message:
        row.problems.append(f"the file is not named: {message[:200]}")
    return row


def run(row: Row, root: Path) -> None:
    """Run the whole of Winnow with the file as its inputs."""
    model, folder = root / f"{row.file.target}.onnx", root / "runs" / row.path.parent.parent.name
    model.write_bytes(TARGETS[row.file.target].SerializeToString())
    argv = [
        *(sys.executable, "-m", "runner", f"model={model}", "inputs=files", f"inputs.path='{row.path}'"),
        *("checker=finite", "budget.checks=5", f"hydra.run.dir={folder}"),
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False, text=True)
    row.code, said = done.returncode, done.stdout + done.stderr
    if row.code not in (0, 2, 3, 4, 6) or "Traceback" in said or "This is a bug" in said:
        row.problems.append(f"exit code {row.code}: {said.strip()[-300:]}")
    if row.answer.startswith("usage: ") and row.code != 2:
        row.problems.append(f"it is refused when read, and the run ends with {row.code}")


def table(rows: Iterable[Row]) -> int:
    """Print the table and the problems; return how many files have one."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.file.kind, []).append(row)
    print("| kind | files | refused | read | whole runs | slowest (s) | most MiB | problems |")
    print("|---" * 8 + "|")
    every = [row for group in kinds.values() for row in group]
    for kind, group in [*kinds.items(), ("all", every)]:
        refused = sum(row.answer.startswith("usage: ") for row in group)
        cells = [
            *(kind, len(group), refused, sum(row.answer.startswith("read ") for row in group)),
            *(sum(row.code is not None for row in group), f"{max(row.seconds for row in group):.1f}"),
            *(f"{max(row.mib for row in group):.0f}", sum(bool(row.problems) for row in group)),
        ]
        print("| " + " | ".join(map(str, cells)) + " |")
    wrong = [row for row in every if row.problems]
    for row in wrong:
        print(f"\n{row.path}: {row.file.kind}, {row.file.name}")
        for problem in row.problems:
            print(f"    {problem}")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=20, help="run every Nth as well; 0: none")
    parser.add_argument("--keep", type=Path, help="write everything here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = (given.keep or Path(scratch)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        watched = Watched(root / OUTSIDE)
        rows = [read(file, root / f"{number:04d}") for number, file in enumerate(everything(given.seed))]
        for row in rows[:: given.every] if given.every else ():
            run(row, root)
        wrong, opened = table(rows), watched.opened()
        print(f"\nopened outside: {', '.join(sorted(opened)) or 'nothing'}")
    return 1 if wrong or opened else 0


if __name__ == "__main__":
    sys.exit(main())
