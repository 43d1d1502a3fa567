"""Proving the cause: experiments on the whole model, where its failure arises, and smaller answers of other words.

A set of nodes that fails alone is not yet the cause: rounding may exceed, on a tensor inside the model, a tolerance
that was meant for the model's outputs. Experiments on the whole model, judged at its own outputs, tell:

(a) with good values in place of what the set gives, the model passes: nothing else makes it fail;
(b) with good values in place of what the set reads, it still fails as badly. All that what depends on the set reads
    from elsewhere is good then, too, so that nothing upstream of the set or beside it has a share in the failure;
(c) with good values for what the set reads *and* gives, what depends on it passes, or fails much more mildly: what (b)
    shows does not arise downstream. It is asked where (a) does not hold, since the model may have another fault.

(b) with (a) or (c) shows that the set makes the model fail by itself. Where they do not hold, the same question leads
to the fault (see `locate_fault`), and the smallest part from there on that fails alone is the next answer. What is left
of the failure with good values for a fault is looked at in the same way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from runner.checkers.exit_and_output import OTHER_SHAPE
from runner.engine.session import HandedOver, SearchRun
from runner.engine.session_question import AnswerExperiments, Cause, CurrentAnswer
from runner.jobs.reduce.cause_experiments import Experiments, SessionModel, unless_fed
from runner.jobs.run import Pipeline
from runner.journal.kept_files import failure_of
from runner.judgment import TOLERANCES, CauseStatus, Experiment
from runner.model.graph.cut import depends_on
from runner.model.graph.find_pattern import instances
from runner.model.graph.graph_index import needed
from runner.model.graph.low_precision import QUANTIZING
from runner.reference.wiring import Wiring
from runner.report.diagnosis_sections import ANOTHER, EXPLAINS, LEFT
from runner.schema.checker import SameFailure
from runner.text import in_tolerances, listed, share
from runner.verdict import CHECK, Purpose, Signature
from strategies.search import Answer, Claim, Closure, Done, Outcome, Space, Step, Trial

# Where the failure of the whole model arises: the last place from which on it is still to be seen.
#
# All that stands before a place in the model's order has good values, what comes after it is computed, and the whole
# model is judged at its own outputs. The later the place, the less is computed, so the model fails up to one place and
# passes from the next one on; halving finds it. What rounding does inside the model misleads no such question.


def locate(made: Experiments, within: Collection[int], *, most: bool = False) -> int | None:
    """Return the last element that makes the model fail with what depends on it, all else being good.

    ``within``: elements that fail with what depends on them, and all else good. ``most``: with those after it, and
    nothing may be missing of the failure that would be as bad by itself. None: none does, or there was no time for it.
    """
    order = sorted(set(within) - made.model.healed)
    starts = _starts(made.model, order)

    def fails(first: int, end: int | None = None) -> bool:
        one = made.from_on([at for at in order if starts[first] <= at and (end is None or at < starts[end])])
        return made.as_bad(one) and not (most and one.lacks_a_part_of(made.model.failure, made.model.scale))

    last = bisect_left(range(len(starts)), True, 1, key=lambda size: not made.exhausted and fails(-size))
    if not starts or made.exhausted:
        return None
    return starts[-last] if fails(-last, None if most or last == 1 else 1 - last) else None


def _starts(model: SessionModel, order: Sequence[int]) -> list[int]:
    """Return those of some elements before which all has good values that is read from there on."""
    graph, reads = model.graph, ((name, node.index) for node in model.graph.nodes for name in node.inputs)
    made = ((graph.producers[name], at, name) for name, at in reads if name in graph.producers)
    joined = [(first, at) for first, at, name in made if model.no_good(name, at, Trial.of([at]))]
    return [at for at in order if not any(first < at <= last for first, last in joined)]


def part_from(made: Experiments, place: int) -> Trial | None:
    """Return the smallest part that fails alone among a place and what depends on it, nearest nodes first.

    A fusion that is wrong is seen in the whole model from its first node on, and alone with all of it.
    """
    below = sorted(depends_on(made.model.graph, [place], made.model.healed) - {place})
    passes, fails, size = -1, len(below), 0
    while passes + 1 < fails and not made.exhausted:
        if made.alone(Trial.of([place, *below[:size]])):
            fails = size
        else:
            passes = size
        size = min(max(1, 2 * passes), (passes + fails) // 2)
    return made.following((place, *below[:fails]))


# A smaller answer that only words speak against: another exit code, assertion or error of a runtime than the model's.
#
# Whether that is the failure under study the experiments on the whole model tell (see `prove_cause`), which has to
# fail there in its own words. Where they hold, the part's words are the failure's too, and the search goes on inside.

MOST = 6
"""Experiments on sets that only words speak against."""


def smaller_by_experiment(model: SessionModel, answer: Trial) -> tuple[SearchRun, Done] | None:
    """Return a smaller answer that fails in other words, and is the cause by both experiments; None: there is none."""
    session, asked, found = model.session, model.session.inquiry, None
    studied, free = session.judge.studied, session.judge.subject.space.closure is Closure.FREE
    if studied.rule is not SameFailure.kind or session.reliability.rates is not None or not free:
        return None
    experiments = Experiments(model, MOST)
    while held := next(_held(model, experiments, asked, answer), None):
        smaller, words = held
        session.judge.also |= {words}
        studied.others.pop(failure_of(words), None)
        asked = session.inquire(tuple(smaller), Purpose.CAUSE, step=model.search)
        asked.note(smaller, Answer.YES)
        done = asked.settle()
        inside = done.trial is not None and (done.trial == smaller or _is_cause(experiments, done.trial))
        found = asked, done if inside else replace(done, trial=smaller, claim=Claim.UNPROVEN)
        answer = found[1].trial or smaller
    return found


def _held(model: SessionModel, made: Experiments, asked: SearchRun, answer: Trial) -> Iterator[tuple[Trial, Signature]]:
    """Yield the sets inside an answer that fail in other words, and are the cause; the largest first."""
    judge = model.session.judge
    refused = {one for one, told in asked.search.asked if told is not Answer.YES and one}
    for trial in sorted(refused, key=lambda one: (-len(one), one.ranges)):
        words = judge.journal.get(trial, 0) if trial.elements < answer.elements and not made.exhausted else None
        if not words or not words.signature:
            continue
        if _other_words(judge.counted(trial)[0].outcome, words.signature) and _is_cause(made, trial):
            yield trial, words.signature


def _other_words(told: Outcome, words: Signature) -> bool:
    """Whether it fails in other words; of a check's exceptions its assertions are words, any other may be a mistake."""
    if told is not Outcome.UNRESOLVED or words.raised is None or words.raised.about not in (CHECK, OTHER_SHAPE):
        return told is Outcome.DIFFERENT
    return words.raised.asserts


