"""The question of a precision search on checks that cannot be relied on, and how much of what is allowed it takes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runner.checkers.interactive import Undo
from runner.engine.check_trials import Budget, CheckLimits
from runner.engine.repeated_checks import IndistinctError, Reliability
from runner.engine.session import PROVEN_BY, Session
from runner.engine.session_question import NOTHING, SessionResult
from runner.exit_codes import CannotJudge
from runner.jobs.precision.mixed_model import Loading, Loads, Margin, PrecisionAnswer, PrecisionQuestion
from runner.judgment import MEASURE
from runner.schema.checker import Flaky
from runner.verdict import Phase, Raised, Signature, Verdict
from strategies.precision import precision
from strategies.search import Claim, Outcome, Prior, Trial
from tests.engine.test_session import FAIL, PASS, Hands, Rule, session
from tests.matrix import sample

COUNT = 24
DIFFERENT = Verdict(Outcome.DIFFERENT, Signature("check", "exit 3"), seconds=1.0)


@dataclass(frozen=True)
class Inquired:
    ending: SessionResult
    session: Session

    @property
    def phases(self) -> Counter[tuple[str, str]]:
        """How often what was checked: everything, nothing, another set; in which phase."""
        whole = self.session.judge.subject.space.whole
        ends = {NOTHING: "nothing", whole: "everything"}
        return Counter((ends.get(entry.trial, "a set"), entry.phase) for entry in self.session.judge.journal.entries())


def inquired(
    folder: Path,
    rule: Rule,
    mode: Flaky = Flaky.auto,
    margin: Margin | None = None,
    *,
    max_wrong: float = 0.01,
    loading: Loading | None = None,
    steady: bool = False,
    budget: Budget | None = None,
    heard: list[Verdict] | None = None,
) -> Inquired:
    """Answer as a job does that holds no samples out, for 24 elements of which ``rule`` says which raised ones pass."""
    searching = Session(
        session(folder, rule, count=COUNT).judge,
        lambda space: precision(space, Prior()),
        question=PrecisionQuestion.of("float16", "float32", margin or Margin()),
        means=CheckLimits(budget=budget) if budget else CheckLimits(),
        reliability=Reliability(mode, max_wrong),
        hand_over=Hands(folder),
        steady=steady,
    )
    if heard is not None:
        searching.judge.checker.settle = heard.append  # type: ignore[method-assign]
    mixing = PrecisionAnswer(searching, searching.question, loading)  # type: ignore[arg-type]
    ending = searching.preflight()
    while ending is None:
        done, trial = mixing.search()
        ending = mixing.hand_over(done, mixing.loadable(trial))
    return Inquired(ending, searching)


def asked(folder: Path, rule: Rule, mode: Flaky = Flaky.auto, loading: Loading | None = None) -> SessionResult:
    """Answer, where nothing but the ending matters."""
    return inquired(folder, rule, mode, loading=loading).ending


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


@pytest.mark.parametrize(
    ("needed", "fails", "status", "found"),
    [
        ((4, 11), None, "found", (4, 7, 11)),
        ((4, 11), (4, 7, 11), "found", (4, 11)),
        ((), None, "nothing_to_find", (7,)),
    ],
)
def test_what_is_raised_so_that_it_loads_is_checked(
    tmp_path: Path, needed: tuple[int, ...], fails: tuple[int, ...] | None, status: str, found: tuple[int, ...]
) -> None:
    good = rule_of(1.0, 0.0, *needed)

    def rule(candidate):
        return FAIL if fails and candidate.trial == Trial.of(fails) else good(candidate)

    ending = asked(tmp_path, rule, loading=OneMore(7))
    assert (ending.status, ending.trial) == (status, Trial.of(found))
    assert ("1 node raised so that ONNX Runtime loads the model" in ending.message) is (7 in found)


def test_a_check_that_can_be_relied_on(tmp_path: Path) -> None:
    heard: list[Verdict] = []
    ending = inquired(tmp_path, rule_of(1.0, 0.0, 4, 11), heard=heard).ending
    assert [one.outcome for one in heard] == [Outcome.PASS, Outcome.FAIL]  # both ends: a tolerance is between them
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
    with pytest.raises(CannotJudge, match=r"everything in float32: the check does not fit .* \(the type of an input\)"):
        asked(tmp_path, lambda candidate: misfit, Flaky.never)


def measuring(share: Callable[[int], float], limit: float = 1.0) -> Rule:
    """Passes up to ``limit``; a verdict says how much of what is allowed was used up with so many raised."""

    def rule(candidate) -> Verdict:
        used = share(len(candidate.trial))
        found = Outcome.PASS if used <= limit else Outcome.FAIL
        signature = None if found is Outcome.PASS else Signature("compare", "mismatch")
        return Verdict(found, signature, metrics={MEASURE: used}, seconds=0.01)

    return rule


def steps(candidate_sizes: dict[int, float]) -> Callable[[int], float]:
    """The share of the largest size that is not larger than what is raised."""
    return lambda size: candidate_sizes[max(one for one in candidate_sizes if one <= size)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Flaky.always, Flaky.auto])
@pytest.mark.parametrize(
    ("good", "bad", "seed"), sample([(0.7, 0.3, 2), (0.7, 0.3, 7), (0.65, 0.3, 15), (0.65, 0.3, 18)], 4)
)
def test_a_flaky_check_ends_with_an_answer_or_says_why_not(
    tmp_path: Path, good: float, bad: float, seed: int, mode: Flaky
) -> None:
    """A stricter test may take an answer back that the search had been told."""
    try:
        found = inquired(tmp_path, rule_of(good, bad, 4, 11, seed=seed), mode, max_wrong=1e-6)
    except (IndistinctError, CannotJudge):
        return
    assert found.ending.status in ("found", "could_not_judge")
    if found.ending.status == "found":
        assert found.ending.trial and {4, 11} <= found.ending.trial.elements


FEW, PART = {0: 3.0, 2: 0.8, 5: 0.3}, Margin(0.5, measured=True)


@pytest.mark.parametrize(
    ("shares", "margin", "size", "aim", "said"),
    [
        (FEW, PART, 5, 0.5, ""),
        (FEW, Margin(1.0, measured=True), 2, 1.0, ""),
        # a number that a check of somebody's own calls so is no share of a tolerance
        (FEW, Margin(0.5), 2, 0.5, ""),
        # nothing raised suffices where it passes, and a margin that it misses is said
        ({0: 0.49}, PART, 0, 0.5, "no node has to be in float32; the model is "),
        (
            {0: 0.51, 3: 0.5},
            PART,
            0,
            0.5,
            "is 0.51 of the tolerance, and strategy.margin asks for 0.5: a small",
        ),
        # where it cannot be reached, half of what is left is aimed at; of a whole tolerance nothing is left
        (
            {0: 2.0, 3: 0.9, 6: 0.84, 20: 0.7},
            PART,
            6,
            0.85,
            "all float32: 0.7 of the tolerance. So the search allows 0.85 instead of 0.5",
        ),
        ({0: 2.0, 3: 1.0}, PART, 3, 1.0, "all float32: 1 of the tolerance"),
    ],
)
def test_what_passes_with_too_little_margin_is_no_answer(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    shares: dict[int, float],
    margin: Margin,
    size: int,
    aim: float,
    said: str,
) -> None:
    margin = replace(margin)  # it is changed
    ending = inquired(tmp_path, measuring(steps(shares)), margin=margin).ending
    assert (ending.status, len(ending.trial or ())) == ("found" if size else "nothing_to_find", size)
    assert said in ending.message + caplog.text and margin.aim == pytest.approx(aim)
    assert ("margin" in ending.message) is ("margin" in said)


def test_a_share_of_elements_that_differ_is_no_error() -> None:
    margin = Margin(measured=True)
    failed = Verdict(Outcome.FAIL, metrics={MEASURE: 0.2, "exact": True})
    assert margin.share(failed) is None
    assert margin.share(Verdict(Outcome.PASS, metrics={MEASURE: 0.2, "exact": True})) == 0.2
    assert margin.share(Verdict(Outcome.PASS, metrics={MEASURE: "many"})) is None
    assert margin.kept(Verdict(Outcome.PASS))


def test_a_steady_check_is_asked_twice_on_either_end_and_once_of_the_answer(tmp_path: Path) -> None:
    rule = measuring(lambda size: 0.2 if size >= 9 else 5.0 - size / 10)
    found = inquired(tmp_path / "steady", rule, Flaky.auto, Margin(measured=True), steady=True)
    assert found.ending.status == "found"
    assert found.session.reliability.mode is Flaky.never
    for end in ("everything", "nothing"):
        assert found.phases[end, "pre-flight"] + found.phases[end, "doubt"] == PROVEN_BY
    assert found.phases["a set", "re-check"] == 1
    assert not found.phases["a set", "doubt"]
    doubted = inquired(tmp_path / "doubted", rule, Flaky.auto, Margin(measured=True))
    assert doubted.ending.trial == found.ending.trial
    assert doubted.phases["a set", "re-check"] + doubted.phases["a set", "doubt"] > PROVEN_BY
    assert doubted.phases["a set", "doubt"] > 0


@pytest.mark.parametrize("end", ["nothing", "everything"])
def test_two_checks_that_measure_different_numbers_are_not_steady(tmp_path: Path, end: str) -> None:
    """Though they say the same: what differs in its digits may differ in what it says."""
    size, count = {"nothing": 0, "everything": COUNT}[end], Counter[int]()
    plain = measuring(lambda size: 0.2 if size >= 9 else 5.0)

    def rule(candidate) -> Verdict:
        told = plain(candidate)
        count[len(candidate.trial)] += 1
        drift = count[size] * 1e-6 if len(candidate.trial) == size else 0.0
        return Verdict(told.outcome, told.signature, metrics={MEASURE: told.metrics[MEASURE] + drift}, seconds=0.01)

    found = inquired(tmp_path, rule, Flaky.auto, Margin(measured=True), steady=True)
    assert found.ending.status == "found"
    assert found.session.reliability.mode is Flaky.auto
    assert found.phases["a set", "re-check"] > 1


def test_an_end_without_any_error_is_asked_once(tmp_path: Path) -> None:
    """It gives what the reference computed: that were two runs."""
    rule = measuring(lambda size: 0.0 if size == COUNT else 0.2 if size >= 9 else 5.0)
    found = inquired(tmp_path, rule, Flaky.auto, Margin(measured=True), steady=True)
    assert found.ending.status == "found" and found.session.reliability.mode is Flaky.never
    assert (found.phases["everything", "pre-flight"], found.phases["everything", "doubt"]) == (1, 0)
    assert (found.phases["nothing", "pre-flight"], found.phases["nothing", "doubt"]) == (1, 1)


def test_an_answer_that_measures_another_number_as_it_is_handed_over_is_repeated(tmp_path: Path) -> None:
    plain = measuring(lambda size: 0.2 if size >= 9 else 5.0)

    def rule(candidate) -> Verdict:
        told, drift = plain(candidate), 1e-6 if candidate.phase == "re-check" else 0.0
        return Verdict(told.outcome, told.signature, metrics={MEASURE: told.metrics[MEASURE] + drift}, seconds=0.01)

    found = inquired(tmp_path, rule, Flaky.auto, Margin(measured=True), steady=True)
    assert found.ending.status == "found" and found.session.reliability.mode is Flaky.auto
    assert found.phases["a set", "re-check"] > 1 and found.phases["a set", "doubt"]


@pytest.mark.parametrize("size", [0, COUNT])
def test_a_check_that_is_thought_steady_and_says_something_else_is_measured(tmp_path: Path, size: int) -> None:
    draws, seen = rule_of(0.9, 0.1, 4, 11, seed=3), Counter[int]()

    def rule(candidate) -> Verdict:
        seen[len(candidate.trial)] += 1
        if len(candidate.trial) != size or seen[size] > PROVEN_BY:
            return draws(candidate)
        return (FAIL, PASS)[(seen[size] == PROVEN_BY) is (size == 0)]

    found = inquired(tmp_path, rule, Flaky.auto, steady=True)
    assert found.session.reliability.rates is not None
    assert (found.ending.status, found.ending.trial) == ("found", Trial.of([4, 11]))


@pytest.mark.parametrize("mode", [Flaky.never, Flaky.always])
def test_who_says_how_a_check_is_needs_no_proof(tmp_path: Path, mode: Flaky) -> None:
    found = inquired(tmp_path, rule_of(1.0, 0.0, 4, 11), mode, steady=True)
    assert (found.ending.status, found.ending.trial) == ("found", Trial.of([4, 11]))
    ends = found.phases["everything", "pre-flight"] + found.phases["everything", "doubt"]
    assert ends == 1 if mode is Flaky.never else ends > PROVEN_BY


def test_an_answer_that_fails_as_it_is_handed_over_shows_that_the_check_is_flaky(tmp_path: Path) -> None:
    """Until then it has said the same each time; from then on it is measured, and the answer found anew."""
    turned: list[int] = []
    draws = rule_of(0.75, 0.0, 4, 11, seed=1)

    def rule(candidate) -> Verdict:
        if candidate.phase == "re-check":
            turned.append(1)
        if not turned:
            return rule_of(1.0, 0.0, 4, 11)(candidate)
        return FAIL if len(turned) == 1 and candidate.phase == "re-check" else draws(candidate)

    found = inquired(tmp_path, rule, Flaky.auto)
    assert found.session.reliability.rates is not None
    assert (found.ending.status, found.ending.trial) == ("found", Trial.of([4, 11]))
    assert "the check is flaky" in found.ending.message


def test_nothing_raised_that_fails_as_it_is_handed_over_is_searched_after_all(tmp_path: Path) -> None:
    draws = rule_of(1.0, 0.5, 4, 11, seed=4)
    seen: list[int] = []

    def rule(candidate) -> Verdict:
        if candidate.phase == "re-check":
            seen.append(1)
        if len(seen) == 1 and candidate.phase == "re-check":
            return FAIL
        return draws(candidate) if seen else PASS

    found = inquired(tmp_path, rule, Flaky.auto)
    assert (found.ending.status, found.ending.trial) == ("found", Trial.of([4, 11]))
    assert "the check is flaky" in found.ending.message


def test_a_budget_hands_over_the_smallest_that_passed(tmp_path: Path) -> None:
    """Error adds up: most of it is gone with many raised, and the budget ends the search on its way."""
    rule = measuring(lambda size: 3.0 - size * 0.15)
    passed = 18  # with these it takes 0.3 of the tolerance
    plainly = inquired(tmp_path / "all", rule, Flaky.never, Margin(0.31, measured=True))
    assert len(plainly.ending.trial or ()) == passed
    with pytest.raises(CannotJudge, match="before a smaller set than the whole was shown to pass"):
        inquired(tmp_path / "one", rule, Flaky.never, Margin(0.31, measured=True), budget=Budget(checks=1))
    for checks in (4, 5):
        budget = Budget(checks=checks)
        found = inquired(tmp_path / str(checks), rule, Flaky.never, Margin(0.31, measured=True), budget=budget)
        sizes = [len(one.trial) for one in found.session.judge.journal.entries() if one.verdict.metrics[MEASURE] < 0.31]
        assert found.ending.status == "found"
        assert len(found.ending.trial or ()) <= min(sizes)
        assert found.ending.done and found.ending.done.claim is Claim.BUDGET
        assert "the budget was reached: fewer may be enough" in found.ending.message


def test_where_a_budget_leaves_the_margin_out_of_reach_the_nearest_set_is_handed_over(tmp_path: Path) -> None:
    """With one of the first sixteen it passes by a hair; only nearly all keep the margin."""
    rule = measuring(steps({0: 3.0, 16: 0.9, 23: 0.1}))
    margin = Margin(0.5, measured=True)
    found = inquired(tmp_path, rule, Flaky.never, margin, budget=Budget(checks=3))
    assert len(found.ending.trial or ()) == 16
    assert "it takes 0.9 of the tolerance, where 0.5 was aimed at" in found.ending.message
    assert found.ending.done and found.ending.done.claim is Claim.BUDGET
