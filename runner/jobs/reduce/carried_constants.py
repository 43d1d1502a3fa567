"""Constants that are carried: nodes that compute of initializers alone are no elements, and come along with readers.

Frozen, the DequantizeLinear of a weight would be a float weight, which a runtime quantizes anew: another model. What is
carried is looked at three times. Before the search, those are made elements that the target makes wrong. Of an answer,
each is frozen if the failure stays. And where no answer is shown to be the cause, and the model with all of them frozen
does not fail, all are elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from runner.engine.check_trials import Judge
from runner.engine.session import HandedOver, Session, Stage, refining
from runner.engine.session_question import Cause, CurrentAnswer
from runner.jobs.reduce.cause_experiments import SessionModel
from runner.jobs.reduce.first_look import looked
from runner.jobs.reduce.prove_cause import Causes
from runner.jobs.reduce.subgraph import LARGEST_CONSTANT, SameNodes, Subgraph, subgraph
from runner.jobs.run import Pipeline
from runner.judgment import SHOWN, CauseStatus
from runner.model.graph.graph_index import needed
from runner.text import counted
from runner.verdict import Candidate, Invalid, Phase, Purpose, rows_of
from strategies.minimal import claim, sweep
from strategies.search import Answer, Ask, Claim, Closure, Done, Outcome, Space, Step, Trial

MOST_BYTES = 1 << 28
"""Bytes of values, of all samples together, that one look at constants takes; the smallest come first."""


@dataclass(frozen=True)
class Constants(SameNodes):
    """Subject `constants`: a trial is some of the nodes that ``base`` carries, each held against its good value."""

    @cached_property
    def space(self) -> Space:
        """Those that other elements read and whose good value is known, within the budget, and what they read."""
        graph, values, sizes = self.base.graph, self.base.recorded.values, dict[int, int]()
        for index in self.base.carried:
            outputs = graph.nodes[index].outputs
            names = [name for name in outputs if not self.base.carried.issuperset(graph.readers.get(name, ()))]
            known = [sample.get(name) for sample in values for name in names if self.base.has_reference(name)]
            if known and all(one is not None and one.structure is None for one in known):
                sizes[index] = sum(one.size for one in known if one)
        order = sorted(sizes, key=lambda index: (sizes[index], index))
        totals = zip(order, accumulate(map(sizes.__getitem__, order)), strict=True)
        chosen = {index for index, total in totals if total <= MOST_BYTES}
        return Space(tuple(sorted(chosen | needed(graph, chosen, self.base.carried))))

    def identity(self) -> dict[str, str]:
        """Return what the model is, and which nodes are carried."""
        return {**self.base.identity(), "kind": "constants"}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the model of these nodes."""
        made = replace(self.base, carried=frozenset(), as_file=False).make(trial, folder)
        if isinstance(made, Invalid):
            return made
        return replace(made, marked=tuple(made.samples[0].expected) if made.samples else ())

    def wrong(self, session: Session) -> frozenset[int]:
        """Return the nodes that the target makes wrong; that takes one check."""
        trial, graph = self.space.whole, self.base.graph
        label = f"{counted(len(trial), 'node')} that no input reaches"
        verdict = looked(session, self, trial, Phase.CONSTANTS, label)
        bad = {row["tensor"] for row in rows_of(verdict) if row["bad"]} if verdict else ()
        return frozenset(graph.producers[name] for name in bad if name in graph.producers)


def make_elements(session: Session, *, compares: bool) -> None:
    """Make elements of what is carried and may be the failure; of all, where that is not about values.

    ``compares``: the check holds what the target makes of a tensor against a good value.
    """
    subject, failure = subgraph(session.judge), session.judge.studied.signature
    if not subject.carried or failure is None:
        return
    wrong = {node.index for node in subject.graph.nodes if node.name in subject.recorded.wrong} & subject.carried
    if failure.about_values:  # a NaN that they make has no good value to be held against
        outputs = {index: subject.graph.nodes[index].outputs for index in subject.carried}
        wrong |= {index for index in subject.carried if any(map(subject.is_bad_feed, outputs[index]))}
    if failure.about_values and compares:
        wrong |= Constants(subject).wrong(session)
    freed = wrong | needed(subject.graph, wrong, subject.carried) if failure.about_values else subject.carried
    if freed:
        session.adopt(as_elements(session.judge, freed))
        session.open_search()


