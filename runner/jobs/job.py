"""A job: what every run shares (settings, folder, processes, checker), and what it does with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from runner import run_folder
from runner.artifacts import stale_results
from runner.artifacts.disk_space import FULL, Room
from runner.artifacts.sort import Artifacts, place_of
from runner.checkers.checker import Checker, Tools
from runner.checkers.registry import build as build_checker
from runner.errors import UsageError, WinnowError
from runner.jobs import context as contexts
from runner.jobs.expected_checks import checks_after
from runner.jobs.listener import CheckEvent, listener
from runner.jobs.processes import processes
from runner.jobs.registry import implementation
from runner.jobs.summary import checks_of, summary_of
from runner.journal.open_journals import Journals
from runner.judgment import Status
from runner.loading.load import Loaded, clean_up
from runner.loading.models import check_map
from runner.report.live.checked import Checked
from runner.report.live.getting_ready import getting_ready
from runner.report.live.log_lines import LogObserver
from runner.report.live.observer import observer
from runner.report.live.progress import Outline
from runner.report.summary import MistakeError, Summary, sum_of
from runner.schema.checker import BuildsChecker, Flaky
from runner.schema.root import Settings
from runner.schema.settings import PathUse, path_values
from runner.schema.strategy import PrecisionSettings, RepeatSettings, TacticRepeatSettings
from runner.session.handover import HandOver
from runner.session.inquiry import Budget, Means
from runner.session.judge import Judge, Studied
from runner.session.reliability import Reliability
from runner.session.result import Ending
from runner.session.subject import Subject
from runner.workers.leases.required_lease import lease_of
from runner.workers.pool import Pool
from strategies.outcome import Outcome
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.report.bundle import ReducedModel

log = logging.getLogger(__name__)

BEST = "interrupted; "
"""How the message of a session begins that somebody stopped."""

E = TypeVar("E", bound="Ending | None")


class Interruptible(Protocol):
    """A session, or several."""

    def interrupted(self, exit_code: int) -> Ending:
        """Return how it stands where somebody stops it."""
        ...


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Run one job and leave its result folder behind. Raises WinnowError where the question cannot be put at all.

    ``command``: what the user typed.
    """
    check_map(settings)
    return implementation(settings)(settings, folder.absolute(), command)


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
            ready = stack.enter_context(ExitStack() if listener() else getting_ready(settings.strategy.name))
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
                raise MistakeError(sum_of([checks_of(judge.tally) for judge, _, _ in job.judges])) from error

    @property
    def pool(self) -> Pool:
        """The workers."""
        return self.tools.pool

    @property
    def means(self) -> Means:
        """What checks may cost, and how many run at once."""
        settings = self.settings
        budget = Budget(settings.budget.checks, settings.budget.seconds, self.started)
        return Means(self._at_once, budget, self.tools.guardian.kill)

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

    @property
    def onward(self) -> str:
        """How a run goes on that was stopped, behind what is said of it."""
        return f"; go on with resume={self.folder}"

    def drop_stale_results(self) -> None:
        """Remove what an earlier run left in the folder, but for what this one reads."""
        read = [self.tools.at(path) for _, use, path in path_values(self.settings) if PathUse.READ in use]
        stale_results.drop(self.folder, read)

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
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Iterator[Judge]:
        """Judge candidates of ``subject``, and show each check.

        ``noun``: what the elements of a trial are called; ``size``: how many of those it has. ``tries``: candidates
        that are tried one after the other, 0: elements are searched. ``meanwhile``: what a run will need if its first
        check fails; it is called in a thread then, while this process waits for other checks.
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
            follow=partial(checks_after, settings, workers=self._at_once),
        )
        # a panel would swallow the question that is put to a person, and the terminal of a program is its own
        watcher = (LogObserver if settings.checker.asks_a_person or tell else observer)(strategy, noun, outline)

        def report(told: Checked) -> None:
            watcher.checked(told, size(told.nodes))
            if tell:
                tell(CheckEvent.of(strategy, told, size(told.nodes)))
            if first.acquire(blocking=False) and told.verdict.outcome is Outcome.FAIL:
                threads.append(threading.Thread(target=_prepare, args=(meanwhile,), name="meanwhile", daemon=True))
                threads[-1].start()

        first, threads = threading.Lock(), list[threading.Thread]()
        studied = Studied(settings.checker.same_failure)
        place = self.folder / "checks"
        judge = Judge(subject, self.checker, journal, artifacts, place, report, studied, journals=journals)
        self.judges.append((judge, loaded, noun))
        try:
            yield judge
        finally:
            watcher.finished()
            for thread in threads:
                thread.join()  # it may write into the run's folder

    def ended(self, session: Interruptible, question: Callable[[], E]) -> E | Ending:
        """Turn what stops a session into an ending of it, so that what was found is still reported."""
        try:
            return question()
        except UsageError as error:
            # what the search has found so far is kept, as after an interruption
            best = session.interrupted(error.exit_code)
            said = f"{error}\n{best.message.removeprefix(BEST)}" if best.standing else str(error)
            return replace(best, status=error.status, message=said)
        except WinnowError as error:
            return Ending(error.status, str(error))
        except OSError as error:
            if error.errno not in FULL:
                raise
            full = Room(self.folder).none(f"{error.strerror}: {error.filename or self.folder}")
            return Ending(full.status, str(full))
        except KeyboardInterrupt as error:  # a termination says its own exit code
            return session.interrupted(getattr(error, "exit_code", Status.interrupted.exit_code))

    def stopped(self, ending: Ending, hand_over: HandOver, name: str) -> Ending:
        """Say how to go on from an ending that somebody, or a mistake, brought about; hand over the best so far."""
        if ending.status is not Status.interrupted and not (ending.status is Status.usage and ending.standing):
            return ending
        if ending.standing:
            hand_over.write(ending.standing.judge.subject, ending.standing.trial, name)
        return replace(ending, message=f"{ending.message}{self.onward}")

    def summary(
        self, judge: Judge, ending: Ending, loaded: Loaded | None, reliability: Reliability | None = None
    ) -> Summary:
        """Return what is reported of an ending; say how well a check was tested that did not contradict itself."""
        if reliability and reliability.rates is None:
            reliability.second.tell()
        return summary_of(self, judge, ending, loaded, reliability)

    def bundle(self, summary: Summary, answer: ReducedModel | None = None, folder: Path | None = None) -> None:
        """Write result.json, and around it what the answer allows, into the run's folder or another one."""
        # the first check need not wait for these
        from runner.jobs.page_material import material_of  # noqa: PLC0415
        from runner.report.bundle import write_bundle  # noqa: PLC0415

        material = partial(material_of, self, summary)
        settings, cwd = self.settings, self.tools.cwd
        write_bundle(settings, folder or self.folder, summary, cwd, self.command, answer, self.pool, material)


def _prepare(step: Callable[[], None]) -> None:
    """Take this step while checks run: this process only waits for them."""
    with suppress(Exception):  # whoever needs it says what is wrong
        step()
