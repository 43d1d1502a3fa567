"""Runs `strategy=passes`: the smallest set of switches that must be on for the failure, and the smallest that heal it.

The model stays whole; what is searched are the optimizations of the target, or switches of the user's command. First
the smallest set that fails with all others off, then each of its members alone off with all others on. Where none of
these passes, something else fails as well, and the smallest set to turn off is searched for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from runner.engine.check_trials import Judge
from runner.engine.min_good import HandOver
from runner.engine.repeated_checks import Reliability
from runner.engine.session import Session
from runner.engine.session_question import NOTHING, Question, SessionResult
from runner.engine.subject import Subject
from runner.exit_codes import Status, UsageError
from runner.jobs.job import Job, load_whole
from runner.jobs.run import Pipeline
from runner.reference.load import Loaded, own_file_only
from runner.report.result_parts import NeededPasses
from runner.report.summary import Summary
from runner.run_folder import MIXED
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, TensorRtBackend
from runner.schema.checker import CommandChecker
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import PassesSettings, chosen
from runner.text import counted, listed, one_line
from runner.verdict import Candidate, Phase, Sample, Variant, Verdict
from strategies.search import Answer, Claim, Options, Outcome, Space, Trial

# Switches: what a runtime does unless it is told not to, and how its settings say so.


@dataclass(frozen=True)
class Switch:
    """One thing that can be switched off.

    ``key``: the setting of the target, "" for a switch of the user's command. ``off``: makes of the setting what it is
    where the switch is off.
    """

    name: str
    key: str = ""
    off: Callable[[Any], Any] = lambda now: now

    def __str__(self) -> str:
        return self.name


def optimizer(name: str) -> Switch:
    """Return one of ONNX Runtime's optimizers."""
    return Switch(name, "disabled_optimizers", lambda now: [*now, name])


def _put(name: str, key: str, entry: str, value: Any) -> Switch:
    return Switch(name, key, lambda now: {**now, entry: value})


def _drop(what: str, key: str, entry: str) -> Switch:
    return Switch(f"{what} {entry}", key, lambda now: [one for one in now if one != entry])


#: what a session does besides its optimizers: name, setting, its key, what turns it off
_OF_A_SESSION = (
    ("memory pattern", "session_options", "enable_mem_pattern", "False"),
    ("memory reuse", "session_options", "enable_mem_reuse", "False"),
    ("CPU memory arena", "session_options", "enable_cpu_mem_arena", "False"),
    ("prepacked weights", "config_entries", "session.disable_prepacking", "1"),
    ("QDQ fusions", "config_entries", "session.disable_quant_qdq", "1"),
    ("double QDQ removal", "config_entries", "session.disable_double_qdq_remover", "1"),
    ("function inlining ahead of time", "config_entries", "session.disable_aot_function_inlining", "1"),
)


NO_LEVEL = "none"
LEVEL = Switch("graph optimizations", "optimization", lambda _: NO_LEVEL)
"""All that ONNX Runtime does to a graph: one of it may have no name, or be done again where its name is off."""


def session_switches(target: OnnxRuntimeBackend, optimizers: Iterable[str]) -> tuple[Switch, ...]:
    """Return the optimizers of an ONNX Runtime and what else its session does, but for what the user has set."""
    given = {*target.session_options, *target.config_entries, *target.disabled_optimizers}
    named = (optimizer(name) for name in optimizers if name not in given)
    return (*named, *(_put(*one) for one in _OF_A_SESSION if one[2] not in given))


def builder_switches(target: TensorRtBackend) -> tuple[Switch, ...]:
    """Return what the user lets a builder do: flags, tactic sources, preview features, the level of optimization."""
    flags = (_drop("flag", "flags", name) for name in target.flags)
    sources = (_drop("source", "tactic_sources", name) for name in target.tactic_sources or ())
    on = (name for name, wanted in target.preview_features.items() if wanted)
    features = (_put(f"preview feature {name}", "preview_features", name, False) for name in on)
    level = "builder_optimization_level"
    return (*flags, *sources, *features, _put(level, "config", level, 0))


def changes(settings: BackendSettings, off: Iterable[Switch]) -> dict[str, Any]:
    """Return the settings that are otherwise where these switches are off."""
    changed: dict[str, Any] = {}
    for switch in (one for one in off if one.key):
        changed[switch.key] = switch.off(changed.get(switch.key, getattr(settings, switch.key)))
    return changed


