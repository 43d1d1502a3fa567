"""What is to come, by the checks so far."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from runner.report.live.course import Course
from runner.report.live.ended_check import EndedCheck
from runner.report.live.estimate import Estimate, Range
from runner.report.live.ranges import checks_left, clock_time, time_left
from runner.session.trust.sequential_test import Count, Rates, Repeats

REDUCE = Course(1000, proves=True, several=8, simpler=1, cause=2, good=1)


def after(*checks: EndedCheck, course: Course = REDUCE) -> Estimate:
    found = Estimate(course, 0.0)
    for check in checks:
        found.add(check)
    return found


def middle(given: Range | None) -> float:
    assert given
    assert given.most == pytest.approx(2 * given.least)
    return (given.least * given.most) ** 0.5


START = (
    EndedCheck("pre-flight", 1000, 1, 1.0, "fail"),
    EndedCheck("control", 0, 2, 1.0, "pass"),
    EndedCheck("pre-flight", 1000, 3, 1.0, "fail"),
)


def test_nobody_knows_before_the_search() -> None:
    assert after().checks is None
    assert after(*START).checks is None and after(*START).seconds is None  # how many questions it has


def test_the_search_and_what_follows_it_are_one_number() -> None:
    ending = EndedCheck("latest start", 500, 4, 1.0, "fail", 9, "latest start")
    assert middle(after(*START, ending).checks) == pytest.approx(9 + 1 + 1 + 3 + 2 + 1)  # and what is tried alone
    # a bisection proves nothing, and a check that is never doubted is not repeated
    plain = Course(1000, second=False)
    assert middle(after(*START, ending, course=plain).checks) == pytest.approx(9 + 1 + 1)


def test_what_is_announced_is_believed_and_the_rest_is_counted() -> None:
    search = (EndedCheck("group testing", 1, 4, 1.0, "fail", 0),)
    handed = after(*START, *search, EndedCheck("re-check", 1, 5, 1.0, "fail", 2))
    assert middle(handed.checks) == pytest.approx(2 + 2 + 1)
    handed.add(EndedCheck("re-check", 1, 6, 1.0, "fail", 1))
    handed.add(EndedCheck("re-check", 1, 7, 1.0, "fail", 0))
    handed.add(EndedCheck("cause", 999, 8, 1.0, "pass"))
    assert middle(handed.checks) == pytest.approx(2)
    handed.add(EndedCheck("cause", 999, 9, 1.0, "fail"))
    handed.add(EndedCheck("re-check", 400, 10, 1.0, "pass", 0))
    assert handed.checks == Range(0, 0)


def test_a_check_to_come_costs_what_those_of_its_size_did() -> None:
    """The whole takes 10 s and a small part 1 s: what is left are two experiments on the whole and one small check."""
    checks = [EndedCheck("group testing", 1, at, 1.0, "fail", 0) for at in range(1, 20)]
    checks += [EndedCheck("pre-flight", 1000, 20 + 10 * at, 1.0, "fail") for at in range(1, 19)]
    checks += [EndedCheck("group testing", 1, 201, 1.0, "fail", 0), EndedCheck("re-check", 1, 202, 1.0, "fail", 1)]
    assert middle(after(*checks, course=Course(1000, cause=2)).seconds) == pytest.approx(1 + 20, rel=0.1)


def test_verdicts_that_were_known_cost_nothing_and_say_nothing_of_the_cost() -> None:
    known = [
        EndedCheck("latest start", 500, 0.01 * at, 1.0, "fail", 9, "latest start", known=True) for at in range(1, 9)
    ]
    paid = EndedCheck("latest start", 500, 5.08, 1.0, "fail", 8, "latest start")
    assert middle(after(*known, paid, course=Course(1000, second=False)).seconds) == pytest.approx(5 * 10, rel=0.1)


def test_of_a_flaky_check_a_question_takes_several_and_its_search_begins_anew() -> None:
    measured = [EndedCheck("pre-flight", 1000, at, 1.0, "fail", 20 - at) for at in range(20)]
    begun = after(*START, EndedCheck("group testing", 1, 4, 1.0, "fail", 0), *measured)
    assert not begun.searched and begun.checks is None  # how many questions it has
    known = after(*START, *measured[:10], course=Course(1000, first=10))
    assert middle(known.checks) > 10 + 20 + 11 * 3
    asked = [EndedCheck("latest start", 500, 30 + at, 1.0, "fail", 9 - at // 4, "latest start") for at in range(12)]
    for one in asked:
        begun.add(one)
    assert middle(begun.checks) > 4 * 7


def test_a_whole_that_passes_is_checked_again_and_that_is_all() -> None:
    found = after(EndedCheck("pre-flight", 1000, 1, 1.0, "pass"), EndedCheck("doubt", 1000, 2, 1.0, "pass", 8))
    assert middle(found.checks) == pytest.approx(8)


@pytest.mark.parametrize(
    ("given", "checks", "seconds"),
    [
        (None, "", ""),
        (Range(0.7, 1.41), "1 check", "under 2 s"),
        (Range(0.1, 0.2), "0 checks", "under 2 s"),
        (Range(9.2, 18.4), "10 to 18 checks", "9.2 to 18 s"),
        (Range(51.0, 102.0), "51 to 102 checks", "0.85 to 1.7 min"),
        (Range(3000.0, 6000.0), "3000 to 6000 checks", "0.84 to 1.6 h"),
    ],
)
def test_in_words_a_range_is_no_wider_than_it_is(given: Range | None, checks: str, seconds: str) -> None:
    assert (checks_left(given), time_left(given)) == (checks, seconds)


def test_time_that_has_passed() -> None:
    assert [clock_time(one) for one in (7.9, 65, 3605)] == ["7 s", "1:05", "1:00:05"]


def test_known_verdicts_say_what_a_check_costs_until_one_was_made() -> None:
    """As a run is taken up again: the rest of it is not over at once."""
    plain = Course(1000, second=False)
    known = [
        EndedCheck("latest start", 500, 0.01 * at, 5.0, "fail", 9, "latest start", known=True) for at in range(1, 9)
    ]
    assert middle(after(*known, course=plain).seconds) == pytest.approx(5 * 11, rel=0.1)
    # of 9 questions and a re-check, 5 at once: 2.6 answers come together, but not all that is asked ahead is needed
    together = after(*known, course=replace(plain, workers=5))
    assert middle(together.seconds) == pytest.approx(0.7 + 5 * (10 * 1.3 / math.log2(6) + 1))


def test_no_time_is_shown_where_nobody_knows_what_a_check_costs() -> None:
    """A verdict that was known took none: its model could not be made."""
    unmade = EndedCheck("latest start", 500, 0.01, 0.0, "unresolved", 9, "latest start", known=True)
    found = after(unmade, course=Course(1000, second=False))
    assert found.checks and found.seconds is None


def test_of_a_repeat_the_count_is_exact_and_a_repeat_until_something_has_none() -> None:
    repeats = [EndedCheck("repeat", 1, at, 1.0, "pass", 400 - at) for at in range(1, 8)]
    found = after(*repeats, course=Course(0, second=False, handed=0, repeats=400))
    assert found.checks == Range(393, 393) and checks_left(found.checks) == "393 checks"
    assert middle(found.seconds) == pytest.approx(393, rel=0.1)
    assert after(*repeats, course=Course(0, second=False, handed=0, repeats=0)).checks is None


def test_nodes_that_are_lowered_alone_are_as_many_as_the_search_asked_and_are_announced() -> None:
    course = Course(400, wanted="pass", alone=32, held_out=2, second=False)
    searched = [EndedCheck("one at a time", 4, at, 1.0, "pass", 18 - at, "one at a time") for at in range(1, 19)]
    found = after(*searched, course=course)
    assert middle(found.checks) == pytest.approx(18 + 2 + 1)
    found.add(EndedCheck("stability", 399, 19, 1.0, "pass", 21))  # it was told how many
    assert middle(found.checks) == pytest.approx(21 + 2 + 1)
    found.add(EndedCheck("held out", 4, 20, 1.0, "pass", 0))
    assert middle(found.checks) == pytest.approx(1 + 1)


def test_a_control_says_nothing_of_what_is_still_to_be_tried() -> None:
    course = Course(9, first=9, second=False, handed=0)
    found = after(
        EndedCheck("pre-flight", 0, 1, 1.0, "fail"), EndedCheck("search", 1, 2, 1.0, "fail", 5), course=course
    )
    found.add(EndedCheck("control", 0, 3, 1.0, "fail", 0))
    assert middle(found.checks) == pytest.approx(5)
    flaky = after(*(EndedCheck("pre-flight", 9, at, 1.0, "fail", 20 - at) for at in range(1, 21)), course=course)
    flaky.add(EndedCheck("latest start", 3, 22, 1.0, "fail", 0))
    flaky.add(EndedCheck("control", 0, 23, 1.0, "pass", 0))
    assert middle(flaky.checks) < 10  # its rates are not measured again


def test_with_several_workers_experiments_do_not_wait_for_each_other() -> None:
    search = [EndedCheck("latest start", 9, at, 8.0, "fail", 0) for at in range(1, 4)]
    found = after(*search, course=Course(9, workers=8, second=False, handed=0, cause=2))
    assert middle(found.seconds) == pytest.approx(0.7 + 8 * 1.15)


def test_of_two_culprits_what_follows_the_search_is_counted_as_it_comes() -> None:
    """As in a run: 4 repeats of 2 removals, a control, 3 checks of the answer, 2 experiments and one of what passes."""
    found = after(
        *START,
        *(EndedCheck("latest start", 900 - at, 4 + at, 1.0, "pass", 9 - at, "latest start") for at in range(9)),
        EndedCheck("group testing", 1, 13, 1.0, "pass", 10, "group testing"),
        EndedCheck("group testing", 400, 14, 1.0, "fail", 8, "group testing"),
        EndedCheck("group testing", 200, 15, 1.0, "pass", 7, "group testing"),
    )
    assert middle(found.checks) == pytest.approx(7 + 4 + 1 + 3 + 2 + 1)
    found.add(EndedCheck("group testing", 2, 16, 1.0, "fail", 2, "one at a time"))
    assert middle(found.checks) == pytest.approx(1 + 11)  # without the one that was found last it was asked before
    found.add(EndedCheck("one at a time", 1, 17, 1.0, "pass", 0))
    for left, phase, kept in [(3, "doubt", 1), (2, "doubt", 1), (1, "doubt", 1), (0, "doubt", 1), (0, "control", 0)]:
        found.add(EndedCheck(phase, kept, 18, 1.0, "pass", left))
    assert middle(found.checks) == pytest.approx(3 + 2 + 1)


def test_an_answer_whose_removals_are_repeated_thrice_is_checked_more_often() -> None:
    """Few questions show that an element is needed: of two, of which one was removed at a time."""
    found = after(
        *START, *(EndedCheck("one at a time", 2, 4 + at, 1.0, "fail", 3 - at, "one at a time") for at in range(2))
    )
    for outcome in ("pass", "pass"):
        found.add(EndedCheck("one at a time", 1, 8, 1.0, outcome, 0))
    assert middle(found.checks) == pytest.approx(2 * 3 + 1 + 6 + 2 + 1)


RATES = Rates.measured(Count(17, 3), Count(0, 20))
assert RATES
TWENTY = Repeats(RATES, 17 / 20, 0.0, 0.01)


def test_a_question_of_a_flaky_check_takes_what_its_sequential_test_does() -> None:
    measured = [EndedCheck("pre-flight", 1000, at, 1.0, "fail", 18 - at) for at in range(19)]
    controls = [EndedCheck("control", 0, 20 + at, 1.0, "pass", 18 - at, repeats=TWENTY) for at in range(19)]
    found = after(*START, *measured, *controls, EndedCheck("latest start", 500, 40, 1.0, "pass", 3, "latest start"))
    no, yes = 4, TWENTY.more(failing=True)
    follows = 1 + yes + no + yes + no  # a control, the answer, two experiments, what passes
    assert middle(found.checks) == pytest.approx(no - 1 + 3 * (no + yes) / 2 + follows)
    for at in range(3):
        found.add(EndedCheck("latest start", 500, 41 + at, 1.0, "pass", 3, "latest start"))
    assert middle(found.checks) == pytest.approx(3 * (no + yes) / 2 + follows)


def test_what_was_asked_before_a_check_proved_to_be_flaky_has_its_first_verdict() -> None:
    asked = [EndedCheck("latest start", 500 + at, 4, 1.0, "pass", 4 - at, "latest start") for at in range(4)]
    measured = [EndedCheck("pre-flight", 1000, at, 1.0, "fail", 18 - at) for at in range(19)]
    course = replace(REDUCE, first=4)
    anew = after(*START, *measured, course=course)
    again = after(*START, *asked, *measured, course=course)
    assert middle(anew.checks) - middle(again.checks) == pytest.approx(4)


def test_with_two_workers_repeats_come_two_at_a_time_and_a_control_alone() -> None:
    course = replace(REDUCE, workers=2)
    search = (
        EndedCheck("group testing", 2, 8, 1.0, "fail", 2, "one at a time"),
        EndedCheck("one at a time", 1, 9, 1.0, "pass", 0),
    )
    found = after(*START, *search, EndedCheck("doubt", 1, 9, 1.0, "pass", 3), course=course)
    # the other one of the first two, two more, the control, the answer three times beside what passes, both experiments
    assert middle(found.seconds) == pytest.approx(0.7 + (0.25 + 1.15) + 1 + 2 * 1.15 + 1.15)


def test_a_workaround_is_tried_after_the_whole_was_checked_twice_more() -> None:
    course = Course(4, doubts=2, first=4, second=False, handed=0, step=True)
    found = after(EndedCheck("pre-flight", 0, 1, 1.0, "fail"), course=course)
    assert middle(found.checks) == pytest.approx(6)
    found.add(EndedCheck("doubt", 0, 2, 1.0, "fail", 1))
    assert middle(found.checks) == pytest.approx(5)


def test_between_two_checks_a_range_is_counted_down_and_gets_no_wider() -> None:
    found = Range(10.0, 20.0).after(7.0)
    assert found.most == pytest.approx(2 * found.least) and middle(found) == pytest.approx(200**0.5 - 7)
    assert Range(1.0, 2.0).after(5.0) == Range(0.0, 0.0)
