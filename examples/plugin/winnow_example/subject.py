"""Subject ``each_sample``: the model is checked on each sample alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.engine.session import Session
from runner.jobs.job import Job
from runner.reference.load import load
from runner.report.summary import Summary
from runner.schema.root import Settings
from runner.verdict import Candidate, Sample
from strategies.search import Ask, Claim, Done, Outcome, Space, Step, Trial


@dataclass(frozen=True)
class Samples:
    """The elements are samples; a candidate is the model with those of a trial."""

    model: Path
    samples: tuple[Sample, ...]

    @property
    def space(self) -> Space:
        """The samples, without structure."""
        return Space(tuple(range(len(self.samples))))

    def identity(self) -> dict[str, str]:
        """Return the kind; the run's context says which model and which inputs."""
        return {"kind": "each_sample"}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the samples' names."""
        return tuple(f"sample {number}" for number in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the user's model with the samples of a trial."""
        samples = tuple(self.samples[number] for number in trial)
        return Candidate(self.model, folder, trial, samples, ours=False)


def each(left: tuple[int, ...]) -> Step:
    """Ask about one sample after the other."""
    if not left:
        return Done(None, Claim.COUNTED)
    return Ask(Trial.of(left[:1]), lambda answer: each(left[1:]), "each", f"sample {left[0]}", left=len(left))


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Check each sample and leave the result folder behind."""
    with Job.opened(settings, folder, command) as job:
        loaded = load(settings, job.pool, job.folder, record=False)
        subject = Samples(loaded.path, tuple(Sample(sample) for sample in loaded.recorded.values))
        with job.judge(subject, loaded, "samples") as judge:
            session = Session(judge, lambda space: each(space.order), means=job.means)
            ending = job.ended(session, session.repeat)
            known = {number: judge.journal.get(Trial.of([number])) for number in subject.space.order}
            failing = [number for number, verdict in known.items() if verdict and verdict.outcome is Outcome.FAIL]
            told = f"{len(failing)} of {len(known)} samples fail: {', '.join(map(str, failing)) or 'none'}"
            summary = job.summary(judge, replace(ending, message=told), loaded)
            job.bundle(summary)
    return summary
