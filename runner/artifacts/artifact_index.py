"""The index of a run's artifacts, ``index.jsonl``: one row a check, what it said and where its model and files lie."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.candidate import Candidate
from runner.verdict import Signature, Verdict

INDEX_NAME = "index.jsonl"


def row_of(candidate: Candidate, verdict: Verdict, question: str) -> dict[str, Any]:
    """Return what a row says of a check. ``question``: the journal whose trial it is of."""
    return {
        "iteration": candidate.iteration,
        "phase": candidate.phase,
        "label": candidate.label,
        "outcome": verdict.outcome.value,
        "returncode": verdict.returncode,
        "signature": str(verdict.signature) if verdict.signature else None,
        "failure": failure_of(verdict.signature),
        "reason": verdict.reason,
        "seconds": round(verdict.seconds, 6),
        "elements": candidate.size,
        "trial": candidate.trial.ranges,
        "question": question,
        "log": verdict.log,
    }


def failure_of(signature: Signature | None) -> str:
    """Return what the class of a failure is named: its stage and kind, and the exceptions of a check."""
    return signature.name if signature else ""


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an index; what is none is left out."""
    try:
        lines = path.read_bytes().splitlines() if path.is_file() else []
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to an index. Raises OSError."""
    line = json.dumps(row).encode() + b"\n"
    with path.open("ab+", buffering=0) as file:
        size = file.tell()
        # a killed run may have left half a row; it must not swallow this one
        whole = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
        file.write(line if whole else b"\n" + line)
