"""The bench of a run about tactics: engines are built on it, checked and compared; subsets of tactics are pinned."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.candidate import Sample
from runner.checkers.backend_run import Side
from runner.errors import CannotJudge, WinnowError
from runner.jobs.job import Job
from runner.jobs.summary import pass_rate
from runner.jobs.tactics.build_before_check import ENGINE
from runner.jobs.tactics.compare import described
from runner.jobs.tactics.engine_subject import Engine
from runner.jobs.tactics.recorded_tactics import SUFFIX, Recording, read, write
from runner.jobs.tactics.suspects import Suspect, suspects
from runner.jobs.tactics.tactics_subject import Tactics, nearest
from runner.judgment import Status
from runner.loading.load import Loaded
from runner.report.summary import Summary
from runner.schema.installed_choices import SEARCHES
from runner.schema.strategy import TacticIsolateSettings, TacticRepeatSettings, chosen
from runner.session.handover import HandOver
from runner.session.inquiry import Means
from runner.session.judge import Judge
from runner.session.question import Question
from runner.session.reliability import Reliability
from runner.session.result import Ending
from runner.session.session import Session
from runner.session.subject import Subject
from runner.text import counted
from strategies.procedure import Options
from strategies.repeat import both, repeat
from strategies.trial import Trial

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bench:
    """Where engines are built and checked.

    ``job`` as it was asked for; ``building``: the same, with a checker that builds first. ``side``: what builds.
    """

    job: Job
    building: Job
    loaded: Loaded
    side: Side

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples, for shapes and for checks that want values."""
        return tuple(Sample(sample) for sample in self.loaded.recorded.values)

    @property
    def means(self) -> Means:
        """One build at a time: what runs beside it changes what is timed."""
        return replace(self.job.means, workers=1)

    def judge(self, noun: str) -> AbstractContextManager[Judge]:
        """Judge builds of the model; ``noun``: what is counted."""
        return self.building.judge(Engine(self.loaded.path, self.samples), self.loaded, noun)

    def repeat(self) -> Summary:
        """Build until good, bad or N, and compare the tactics."""
        until = chosen(self.job.settings.strategy, TacticRepeatSettings).until
        with self.judge("builds") as judge:
            session = Session(judge, lambda space: repeat(until), means=self.means)
            ending = self.job.ended(session, session.repeat)
            good, bad = self._recorded(judge)
            found = suspects(good, bad) if good and bad else ()
            told = described(found) if good and bad else "nothing to compare: all builds are of one kind"
            if ending.status is Status.found:
                ending = replace(ending, message=f"{ending.message}; {told}")
            return self._reported(judge, ending, None, found, statistics=True)

    def isolate(self, pair: tuple[Recording, Recording] | None) -> Summary:
        """Pin subsets of the differing choices; without a pair, build until there is one."""
        with self.judge("tactics") as judge:
            reliability = self.job.reliability()
            most = chosen(self.job.settings.strategy, TacticIsolateSettings).most_builds
            finder = Session(judge, lambda space: both(most), means=self.means)
            made: list[Tactics] = []

            def question() -> Ending:
                builds = pair or self._made(finder, judge)
                made.append(Tactics(self.loaded.path, *builds, self._caches(builds), self.samples))
                return self._isolate(judge, made[0], reliability)

            ending = self.job.ended(finder, question)
            return self._reported(judge, ending, reliability, (), subject=made[0] if made else None)

    # ---- steps of an isolation

    def _made(self, finder: Session, judge: Judge) -> tuple[Recording, Recording]:
        """Build until one good and one bad build were seen."""
        ending = finder.repeat()
        good, bad = self._recorded(judge)
        if not good or not bad:
            raise NothingDiffers(
                f"{ending.message}: one good and one bad build are needed, strategy.most_builds="
                f"{chosen(self.job.settings.strategy, TacticIsolateSettings).most_builds} were made at most"
            )
        return pair_of(good, bad)

    def _caches(self, pair: tuple[Recording, Recording]) -> tuple[Path, ...]:
        """Return files of the timing caches that hold the keys; where none was kept, that of a build made now."""
        folder = self.job.folder / "caches"
        folder.mkdir(exist_ok=True)
        found = []
        for name, recording in zip(("good", "bad"), pair, strict=True):
            if recording.cache:
                (folder / name).write_bytes(recording.cache)
                found.append(folder / name)
        if found:
            return tuple(found)
        base = folder / "base"
        if not base.is_file():
            request = {"load": [], "pins": {}, "save": str(base), "error_on_miss": False}
            ran = self.side.run(
                self.loaded.path, [sample.feeds for sample in self.samples], folder / "build", tactics=request
            )
            if not base.is_file():
                raise CannotJudge(f"no timing cache could be made to pin tactics in: {ran.invalid or ran.message}")
        return (base,)

    def _isolate(self, judge: Judge, subject: Tactics, reliability: Reliability) -> Ending:
        many, strategy = len(subject.elements), chosen(self.job.settings.strategy, TacticIsolateSettings)
        handed = PinsHandOver(self.job.settings.result, self.job.folder, self.job.tools.at, self.loaded.store)
        session = Session(
            judge.stage("tactics", subject),
            lambda space: SEARCHES[strategy.search].begin(space, Options(extra_checks=strategy.extra_checks)),
            question=question_about(many),
            means=self.means,
            reliability=reliability,
            find_min_good=False,
            hand_over=handed,
        )

        def asked() -> Ending:
            if ending := session.preflight():
                return ending
            session.confirm_nothing()
            if self.job.settings.plan:
                return session.planned()
            return session.reduce()

        ending = self.job.ended(session, asked)
        if ending.status is Status.found and ending.trial:
            kept = len(ending.trial)
            told = f"{kept} of {counted(many, 'differing tactic')}, pinned, still fail{'s' * (kept == 1)}"
            ending = replace(ending, message=f"{told}; all others are as in the good build")
        return ending

    # ---- reports

    def _recorded(self, judge: Judge) -> tuple[list[Recording], list[Recording]]:
        """Return the recordings of this model's builds that were kept, good ones and bad ones."""
        sides = []
        for name in ("good", "bad"):
            found = []
            for path in sorted((judge.artifacts.folder / name).glob(f"*__{SUFFIX}")):
                try:
                    recording = read(path)
                except (OSError, ValueError) as error:
                    log.warning("%s: skipped: %s", path, error)
                    continue
                if recording.model == self.loaded.sha256 and not recording.pinned:
                    found.append(recording)
            sides.append(found)
        return sides[0], sides[1]

    def _reported(
        self,
        judge: Judge,
        ending: Ending,
        reliability: Reliability | None,
        found: Sequence[Suspect],
        *,
        subject: Tactics | None = None,
        statistics: bool = False,
    ) -> Summary:
        summary = self.building.summary(judge, ending, self.loaded, reliability)
        summary = replace(summary, nodes_before=0, suspects=tuple(one.to_json() for one in found))
        if statistics:
            summary = replace(summary, statistics=pass_rate(judge.tally.outcomes))
        if subject and ending.trial:
            summary = replace(
                summary,
                culprits=subject.names(ending.trial),
                suspects=tuple(_isolated(subject, number) for number in ending.trial),
            )
        for left in (self.job.folder / "checks").glob(f"*/{ENGINE}"):  # what was checked again was not sorted
            left.unlink()
        self.job.bundle(summary)
        return summary


