"""A run of strategy=repeat: the same check again and again, with statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.engine.check_trials import Judge
from runner.engine.session import Session
from runner.files import sha256_of
from runner.jobs.job import Job, load_whole
from runner.jobs.summary import MOST_SAID, pass_rate
from runner.reference.load import own_file_only
from runner.report.summary import Summary
from runner.schema.root import Settings
from runner.schema.strategy import RepeatSettings, chosen
from runner.verdict import Candidate, Sample, Verdict
from strategies.repeat import repeat
from strategies.search import Outcome, Space, Trial

# Subject `command`: the same thing again; a trial is the number of an iteration.


@dataclass(frozen=True)
class Command:
    """Repeats a check; the model is handed to it unchanged, if there is one."""

    model: Path | None = None
    samples: tuple[Sample, ...] = ()

    @property
    def space(self) -> Space:
        """No elements: iterations have no end of their own."""
        return Space(())

    def identity(self) -> dict[str, str]:
        """Return the content of the model's file, which is what is checked again and again."""
        content = sha256_of(self.model) if self.model else "none"
        return {"kind": "command", "model": content}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the iterations' numbers."""
        return tuple(f"iteration {number + 1}" for number in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the unchanged model as the candidate."""
        # an iteration that shared anything with the others could not tell how often it fails
        return Candidate(self.model, folder, trial, self.samples, fresh=True)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Repeat a check and leave the result folder behind. Raises UsageError for a file that would not be as it is."""
    own_file_only(settings)
    until = chosen(settings.strategy, RepeatSettings).until
    model = Path(settings.model).expanduser().absolute() if settings.model else None
    with Job.opened(settings, folder, command) as job:
        loaded = load_whole(job, folder) if model and job.checker.wants_feeds else None
        samples = loaded.samples if loaded else ()
        noun, size = ("nodes", len(loaded.graph.nodes)) if loaded else ("iterations", 1)
        with job.judge(Command(model, samples), loaded, noun, lambda _: size) as judge:
            session = Session(judge, lambda space: repeat(until), means=job.means)
            ending = session.planned() if settings.plan else job.ended(session.interrupted, session.repeat)
            first = _first_failure(judge)
            if first:
                judge.checker.settle(first)  # whoever asks on takes its tolerance
            ending = replace(ending, signature=first.signature if first else None)
            summary = job.summary(judge, ending, loaded)
            said = first.reason[:MOST_SAID] if first else ""
            summary = replace(summary, statistics=pass_rate(judge.tally.outcomes), said=said)
            job.bundle(summary)
    return summary


def _first_failure(judge: Judge) -> Verdict | None:
    """Return the verdict of the first iteration that failed; None: none did."""
    numbers = range(sum(judge.tally.outcomes.values()))
    verdicts = (judge.journal.get(Trial.of([number]), 0) for number in numbers)
    return next((one for one in verdicts if one and one.outcome is Outcome.FAIL), None)
