"""Controls of a check, what a reduction keeps whatever is tried, and what it says where nothing fails.

The controls of a check: can it tell good from bad, and can it judge cuts?

Asked early, right after the user's file failed: a check that fails whatever it is given would make a search end with an
arbitrary node. A check that feeds the model's own inputs by name, or has expected values of the model's own outputs,
passes only models that still have these. One that knows the outputs is asked about the whole model, in which all but
some nodes have good values that the model holds itself (`InPlace`). Where that cannot be, it can judge what keeps the
inputs or the outputs (``strategy.reduce_inputs=false``, ``strategy.reduce_outputs=false``), and nothing else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from runner.checkers.checker import Checker
from runner.checkers.command import CommandCheck
from runner.checkers.exit_and_output import slip_of_exit
from runner.checkers.python import PythonCheck
from runner.engine.check_trials import Expected, Judge
from runner.engine.repeated_checks import contradiction
from runner.engine.session_question import NOTHING, Question
from runner.exit_codes import CannotJudge, UsageError
from runner.jobs.reduce.subgraph import InPlace, Subgraph, subgraph
from runner.jobs.repeat import Command
from runner.model.graph.cut import Form
from runner.reference.hints import reference_run
from runner.schema.checker import Flaky
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.schema.strategy import Find, ReduceSettings, chosen
from runner.text import listed
from runner.verdict import CAUGHT, MISFIT, Phase, Raised, Sample, Verdict
from strategies.search import Closure, Outcome, Trial

log = logging.getLogger(__name__)

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
    "Parts have inputs and outputs with other names: take the names from the model, feed the values of {inputs}, and "
    "compare with {references} (--check 'python check.py {model} {inputs} {references}'; a function gets them too)"
)
"""What makes a check fit for cuts."""
NEEDS = (
    f"{FIT}. Where it has values of its own to compare with, give the good model that they come from "
    "(reference.model=), and it may be enough to keep the model's own inputs or outputs "
    "(strategy.reduce_inputs=false or strategy.reduce_outputs=false)"
)
"""What may be wrong with a check that passes no harmless model."""
ALWAYS = (
    "If it fails on every model, mend it: it has to pass a good one (exit with 0, return True).\n"
    "If it uses values of its own, let Winnow supply them: {these}.\n"
    "Or run what never cuts the model: strategy=repeat; with a command also strategy=passes ({{switches}}) "
    "and strategy=versions ({{python}})"
)
"""What is said of a check that passes no harmless model: what may be wrong, and what it can do as it is."""
INPUTS, ORIGINAL = "--inputs x.npz", "--original good.onnx"
"""Options, as they are typed, with which a check that fits the whole model only may be asked."""
_NOTHING, _SO = Question().nothing_fails
QUESTION = Question(
    whole_passes=("the whole model passes the check", "there is nothing to reduce"),
    nothing_fails=(_NOTHING, f"{_SO}\n{NEEDS}"),
    begun="%s, prepared for cutting, still fails (%s)",
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
SETTINGS = {closure: f"strategy.{name}=false" for name, closure in KEPT.items()}
_OWN_INPUT = re.compile(rf"{re.escape(MISFIT)} \((?:a missing|an unknown|the \w+ of an) input\)")
"""The reason of a check that feeds what a harmless model has not."""
REPEATS = 3
"""How often a control that failed is checked again, to tell a flaky check from one that cannot judge."""


ORIGINAL_FILE = "the original"
"""What messages call the file of ``reference.model``."""


def fails_on_good(judge: Judge, good: Path | None, samples: Iterable[Sample], called: str) -> CannotJudge | None:
    """Return what to raise where a check fails on a good model as the user gave it; None: it passes, or is not given.

    ``samples``: what that model is fed.
    """
    if good is None:
        return None
    verdict = judge.stage(called, Command(good, tuple(samples))).sure(Trial.of([0]), Phase.CONTROL, called)
    if verdict.outcome is Outcome.PASS:
        return None
    mend = slip_of_exit(verdict) or "So it cannot tell good from bad: mend it, it has to pass a good model"
    why = f"the check fails even on {called} ({verdict.reason or verdict.outcome.value})"
    return CannotJudge(f"{why}. {mend}.\ncheck: {judge.checker.describe()}")


@dataclass(frozen=True)
class Judged:
    """What the controls say. ``judge``: its candidates can be judged. ``said``: what a reader should know of that.

    ``verdict``: that of the last control.
    """

    judge: Judge
    verdict: Verdict
    said: str = ""


@dataclass(frozen=True)
class Controls:
    """Asks a check about harmless models.

    ``fallbacks``: what may be kept where the check cannot judge cuts.
    ``repeated``: whether the check may be flaky. ``slip``: an obvious mistake in the command, in words.
    ``fed``: the check asks for values of the inputs, so that it is rather the outputs that it knows by itself.
    ``original``: the good model, None: not given; ``samples``: what it is fed. ``lacks``: options that the user may
    give besides. ``run``: what computes the recorded values, in words.
    """

    fallbacks: frozenset[Closure] = frozenset()
    repeated: bool = True
    slip: str = ""
    fed: bool = True
    original: Path | None = None
    samples: tuple[Sample, ...] = ()
    lacks: tuple[str, ...] = ()
    run: str = "the reference"

    @staticmethod
    def of(checker: Checker, settings: Settings, samples: tuple[Sample, ...] = ()) -> Controls | None:
        """Return the controls of a check of the user's own; None for a person, and for checks of ours.

        Those feed and compare whatever inputs and outputs a model has.
        """
        if not isinstance(checker, CommandCheck | PythonCheck):
            return None
        slip = checker.slip if isinstance(checker, CommandCheck) else ""
        given, repeated = settings.reference.model, settings.checker.flaky is not Flaky.never
        original = Path(given).expanduser().absolute() if given else None
        lacks = (
            *((INPUTS,) if isinstance(settings.inputs, RandomInputs) else ()),
            *((ORIGINAL,) if not given and not settings.reference.has_expected else ()),
        )
        run = reference_run(settings)
        return Controls(fallbacks(settings), repeated, slip, checker.wants_feeds, original, samples, lacks, run)

    def judge(self, judge: Judge) -> Judged:
        """Return a judge whose candidates this check can judge.

        Raises CannotJudge where it can judge nothing, or no cuts, and ContradictionError where it is flaky.
        """
        subject = subgraph(judge)
        forms = FORMS[subject.closure]
        found, why = self._first(judge, forms[:1] if self.slip else forms)
        if found:
            return Judged(found, why)
        if self.slip:
            raise self._cannot_tell(judge, why, self.slip, ())
        own, also = self._first(judge, OWN, lenient=True)
        if not own:
            # an Identity hands out what is right for one sample, and the whole model can hold that of all
            several = self._may_place and subject.told_apart
            if several and isinstance(placed := self._in_place(judge, why, lenient=True), Judged):
                return placed
            if Outcome.FAIL not in (why.outcome, also.outcome):
                if not self.fed and _OWN_INPUT.match(why.reason):
                    return self._whole_only(judge, why)
                # on a harmless model the check does not report the failure under study: no answer, but no wrong one
                said = f"the check gives no answer on {FORMS[subject.closure][0]} ({why.said})"
                return Judged(judge, also, said)
            self._repeat(judge, 1)
            raise self._refusal(judge, why)
        self._repeat(judge, REPEATS)
        able = self._able(judge) if subject.closure is Closure.FREE else {}
        chosen = next((closure for closure in able if closure in self.fallbacks), None)
        refused = self._no_cuts(judge, why, tuple(able))
        if chosen is not Closure.ANCESTORS and self._may_place:
            placed = self._in_place(judge, why)
            if isinstance(placed, Judged):
                return placed
            refused = placed
        if chosen is None:
            raise CannotJudge(refused)
        setting = SETTINGS[chosen]
        subject, verdict = able[chosen]
        kept = replace(subject, closure=chosen)
        types = ", declared types" if kept.declared else ""
        log.info("the check %s a model of one Identity: %s", _gives(why), why.reason)
        said = (
            "the check cannot judge every part of the model: it did not pass a model of one Identity. "
            f"The run goes on with {setting}, with which it can. A check that feeds {{inputs}} and compares with "
            "{references} gets smaller answers; with --expected, {references} holds your expected outputs"
        )
        return Judged(judge.stage(f"{setting}{types}", kept), verdict, said)

    def first(self, judge: Judge) -> Expected:
        """Return the first control that is asked for."""
        form = FORMS[subgraph(judge).closure][0]
        return Expected(self._with(judge, form, declared=False), NOTHING, Phase.CONTROL, str(form))

    def _refusal(self, judge: Judge, why: Verdict) -> CannotJudge:
        """Return what to raise for a check that passes no harmless model; ``why``: not an Identity."""
        if not self.fed and why.outcome is Outcome.UNRESOLVED:
            return self._wrong_values(judge)  # it fits the whole model, and finds it wrong
        if known := fails_on_good(judge, self.original, self.samples, ORIGINAL_FILE):
            return known
        these = listed(self.lacks) if self.lacks else "what it feeds and compares with ({inputs}, {references})"
        return self._cannot_tell(judge, why, ALWAYS.format(these=these), self.lacks)

    def _cannot_tell(self, judge: Judge, why: Verdict, advice: str, lacks: tuple[str, ...]) -> CannotJudge:
        said = f"the check cannot tell good from bad: it does not pass even a model of one Identity ({why.said})"
        return CannotJudge(f"{said}.\n{advice}.\ncheck: {judge.checker.describe()}", lacks)

    @property
    def _may_place(self) -> bool:
        """Whether nodes may be judged in their place, where the check cannot judge cuts."""
        return self.fallbacks == set(KEPT.values())

    def _whole_only(self, judge: Judge, why: Verdict) -> Judged:
        """Return who judges nodes in their place, for a check that feeds an input of its own. Raises CannotJudge."""
        placed = self._in_place(judge, why) if self._may_place else self._no_cuts(judge, why, ())
        if isinstance(placed, Judged):
            return placed
        raise self._wrong_values(judge) if INPUTS in self.lacks else CannotJudge(placed, self.lacks)

    def _wrong_values(self, judge: Judge) -> CannotJudge:
        """Return what to raise for a check of the whole model that fails with recorded values for its outputs too."""
        if known := fails_on_good(judge, self.original, self.samples, ORIGINAL_FILE):
            return known
        check, lacks = f"check: {judge.checker.describe()}", self.lacks
        if not self.fed and INPUTS in lacks:
            quantized = any(node.op_type == "DequantizeLinear" for node in subgraph(judge).graph.protos)
            lacks = lacks if quantized else (INPUTS,)
            also = f". A quantized model also needs the one that it was made of: {ORIGINAL}" * (ORIGINAL in lacks)
            said = (
                "your check feeds an input of its own, and the values that were recorded for random inputs do not "
                f"match it. Give the input of your check: {INPUTS}{also}"
            )
            return CannotJudge(f"{said}.\n{check}", lacks)
        if not self.fed and self.original:
            said = (
                "your check passes the original, but not the values that the original computes: it feeds another input "
                f"than the one that you gave. Let it feed {{inputs}}, or give its own: {INPUTS}"
            )
            return CannotJudge(f"{said}.\n{check}", (INPUTS,))
        other = "" if self.fed else ", or your check feeds another input than the one that you gave"
        good = f" Give the good model: {ORIGINAL}." * (ORIGINAL in lacks)
        given = ORIGINAL_FILE if self.original else self.run
        said = (
            f"your check also fails with the values that {given} computes. So the model itself is wrong for your "
            f"check, for example after a conversion or quantization{other}.{good}"
        )
        return CannotJudge(f"{said}\n{check}", [one for one in lacks if one == ORIGINAL])

    def _in_place(self, judge: Judge, why: Verdict, *, lenient: bool = False) -> Judged | str:
        """Return who judges nodes in their place; else why that cannot be. ``lenient``: good values that fail are that.

        The recorded values are right for the sample that the check feeds where it passes them and nothing else, and
        fails the whole model when that computes with them.
        """
        subject = subgraph(judge)
        placed = judge.stage("in place", InPlace.of(subject))
        passing = placed.sure(NOTHING, Phase.CONTROL, "the whole model, good values in place of all nodes")
        if passing.outcome is Outcome.UNRESOLVED and not self.fed:
            return (
                "the check works for the whole model only, and the good values recorded for your input did not fit "
                f"there ({passing.reason}). It has to feed that input at once, not in batches; or let it feed "
                f"{{inputs}} and compare with {{references}}.\ncheck: {judge.checker.describe()}"
            )
        if passing.outcome is Outcome.UNRESOLVED:
            return f"{self._no_cuts(judge, why, ())}\nGood values were not put into the whole model: {passing.reason}"
        right = passing.outcome is Outcome.PASS
        if lenient and not right:
            return passing.said
        if not right or placed.sure(subject.space.whole, Phase.PREFLIGHT, QUESTION.whole).outcome is not Outcome.FAIL:
            raise self._wrong_values(judge)
        said = (
            "the check works for the whole model only: it did not pass a model of one Identity. So each candidate, "
            "also reduced.onnx, is the whole model with good values in place of some nodes"
        )
        log.info("the check %s a model of one Identity: %s", _gives(why), why.reason)
        return Judged(placed, passing, said)

    def _able(self, judge: Judge) -> dict[Closure, tuple[Subgraph, Verdict]]:
        """The closures whose candidates the check can judge, with a subject whose control shows it, and its verdict."""
        found: dict[Closure, tuple[Subgraph, Verdict]] = {}
        first, second = Closure.ANCESTORS, Closure.DESCENDANTS
        for closure in (second, first) if self.fed else (first, second):
            passing, verdict = self._first(judge, FORMS[closure])
            if passing:
                found[closure] = subgraph(passing), verdict
                if closure in self.fallbacks:
                    break
        return found

    def _first(self, judge: Judge, forms: Iterable[Form], *, lenient: bool = False) -> tuple[Judge | None, Verdict]:
        """The judge with the first of these controls that passes, and its verdict, else a failure if there was one.

        A check that feeds the model's own inputs may do so with other shapes than the recorded ones. ``lenient``: only
        the shapes that the file declares are tried.
        """
        subject = subgraph(judge)
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
        subject = subgraph(judge)
        if subject.control == form and not declared:
            return judge
        other = replace(subject, control=form, declared=subject.declared or declared)
        name = f"{subject.closure.value}, {form}{', declared types' if declared else ''}"
        return judge.stage(name, other)

    def _repeat(self, judge: Judge, times: int) -> None:
        """A control that failed fails again, unless the check is flaky: raises ContradictionError then."""
        if not self.repeated:
            return
        subject = subgraph(judge)
        for attempt in range(1, times + 1):
            verdict = _verdict(judge, subject.control, attempt)
            if verdict.outcome is Outcome.PASS:
                raise contradiction(str(subject.control), verdict)

    def _no_cuts(self, judge: Judge, why: Verdict, able: tuple[Closure, ...]) -> str:
        subject = subgraph(judge)
        if able:
            settings = " or ".join(SETTINGS[closure] for closure in able)
            instead = f"or go on with {settings}, with which this check works (strategy.find=all excludes them)"
        else:
            instead = (
                "keeping the model's inputs (strategy.reduce_inputs=false) or its outputs "
                "(strategy.reduce_outputs=false) does not help"
            )
        return (
            "the check cannot judge parts of the model: it passes a model with the original's inputs and outputs, "
            f"but not {subject.control} ({why.said}). {FIT}. "
            f"{instead[0].upper()}{instead[1:]}.\ncheck: {judge.checker.describe()}"
        )


def _gives(control: Verdict) -> str:
    return "gives no verdict on" if control.outcome is Outcome.UNRESOLVED else "does not pass"


def _verdict(judge: Judge, form: Form, attempt: int) -> Verdict:
    verdict = judge.sure(NOTHING, Phase.CONTROL, str(form), attempt=attempt)
    shown = verdict.metrics.get(CAUGHT)
    caught = Raised.from_json(shown) if shown and verdict.outcome is Outcome.PASS else None
    studied = judge.studied.signature.raised if judge.studied.signature else None
    if caught and caught.feeds and not (studied and studied.about == caught.about):
        # a message that it prints on the original too is normal; a new one means that it passes a model it cannot run
        return replace(verdict, outcome=Outcome.UNRESOLVED, reason=f"it passes, and says that {caught.why}")
    return verdict