def _is_cause(made: Experiments, trial: Trial) -> bool:
    return made.without(trial).heals and not made.exhausted and made.as_bad(made.only(trial))


LEAST_QUESTIONS = 2
"""The two experiments on the first answer are made in any case."""
EXPERIMENTS = 3
"""How many there are on an answer, and so on the one node of it that is a fault by itself."""
_AROUND_A_PLACE = 6
"""Questions about a place that was found, besides those that halve the model: how far it reaches, the experiments."""
MOST_RIGHT = 3
"""Places of a pattern, from the end of the model on, that are asked whether they fail by themselves."""
SPREAD = "together these nodes make the model fail, also without fusions; none was shown to be at fault alone"
BY_NAME = ". Does your check look for some outputs by name? It then passes parts that lack them"
"""What may explain it where a check of the user's judges without a measure."""


@dataclass(frozen=True)
class Causes:
    """How answers are shown to be the cause.

    ``search``: for further answers. ``most``: questions that may be asked for it; None: as many as the search asked,
    or one that halves the model for a single node; as many as another place takes where an answer is not the cause.
    ``wrong``: the places that the first look has found to be wrong, though what they read is right. ``overflow``: shows
    it where no good value is known; None: nothing does. ``others``: another answer is looked for. ``every``: what else
    fails is looked for by itself. ``wiring``: what nodes read in the original, None: there is none.
    """

    search: Callable[[Space], Step]
    most: int | None = None
    wrong: tuple[tuple[int, ...], ...] = ()
    overflow: Callable[[SessionModel, Cause, CurrentAnswer], Cause] | None = None
    others: bool = True
    every: bool = False
    wiring: Wiring | None = None

    def prove(self, session: Pipeline, first: HandedOver) -> tuple[HandedOver, Cause | None]:
        """Find out whether the failure arises inside an answer; return the answer that stands then.

        None: it is doubtful, and no smaller set is shown to be the answer.
        """
        model = SessionModel(session, self.search)
        answer = first.standing.top_level(session.judge.subject) or first.main
        if first.fails and (smaller := smaller_by_experiment(model, answer)):
            first = session.finish(*smaller)
        if first.doubtful:
            return first, None
        cause, other = self.cause_of(
            model, first.standing.top_level(session.judge.subject) or first.main, first.standing
        )
        return session.finish(*other) if other else first, cause

    def cause_of(
        self, model: SessionModel, answer: Trial, standing: CurrentAnswer | None = None
    ) -> tuple[Cause, tuple[SearchRun, Done] | None]:
        """Return what is known about the cause; and of the answer that stands then how it was found, if it is new."""
        cause = self.shown(model, model.session.inquiry.answered, answer)
        cause = self.overflow(model, cause, standing) if self.overflow and standing else cause
        strongest = cause.answers[cause.main].answer
        cause = cause.checked(model.scale)
        other = None if strongest == answer else model.found.get(strongest)
        return unless_fed(model.session, cause, strongest), other

    def shown(self, model: SessionModel, answered: int, answer: Trial) -> Cause:
        """Return what experiments show of an answer, which took so many questions; of what is looked for, nothing."""
        cause = Prover(model, answered, self.most, self.wrong, others=self.others, wiring=self.wiring).prove(answer)
        return replace(cause, reason="") if self.every and cause.reason.startswith((ANOTHER, LEFT)) else cause


