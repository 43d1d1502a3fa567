"""Hand over malformed model files: one clear line and the documented exit code each, and nothing read elsewhere.

    python -m benchmarks.malformed [--jobs 2] [--every 10] [--seed 1] [--kind KIND] [--keep FOLDER]

Every file is read first as a run reads it (the worker's `ingest`); those that pass, and every tenth of those that are
refused, go through the whole of `python -m runner model=...`. Prints a table by kind, then each problem: an exit code
that is not documented (or 1, an internal error), a traceback, an error of more than one line or without the file's
name, a run that does not end, a file outside the model's folder that was opened.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import print_head, print_row, winnow
from benchmarks.malformed_models import OUTSIDE, SECRET, Malformed, malformed, secret
from runner.workers.pool import Pool

# what a run with a model file may end with: all but 1 (internal error), and the sweep's and the interruption's codes
DOCUMENTED = frozenset({0, 2, 3, 4, 5, 6})
LIMITS = (
    *("checker.timeout=3", "inputs.timeout=5", "workers.timeout=20", "workers.memory_mb=3000"),
    *("checker.memory_mb=3000", "budget.checks=20"),
)
PATIENCE = 600.0
_MESSAGE = 600  # characters of an error beyond which nobody reads it
_OPENED = 0x20 | 0x1  # IN_OPEN | IN_ACCESS


class Watched:
    """A folder outside all models' folders; says what in it was opened, by any process (Linux: inotify)."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / SECRET).write_bytes(secret())
        os.mkfifo(folder / "pipe")
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, bytes(folder), _OPENED) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        (folder / SECRET).read_bytes()
        if SECRET not in self.opened():
            raise RuntimeError("reading a watched file goes unnoticed here")

    def opened(self) -> set[str]:
        """Return what was opened since the last call."""
        try:
            data = os.read(self._fd, 1 << 20)
        except BlockingIOError:
            return set()
        found, at = set(), 0
        while at < len(data):
            (length,) = struct.unpack_from("12xI", data, at)
            found.add(data[at + 16 : at + 16 + length].rstrip(b"\0").decode() or ".")
            at += 16 + length
        return found


@dataclass
class Row:
    """What became of one file, which has a kind and a name.

    ``refused``: the error of reading it; ``said``: what else was said of it; ``code``: of the whole run, None without
    one.
    """

    file: Any
    path: Path
    refused: str | None = None
    said: str = ""
    code: int | None = None
    seconds: float = 0.0
    mib: float = 0.0
    problems: list[str] = field(default_factory=list)

    def forked(self, work: Callable[[], int | None], seconds: int) -> None:
        """Do something in a process of its own, which is killed after so many seconds; note what it took.

        ``code`` becomes what ``work`` returns, 70 where it raises, and negative for a signal.
        """
        sys.stdout.flush()
        started = time.monotonic()
        child = os.fork()
        if not child:
            code: int | None = 70
            try:
                signal.alarm(seconds)
                code = work()
            except BaseException:  # noqa: BLE001 - it is what we look for
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code or 0)
        _, status, used = os.wait4(child, 0)
        self.code, self.seconds = os.waitstatus_to_exitcode(status), time.monotonic() - started
        self.mib = used.ru_maxrss / 1024


def write(files: Iterable[Malformed], root: Path) -> list[Row]:
    """Write each file into a folder of its own below ``root``."""
    rows = []
    for number, file in enumerate(files):
        folder = root / f"{number:04d}"
        folder.mkdir()
        rows.append(Row(file, file.write(folder)))
    return rows


def read(rows: Iterable[Row], root: Path) -> None:
    """Read each file as a run does; note what refuses it."""
    with Pool(root / "workers") as pool:
        for row in rows:
            store = root / "stores" / row.path.parent.name
            reply = pool.call("ingest", {"model": str(row.path), "store": str(store)}, timeout=30, memory_mb=3000)
            row.seconds = reply.seconds
            if reply.failure is not None:
                row.refused = reply.failure.message
                if reply.failure.type != "ModelError":
                    row.problems.append(f"reading it raised {reply.failure.type}: {reply.failure.message[:200]}")
                row.problems += unclear(row.refused)
            elif reply.death is not None:
                row.refused = str(reply.death)
                row.problems.append(f"reading it ended with {reply.death}")


def run(row: Row, root: Path, *options: str) -> None:
    """Run the whole of Winnow on a file; note what is wrong with how that ends."""
    folder = root / "runs" / row.path.parent.name
    started = time.monotonic()
    try:
        words = (f"model={row.path}", *LIMITS, *options)
        done, _ = winnow(folder, *words, timeout=PATIENCE, errors="replace", cwd=root)
    except subprocess.TimeoutExpired:
        row.problems.append(f"it did not end within {PATIENCE:g} s")
        return
    row.seconds, row.code = time.monotonic() - started, done.returncode
    row.problems += judged(row, folder, done.stdout, done.stderr)