def as_elements(judge: Judge, freed: Collection[int]) -> Judge:
    """Return a judge for which these are elements; the whole model is the same, and so are its verdicts."""
    subject = subgraph(judge)
    other = judge.stage(Phase.CONSTANTS, replace(subject, carried=subject.carried.difference(freed)))
    judge.journal.refresh()
    attempt, before, after = 0, subject.space.whole, other.subject.space.whole
    while verdict := judge.journal.get(before, attempt):
        if other.journal.get(after, attempt) is None:
            other.journal.put(after, attempt, verdict, Phase.PREFLIGHT, "the whole model", 0)
        other.tally.seen.add((other.journal.path, after.key, attempt))
        attempt += 1
    return other


# ---- an answer


def freezings(standing: CurrentAnswer) -> Iterator[Stage]:
    """Yield the stages that freeze what an answer carries: what no longer fails without a node is named with it.

    First what takes up to LARGEST_CONSTANT bytes. What takes more stays a node, unless the failure needs it.
    """
    subject, trial = standing.judge.subject, standing.trial
    if not isinstance(subject, Subgraph) or not subject.carried:
        return
    graph, values = subject.graph, subject.recorded.values
    small, large = set[int](), set[int]()
    for index in needed(graph, trial, subject.carried):
        held = [sample.get(name) for name in graph.nodes[index].outputs for sample in values]
        if held and all(one is not None and one.structure is None for one in held):
            (small if max(one.size for one in held if one) <= LARGEST_CONSTANT else large).add(index)
    if small:
        yield _freezing(standing, subject, small, claim(trial, 0))
    if large:  # a model with their values is no smaller
        yield _freezing(standing, subject, large, Done(None, Claim.ONE_MINIMAL))


def _freezing(standing: CurrentAnswer, subject: Subgraph, chosen: Collection[int], frozen: Done) -> Stage:
    """Return the stage that freezes those ``chosen``. ``frozen``: its end where the failure needs none of them."""
    trial = standing.trial
    whole = Trial(trial.elements.union(chosen))
    above = tuple(
        tuple(set(read).intersection(chosen)) if index in chosen else ()
        for index, read in enumerate(subject.graph.parents)
    )
    space = Space(tuple(whole), above, Closure.DESCENDANTS)
    other = replace(subject, carried=subject.carried.difference(chosen))

    def then(answer: Answer) -> Step:
        # with a constant that is needed, a node that reads it may not be, nor then a constant that only that one read
        return frozen if answer is Answer.YES else sweep(space, whole, freely, last=tuple(trial))

    def freely(keep: Trial, _: int) -> Step:
        return sweep(Space(tuple(keep)), keep, claim)

    first = Ask(trial, then, Phase.FREEZE, "its constants as values", left=len(chosen))
    return refining(standing, Phase.FREEZE, "its constants as nodes", other, space, first, known=True)


def named(standing: CurrentAnswer, subject: Subgraph) -> frozenset[int]:
    """Return what of an answer computes constants, and is needed."""
    nodes = standing.top_level(subject)
    return nodes.elements & subject.graph.constants if nodes else frozenset()


def prove(causes: Causes, session: Pipeline, first: HandedOver) -> tuple[HandedOver, Cause | None]:
    """Prove the cause as ``causes`` do; what is named with an answer is an element then."""
    subject = subgraph(session.judge)
    if own := named(first.standing, subject) & subject.carried:
        session.adopt(as_elements(session.judge, own), session.inquiry)
    return _among_all(causes, session, *causes.prove(session, first))


def _among_all(
    causes: Causes, session: Pipeline, first: HandedOver, cause: Cause | None
) -> tuple[HandedOver, Cause | None]:
    """Look for the cause among what is carried too, where an answer was not shown to be it.

    Only where the model with all of it frozen does not fail: else it makes no difference.
    """
    subject = subgraph(session.judge)
    if cause is None or cause.status is not CauseStatus.NOT_PROVEN or session.spent() or not subject.carried:
        return first, cause
    judge, order = as_elements(session.judge, subject.carried), subject.space.whole
    frozen = session.ruled(judge, order, Phase.CAUSE, "the model, its constants as values")
    if frozen is None or frozen.verdict.outcome is not Outcome.PASS:
        return first, cause
    before = session.judge, session.inquiry
    session.adopt(judge)
    inquiry = session.inquire(purpose=Purpose.CAUSE, step=causes.search)
    inquiry.note(judge.subject.space.whole, Answer.YES)
    inquiry.note(order, Answer.NO)
    done = inquiry.settle()
    if done.trial and not inquiry.stopped:
        other, found = causes.cause_of(SessionModel(session, causes.search), done.trial)
        if other.status in SHOWN:
            return session.finish(*(found or (inquiry, done))), other
    session.adopt(*before)
    return first, cause
