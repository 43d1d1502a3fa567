"""The question of a precision search on checks that cannot be relied on."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from runner.errors import CannotJudge
from runner.jobs.precision.ort_load import Loads
from runner.jobs.precision.ort_loadable import Loading
from runner.jobs.precision.question import Question, Words
from runner.jobs.precision.trust import LOWEST, Trust
from runner.schema.checker import Flaky
from runner.session.inquiry import Inquiry, Means
from runner.session.reliability import IndistinctError
from runner.session.result import Ending
from runner.verdict import Signature, Verdict
from strategies.outcome import Outcome
from strategies.precision import Prior, precision
from strategies.search import Search
from strategies.trial import Trial
from tests.session.test_session import FAIL, PASS, Hands, Rule, session

DIFFERENT = Verdict(Outcome.DIFFERENT, Signature("check", "exit 3"), seconds=1.0)


def asked(folder: Path, rule: Rule, mode: Flaky = Flaky.auto, loading: Loading | None = None) -> Ending:
    """Answer for 24 elements of which ``rule`` says which raised ones pass."""
    judge = session(folder, rule, count=24).judge
    doubt = Trust(mode, 0.01)
    space = judge.subject.space
    inquiry = Inquiry(judge, doubt, lambda told: Search(space, precision(space, Prior()), told), Means())
    question = Question(judge, inquiry, Hands(folder), doubt, Words("float16", "float32"), loading=loading)
    ending = question.preflight()
    if ending is None and question.lowest_suffices:
        ending = question.hand_over_lowest(question.loadable(LOWEST))
    while ending is None:
        done, trial = question.search()
        ending = question.hand_over(done, question.loadable(trial))
    return ending


def rule_of(good: float, bad: float, *needed: int, seed: int = 0, failure: Verdict = FAIL) -> Rule:
    """Passes at the rate ``good`` where all that is needed is raised, at the rate ``bad`` elsewhere."""
    draw, lock = random.Random(seed), threading.Lock()

    def rule(candidate):
        with lock:
            drawn = draw.random()
        return PASS if drawn < (good if candidate.trial.elements.issuperset(needed) else bad) else failure

    return rule


class OneMore(Loading):
    """Has it that models load only with one more raised."""

    def __init__(self, more: int) -> None:
        self._more = more

    def wider(self, trial: Trial) -> tuple[Trial, Loads]:
        wider = trial.elements | {self._more}
        return Trial(wider), Loads(wider, {"basic": ""}, (self._more,))

    def asked(self, trial: Trial) -> Loads:
        return Loads(trial.elements, {"basic": "refused"})


def test_what_is_raised_so_that_it_loads_is_checked(tmp_path: Path) -> None:
    ending = asked(tmp_path, rule_of(1.0, 0.0, 4, 11), loading=OneMore(7))
    assert (ending.status, ending.trial) == ("found", Trial.of([4, 7, 11]))
    assert "1 node raised so that ONNX Runtime loads the model" in ending.message


def test_what_the_check_does_not_bear_is_not_raised(tmp_path: Path) -> None:
    needed, good = {4, 11}, rule_of(1.0, 0.0, 4, 11)

    def rule(candidate):
        return FAIL if candidate.trial.elements == needed | {7} else good(candidate)

    ending = asked(tmp_path, rule, loading=OneMore(7))
    assert (ending.status, ending.trial) == ("found", Trial.of(needed))
    assert "loads" not in ending.message


def test_nothing_is_raised_but_what_it_takes_to_load(tmp_path: Path) -> None:
    ending = asked(tmp_path, rule_of(1.0, 0.0), loading=OneMore(7))
    assert (ending.status, ending.trial) == ("nothing_to_find", Trial.of([7]))


def test_a_check_that_can_be_relied_on(tmp_path: Path) -> None:
    ending = asked(tmp_path, rule_of(1.0, 0.0, 4, 11))
    assert (ending.status, ending.trial) == ("found", Trial.of([4, 11]))
    assert "flaky" not in ending.message


@pytest.mark.parametrize(("good", "bad"), [(0.8, 0.0), (1.0, 0.7), (0.9, 0.1)])
@pytest.mark.parametrize("mode", [Flaky.auto, Flaky.always])
@pytest.mark.parametrize("seed", range(3))
def test_one_that_is_flaky_is_noticed_and_answered_rightly(
    tmp_path: Path, good: float, bad: float, mode: Flaky, seed: int
) -> None:
    ending = asked(tmp_path, rule_of(good, bad, 4, 11, seed=seed), mode)
    assert (ending.status, ending.trial) == ("found", Trial.of([4, 11])), ending
    assert "the check is flaky: in low precision it fails" in ending.message


def test_another_failure_is_no_pass(tmp_path: Path) -> None:
    def rule(candidate):
        return PASS if {4, 11} <= candidate.trial.elements else DIFFERENT if 4 in candidate.trial.elements else low(0)

    draw = random.Random(1)

    def low(_: int) -> Verdict:
        return FAIL if draw.random() < 0.8 else PASS

    ending = asked(tmp_path, rule, Flaky.always)
    assert (ending.status, ending.trial) == ("found", Trial.of([4, 11]))


def test_both_ends_alike(tmp_path: Path) -> None:
    with pytest.raises(IndistinctError, match="high precision cannot be told from low"):
        asked(tmp_path, rule_of(0.5, 0.5, 4), Flaky.always)


@pytest.mark.parametrize("mode", [Flaky.auto, Flaky.never])
def test_a_model_in_low_precision_is_checked_as_it_is_handed_over(tmp_path: Path, mode: Flaky) -> None:
    """Candidates have no file here; what is handed over has one, and that one fails."""
    with pytest.raises(CannotJudge, match=r"cannot be told from low|did not when checked as handed over"):
        asked(tmp_path, lambda candidate: FAIL if candidate.model else PASS, mode)
    assert not (tmp_path / "mixed").exists()
