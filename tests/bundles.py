"""What a run hands over, unpacked elsewhere: the files of the bundle alone, on another path, must show the failure."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.report.fresh import Shown, show

TABLE = "WINNOW_BUNDLES"
"""Names the file to which each bundle of a test run adds its line; where it is not set, nothing is unpacked."""
_OURS = ("workers", "store", "values", "inputs", "checks", "answers", "target", ".hydra")


def answers(folder: Path) -> Iterator[Path]:
    """Yield the folder of each answer of a run that has one."""
    try:
        found = json.loads((folder / "result.json").read_text())["status"] == "found"
    except (OSError, ValueError, KeyError):
        return
    for place in [folder, *sorted(folder.glob("answers/*"))] if found else []:
        if (place / "repro.py").is_file():
            yield place


def unpacked(answer: Path, elsewhere: Path, python: Path | str = sys.executable) -> Shown:
    """Copy an answer's files to another path and run its repro.py there."""
    elsewhere.mkdir(parents=True)
    for path in answer.iterdir():
        if path.is_dir() and path.name.startswith("test_data_set_"):
            shutil.copytree(path, elsewhere / path.name)
        elif path.is_file() and path.name not in ("journal.jsonl", "winnow.log", "result.json", "replay.yaml"):
            shutil.copyfile(path, elsewhere / path.name)
    return show(python, elsewhere / "repro.py", {name: os.environ[name] for name in ("HOME",) if name in os.environ})


def note(folder: Path, python: str | None) -> None:
    """Add a line to the table for each answer of a run, if a table is wanted."""
    table = os.environ.get(TABLE)
    if not table:
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    for number, answer in enumerate(answers(folder)):
        started = time.perf_counter()
        shown = unpacked(answer, folder.parent / f".unpacked_{time.monotonic_ns()}_{number}", python or sys.executable)
        line = {
            "test": test,
            "code": shown.code,
            "seconds": round(time.perf_counter() - started, 2),
            "text": shown.text,
        }
        with Path(table).open("a") as file:
            file.write(json.dumps(line) + "\n")
