"""Runs about tactics: build again and again and compare (`tactic_repeat`), pin what differs (`tactic_isolate`)."""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.checkers.candidate_runs import BackendRun, BackendRunner
from runner.engine.check_trials import CheckLimits, Judge
from runner.engine.min_good import HandOver
from runner.engine.repeated_checks import Reliability
from runner.engine.session import Session
from runner.engine.session_question import Question, SessionResult
from runner.engine.subject import Subject
from runner.exit_codes import CannotJudge, NotApplicable, Status, UsageError, WinnowError
from runner.jobs.job import Job, load_whole
from runner.jobs.run import Pipeline
from runner.jobs.summary import pass_rate
from runner.jobs.tactics import recordings as recorded
from runner.jobs.tactics.recordings import Recording, Tactics
from runner.reference.load import Loaded, own_file_only
from runner.report.bundle import write_bundle
from runner.report.result_parts import Statistics, TacticSuspect
from runner.report.summary import Seconds, Summary
from runner.schema.backend import TensorRtBackend
from runner.schema.installed_choices import SCHEMAS, SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import TacticIsolateSettings, TacticRepeatSettings, TacticSettings, chosen
from runner.text import counted, program_name
from runner.verdict import Candidate
from strategies.repeat import both, repeat
from strategies.search import Options, Trial

# Comparing recorded tactics: neither a model nor TensorRT is needed.

log = logging.getLogger(__name__)


