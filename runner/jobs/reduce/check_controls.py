"""Controls of a check, what a reduction keeps whatever is tried, and what it says where nothing fails.

The controls of a check: can it tell good from bad, and can it judge cuts?

Asked early, right after the user's file failed: a check that fails whatever it is given would make a search end with an
arbitrary node. A check that feeds the model's own inputs by name, or has expected values of the model's own outputs,
passes only models that still have these. One that knows the outputs is asked about the whole model, in which all but
some nodes have good values that the model holds itself (`InPlace`). Where that cannot be, it can judge what keeps the
inputs or the outputs (``strategy.reduce_inputs=false``, ``strategy.reduce_outputs=false``), and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from runner.checkers.checker import Checker
from runner.checkers.command import CommandCheck
from runner.checkers.python import PythonCheck
from runner.engine.check_trials import Judge
from runner.engine.reliability import ContradictionError
from runner.engine.session_question import NOTHING, Question
from runner.jobs.reduce.subgraph import InPlace, Subgraph
from runner.judgment import CannotJudge, UsageError
from runner.model.graph.cut import Form
from runner.schema.checker import Flaky
from runner.schema.root import Settings
from runner.schema.strategy import Find, ReduceSettings, chosen
from runner.verdict import CAUGHT, Phase, Raised, Verdict
from strategies.search import Closure, Outcome

# Which of the model's inputs and outputs a reduction keeps whatever is tried, as its settings say.

KEPT: Mapping[str, Closure] = MappingProxyType(
    {"reduce_inputs": Closure.ANCESTORS, "reduce_outputs": Closure.DESCENDANTS}
)
"""What a setting keeps if it is false."""


def closure(settings: Settings) -> Closure:
    """Return what a trial keeps along with its nodes. Raises UsageError where nothing could be reduced."""
    inputs, outputs = (_may_go(settings, name) for name in KEPT)
    if inputs is False and outputs is False:
        raise UsageError(
            "strategy.reduce_inputs=false strategy.reduce_outputs=false: nothing is left to reduce; "
            "set one of them at most"
        )
    if chosen(settings.strategy, ReduceSettings).find is Find.all and False in (inputs, outputs):
        raise UsageError(
            "strategy.find=all leaves out the nodes of an answer wherever they are: neither inputs nor outputs can be "
            "kept: leave out strategy.reduce_inputs=false and strategy.reduce_outputs=false"
        )
    if inputs is False:
        return Closure.ANCESTORS
    return Closure.FREE if outputs is not False else Closure.DESCENDANTS


def fallbacks(settings: Settings) -> frozenset[Closure]:
    """Return what may be kept instead where the check cannot judge cuts: what the user left to `auto`."""
    if chosen(settings.strategy, ReduceSettings).find is Find.all:
        return frozenset()
    return frozenset(kept for name, kept in KEPT.items() if _may_go(settings, name) is None)


def _may_go(settings: Settings, name: str) -> bool | None:
    """Whether the model's inputs or outputs may be reduced; None: as it turns out."""
    value = getattr(settings.strategy, name)
    known = {"true": True, "false": False, "auto": None}
    said = str(value).lower()
    if said not in known:
        raise UsageError(f"strategy.{name}={value}: choose one of {', '.join(known)}")
    return known[said]


# What a reduction asks, in words: what is said where the whole model passes, and where nothing does.

FIT = (
    "Cuts have other inputs and outputs: let it feed what {inputs} holds and compare with what {references} holds "
    "(checker.command='python check.py {model} {inputs} {references}'; a function gets them as its arguments)"
)
"""What makes a check fit for cuts."""
NEEDS = (
    f"{FIT}. Where it has values of its own to compare with, give the good model that they come from "
    "(reference.model=), and it may be enough to keep the model's own inputs or outputs "
    "(strategy.reduce_inputs=false or strategy.reduce_outputs=false)"
)
"""What may be wrong with a check that passes no harmless model."""


def own_sample(settings: Settings) -> str:
    """Say that a check fits the whole model only, and other values than those that were recorded, and what to do."""
    said = "the check feeds an input of its own, and Winnow recorded the values of another one: "
    if settings.inputs.name == "random":
        return f"{said}give the check's input (--inputs x.npz), or let the check feed {{inputs}}"
    said += "let it feed {inputs}. If it feeds the same input, "
    if settings.reference.model:
        return f"{said}it fails the original's values too: look at the check"
    return f"{said}the reference is wrong: give the good model (--original) or the expected outputs (--expected)"


WHOLE_ONLY = (
    "Does it ever exit with 0? If it always fails, fix it. If it fits the whole model only (it feeds values of its "
    "own, and compares with expected ones of its own), give the input that it feeds: --inputs x.npz. Without that, the "
    "check works with strategy=repeat, with strategy=passes if its command takes {switches}, and with "
    "strategy=versions if it takes {python}"
)
"""What is asked first of a check that passes no harmless model, and what it can do as it is."""
_NOTHING, _SO = Question().nothing_fails
QUESTION = Question(
    whole_passes=("the whole model passes the check", "there is nothing to reduce"),
    nothing_fails=(_NOTHING, f"{_SO}\n{NEEDS}"),
    begun="rewritten for cutting, %s fails (%s)",
)
"""What a reduction asks."""


