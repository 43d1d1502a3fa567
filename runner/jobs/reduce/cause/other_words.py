"""A smaller answer that only words speak against: another exit code, assertion or error of a runtime than the model's.

Whether that is the failure under study the experiments on the whole model tell (see `prove_cause`), which has to fail
there in its own words. Where they hold, the part's words are the failure's too, and the search goes on inside.
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
from runner.verdict import CHECK, Signature
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Done
from strategies.search_space import Closure
from strategies.trial import Trial

MOST = 6
"""Experiments on sets that only words speak against."""


def smaller_by_experiment(model: SessionModel, answer: Trial) -> tuple[Inquiry, Done] | None:
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
        asked = session.inquire(tuple(smaller), "cause", step=model.search)
        asked.note(smaller, Answer.YES)
        done = asked.settle()
        inside = done.trial is not None and (done.trial == smaller or _is_cause(experiments, done.trial))
        found = asked, done if inside else replace(done, trial=smaller, claim=Claim.UNPROVEN)
        answer = found[1].trial or smaller
    return found


def _held(model: SessionModel, made: Experiments, asked: Inquiry, answer: Trial) -> Iterator[tuple[Trial, Signature]]:
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
    return bool(words.raised.where) and all(where.startswith("AssertionError") for where in words.raised.where)


def _is_cause(made: Experiments, trial: Trial) -> bool:
    return made.without(trial).heals and not made.exhausted and made.as_bad(made.only(trial))
