"""From trials to outcomes, paid for once, as many at once as there are workers.

The judge: from a trial to an outcome, paid for once.
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from runner.checkers.checker import Checker
from runner.checkers.command_template import Seal
from runner.checkers.interactive import Undo
from runner.disk_space import Room
from runner.engine.subject import Subject, kept, nodes_of
from runner.engine.tally import Tally
from runner.engine.verdict_cache import Journals
from runner.exit_codes import NotTried
from runner.journal.journal import Journal
from runner.journal.kept_files import Artifacts, failure_of
from runner.report.progress import Checked
from runner.schema.checker import SameFailure
from runner.verdict import (
    REFUSED,
    UNFIT,
    UNSEEN,
    Candidate,
    Invalid,
    Phase,
    Purpose,
    Raised,
    Sample,
    Signature,
    Verdict,
    in_numbers,
    relative,
)
from strategies.search import Outcome, Trial

log = logging.getLogger(__name__)

Report = Callable[[Checked], None]
"""Told of every check."""
# folders of iterations; a check, or whoever handed the folder over, may have put others beside them
_NUMBER = re.compile("[0-9]{1,9}")


@dataclass
class FailureUnderStudy:
    """The failure under study, which all judges of a run share.

    ``signature``: None until the whole model failed. ``message``: what the whole model's check said. ``rule``: which
    failures are the same one. ``others``: how often another one was met, by stage and kind. ``names``: those of the
    model's nodes and tensors, which messages may hold. ``caught``: what the check shows on a harmless model that it
    passes. ``flaky``: verdicts on one candidate differed. ``loads``: runtimes take the models at both ends of a search
    for what has to be in high precision, so that to refuse one between them is no verdict.
    """

    rule: SameFailure = SameFailure.kind
    signature: Signature | None = None
    caught: Raised | None = None
    message: str = ""
    names: frozenset[str] = frozenset()
    flaky: bool = False
    loads: bool = False
    others: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return in_numbers(self.signature, self.message)


@dataclass(frozen=True)
class Unseen:
    """Samples that a search does not see, on which its ends and its answer are run as well. ``journal``: of these."""

    samples: tuple[Sample, ...]
    journal: Journal

    def known(self, trial: Trial) -> Verdict | None:
        """Return the verdict of a trial on them, where there is one."""
        self.journal.refresh()
        return self.journal.get(trial)


@dataclass(eq=False)
class Judge:
    """Makes a candidate, has it checked, sorts its files and records the verdict. Safe for threads.

    ``journals``: opens those of stages; None: a run without. ``also``: other words of the failure under study, as
    experiments showed. ``mild``: whether a failure is too mild to be that one, or of another kind; None: no failure is.
    ``unseen``: None: candidates are run on no other samples than they are judged on.
    """

    subject: Subject
    checker: Checker
    journal: Journal
    artifacts: Artifacts
    folder: Path
    report: Report
    studied: FailureUnderStudy = field(default_factory=FailureUnderStudy)
    tally: Tally = field(default_factory=Tally)
    estimate: Callable[[Trial, Verdict], int] | None = None
    journals: Journals | None = None
    also: frozenset[Signature] = frozenset()
    mild: Callable[[Verdict], bool] | None = None
    unseen: Unseen | None = None

    def __post_init__(self) -> None:
        self.room = Room(self.folder.parent, (self.journal.path.parent,))
        self._lock = threading.Lock()
        self._iterations = count(self._last_iteration() + 1)

    def beside(self, subject: Subject, journal: Journal) -> Judge:
        """Return a judge of another subject in the same run: what was paid for and what is studied are one."""
        other = copy(self)
        other.subject, other.journal, other.estimate, other.unseen = subject, journal, None, None
        return other

    def stage(self, name: str, subject: Subject) -> Judge:
        """Return a judge of another subject in the same run, whose verdicts have the journal of that stage."""
        assert self.journals
        return self.beside(subject, self.journals.stage(self.journal, name, subject))

    def verdict(
        self,
        trial: Trial,
        phase: str,
        label: str,
        purpose: Purpose | None = None,
        attempt: int = 0,
        *,
        given_up: threading.Event | None = None,
    ) -> Verdict | None:
        """Return the verdict of a trial: from the journal, or by checking it. None: it was given up meanwhile.

        ``purpose``: what it is paid for; None: what its phase is.
        """
        with self.journal.claimed(trial, attempt):
            if known := self.recall(trial, attempt, phase, label):
                return known
            iteration, made = self.make(trial, phase, label)
            if isinstance(made, Invalid):
                verdict = Verdict(Outcome.UNRESOLVED, reason=made.reason)
                self.journal.note(trial, attempt, made.reason, phase, label, iteration)
                with self._lock:
                    self.tally.count(verdict, phase)
                self._tell(iteration, phase, label, trial, verdict)
                return verdict
            made = made if trial or attempt else self.with_unseen(made)
            return self.check(made, purpose, attempt, given_up=given_up)

    def with_unseen(self, made: Candidate) -> Candidate:
        """Return a candidate that is run on the samples that are not seen as well, unless it was before."""
        beyond = self.unseen
        if beyond is None or beyond.known(made.trial):
            return made
        return replace(made, samples=(*made.samples, *beyond.samples), unseen=len(beyond.samples))

    def sure(self, trial: Trial, phase: str, label: str, purpose: Purpose | None = None, attempt: int = 0) -> Verdict:
        """Return the verdict of a trial that no search asks for: it is never given up."""
        verdict = self.verdict(trial, phase, label, purpose, attempt)
        assert verdict is not None, "only the search is stopped"
        return verdict

    def recall(self, trial: Trial, attempt: int, phase: str, label: str) -> Verdict | None:
        """Return a recorded verdict; None: there is none.

        That another run could not judge the whole model, or the control, is forgotten: nothing can be asked as long as
        these are not known, and what was missing then may be there now.
        """
        self.journal.refresh()
        known = self.journal.get(trial, attempt)
        if known is None:
            return None
        shown = self._place(trial, attempt) in self.tally.seen
        if not shown and known.outcome is Outcome.UNRESOLVED and phase in (Phase.PREFLIGHT, Phase.CONTROL):
            self.journal.forget(trial, attempt)
            return None
        verdict = self._reused(trial, attempt, known, phase)
        if not shown:
            self._tell(0, phase, f"{label} (known)", trial, verdict)
        return verdict

    def _reused(self, trial: Trial, attempt: int, known: Verdict, phase: str) -> Verdict:
        """Count a recorded verdict, once, unless this run paid for it."""
        verdict, place = self._relative(known), self._place(trial, attempt)
        with self._lock:
            if place not in self.tally.seen:
                self.tally.seen.add(place)
                self.tally.reused += 1
                self.tally.count(verdict, phase)
        return verdict

    def _place(self, trial: Trial, attempt: int) -> tuple[Path, str, int]:
        return self.journal.path, trial.key, attempt

    def check(
        self,
        candidate: Candidate,
        purpose: Purpose | None,
        attempt: int = 0,
        *,
        own: bool = True,
        given_up: threading.Event | None = None,
    ) -> Verdict | None:
        """Have a candidate checked, whatever the journal knows; None if it was given up meanwhile.

        ``own=False``: its model is handed over, and not to be sorted or removed. ``given_up``: once set, the processes
        of checks are being killed, and what they say is worth nothing. Without it no search asks: a person has nothing
        to undo.
        Raises NoRoom where a disk is full, Tampered where the check has changed the files that it was given: then
        nothing is recorded. Of a check that the machine did not let be made only the reason is: it is no verdict.
        """
        self.room.confirm()
        # a repeat is to show what a shared process changes; the user's file and what is handed over are judged alone
        if attempt or self.studied.flaky or candidate.draws or not candidate.ours:
            candidate = replace(candidate, fresh=True)
        seal, untried = Seal.of(candidate), False
        while True:
            try:
                raw = self.checker.check(candidate)
                break  # also with what is no verdict: a check of somebody's own may give None
            except Undo:
                if given_up:
                    raise
                log.warning("nothing to undo")
            except NotTried as error:
                untried, raw = True, Verdict(Outcome.UNRESOLVED, reason=str(error))
                break
        if given_up and given_up.is_set():
            candidate.discard()
            shutil.rmtree(candidate.folder, ignore_errors=True)
            return None
        if candidate.left_out and raw.outcome is Outcome.PASS:
            raw = replace(raw, outcome=Outcome.UNRESOLVED, reason=f"it passes, {candidate.fewer}")
        seal.confirm()
        self.room.confirm()
        self.room.judge(raw)
        told = candidate.phase, candidate.label, candidate.iteration
        if self.unseen and UNSEEN in raw.metrics:
            beyond = Verdict.from_json(raw.metrics[UNSEEN])
            raw = replace(raw, metrics={key: one for key, one in raw.metrics.items() if key != UNSEEN})
            self.unseen.journal.put(candidate.trial, 0, beyond, Phase.HELD_OUT, *told[1:])
            self.tally.seen.add((self.unseen.journal.path, candidate.trial.key, 0))
        if untried:
            self.journal.note(candidate.trial, attempt, raw.reason, *told)
        else:
            raw = self.journal.put(candidate.trial, attempt, raw, *told)
        verdict = self._relative(raw)
        with self._lock:
            self.tally.seen.add(self._place(candidate.trial, attempt))
            self.tally.pay(verdict, purpose or Phase.of(candidate.phase).purpose, candidate.phase, attempt)
            # a control that fails shows a failure of the check, not of the model
            own_fault = candidate.phase in (Phase.CONTROL, Phase.CONSTANTS, Phase.FIRST_LOOK)
            if verdict.outcome is Outcome.DIFFERENT and verdict.signature and not own_fault:
                self.studied.others[failure_of(verdict.signature)] += 1
        # it copies models, and has a lock of its own: whoever begins a check must not wait for that
        (self.artifacts.sort if own else self.artifacts.hand_over)(candidate, verdict, self.journal.path.name)
        if own:
            candidate.discard()
        candidate.discard_values()
        with suppress(OSError):
            candidate.folder.rmdir()  # where nothing was left in it
        self._tell(candidate.iteration, candidate.phase, candidate.label, candidate.trial, verdict)
        return verdict

    def second_failures(self) -> tuple[str, ...]:
        """Return what else failed, and how often: other bugs, perhaps, that were not followed."""
        kept = self.artifacts.others()
        return tuple(
            f"another failure was seen {count} time{'s' * (count != 1)}, and not followed: {name}"
            + (f"; its smallest model is artifacts/{kept[name]}" if name in kept else "")
            for name, count in self.studied.others.most_common()
        )

    def counted(self, trial: Trial, first: int = 0) -> tuple[Verdict, ...]:
        """Return the recorded verdicts of a trial, from attempt number ``first`` on, as far as they follow on."""
        self.journal.refresh()
        found: list[Verdict] = []
        while known := self.journal.get(trial, first + len(found)):
            found.append(self._reused(trial, first + len(found), known, Phase.PREFLIGHT))
        return tuple(found)

    def unfit(self, trial: Trial) -> tuple[str, ...]:
        """Return why removals of single elements were not judged, as far as the check itself is why."""
        self.journal.refresh()
        own = kept(self.subject, trial)
        if len(trial) == 1 or (own and not own.inside and own.nodes != trial):
            return ()  # nothing can be left out, or what was left out was no node
        verdicts = [self._relative(known) for known in self.journal.removals(trial)]
        unknown = [verdict.reason for verdict in verdicts if verdict.outcome is Outcome.UNRESOLVED]
        return tuple(reason for reason in unknown if reason.startswith(UNFIT))

    def _tell(self, iteration: int, phase: str, label: str, trial: Trial, verdict: Verdict) -> None:
        left, subject, known = None, self.subject, Phase.of(phase)
        if known.counted:
            left = self.tally.due
        elif self.estimate and known.searching:
            left = self.estimate(trial, verdict)
        names = partial(subject.names, trial)
        self.report(Checked(iteration, phase, label, verdict, nodes_of(subject, trial), left, names, subject))

    def _relative(self, verdict: Verdict) -> Verdict:
        """A failure with another signature than the one under study is a DIFFERENT one, or the check's own."""
        studied, signature = self.studied, verdict.signature
        if studied.loads and signature and signature.refuses:
            return replace(verdict, outcome=Outcome.UNRESOLVED, reason=f"{REFUSED}: {verdict.reason}")
        if not studied.signature:
            return verdict
        verdict = relative(verdict, studied.signature, studied.rule, studied.names, studied.caught, self.also)
        if self.mild and verdict.outcome is Outcome.FAIL and self.mild(verdict):
            return replace(
                verdict, outcome=Outcome.DIFFERENT, signature=None, reason=f"milder, or another kind: {verdict.reason}"
            )
        return verdict

    def make(self, trial: Trial, phase: str, label: str) -> tuple[int, Candidate | Invalid]:
        """Return the next iteration's number, and its candidate with a new folder."""
        with self._lock:
            iteration = next(self._iterations)
            folder = self.folder / f"{iteration:05d}"
            folder.mkdir(parents=True)
        made = self.subject.make(trial, folder)
        if isinstance(made, Invalid):
            shutil.rmtree(folder)
            return iteration, made
        label += f", {made.fewer}" if made.left_out else ""
        return iteration, replace(made, iteration=iteration, phase=phase, label=label)

    def _last_iteration(self) -> int:
        """The last number of an interrupted run in the same folder; its unfinished files are left alone."""
        numbers = [int(path.name) for path in self.folder.glob("[0-9]*") if _NUMBER.fullmatch(path.name)]
        return max([*numbers, *(entry.iteration for entry in self.journal.entries())], default=0)


