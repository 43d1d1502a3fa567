"""The question that a session puts, and how it ended.

The question that a session puts: everything has the wanted outcome, nothing has not; the smallest that has it?

A reduction and an isolation of tactics want FAIL: everything fails, and nothing passes. A precision search wants PASS:
with everything in high precision the check passes, with nothing it fails.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, NoReturn

from runner.engine.cause import Cause, Inside
from runner.engine.check_trials import Judge
from runner.engine.subject import Kept, Subject, kept, nodes_of
from runner.judgment import BUDGET_REACHED, CannotJudge, Status, Whose
from runner.run_folder import REDUCED
from runner.text import counted
from runner.verdict import Signature, Verdict
from strategies.search import Answer, Done, Outcome, Trial, answer_of

# The ending of a session.


@dataclass(frozen=True)
class CurrentAnswer:
    """An answer as it stands: a trial of ``judge.subject``.

    ``origin``: the bodies that it is in, from the outermost on. ``inside``: what was shown of its nodes in the last of
    these; None: nothing, they fail alone.
    """

    judge: Judge
    trial: Trial
    origin: tuple[str, ...] = ()
    inside: Inside | None = None

    @property
    def _kept(self) -> Kept | None:
        return kept(self.judge.subject, self.trial)

    @property
    def owner_kept(self) -> bool:
        """Whether the nodes of the trial are inside an owner, and all of the model around it is still there."""
        return self._kept is not None and self._kept.inside

    def top_level(self, subject: Subject) -> Trial | None:
        """Return the answer as a trial of ``subject``, where it still consists of nodes of the same graph."""
        own, whole = self._kept, kept(subject, subject.space.whole)
        same = own and whole and own.graph is whole.graph and not own.inside
        return own.nodes if own and same else None

    @property
    def size(self) -> int:
        """How many top-level nodes the answer has."""
        return len(self._kept.present) if self._kept else len(self.judge.subject.names(self.trial))


@dataclass(frozen=True)
class SessionResult:
    """How a session ended.

    ``standing``: the answer; ``main``: its trial before it was refined. ``min_good``: the passing trial that differs
    least from a failing one. ``drift``: how the message of the answer's failure differs from that of the whole model's.
    ``measures``: of an answer that was made simpler, how bad it is by the check, before that and now.
    ``cause``: what is known about the cause, None: it was not asked. ``whose``: whose failure it is, where no cause
    says it. ``code``: the exit code where it is not the status's own. ``lacks``: see `CannotJudge`.
    """

    status: Status
    message: str
    done: Done | None = None
    standing: CurrentAnswer | None = None
    min_good: Trial | None = None
    signature: Signature | None = None
    remaining: int = 0
    main: Trial | None = None
    cause: Cause | None = None
    drift: str = ""
    measures: tuple[float, float] | None = None
    code: int | None = None
    whose: Whose | None = None
    lacks: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the run."""
        return self.status.exit_code if self.code is None else self.code

    @property
    def trial(self) -> Trial | None:
        """The trial of the answer."""
        return self.standing.trial if self.standing else None


log = logging.getLogger(__name__)

NOTHING = Trial.of([])
"""The empty trial. Of a model it is the control: a lone Identity, which no sane check fails."""


def nothing_shown(wanted: Literal["fail", "pass"]) -> str:
    """Say that the budget ended a search before any smaller set did what was wanted of it."""
    shown = f"before a smaller set than the whole was shown to {wanted}"
    return f"{BUDGET_REACHED} {shown}: a larger one goes on from there (budget.checks, budget.seconds)"


_OPPOSITE = {Answer.YES: Answer.NO, Answer.NO: Answer.YES}


@dataclass(frozen=True)
class Question:
    """What is wanted, what the two ends are, and their words.

    ``whole``, ``nothing``: what the two ends are called. ``whole_passes``, ``nothing_fails``: what is said, and what
    follows, where FAIL is wanted and an end has the other outcome. ``name``: of the model that is handed over.
    ``begun``: what the log says of the whole and its failure, where that is searched.
    """

    wanted: Outcome = Outcome.FAIL
    whole: str = "the whole model"
    nothing: str = "a lone Identity"
    whole_passes: tuple[str, str] = ("the whole model passes the check", "there is nothing to find")
    nothing_fails: tuple[str, str] = (
        "nothing passed this check, not even a model of a single Identity node",
        "the check cannot tell good from bad.",
    )
    name: str = REDUCED
    begun: str = "%s fails (%s); this failure is followed"

    @property
    def wants_failure(self) -> bool:
        """Whether the smallest set that fails is looked for, and not the smallest that passes."""
        return self.wanted is Outcome.FAIL

    def ends(self, whole: Trial) -> tuple[tuple[Trial, str], tuple[Trial, str]]:
        """Return the end that should fail, and the one that should not, with what they are called."""
        ends = (whole, self.whole), (NOTHING, self.nothing)
        return ends if self.wants_failure else (ends[1], ends[0])

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict says."""
        return answer_of(verdict.outcome, self.wanted)

    def enough(self, verdict: Verdict) -> bool:
        """Whether a verdict with the wanted outcome is good enough where a check is reliable."""
        return True

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as failed where a check is flaky.

        Whatever is no failure of the kind under study counts as passed, and whatever is no pass as failed: that which
        is wanted has to be shown.
        """
        return (verdict.outcome is self.wanted) is self.wants_failure

    def of_failing(self, answer: Answer) -> Answer:
        """Return what it means for the question that a trial fails (YES), or does not."""
        return answer if self.wants_failure else _OPPOSITE.get(answer, answer)

    def examined(self, judge: Judge, verdict: Verdict, label: str) -> None:
        """Take in the first verdict of an end: a failure is studied. Raises CannotJudge where it says nothing."""
        if not judge.studied.signature:
            if verdict.outcome is Outcome.FAIL:
                study(judge, verdict, label)
            elif verdict.outcome is not Outcome.PASS:
                refuse(judge, verdict, label)

    def begin(self, judge: Judge, whole: Verdict) -> None:
        """Say what is searched for, once the whole has the wanted outcome."""
        log.info(self.begun, self.whole, judge.studied)

    def no_answer(self, verdict: Verdict) -> SessionResult:
        """Return how it ends where the whole has not the wanted outcome."""
        what, so = self.whole_passes
        why = f" ({verdict.reason})" if verdict.reason else ""
        return SessionResult(Status.nothing_to_find, f"{what}{why}: {so}")

    def shown(self, subject: Subject, trial: Trial) -> str:
        """Return how the label of a check calls a trial."""
        return (
            counted(len(nodes_of(subject, trial)), "node")
            if self.wants_failure
            else f"{len(subject.names(trial))} raised"
        )


def study(judge: Judge, verdict: Verdict, label: str) -> None:
    """Take a failure for the one under study. Raises CannotJudge for one that cannot be told from others."""
    if not verdict.signature:
        refuse(judge, verdict, label)
    judge.studied.signature = verdict.signature
    judge.studied.message = verdict.reason
    judge.checker.settle(verdict)


def refuse(judge: Judge, verdict: Verdict, label: str) -> NoReturn:
    """Raise CannotJudge: this is no failure that can be studied."""
    if verdict.outcome is Outcome.UNRESOLVED:
        about = "" if verdict.never_ran else f"the check gave no answer about {label}: "
        raise CannotJudge(f"{about}{verdict.reason}\ncheck: {judge.checker.describe()}")
    raise CannotJudge(
        f"{label} does not fail in a way that can be studied: "
        f"{verdict.outcome.value}, {verdict.reason}\ncheck: {judge.checker.describe()}"
    )
