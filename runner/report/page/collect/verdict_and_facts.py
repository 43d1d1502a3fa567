"""What a page says first: the verdict in a sentence, what limits it, and the facts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runner.judgment import ANSWERED, Status
from runner.report.markup import cut
from runner.report.page.data import PageGraph, Row
from runner.report.repro.backends import rounds
from runner.report.sections.cause_section import NOT_THE_CAUSE, NOT_THE_TARGET
from runner.report.summary import Summary
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.text import counted, listed

MOST_NAMES, FIRST_NAMES = 10, 3
LONGEST, LONGEST_SENTENCE, LONGEST_NAME = 2000, 120, 160
"""Characters of a sentence or a fact: a name in a damaged file may be megabytes long."""
SIMULATED = "+simulated"
"""What the version of a stand-in for TensorRT ends in."""


CAUSES: Mapping[str, str] = {
    "proven": "it is the cause",
    "joint": "it is part of the cause",
    "not proven": NOT_THE_CAUSE,
    "untested": "whether it is the cause could not be tested",
}
"""Of a part that fails, by what the experiments on the whole model showed."""


def verdict_of(summary: Summary, reduced: PageGraph | None = None) -> str:
    """Return what was found, in one short sentence: the facts have the rest. ``reduced``: tells nodes' operators."""
    if summary.status in ANSWERED and reduced and summary.culprits and summary.nodes_after:
        fails = "fails" if summary.nodes_after == 1 else "fail"
        part = f"{summary.nodes_after} of {counted(summary.nodes_before, 'node')} {fails} alone"
        names = listed([_named(name, reduced) for name in summary.nested or summary.culprits], FIRST_NAMES)
        cause = CAUSES.get((summary.cause or {}).get("status", ""), "")
        return "; ".join(filter(None, (f"{part}: {names}", cause, NOT_THE_TARGET.get(summary.whose or ""))))
    said = summary.message.replace("\n", "; ")
    said = said if len(said) <= LONGEST_SENTENCE else cut(_first_part(said), LONGEST)
    if summary.status in ANSWERED:
        return said or "found"
    ended = words(summary.status)
    return said if said.startswith(ended) else ": ".join(filter(None, (ended, said)))


def _first_part(said: str) -> str:
    """Return what stands before the first semicolon that is not in brackets; before the first where none is closed."""
    parts = said.split("; ")
    heads = ("; ".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((head for head in heads if head.count("(") <= head.count(")")), parts[0])


def words(status: object) -> str:
    """Return a status as people write it."""
    return str(status).replace("_", " ")


def _named(name: str, graph: PageGraph) -> str:
    """Return a node's name with its operator, unless that is told by the name."""
    at = graph["names"].index(name) if name in graph["names"] else -1
    operator = graph["operators"][graph["operator"][at]] if at >= 0 else ""
    short = cut(name, LONGEST_NAME)
    return short if operator in short else f"{operator} {short}"


def labels_of(summary: Summary, settings: Settings) -> list[str]:
    """Return what limits all that a page says, in a few words each."""
    ended = {getattr(name, "value", name) for name, count in summary.outcomes.items() if count}
    flaky = (
        "whole_model" in (summary.reliability or {})
        or (summary.strategy == "repeat" and {"pass", "fail"} <= ended)
        or (summary.status == Status.could_not_judge and "the check is flaky" in summary.message)
    )
    versions = [version for name, version in summary.versions.items() if "tensorrt" in name]
    judged = settings.checker.looks_at_values and any(summary.outcomes.values())
    found = {
        "interrupted": summary.status == Status.interrupted,
        "planned, not searched": summary.status == Status.planned,
        "simulated builder": settings.target.builds_engines and any(SIMULATED in version for version in versions),
        "low precision emulated": rounds(settings.target) and not settings.checker.runs_own_code,
        "flaky check": flaky,
        "from random inputs": judged and isinstance(settings.inputs, RandomInputs) and summary.nodes_before > 0,
        "budget reached": "budget" in (summary.minimality or "") and summary.status != Status.interrupted,
    }
    return [label for label, holds in found.items() if holds]


def facts_of(summary: Summary) -> list[Row]:
    """Return the facts of a run by name, without those that there are none of."""
    return [[name, cut(str(value), LONGEST)] for name, value in _facts(summary) if value]


def _facts(summary: Summary) -> Iterator[tuple[str, Any]]:
    signature, checks, seconds = summary.signature or {}, summary.checks, summary.seconds
    yield "status", f"{words(summary.status)} (exit code {summary.exit_code})"
    yield "result", summary.message.replace("\n", "; ")
    yield "culprits", listed(summary.culprits, MOST_NAMES) if len(summary.culprits) > FIRST_NAMES else ""
    whole = (summary.triage or {}).get("reproduced", {}).get("failure")  # of the file: its smallest part's may differ
    told = ": ".join(signature[key] for key in ("stage", "kind", "raised", "detail") if signature.get(key))
    yield "failure", whole or told
    yield "seen", summary.seen
    yield "check", summary.check
    yield "model", summary.input_model
    kept = "raised" if summary.precision and not summary.triage else "kept"  # a triage keeps the part that fails
    yield kept, f"{summary.nodes_after} of {summary.nodes_before} nodes" if summary.nodes_after is not None else ""
    yield "nested nodes kept", listed(summary.nested, MOST_NAMES)
    stopped = summary.status == Status.interrupted  # by somebody, and not by a budget
    yield "minimality", "; ".join(part for part in (not stopped and summary.minimality, summary.tried) if part)
    paid = {
        "to search": checks.search,
        "to make it smaller in other ways": checks.refine,
        "to show the cause": checks.cause,
        "to trust the answer": checks.trust,
        "reused": checks.reused,
    }
    yield "checks", ", ".join(f"{count} {what}" for what, count in paid.items() if count)
    counts = ((getattr(name, "value", name), count) for name, count in summary.outcomes.items())
    yield "outcomes", ", ".join(f"{count} {name}" for name, count in counts)
    yield "not known", "; ".join(f"{reason} ({count})" for reason, count in summary.unresolved.items())
    yield "seconds", f"{seconds.total:.1f}, of which {seconds.checking:.1f} in checks" if seconds.total else ""
    yield "memory", ", ".join(f"{name} {size:.0f} MiB" for name, size in summary.peak_rss_mb.items() if size)