def judged(row: Row, folder: Path, out: str, err: str) -> list[str]:
    """Say what is wrong with how a run ended."""
    found = []
    if row.code not in DOCUMENTED:
        found.append(f"exit code {row.code}: {err.strip()[-300:]}")
    signs = ("Traceback (most recent call last)", "internal error", "This is a bug")
    found += [f"{sign!r} was printed: {(out + err).strip()[-300:]}" for sign in signs if sign in out + err]
    if row.code == 2:
        lines = [line for line in err.splitlines() if line.startswith("usage:")]
        if len(lines) != 1 or len(err.strip().splitlines()) != 1:
            found.append(f"not one line: {err.strip()[:300]!r}")
        if str(row.path) not in err and "inputs=random: the model" not in err:
            found.append(f"the file is not named: {err.strip()[:300]!r}")
        found += unclear(err.strip())
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in out + err):
        found.append("control characters were printed")
    told = row.code == 3 and "no runtime can load the model" in out + err  # of two defects the other one, and why
    if row.refused is not None and row.code != 2 and not told:
        found.append(f"reading it fails, yet the run ends with {row.code}")
    try:
        if json.loads((folder / "result.json").read_text())["exit_code"] != row.code:
            found.append("result.json has another exit code")
    except (OSError, ValueError, KeyError) as error:
        found.append(f"no result.json: {error!r}")
    return found


def unclear(message: str) -> list[str]:
    """Say what is wrong with an error message."""
    found = []
    if len(message.splitlines()) != 1:
        found.append(f"the error has {len(message.splitlines())} lines: {message[:200]!r}")
    if not message.isprintable():
        found.append(f"the error is not printable: {message[:200]!r}")
    if len(message) > _MESSAGE:
        found.append(f"the error has {len(message)} characters: {message[:120]!r}")
    return found


Columns = Mapping[str, Callable[[list[Row]], object]]


def table(rows: Iterable[Row], columns: Columns, title: str = "kind") -> int:
    """Print a line for each kind of file, and the problems; return how many files have one.

    ``columns``: what is told of the rows of a kind.
    """
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.file.kind, []).append(row)
    every = [row for group in kinds.values() for row in group]
    print_head(title, *columns)
    for kind, group in [*kinds.items(), ("all", every)]:
        print_row(kind, *(tell(group) for tell in columns.values()))
    bad = [row for row in every if row.problems]
    for row in bad:
        print(f"\n{row.path}: {row.file.kind}, {row.file.name} (exit {row.code}, {row.seconds:.1f} s)")
        print(*(f"    {problem}" for problem in row.problems), sep="\n")
    return len(bad)


def codes(rows: list[Row]) -> str:
    """Return how often runs ended with each exit code."""
    found = Counter(row.code for row in rows if row.code is not None)
    return ", ".join(f"{code}: {count}" for code, count in sorted(found.items()))


def slowest(rows: list[Row]) -> str:
    return f"{max(row.seconds for row in rows):.1f}"


def with_problems(rows: list[Row]) -> int:
    return sum(bool(row.problems) for row in rows)


def peak(rows: list[Row]) -> str:
    return f"{max(row.mib for row in rows):.0f}"


COLUMNS: Columns = {
    "files": len,
    "refused when read": lambda group: sum(row.refused is not None for row in group),
    "exit codes of whole runs": codes,
    "slowest (s)": slowest,
    "problems": with_problems,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=10, help="of the files that are refused, run every Nth as well")
    parser.add_argument("--seed", type=int, default=1, help="of damaged files beside those that are always the same")
    parser.add_argument("--kind", action="append", help="only this kind")
    parser.add_argument("--keep", type=Path, help="write everything here")
    parser.add_argument("--show", action="store_true", help="print what each file ended with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = (given.keep or Path(scratch)).resolve()
        (root / "runs").mkdir(parents=True, exist_ok=True)
        watched = Watched(root / OUTSIDE)
        rows = write([file for file in malformed(given.seed) if not given.kind or file.kind in given.kind], root)
        read(rows, root)
        refused = [row for row in rows if row.refused is not None]
        chosen = [row for row in rows if row.refused is None or row.problems or row in refused[:: given.every]]
        with ThreadPoolExecutor(given.jobs) as threads:
            list(threads.map(lambda row: run(row, root), chosen))
        wrong = table(rows, COLUMNS)
        opened = watched.opened()
        print(f"\nopened outside the models' folders: {', '.join(sorted(opened)) or 'nothing'}")
        print(f"largest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB")
        if given.show:
            for row in rows:
                print(f"{row.path.parent.name} {row.file.kind}, {row.file.name}: {row.code} {row.refused or ''}")
    return 1 if wrong or opened else 0


if __name__ == "__main__":
    sys.exit(main())
