"""One question, two ends: what verdicts mean where a failure is wanted, and where a pass is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.engine.session_question import AnswerExperiments, InWiderType, Question, shown
from runner.engine.tally import Unknown, change_for, kept_for_the_check
from runner.jobs.precision.mixed_model import Margin, PrecisionQuestion
from runner.judgment import Experiment
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


def test_what_is_said_of_experiments() -> None:
    fails, passes = Experiment(Outcome.FAIL), Experiment(Outcome.PASS)
    other = Experiment(Outcome.DIFFERENT, reason="another failure, exit 3", gone=False)
    for known, said in (
        ({"good_outputs": other}, "in another way: exit 3"),
        ({"good_outputs": fails, "good_around": fails}, "later nodes do much of the harm by themselves"),
        (
            {"good_outputs": passes, "good_inputs": passes},
            "the model passes, or nearly so, if only the inputs of a, b, c are corrected: other nodes matter",
        ),
        ({"good_outputs": fails}, "right outputs of a, b, c the model still fails"),
        (
            {"good_outputs": passes, "good_inputs": Experiment(Outcome.FAIL, 1.61), "good_around": passes},
            "with right inputs it fails: it measures 1.61 with right inputs, too near for a proof",
        ),
    ):
        assert AnswerExperiments(WHOLE, **known).doubt("abcd").endswith(said)
    assert AnswerExperiments(WHOLE, good_outputs=passes, good_inputs=passes).ruled_out
    assert not AnswerExperiments(WHOLE, good_outputs=passes).ruled_out
    wider = InWiderType("t", "float16", "float32", 70000.0, 65504.0, 0, 12)
    assert wider.said == (
        "its partial sums overflow: the exact result is 70,000 at most, float16 ends at 65,504"
    )  # fmt: skip
    assert replace(wider, beyond=1, elements=1).said == "1 of 1 element exceeds 65,504; the largest is 70,000"
    assert replace(wider, beyond=2, largest=-70000.0).said == (
        "2 of 12 elements exceed ±65,504; the largest is -70,000"
    )
    assert replace(wider, beyond=2000, largest=7e10).said.startswith("2,000 of 12 elements exceed 65,504; the largest")
    assert [shown(one) for one in (1000, 999.5, 1e9, 12345.6)] == ["1,000", "999.5", "1e+09", "12,346"]


def test_what_is_not_known_is_counted_by_its_reason() -> None:
    found = Unknown()
    for reason, searching in (("node 3 is not finite", True), ("node 7 is not finite", True), ("skipped", False)):
        found.add(Verdict(Outcome.UNRESOLVED, reason=reason), searching=searching)
    found.add(Verdict(Outcome.FAIL), searching=True)
    assert (found.searched, found.unknown) == (3, 2)
    assert found.reasons == {"node 3 is not finite": 2, "skipped": 1}
    assert found.advice("").startswith("2 of 3 checks of the search gave no answer, most often: node 3 is not finite. ")
    assert found.advice(change_for("is not finite")).endswith("most often for that reason")
    once = Unknown()
    once.add(Verdict(Outcome.UNRESOLVED, reason="skipped"), searching=True)
    assert once.advice("").startswith("1 of 1 checks of the search gave no answer, one of them: skipped. ")
    for _ in range(20):
        found.add(Verdict(Outcome.PASS), searching=True)
    assert not found.advice("") and not Unknown().advice("")
    assert kept_for_the_check(("skipped", "other"), 5) == (
        "2 of the 5 nodes are in the answer only because the check gave no answer without them: skipped. "
        "the check itself said so: see its output in checks/"
    )
    assert change_for("who knows") == 'all reasons: "What is not known" in REPORT.md'
