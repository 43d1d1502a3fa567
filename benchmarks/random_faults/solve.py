"""What Winnow makes of a case: its own search and its own proof, over the imagined target.

The order of things is the session's: the search over cuts, the refinement that hides inner outputs, the experiments on
the whole model. A check that was paid for is not paid for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import TypeProto

from benchmarks.random_faults.faults import Case
from benchmarks.random_faults.target import Judged, Samples, Target
from runner.engine.cause import Cause
from runner.jobs.reduce.prove_cause import Prover
from runner.jobs.reduce.refinements import hidden_by
from runner.jobs.reduce.run import first_end
from runner.judgment import ERROR, TOLERANCES, CauseStatus, Experiment, Scale
from runner.schema.installed_choices import SEARCHES
from runner.schema.strategy import ReduceSettings
from runner.verdict import Signature
from strategies.minimal import claim, sweep
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done, Options, Search, Step
from strategies.search_space import Space
from strategies.trial import Trial

FAILURE = Signature("check", "exit 1")
"""How a command says that a model fails; `checker=python` says the same in another way."""
DEFAULTS = ReduceSettings(name="reduce", search="reduce", subject="subgraph")


@dataclass(frozen=True)
class Judging:
    """What a check tells. ``measures``: how bad a failure is, too. ``samples``: of which of several samples.

    ``known``: it counts in tolerances, as comparisons of Winnow's own do.
    """

    name: str
    measures: bool
    samples: Samples = "worst"
    known: bool = False


VERDICTS = Judging("verdict only", measures=False)
COMMAND = Judging("with a measure, of the first sample that fails", measures=True, samples="first")
MEASURES = Judging("with a measure in tolerances, of the worst sample", measures=True, known=True)
JUDGINGS = (VERDICTS, COMMAND, MEASURES)


@dataclass
class Simulation:
    """The model of a case, as a search and a proof ask about it; see `splice_experiments`.

    ``checks``: what was paid for, by purpose.
    """

    case: Case
    judging: Judging
    checks: dict[str, int] = field(default_factory=lambda: {"search": 0, "refine": 0, "cause": 0, "trust": 0})
    compares: bool = False
    about_values: bool = True
    _known: dict[tuple[str, Trial], Judged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._target = Target(self.case.made, self.case.rules, self.judging.samples)
        self.graph = self._target.graph
        self.space = Space(tuple(range(len(self.graph.nodes))), self.graph.parents)
        self._known["cut", self.space.whole] = self._target.cut(self.space.order)  # the pre-flight pays for it
        self.whole = self._experiment(self._known["cut", self.space.whole])

    @property
    def scale(self) -> Scale:
        """How measures are read: of our own comparison it is known where a model passes."""
        return TOLERANCES if self.judging.known else ERROR

    def types(self) -> Mapping[str, TypeProto]:
        """Return the types of all tensors."""
        return self.case.made.types

    def spent(self) -> bool:
        """Return that there is no budget."""
        return False

    def ahead(self, asked: Sequence[tuple[Trial, str]]) -> None:
        """Do nothing: there is one worker."""

    def with_only(self, kept: Trial, label: str) -> Experiment:
        """Splice good values in."""
        return self._experiment(self.judge("splice", kept, "cause"))

    def fenced(self, kept: Trial, parts: Sequence[Trial], label: str) -> Experiment:
        """Splice good values in, and put fences around parts."""
        self.checks["trust"] += 1
        return self._experiment(self._target.splice(kept.elements, [part.elements for part in parts]))

    def looks_at_nodes(self, answer: Trial) -> bool:
        """Return that the target is judged by values."""
        return False

    def alone(self, kept: Trial) -> bool:
        """Judge a part of it."""
        return self.judge("cut", kept, "cause").fails

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Search among some elements, if what is cut out of them fails."""
        if not self.judge("cut", Trial.of(order), "cause").fails:
            return None, 0
        found = self.searched(replace(self.space, order=order), self.first, "cause", most)
        done = found.done
        assert done
        return None if done.claim is Claim.BUDGET else done.trial, len(found.asked)

    def first(self, space: Space) -> Step:
        """Return the first step of the default search."""
        first = first_end(DEFAULTS.first, FAILURE, lambda: True)
        return SEARCHES[DEFAULTS.search].begin(space, Options(extra_checks=DEFAULTS.extra_checks, first=first))

    def searched(
        self, space: Space, first: Callable[[Space], Step], purpose: str, most: float = float("inf"), how: str = "cut"
    ) -> Search:
        """Ask until a search is done, or so many questions were answered; the whole of ``space`` fails."""
        search, answered = Search(space, first(space), {space.whole: Answer.YES}), 0
        while not search.done:
            if answered >= most:
                search.stop()
                break
            (question,) = search.ask(1)
            fails = self.judge(how, question.trial, purpose).fails
            search.tell(question.trial, Answer.YES if fails else Answer.NO)
            answered += 1
        return search

    def judge(self, how: str, trial: Trial, purpose: str) -> Judged:
        """Return what the check says of a candidate; it is paid for once."""
        key = how, trial
        if key not in self._known:
            self.checks[purpose] += 1
            if how == "splice":
                self._known[key] = self._target.splice(trial.elements)
            else:
                self._known[key] = self._target.cut(trial.elements, "sinks" if how == "sinks" else "frontier")
        return self._known[key]

    def _experiment(self, told: Judged) -> Experiment:
        measure = told.measure if self.judging.measures else None
        return Experiment(Outcome.FAIL if told.fails else Outcome.PASS, measure)


@dataclass(frozen=True)
class Solved:
    """What came out. ``done``: the end of the search; ``first``: the answer that the experiments began with."""

    case: Case
    done: Done
    first: Trial
    cause: Cause
    checks: Mapping[str, int]

    @property
    def answer(self) -> frozenset[int]:
        """All nodes that are named as the cause, or as what fails alone."""
        if self.cause.status is CauseStatus.JOINT:
            return frozenset().union(*(self.cause.answers[at].answer.elements for at in self.cause.causes))
        return self.cause.answers[self.cause.main].answer.elements

    @property
    def proven(self) -> bool:
        """Whether it is said to be the cause."""
        return self.cause.status in (CauseStatus.PROVEN, CauseStatus.JOINT)

    @property
    def right(self) -> bool:
        """Whether it is right."""
        return self.case.right(self.answer)


def solve(case: Case, judging: Judging = MEASURES) -> Solved:
    """Search and prove."""
    model = Simulation(case, judging)
    assert model.whole.outcome is Outcome.FAIL
    search = model.searched(model.space, model.first, "search")
    done = search.done
    assert done and done.trial
    first = refined(model, done.trial)
    cause = Prover(model, model.checks["search"], DEFAULTS.cause_checks).prove(first)
    return Solved(case, done, first, cause, dict(model.checks))


def refined(model: Simulation, answer: Trial) -> Trial:
    """Leave out nodes that are needed only because without them a tensor becomes an output, which stops a fusion."""
    hiding = hidden_by(model.graph, answer)
    if not hiding or not model.judge("sinks", answer, "refine").fails:
        return answer
    settled = answer.elements - hiding
    space = replace(model.space, order=tuple(answer))
    search = model.searched(
        space, lambda where: sweep(where, where.whole, claim, settled=settled), "refine", how="sinks"
    )
    return search.done.trial if search.done and search.done.trial else answer
