"""Words against experiments: a smaller answer that only its message, code or exception speaks against.

A part of the failing nodes often fails with other words than the whole model: an exit code that counts the wrong
outputs, another assertion of the check, another error of the runtime. Whether that is the failure under study, the
experiments on the whole model tell (see `prove_cause`), which has to fail there with its own words. Where they hold,
the part's words are the failure's too, and the search goes on inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runner.artifacts.artifact_index import failure_of
from runner.checkers.command.tracebacks import OTHER_SHAPE
from runner.jobs.reduce.cause.session_model import SessionModel
from runner.jobs.reduce.cause.splice_experiments import Experiments
from runner.schema.checker import SameFailure
from runner.session.inquiry import Inquiry
from runner.verdict import CHECK, Raised, Signature
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done
from strategies.search_space import Closure
from strategies.trial import Trial

MOST = 6
"""Experiments on sets that only words speak against."""


def smaller_by_experiment(model: SessionModel, answer: Trial) -> tuple[Inquiry, Done] | None:
    """Return a smaller answer that fails in other words, and is the cause by both experiments; None: there is none."""
    session, found = model.session, None
    studied, asked = session.judge.studied, session.inquiry
    flaky = session.reliability.rates is not None
    if studied.rule is not SameFailure.kind or flaky or session.judge.subject.space.closure is not Closure.FREE:
        return None
    experiments = Experiments(model, MOST)
    while held := next(_held(model, experiments, asked, answer), None):
        smaller, words = held
        session.judge.also |= {words}
        studied.others.pop(failure_of(words), None)
        asked = session.inquire(tuple(smaller), "cause", step=model.search)
        asked.note(smaller, Answer.YES)
        done = asked.settle()
        inside = done.trial is not None and (done.trial == smaller or _is_cause(experiments, done.trial))
        found = asked, done if inside else replace(done, trial=smaller, claim=Claim.UNPROVEN)
        answer = found[1].trial or smaller
    return found


def _held(
    model: SessionModel, experiments: Experiments, asked: Inquiry, answer: Trial
) -> Iterator[tuple[Trial, Signature]]:
    """Yield the sets inside an answer that fail in other words, and are the cause; the largest first."""
    judge = model.session.judge
    inside = {one for one, told in asked.search.asked if told is not Answer.YES and one}
    for trial in sorted(inside, key=lambda one: (-len(one), one.ranges)):
        words = judge.journal.get(trial, 0) if trial.elements < answer.elements else None
        if not words or not words.signature or experiments.exhausted:
            continue
        told = judge.counted(trial)[0].outcome
        other = told is Outcome.DIFFERENT or (told is Outcome.UNRESOLVED and _asserted(words.signature.raised))
        if other and _is_cause(experiments, trial):
            yield trial, words.signature


def _asserted(raised: Raised | None) -> bool:
    """Whether a check judged by an assertion of its own; any other exception may be a mistake of it."""
    if raised is None or raised.about not in (CHECK, OTHER_SHAPE):
        return False
    return bool(raised.where) and all(where.startswith("AssertionError") for where in raised.where)


def _is_cause(experiments: Experiments, trial: Trial) -> bool:
    if not experiments.without(trial).heals or experiments.exhausted:
        return False
    return experiments.as_bad(experiments.only(trial))
