"""The two experiments on the whole model, judged at its own outputs; see `prove_cause` for what they show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.jobs.reduce.cause.spliced_subject import Spliced
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import Experiment, got_further, measured
from runner.model.graph.splice_good_values import depends_on
from runner.session.parallel import Expected
from runner.session.session import Session
from runner.text import counted
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome
from strategies.trial import Trial

REACHED = "the budget was reached"
USED_UP = "the checks for it were used up: strategy.cause_checks=100, say, allows more"


@dataclass
class Experiments:
    """Makes experiments, each a check of one model.

    ``base``: the subject of the session. ``left``: questions that may still be asked. ``whole``: what the whole model
    does.
    """

    session: Session
    base: Subgraph
    left: int

    def __post_init__(self) -> None:
        judge = self.session.judge
        failed = [one for one in judge.counted(self.base.space.whole) if one.outcome is Outcome.FAIL]
        self.whole = _of(failed[0]) if failed else Experiment(Outcome.FAIL)
        signature = judge.studied.signature
        self._compared = signature is not None and signature.stage == "compare"
        spliced = Spliced(self.base, signature is not None and not signature.about_values)
        self._spliced = judge.stage("cause", spliced)

    @property
    def exhausted(self) -> bool:
        """Whether no further question may be asked."""
        return bool(self.used_up)

    @property
    def used_up(self) -> str:
        """Why no further question may be asked; "" where one may be."""
        return REACHED if self.session.spent() else USED_UP if self.left <= 0 else ""

    @property
    def everything(self) -> frozenset[int]:
        """All elements of the model."""
        return self.base.space.whole.elements

    def both(self, answer: Trial) -> None:
        """Make (a) and (b) at once, where several checks are: one that the other turns out to decide is paid for."""
        session = self.session
        unlimited = self.left > 1 and session.means.budget.checks is None and not session.spent()
        if unlimited and not self._gives_all(answer) and not session.reliability.rates:
            asked = [(kept, label) for kept, label in (self._without(answer), self._only(answer)) if self._asked(kept)]
            session.means.at_once.ahead(
                [Expected(self._spliced, kept, "cause", label, "cause") for kept, label in asked]
            )

    def without(self, healed: Trial) -> Experiment:
        """Experiment (a): good values in place of what some nodes give."""
        # a failure that is not about values (a crash) may also arise upstream
        if self._gives_all(healed):
            return Experiment(Outcome.PASS, reason="it gives all outputs")
        return self._made(*self._without(healed))

    def only(self, answer: Trial, healed: Trial | None = None) -> Experiment:
        """Experiment (b): only what depends on some nodes is computed; all that it reads from elsewhere is good.

        ``healed``: these have good outputs, but for the ones asked about.
        """
        return self._made(*self._only(answer, healed))

    def _gives_all(self, healed: Trial) -> bool:
        graph = self.base.graph
        return self._compared and all(graph.producers.get(name) in healed for name in graph.outputs)

    def _without(self, healed: Trial) -> tuple[Trial, str]:
        label = f"the whole model, good values in place of the outputs of {counted(len(healed), 'node')}"
        return Trial(self.everything - healed.elements), label

    def _only(self, answer: Trial, healed: Trial | None = None) -> tuple[Trial, str]:
        others = (healed.elements if healed else frozenset()) - answer.elements
        kept = depends_on(self.base.graph, answer.elements, others)
        return Trial(kept), f"the whole model, good values in place of the inputs of {counted(len(answer), 'node')}"

    def _asked(self, kept: Trial) -> bool:
        return kept != self.base.space.whole

    def _made(self, kept: Trial, label: str) -> Experiment:
        if not self._asked(kept):
            return replace(self.whole, reason="it is the whole model")
        self.left -= 1
        ruling = self.session.ruled(self._spliced, kept, "cause", label, "cause")
        if ruling is None:
            return Experiment(Outcome.UNRESOLVED, reason=REACHED)
        experiment, studied = _of(ruling.verdict), self.session.judge.studied.signature
        if experiment.outcome is Outcome.DIFFERENT:  # what counts as the failure under study is not gone
            experiment = replace(experiment, gone=got_further(studied, ruling.verdict.signature))
        if self.session.reliability.rates and ruling.answer is Answer.UNKNOWN:
            return replace(experiment, outcome=Outcome.UNRESOLVED, reason="the check is too flaky to tell", gone=False)
        return experiment


def _of(verdict: Verdict) -> Experiment:
    """Return what a verdict says."""
    return Experiment(verdict.outcome, measured(verdict.metrics), verdict.reason)