def compare(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Compare two sets of recordings; neither a model nor TensorRT is needed. Raises UsageError."""
    started = time.monotonic()
    good, bad = (_not_pinned(recordings_of(settings, key), settings, key) for key in ("good", "bad"))
    found = recorded.suspects(good, bad)
    builds = f"{counted(len(good), 'good build')} and {counted(len(bad), 'bad build')} compared"
    status = Status.found if found else Status.nothing_to_find
    summary = Summary(
        status=status,
        exit_code=status.exit_code,
        strategy=settings.strategy.name,
        message=f"{builds}: {described(found)}",
        suspects=found,
        statistics=Statistics(good_builds=len(good), bad_builds=len(bad)),
        seconds=Seconds(time.monotonic() - started),
    )
    write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def recordings_of(settings: Settings, key: str) -> list[Recording]:
    """Return the recordings that ``strategy.good`` or ``strategy.bad`` names."""
    path = getattr(settings.strategy, key)
    if not path:
        raise UsageError(
            f"strategy.{key}=: which recordings? Give a file or a folder of {key} ones: "
            "strategy.good=RUN/artifacts/good strategy.bad=RUN/artifacts/bad"
        )
    try:
        found, skipped = recorded.collect(Path(path))
    except OSError as error:
        raise UsageError(f"strategy.{key}={path}: {error.strerror or error}") from None
    for file, why in skipped.items():
        log.warning("%s: skipped: %s", file, why)
    if not found:
        first = next((f" ({file.name}: {why})" for file, why in skipped.items()), "")
        raise UsageError(
            f"strategy.{key}={path}: no recorded tactics there{first}. What can be read: {recorded.SUFFIX} of a run of "
            "strategy=tactic_repeat, tactic replays of Polygraphy (.json), verbose logs of builds with an editable "
            "timing cache (.log, .txt)"
        )
    return found


def _not_pinned(recordings: Sequence[Recording], settings: Settings, key: str) -> list[Recording]:
    """Leave out builds whose tactics were prescribed: what TensorRT did not choose tells nothing here."""
    for one in recordings:
        if one.pinned:
            log.warning("%s: left out: its tactics were pinned", one.source)
    found = [one for one in recordings if not one.pinned]
    if not found:
        raise UsageError(
            f"strategy.{key}={getattr(settings.strategy, key)}: the tactics of all builds there were pinned, "
            "not chosen. Give builds that chose theirs: RUN/artifacts of strategy=tactic_repeat"
        )
    return found


def described(found: Sequence[TacticSuspect]) -> str:
    """Log the first suspects, and say how many there are."""
    for one in found[:20]:
        shown = f"{one.kernel} ({one.tactic})" if one.kernel else one.tactic
        log.info("%s: %s in %d of %d bad builds, in no good one", one.layer, shown, one.bad_builds, one.of)
    if not found:
        return "no tactic was seen in bad builds only; more builds may tell"
    layers = len({one.layer for one in found})
    return f"{counted(len(found), 'tactic')} of {counted(layers, 'layer')} seen in bad builds only"


# The bench of a run about tactics: engines are built on it, checked and compared; subsets of tactics are pinned.


@dataclass(frozen=True)
class Bench:
    """Where engines are built and checked.

    ``job`` as it was asked for; ``building``: the same, with a checker that builds first. ``side``: what builds.
    """

    job: Job
    building: Job
    loaded: Loaded
    side: BackendRunner

    @property
    def means(self) -> CheckLimits:
        """One build at a time: what runs beside it changes what is timed."""
        return replace(self.job.means, workers=1)

    def judge(self, noun: str) -> AbstractContextManager[Judge]:
        """Judge builds of the model; ``noun``: what is counted."""
        return self.building.judge(recorded.Engine(self.loaded.path, self.loaded.samples), self.loaded, noun)

    def repeat(self) -> Summary:
        """Build until good, bad or N, and compare the tactics."""
        until = chosen(self.job.settings.strategy, TacticRepeatSettings).until
        with self.judge("builds") as judge:
            session = Session(judge, lambda space: repeat(until), means=self.means)
            planned = self.job.settings.plan
            ending = session.planned() if planned else self.job.ended(session.interrupted, session.repeat)
            good, bad = self._recorded(judge)
            found = recorded.suspects(good, bad) if good and bad else ()
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

            def question() -> SessionResult:
                builds = pair or self._made(finder, judge)
                path, samples = self.loaded.path, self.loaded.samples
                made.append(Tactics(path, recorded.differences(*builds), samples, *builds, self._caches(builds)))
                return self._isolate(judge, made[0], reliability)

            ending = self.job.ended(finder.interrupted, question)
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
                self.loaded.path, [sample.feeds for sample in self.loaded.samples], folder / "build", tactics=request
            )
            if not base.is_file():
                raise CannotJudge(f"no timing cache could be made to pin tactics in: {ran.invalid or ran.message}")
        return (base,)

    def _isolate(self, judge: Judge, subject: Tactics, reliability: Reliability) -> SessionResult:
        many, strategy = len(subject.choices), chosen(self.job.settings.strategy, TacticIsolateSettings)
        handed = PinsHandOver(self.job.settings.result, self.job.folder, self.job.tools.at, self.loaded.store)
        session = Pipeline(
            judge.stage("tactics", subject),
            lambda space: SEARCHES[strategy.search].begin(space, Options(extra_checks=strategy.extra_checks)),
            question=question_about(many),
            means=self.means,
            reliability=reliability,
            find_min_good=False,
            hand_over=handed,
        )

        def asked() -> SessionResult:
            if ending := session.preflight():
                return ending
            session.confirm_nothing()
            if self.job.settings.plan:
                return session.planned()
            return session.reduce()

        ending = self.job.ended(session.interrupted, asked)
        if ending.status is Status.found and ending.trial:
            kept = len(ending.trial)
            told = f"the good build fails once it takes {'this tactic' if kept == 1 else 'these'} of the bad one"
            ending = replace(ending, message=f"{told} ({kept} of {many} that differ)")
        return ending

    # ---- reports

    def _recorded(self, judge: Judge) -> tuple[list[Recording], list[Recording]]:
        """Return the recordings of this model's builds that were kept, good ones and bad ones."""
        sides = []
        for name in ("good", "bad"):
            found = []
            for path in sorted((judge.artifacts.folder / name).glob(f"*__{recorded.SUFFIX}")):
                try:
                    recording = recorded.read(path)
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
        ending: SessionResult,
        reliability: Reliability | None,
        found: tuple[TacticSuspect, ...],
        *,
        subject: Tactics | None = None,
        statistics: bool = False,
    ) -> Summary:
        told: dict[str, Any] = {"nodes_before": 0, "suspects": found}
        if statistics:
            told["statistics"] = pass_rate(judge.tally.outcomes)
        if subject and ending.trial:
            told["culprits"] = subject.names(ending.trial)
            told["suspects"] = tuple(_isolated(subject, number) for number in ending.trial)
        summary = replace(self.building.summary(judge, ending, self.loaded, reliability), **told)
        for left in (self.job.folder / "checks").glob(f"*/{recorded.ENGINE}"):  # what was checked again was not sorted
            left.unlink()
        self.job.bundle(summary)
        return summary


class PinsHandOver(HandOver):
    """Hands over the pins of a trial, as a recording; what is checked again is the model with these pins."""

    def write(self, subject: Subject, trial: Trial, name: str) -> Path:
        """Write ``<name>.tactics.json``; return the model, which is unchanged."""
        assert isinstance(subject, Tactics)
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f"{name}.{recorded.SUFFIX}"
        recorded.write(place, subject.recording(trial))
        self._written[name] = [place]
        assert subject.model, "what is built is a model"
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


