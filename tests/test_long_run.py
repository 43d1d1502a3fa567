"""A run of many checks (the cheapest real one, `/bin/true`): nothing is left open, and its folder grows by little."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

MOST_FOLDER = 1024
_OF_ONE_CHECK = 4  # files that a check has open, in the middle of which a look may come
_PAUSE = 0.02


@dataclass(frozen=True)
class Row:
    """A run after so many checks. ``folder``: bytes of all its files; ``entries``: files and folders in it."""

    checks: int
    files: int
    threads: int
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
                # the first line is no verdict; after the last one the run writes its report
                if step * (len(rows) + 1) <= lines - 1 < checks:
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
        "folder": (last.folder - first.folder) / checks,
        "entries": (last.entries - first.entries) / checks,
    }


def flat(found: dict[str, float]) -> bool:
    """Whether that is what a run may grow by."""
    few = found["files"] <= _OF_ONE_CHECK and found["threads"] <= 0 and found["entries"] < 0.1
    return few and found["folder"] <= MOST_FOLDER


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what a process has open is read from /proc")
def test_a_run_of_200_checks(tmp_path: Path) -> None:
    rows = watch(tmp_path / "run", 200, 40)
    found = growth(rows)
    assert flat(found), found