# Checks that are under way, as many at once as there are workers.

A = TypeVar("A")
R = TypeVar("R")

SLICE = 0.5
"""Seconds that one wait takes at most: a wait without end could not be interrupted on every system."""
PATIENCE = 0.1
"""Part of a check's time that is waited for those that began with it: what they say decides what is worth asking."""


@dataclass(frozen=True)
class Budget:
    """When to stop early: checks that the search and a flaky check took, seconds since ``started``; None: never."""

    checks: int | None = None
    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class CheckLimits:
    """What checks may cost, and how many run at once. ``kill_checks`` ends the processes of those under way."""

    workers: int = 1
    budget: Budget = field(default_factory=Budget)
    kill_checks: Callable[[], None] = lambda: None

    def together(self, calls: Sequence[Callable[[threading.Event], R]]) -> list[R]:
        """Return what calls return, made as many at once as there are workers; the first error ends the others.

        Each is given the event that is set where nobody waits for its answer any more.
        """
        found: dict[int, R] = {}
        each: ParallelChecks[int, R] = ParallelChecks(self.workers, self.kill_checks)
        with each as checks:
            begun = 0
            while len(found) < len(calls):
                while begun < len(calls) and checks.free:
                    checks.start(begun, calls[begun])
                    begun += 1
                found |= {at: future.result() for at, future in checks.finished()}
        return [found[at] for at in range(len(calls))]

    def ahead(self, asked: Sequence[Expected]) -> None:
        """Check at once what is going to be asked for: whoever asks finds it in the journal. One worker does not."""
        if self.workers > 1 and len(asked) > 1:
            self.together([one.made for one in asked])