def _isolated(subject: Tactics, number: int) -> TacticSuspect:
    one = subject.choices[number]
    named = replace(one.bad, layer=one.layer, nodes=one.bad.nodes or one.good.nodes)
    return named.told({one.good.shown: 1})


def pair_of(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[Recording, Recording]:
    """Return the good and the bad build that differ least. Raises NothingDiffers."""
    pair = recorded.nearest(good, bad)
    if pair is None:
        raise NothingDiffers(
            "good and bad builds chose the same tactics wherever both chose: the failure is not in a recorded tactic"
        )
    log.info("good: %s; bad: %s", *(Path(one.source).name or "recorded now" for one in pair))
    return pair


class NothingDiffers(WinnowError):  # noqa: N818 - the name is the message
    """There is nothing to pin (exit 4)."""

    status = Status.nothing_to_find


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Run ``tactic_repeat`` or ``tactic_isolate``, and leave the result folder behind.

    Raises NotApplicable where TensorRT times no tactics, before any work, and UsageError.
    """
    with Job.opened(settings, folder, command) as job:
        library = _library(job)
        strategy, pair = settings.strategy, None
        if isinstance(strategy, TacticIsolateSettings) and (strategy.good or strategy.bad):
            pair = _pair(settings)
        bench = _bench(job, load_whole(job, job.folder), library)
        return bench.repeat() if isinstance(strategy, TacticRepeatSettings) else bench.isolate(pair)


def _library(job: Job) -> str:
    """Return what builds, by name and version, if tactics can be recorded there."""
    settings = job.settings
    name, target = settings.strategy.name, settings.target
    if not isinstance(target, TensorRtBackend):
        raise UsageError(f"strategy={name} target={target.name}: no engine is built there. Set target=tensorrt")
    if not settings.checker.takes_engine:
        able = (name for name, kind in SCHEMAS["checker"].items() if getattr(kind, "takes_engine", False))
        raise UsageError(
            f"strategy={name} checker={settings.checker.name}: it is handed no engine. Choose one of "
            f"{', '.join(able)}: checker=command checker.command='python check.py {{engine}}'"
        )
    if target.timing_cache:
        raise UsageError(
            f"target.timing_cache={target.timing_cache}: with timings from a file all builds choose alike. Leave it "
            f"out: strategy={name} keeps a cache of its own for each build"
        )
    own_file_only(settings, "builds")
    reply = job.pool.call(
        "tactics_support", {"backend": target.to_json()}, python=target.python, timeout=settings.workers.timeout
    )
    if reply.value is None:
        raise UsageError(f"target=tensorrt: {reply.why}")
    if reply.value["why_not"]:
        python = f" target.python={shlex.quote(target.python)}" if target.python else ""
        raise NotApplicable(
            f"target=tensorrt: {reply.value['why_not']}. To only build again and again: {program_name()} "
            f"strategy=repeat checker=builds target=tensorrt{python} model={settings.model} strategy.until=20"
        )
    return f"{reply.value['flavor']} {reply.value['version']}"


def _pair(settings: Settings) -> tuple[Recording, Recording]:
    """Return the good and the bad build that differ least, of those that are given."""
    good, bad = recordings_of(settings, "good"), recordings_of(settings, "bad")
    for key, side in (("good", good), ("bad", bad)):
        if not any(choice.key for recording in side for choice in recording.choices):
            raise UsageError(
                f"strategy.{key}={getattr(settings.strategy, key)}: tactic replays of Polygraphy hold no keys of the "
                "timing cache, so they cannot be pinned. Record builds anew: strategy=tactic_repeat"
            )
    recorded.comparable(good, bad)
    return pair_of(good, bad)


def _bench(job: Job, loaded: Loaded, library: str) -> Bench:
    settings = job.settings
    limits = chosen(settings.strategy, TacticSettings).timeout, settings.workers.memory_mb
    side = BackendRunner("target", settings.target, job.tools, *limits, keep=("engine", "log"))

    def build(candidate: Candidate, request: Mapping[str, Any]) -> BackendRun:
        assert candidate.model, "what is built is a model"
        feeds = [sample.feeds for sample in candidate.samples]
        return side.run(candidate.model, feeds, candidate.folder, tactics=request)

    identity = {**side.identity(), "library": library, "limits": json.dumps(limits)}
    checker = recorded.Building(job.checker, build, identity, loaded.sha256, library)
    artifacts = replace(settings.artifacts, paths=[*settings.artifacts.paths, f"{{dir}}/{recorded.SUFFIX}"])
    building = replace(job, checker=checker, settings=replace(settings, artifacts=artifacts))
    return Bench(job, building, loaded, side)
