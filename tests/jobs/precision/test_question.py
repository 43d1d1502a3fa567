"""The question of a precision search on checks that cannot be relied on."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from runner.checkers.interactive import Undo
from runner.engine.check_trials import CheckLimits
from runner.engine.repeated_checks import IndistinctError, Reliability
from runner.engine.session import Session
from runner.engine.session_question import SessionResult
from runner.jobs.precision.mixed_model import Loading, Loads, Margin, PrecisionAnswer, PrecisionQuestion
from runner.judgment import CannotJudge
from runner.schema.checker import Flaky
from runner.verdict import Phase, Raised, Signature, Verdict
from strategies.precision import precision
from strategies.search import Outcome, Prior, Trial
from tests.engine.test_session import FAIL, PASS, Hands, Rule, session

COUNT = 24
DIFFERENT = Verdict(Outcome.DIFFERENT, Signature("check", "exit 3"), seconds=1.0)


def mixing_of(
    folder: Path,
    rule: Rule,
    reliability: Reliability,
    margin: Margin | None = None,
    *,
    loading: Loading | None = None,
    steady: bool = False,
    **means: object,
) -> PrecisionAnswer:
    """A precision search over 24 elements of which ``rule`` says which raised ones pass."""
    question = PrecisionQuestion.of("float16", "float32", margin or Margin())
    searching = Session(
        session(folder, rule, count=COUNT).judge,
        lambda space: precision(space, Prior()),
        question=question,
        means=CheckLimits(**means),
        reliability=reliability,
        hand_over=Hands(folder),
        steady=steady,
    )
    return PrecisionAnswer(searching, question, loading)


def answered(mixing: PrecisionAnswer) -> SessionResult:
    """Answer as a job does that holds no samples out."""
    ending = mixing.session.preflight()
    while ending is None:
        done, trial = mixing.search()
        ending = mixing.hand_over(done, mixing.loadable(trial))
    return ending


def asked(folder: Path, rule: Rule, mode: Flaky = Flaky.auto, loading: Loading | None = None) -> SessionResult:
    """Answer for 24 elements of which ``rule`` says which raised ones pass."""
    return answered(mixing_of(folder, rule, Reliability(mode, 0.01), loading=loading))


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


@pytest.mark.variants
@pytest.mark.parametrize(("good", "bad"), [(0.8, 0.0), (1.0, 0.7), (0.9, 0.1)])
@pytest.mark.parametrize("mode", [Flaky.auto, Flaky.always])
def test_one_that_is_flaky_is_noticed_and_answered_rightly(
    tmp_path: Path, good: float, bad: float, mode: Flaky
) -> None:
    endings = [asked(tmp_path / str(seed), rule_of(good, bad, 4, 11, seed=seed), mode) for seed in range(3)]
    noticed = [one for one in endings if "the check is flaky: everything in float16 fails" in one.message]
    assert [(one.status, one.trial) for one in noticed] == [("found", Trial.of([4, 11]))] * len(noticed), endings
    assert len(noticed) >= (3 if mode is Flaky.always else 2)


def test_another_failure_is_no_pass(tmp_path: Path) -> None:
    def rule(candidate):
        return PASS if {4, 11} <= candidate.trial.elements else DIFFERENT if 4 in candidate.trial.elements else low(0)

    draw = random.Random(1)

    def low(_: int) -> Verdict:
        return FAIL if draw.random() < 0.8 else PASS

    ending = asked(tmp_path, rule, Flaky.always)
    assert (ending.status, ending.trial) == ("found", Trial.of([4, 11]))


def test_both_ends_alike(tmp_path: Path) -> None:
    with pytest.raises(
        IndistinctError, match="too much to tell a model that fails from one that does not: everything in float16 fails"
    ):
        asked(tmp_path, rule_of(0.5, 0.5, 4), Flaky.always)


@pytest.mark.parametrize("mode", [Flaky.auto, Flaky.never])
def test_a_model_in_low_precision_is_checked_as_it_is_handed_over(tmp_path: Path, mode: Flaky) -> None:
    """Candidates have no file here; what is handed over has one, and that one fails."""
    with pytest.raises(CannotJudge, match=r"too much to tell|but the final model does not"):
        asked(tmp_path, lambda candidate: FAIL if candidate.model else PASS, mode)
    assert not (tmp_path / "mixed").exists()


def test_who_takes_back_what_was_never_said_is_asked_again(tmp_path: Path) -> None:
    """Before the search, and after it, a person has nothing to undo."""
    undone: set[tuple[str, Trial]] = set()
    good = rule_of(1.0, 0.0, 4, 11)

    def rule(candidate):
        question = candidate.phase, candidate.trial
        if Phase.of(candidate.phase).counted and question not in undone:
            undone.add(question)
            raise Undo
        return good(candidate)

    ending = asked(tmp_path, rule, Flaky.never, loading=OneMore(7))
    assert (ending.status, ending.trial) == ("found", Trial.of([4, 7, 11]))
    assert {phase for phase, _ in undone} == {"pre-flight", "re-check"}
    assert not list((tmp_path / "checks").iterdir()), "a question that is put again leaves no folder behind"


def test_a_check_that_feeds_what_does_not_fit_says_nothing_about_precision(tmp_path: Path) -> None:
    raised = Raised(("InvalidArgument at check.py:6",), "feeds: the type of an input")
    misfit = Verdict(Outcome.FAIL, Signature("check", "exit 1", "", raised), "Unexpected input data type")
    mixing = mixing_of(tmp_path, lambda candidate: misfit, Reliability(Flaky.never, 0.05))
    with pytest.raises(CannotJudge, match=r"everything in float32: the check does not fit .* \(the type of an input\)"):
        answered(mixing)
