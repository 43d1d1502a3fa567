"""What a run does besides its search, as far as its settings say: by this its checks are predicted."""

from __future__ import annotations

from dataclasses import replace

from runner.report.live.course import Course
from runner.schema.checker import Flaky
from runner.schema.diagnosis import WorkaroundSettings
from runner.schema.root import Settings
from runner.schema.strategy import Find, PrecisionSettings, ReduceSettings, RepeatSettings, TacticRepeatSettings
from strategies.outcome import Outcome

OWN_SIMPLER, OTHER_SIMPLER = 1, 2
"""Checks that make an answer simpler: of a check of the user's own, which may know what it is given, and of others."""
EXPERIMENTS, ALONE, HELD_OUT, SEVERAL = 2, 32, 2, 8
"""Checks that show an answer to be the cause; of what a precision search has left out, at most, and on other samples;
by which a search tries to remove several elements at once."""


def course(settings: Settings, elements: int, workers: int, *, step: bool) -> Course:
    """Return the course of a run that searches so many elements, so many checks at once; ``step``: see `Course`."""
    strategy, checker = settings.strategy, settings.checker
    second = checker.flaky is not Flaky.never and not checker.asks_a_person
    every = Course(elements, workers, second=second, good=settings.result.find_min_good, step=step)
    if isinstance(strategy, ReduceSettings):
        return replace(
            every,
            first=elements if strategy.search == "linear" else elements.bit_length(),
            proves=strategy.search != "bisect",
            several=SEVERAL if strategy.search != "bisect" else 0,
            simpler=(OWN_SIMPLER if checker.runs_own_code else OTHER_SIMPLER) if strategy.shrink else 0,
            cause=EXPERIMENTS if strategy.find is Find.cause else 0,
        )
    if isinstance(strategy, PrecisionSettings):
        # a check of ours is steady, and is not doubted
        second = second and checker.runs_own_code
        return replace(
            every, wanted=Outcome.PASS.value, proves=True, good=0, alone=ALONE, held_out=HELD_OUT, second=second
        )
    if isinstance(strategy, WorkaroundSettings):
        # what is not needed any more is left out, and what passes is checked again
        return replace(every, first=elements, second=False, good=0, handed=0)
    if isinstance(strategy, RepeatSettings | TacticRepeatSettings):
        repeats = int(strategy.until) if strategy.until.isdigit() else 0
        return replace(every, second=False, good=0, handed=0, repeats=repeats)
    return replace(every, second=False, good=0)
