"""A repeat: the same check again and again, with statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.candidate import Sample
from runner.jobs.job import Job
from runner.jobs.repeat.command import Command
from runner.jobs.summary import pass_rate
from runner.loading.load import load
from runner.loading.sanitize import own_file_only
from runner.report.summary import Summary
from runner.schema.root import Settings
from runner.schema.strategy import RepeatSettings, chosen
from runner.session.session import Session
from strategies.repeat import repeat


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Repeat a check and leave the result folder behind. Raises UsageError for a file that would not be as it is."""
    own_file_only(settings)
    until = chosen(settings.strategy, RepeatSettings).until
    model = Path(settings.model).expanduser().absolute() if settings.model else None
    with Job.opened(settings, folder, command) as job:
        loaded = load(job.settings, job.pool, folder, record=False) if model and job.checker.wants_feeds else None
        samples = tuple(Sample(sample) for sample in loaded.recorded.values) if loaded else ()
        with job.judge(Command(model, samples), loaded, "nodes" if loaded else "iterations") as judge:
            session = Session(judge, lambda space: repeat(until), means=job.means)
            ending = job.ended(session, session.repeat)
            summary = job.summary(judge, ending, loaded)
            summary = replace(summary, statistics=pass_rate(judge.tally.outcomes))
            job.bundle(summary)
    return summary
