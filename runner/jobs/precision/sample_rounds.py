"""The rounds of a precision search: an answer that fails on samples it has not seen is searched for on those as well.

Each round searches on some samples and holds others out. An answer that passes on those is handed over; else they
count as searched from then on, the search goes on from the answer, and new ones are held out, if there are any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from runner.engine.check_trials import Judge, Unseen
from runner.engine.repeated_checks import IndistinctError
from runner.engine.session import Session
from runner.engine.session_question import NOTHING, SessionResult
from runner.exit_codes import CannotJudge, Status
from runner.jobs.precision.held_out_samples import HELD_OUT, Division, Samples, Values
from runner.jobs.precision.mixed_model import Margin, PrecisionAnswer
from runner.jobs.precision.prepare_search import Precision
from runner.journal.journal import Entry
from runner.judgment import NON_FINITE
from runner.report.result_parts import ErrorLeft, FailsAlone, PrecisionSamples
from runner.report.result_parts import Precision as PrecisionFound
from runner.text import counted, in_tolerances, listed
from runner.verdict import OVERFLOW, Phase, Sample, Verdict
from strategies.search import Answer, Done, Outcome, Trial

# How far an answer of a precision search is to be trusted: the samples that it passes on, and by which margin.

log = logging.getLogger(__name__)


@dataclass
class Confidence:
    """What is known of an answer besides that it passes, by the end of a run.

    ``samples``: of the last round. ``passed``: whether it passes on those that were held out. ``error``: of nothing
    raised and of the answer on samples searched and held out, in units of the tolerance, where the check tells.
    ``alone``: units that fail when they alone are low and are not needed by the answer; ``kept``: whether they are
    raised all the same. ``not_finite``: nothing raised gives NaN or Inf; ``inside``: only inside, its outputs pass.
    ``looser``: of an answer that keeps a margin, the units that hold the tolerance itself, where these are fewer;
    ``by_margin``: fewer hold it at least on the samples of the search. ``warnings``: for a person.
    """

    samples: Division
    passed: bool | None = None
    rounds: int = 0
    error: dict[str, ErrorLeft] = field(default_factory=dict)
    alone: tuple[int, ...] = ()
    kept: bool = False
    not_finite: bool = False
    inside: bool = False
    looser: Trial | None = None
    by_margin: bool = False
    warnings: list[str] = field(default_factory=list)

    def told(self, subject: Precision, found: PrecisionFound) -> PrecisionFound:
        """Return what was found, with this."""
        searched, held = (len(one) if self.rounds else 0 for one in (self.samples.searched, self.samples.held))
        kind, reason = self.samples.kind if held else None, self.samples.reason
        return replace(
            found,
            samples=PrecisionSamples(searched, held, self.passed, kind, reason, self.rounds),
            error=dict(self.error),
            fails_alone=FailsAlone(subject.names(Trial.of(self.alone)), self.kept),
            without_margin=None if self.looser is None else subject.names(self.looser),
            by_margin=self.by_margin,
        )

    @property
    def said(self) -> str:
        """What a message says of it, empty if there is nothing to say."""
        held, parts = counted(len(self.samples.held), HELD_OUT[self.samples.kind]), list[str]()
        named = {"searched": f"{counted(len(self.samples.searched), 'sample')} of the search", "held_out": held}
        known = [(named[name], error) for name, error in self.error.items() if error.after is not None]
        if known:
            errors = [f"{one.after:.2g}{' of the tolerance' * (not at)} on {on}" for at, (on, one) in enumerate(known)]
            low = [one.before for _, one in known if one.before is not None]
            before = in_tolerances(max(low)) if len(low) == len(known) else ""
            before = f"Inf inside (strategy.allow_overflow=true: {before})" if self.inside and before else before
            before = "NaN or Inf" if self.not_finite else before
            parts = [f"error {', '.join(errors)}"]
            differ = any(one.before != one.after for _, one in known)
            parts += [f"with everything low, {before}"] if before and differ else []
        elif self.passed:
            parts = [f"it also passes on {held}"]
        if self.passed is None and self.samples.reason:
            parts.append(f"the answer was not tried on other samples: {self.samples.reason}")
        return "; ".join(parts)

    def warn(self, text: str) -> None:
        """Note what a person should know, and log it."""
        self.warnings.append(text)
        log.warning("%s", text)


MOST_ROUNDS = 4
"""How often samples that were held out become searched ones; then it is said that the answer fails on new ones."""
MOST_ALONE = 32
"""Nodes that are lowered alone at most, to see whether the answer leaves out what fails by itself; and no more than the
search asked questions: a journal that knows their answers changes nothing."""

MOST_FEWER = 3
"""Sets that hold the tolerance without its margin, of which one is looked for that does so on what was held out."""

Ask = Callable[[Judge, "Trial | None", tuple[Values, ...], "Verdict | None"], PrecisionAnswer]
"""Makes the search over a judge's subject: what has to be raised, or what besides an answer that does not suffice.

