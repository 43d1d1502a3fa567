"""result.json: the summary of a run for programs. Its keys are a public interface."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from runner.files import json_of, write_text
from runner.report.summary import Summary

RESULT_NAME = "result.json"
FORMAT = 1
"""The version of what it holds: see `result_schema.json`. In one, keys are added; none goes or changes its sense."""
_ELSEWHERE = frozenset({"nodes_after", "memory", "evidence", "outputs"})
"""Fields of the summary that are no keys of their own."""


def result_json(summary: Summary) -> dict[str, Any]:
    """Return the summary as plain JSON types: the format's version, and a key for each field in their order.

    A number that is not finite becomes null (strict JSON has none).
    """
    seconds, peak = dataclasses.asdict(summary.seconds), {"job": 0.0, "workers": 0.0, **summary.peak_rss_mb}
    answers = [
        {
            "culprits": answer.culprits,
            "nested": answer.nested,
            "nodes": answer.nodes_after,
            "signature": answer.signature,
            "folder": "." if number == 1 else f"answers/{number}",
        }
        for number, answer in enumerate(summary.answers, 1)
    ]
    made = {
        "nodes": {"before": summary.nodes_before, "after": summary.nodes_after},
        "checks": dataclasses.asdict(summary.checks),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "peak_rss_mb": {name: round(value, 1) for name, value in peak.items()},
        "answers": answers,
    }
    names = ["nodes" if one.name == "nodes_before" else one.name for one in dataclasses.fields(summary)]
    told = {n: _plain(made[n] if n in made else getattr(summary, n)) for n in names if n not in _ELSEWHERE}
    return {"format": FORMAT, **told}


def write_result(summary: Summary, run_folder: Path) -> None:
    """Write ``result.json`` into the run folder, atomically. Raises OSError where that is impossible."""
    write_text(run_folder / RESULT_NAME, json.dumps(result_json(summary), indent=2, allow_nan=False) + "\n")


def read_result(run_folder: Path) -> dict[str, Any] | None:
    """Return what a run wrote, or None where there is no (readable) result: its job did not get that far."""
    result = json_of(run_folder / RESULT_NAME)
    return result if isinstance(result, dict) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, Enum):
        return _plain(value.value)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()  # a NumPy scalar that a checker measured
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
