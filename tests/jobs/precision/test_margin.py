"""The question of a precision search: how much of what is allowed an answer takes, and how often a check is doubted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.engine.check_trials import Budget
from runner.engine.repeated_checks import IndistinctError, Reliability
from runner.engine.session import PROVEN_BY, Session
from runner.engine.session_question import NOTHING, SessionResult
from runner.jobs.precision.mixed_model import Margin
from runner.judgment import MEASURE, CannotJudge
from runner.schema.checker import Flaky
from runner.verdict import Signature, Verdict
from strategies.search import Claim, Outcome, Trial
from tests.engine.test_session import FAIL, PASS, Rule
from tests.jobs.precision.test_question import COUNT, answered, mixing_of, rule_of
from tests.matrix import sample


@dataclass(frozen=True)
class Asked:
    ending: SessionResult
    session: Session

    @property
    def phases(self) -> Counter[tuple[str, str]]:
        """How often what was checked: everything, nothing, another set; in which phase."""
        whole = self.session.judge.subject.space.whole
        ends = {NOTHING: "nothing", whole: "everything"}
        return Counter((ends.get(entry.trial, "a set"), entry.phase) for entry in self.session.judge.journal.entries())


def asked(
    folder: Path, rule: Rule, mode: Flaky = Flaky.auto, margin: Margin | None = None, max_wrong: float = 0.01, **more
) -> Asked:
    """Answer as a job does, for elements of which ``rule`` says which raised ones pass."""
    mixing = mixing_of(folder, rule, Reliability(mode, max_wrong), margin, **more)
    return Asked(answered(mixing), mixing.session)


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
        found = asked(tmp_path, rule_of(good, bad, 4, 11, seed=seed), mode, max_wrong=1e-6)
    except (IndistinctError, CannotJudge):
        return
    assert found.ending.status in ("found", "could_not_judge")
    if found.ending.status == "found":
        assert found.ending.trial and {4, 11} <= found.ending.trial.elements


def test_what_passes_with_too_little_margin_is_no_answer(tmp_path: Path) -> None:
    rule = measuring(steps({0: 3.0, 2: 0.8, 5: 0.3}))
    found = asked(tmp_path / "kept", rule, Flaky.auto, Margin(0.5, measured=True))
    assert (found.ending.status, len(found.ending.trial or ())) == ("found", 5)
    found = asked(tmp_path / "all", rule, Flaky.auto, Margin(1.0, measured=True))
    assert (found.ending.status, len(found.ending.trial or ())) == ("found", 2)
    # a number that a check of somebody's own calls so is no share of a tolerance
    found = asked(tmp_path / "own", rule, Flaky.auto, Margin(0.5))
    assert (found.ending.status, len(found.ending.trial or ())) == ("found", 2)


def test_nothing_raised_suffices_where_it_passes_and_a_margin_that_it_misses_is_said(tmp_path: Path) -> None:
    margin = Margin(0.5, measured=True)
    found = asked(tmp_path / "all", measuring(steps({0: 0.49})), Flaky.auto, margin)
    assert found.ending.status == "nothing_to_find" and "margin" not in found.ending.message
    margin = Margin(0.5, measured=True)
    found = asked(tmp_path / "few", measuring(steps({0: 0.51, 3: 0.5})), Flaky.auto, margin)
    assert (found.ending.status, len(found.ending.trial or ())) == ("nothing_to_find", 0)
    assert (
        "everything passes in float16: no node has to be in float32; it takes 0.51 of the tol" in found.ending.message
    )
    assert "more than strategy.margin=0.5 of it (a smaller tolerance finds the nodes" in found.ending.message


def test_where_the_margin_cannot_be_reached_half_of_what_is_left_is_aimed_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    margin = Margin(0.5, measured=True)
    found = asked(tmp_path, measuring(steps({0: 2.0, 3: 0.9, 6: 0.84, 20: 0.7})), Flaky.auto, margin)
    assert margin.aim == pytest.approx((0.7 + 1) / 2)
    assert (found.ending.status, len(found.ending.trial or ())) == ("found", 6)
    assert "everything in float32 already takes 0.7 of the tolerance, so the answer may take 0.85 of it" in caplog.text


def test_a_whole_tolerance_that_everything_raised_takes_is_still_aimed_at(tmp_path: Path) -> None:
    margin = Margin(0.5, measured=True)
    found = asked(tmp_path, measuring(steps({0: 2.0, 3: 1.0})), Flaky.auto, margin)
    assert margin.aim == 1.0
    assert (found.ending.status, len(found.ending.trial or ())) == ("found", 3)


def test_a_share_of_elements_that_differ_is_no_error() -> None:
    margin = Margin(measured=True)
    failed = Verdict(Outcome.FAIL, metrics={MEASURE: 0.2, "exact": True})
    assert margin.share(failed) is None
    assert margin.share(Verdict(Outcome.PASS, metrics={MEASURE: 0.2, "exact": True})) == 0.2
    assert margin.share(Verdict(Outcome.PASS, metrics={MEASURE: "many"})) is None
    assert margin.kept(Verdict(Outcome.PASS))


def test_a_steady_check_is_asked_twice_on_either_end_and_once_of_the_answer(tmp_path: Path) -> None:
    rule = measuring(lambda size: 0.2 if size >= 9 else 5.0 - size / 10)
    found = asked(tmp_path / "steady", rule, Flaky.auto, Margin(measured=True), steady=True)
    assert found.ending.status == "found"
    assert found.session.reliability.mode is Flaky.never
    for end in ("everything", "nothing"):
        assert found.phases[end, "pre-flight"] + found.phases[end, "doubt"] == PROVEN_BY
    assert found.phases["a set", "re-check"] == 1
    assert not found.phases["a set", "doubt"]
    doubted = asked(tmp_path / "doubted", rule, Flaky.auto, Margin(measured=True))
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

    found = asked(tmp_path, rule, Flaky.auto, Margin(measured=True), steady=True)
    assert found.ending.status == "found"
    assert found.session.reliability.mode is Flaky.auto
    assert found.phases["a set", "re-check"] > 1


@pytest.mark.parametrize("size", [0, COUNT])
def test_a_check_that_is_thought_steady_and_says_something_else_is_measured(tmp_path: Path, size: int) -> None:
    draws, seen = rule_of(0.9, 0.1, 4, 11, seed=3), Counter[int]()

    def rule(candidate) -> Verdict:
        seen[len(candidate.trial)] += 1
        if len(candidate.trial) != size or seen[size] > PROVEN_BY:
            return draws(candidate)
        return (FAIL, PASS)[(seen[size] == PROVEN_BY) is (size == 0)]

    found = asked(tmp_path, rule, Flaky.auto, steady=True)
    assert found.session.reliability.rates is not None
    assert (found.ending.status, found.ending.trial) == ("found", Trial.of([4, 11]))


@pytest.mark.parametrize("mode", [Flaky.never, Flaky.always])
def test_who_says_how_a_check_is_needs_no_proof(tmp_path: Path, mode: Flaky) -> None:
    found = asked(tmp_path, rule_of(1.0, 0.0, 4, 11), mode, steady=True)
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

    found = asked(tmp_path, rule, Flaky.auto)
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

    found = asked(tmp_path, rule, Flaky.auto)
    assert (found.ending.status, found.ending.trial) == ("found", Trial.of([4, 11]))
    assert "the check is flaky" in found.ending.message


def test_a_budget_hands_over_the_smallest_that_passed(tmp_path: Path) -> None:
    """Error adds up: most of it is gone with many raised, and the budget ends the search on its way."""
    rule = measuring(lambda size: 3.0 - size * 0.15)
    passed = 18  # with these it takes 0.3 of the tolerance
    plainly = asked(tmp_path / "all", rule, Flaky.never, Margin(0.31, measured=True))
    assert len(plainly.ending.trial or ()) == passed
    with pytest.raises(CannotJudge, match="before a smaller set than the whole was shown to pass"):
        asked(tmp_path / "one", rule, Flaky.never, Margin(0.31, measured=True), budget=Budget(checks=1))
    for checks in (4, 5):
        budget = Budget(checks=checks)
        found = asked(tmp_path / str(checks), rule, Flaky.never, Margin(0.31, measured=True), budget=budget)
        sizes = [len(one.trial) for one in found.session.judge.journal.entries() if one.verdict.metrics[MEASURE] < 0.31]
        assert found.ending.status == "found"
        assert len(found.ending.trial or ()) <= min(sizes)
        assert found.ending.done and found.ending.done.claim is Claim.BUDGET
        assert "the budget was reached: fewer may be enough" in found.ending.message


def test_where_a_budget_leaves_the_margin_out_of_reach_the_nearest_set_is_handed_over(tmp_path: Path) -> None:
    """With one of the first sixteen it passes by a hair; only nearly all keep the margin."""
    rule = measuring(steps({0: 3.0, 16: 0.9, 23: 0.1}))
    margin = Margin(0.5, measured=True)
    found = asked(tmp_path, rule, Flaky.never, margin, budget=Budget(checks=3))
    assert len(found.ending.trial or ()) == 16
    assert "it takes 0.9 of the tolerance, where 0.5 was aimed at" in found.ending.message
    assert found.ending.done and found.ending.done.claim is Claim.BUDGET
