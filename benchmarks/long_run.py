"""A run of very many checks: what it has open, how many threads, how much memory and how large its folder is.

    python -m benchmarks.long_run [--checks 10000] [--step 1000] [--workers 1]

The check is the cheapest real one (`/bin/true`, a process each), repeated; Linux only. Prints a table, and last what
each further check has cost; ends with 1 where files or threads grew, memory by more than 2 KB a check (the verdicts
themselves are kept in memory), or the folder by more than 1 KB a check.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MOST_MEMORY, MOST_FOLDER = 2048, 1024
_OF_ONE_CHECK = 4  # files that a check has open, in the middle of which a look may come
_PAUSE = 0.02


@dataclass(frozen=True)
class Row:
    """A run after so many checks. ``folder``: bytes of all its files; ``entries``: files and folders in it."""

    checks: int
    files: int
    threads: int
    memory: int
    folder: int
    entries: int


def watch(folder: Path, checks: int, step: int, workers: int = 1) -> list[Row]:
    """Run so many checks and return a row after each ``step``. Raises RuntimeError where the run fails."""
    argv = [
        *(sys.executable, "-m", "runner", "strategy=repeat", f"strategy.until={checks}", f"workers.count={workers}"),
        *("checker=command", "checker.command=[/bin/true,'{dir}']", "verbosity=warning", f"hydra.run.dir={folder}"),
    ]
    rows: list[Row] = []
    journal, read, lines = folder / "journal.jsonl", 0, 0
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            if journal.exists() and journal.stat().st_size > read:
                with journal.open("rb") as file:
                    file.seek(read)
                    new = file.read()
                read, lines = read + len(new), lines + new.count(b"\n")
                if lines - 1 >= step * (len(rows) + 1):  # the first line is no verdict
                    rows.append(_look(process.pid, folder, lines - 1))
            time.sleep(_PAUSE)
    finally:
        process.kill()
        process.wait()
    if process.returncode or len(rows) < checks // step - 1:
        raise RuntimeError(f"the run ended with {process.returncode} after {lines - 1} checks")
    return rows


def _look(pid: int, folder: Path, checks: int) -> Row:
    process = Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    found = [os.lstat(Path(at, name)) for at, folders, names in os.walk(folder) for name in (*folders, *names)]
    return Row(
        checks,
        len(list((process / "fd").iterdir())),
        int(status["Threads"]),
        int(status["VmRSS"].split()[0]) * 1024,
        sum(one.st_size for one in found if one.st_nlink < 2),  # a folder's size says nothing
        len(found),
    )


def growth(rows: list[Row]) -> dict[str, float]:
    """Return what grew: the most files and threads from the first half to the second, bytes and entries a check."""
    first, last = rows[0], rows[-1]
    half = len(rows) // 2
    early, late = rows[:half], rows[half:]
    checks = last.checks - first.checks
    return {
        "files": max(row.files for row in late) - max(row.files for row in early),
        "threads": max(row.threads for row in late) - max(row.threads for row in early),
        "memory": (last.memory - first.memory) / checks,
        "folder": (last.folder - first.folder) / checks,
        "entries": (last.entries - first.entries) / checks,
    }


def flat(found: dict[str, float]) -> bool:
    """Whether that is what a run may grow by."""
    few = found["files"] <= _OF_ONE_CHECK and found["threads"] <= 0 and found["entries"] < 0.1
    return few and found["memory"] <= MOST_MEMORY and found["folder"] <= MOST_FOLDER


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checks", type=int, default=10_000)
    parser.add_argument("--step", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows = watch(Path(scratch) / "run", given.checks, given.step, given.workers)
    print("| checks | open files | threads | memory (MiB) | folder (KiB) | files and folders |")
    print("|---" * 6 + "|")
    for row in rows:
        sizes = f"{row.memory / 2**20:.1f} | {row.folder / 2**10:.0f}"
        print(f"| {row.checks} | {row.files} | {row.threads} | {sizes} | {row.entries} |")
    found = growth(rows)
    print(f"\nfrom the first half to the second: {found['files']:+.0f} files, {found['threads']:+.0f} threads at most")
    print(f"for each check {found['memory']:.0f} bytes of memory, {found['folder']:.0f} bytes in the folder")
    return 0 if flat(found) else 1


if __name__ == "__main__":
    sys.exit(main())
