"""The summary of a run, and result.json.

The summary of a run: every number in it comes from a recorded verdict.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from runner.files import json_of, write_text


@dataclass(frozen=True)
class Checks:
    """How many checks were paid for, by purpose, and how many verdicts were reused.

    ``refine``: to make an answer smaller that was found and proven already (pairs of nodes, unneeded outputs).
    ``cause``: to show that the failure of the whole model arises inside the answer. ``trust``: all others, which are
    the ``preflight`` of file, whole model and constants, each ``control``, the ``recheck`` of what is handed over,
    ``samples`` that no search has seen, and ``repeats`` of one of these or of a check of the search.
    """

    search: int = 0
    trust: int = 0
    reused: int = 0
    refine: int = 0
    cause: int = 0
    preflight: int = 0
    control: int = 0
    recheck: int = 0
    samples: int = 0
    repeats: int = 0


def sum_of(counts: Iterable[Checks]) -> Checks:
    """Return all of them together."""
    every = [astuple(one) for one in counts]
    return Checks(*(sum(column) for column in zip(*every, strict=True)))


class MistakeError(Exception):
    """A mistake of Winnow's own, which is the cause of this; ``checks``: what was paid for before."""

    def __init__(self, checks: Checks) -> None:
        super().__init__(checks)
        self.checks = checks


@dataclass(frozen=True)
class Seconds:
    """Wall time in seconds: of the whole run, inside checks, while recording values."""

    total: float = 0.0
    checking: float = 0.0
    recording: float = 0.0


@dataclass(frozen=True)
class Summary:
    """What `result.json` holds.

    ``culprits``: top-level node names of the answer as in the original (a nameless node by its first output).
    ``min_good`` and ``model``: paths relative to the run folder, or None. ``statistics``: of a repeat (iterations, pass
    rate and its interval). ``reliability``: of a flaky check, its rates and repeats; of any other how many second
    verdicts agreed with the first, and with what probability a check that is often wrong would have been noticed.
    ``tried``: what was tried beyond 1-minimality. ``first_look``: what named the nodes that were asked about first.
    ``seen``: how many elements of the output that failed are NaN and Inf. ``said``: what the check said of the answer.
    ``fused``: the engine's layers that the answer's nodes went into, and of which model the engine is.
    ``precision``: of a mixed-precision model, why which nodes are raised, and what is gained.
    ``answers``: all of them, where several were wanted and found. ``cause``: what was shown of it, by
    experiment. ``whose``: whose failure it is, see `runner.judgment.Whose`; None: nobody asked.
    ``memory``: what one check may take, in words.
    ``passes``: switches that a failure needs, sets of them that heal it, and the settings that turn the first off.
    ``releases``: of a package, how each that was asked ended, and which were not asked.
    ``layers``: how far each tensor is from its good value, and where it goes wrong first. ``workarounds``: what was
    tried against the failure, how it was checked and what it costs. ``inspection``: what a model is made of.
    ``triage``: the steps of a triage, and why each was taken. ``rechecked``: how kept results end by now. ``bugs``:
    failures that have one cause.
    ``suspects``: tactics of bad builds only. ``unresolved``: how often a verdict is not known, by reason.
    ``evidence``: what the check measured on what is handed over; ``outputs``: what it measured of each output of the
    whole model; neither is in result.json.
    """

    status: str
    exit_code: int
    strategy: str
    message: str = ""
    nodes_before: int = 0
    nodes_after: int | None = None
    culprits: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    minimality: str | None = None
    checks: Checks = field(default_factory=Checks)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    unresolved: Mapping[str, int] = field(default_factory=dict)
    signature: Mapping[str, str] | None = None
    model: str | None = None
    min_good: str | None = None
    seconds: Seconds = field(default_factory=Seconds)
    peak_rss_mb: Mapping[str, float] = field(default_factory=lambda: {"job": 0.0, "workers": 0.0})
    warnings: tuple[str, ...] = ()
    checker: str = ""
    check: str = ""
    input_model: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    statistics: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None
    reliability: Mapping[str, Any] | None = None
    tried: str = ""
    first_look: str = ""
    seen: str = ""
    said: str = ""
    suspects: tuple[Mapping[str, Any], ...] = ()
    passes: Mapping[str, Any] | None = None
    releases: Mapping[str, Any] | None = None
    layers: Mapping[str, Any] | None = None
    workarounds: tuple[Mapping[str, Any], ...] = ()
    inspection: Mapping[str, Any] | None = None
    triage: Mapping[str, Any] | None = None
    rechecked: tuple[Mapping[str, Any], ...] = ()
    bugs: tuple[Mapping[str, Any], ...] = ()
    fused: Mapping[str, Any] | None = None
    precision: Mapping[str, Any] | None = None
    cause: Mapping[str, Any] | None = None
    answers: tuple[Summary, ...] = ()
    whose: str | None = None
    memory: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Mapping[str, Any], ...] = ()


# result.json: the summary of a run for programs. Its keys are a public interface.

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
