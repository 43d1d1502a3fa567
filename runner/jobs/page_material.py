"""What a job tells its page while its model, its recorded values and its workers are still there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.artifacts.artifact_index import INDEX_NAME, rows
from runner.artifacts.sort import place_of
from runner.candidate import Sample
from runner.checkers.backend_run import Side
from runner.checkers.checker import Tools
from runner.errors import UsageError
from runner.journal.journal import JOURNAL_NAME
from runner.journal.journal_lines import read_context
from runner.judgment import ANSWERED
from runner.model.values.recorded import TensorFile
from runner.report.page.collect.run_material import Run, RunMaterial
from runner.report.summary import Summary
from runner.schema.root import Settings
from runner.session.judge import Judge
from runner.session.subject import Subject
from runner.text import listed
from runner.verdict import Signature, relative
from strategies.outcome import Outcome
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.jobs.job import Job

DEAREST = 5.0
"""Seconds of a check on average from which on the target is not run once more for a page."""
LONGEST = 60.0
MOST_NAMED = 500
"""Elements that a page names beside their numbers."""
_NOUNS = {"raised": "candidate nodes", "nodes": "iterations"}


def material_of(job: Job, summary: Summary) -> RunMaterial:
    """Return what a page cannot find in the folder of the run."""
    index = place_of(job.settings.artifacts, job.folder, job.tools.cwd) / INDEX_NAME
    if not job.judges:
        return RunMaterial(index=index)
    judge, loaded, noun = job.judges[-1]
    asked = dict(_contexts(job.folder))
    cuts = noun == "nodes" and hasattr(judge.subject, "kept")
    return RunMaterial(
        graph=loaded.graph if loaded else None,
        recorded=loaded.recorded.values[0] if loaded and loaded.recorded.values else {},
        types=loaded.types if loaded else {},
        elements="nodes" if cuts else _NOUNS.get(noun, noun),
        names={} if cuts else _names(judge.subject),
        questions=frozenset({judge.journal.path.name, *(name for name in asked if "stage" not in asked[name])}),
        bodies={name: body for name, context in asked.items() if (body := _body(context.get("stage.origin", "")))},
        index=index,
        unlisted=tuple(_unlisted(judge, index)),
        logs=job.folder,
        run=run_of(job.settings, job.tools, summary),
    )


def _names(subject: Subject) -> dict[int, str]:
    """Return what the elements of a trial are called, if they are named and not too many for a table."""
    whole = subject.space.whole
    if len(whole) > MOST_NAMED:
        return {}
    called = ((number, subject.names(Trial.of([number]))) for number in whole)
    return {number: listed(names) for number, names in called if names}


def _contexts(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the further journals of a run with what they ask: one without a stage about the same elements as its own.

    These are of searches for further answers.
    """
    for path in folder.glob("journal-*.jsonl"):
        with suppress(UsageError, OSError):
            yield path.name, read_context(path)


def _body(origin: str) -> str:
    """Return the path of the nested graph that a subject comes from; "" of one of the model's own.

    Before it stand a digest and the answer that it lies in, and after it the iteration, if it is hoisted.
    """
    path = origin.split(" ", 2)[2] if origin.count(" ") > 1 else ""
    name, _, iteration = path.rpartition(" ")
    if not (name and iteration.isdigit()):
        return path
    return name if iteration == "0" else f"{name}, iteration {iteration}"


def _unlisted(judge: Judge, index: Path) -> Iterator[dict[str, Any]]:
    """Yield rows for verdicts that were known and for trials that could not be made: the index has checks only."""
    question, studied = judge.journal.path.name, judge.studied
    listed = {row.get("trial") for row in rows(index) if row.get("question") == question}
    for entry in judge.journal.entries():
        if (judge.journal.path, entry.key, entry.attempt) not in judge.tally.seen or entry.ranges in listed:
            continue
        known = entry.verdict
        if studied.signature:
            known = relative(known, studied.signature, studied.rule, studied.names, studied.caught)
        told: dict[str, Any] = {"outcome": known.outcome.value, "reason": known.reason, "seconds": known.seconds}
        row: dict[str, Any] = {"iteration": 0, "phase": entry.phase, "label": entry.label, "trial": entry.ranges}
        yield {**row, **told, "question": question}
    folder = judge.folder.parent
    for path in (folder / JOURNAL_NAME, *sorted(folder.glob("journal-*.jsonl"))):
        for note in rows(path):
            if "invalid" in note:
                told = {"trial": note.get("ranges"), "outcome": Outcome.UNRESOLVED.value, "reason": note["invalid"]}
                yield {key: note.get(key) for key in ("iteration", "phase", "label")} | told | {"question": path.name}


def run_of(settings: Settings, tools: Tools, summary: Summary) -> Run | None:
    """Return what runs a model once more; None where the check does not, or that shows no values, or is dear."""
    signature, checks, pool = summary.signature or {}, summary.checks, tools.pool
    made = max(checks.search + checks.trust + checks.refine + checks.cause, 1)
    if (
        summary.status not in ANSWERED
        or not settings.checker.looks_at_values
        or settings.target.model
        or settings.reference.model
        or not Signature(signature.get("stage", "load"), signature.get("kind", "")).about_values
        or summary.seconds.checking / made > DEAREST
        or (pool.deadline is not None and time.monotonic() > pool.deadline)
    ):
        return None

    def outputs(key: str, model: Path, sample: Sample, folder: Path) -> Mapping[str, TensorFile]:
        backend = settings.target if key == "target" else settings.reference
        side = Side(key, backend, tools, min(settings.checker.timeout or LONGEST, LONGEST), settings.checker.memory_mb)
        try:
            ran = side.run(model, [sample.feeds], folder)
        except KeyboardInterrupt:  # the answer is there; a page without these values is no reason to lose it
            return {}
        return ran.outputs[0] if ran.outputs else {}

    return outputs
