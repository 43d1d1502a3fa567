"""Runs `strategy=extract`: cuts out what the user names, checks it, and hands it over with recorded values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.session_question import CurrentAnswer, SessionResult, study
from runner.engine.subject import nodes_of
from runner.exit_codes import NotApplicable, Status, UsageError
from runner.jobs.job import Job, load_recorded
from runner.jobs.reduce.preflight import file_of, ignore_harmless_nonfinite
from runner.jobs.reduce.run import answered, files_of
from runner.jobs.reduce.subgraph import THE_FILE, Subgraph
from runner.jobs.summary import described
from runner.model.graph.cut import CutError, depends_on
from runner.model.graph.graph_index import Graph, needed
from runner.reference.load import Loaded
from runner.report.summary import Summary
from runner.run_folder import REDUCED
from runner.schema.root import Settings
from runner.schema.strategy import ExtractSettings, chosen
from runner.text import close, counted
from runner.verdict import Phase
from strategies.search import Outcome, Trial

# Which nodes a user means: by name, by pattern, or between tensors.


def named(graph: Graph, wanted: Sequence[str]) -> Trial:
    """Return the top-level nodes of these names; what is no name is a shell pattern. Raises UsageError for no node."""
    places: dict[str, list[int]] = {}
    for node in graph.nodes:
        places.setdefault(node.name, []).append(node.index)
    found: set[int] = set()
    for name in wanted:
        here = places.get(name) or [at for other, some in places.items() if fnmatchcase(other, name) for at in some]
        if not here:
            raise UsageError(f"strategy.nodes={name}: the model has no such node at its top level{close(name, places)}")
        found.update(here)
    return Trial.of(found)


def between(graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> Trial:
    """Return the nodes that depend on one of ``inputs`` and on which one of ``outputs`` depends.

    Without inputs all that the outputs need, without outputs all that needs the inputs. Raises UsageError for a tensor
    that is none, and where nothing lies between.
    """
    tensors = {*graph.producers, *graph.readers}
    for key, names in (("inputs", inputs), ("outputs", outputs)):
        for name in names:
            if name not in tensors:
                raise UsageError(f"strategy.{key}={name}: the model has no such tensor{close(name, tensors)}")
    makers = {graph.producers[name] for name in outputs or graph.outputs if name in graph.producers}
    before = needed(graph, makers) | makers
    after = depends_on(graph, [at for name in inputs for at in graph.readers.get(name, ())]) if inputs else before
    if not before & after:
        raise UsageError(f"no node lies between strategy.inputs={list(inputs)} and strategy.outputs={list(outputs)}")
    return Trial.of(before & after)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Extract a part and leave the result folder behind. Raises UsageError for names that the model does not have."""
    strategy = chosen(settings.strategy, ExtractSettings)
    if bool(strategy.nodes) == bool(strategy.inputs or strategy.outputs):
        raise UsageError(
            "strategy=extract: name what is wanted, either strategy.nodes=[NODE, ..] or the tensors it lies between, "
            "strategy.inputs=[TENSOR, ..] strategy.outputs=[TENSOR, ..]"
        )
    with Job.opened(settings, folder, command) as job:
        loaded = load_recorded(job)
        graph = loaded.graph
        wanted = named(graph, strategy.nodes) if strategy.nodes else between(graph, strategy.inputs, strategy.outputs)
        subject = Subgraph.of_loaded(loaded, job.folder, settings.cut)
        ends = {graph.producers.get(name) for name in strategy.inputs}  # what the user names is where the part begins
        subject = replace(subject, carried=graph.constants - ends if subject.carries else frozenset())
        with job.judge(subject, loaded, "nodes") as judge:
            job.drop_stale_results()
            ending = job.ended(
                lambda code: SessionResult(Status.interrupted, "", code=code),
                lambda: _extracted(job, loaded, judge, wanted),
            )
            summary = job.summary(judge, ending, loaded)
            if ending.main:  # nothing fails where the part passes, whatever the whole model does
                summary = replace(summary, signature=described(ending.signature))
            summary = answered(summary, ending, judge, subject, job.folder)
            job.bundle(summary, files_of(ending))
    return summary


_ENDINGS = {Outcome.FAIL: Status.found, Outcome.UNRESOLVED: Status.could_not_judge}
"""How it ends, by what becomes of the part; one that passes, or fails in another way, shows nothing of the failure."""


def _extracted(job: Job, loaded: Loaded, judge: Judge, wanted: Trial) -> SessionResult:
    subject = judge.subject
    size = counted(len(nodes_of(subject, wanted)), "node")
    if job.settings.plan:
        said = f"{size} of {len(loaded.graph.nodes)} would be extracted; nothing was cut or checked, as asked"
        return SessionResult(Status.planned, said)
    try:
        HandOver(job.settings.result, job.folder, job.tools.at, loaded.store).write(subject, wanted, REDUCED)
    except CutError as error:
        raise NotApplicable(f"{size} cannot be cut out: {error}") from error
    whole = _whole(job, loaded, judge)
    verdict = judge.sure(wanted, Phase.PREFLIGHT, f"the part of {size}")
    of = f"{len(nodes_of(subject, wanted))} of {counted(len(loaded.graph.nodes), 'node')}"
    said = f"the part ({of}) alone: {verdict.said}{whole}"
    signature = verdict.signature if verdict.outcome is Outcome.FAIL else None
    status = _ENDINGS.get(verdict.outcome, Status.nothing_to_find)
    return SessionResult(status, said, standing=CurrentAnswer(judge, wanted), signature=signature, main=wanted)


def _whole(job: Job, loaded: Loaded, judge: Judge) -> str:
    """Check the user's file: how it fails is what the part is asked about. Return what there is to say of it."""
    own = file_of(judge)
    verdict = own.sure(judge.subject.space.whole, Phase.PREFLIGHT, THE_FILE)
    if verdict.outcome is not Outcome.FAIL or not verdict.signature:
        return f"; {THE_FILE}: {verdict.said}"
    study(judge, verdict, THE_FILE)
    ignore_harmless_nonfinite(job, loaded, judge)
    return ""
