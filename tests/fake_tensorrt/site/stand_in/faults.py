"""Faults that are planted now: words of the file that $STAND_IN_FAULTS names, each with what follows its colon."""

import json
import os
import time
from pathlib import Path


def planted(fault: str) -> bool:
    return fault in _now()


def argument(fault: str) -> str:
    return _now().get(fault, "")


def note(**said: object) -> None:
    """Add a line to $STAND_IN_NOTES, for a test that wants to know when what was used."""
    path = os.environ.get("STAND_IN_NOTES")
    if path:
        line = {"pid": os.getpid(), "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "at": time.time(), **said}
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


def tuned() -> int:
    """Count one more build that chooses tactics, in any process; return how many there were."""
    path = Path(os.environ["STAND_IN_NOTES"])
    before = path.read_text().count("tuned") if path.exists() else 0
    note(tuned=before)
    return before


def start(done=[]):  # noqa: B006 - a process starts CUDA once
    """Start CUDA: it may take its time."""
    if not done:
        time.sleep(float(argument("slow_start") or 0))
        done.append(True)


def _now() -> dict:
    try:
        words = Path(os.environ["STAND_IN_FAULTS"]).read_text().split()
    except (KeyError, OSError):
        return {}
    return {word: rest for word, _, rest in (one.partition(":") for one in words)}