def overrides(changed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return changed settings as a user types them."""
    return tuple(f"target.{key}={_shown(value)}" for key, value in changed.items())


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {one}" for key, one in value.items()) + "}"
    return f"[{', '.join(map(str, value))}]"


# The model as it is under one variant of its target after another: the subject of `strategy=passes` and `versions`.

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class WholeModel(Generic[Choice]):
    """A trial is some of the ``choices``; the text of each is its name. ``model``: the user's file."""

    model: Path | None
    choices: tuple[Choice, ...]
    samples: tuple[Sample, ...]

    @cached_property
    def space(self) -> Space:
        """The choices in their order, without structure."""
        return Space(tuple(range(len(self.choices))))

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the choices by name."""
        return tuple(str(self.choices[number]) for number in trial)

    def under(self, variant: Variant, trial: Trial, folder: Path) -> Candidate:
        """Return the model as a variant of the target runs it."""
        return Candidate(self.model, folder, trial, self.samples, variant=variant)


log = logging.getLogger(__name__)

ALL_OFF = "the model with all of them off"
HEALING_UNKNOWN = "it is not known what to turn off"


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Search the switches and leave the result folder behind. Raises UsageError where nothing can be switched."""
    _refuse(settings)
    with Job.opened(settings, folder, command) as job:
        loaded = load_whole(job, job.folder)
        subject = Passes(loaded.path, _switches(job), loaded.samples, job.settings.target)
        with job.judge(subject, loaded, "settings") as judge:
            return _Search(job, loaded, subject, judge).summary()


def _refuse(settings: Settings) -> None:
    strategy, checker = chosen(settings.strategy, PassesSettings), settings.checker
    if checker.runs_own_code and not (isinstance(checker, CommandChecker) and strategy.switches):
        raise UsageError(
            f"strategy=passes checker={checker.name}: it runs code of yours, in which nothing is turned off from "
            "here. Name the command's switches: checker=command checker.command='python check.py {model} {switches}' "
            "strategy.switches=[--opt-a, --opt-b]; or take checker=auto, runs, finite, compare or builds"
        )
    if isinstance(checker, CommandChecker) and "{switches}" not in str(checker.command):
        raise UsageError(
            "checker.command does not name {switches}, so every trial is the same: checker.command='python check.py "
            "{model} {switches}'"
        )
    if strategy.switches and not checker.runs_own_code:
        raise UsageError(
            f"strategy.switches: checker={checker.name} starts no command that they are for. Leave them out, or set "
            "checker=command"
        )
    own_file_only(settings)


def _switches(job: Job) -> tuple[Switch, ...]:
    """Return what can be switched off. Raises UsageError where that is nothing."""
    settings = job.settings
    target = settings.target
    found: tuple[Switch, ...] = ()
    if named := chosen(settings.strategy, PassesSettings).switches:
        found = tuple(Switch(word) for word in dict.fromkeys(named))
    elif isinstance(target, OnnxRuntimeBackend):
        reply = job.pool.call("optimizers", {}, python=target.python, timeout=settings.workers.timeout)
        if reply.value is None:
            raise UsageError(f"target=onnxruntime: {reply.why}")
        found = session_switches(target, reply.value["names"])
    elif isinstance(target, TensorRtBackend):
        found = builder_switches(target)
    if not found:
        raise UsageError(
            f"strategy=passes target={target.name}: nothing can be switched off there. Set target=onnxruntime or "
            "target=tensorrt, or checker=command with strategy.switches=[--opt-a, --opt-b]"
        )
    return found


@dataclass(frozen=True)
class Passes(WholeModel[Switch]):
    """A trial is the switches that are on, or (``off``) those that are off. ``target``: its settings with all on."""

    target: BackendSettings
    off: bool = False

    def counted(self, number: int | None = None) -> str:
        """Say how many there are, or a number of them: switches of a command, or optimizations."""
        noun = "optimization" if all(one.key for one in self.choices) else "switch"
        return counted(len(self.choices) if number is None else number, noun)

    def identity(self) -> dict[str, str]:
        """Return the names of all switches: a trial counts them."""
        kind = "passes off" if self.off else "passes on"
        return {"kind": kind, "switches": json.dumps([one.name for one in self.choices])}

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the model, with the settings of the target, or the words of the command, that the trial means."""
        off = [one for number, one in enumerate(self.choices) if (number in trial.elements) is self.off]
        words = tuple(one.name for one in self.choices if not one.key and one not in off)
        return self.under(Variant(changes(self.target, off), words), trial, folder)


@dataclass
class _Search:
    """The searches of one run. ``subject``: a trial is the switches on; ``before``: what was seen of others.

    ``healing``: sets that heal the model where they are off; ``alone``: what comes of each needed one alone off.
    """

    job: Job
    loaded: Loaded
    subject: Passes
    judge: Judge
    before: str = ""
    healing: list[Trial] = field(default_factory=list)
    alone: dict[str, str] = field(default_factory=dict)

    def summary(self) -> Summary:
        """Search, and return what is reported."""
        job, reliability = self.job, self.job.reliability()
        session = self._session(self.judge, QUESTION, reliability)
        ending = job.ended(session.interrupted, lambda: self._asked(session))
        alone, healing = self.alone, self.healing
        if ending.trial is not None and ending.status is Status.found:
            heals = [self.subject.names(one) for one in healing]
            more = session.spent() and not session.inquiry.stopped and len(heals) < len(ending.trial)
            asked = "; the budget was reached before more was asked" if more else ""
            told = self.before + _told(self.subject, ending, heals) + _replaced(heals, alone)
            ending = replace(ending, message=told + asked + session.cut_short + session.flakiness)
        summary = job.summary(self.judge, ending, self.loaded, reliability)
        if ending.trial is not None:
            culprits = self.subject.names(ending.trial)
            off = changes(self.subject.target, (self.subject.choices[number] for one in healing[:1] for number in one))
            healed_by = tuple(self.subject.names(one) for one in healing)
            passes = NeededPasses(len(self.subject.choices), culprits, healed_by, alone, off, overrides(off))
            summary = replace(summary, culprits=culprits, passes=passes)
        job.bundle(summary)
        return summary

    def _asked(self, session: Pipeline) -> SessionResult:
        if ending := session.preflight():
            return ending
        if ending := self._all_off(session):
            leveled = self._by_level(ending)
            if leveled is None or leveled.preflight() or self._all_off(leveled):
                return ending
            session = leveled
        if self.job.settings.plan:
            return session.planned()
        ending = session.reduce()
        if ending.status is Status.found and ending.trial is not None:
            self.healing += self._healing(session, ending.trial)
        return ending

    def _all_off(self, session: Session) -> SessionResult | None:
        """Return how it ends where the failure needs none of the switches."""
        verdict = session.judge.sure(NOTHING, Phase.CONTROL, ALL_OFF)
        if verdict.outcome is Outcome.PASS or session.reliability.rates is not None:
            return None
        what = self.subject.counted()
        if verdict.outcome is Outcome.FAIL:
            return SessionResult(
                Status.nothing_to_find, f"with {what} off the model still fails, so the failure needs none of them"
            )
        if verdict.outcome is Outcome.DIFFERENT:
            return SessionResult(Status.could_not_judge, self._fails_otherwise(session, verdict, what))
        return SessionResult(Status.could_not_judge, f"{ALL_OFF} ({what}) cannot be judged: {verdict.said}")

    def _by_level(self, ending: SessionResult) -> Pipeline | None:
        """Ask about all optimizations at once where none that has a name is needed; None: there is no such switch."""
        words = any(not one.key for one in self.subject.choices)
        level = getattr(self.subject.target, LEVEL.key, NO_LEVEL)
        if words or ending.status is not Status.nothing_to_find or level == NO_LEVEL:
            return None
        self.before = f"with {counted(len(self.subject.choices), 'switch')} off the model still fails; "
        self.subject = replace(self.subject, choices=(LEVEL,))
        self.judge = self.judge.stage("optimization level", self.subject)
        return self._session(self.judge, QUESTION, self.job.reliability())

    def _fails_otherwise(self, session: Session, verdict: Verdict, what: str) -> str:
        """Say what is known where another failure is met with all switches off, and what can be asked then."""
        other, studied = verdict.signature, session.judge.studied.signature
        advice = (
            "Put those that the model cannot do without into checker.command, and leave them out of strategy.switches"
            if self.job.settings.checker.runs_own_code
            else "Reduce the model (strategy=reduce), and ask this of the reduced one: the other failure may be gone"
        )
        return (
            f"with all of {what} off the model fails in another way ({one_line(other)}) than with them on "
            f"({studied.name if studied else 'which is studied'}). That one may hide the other, so it is not known "
            f"whether any of them is needed. {advice}"
        )

    def _healing(self, session: Session, needed: Trial) -> list[Trial]:
        """Return the sets with which the model passes once they are off: each member alone, else the smallest.

        As far as the budget goes.
        """
        whole = self.subject.space.whole
        found: list[Trial] = []
        for member in needed:
            if session.spent():
                return found
            rest, (name,) = Trial(whole.elements - {member}), self.subject.names(Trial.of([member]))
            ruling = session.ruled(session.judge, rest, Phase.SEARCH, f"all but {name}")
            if ruling:
                self.alone[name] = ruling.verdict.outcome.value
            if ruling and ruling.answer is Answer.NO and ruling.verdict.outcome is Outcome.PASS:
                found.append(Trial.of([member]))
        return found if found or session.spent() else self._smallest(session)

    def _smallest(self, session: Session) -> list[Trial]:
        """Search for the smallest set to turn off: what was found is not all that fails."""
        judge = session.judge.stage("passes off", replace(self.subject, off=True))
        off = self._session(judge, OFF, session.reliability.renewed(OFF))
        if off.preflight():
            return []
        ending = off.reduce()
        return [ending.trial] if ending.status is Status.found and ending.trial is not None else []

    def _session(self, judge: Judge, question: Question, reliability: Reliability) -> Pipeline:
        job, strategy = self.job, chosen(self.job.settings.strategy, PassesSettings)
        return Pipeline(
            judge,
            lambda space: SEARCHES[strategy.search].begin(space, Options(extra_checks=strategy.extra_checks)),
            question=question,
            means=job.means,
            reliability=reliability,
            find_min_good=False,
            hand_over=SameModel(job.settings.result, job.folder, job.tools.at, self.loaded.store),
        )


class SameModel(HandOver):
    """Hands nothing over: the model stays as it is, and settings are what is found."""

    def write(self, subject: Subject, trial: Trial, name: str) -> Path:
        """Return the user's file."""
        assert isinstance(subject, Passes) and subject.model
        return subject.model

    def label(self, name: str) -> str:
        """Return that the settings are checked again."""
        return "the answer again"


@dataclass(frozen=True)
class PassesQuestion(Question):
    """Which switches are needed; ``off``: which have to be turned off."""

    def begin(self, judge: Judge, whole: Verdict) -> None:
        """Say what is searched for."""
        if self.wants_failure:
            super().begin(judge, whole)
        else:
            log.info("several fail independently of each other: which have to be off for the model to pass?")

    def shown(self, subject: Subject, trial: Trial) -> str:
        """Count them."""
        return cast("Passes", subject).counted(len(trial)) + ("" if self.wants_failure else " off")


QUESTION = PassesQuestion(
    whole="the model",
    nothing=ALL_OFF,
    nothing_fails=(f"{ALL_OFF} does not pass", "the failure is not in what can be switched off."),
)
OFF = PassesQuestion(wanted=Outcome.PASS, whole=ALL_OFF, nothing="the model", name=MIXED)


def _told(subject: Passes, ending: SessionResult, healing: Sequence[Sequence[str]]) -> str:
    """Return the answer in a sentence; what was not proven is not said to be needed.

    That a switch is needed where all others are off, and that the model passes with it alone off, are two things.
    """
    assert ending.trial is not None
    needed = subject.names(ending.trial)
    model = subject.model.name if subject.model else "the model"  # which may be a part of another one
    some, many, others = listed(needed), subject.counted(), ""
    if ending.done and ending.done.claim is Claim.ONE_MINIMAL:
        said, rest = f"the failure needs {some}", len(subject.choices) - len(needed)
        others = f"; the other {subject.counted(rest).removeprefix('1 ')} may be off" if rest else ""
    else:
        said = f"with {some} on, of {many}, and all others off it still fails; that each is needed was not shown"
    if len(healing) > 1:
        some = "of these" if len(healing) == len(needed) else f"of {listed([one for (one,) in healing])}"
        return f"{said}; with any one {some} off and all others on, {model} passes{others}"
    return f"{said}; {f'{model} passes without {listed(healing[0])}' if healing else HEALING_UNKNOWN}{others}"


def _replaced(healing: Sequence[Sequence[str]], alone: Mapping[str, str]) -> str:
    """Return which switches are needed only while all others are off; "" for none."""
    names = [name for name, outcome in alone.items() if outcome == Outcome.FAIL.value]
    return f"; without {listed(names)} alone it still fails: another one does its part" if healing and names else ""