def of_the_first(causes: Causes, session: Pipeline, first: HandedOver) -> Cause | None:
    """Return the cause where an answer is shown to be it, or nothing speaks against it; no other is looked for."""
    if first.doubtful:
        return None
    answer = first.standing.top_level(session.judge.subject) or first.main
    alone = replace(causes, others=False)
    cause, _ = alone.cause_of(SessionModel(session, causes.search), answer, first.standing)
    same = cause.answers[cause.main].answer.elements <= answer.elements
    return cause if same and cause.status is not CauseStatus.NOT_PROVEN else None


class Prover:
    """Finds out by experiments which of the answers of a reduction are the cause.

    ``answered``: questions that the search asked; for the others see `Causes`.
    """

    def __init__(
        self,
        model: SessionModel,
        answered: int,
        most: int | None = None,
        wrong: tuple[tuple[int, ...], ...] = (),
        *,
        others: bool = True,
        wiring: Wiring | None = None,
    ) -> None:
        self._model, self._wrong, self._others = model, [frozenset(place) for place in wrong], others
        self._wiring, self._asked_as = wiring, dict[Trial, Trial]()
        halving = len(model.space.order).bit_length() + 1
        self._more = halving + _AROUND_A_PLACE if most is None else 0
        asked = max(answered, halving) if most is None else most
        self._made = Experiments(model, max(asked, LEAST_QUESTIONS))

    def prove(self, answer: Trial) -> Cause:
        """Return what is known about the cause, once an answer was found."""
        whole, names = self._model.whole, self._model.graph.names
        if self._model.space.closure is Closure.ANCESTORS:
            reason = "strategy.reduce_inputs=false lets no inner tensor be fed"
            return Cause(CauseStatus.UNTESTED, whole, (AnswerExperiments(answer),), reason=reason)
        tested = [self._test(answer)]
        if tested[0].unanswered:
            return Cause(CauseStatus.UNTESTED, whole, tuple(tested), reason=tested[0].unanswered)
        if not (tested[0].proven or self._others):
            return Cause(CauseStatus.NOT_PROVEN, whole, tuple(tested), reason=tested[0].doubt(names))
        while not tested[-1].proven:
            self._made.left += self._more
            following = self._following(tested[-1])
            if following and all(self._with_crossed(following) != one.answer for one in tested):
                tested.append(self._test(following))
                continue
            strongest = sorted(tested, key=lambda one: -(one.harm(whole, self._model.scale) or 0.0))
            if repeated := next(filter(None, map(partial(self._repeated, at_last=True), strongest)), None):
                tested = [*(one for one in tested if one.answer != repeated.answer), repeated]
                break
            main = next((at for at, one in enumerate(tested) if not one.ruled_out), 0)
            reason = "; ".join(filter(None, (self._together(), self._made.used_up))) or tested[main].doubt(names)
            return Cause(CauseStatus.NOT_PROVEN, whole, tuple(tested), main=main, reason=reason)
        exact = self._exactly(tested[-1])  # of one node there is nothing to ask
        if exact is None:
            inputs = tested[-1].good_inputs
            reason = self._made.used_up or SPREAD + BY_NAME * (inputs is not None and inputs.measure is None)
            return Cause(CauseStatus.NOT_PROVEN, whole, tuple(tested), main=len(tested) - 1, reason=reason)
        tested[-1] = exact
        return self._complete(tested)

    # ---- one answer

    def _test(self, answer: Trial) -> AnswerExperiments:
        """Make the experiments on an answer."""
        made, alone = self._made, answer
        answer = self._with_crossed(alone)
        made.both(answer)
        outputs = made.without(answer)
        found = AnswerExperiments(answer, good_outputs=outputs, together=answer != alone)
        if found.unanswered:
            return found
        inputs = made.only(answer)
        found = replace(found, good_inputs=inputs)
        if not made.as_bad(inputs):
            return found
        mended = made.harmless(outputs, beside=inputs) or made.better(outputs, than=inputs)
        if found.heals and mended and not made.slight(inputs):
            return replace(found, proven=True)
        # what stops a runtime does so wherever it stands, and no value carries it on
        if not self._model.about_values and (repeated := self._repeated(found)):
            return repeated
        if made.exhausted:
            return found
        below = made.below(answer)
        return replace(found, good_around=below, proven=made.harmless(below, beside=inputs))

    def _with_crossed(self, answer: Trial) -> Trial:
        """Return an answer with the nodes that read what it should read: together they are the fault."""
        if answer not in self._asked_as:
            every = Trial(self._wiring.joined(answer.elements, self._wrong)) if self._wiring else answer
            self._asked_as[answer] = every if every == answer or self._made.alone(every) else answer
            if self._asked_as[answer] != answer:
                self._model.found_together(every)
        return self._asked_as[answer]

    def _exactly(self, fault: AnswerExperiments) -> AnswerExperiments | None:
        """Return a fault of several nodes if a fusion explains it, or the one of them that is a fault by itself.

        With fences around its nodes a wrong fusion is right. Where it still fails, what one node gives may be wrong by
        less than a check minds inside the model, and the others carry it on; or each of them is a little wrong, and
        then there is none. Only a measure tells these apart. A check that looks for nodes is misled by no value.
        """
        if fault.together:
            return fault
        parts = self._parts(fault)
        measured = fault.good_inputs is not None and fault.good_inputs.measure is not None
        if not self._model.about_values or len(parts) < 2:
            return fault
        apart = self._made.fenced(fault.answer, parts)
        if apart.outcome is Outcome.DIFFERENT and not apart.heals:
            return None
        if not self._made.as_bad(apart):
            return self._fused(fault, parts) if len(parts) > 2 else fault
        if not measured and self._model.looks_at_nodes(fault.answer):
            return fault
        for part in parts if measured or len(parts) == 2 else ():
            alone = self._made.fenced(part, [part])
            if alone.outcome is Outcome.UNRESOLVED:
                return self._undivided(fault)
            self._made.left = max(self._made.left, min(self._more, EXPERIMENTS))
            if measured and not self._made.exhausted and self._made.as_bad(alone):
                return self._instead(fault, part)
        return None

    def _fused(self, fault: AnswerExperiments, parts: list[Trial]) -> AnswerExperiments | None:
        """Return the nodes of a fault that are in a wrong fusion: its first ones, behind which a fence changes nothing.

        What follows them is right, and only shows what they give.
        """

        def show(count: int) -> bool:
            first = Trial(frozenset().union(*(one.elements for one in parts[:count])))
            return not self._made.exhausted and self._made.as_bad(self._made.fenced(fault.answer, [first]))

        high = bisect_left(range(len(parts)), True, 2, key=show)
        rest = Trial(fault.answer.elements.difference(*(one.elements for one in parts[high:])))
        return self._instead(fault, rest) if high < len(parts) else fault

    def _instead(self, fault: AnswerExperiments, nodes: Trial) -> AnswerExperiments | None:
        """Return some nodes of a fault in its place, if they are shown to be the cause; None: they are not."""
        found = self._test(nodes)
        self._model.found_within(nodes, fault.answer)
        return found if found.proven else self._undivided(fault) if found.unanswered else None

    def _undivided(self, fault: AnswerExperiments) -> AnswerExperiments | None:
        """Return a fault of which one part could not be asked about alone; None: that names too much.

        Of a pair one node is named in vain at most.
        """
        return fault if len(fault.answer) == 2 else None

    def _parts(self, fault: AnswerExperiments) -> list[Trial]:
        """Return what of a fault can be asked about alone: its nodes, in order.

        Nodes between which no good value can stand are one part: a quantized tensor that the original does not have,
        or a value beyond the end of its type. No fence stands between a constant and its reader.
        """
        graph, parts = self._model.graph, list[frozenset[int]]()
        for index in fault.answer:
            if index in graph.constants:
                continue
            reads = [name for name in graph.nodes[index].inputs if self._model.no_good(name, index, fault.answer)]
            before = {graph.producers.get(name) for name in reads}
            joined = [one for one in parts if not one.isdisjoint(before)]
            parts = [one for one in parts if one not in joined]
            parts.append(frozenset({index}).union(*joined))
        return [Trial(one) for one in sorted(parts, key=min)]

    def _following(self, last: AnswerExperiments) -> Trial | None:
        """Return another answer: from the place that the experiments lead to, the smallest part that fails alone."""
        nodes = last.answer.elements
        downstream = last.good_around is not None and not last.proven
        within = depends_on(self._model.graph, nodes) - nodes if downstream else self._made.everything
        place = locate(self._made, within)
        return part_from(self._made, place) if place is not None else None

    # ---- several answers

    def _complete(self, tested: list[AnswerExperiments]) -> Cause:
        """Return the cause, the last one tested, with the other faults that the model has besides."""
        causes = [len(tested) - 1]
        if repeated := self._repeated(tested[-1]):
            tested[-1] = repeated
        while not (last := tested[causes[-1]]).heals:
            if last.good_outputs is None or last.good_outputs.outcome is not Outcome.FAIL or not self._others:
                break
            if not last.good_outputs.as_bad_as(self._model.whole, max(1, len(self._wrong)), self._model.scale):
                break
            self._made.heal(last)
            place = self._wrong_besides(tested)
            if last.good_outputs.lacks_a_part_of(self._model.whole, self._model.scale):
                self._made.left += self._more
            # what depends on it was in doubt, and is good by now
            following = next((one.answer for one in tested if one.good_around and not one.proven), None)
            following = following or (self._made.following(place) if place else self._following(last))
            known = next((at for at, one in enumerate(tested) if one.answer == following), len(tested))
            found = self._test(following) if following and not self._made.exhausted else None
            if found and known not in causes and any(tested[at].answer == found.answer for at in causes):
                break
            if place and found and not found.proven:  # what is wrong there may be noise: the model is halved
                following = self._following(found)
                found = self._test(following) if following and not self._made.exhausted else None
            if found is None or not found.proven:
                break
            tested[known:] = [found, *tested[known + 1 :]]
            causes.append(known)
        harm = {at: tested[at].harm(self._model.whole, self._model.scale) or 0.0 for at in causes}
        main = max(causes, key=lambda at: (harm[at], -at))
        healed = tested[causes[-1]].heals
        status = CauseStatus.JOINT if len(causes) > 1 and healed else CauseStatus.PROVEN
        reason = self._hidden(tested[main]) if healed and len(causes) == 1 else ""
        reason = reason if healed else self._left(tested[causes[-1]].good_outputs, tested)
        cause = Cause(status, self._model.whole, tuple(tested), tuple(causes), main, reason)
        return self._as_bad_before(cause) or cause

    def _as_bad_before(self, cause: Cause) -> Cause | None:
        """Return a cause that gives all outputs as doubtful, if the model is as wrong before it as with it.

        Good values for all outputs show nothing of what is before them. A quantizer that was fed by a wrong weight has
        chosen all later scales by that: they are wrong as well, but what comes first is the fault. Any other node that
        is wrong with right inputs is a fault by itself. Only where something before is known to be wrong, or has a part
        in the failure, is it asked for.
        """
        nodes, graph = cause.answers[cause.main].answer.elements, self._model.graph
        above = needed(graph, nodes) - nodes
        wrong = sorted(tuple(sorted(place)) for place in self._wrong if place <= above)
        fitted = any(QUANTIZING.search(graph.nodes[index].op_type) for index in nodes)
        asked = fitted and above and (wrong or cause.reason) and len(cause.causes) == 1 and not self._made.exhausted
        if not asked or not self._made.gives_all(Trial(nodes)) or not self._made.as_bad(self._made.before(nodes)):
            return None
        self._made.left += self._more
        first = self._made.following(wrong[0]) if wrong else None
        found = self._test(first) if first else None
        as_bad = found and self._made.as_bad(found.good_inputs or cause.whole)
        tested = (*cause.answers, found) if found and as_bad else cause.answers
        names = listed([graph.names[index] for index in sorted(nodes)])
        reason = f"right outputs of {names} hide what is before, and the model is as wrong there"
        return Cause(CauseStatus.NOT_PROVEN, cause.whole, tested, main=len(tested) - 1, reason=reason)

    def _left(self, one: Experiment | None, tested: Sequence[AnswerExperiments]) -> str:
        """Say what is left with right outputs of a cause: where no element may differ, that is no rounding."""
        if one is None or one.outcome is not Outcome.FAIL or one.measure is None or " elements differ" in one.reason:
            return ANOTHER
        if self._model.scale is not TOLERANCES:
            still = f"the check still measures {one.measure:.3g}"
        else:
            still = f"the error is still {in_tolerances(one.measure)}"
        causes = frozenset[int]().union(*(one.answer.elements for one in tested if one.proven))
        others = sorted(max(place) for place in self._wrong if place.isdisjoint(causes))
        too = f" ({listed([self._model.graph.names[at] for at in others])} too)" * bool(others)
        return f"{LEFT}{too}: with right outputs there {still}"

    def _hidden(self, fault: AnswerExperiments) -> str:
        """Say that others have a part in the failure of a fault, and from where on: its good outputs hide that.

        Where all places of a pattern are the cause, each of them has its part.
        """
        model, nodes, own = self._model, fault.answer.elements, fault.good_inputs
        if own is None or fault.instances or not own.lacks_a_part_of(model.whole, model.scale):
            return ""
        self._made.left += self._more
        place = locate(self._made, needed(model.graph, nodes) - nodes, most=True)
        others = "in other nodes" if place is None else f"before these nodes, from {model.graph.names[place]} on"
        part = own.level(model.whole, model.scale) / (model.scale.harm(model.whole.measure or 0.0) or 1.0)
        what = "the error" if model.scale is TOLERANCES else "what the check measures"
        return f"{EXPLAINS} {share(part)} of {what}; the rest arises {others}"

    def _wrong_besides(self, tested: list[AnswerExperiments]) -> tuple[int, ...]:
        """Return a place that the first look has found, and that is in no cause yet."""
        known = frozenset[int]().union(*(one.answer.elements for one in tested if one.proven))
        return next((tuple(sorted(place)) for place in self._wrong if place.isdisjoint(known)), ())

    def _together(self) -> str:
        """Say so where all places that the first look has found are the failure, and no single one is."""
        every = Trial(frozenset[int]().union(*self._wrong))
        if len(self._wrong) < 2 or self._made.exhausted or not self._made.without(every).heals:
            return ""
        names = listed([self._model.graph.names[index] for index in every])
        healed = f"with right outputs of {names} the model passes"
        return f"{healed}; no single one of them was shown to be the cause"

    def _repeated(self, fault: AnswerExperiments, *, at_last: bool = False) -> AnswerExperiments | None:
        """Return a fault with all places of its pattern, if these share the failure: good values for all heal it.

        ``at_last``: nothing else is shown to be the cause, so those are enough that are known to be wrong.
        """
        if fault.heals or fault.good_inputs is None or (self._made.exhausted and not self._more):
            return None
        alike = instances(self._model.graph, fault.answer.elements, self._model.types())
        places = tuple(place for place in alike if place <= self._made.everything)
        wrong = frozenset[int]().union(*self._wrong)
        if wrong and any(map(wrong.isdisjoint, places)):  # it is known, and is not this wherever it stands
            places = tuple(place for place in places if not wrong.isdisjoint(place))
            if not at_last or fault.answer.elements not in places:
                return None
        every = Trial(fault.answer.elements.union(*places))
        shared = self._made.as_bad(fault.good_inputs, among=len(places))
        if every in (fault.answer, self._model.space.whole) or not shared:
            return None
        outputs = self._made.without(every)
        if not outputs.heals:
            return None
        kept = self._without_right_ends(places, fault.answer) if self._model.about_values else places
        if len(kept) < len(places):
            places, outputs = kept, self._made.without(Trial(fault.answer.elements.union(*kept)))
        if len(places) == 1 or not outputs.heals:
            return None
        if not fault.proven and self._made.slight(fault.good_inputs):  # another place may be enough by itself
            others = (self._made.following(tuple(sorted(one))) for one in places if one != fault.answer.elements)
            fault = next((one for one in map(self._test, filter(None, others)) if one.proven), fault)
        return replace(fault, instances=places, good_outputs=outputs, proven=True)

    def _without_right_ends(self, places: tuple[frozenset[int], ...], answer: Trial) -> tuple[frozenset[int], ...]:
        """Return places of a pattern without the last ones, as far as these are right by themselves.

        Good values at the end of a model heal whatever is before. Once MOST_RIGHT are right, the rest is not asked for
        and is left out as well.
        """
        others = sorted((place for place in places if place != answer.elements), key=max)
        right = set[frozenset[int]]()
        while others and self._made.only(Trial(others[-1])).outcome is not Outcome.FAIL:
            right.add(others.pop())
            if len(right) == MOST_RIGHT:
                right.update(others)
                break
        return tuple(place for place in places if place not in right)
