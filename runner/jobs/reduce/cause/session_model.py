"""The model of a session, as a proof of a cause asks about it: each experiment and each search is checks of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import TypeProto

from runner.jobs.reduce.cause.fed_values import looks_at_nodes
from runner.jobs.reduce.cause.spliced_subject import Spliced
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import Experiment, Scale, got_further, measured
from runner.session.inquiry import Inquiry
from runner.session.judge import Judge
from runner.session.parallel import Expected
from runner.session.run_stages import scale_of
from runner.session.session import Session
from runner.text import counted
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial


@dataclass
class SessionModel:
    """``search``: for further answers, ``among`` some elements. ``found``: these answers, and how they were found."""

    session: Session
    search: Callable[[Space], Step]
    among: Trial | None = None
    found: dict[Trial, tuple[Inquiry, Done]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        judge = self.session.judge
        assert isinstance(judge.subject, Subgraph)
        self._base, self.graph, self.space = judge.subject, judge.subject.graph, judge.subject.space
        failed = [one for one in judge.counted(self.space.whole) if one.outcome is Outcome.FAIL]
        self.whole = _experiment(failed[0]) if failed else Experiment(Outcome.FAIL)
        signature = judge.studied.signature
        self.compares = signature is not None and signature.stage == "compare"
        self.about_values = signature is not None and signature.about_values
        held = self.space.closure is Closure.PLACE
        alive = signature is not None and not signature.about_values and not held
        self._splices = Spliced(self._base, alive, held=held)
        self._spliced = judge.stage("cause", self._splices)
        self._good: list[float] = []

    @property
    def scale(self) -> Scale:
        """How measures are read: an accuracy is counted from the best that the whole model reached with good values."""
        return scale_of(self.session.judge, self._good)

    def types(self) -> Mapping[str, TypeProto]:
        """Return the types of tensors: as declared, inferred, recorded."""
        return self._base.types_of_all

    def spent(self) -> bool:
        """Whether the budget is."""
        return self.session.spent()

    def ahead(self, asked: Sequence[tuple[Trial, str]]) -> None:
        """Make experiments at once, unless their number is limited or each is made several times."""
        session = self.session
        if session.means.budget.checks is None and not session.spent() and not session.reliability.rates:
            session.means.at_once.ahead(
                [Expected(self._spliced, kept, "cause", label, "cause") for kept, label in asked]
            )

    def with_only(self, kept: Trial, label: str) -> Experiment | None:
        """Make an experiment; None: the budget was spent before it was sure."""
        return self.asked(self._spliced, kept, label)

    def fenced(self, kept: Trial, parts: Sequence[Trial], label: str) -> Experiment | None:
        """Make one with fences around some parts; None: the budget was spent before it was sure."""
        judge = self.session.judge.stage("fenced", replace(self._splices, parts=tuple(parts)))
        return self.asked(judge, kept, label, "trust")

    def asked(self, judge: Judge, trial: Trial, label: str, purpose: str = "cause") -> Experiment | None:
        """Make an experiment with a judge of its own; as `with_only`."""
        ruling = self.session.ruled(judge, trial, "cause", label, purpose)
        if ruling is None:
            return None
        experiment, studied = _experiment(ruling.verdict), self.session.judge.studied.signature
        if experiment.outcome is Outcome.DIFFERENT:  # what counts as the failure under study is not gone
            experiment = replace(experiment, gone=got_further(studied, ruling.verdict.signature))
        if experiment.outcome is Outcome.PASS and experiment.measure is not None:
            self._good.append(experiment.measure)
        if self.session.reliability.rates and ruling.answer is Answer.UNKNOWN:
            return replace(experiment, outcome=Outcome.UNRESOLVED, reason="the check is too flaky to tell", gone=False)
        return experiment

    def looks_at_nodes(self, answer: Trial) -> bool:
        """Whether its check may look for the nodes of an answer, and not at what they compute."""
        return looks_at_nodes(self.session, answer)

    def alone(self, kept: Trial) -> bool:
        """Whether a part of it, cut out and fed good values, fails by itself."""
        ruling = self.session.ruled(self.session.judge, kept, "cause", f"{counted(len(kept), 'node')} alone", "cause")
        return ruling is not None and ruling.answer is Answer.YES

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Search among some elements, if what is cut out of them fails."""
        order = tuple(one for one in order if self.among is None or one in self.among)
        session, whole = self.session, Trial.of(order)
        if not whole:
            return None, 0
        rest = session.ruled(session.judge, whole, "cause", "the model without what has good values", "cause")
        if rest is None or rest.answer is not Answer.YES:
            return None, 0
        inquiry = session.inquire(order, "cause", most, self.search)
        inquiry.note(whole, Answer.YES)
        done = inquiry.settle() if session.reliability.rates else inquiry.run()
        if done.trial and not inquiry.stopped:
            self.found[done.trial] = inquiry, done
        ended = inquiry.search.done
        return ended.trial if ended and ended.claim is not Claim.BUDGET else None, len(inquiry.search.asked)


def _experiment(verdict: Verdict) -> Experiment:
    return Experiment(verdict.outcome, measured(verdict.metrics), verdict.reason)