@dataclass(frozen=True)
class Expected:
    """What is going to be asked of a judge; see `Judge.verdict`."""

    judge: Judge
    trial: Trial
    phase: str
    label: str
    purpose: Purpose | None = None
    attempt: int = 0

    def made(self, given_up: threading.Event) -> Verdict | None:
        """Return its verdict; None if it was given up meanwhile."""
        return self.judge.verdict(self.trial, self.phase, self.label, self.purpose, self.attempt, given_up=given_up)


class ParallelChecks(Generic[A, R]):
    """Makes checks, ``size`` at once; where that is one, in the caller's own thread.

    Each is a call, which is given an event: once that is set, nobody waits for its answer any more.

    A context manager. Checks still under way at its end are given up, whatever ends it: ``kill`` ends the processes
    that work on them, so nobody waits for the rest of a long check (or its time-out).
    """

    def __init__(self, size: int, kill: Callable[[], None]) -> None:
        self._size = size
        self._kill = kill
        self._given_up = threading.Event()
        self._running: dict[Future[R], A] = {}
        self._began: dict[Future[R], float] = {}
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="check") if size > 1 else None

    def __enter__(self) -> ParallelChecks[A, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._given_up.set()
        if self._threads is None:
            return
        self._threads.shutdown(wait=False, cancel_futures=True)
        # what no thread had begun is cancelled, and nobody ever reports it as done
        while waiting := {one for one in self._running if not (one.done() or one.cancelled())}:
            # again and again: what lost its process may have started another
            self._kill()
            wait(waiting, timeout=0.05)

    @property
    def busy(self) -> tuple[A, ...]:
        """What is being checked."""
        return tuple(self._running.values())

    @property
    def free(self) -> int:
        """How many more checks can start."""
        return self._size - len(self._running)

    def start(self, asked: A, check: Callable[[threading.Event], R]) -> None:
        """Begin the check that answers what is ``asked``; where one runs at once, it is done when this returns."""
        if self._threads is not None:
            future = self._threads.submit(check, self._given_up)
        else:
            future = Future()
            try:
                future.set_result(check(self._given_up))
            except Exception as error:  # noqa: BLE001 - as a thread would hand it over; an interruption goes through
                future.set_exception(error)
        self._running[future], self._began[future] = asked, time.monotonic()

    def finished(self) -> Iterator[tuple[A, Future[R]]]:
        """Wait for a check to end, and a moment for those that began with it; yield those that have ended."""
        done = wait(self._running, timeout=SLICE, return_when=FIRST_COMPLETED).done
        if done:
            first = min(self._began[one] for one in done)
            patience = min(PATIENCE * (time.monotonic() - first), SLICE)
            beside = [one for one in self._running if abs(self._began[one] - first) < patience]
            done |= wait(beside, timeout=patience).done
        for future in done:
            del self._began[future]
            yield self._running.pop(future), future
