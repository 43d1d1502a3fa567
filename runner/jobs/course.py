"""What a run does besides its search, as far as its settings say: by this its checks are predicted."""

from __future__ import annotations

from dataclasses import replace

from runner.report.live.course import Course
from runner.schema.checker import Flaky
from runner.schema.diagnosis import WorkaroundSettings
from runner.schema.root import Settings
from runner.schema.strategy import Find, PrecisionSettings, ReduceSettings, RepeatSettings, TacticRepeatSettings
from strategies.outcome import Outcome

OWN_SIMPLER, OTHER_SIMPLER = 2, 1
"""Checks that make an answer simpler, all at once. A check of the user's own is first asked what it knows of values."""
EXPERIMENTS, ALONE, HELD_OUT, SEVERAL, DOUBTS = 2, 32, 2, 8, 2
"""Checks that show an answer to be the cause; of what a precision search has left out, at most, and on other samples;
by which a search tries to remove several elements at once; of a whole before anything is tried on it."""

WRITING, WRITING_STEP, WRITING_MIXED = 0.7, 0.3, 1.8
"""Seconds at the end of a run, of a step of one, and of one that compares mixed models once more."""


def course(settings: Settings, elements: int, workers: int, *, step: bool) -> Course:
    """Return the course of a run that searches so many elements, so many checks at once; ``step``: see `Course`."""
    strategy, checker = settings.strategy, settings.checker
    second = checker.flaky is not Flaky.never and not checker.asks_a_person
    writing = WRITING_STEP if step else WRITING
    every = Course(elements, workers, second=second, good=settings.result.find_min_good, step=step, writing=writing)
    if isinstance(strategy, ReduceSettings):
        return replace(
            every,
            first=elements if strategy.search == "linear" else elements.bit_length() + 1,
            proves=strategy.search != "bisect",
            several=SEVERAL if strategy.search != "bisect" else 0,
            simpler=(OWN_SIMPLER if checker.runs_own_code else OTHER_SIMPLER) if strategy.shrink else 0,
            cause=EXPERIMENTS if strategy.find is Find.cause else 0,
        )
    if isinstance(strategy, PrecisionSettings):
        # a check of ours is steady, and is not doubted
        second = second and checker.runs_own_code
        held_out = HELD_OUT if checker.runs_samples and strategy.held_out != 0 else 0
        wanted, writing = Outcome.PASS.value, WRITING_MIXED
        every = replace(every, wanted=wanted, proves=True, good=0, second=second, writing=writing)
        return replace(every, alone=ALONE, held_out=held_out)
    if isinstance(strategy, WorkaroundSettings):
        # what is not needed any more is left out, and what passes is checked again
        return replace(every, doubts=DOUBTS, first=elements, second=False, good=0, handed=0)
    if isinstance(strategy, RepeatSettings | TacticRepeatSettings):
        repeats = int(strategy.until) if strategy.until.isdigit() else 0
        return replace(every, second=False, good=0, handed=0, repeats=repeats)
    return replace(every, second=False, good=0)
