"""What a page says first: the verdict in a sentence, what limits it, and the facts of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runner.report.markup import cut
from runner.report.page.data import Row
from runner.report.repro.backends import rounds
from runner.report.summary import Summary
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.status import Status
from runner.text import listed

MOST_NAMES = 10
LONGEST = 2000
"""Characters of a sentence or a fact: a name in a damaged file may be megabytes long."""
SIMULATED = "+simulated"
"""What the version of a stand-in for TensorRT ends in."""


def verdict_of(summary: Summary) -> str:
    """Return how a run ended and what was found, in a sentence."""
    said = summary.message.replace("\n", "; ")
    names = listed(summary.culprits, MOST_NAMES) if summary.status == Status.found else ""
    of = f" ({summary.nodes_after} of {summary.nodes_before} nodes)" if names and summary.nodes_after else ""
    what = "; ".join(part for part in (f"{names}{of}" if names else "", said) if part)
    status = str(summary.status).replace("_", " ")
    return cut(f"{status}: {what}" if what else status, LONGEST)


def labels_of(summary: Summary, settings: Settings) -> list[str]:
    """Return what limits all that a page says, in a few words each."""
    flaky = "whole_model" in (summary.reliability or {})
    versions = [version for name, version in summary.versions.items() if "tensorrt" in name]
    judged = settings.checker.looks_at_values and any(summary.outcomes.values())
    found = {
        "interrupted": summary.status == Status.interrupted,
        "planned, not run": summary.status == Status.planned,
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
    yield "status", f"{summary.status} (exit code {summary.exit_code})"
    yield "failure", ": ".join(signature[key] for key in ("stage", "kind", "raised", "detail") if signature.get(key))
    yield "check", summary.check
    yield "model", summary.input_model
    yield "kept", f"{summary.nodes_after} of {summary.nodes_before} nodes" if summary.nodes_after is not None else ""
    yield "nested nodes kept", listed(summary.nested, MOST_NAMES)
    yield "minimality", "; ".join(part for part in (summary.minimality, summary.tried) if part)
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