class PinsHandOver(HandOver):
    """Hands over the pins of a trial, as a recording; what is checked again is the model with these pins."""

    def write(self, subject: Subject, trial: Trial, name: str) -> Path:
        """Write ``<name>.tactics.json``; return the model, which is unchanged."""
        assert isinstance(subject, Tactics)
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f"{name}.{SUFFIX}"
        write(place, subject.recording(trial))
        self._written[name] = [place]
        return subject.model


def question_about(many: int) -> Question:
    """Return which of so many differing tactics are needed: all bad ones pinned fail, and all good ones pass."""
    return Question(
        whole="the build with all bad tactics pinned",
        nothing="the build with all good tactics pinned",
        whole_passes=(f"all {many} differing tactics of the bad build, pinned, pass", "the failure is not in them"),
        nothing_fails=(
            "with all tactics of the good build pinned it does not pass",
            "the failure is not in the tactics that differ.",
        ),
    )


def _isolated(subject: Tactics, number: int) -> dict[str, Any]:
    one = subject.elements[number]
    named = replace(one.bad, layer=one.layer, nodes=one.bad.nodes or one.good.nodes)
    return {**named.to_json(), "good": {one.good.shown: 1}}


def pair_of(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[Recording, Recording]:
    """Return the good and the bad build that differ least. Raises NothingDiffers."""
    pair = nearest(good, bad)
    if pair is None:
        raise NothingDiffers(
            "good and bad builds chose the same tactics wherever both chose: the failure is not in a recorded tactic"
        )
    log.info("good: %s; bad: %s", *(Path(one.source).name or "recorded now" for one in pair))
    return pair


class NothingDiffers(WinnowError):  # noqa: N818 - the name is the message
    """There is nothing to pin (exit 4)."""

    status = Status.nothing_to_find
