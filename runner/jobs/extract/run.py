"""Runs `strategy=extract`: cuts out what the user names, checks it, and hands it over with recorded values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.errors import NotApplicable, UsageError
from runner.jobs.extract.selection import between, named
from runner.jobs.good_outputs import load_recorded
from runner.jobs.job import Job
from runner.jobs.reduce.preflight import FILE_STAGE, spare_harmless
from runner.jobs.reduce.reduce_summary import answered, files_of
from runner.jobs.reduce.subgraph import THE_FILE, Subgraph
from runner.jobs.reduce.user_file_subject import UserFile
from runner.jobs.summary import described
from runner.judgment import Status
from runner.loading.load import Loaded
from runner.model.graph.cut import CutError
from runner.report.summary import Summary
from runner.run_folder import REDUCED
from runner.schema.diagnosis import ExtractSettings
from runner.schema.root import Settings
from runner.schema.strategy import chosen
from runner.session.handover import HandOver
from runner.session.judge import Judge
from runner.session.question import study
from runner.session.result import Ending
from runner.session.stage import Standing
from runner.session.subject import nodes_of
from runner.text import counted
from strategies.outcome import Outcome
from strategies.trial import Trial


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
        subject = Subgraph(
            *(graph, loaded.store, loaded.recorded, loaded.types, loaded.studied, job.folder / "values"),
            cut_policy=settings.cut.policy,
            outputs=settings.cut.outputs,
        )
        ends = {graph.producers.get(name) for name in strategy.inputs}  # what the user names is where the part begins
        subject = replace(subject, carried=graph.constants - ends if subject.carries else frozenset())
        with job.judge(subject, loaded, "nodes") as judge:
            job.drop_stale_results()
            ending = job.ended(_Nothing(), lambda: _extracted(job, loaded, judge, wanted))
            summary = job.summary(judge, ending, loaded)
            if ending.main:  # nothing fails where the part passes, whatever the whole model does
                summary = replace(summary, signature=described(ending.signature))
            summary = answered(summary, ending, subject, job.folder)
            job.bundle(summary, files_of(ending))
    return summary


class _Nothing:
    """What there is to say where somebody stops an extraction."""

    def interrupted(self, exit_code: int) -> Ending:
        """Return that it was."""
        return Ending(Status.interrupted, "interrupted", code=exit_code)


def _extracted(job: Job, loaded: Loaded, judge: Judge, wanted: Trial) -> Ending:
    subject = judge.subject
    size = counted(len(nodes_of(subject, wanted)), "node")
    if job.settings.plan:
        said = f"{size} of {len(loaded.graph.nodes)} would be extracted; nothing was cut or checked, as asked"
        return Ending(Status.planned, said)
    try:
        HandOver(job.settings.result, job.folder, job.tools.at, loaded.store).write(subject, wanted, REDUCED)
    except CutError as error:
        raise NotApplicable(f"{size} cannot be cut out: {error}") from error
    whole = _whole(job, loaded, judge)
    verdict = judge.sure(wanted, "pre-flight", f"the part of {size}")
    said = f"{size} of {len(loaded.graph.nodes)} extracted; alone the check says {verdict.said}{whole}"
    signature = verdict.signature if verdict.outcome is Outcome.FAIL else None
    return Ending(Status.found, said, standing=Standing(judge, wanted), signature=signature, main=wanted)


def _whole(job: Job, loaded: Loaded, judge: Judge) -> str:
    """Check the user's file: how it fails is what the part is asked about. Return what there is to say of it."""
    assert isinstance(judge.subject, Subgraph)
    own = judge.stage(FILE_STAGE, UserFile(judge.subject))
    verdict = own.sure(judge.subject.space.whole, "pre-flight", THE_FILE)
    if verdict.outcome is not Outcome.FAIL or not verdict.signature:
        return f"; of {THE_FILE}: {verdict.said}"
    study(judge, verdict, THE_FILE)
    spare_harmless(job, loaded, judge)
    return ""