The values are those of the samples that are searched; the verdict says why nothing raised fails, if that is known.
"""


@dataclass(frozen=True)
class Found:
    """What a round found.

    ``done``: how the search ended, None: nothing has to be raised. ``failed``: why it fails on the samples ``held``
    out, None: it passes, or none was.
    """

    mixing: PrecisionAnswer
    done: Done | None
    trial: Trial
    held: tuple[Sample, ...]
    failed: Verdict | None


@dataclass(eq=False)
class Rounds:
    """Answers a question about precision on samples, and on others.

    ``suspects``: the units that may fail when they alone are low, the likeliest first.
    """

    judge: Judge
    ask: Ask
    division: Division
    samples: Samples
    suspects: Sequence[int]
    mixing: PrecisionAnswer | None = None
    _before: PrecisionAnswer | None = None

    def __post_init__(self) -> None:
        self.confidence = Confidence(self.division)
        if self.samples.wanted and not self.division.held:
            self.confidence.warn(
                f"strategy.held_out={self.samples.wanted} keeps no sample from the search: {self.division.reason}"
            )

    def answer(self, *, plan: bool = False) -> SessionResult:
        """Return how it ends. Raises CannotJudge."""
        judge, values = self.judge, self.division
        held = self.samples.of(values.held)
        found: Found | None = None
        for number in range(1, MOST_ROUNDS + 1):
            base, failed = (found.trial, found.failed) if found else (None, None)
            mixing = self.ask(judge, base, values.searched, failed)
            self._before, self.mixing = self.mixing, mixing
            if held and mixing.session.steady and getattr(judge.checker, "divides", False):
                judge.unseen = Unseen(held, self._held_out(mixing, held).journal)
            try:
                impossible = mixing.session.preflight()
            except CannotJudge as error:
                if found is None or isinstance(error, IndistinctError):
                    raise
                impossible = SessionResult(error.status, str(error))
            if impossible and found is None:
                return impossible
            if plan:
                return mixing.session.planned()
            if impossible and found and found.trial == found.mixing.session.whole:
                # nothing more can be raised than what fails
                seen = counted(len(self.confidence.samples.searched), "sample")
                return replace(impossible, message=f"{impossible.message}; it passes on {seen} of the search")
            further = None if impossible else self._round(number, mixing, values, held)
            if further is None:
                assert found
                why = impossible.message if impossible else "the budget was reached"
                self.confidence.warn(f"the search cannot use the other samples too ({why})")
                self.mixing = found.mixing
                break
            found = further
            if found.failed is None or number == MOST_ROUNDS or found.mixing.session.inquiry.stopped:
                break
            why = f"{counted(len(held), 'sample')} that the search did not use"
            log.warning("the answer fails on %s (%s), so these are searched on as well", why, found.failed.reason)
            searched = (*_subject(judge).samples, *held)
            judge = self.judge.stage(f"round {number + 1}", replace(_subject(judge), samples=searched))
            values = self.samples.further((*values.searched, *values.held))
            held = self.samples.of(values.held)
        assert found
        return self._concluded(found)

    def _round(self, number: int, mixing: PrecisionAnswer, values: Division, held: tuple[Sample, ...]) -> Found | None:
        """Search on some samples and check what is found on others; None: a later round found nothing in its budget."""
        done, trial = mixing.search()
        if done and number > 1 and mixing.session.inquiry.stopped and trial == mixing.session.whole:
            return None
        if done and number == 1 and mixing.session.reliability.rates is None:
            mixing, done, trial = self._stable(mixing, values, done, trial)
            self.mixing = mixing
        trial = mixing.loadable(trial)
        self.confidence.rounds, self.confidence.samples = number, values
        return Found(mixing, done, trial, held, self._fails(mixing, done, held, trial))

    def _concluded(self, found: Found) -> SessionResult:
        """Hand over what was found; where that shows that the check is flaky, it is searched for again."""
        while True:
            if found.failed is not None:
                why = found.failed.reason
                self.confidence.warn(
                    f"the answer fails on samples that the search did not use ({why}); give more samples"
                )
            self.confidence.looser = self._looser(found.mixing, found.trial, found.held)
            ending = found.mixing.hand_over(found.done, found.trial, self._said(found))
            if ending is not None:
                return ending
            # the check's rates are known from then on
            done, trial = found.mixing.search()
            trial = found.mixing.loadable(trial)
            found = replace(found, done=done, trial=trial, failed=self._fails(found.mixing, done, found.held, trial))

    def _said(self, found: Found) -> str:
        """Return what the message says of the answer, first what the margin costs."""
        looser, margin = self.confidence.looser, found.mixing.question.margin
        if looser is None:
            return self.confidence.said
        names = found.mixing.session.judge.subject.names(looser)
        are = "is" if len(names) == 1 else "are"
        costs = f"{_named(names)} {are} enough for the whole tolerance (strategy.margin=1)"
        costs += f"; strategy.margin asks for {margin.aim:.2g} of it"
        return "; ".join(part for part in (costs, self.confidence.said) if part)

    def each_alone(self) -> dict[int, Verdict]:
        """Check each unit that is searched when it alone is low, the likeliest first, as long as the budget lasts."""
        assert self.mixing
        session = self.mixing.session
        return dict(self._alone(session, [unit for unit in self.suspects if unit in session.whole.elements]))

    @staticmethod
    def _alone(session: Session, units: Sequence[int]) -> Iterator[tuple[int, Verdict]]:
        """Check each of some units when it alone is low, as long as the budget lasts."""
        for number, unit in enumerate(units):
            if session.spent():
                break
            session.judge.tally.due = len(units) - number
            others = Trial(session.whole.elements - {unit})
            yield unit, session.judge.sure(others, Phase.ALONE, f"{unit} alone low")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was checked on the samples of the last round."""
        return self.mixing.session.judge.journal.entries() if self.mixing else ()

    def interrupted(self, exit_code: int) -> SessionResult:
        """How it stands where somebody stops it."""
        if self.mixing is None:
            return SessionResult(Status.interrupted, "", code=exit_code)
        ending, before = self.mixing.session.interrupted(exit_code), self._before
        if ending.standing is None and before and (earlier := before.session.interrupted(exit_code)).standing:
            ending = replace(earlier, message=f"{earlier.message}, and it fails on samples that the search did not use")
        return replace(ending, main=None)

    # ---- one round

    def _stable(
        self, mixing: PrecisionAnswer, values: Division, done: Done, trial: Trial
    ) -> tuple[PrecisionAnswer, Done, Trial]:
        """Raise what fails when it alone is low as well: an answer that leaves it out passes by luck."""
        alone = tuple(self._failing_alone(mixing, trial))
        self.confidence.alone = alone
        if not alone:
            return mixing, done, trial
        names = mixing.session.judge.subject.names(Trial.of(alone))
        larger = self.ask(mixing.session.judge, Trial.of((*trial, *alone)), values.searched, mixing.session.nothing)
        ending = larger.session.preflight()
        assert ending is None, "the ends were checked before"
        grown, found = larger.search()
        assert grown, "nothing raised fails"
        if larger.session.inquiry.stopped:
            said = f"{_named(names)} fail when only they are low; the budget was too small to add them"
            self.confidence.warn(said)
            return mixing, done, trial
        self.confidence.kept = True
        added, one = ("was added", "it") if len(names) == 1 else ("were added", "any one of them")
        note = f"{listed(names)} {added}: with {one} alone in low precision the model fails"
        return larger, replace(grown, note=note), found

    def _failing_alone(self, mixing: PrecisionAnswer, trial: Trial) -> list[int]:
        """Return the units that an answer leaves out and that fail when they alone are low."""
        session, found, spent = mixing.session, list[int](), 0.0
        out = [unit for unit in self.suspects if unit in session.whole.elements - trial.elements]
        for unit, verdict in self._alone(session, out[: min(MOST_ALONE, len(session.inquiry.search.asked))]):
            if verdict.outcome in (Outcome.FAIL, Outcome.DIFFERENT):
                found.append(unit)
            spent += verdict.seconds
            if spent > session.reliability.allowance(session.judge):
                break
        return found

    def _looser(self, mixing: PrecisionAnswer, trial: Trial, held: tuple[Sample, ...]) -> Trial | None:
        """Return fewer units that hold the tolerance, though not the margin; None: none are known.

        A part of the answer, what makes most error first, is found by bisection. They pass on samples held out as well.
        """
        margin, session = mixing.question.margin, mixing.session
        if not margin.measured or margin.aim >= 1 or session.reliability.rates or session.inquiry.stopped or not trial:
            return None
        if not any(self._beyond(margin, entry) for entry in session.judge.journal.entries()):
            return None  # the margin has ruled out nothing
        order = [unit for unit in self.suspects if unit in trial.elements]
        tried = {one.trial: one.verdict.outcome for one in session.judge.journal.entries() if not one.attempt}
        known = {count: tried.get(Trial.of(order[:count])) for count in range(1, len(order))}
        yes = min((count for count, outcome in known.items() if outcome is Outcome.PASS), default=len(order))
        no = max((count for count, outcome in known.items() if outcome and count < yes), default=0)
        while yes - no > 1 and not session.spent():
            middle = (no + yes) // 2
            verdict = session.judge.sure(Trial.of(order[:middle]), Phase.ALONE, "for the tolerance itself")
            no, yes = (no, middle) if verdict.outcome is Outcome.PASS else (middle, yes)
        found = [entry.trial for entry in session.judge.journal.entries() if self._beyond(margin, entry)]
        fewer = sorted((one for one in found if len(one) < len(trial)), key=len)[:MOST_FEWER]
        self.confidence.by_margin = bool(fewer)
        judge, said = self._held_out(mixing, held), "for the tolerance itself"
        passes = (one for one in fewer if not held or judge.sure(one, Phase.HELD_OUT, said).outcome is Outcome.PASS)
        return next(passes, None)

    def _held_out(self, mixing: PrecisionAnswer, held: tuple[Sample, ...]) -> Judge:
        return self.judge.stage("held out", replace(_subject(mixing.session.judge), samples=held))

    @staticmethod
    def _beyond(margin: Margin, entry: Entry) -> bool:
        """Whether a set that was checked passes without the margin."""
        passes = entry.verdict.outcome is Outcome.PASS and not entry.attempt and len(entry.trial) > 0
        return passes and not margin.kept(entry.verdict)

    def _fails(
        self, mixing: PrecisionAnswer, done: Done | None, held: tuple[Sample, ...], trial: Trial
    ) -> Verdict | None:
        """Return the verdict by which an answer fails on samples that were held out; None: it passes."""
        reliability = mixing.session.reliability
        self._error("searched", mixing, mixing.session.judge, trial)
        self.confidence.passed = None
        if not held:
            self.confidence.error.pop("held_out", None)
            return None
        judge = self._held_out(mixing, held)
        unseen = mixing.session.judge.unseen
        if mixing.session.steady and unseen and not unseen.known(trial):
            mixing.write(done, trial)  # the file is run on these samples, too
        ruling = reliability.rule(judge, trial, Phase.HELD_OUT, f"{counted(len(held), 'sample')} not searched")
        if ruling is None:  # the budget is spent: whether it passes is not known
            return None
        passes = ruling.verdict.outcome is Outcome.PASS if reliability.rates is None else ruling.answer is Answer.YES
        self.confidence.passed = passes
        if trial:
            judge.sure(NOTHING, Phase.HELD_OUT, "nothing raised")
        self._error("held_out", mixing, judge, trial)
        if not passes:
            mixing.withdraw()
        return None if passes else ruling.verdict

    def _error(self, samples: str, mixing: PrecisionAnswer, judge: Judge, trial: Trial) -> None:
        """Note the error of nothing raised, and of an answer, in units of the tolerance; nothing where none is told."""
        if not mixing.question.margin.measured:
            return
        found = [judge.journal.get(one) for one in (NOTHING, trial)]
        before, after = (mixing.question.margin.share(one) if one else None for one in found)
        failed = found[0].signature if found[0] else None
        self.confidence.inside |= failed is not None and failed.stage == OVERFLOW
        self.confidence.not_finite |= failed is not None and failed.stage != OVERFLOW and failed.kind in NON_FINITE
        error = self.confidence.error
        if found[0] is None:  # of samples that were searched in turn the worst counts
            parts = [error[part].before for part in ("searched", "held_out") if part in error]
            before = max(part for part in parts if part is not None) if parts and None not in parts else None
        error[samples] = ErrorLeft(before, after)


def _named(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')} ({listed(names)})"


def _subject(judge: Judge) -> Precision:
    assert isinstance(judge.subject, Precision)
    return judge.subject
