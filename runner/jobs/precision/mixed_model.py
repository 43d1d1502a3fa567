"""The mixed model of an answer: its question, its check, and whether a plain ONNX Runtime loads it.

The question of a precision search: all high passes, all low fails; what is the least that has to be high?
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from runner.engine.check_trials import Judge
from runner.engine.repeated_checks import ANSWER, UNSURE, ContradictionError, Ruling
from runner.engine.session import Session
from runner.engine.session_question import NOTHING, CurrentAnswer, Question, SessionResult, nothing_shown
from runner.exit_codes import CannotJudge, Status
from runner.jobs.precision.layers import node_label
from runner.jobs.precision.prepare_search import PrecisionSetup
from runner.jobs.precision.setup import PrecisionModel
from runner.jobs.precision.units import arithmetic
from runner.judgment import measured
from runner.model.graph.cut import CutError
from runner.model.graph.scopes import graphs_below, initializers
from runner.report import result_parts
from runner.report.summary import FLOATS
from runner.run_folder import MIXED
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.root import Settings
from runner.text import counted, listed
from runner.verdict import REDUCE, REFUSED, Phase, Verdict
from runner.workers.pool import Pool, limited
from strategies.minimal import reduce
from strategies.search import Answer, Done, Outcome, Search, Space, Trial

log = logging.getLogger(__name__)


@dataclass
class Margin:
    """How much of what is allowed an answer may use up, where a check tells how much it did (``measured``).

    ``aim``: the share of the tolerance that is aimed at; what is beyond passes the check all the same.
    """

    aim: float = 1.0
    measured: bool = False

    def share(self, verdict: Verdict) -> float | None:
        """Return how much of what is allowed a verdict says was used up: its error in units of the tolerance."""
        found = measured(verdict.metrics) if self.measured else None
        exact = verdict.metrics.get("exact") and verdict.outcome is not Outcome.PASS  # a share of elements, no error
        return None if exact else found

    def kept(self, verdict: Verdict) -> bool:
        """Whether a verdict that passes does so with the margin."""
        return (self.share(verdict) or 0.0) <= self.aim

    def reach(self, best: Verdict, label: str) -> None:
        """Aim at what can be reached: no set is nearer to what is right than everything raised."""
        least = self.share(best) or 0.0
        if least > self.aim:
            asked, self.aim = self.aim, (least + 1.0) / 2
            said = label.replace("everything in", "all")
            log.warning(
                "%s: %.2g of the tolerance. So the search allows %.2g instead of %.2g", said, least, self.aim, asked
            )

    def nearest(self, judge: Judge, done: Done) -> Done:
        """Return the smallest set that passed, if only without the margin, where a budget ended the search early."""
        whole = judge.subject.space.whole.elements
        passed = [
            entry
            for entry in judge.journal.entries()
            if not entry.attempt and entry.verdict.outcome is Outcome.PASS and entry.trial.elements < whole
        ]
        if not passed:
            return done
        nearest = min(passed, key=lambda entry: len(entry.trial))
        share = self.share(nearest.verdict)
        beyond = share is not None and share > self.aim
        note = f"it takes {share:.2g} of the tolerance, where {self.aim:.2g} was aimed at" if beyond else ""
        return replace(done, trial=nearest.trial, note=note)

    def missed(self, verdict: Verdict) -> str:
        """Say of a model that passes that it does so without the margin; "" where it keeps that."""
        if self.kept(verdict):
            return ""
        took = f"the error is {self.share(verdict):.2g} of the tolerance, and strategy.margin asks for {self.aim:.2g}"
        return f"{took}: a smaller tolerance finds the nodes to raise for that"


@dataclass(frozen=True)
class PrecisionQuestion(Question):
    """Which nodes have to be in the type ``high``, and not in ``low``, for the check to pass with the margin?

    ``emulation``: how low precision comes about, where that matters. ``stays_high``, ``stays_low``: how many nodes are
    not searched, and so are high, or low, in every trial; ``fixed``: that are no layers, and high.
    """

    low: str = "float16"
    high: str = "float32"
    margin: Margin = field(default_factory=Margin)
    emulation: str = ""
    stays_high: int = 0
    fixed: int = 0
    stays_low: int = 0

    @property
    def unit(self) -> str:
        """What an answer counts: see `Summary.unit`."""
        return "node" if self.low in FLOATS else "layer"

    @staticmethod
    def of(low: str, high: str, margin: Margin, **more: Any) -> PrecisionQuestion:
        """Return the question about these two types."""
        ends = f"everything in {high}", f"everything in {low}"
        return PrecisionQuestion(Outcome.PASS, *ends, name=MIXED, low=low, high=high, margin=margin, **more)

    def enough(self, verdict: Verdict) -> bool:
        """Whether a verdict passes with the margin."""
        return self.margin.kept(verdict)

    def examined(self, judge: Judge, verdict: Verdict, label: str) -> None:
        """Take in the first verdict of an end. Raises CannotJudge where it says nothing."""
        if verdict.outcome is Outcome.UNRESOLVED:
            raise CannotJudge(f"{label} cannot be judged: {verdict.reason}")
        failed = verdict.signature if verdict.outcome is Outcome.FAIL else None
        refused = failed is not None and failed.refuses
        if label == self.nothing:
            judge.studied.loads = not refused
            if failed and not refused:
                judge.checker.settle(verdict)
        if label != self.whole:
            return
        if failed and failed.raised and failed.raised.feeds:
            raise CannotJudge(
                f"{label}: {failed.raised.why}: {verdict.reason}. The inputs or outputs of the check do not fit the "
                "model, so it shows nothing about precision. Let it feed {inputs}, which has the types of each "
                f"candidate\ncheck: {judge.checker.describe()}"
            )
        if refused:
            raise CannotJudge(f"{label}: {REFUSED}: {verdict.reason}; {REDUCE}")
        if verdict.outcome is Outcome.PASS:
            judge.checker.settle(verdict)

    def begin(self, judge: Judge, whole: Verdict) -> None:
        """Aim at a margin that can be reached."""
        self.margin.reach(whole, self.whole)

    def no_answer(self, verdict: Verdict) -> SessionResult:
        """Return how it ends where everything in high precision fails."""
        but = f" but {counted(self.stays_low, self.unit)} of strategy.include" if self.stays_low else ""
        failure = verdict.signature.name if verdict.signature else verdict.outcome.value
        message = f"the check fails even with {self.whole}{but} ({failure})"
        if verdict.reason not in failure:
            message += f'; it said "{verdict.reason}"' if failure.startswith("check") else f": {verdict.reason}"
        return SessionResult(Status.no_set_suffices, message, signature=verdict.signature)


# The result of loading a mixed model in a plain ONNX Runtime, and its warnings and fields in result.json.

Levels = Mapping[str, str]
"""Level of optimization -> why the model is refused there, empty where it loads."""

UNOPTIMIZED = "disable"
_REASON = "raised so that ONNX Runtime loads the model"
_LONGEST = 300


@dataclass(frozen=True)
class Loads:
    """How a mixed model loads. ``levels``: empty where it could not be tried (``untried``: why).

    ``raised``: the layers that are high in it; ``added``: those of them that are for the sake of loading. ``own``: how
    the user's model loads where the mixed one is refused. ``disabled``: the optimizers without which it loads.
    """

    raised: frozenset[int]
    levels: Levels
    added: tuple[int, ...] = ()
    own: Levels = field(default_factory=dict)
    disabled: tuple[str, ...] = ()
    untried: str = ""

    @property
    def refused(self) -> Levels:
        """The levels at which it is refused, with the messages."""
        return {level: why for level, why in self.levels.items() if why}

    @property
    def warning(self) -> str:
        """Say at which levels the model is refused; empty where there is nothing to say."""
        if self.untried:
            return f"whether ONNX Runtime loads mixed.onnx was not tried: {self.untried[:_LONGEST]}"
        if not self.refused:
            return ""
        at, why = ", ".join(self.refused), next(iter(self.refused.values()))[:_LONGEST]
        if len(self.refused) == len(self.levels) and all("NOT_IMPLEMENTED" in told for told in self.refused.values()):
            return f"ONNX Runtime's CPU provider lacks an operator in this precision; mixed.onnx is for a GPU: {why}"
        said = f"plain ONNX Runtime refuses mixed.onnx at graph optimization level {at}: {why}"
        if self.levels.get(UNOPTIMIZED) and not self.own.get(UNOPTIMIZED):
            said += "; without any optimization too: it is no matter of where casts are"
        if all(self.own.get(level) for level in self.refused):
            said += "; it refuses the model that was given there too"
        if self.disabled:
            return f"{said}; it loads with InferenceSession(..., disabled_optimizers={list(self.disabled)})"
        return said

    def with_loads(self, precision: result_parts.Precision, casting: PrecisionModel) -> result_parts.Precision:
        """Return what was found, with this in it."""
        added = {casting.layers[index].path for index in self.added}
        selected = (replace(one, reason=_REASON) if one.node in added else one for one in precision.selected)
        loads = result_parts.Loads(
            levels={level: why[:_LONGEST] or "ok" for level, why in self.levels.items()},
            original={level: why[:_LONGEST] or "ok" for level, why in self.own.items()},
            raised=tuple(casting.layers[index].path for index in self.added),
            disabled_optimizers=self.disabled,
        )
        return replace(precision, selected=tuple(selected), loads=loads)

    @property
    def blamed(self) -> list[str]:
        """The levels whose optimizations are to blame: without them the model loads."""
        return [] if self.levels.get(UNOPTIMIZED) else list(self.refused)


# Whether a plain ONNX Runtime loads a mixed model, and what is raised besides where it does not.
#
# Its own fusions take casts apart: one of them makes an invalid node of a Cast in front of a decomposed layer norm
# whose scale is of another type. Which node is raised decides where the casts are, so one more, in reach of the node
# that the message names, is tried: the cheapest first, and only as long as it helps. Where that does not help it is
# said, with the optimizers to disable.

MOST_VAIN = 60
"""So many times a model is loaded in search of a way out without that it helps."""
_REACH = 4
"""A fusion covers several nodes: from the one that it is named after, its Cast is so many steps away."""
_WORD = re.compile(r"[A-Z]\w*(?:Fusion|Elimination|Transformer)")


class Loading:
    """Loads the mixed models of a run in a plain ONNX Runtime."""

    def __init__(self, material: PrecisionSetup) -> None:
        self._material = material
        self._layers = material.casting.layers
        self._left = MOST_VAIN
        target = material.settings.target
        self._target = target if isinstance(target, OnnxRuntimeBackend) else OnnxRuntimeBackend()

    def asked(self, trial: Trial) -> Loads:
        """Load the model of a trial as it is; where it is refused, look for the optimizers to disable."""
        found = self._found(self._material.subject.raised(trial))
        return replace(found, disabled=self._disabled(found)) if found.blamed else found

    def wider(self, trial: Trial) -> tuple[Trial, Loads]:
        """Return a trial with what is raised besides so that its model loads at all levels, and how it loads.

        Where that cannot be reached, or what it takes is not searched, the trial is as it was.
        """
        subject = self._material.subject
        raised = subject.raised(trial)
        found = self._found(raised)
        if more := self._more(raised, found.blamed):
            # a whole block is raised with what is needed of it
            wider = Trial.of((*trial, *self._material.searched.of(more)))
            loads = self._found(subject.raised(wider))
            if more <= loads.raised and not loads.blamed:
                added = tuple(sorted(loads.raised - raised))
                log.info(
                    "%s raised too, so that ONNX Runtime loads the model",
                    listed([self._layers[at].path for at in added]),
                )
                return wider, replace(loads, added=added)
        return trial, self.asked(trial) if found.blamed else found

    def _found(self, raised: frozenset[int]) -> Loads:
        levels, untried = self._of(raised)
        own = {level: self._own.get(level, "") for level, why in levels.items() if why}
        return Loads(raised, levels, own=own, untried=untried)

    @cached_property
    def _own(self) -> Levels:
        return self._load(str(self._material.loaded.path))[0]

    # ---- moving the casts by raising more layers

    def _more(self, raised: frozenset[int], at: Sequence[str]) -> frozenset[int]:
        """Return which layers, raised besides, make the model load at these levels; none where none were found."""
        added, helped = frozenset[int](), set[tuple[str, int]]()
        for level in at:
            why = self._refusal(raised | added, level)
            while why:
                found = self._step(raised | added, level, why, helped)
                if found is None:
                    return frozenset()
                layer, steps, why = found
                added |= {layer}
                helped.add((self._layers[layer].op_type, steps))
        return added

    def _step(
        self, raised: frozenset[int], level: str, why: str, helped: Collection[tuple[str, int]]
    ) -> tuple[int, int, str] | None:
        """Return a layer that, raised, leaves no complaint or one further down: its index, distance, what is left."""
        named = self._named(why)
        distances, work = self._distances(named), arithmetic(self._material.casting, self._material.loaded)

        def order(at: int) -> tuple[bool, float, int, int]:
            """Layers like those that helped elsewhere first, then the cheapest."""
            return (self._layers[at].op_type, distances[at]) not in helped, work.get(at, 0.0), distances[at], at

        for index in sorted(distances.keys() - raised, key=order):
            if self._left <= 0:
                return None
            left = self._refusal(raised | {index}, level)
            after = self._named(left)
            if not left or (after and min(after) > max(named)):
                return index, distances[index], left
            self._left -= 1
        return None

    def _named(self, message: str) -> list[int]:
        """Return the layers that a message of ONNX Runtime's names: a fused node has the name of one that it was."""
        graphs = list(graphs_below(self._material.casting.mixer.model.graph))
        # nested ones without their owners' names
        names = [node_label(graphs[at].node[place], place) for at, place in (one.key for one in self._layers)]
        inside = [name for name in names if f"({name}" in message or f"'{name}" in message]
        longest = max(inside, key=len, default=None)
        return [index for index, name in enumerate(names) if name == longest]

    def _distances(self, named: Collection[int]) -> dict[int, int]:
        """Return the layers in reach of these, with the steps: what reads or makes the same tensor is next."""
        weights = {tensor.name for tensor in initializers(self._material.casting.mixer.model)}
        tensors = [{*one.reads, *one.writes} - weights for one in self._layers]
        found, edge = dict.fromkeys(named, 0), list(named)
        for steps in range(1, _REACH + 1):
            names = set[str]().union(*(tensors[index] for index in edge))
            edge = [at for at, own in enumerate(tensors) if at not in found and not names.isdisjoint(own)]
            found |= dict.fromkeys(edge, steps)
        return found

    # ---- optimizers to disable

    def _disabled(self, found: Loads) -> tuple[str, ...]:
        """Return the fewest optimizers that were found without which the model loads at all levels; empty: none."""
        material = self._material
        reply = limited(material.pool, material.settings, "optimizers", {}, python=self._target.python)
        every = list(reply.value["names"]) if reply.value else []
        words = {word for why in found.refused.values() for word in _WORD.findall(why)}
        likely = [name for name in every if any(name.startswith(word) for word in words)]
        tries = iter(range(MOST_VAIN))

        def loads(disabled: Sequence[str]) -> bool:
            levels, _ = self._of(found.raised, found.blamed, disabled) if next(tries, None) is not None else ({}, "")
            return bool(levels) and not any(levels.values())

        start = next((names for names in (likely, every) if names and loads(names)), None)
        return tuple(_least(start, loads)) if start else ()

    # ---- loading: what came of each level, and why it could not be tried

    def _refusal(self, raised: frozenset[int], level: str) -> str:
        """Return why the model is refused at a level; empty: it loads."""
        levels, untried = self._of(raised, [level])
        return untried or levels.get(level, "")

    def _of(self, raised: frozenset[int], at: Sequence[str] = (), disabled: Sequence[str] = ()) -> tuple[Levels, str]:
        """Load a mixed model at some levels, or at all."""
        model, store = self._material.subject.model(raised), self._material.loaded.store
        for graph in graphs_below(model.graph):  # so that a message can name each
            for place, node in enumerate(graph.node):
                node.name = node_label(node, place)
        try:
            path = store.write(model, store.folder, "loads")
        except CutError as error:
            return {}, str(error)
        try:
            return self._load(str(path), at, disabled)
        finally:
            path.unlink(missing_ok=True)

    def _load(self, path: str, at: Sequence[str] = (), disabled: Sequence[str] = ()) -> tuple[Levels, str]:
        found, untried = refusals(self._material.pool, self._material.settings, self._target, path, at, disabled)
        return {level: why.replace(path, "the model") for level, why in found.items()}, untried


