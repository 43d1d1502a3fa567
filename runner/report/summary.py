"""The result of a run: typed, written as result.json, and read back by one reader.

Every number in it comes from a recorded verdict. Whoever asks a kept result (the last screen, a triage, a workaround,
bugs, recheck, the table of a sweep, ``winnow ls``) gets the same frozen dataclasses that a run fills: `read_result`
leaves out what a damaged or older file does not have, once, and nobody has to look again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.files import json_of, write_text
from runner.report import result_parts as parts
from runner.report.typed_json import from_json, to_json


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

    @property
    def made(self) -> int:
        """How many were made, for whatever purpose."""
        return self.search + self.trust + self.refine + self.cause


def sum_of(counts: Iterable[Checks]) -> Checks:
    """Return all of them together."""
    every = [astuple(one) for one in counts] or [astuple(Checks())]
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


FLOATS = ("float16", "bfloat16")
"""The low types that are no quantization."""


@dataclass(frozen=True)
class Summary:
    """What `result.json` holds.

    ``culprits``: top-level node names of the answer as in the original (a nameless node by its first output).
    ``nested``: the nodes inside of them; ``iteration``: of a Loop or Scan the first in which these fail, in words.
    ``min_good`` and ``model``: paths relative to the run folder, or None. ``tried``: what was tried beyond
    1-minimality. ``controls``: of the ``outcomes`` those of harmless models. ``first_look``: what named the nodes
    that were asked about first. ``seen``: how many elements of the output that failed are NaN and Inf. ``said``:
    what the check said of the answer. ``answers``: all of them, where several were wanted and found. ``cause``:
    what was shown of it, by experiment. ``whose``: whose failure it is, see `runner.judgment.Whose`; None: nobody
    asked. ``memory``: what one check may take, in words. ``unresolved``: how often a verdict is not known, by
    reason. ``lacks``: options with which the run may have an answer. ``evidence``: what the check measured on what
    is handed over; ``outputs``: what it measured of each output of the whole model. These three are not in
    result.json. ``exit_code``: -1 where a damaged file does not say.
    """

    status: str = ""
    exit_code: int = -1
    strategy: str = ""
    message: str = ""
    nodes_before: int = 0
    nodes_after: int | None = None
    culprits: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    iteration: str = ""
    minimality: str | None = None
    checks: Checks = field(default_factory=Checks)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    controls: Mapping[str, int] = field(default_factory=dict)
    unresolved: Mapping[str, int] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    signature: parts.KnownFailure | None = None
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
    statistics: parts.Statistics | None = None
    plan: parts.Plan | None = None
    reliability: parts.CheckReliability | None = None
    tried: str = ""
    first_look: str = ""
    seen: str = ""
    said: str = ""
    suspects: tuple[parts.TacticSuspect, ...] = ()
    passes: parts.NeededPasses | None = None
    releases: parts.Releases | None = None
    layers: parts.Layers | None = None
    workarounds: tuple[parts.Workaround, ...] = ()
    inspection: parts.Inspection | None = None
    triage: parts.Triage | None = None
    rechecked: tuple[parts.Rechecked, ...] = ()
    bugs: tuple[parts.KnownBug, ...] = ()
    fused: parts.Fused | None = None
    precision: parts.Precision | None = None
    cause: parts.Cause | None = None
    answers: tuple[Summary, ...] = ()
    whose: str | None = None
    memory: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[parts.Row, ...] = ()

    @property
    def failure(self) -> parts.KnownFailure:
        """The failure under study; one that says nothing where none was seen."""
        return self.signature or parts.KnownFailure()

    @property
    def unit(self) -> str:
        """What is counted before and after: of a quantized model, a layer is a node with all that was quantized."""
        quantized = self.precision is not None and self.precision.low not in FLOATS
        return "layers" if quantized and self.strategy.startswith("precision") else "nodes"


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
    seconds = {name: round(value, 3) for name, value in vars(summary.seconds).items()}
    peak = {"job": 0.0, "workers": 0.0, **summary.peak_rss_mb}
    made = {
        "nodes": {"before": summary.nodes_before, "after": summary.nodes_after},
        "seconds": seconds,
        "peak_rss_mb": {name: round(value, 1) for name, value in peak.items()},
        "answers": answers,
    }
    names = ["nodes" if one.name == "nodes_before" else one.name for one in dataclasses.fields(summary)]
    told = {n: to_json(made[n] if n in made else getattr(summary, n)) for n in names if n not in _ELSEWHERE}
    return {"format": FORMAT, **told}


def summary_of(data: Mapping[str, Any]) -> Summary:
    """Return the summary that `result_json` wrote; what is not as it should be counts as not there."""
    held = {name: value for name, value in data.items() if name not in _ELSEWHERE}
    nodes, answers = held.get("nodes"), held.pop("answers", None)
    if isinstance(nodes, Mapping):
        held |= {f"nodes_{name}": value for name, value in nodes.items()}
    several = [one for one in answers if isinstance(one, Mapping)] if isinstance(answers, list) else []
    found = [from_json(Summary, {**one, "nodes_after": one.get("nodes")}) for one in several]
    return replace(from_json(Summary, {**held, "answers": []}), answers=tuple(found), outputs=())


def write_result(summary: Summary, run_folder: Path) -> None:
    """Write ``result.json`` into the run folder, atomically. Raises OSError where that is impossible."""
    write_text(run_folder / RESULT_NAME, json.dumps(result_json(summary), indent=2, allow_nan=False) + "\n")


def read_result(run_folder: Path) -> Summary | None:
    """Return what a run wrote, or None where there is no (readable) result: its job did not get that far."""
    result = json_of(run_folder / RESULT_NAME)
    return summary_of(result) if isinstance(result, dict) else None
