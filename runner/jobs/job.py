"""A job: what every run shares (settings, folder, processes, checker), and what it does with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner import run_folder
from runner.checkers.candidate_runs import BackendRunner
from runner.checkers.checker import Checker, Tools, inner
from runner.checkers.checker import build as build_checker
from runner.checkers.command import CommandCheck
from runner.checkers.compare_outputs import NO_OUTPUT_TELLS
from runner.checkers.python import PythonCheck
from runner.checkers.runtime import RuntimeCheck
from runner.disk_space import FULL, Room
from runner.engine import verdict_cache as contexts
from runner.engine.check_trials import Budget, CheckLimits, FailureUnderStudy, Judge
from runner.engine.min_good import HandOver
from runner.engine.repeated_checks import Reliability
from runner.engine.session_question import SessionResult
from runner.engine.subject import Subject
from runner.engine.verdict_cache import Journals, drifted, versions
from runner.exit_codes import ANSWERED, Status, UsageError, WinnowError
from runner.files import json_lines
from runner.jobs import summary as account
from runner.jobs.processes import processes
from runner.journal import artifact_folder
from runner.journal.journal import JOURNAL_NAME, read_context
from runner.journal.kept_files import INDEX_NAME, Artifacts, place_of
from runner.judgment import SHOWN
from runner.model.values.recorded import TensorFile
from runner.reference.hints import larger_sizes
from runner.reference.load import Loaded, clean_up, filling_of, load
from runner.reference.models import outputs_of
from runner.report.page.data import PageData, Run
from runner.report.panel import getting_ready, observer
from runner.report.progress import Checked, CheckEvent, LogObserver, Outline, listener
from runner.report.summary import MistakeError, Seconds, Summary, sum_of
from runner.schema.checker import BuildsChecker, Flaky
from runner.schema.root import Settings
from runner.schema.settings import PathUse, path_values
from runner.schema.strategy import PrecisionSettings, RepeatSettings, TacticRepeatSettings
from runner.text import listed
from runner.verdict import EMPTY, NONE_FINITE, Sample, Signature, relative
from runner.workers.pool import Pool, lease_of
from strategies.search import Outcome, Trial

if TYPE_CHECKING:
    from runner.report.bundle import ReducedModel

log = logging.getLogger(__name__)

E = TypeVar("E", bound="SessionResult | None")


@dataclass(frozen=True)
class Job:
    """What all steps of a job share.

    ``command``: what the user typed; ``started``: monotonic seconds; ``ready``: is closed before the first check;
    ``judges``: those so far, each with its model and what its trials are made of.
    """

    settings: Settings
    folder: Path
    command: tuple[str, ...]
    tools: Tools
    checker: Checker
    started: float
    ready: ExitStack
    judges: list[tuple[Judge, Loaded | None, str]] = field(default_factory=list, compare=False)

    @classmethod
    @contextmanager
    def opened(cls, settings: Settings, folder: Path, command: Sequence[str]) -> Iterator[Job]:
        """Start what checks need, and end it again. Raises UsageError for settings that the checker cannot follow."""
        started = time.monotonic()
        settings = replace(settings, target=settings.target.settled())
        with ExitStack() as stack:
            # the terminal of a program is its own
            ready = stack.enter_context(ExitStack() if listener() else getting_ready(called(settings, folder)))
            running = stack.enter_context(processes(settings, folder))
            if settings.budget.seconds is not None:
                running.pool.deadline = started + settings.budget.seconds
            tools = Tools(running.pool, running.guardian, folder, Path.cwd(), stack)
            checker = build_checker(settings, tools)
            kept = settings.artifacts
            stack.callback(clean_up, folder, place_of(kept, folder, tools.cwd), kept.disk_budget_mb)
            job = cls(settings, folder, tuple(command), tools, checker, started, ready)
            try:
                yield job
            except (WinnowError, MistakeError):
                raise
            except Exception as error:
                raise MistakeError(sum_of([account.checks_of(judge.tally) for judge, _, _ in job.judges])) from error

    @property
    def pool(self) -> Pool:
        """The workers."""
        return self.tools.pool

    @property
    def means(self) -> CheckLimits:
        """What checks may cost, and how many run at once."""
        settings = self.settings
        budget = Budget(settings.budget.checks, settings.budget.seconds, self.started)
        return CheckLimits(self._at_once, budget, self.tools.guardian.kill)

    @property
    def _at_once(self) -> int:
        """How many checks run at once: no more than there are leases for, or a search speculates on what cannot run.

        A person answers one question at a time.
        """
        checker, wanted = self.settings.checker, self.settings.workers.count
        if checker.asks_a_person or wanted == 1:
            return 1
        target, builds = self.settings.target, isinstance(checker, BuildsChecker)
        own = checker.runs_own_code
        kind = self.pool.user_kind if own else lease_of(target.to_json(), self.pool, target.python, builds=builds)
        return self.pool.at_once(wanted, kind)

    def checker_with(self, timeout: float) -> Checker:
        """Return the checker of the run, with another limit of a check's time in seconds."""
        settings = self.settings
        return build_checker(replace(settings, checker=replace(settings.checker, timeout=timeout)), self.tools)

    def drop_stale_results(self) -> None:
        """Remove what an earlier run left in the folder, but for what this one reads."""
        read = [self.tools.at(path) for _, use, path in path_values(self.settings) if PathUse.READ in use]
        artifact_folder.drop(self.folder, read)

    def reliability(self) -> Reliability:
        """Return how the check's reliability is tested; a person is asked each question once."""
        settings = self.settings.checker
        return Reliability(Flaky.never if settings.asks_a_person else settings.flaky, settings.max_wrong)

    @contextmanager
    def judge(
        self,
        subject: Subject,
        loaded: Loaded | None,
        noun: str,
        size: Callable[[Trial], int] = len,
        *,
        tries: int = 0,
    ) -> Iterator[Judge]:
        """Judge candidates of ``subject``, and show each check.

        ``noun``: what the elements of a trial are called; ``size``: how many of those it has. ``tries``: candidates
        that are tried one after the other, 0: elements are searched.
        """
        settings = self.settings
        context = contexts.context(settings, self.checker, self.pool, loaded, subject)
        for change in contexts.drifted(settings, context):
            log.warning("not as recorded: %s", change)
        journals = Journals(settings, self.folder, self.tools.at)
        journal = journals.main(context)
        artifacts = Artifacts(settings.artifacts, self.folder, self.tools.cwd)
        self.ready.close()
        strategy, tell = settings.strategy.name, listener()
        outline = Outline(
            tries or len(subject.space.order),
            Outcome.PASS if isinstance(settings.strategy, PrecisionSettings) else Outcome.FAIL,
            self._at_once,
            repeats=isinstance(settings.strategy, RepeatSettings | TacticRepeatSettings),
            step=self.folder.parent.name == run_folder.STEPS,
            follow=partial(account.checks_after, settings, workers=self._at_once),
        )
        # a panel would swallow the question that is put to a person, and the terminal of a program is its own
        watching = LogObserver if settings.checker.asks_a_person or tell else observer
        watcher = watching(called(settings, self.folder), noun, outline)

        def report(told: Checked) -> None:
            watcher.checked(told, size(told.nodes))
            if tell:
                tell(CheckEvent.of(strategy, told, size(told.nodes)))

        studied = FailureUnderStudy(settings.checker.same_failure)
        place = self.folder / "checks"
        judge = Judge(subject, self.checker, journal, artifacts, place, report, studied, journals=journals)
        self.judges.append((judge, loaded, noun))
        try:
            yield judge
        finally:
            watcher.finished()

    def ended(self, interrupted: Callable[[int], SessionResult], question: Callable[[], E]) -> E | SessionResult:
        """Turn what stops a question into an ending of it, so that what was found is still reported.

        ``interrupted``: returns how it stands where somebody stops it with this exit code.
        """
        try:
            return question()
        except UsageError as error:
            # what the search has found so far is kept, as after an interruption
            best = interrupted(error.exit_code)
            said = f"{error}\n{best.message}" if best.standing else str(error)
            return replace(best, status=error.status, message=said)
        except WinnowError as error:
            return SessionResult(error.status, str(error), lacks=getattr(error, "lacks", ()))
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = Room(self.folder).none(f"{error.strerror}: {error.filename or self.folder}")
            return SessionResult(full.status, str(full))
        except KeyboardInterrupt as error:  # a termination says its own exit code
            return interrupted(getattr(error, "exit_code", Status.interrupted.exit_code))

    def stopped(self, ending: SessionResult, hand_over: HandOver, name: str) -> SessionResult:
        """Hand over the best so far of an ending that somebody, or a mistake, brought about.

        How a run goes on that a mistake in its settings ended is said with it; the others' screen has a command.
        """
        if not ending.standing or ending.status not in (Status.interrupted, Status.usage):
            return ending
        hand_over.write(ending.standing.judge.subject, ending.standing.trial, name)
        if ending.status is Status.interrupted:
            return ending
        return replace(ending, message=f"{ending.message}; go on with resume={self.folder}")

    def summary(
        self, judge: Judge, ending: SessionResult, loaded: Loaded | None, reliability: Reliability | None = None
    ) -> Summary:
        """Return what is reported of an ending; say how well a check was tested that did not contradict itself."""
        if reliability and reliability.rates is None:
            reliability.second.tell()
        settings, checker, pool = self.settings, self.checker, self.pool
        tally = judge.tally
        signature, apart = ending.signature or judge.studied.signature, "\n" if "\n" in ending.message else "; "
        own = signature is not None and signature.stage == "check"  # a reader knows what it says of the whole model
        shown = account.evidence(ending)
        kinds = [tally.evidence.get(key, ()) for key in (EMPTY, NONE_FINITE)]
        lacking = [name for names in kinds if ending.status is not Status.interrupted for name in names]
        filling = filling_of(settings, loaded, pool, lacking) if lacking and loaded else ""
        where = "the original" if settings.reference.model else "the reference"
        every = f"{NO_OUTPUT_TELLS}." in ending.message  # which says it of all outputs
        untold = account.shown_nothing(judge, where, filling, every=every)
        for said_last in untold[: sum(map(bool, kinds))] if lacking else ():
            log.warning("%s", said_last)
        said = str((own and judge.studied.message) or shown.get("reason") or judge.studied.message)
        passing = loaded and checker.wants_feeds and signature is None and not self.settings.plan
        warnings = [
            *account.another_failure(ending, judge, settings),
            *(account.untaken(loaded) if loaded and passing else ()),
            *(loaded.warnings if loaded else ()),
            *(f"not as recorded: {change}" for change in drifted(settings, judge.journal.context)),
            *untold,
            *judge.second_failures(),
            *account.drift_of_message(ending, judge),
            *(compares.doubts if isinstance(compares := inner(checker), RuntimeCheck) else ()),
        ]
        proven = ending.cause is not None and ending.cause.status in SHOWN  # what was not known limits nothing
        advice = "" if proven else tally.unknown.advice(ending.message)
        if ending.status in ANSWERED:  # the first line is about the answer
            warnings, advice = [*filter(None, (*warnings, advice))], ""
        passes = ending.status is Status.nothing_to_find and signature is None
        small = passes or NO_OUTPUT_TELLS in ending.message
        fed = replace(settings, inputs=loaded.taken.inputs or settings.inputs) if loaded else settings
        larger = larger_sizes(fed, loaded.graph) if small and loaded and not filling else ""
        hides = f"the sizes that are assumed may be too small to show a failure ({larger})" if larger else ""
        error = compares.failing_error if isinstance(compares, RuntimeCheck) else None
        return Summary(
            status=ending.status,
            exit_code=ending.exit_code,
            strategy=settings.strategy.name,
            message=apart.join(filter(None, (ending.message, advice, hides))),
            nodes_before=len(loaded.graph.nodes) if loaded else 0,
            minimality=ending.done.claim.value if ending.done else None,
            checks=account.checks_of(tally),
            outcomes=dict(tally.outcomes),
            controls=dict(tally.controls),
            unresolved=tally.unknown.reasons,
            lacks=tuple(filter(None, (filling, larger))) or ending.lacks,
            signature=account.described(signature, judge.studied.signature, error),
            seconds=Seconds(time.monotonic() - self.started, tally.seconds, loaded.recorded.seconds if loaded else 0.0),
            peak_rss_mb={"job": account.own_peak_mb(), "workers": max(pool.peak_rss_mb, tally.peak_rss_mb)},
            warnings=tuple(dict.fromkeys(warnings)),
            checker=checker.name,
            check=checker.describe(),
            input_model=settings.model,
            context=judge.journal.context,
            versions=versions(settings, pool),
            plan=account.plan(ending, judge, settings, loaded) if ending.status is Status.planned else None,
            reliability=account.measured(reliability) if reliability else None,
            tried=ending.done.note if ending.done else "",
            fused=account.fused(ending, judge),
            cause=account.cause_of(ending, judge),
            memory=account.memory_limit(settings.checker.memory_mb),
            evidence=shown,
            seen=account.seen(shown),
            said=said[: account.MOST_SAID],
            outputs=account.compared_outputs(judge),
            whose=ending.cause.whose.value if ending.cause else ending.whose and ending.whose.value,
        )

    def bundle(self, summary: Summary, answer: ReducedModel | None = None, folder: Path | None = None) -> None:
        """Write result.json, and around it what the answer allows, into the run's folder or another one."""
        # the first check need not wait for these
        from runner.report.bundle import write_bundle  # noqa: PLC0415

        material = partial(material_of, self, summary)
        settings, cwd = self.settings, self.tools.cwd
        write_bundle(settings, folder or self.folder, summary, cwd, self.command, answer, self.pool, material)


