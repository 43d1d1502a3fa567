"""result.json: the summary of a run for programs. Its keys are a public interface."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from runner.files import json_of, write_text
from runner.report.summary import Summary

RESULT_NAME = "result.json"


def result_json(summary: Summary) -> dict[str, Any]:
    """Return the summary as plain JSON types; a number that is not finite becomes null (strict JSON has none)."""
    result = {
        "status": summary.status,
        "exit_code": summary.exit_code,
        "strategy": summary.strategy,
        "message": summary.message,
        "nodes": {"before": summary.nodes_before, "after": summary.nodes_after},
        "culprits": summary.culprits,
        "nested": summary.nested,
        "minimality": summary.minimality,
        "checks": {
            "search": summary.checks.search,
            "trust": summary.checks.trust,
            "reused": summary.checks.reused,
            "refine": summary.checks.refine,
            "cause": summary.checks.cause,
        },
        "outcomes": summary.outcomes,
        "unresolved": summary.unresolved,
        "signature": summary.signature,
        "model": summary.model,
        "min_good": summary.min_good,
        "seconds": {
            "total": round(summary.seconds.total, 3),
            "checking": round(summary.seconds.checking, 3),
            "recording": round(summary.seconds.recording, 3),
        },
        "peak_rss_mb": {
            "job": round(summary.peak_rss_mb.get("job", 0.0), 1),
            "workers": round(summary.peak_rss_mb.get("workers", 0.0), 1),
        },
        "warnings": summary.warnings,
        "checker": summary.checker,
        "check": summary.check,
        "input_model": summary.input_model,
        "context": summary.context,
        "versions": summary.versions,
        "statistics": summary.statistics,
        "plan": summary.plan,
        "reliability": summary.reliability,
        "tried": summary.tried,
        "suspects": summary.suspects,
        "fused": summary.fused,
        "precision": summary.precision,
        "cause": summary.cause,
        "answers": [
            {
                "culprits": answer.culprits,
                "nested": answer.nested,
                "nodes": answer.nodes_after,
                "signature": answer.signature,
                "folder": "." if number == 1 else f"answers/{number}",
            }
            for number, answer in enumerate(summary.answers, 1)
        ],
    }
    plain = _plain(result)
    assert isinstance(plain, dict)
    return plain


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