FORMS: Mapping[Closure, tuple[Form, ...]] = MappingProxyType(
    {
        Closure.FREE: (Form(), Form(operator="Abs")),
        Closure.ANCESTORS: (Form(inputs=True),),
        Closure.DESCENDANTS: (Form(outputs=True, good=True), Form(outputs=True)),
    }
)
"""Controls like the candidates of each closure; one that passes is enough."""
OWN = (Form(inputs=True, outputs=True, good=True), Form(inputs=True, outputs=True))
"""Controls like the whole model."""
SETTINGS: Mapping[Closure, str] = MappingProxyType(
    {Closure.ANCESTORS: "strategy.reduce_inputs=false", Closure.DESCENDANTS: "strategy.reduce_outputs=false"}
)
REPEATS = 3
"""How often a control that failed is checked again, to tell a flaky check from one that cannot judge."""


@dataclass(frozen=True)
class Judged:
    """What the controls say. ``judge``: its candidates can be judged. ``said``: what a reader should know of that.

    ``verdict``: that of the last control.
    """

    judge: Judge
    verdict: Verdict
    said: str = ""

    @property
    def passed(self) -> bool:
        """Whether a control passed."""
        return self.verdict.outcome is Outcome.PASS


@dataclass(frozen=True)
class Controls:
    """Asks a check about harmless models.

    ``fallbacks``: what may be kept where the check cannot judge cuts.
    ``repeated``: whether the check may be flaky. ``slip``: an obvious mistake in the command, in words.
    ``fed``: the check asks for values of the inputs, so that it is rather the outputs that it knows by itself.
    ``own_sample``: what is said of one that feeds an input of its own, which is not the recorded one.
    """

    fallbacks: frozenset[Closure] = frozenset()
    repeated: bool = True
    slip: str = ""
    fed: bool = True
    own_sample: str = ""

    @staticmethod
    def of(checker: Checker, settings: Settings) -> Controls | None:
        """Return the controls of a check of the user's own; None for a person, and for checks of ours.

        Those feed and compare whatever inputs and outputs a model has.
        """
        if not isinstance(checker, CommandCheck | PythonCheck):
            return None
        slip = checker.slip if isinstance(checker, CommandCheck) else ""
        flaky = settings.checker.flaky is not Flaky.never
        return Controls(fallbacks(settings), flaky, slip, checker.wants_feeds, own_sample(settings))

    def judge(self, judge: Judge) -> Judged:
        """Return a judge whose candidates this check can judge.

        Raises CannotJudge where it can judge nothing, or no cuts, and ContradictionError where it is flaky.
        """
        subject = _subgraph(judge)
        forms = FORMS[subject.closure]
        found, why = self._first(judge, forms[:1] if self.slip else forms)
        if found:
            return Judged(found, why)
        own, also = (None, why) if self.slip else self._first(judge, OWN, lenient=True)
        if not own:
            if not self.slip and Outcome.FAIL not in (why.outcome, also.outcome):
                # on a harmless model the check does not report the failure under study: no answer, but no wrong one
                said = f"the check gives no answer on {FORMS[subject.closure][0]} ({why.said})"
                return Judged(judge, also, said)
            self._repeat(judge, 1)
            if not self.fed and why.outcome is Outcome.UNRESOLVED:  # it fits the whole model, and finds it wrong
                raise CannotJudge(f"{self.own_sample}.\ncheck: {judge.checker.describe()}")
            raise CannotJudge(
                "the check cannot tell good from bad: it does not pass even a model of a single Identity node "
                f"({why.said}).\n{self.slip or f'{WHOLE_ONLY}. {NEEDS}'}\ncheck: {judge.checker.describe()}"
            )
        self._repeat(judge, REPEATS)
        able = self._able(judge) if subject.closure is Closure.FREE else {}
        chosen = next((closure for closure in able if closure in self.fallbacks), None)
        refused = ""
        if chosen is not Closure.ANCESTORS and self.fallbacks == set(KEPT.values()):
            placed = self._in_place(judge, why)
            if isinstance(placed, Judged):
                return placed
            refused = placed
        if chosen is None:
            raise CannotJudge(refused or self._no_cuts(judge, why, tuple(able)))
        setting = SETTINGS[chosen]
        subject, verdict = able[chosen]
        kept = replace(subject, closure=chosen)
        types = ", declared types" if kept.declared else ""
        said = (
            f"the check cannot judge every part of the model: it does not pass {FORMS[Closure.FREE][0]} ({why.said}). "
            f"The run goes on with {setting}, with which it can. A check that feeds {{inputs}} and compares with "
            "{references} gets smaller answers; with --expected, {references} holds your expected outputs"
        )
        return Judged(judge.stage(f"{setting}{types}", kept), verdict, said)

    def first(self, judge: Judge) -> tuple[Judge, str]:
        """Return who judges the first control that is asked for, and what that is called."""
        form = FORMS[_subgraph(judge).closure][0]
        return self._with(judge, form, declared=False), str(form)

    def _in_place(self, judge: Judge, why: Verdict) -> Judged | str:
        """Return who judges nodes in their place; else why that cannot be.

        The recorded values are right for the sample that the check feeds where it passes them and nothing else, and
        fails the whole model when that computes with them.
        """
        subject = _subgraph(judge)
        placed = judge.stage("in place", InPlace.of(subject))
        passing = placed.sure(NOTHING, Phase.CONTROL, "the whole model, good values in place of all nodes")
        if passing.outcome is Outcome.UNRESOLVED:
            return f"{self._no_cuts(judge, why, ())}\nGood values were not put into the whole model: {passing.reason}"
        right = passing.outcome is Outcome.PASS
        if not right or placed.sure(subject.space.whole, Phase.PREFLIGHT, QUESTION.whole).outcome is not Outcome.FAIL:
            return f"{self.own_sample}.\ncheck: {judge.checker.describe()}"
        said = (
            f"the check cannot judge parts of the model: it does not pass {FORMS[Closure.FREE][0]} ({why.said}). So "
            "each candidate is the whole model with good values in place of some nodes. Therefore reduced.onnx has all "
            "inputs and outputs of the model, and also nodes that only carry the failure to the outputs"
        )
        return Judged(placed, passing, said)

    def _able(self, judge: Judge) -> dict[Closure, tuple[Subgraph, Verdict]]:
        """The closures whose candidates the check can judge, with a subject whose control shows it, and its verdict."""
        found: dict[Closure, tuple[Subgraph, Verdict]] = {}
        first, second = Closure.ANCESTORS, Closure.DESCENDANTS
        for closure in (second, first) if self.fed else (first, second):
            passing, verdict = self._first(judge, FORMS[closure])
            if passing:
                found[closure] = _subgraph(passing), verdict
                if closure in self.fallbacks:
                    break
        return found

    def _first(self, judge: Judge, forms: Iterable[Form], *, lenient: bool = False) -> tuple[Judge | None, Verdict]:
        """The judge with the first of these controls that passes, and its verdict, else a failure if there was one.

        A check that feeds the model's own inputs may do so with other shapes than the recorded ones. ``lenient``: only
        the shapes that the file declares are tried.
        """
        subject = _subgraph(judge)
        differs = not subject.declared and subject.declared_otherwise
        seen: list[Verdict] = []
        for form in forms:
            types = (False,) if not (differs and form.inputs) else (True,) if lenient else (False, True)
            for declared in types:
                other = self._with(judge, form, declared=declared)
                seen.append(_verdict(other, form, 0))
                if seen[-1].outcome is Outcome.PASS:
                    return other, seen[-1]
        return None, next((one for one in seen if one.outcome is Outcome.FAIL), seen[0])

    def _with(self, judge: Judge, form: Form, *, declared: bool) -> Judge:
        subject = _subgraph(judge)
        if subject.control == form and not declared:
            return judge
        other = replace(subject, control=form, declared=subject.declared or declared)
        name = f"{subject.closure.value}, {form}{', declared types' if declared else ''}"
        return judge.stage(name, other)

    def _repeat(self, judge: Judge, times: int) -> None:
        """A control that failed fails again, unless the check is flaky: raises ContradictionError then."""
        if self.slip or not self.repeated:
            return
        subject = _subgraph(judge)
        for attempt in range(1, times + 1):
            if _verdict(judge, subject.control, attempt).outcome is Outcome.PASS:
                raise ContradictionError(f"repeating gave another result: {subject.control}, pass")

    def _no_cuts(self, judge: Judge, why: Verdict, able: tuple[Closure, ...]) -> str:
        subject = _subgraph(judge)
        if able:
            settings = " or ".join(SETTINGS[closure] for closure in able)
            instead = f"or go on with {settings}, with which this check works (strategy.find=all excludes them)"
        else:
            instead = (
                "it needs both the model's own inputs and its own outputs, so neither strategy.reduce_inputs=false nor "
                "strategy.reduce_outputs=false would help"
            )
        return (
            "the check cannot judge parts of the model: it passes a model with the original's inputs and outputs, "
            f"but not {subject.control} ({why.said}). {FIT}; {instead}.\ncheck: {judge.checker.describe()}"
        )


def _subgraph(judge: Judge) -> Subgraph:
    assert isinstance(judge.subject, Subgraph)
    return judge.subject


def _verdict(judge: Judge, form: Form, attempt: int) -> Verdict:
    verdict = judge.sure(NOTHING, Phase.CONTROL, str(form), attempt=attempt)
    shown = verdict.metrics.get(CAUGHT)
    caught = Raised.from_json(shown) if shown and verdict.outcome is Outcome.PASS else None
    studied = judge.studied.signature.raised if judge.studied.signature else None
    if caught and caught.feeds and not (studied and studied.about == caught.about):
        # a message that it prints on the original too is normal; a new one means that it passes a model it cannot run
        return replace(verdict, outcome=Outcome.UNRESOLVED, reason=f"it passes, and says that {caught.why}")
    return verdict
