"""The cause: does the failure of the whole model arise inside an answer?

A set of nodes that fails alone is not yet the cause: rounding may exceed, on a tensor inside the model, a tolerance
that was meant for the model's outputs. Two experiments on the whole model, judged at its own outputs, tell:

(a) with good values in place of what the set gives, the model passes: whatever makes it fail lies in the set or
    upstream of it;
(b) with good values in place of what the set reads, it still fails as badly. All that what depends on the set reads
from elsewhere is good then, too, so that nothing upstream of the set or beside it has a share in the failure.

Both together say that the failure arises inside. A fusion that is wrong is wrong wherever its pattern stands, so where
one set does not explain the failure, all sets of its pattern are tested together; so are all places that the first look
found to be wrong (two weights that were swapped). After that the search goes on without what is healed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from runner.jobs.reduce.cause.fed_values import unless_fed
from runner.jobs.reduce.cause.other_words import smaller_by_experiment
from runner.jobs.reduce.cause.session_model import SessionModel
from runner.jobs.reduce.cause.splice_experiments import Experiments, WholeModel
from runner.judgment import SHARE, CauseStatus, Whose
from runner.model.graph.find_pattern import instances
from runner.model.graph.splice_good_values import ancestors
from runner.session.cause import Cause, Tested
from runner.session.inquiry import Inquiry
from runner.session.run_stages import HandedOver
from runner.session.session import Session
from runner.session.stage import Standing
from runner.text import listed
from strategies.outcome import Outcome
from strategies.search import Done, Step
from strategies.search_space import Closure, Space
from strategies.trial import Trial

LEAST_QUESTIONS = 2
"""The two experiments on the first answer are made in any case."""
_FOR_EACH_PLACE = 6
"""Questions for each place that is wrong, once all of them are known to be the failure."""


@dataclass(frozen=True)
class Causes:
    """How answers are shown to be the cause.

    ``search``: for further answers. ``most``: questions that may be asked for it; None: as many as the search asked,
    or one that halves the model for a single node; as many again after each answer that is a good part of the failure.
    ``wrong``: the places that the first look has found to be wrong, though what they read is right. ``overflow``: shows
    it where no good value is known; None: nothing does.
    """

    search: Callable[[Space], Step]
    most: int | None = None
    wrong: tuple[tuple[int, ...], ...] = ()
    overflow: Callable[[SessionModel, Cause, Standing], Cause] | None = None

    def prove(self, session: Session, first: HandedOver) -> tuple[HandedOver, Cause | None]:
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
        self, model: SessionModel, answer: Trial, standing: Standing | None = None
    ) -> tuple[Cause, tuple[Inquiry, Done] | None]:
        """Return what is known about the cause; and of the answer that stands then how it was found, if it is new."""
        cause = Prover(model, model.session.inquiry.answered, self.most, self.wrong).prove(answer)
        cause = self.overflow(model, cause, standing) if self.overflow and standing else cause
        strongest = cause.answers[cause.main].answer
        if misread := cause.misread(model.scale):
            cause = replace(cause, status=CauseStatus.UNTESTED, causes=(), reason=misread, whose=Whose.CHECK)
        return unless_fed(model.session, cause, strongest), model.found.get(strongest)


class Prover:
    """Finds out by experiments which of the answers of a reduction are the cause.

    ``answered``: questions that the search asked; for ``most`` and ``wrong`` see `Causes`.
    """

    def __init__(
        self, model: WholeModel, answered: int, most: int | None = None, wrong: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        self._model = model
        self._wrong, self._together = [frozenset(place) for place in wrong], ""
        asked = max(answered, len(model.space.order).bit_length() + 1) if most is None else most
        self._most = asked if most is None else 0
        self._experiments = Experiments(model, max(asked, LEAST_QUESTIONS))

    def prove(self, answer: Trial) -> Cause:
        """Return what is known about the cause, once an answer was found."""
        if self._model.space.closure is Closure.ANCESTORS:
            reason = "strategy.reduce_inputs=false: the check is fed the model's own inputs only"
            return self._end(CauseStatus.UNTESTED, [Tested(answer, answer)], reason=reason)
        tested = [*self._test(answer)]
        if tested[0].unanswered:
            return self._end(CauseStatus.UNTESTED, tested, reason=tested[0].unanswered)
        if not tested[-1].proven and (joint := self._of_wrong_places(tested)):
            return joint
        left = self._model.space.order
        while not tested[-1].proven:
            outputs = tested[-1].good_outputs
            if outputs and outputs.lacks_a_part_of(
                self._model.whole, self._model.scale
            ):  # another fault takes a search of its own
                self._experiments.left += self._most
            if joint := self._joint(tested):
                return joint
            left = tuple(index for index in left if index in tested[-1].elsewhere)
            following = self._experiments.following(left)
            if following is None:
                known = filter(None, (self._together, self._experiments.used_up))
                main, reason = self._strongest(tested), "; ".join(known)
                return self._end(CauseStatus.NOT_PROVEN, tested, main=main, reason=reason or tested[main].doubt)
            tested += self._test(following)
        return self._end(CauseStatus.PROVEN, tested, causes=(len(tested) - 1,))

    # ---- one answer

    def _test(self, answer: Trial) -> Iterator[Tested]:
        """Make both experiments; with the other instances of the answer's pattern where they do not hold.

        Where another one of these is the cause, the answer itself comes before it.
        """
        self._experiments.both(answer)
        outputs = self._experiments.without(answer)
        alone = Tested(answer, answer, (answer.elements,), outputs)
        if alone.heals:
            inputs = self._experiments.only(answer)
            above = ancestors(self._model.graph, answer.elements)
            alone = replace(alone, good_inputs=inputs, proven=self._experiments.as_bad(inputs), elsewhere=above)
        else:
            alone = replace(alone, elsewhere=self._experiments.everything - answer.elements)
        if alone.proven or alone.unanswered or self._experiments.exhausted:
            yield alone
            return
        found = self._instances(alone)
        if found.answer != answer:
            yield alone
        yield found

    def _instances(self, alone: Tested) -> Tested:
        """Test all instances of an answer's pattern; return one that is the cause, or the answer as it was tested."""
        alike = instances(self._model.graph, alone.answer.elements, self._model.types())
        copies = tuple(copy for copy in alike if copy <= self._experiments.everything)
        several = len(self._wrong) > 1 and self._is_wrong(alone.answer.elements)
        healthy = not all(map(self._is_wrong, copies))
        if several and healthy and not alone.heals and self._experiments.without(_union(self._wrong)).heals:
            return alone  # what is wrong is known, and it is not this pattern wherever it stands
        every = Trial(frozenset().union(alone.answer.elements, *copies))
        if every in (alone.answer, self._model.space.whole) or self._experiments.exhausted:
            return alone
        if alone.heals:
            # the cause may lie upstream, and good values in place of instances below it would hide it
            copies = tuple(copy for copy in copies if copy <= alone.elsewhere | alone.answer.elements)
            every = Trial(frozenset().union(alone.answer.elements, *copies))
            if every == alone.answer:
                return alone
        outputs = self._experiments.without(every)
        if not outputs.heals:
            # the instances are not the cause, or not all of it
            return replace(alone, elsewhere=alone.elsewhere - every.elements)
        together = Tested(alone.answer, every, copies, outputs)
        if not alone.heals:
            inputs = self._experiments.only(alone.answer, every)
            if self._experiments.as_bad(inputs, len(copies)):
                proven = replace(together, good_inputs=inputs, proven=True)
                # it reaches only a share of the failure: another instance may matter more
                enough = self._experiments.as_bad(inputs)
                return proven if enough else self._strongest_instance(together) or proven
        return self._strongest_instance(together) or replace(
            alone,
            elsewhere=alone.elsewhere & (every.elements | ancestors(self._model.graph, every.elements)),
        )

    def _strongest_instance(self, together: Tested) -> Tested | None:
        """Find the instance that matters most, by halving: where good values make the most of the difference.

        Good values are given to it and to those before it, so that its own effect reaches the outputs, if any does.
        """
        copies = sorted(together.instances, key=max)
        assert together.good_outputs
        low, high = 0, len(copies)
        if high.bit_length() > self._experiments.left:  # the halving, and the experiment on what it finds
            return None
        level_of = self._experiments.level
        before, after = level_of(self._experiments.whole), level_of(together.good_outputs)
        while high - low > 1:
            if self._experiments.exhausted:
                return None
            middle = (low + high) // 2
            level = level_of(self._experiments.without(_union(copies[:middle])))
            if before - level < level - after:
                low, before = middle, level
            else:
                high, after = middle, level
        instance = Trial(copies[high - 1])
        answer = (
            instance if instance == together.answer else self._experiments.following(tuple(sorted(instance.elements)))
        )
        if answer is None or self._experiments.exhausted:
            return None
        inputs = self._experiments.only(answer, _union(copies[:high]))
        if not self._experiments.as_bad(inputs, len(copies)):
            return None
        return replace(together, answer=answer, good_inputs=inputs, proven=True)

    # ---- several answers

    def _is_wrong(self, nodes: frozenset[int]) -> bool:
        return any(not place.isdisjoint(nodes) for place in self._wrong)

    def _of_wrong_places(self, tested: list[Tested]) -> Cause | None:
        """Return the cause if it is several of the places that are known to be wrong, and not one of them alone.

        Both experiments come first: a runtime may be wrong in other nodes, and these places by rounding only.
        """
        union, last, made = _union(self._wrong), tested[-1], self._experiments
        if len(self._wrong) < 2 or last.heals or made.exhausted or not made.without(union).heals:
            return None
        if made.exhausted or not made.as_bad(made.only(union)):
            return None
        made.left += _FOR_EACH_PLACE * len(self._wrong) if self._most else 0
        found = [last]
        for place in self._wrong:
            if place.isdisjoint(last.answer.elements) and (answer := self._experiments.following(tuple(sorted(place)))):
                found += [Tested(answer, answer, (answer.elements,))]
        names = listed([self._model.graph.names[index] for index in union])
        self._together = (
            f"with good values in place of what {names} give, the model passes; no single one of them is shown to be it"
        )
        return self._joint(found)

    def _joint(self, tested: list[Tested]) -> Cause | None:
        """Return the cause if the answers so far heal the whole model together, and each of them fails by itself."""
        failing = [one for one in tested if not one.heals]
        if len(failing) < 2 or tested[-1].heals or self._experiments.exhausted:
            return None
        union = _union(one.answer.elements for one in failing)
        if not self._experiments.without(union).heals:
            return None
        effects: dict[int, float] = {}
        for at, one in enumerate(tested):
            if one not in failing:
                continue
            if self._experiments.exhausted:
                return None
            inputs = self._experiments.only(one.answer, union)
            if inputs.outcome is Outcome.FAIL:
                tested[at] = replace(one, good_inputs=inputs)
                effects[at] = self._experiments.level(inputs) if inputs.measure is not None else 0.0
        needed = [tested[at].answer.elements for at in effects]
        if len(needed) < 2 or self._experiments.exhausted:
            return None
        if len(needed) < len(failing) and not self._experiments.without(_union(needed)).heals:
            return None
        causes = tuple(effects)
        return self._end(CauseStatus.JOINT, tested, causes=causes, main=max(causes, key=lambda at: (effects[at], -at)))

    def _end(
        self,
        status: CauseStatus,
        tested: list[Tested],
        *,
        causes: tuple[int, ...] = (),
        main: int | None = None,
        reason: str = "",
    ) -> Cause:
        if main is None:
            main = causes[0] if causes else self._strongest(tested)
        return Cause(status, self._experiments.whole, tuple(tested), causes, main, reason)

    def _strongest(self, tested: list[Tested]) -> int:
        """Return the answer that does most harm by itself (b); of about equals the one whose good outputs mend most.

        The first where nothing is measured. One that passes with good inputs is not it, if there is another. Of one
        that may do most harm, by what its good outputs mend, (b) is made where others have it.
        """
        known = self._model.whole, self._model.scale
        while True:
            left = [at for at, one in enumerate(tested) if not one.ruled_out] or list(range(len(tested)))
            harms = {at: harm for at in left if (harm := tested[at].harm(*known)) is not None}
            near = [at for at in harms if harms[at] >= (1 - SHARE) * max(harms.values())] or left[:1]
            best = min(near, key=lambda at: (((one := tested[at].good_outputs) and one.level(*known)) or 0.0, at))
            made = any(tested[at].good_inputs for at in left)
            if tested[best].good_inputs or not made or self._model.spent():
                return best
            tested[best] = replace(tested[best], good_inputs=self._experiments.only(tested[best].answer))


def _union(sets: Iterable[Collection[int]]) -> Trial:
    return Trial(frozenset().union(*sets))
