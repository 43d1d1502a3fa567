"""One question, two ends: what verdicts mean where a failure is wanted, and where a pass is."""

from __future__ import annotations

import pytest

from runner.engine.repeated_checks import Reliability
from runner.engine.sequential_testing import Count
from runner.engine.session_question import NOTHING, AnswerExperiments, Question
from runner.jobs.precision.mixed_model import Margin, PrecisionQuestion
from runner.jobs.tactics.run import question_about
from runner.judgment import Experiment
from runner.schema.checker import Flaky
from runner.verdict import Verdict
from strategies.search import Answer, Outcome, Trial

WHOLE = Trial.of(range(3))
REDUCING, RAISING = Question(), PrecisionQuestion.of("float16", "float32", Margin())
YES, NO, UNKNOWN = Answer.YES, Answer.NO, Answer.UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "reducing", "raising"),
    [
        (Outcome.FAIL, (YES, True), (NO, True)),
        (Outcome.PASS, (NO, False), (YES, False)),
        (Outcome.DIFFERENT, (NO, False), (NO, True)),
        (Outcome.UNRESOLVED, (UNKNOWN, False), (UNKNOWN, True)),
    ],
)
def test_what_is_wanted_has_to_be_shown(
    outcome: Outcome, reducing: tuple[Answer, bool], raising: tuple[Answer, bool]
) -> None:
    verdict = Verdict(outcome)
    for question, (answer, fails) in ((REDUCING, reducing), (RAISING, raising)):
        assert (question.answer(verdict), question.fails(verdict)) == (answer, fails)


def test_failing_means_the_opposite_where_a_pass_is_wanted() -> None:
    assert [REDUCING.of_failing(answer) for answer in (YES, NO, UNKNOWN)] == [YES, NO, UNKNOWN]
    assert [RAISING.of_failing(answer) for answer in (YES, NO, UNKNOWN)] == [NO, YES, UNKNOWN]


@pytest.mark.parametrize(
    ("question", "failing", "sound"),
    [
        (REDUCING, "the whole model", "a lone Identity"),
        (RAISING, "everything in float16", "everything in float32"),
        (question_about(3), "the build with all bad tactics pinned", "the build with all good tactics pinned"),
    ],
)
def test_each_end_is_called_what_it_is(question: Question, failing: str, sound: str) -> None:
    assert {label for _, label in question.ends(WHOLE)} == {failing, sound}
    assert question.ends(WHOLE)[0] == (WHOLE if question.wants_failure else NOTHING, failing)
    known = Reliability(Flaky.auto, 0.01)
    known.question, known.whole, known.control = question, Count(18, 2), Count(1, 19)
    assert str(known) == f"{failing} fails 90% of the time (18 of 20), {sound} 5% (1 of 20)"


def test_an_experiment_without_an_answer_says_so_whatever_its_reason() -> None:
    """A checker of the user's own may give none."""
    whole = Experiment(Outcome.FAIL)
    for reason, said in (("", "no answer"), ("no number", "no number")):
        unknown = Experiment(Outcome.UNRESOLVED, reason=reason)
        assert AnswerExperiments(WHOLE, good_outputs=whole, good_inputs=unknown).unanswered == said
    assert AnswerExperiments(WHOLE, good_outputs=whole).unanswered == ""