def refusals(
    pool: Pool, settings: Settings, target: OnnxRuntimeBackend, path: str, at: Sequence[str], disabled: Sequence[str]
) -> tuple[Levels, str]:
    """Return why ONNX Runtime refuses a model at some levels, or all ("": it loads it); and why that was not tried.

    ``disabled``: optimizers that are off.
    """
    args = {"model": path, "levels": list(at), "disabled": list(disabled), "custom_ops": list(target.custom_ops)}
    reply = limited(pool, settings, "loads", args, python=target.python)
    return ({}, reply.why) if reply.value is None else (dict(reply.value["levels"]), "")


def _least(names: Sequence[str], loads: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return as few of the names as still do."""
    space = Space(tuple(range(len(names))))
    search = Search(space, reduce(space, 0))
    while search.done is None:
        (ask,) = search.ask()
        search.tell(ask.trial, Answer.YES if loads([names[at] for at in ask.trial]) else Answer.NO)
    return [names[at] for at in search.done.trial or ()]


# The mixed model of an answer: it is to load in a plain ONNX Runtime, and is checked as it is handed over.


@dataclass
class PrecisionAnswer:
    """A search for what has to be raised, and the model that comes of it.

    ``loading``: says how models load in ONNX Runtime, None: nobody asks. ``loads``: how the one that is handed over
    does, once that was asked.
    """

    session: Session
    question: PrecisionQuestion
    loading: Loading | None = None
    loads: Loads | None = None
    _checked: tuple[Trial, Ruling] | None = None

    def search(self) -> tuple[Done | None, Trial]:
        """Search until an answer stands the tests; None: nothing has to be raised. Raises CannotJudge."""
        session, reliability = self.session, self.session.reliability
        assert session.nothing
        if reliability.rates is None and session.nothing.outcome is Outcome.PASS:
            return None, NOTHING
        log.info("%s fails (%s)", self.question.nothing, session.nothing.failure)
        done = session.search()
        if session.inquiry.stopped and done.trial in (None, session.whole) and reliability.rates is None:
            done = self.question.margin.nearest(session.judge, done)
        if session.inquiry.stopped and done.trial in (None, session.whole):
            raise CannotJudge(nothing_shown("pass"))
        return done, session.whole if done.trial is None else done.trial

    def loadable(self, trial: Trial) -> Trial:
        """Return a trial with what has to be raised besides so that ONNX Runtime loads it, if the check passes so."""
        if self.loading is None:
            return trial
        wider, self.loads = self.loading.wider(trial)
        if wider == trial:
            return trial
        judge = self.session.judge
        label = f"{self.question.shown(judge.subject, wider)} so that it loads"
        ruling = self.session.reliability.rule(judge, wider, Phase.RECHECK, label)
        if ruling is not None and ruling.answer is Answer.YES:
            return wider
        self.loads = self.loading.asked(trial)
        return trial

    def write(self, done: Done | None, trial: Trial) -> Ruling:
        """Write the model of an answer, and check the file, once."""
        session = self.session
        if self._checked is None or self._checked[0] != trial:
            self._checked = trial, session.recheck.rule(session.judge, trial, MIXED, ANSWER if done else 1)
        return self._checked[1]

    def withdraw(self) -> None:
        """Remove what was written: it is no answer."""
        self._checked = None
        self.session.recheck.withdraw(MIXED)

    def hand_over(self, done: Done | None, trial: Trial, said: str = "") -> SessionResult | None:
        """Write the model of an answer and check that; None: the check has proved to be flaky by it.

        ``done``: None where nothing has to be raised, but what it takes to load. ``said``: what else there is to say.
        Raises CannotJudge.
        """
        session, question = self.session, self.question
        try:
            ruling = self.write(done, trial)
        except ContradictionError as surprise:
            session.begin_again(surprise)
            return None
        self._checked = None
        if session.differs(trial, ruling.verdict):
            return None
        # the margin is asked of raised nodes only: with none, the check itself is enough
        passes = ruling.answer is Answer.YES or (done is None and ruling.verdict.outcome is Outcome.PASS)
        why = ruling.verdict.reason
        standing = CurrentAnswer(session.judge, trial)
        added = len(self.loads.added) if self.loads else 0
        loads = f"{counted(added, 'node')} raised so that ONNX Runtime loads the model" if added else ""
        if done is None:
            if passes:
                missed = question.margin.missed(ruling.verdict)
                message = "; ".join(filter(None, (self._lowest, missed, loads, f"the model is {MIXED}.onnx", said)))
                return SessionResult(Status.nothing_to_find, message, standing=standing)
            session.recheck.withdraw(MIXED)
            raise CannotJudge(f"{question.nothing} passed once, but the final model does not: {why}")
        count, stopped = counted(standing.size, question.unit), session.inquiry.stopped
        signature = session.nothing.signature if session.nothing else None
        ending = SessionResult(Status.found, "", done, standing, signature=signature)
        if not passes:
            message = f"the answer ({count}) passed once, and did not when it was checked again ({why})"
            return replace(ending, status=Status.could_not_judge, message=message)
        budget = " (the budget was reached: fewer may be enough)" if stopped else ""
        stays, is_all = question.stays_high, trial == session.judge.subject.space.whole
        not_searched = f"{counted(stays, question.unit)} that {'are' if stays > 1 else 'is'} not searched"
        besides = f" besides {not_searched}" if stays else ""
        rest = ": these are all that were searched" if is_all else f" and the rest in {question.low}"
        message = f"the check passes with {count} in {question.high}{besides}{rest}{budget}"
        unsure = UNSURE if session.reliability.unsure and not stopped else ""
        message = "; ".join(filter(None, (message, unsure, done.note, loads, said)))
        return replace(ending, message=message + session.flakiness)

    @property
    def _lowest(self) -> str:
        """Say that nothing has to be raised."""
        question, stays = self.question, self.question.stays_high
        held = f" ({question.emulation})" if question.emulation else ""
        if not stays:
            fixed, stay = question.fixed, "stay" if question.fixed > 1 else "stays"
            which, besides = (" that was searched", f" besides {fixed} that {stay} so") if fixed else ("", "")
            return f"everything{which} passes in {question.low}{held}: no node has to be in {question.high}{besides}"
        kept = f"{counted(stays, question.unit)}, which stay{'s' * (stays == 1)} in {question.high} unsearched"
        return f"all but {kept}, can be in {question.low}{held}: no other node has to be in {question.high}"
