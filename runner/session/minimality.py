"""Whether the answer of a search, and what proves it minimal, holds when it is tested harder."""

from __future__ import annotations

from dataclasses import replace

from runner.session.inquiry import Inquiry
from runner.session.reliability import REMOVAL, Doubt
from runner.text import counted
from strategies.outcome import Answer
from strategies.search import Claim, Done
from strategies.trial import Trial

MOST_ROUNDS = 10
"""How often the search of a flaky check starts again from what is known by then."""
MOST_REFUSALS, MOST_SURPRISES = 12, 3
"""How many refused removals, and passing sets around the answer, are checked again."""


def settled(inquiry: Inquiry, doubt: Doubt) -> Done:
    """Run a search until its answer, and what proves it, stands the tests.

    Raises ContradictionError where a check that was taken to be reliable contradicts itself.
    """
    for _ in range(MOST_ROUNDS):
        done = inquiry.run()
        if inquiry.stopped or done.trial is None or _stands(inquiry, doubt, done.trial):
            return done
        inquiry.begin_again()
    return replace(done, claim=Claim.UNPROVEN)


def _stands(inquiry: Inquiry, doubt: Doubt, answer: Trial) -> bool:
    """Whether an answer and the refusals that prove it hold when they are tested harder."""
    refusals = list(inquiry.refusals(answer))
    if doubt.rates is None:
        allowance = doubt.allowance(inquiry.judge)
        for trial in [*inquiry.surprises(answer)][:MOST_SURPRISES] + refusals[:MOST_REFUSALS]:
            label = f"{counted(len(trial), 'node')} that passed"
            doubt.repeat(inquiry.judge, trial, label, REMOVAL, allowance, failing=False)
        return True
    error = doubt.max_wrong / (len(refusals) + 1)
    for trial, wanted in [(answer, Answer.YES), *((trial, Answer.NO) for trial in refusals)]:
        label = f"{counted(len(trial), 'node')} again"
        ruling = doubt.rule(inquiry.judge, trial, "doubt", label, "trust", error=error)
        if ruling is None or ruling.answer is not wanted:
            return False
    return True