def called(settings: Settings, folder: Path) -> str:
    """Return what a run is called where it is shown: its strategy, or the step of a triage that it is."""
    step = folder.name.partition("-")[2] if folder.parent.name == run_folder.STEPS else ""  # of 04-inputs
    return step or settings.strategy.name


# What a job tells its page while its model, its recorded values and its workers are still there.

DEAREST = 5.0
"""Seconds of a check on average from which on the target is not run once more for a page."""
LONGEST = 60.0
MOST_NAMED = 500
"""Elements that a page names beside their numbers."""
_NOUNS = {"raised": "candidate nodes", "nodes": "iterations"}


def material_of(job: Job, summary: Summary) -> PageData:
    """Return what a page cannot find in the folder of the run."""
    index = place_of(job.settings.artifacts, job.folder, job.tools.cwd) / INDEX_NAME
    if not job.judges:
        return PageData(index=index)
    judge, loaded, noun = job.judges[-1]
    asked = dict(_contexts(job.folder))
    cuts = noun == "nodes" and hasattr(judge.subject, "kept")
    return PageData(
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
    listed = {row.get("trial") for row in json_lines(index) if row.get("question") == question}
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
        for note in json_lines(path):
            if "invalid" in note:
                told = {"trial": note.get("ranges"), "outcome": Outcome.UNRESOLVED.value, "reason": note["invalid"]}
                yield {key: note.get(key) for key in ("iteration", "phase", "label")} | told | {"question": path.name}


def run_of(settings: Settings, tools: Tools, summary: Summary) -> Run | None:
    """Return what runs a model once more; None where the check does not, or that shows no values, or is dear."""
    failure, pool = summary.failure, tools.pool
    if (
        summary.status not in ANSWERED
        or not settings.checker.looks_at_values
        or settings.target.model
        or settings.reference.model
        or not Signature(failure.stage or "load", failure.kind).about_values
        or summary.seconds.checking / max(summary.checks.made, 1) > DEAREST
        or (pool.deadline is not None and time.monotonic() > pool.deadline)
    ):
        return None

    def outputs(key: str, model: Path, sample: Sample, folder: Path) -> Mapping[str, TensorFile]:
        backend = settings.target if key == "target" else settings.reference
        side = BackendRunner(
            key, backend, tools, min(settings.checker.timeout or LONGEST, LONGEST), settings.checker.memory_mb
        )
        try:
            ran = side.run(model, [sample.feeds], folder)
        except KeyboardInterrupt:  # the answer is there; a page without these values is no reason to lose it
            return {}
        return ran.outputs[0] if ran.outputs else {}

    return outputs


# A model that stays whole, with what its outputs should hold for the checks that are handed that.


def load_whole(job: Job, folder: Path) -> Loaded:
    """Read the model of a run that cuts nothing; its samples hold the right outputs where the check is handed them.

    Raises UsageError for files that are wrong, and as `with_outputs` does.
    """
    loaded = load(job.settings, job.pool, folder, record=False)
    samples = with_outputs(job, loaded, loaded.samples, folder / "values" / "outputs")
    doubts = not_finite(job, loaded, [one.expected for one in samples])
    return replace(loaded, samples=samples, warnings=(*doubts, *loaded.warnings))


def load_recorded(job: Job) -> Loaded:
    """Read the model of a run that cuts it, with its recorded values.

    Raises UsageError for files that are wrong, and for a command that names {references} where nothing is recorded.
    """
    settings, checker = job.settings, inner(job.checker)
    if isinstance(checker, CommandCheck) and checker.needs_expected and not settings.cut.records:
        raise UsageError(
            f"{checker.describe()} cut.record=off: {{references}} would hold nothing. Set cut.record=auto, or give a "
            "check that does without {references}"
        )
    loaded = load(settings, job.pool, job.folder, feeds=job.checker.wants_feeds)
    return replace(loaded, warnings=(*not_finite(job, loaded, loaded.recorded.values), *loaded.warnings))


def not_finite(job: Job, loaded: Loaded, values: Sequence[Mapping[str, TensorFile]]) -> tuple[str, ...]:
    """Say where a check compares with what is not right: the reference's own outputs hold NaN or Inf."""
    bad = [name for name in loaded.graph.outputs if any(name in one and not one[name].finite for one in values)]
    asked = compared_with(job.checker) if bad else ""
    if not asked:
        return ()
    said = (
        f"the reference itself gives NaN or Inf at {listed(bad)}, so {asked} holds no right value there and a "
        "check that compares with it may fail whatever the target does; reference.model=PATH takes the right values "
        "from a model that is good (an original in float32, say)"
    )
    log.warning("%s", said)
    return (said,)


def compared_with(checker: Checker) -> str:
    """Return what a check of the user's calls the right values of outputs that it reads; "": it reads none."""
    checker = inner(checker)
    if isinstance(checker, CommandCheck):
        return "{references}" if checker.needs_expected else ""
    return "expected" if isinstance(checker, PythonCheck) and checker.reads_expected else ""


def with_outputs(job: Job, loaded: Loaded, samples: Sequence[Sample], folder: Path) -> tuple[Sample, ...]:
    """Return samples, with what the reference makes of the model as it is where a check is handed that.

    All others have the reference run beside each candidate. Raises UsageError where a command names {references} and
    there are none: without them its verdict would be about a missing file, not about the model.
    """
    checker, settings = inner(job.checker), job.settings
    needed = isinstance(checker, CommandCheck) and checker.needs_expected
    if loaded.expected:  # files hold them
        return tuple(samples)
    if not _is_handed(job) or not samples:
        if needed and loaded.graph.inputs:
            raise UsageError(
                f"{checker.describe()}: there are no values for the model's inputs, so {{references}} would hold "
                "nothing. Give inputs=files inputs.path=..., or a check that does without {references}"
            )
        return tuple(samples)
    path = job.tools.at(settings.reference.model) if settings.reference.model else loaded.path
    made: Sequence[Mapping[str, TensorFile]] = [{} for _ in samples]
    try:
        made = outputs_of(settings, job.pool, path, [one.reference or one.feeds for one in samples], folder)
    except WinnowError as error:
        if needed:
            raise UsageError(f"{checker.describe()}: no values for {{references}}: {error}") from error
        log.info("no values of the model's outputs: %s", error)
    lacking = [name for name in loaded.graph.outputs if any(name not in one for one in made)]
    if needed and lacking:
        raise UsageError(
            f"{checker.describe()}: {{references}} would hold nothing for {', '.join(lacking)}: the reference's model "
            "has no output of that name"
        )
    return tuple(replace(one, expected=expected) for one, expected in zip(samples, made, strict=True))


def _is_handed(job: Job) -> bool:
    """Whether the check is handed the right values of outputs, whatever the kind of run."""
    checker, settings = inner(job.checker), job.settings
    if isinstance(checker, CommandCheck):
        return checker.wants_expected
    builds = isinstance(settings.checker, BuildsChecker) and settings.reference.model is not None
    return job.checker.wants_feeds and (settings.checker.runs_own_code or builds)
