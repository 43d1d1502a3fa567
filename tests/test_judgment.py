"""The rules by which measures and outcomes are judged, as properties."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.judgment import ERROR, MEASURE, SHARE, Experiment, Scale, gives_expected, least_as_bad, measured, milder
from runner.schema.checker import SameFailure
from runner.verdict import (
    FEEDS,
    LONGEST,
    MISFIT,
    MODEL,
    NOT_RUN,
    OWN_EXCEPTION,
    TABLE,
    Candidate,
    Phase,
    Raised,
    Signature,
    Verdict,
    fewer,
    got_further,
    in_words,
    message_drift,
    relative,
    rows_of,
    same_failure,
)
from strategies.search import Outcome, Trial

SIZES = st.floats(-1e6, 1e6)
HARMS = st.floats(2**-10, 1e6)
AMONG = st.integers(1, 12)


def failing(measure: float | None) -> Experiment:
    return Experiment(Outcome.FAIL, measure)


@given(HARMS, SIZES, SIZES, AMONG)
def test_what_is_worse_than_something_as_bad_is_as_bad(whole: float, one: float, other: float, among: int) -> None:
    low, high = sorted((one, other))
    if failing(low).as_bad_as(failing(whole), among):
        assert failing(high).as_bad_as(failing(whole), among)
    if failing(high).lacks_a_part_of(failing(whole)):
        assert failing(low).lacks_a_part_of(failing(whole))
    if milder(high, whole):
        assert milder(low, whole)


@given(HARMS, AMONG)
def test_exactly_a_share_is_as_bad_and_not_milder(whole: float, among: int) -> None:
    least = least_as_bad(whole, among)
    assert least == SHARE * whole / among
    assert failing(least).as_bad_as(failing(whole), among)
    assert not failing(least * (1 - 2**-40)).as_bad_as(failing(whole), among)
    assert not milder(least_as_bad(whole), whole) and milder(least_as_bad(whole) * (1 - 2**-40), whole)


@given(st.integers(1, 2**20))
def test_what_leaves_three_quarters_lacks_a_part(quarter: int) -> None:
    whole = failing(4.0 * quarter)
    assert failing(3.0 * quarter).lacks_a_part_of(whole)
    assert not failing(3.0 * quarter + 2**-10).lacks_a_part_of(whole)
    assert not Experiment(Outcome.PASS, 0.0).lacks_a_part_of(whole)


@given(st.integers(-4096, 4096), st.integers(-4096, 4096), st.integers(-64, 64), AMONG)
def test_the_direction_is_a_mirror(one: int, other: int, good: int, among: int) -> None:
    """An accuracy that drops from ``good`` is judged as an error that rises by as much."""
    errors, drops = (failing(one), failing(other)), (failing(good - one), failing(good - other))
    scale = Scale(good, higher_is_better=True)
    assert [scale.harm(drop.measure or 0.0) for drop in drops] == [one, other]
    assert errors[0].as_bad_as(errors[1], among) == drops[0].as_bad_as(drops[1], among, scale)
    assert errors[0].lacks_a_part_of(errors[1]) == drops[0].lacks_a_part_of(drops[1], scale)
    assert milder(one, other) == milder(good - one, good - other, scale)
    assert errors[0].level(errors[1]) == drops[0].level(drops[1], scale)


def test_an_accuracy_that_hardly_drops_is_not_as_bad() -> None:
    scale = Scale(0.76, higher_is_better=True)
    whole = failing(0.36)
    assert failing(0.60).as_bad_as(whole, scale=scale) and not failing(0.70).as_bad_as(whole, scale=scale)
    assert failing(0.70).as_bad_as(whole)  # as an error


def test_where_nothing_passes_no_harm_is_known() -> None:
    scale = Scale(None, higher_is_better=True)
    assert failing(0.7).as_bad_as(failing(0.36), scale=scale)
    assert not failing(0.7).lacks_a_part_of(failing(0.36), scale)


@given(st.floats(0, 1e6), st.floats(-1e6, 0.0))
def test_of_what_is_not_positive_there_is_no_part(measure: float, whole: float) -> None:
    assert failing(-measure).as_bad_as(failing(whole))
    assert not failing(-measure).lacks_a_part_of(failing(whole))


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("measure", [None, 0.0, 5.0, -5.0])
def test_only_a_failure_is_as_bad(outcome: Outcome, measure: float | None) -> None:
    one = Experiment(outcome, measure)
    assert one.as_bad_as(failing(None)) is (outcome is Outcome.FAIL)
    assert one.as_bad_as(failing(4.0)) is (outcome is Outcome.FAIL and measure in (None, 5.0))
    assert not one.lacks_a_part_of(failing(None))
    assert one.heals is (outcome is Outcome.PASS) and replace(one, gone=True).heals


def test_how_bad_something_is_without_a_measure() -> None:
    assert failing(3.0).level(failing(8.0)) == ERROR.harm(3.0) == 3.0
    assert failing(None).level(failing(8.0)) == 8.0
    assert [failing(None).level(failing(whole)) for whole in (None, 0.0)] == [1.0, 1.0]
    assert Experiment(Outcome.PASS).level(failing(8.0)) == 0.0


@pytest.mark.parametrize(
    ("held", "size"),
    [({}, None), ({MEASURE: 2}, 2.0), ({MEASURE: "2"}, None), ({MEASURE: None}, None), ({MEASURE: True}, None)],
)
def test_a_measure_is_a_number(held: dict[str, object], size: float | None) -> None:
    assert measured(held) == size


STAGES = st.sampled_from(["load", "build", "infer", "compare", "check", ""])
KINDS = st.sampled_from(["nan", "inf", "error Fail", "death MEMORY", "timeout", "mismatch", "exit 1"])


@given(st.lists(st.builds(Signature, STAGES, KINDS), min_size=3, max_size=3))
def test_to_get_further_is_an_order(met: list[Signature]) -> None:
    one, two, three = met
    assert not got_further(one, one)
    assert not (got_further(one, two) and got_further(two, one))
    if got_further(one, two) and got_further(two, three):
        assert got_further(one, three)
    check = Signature("check", "exit 1")  # which does not say how far the model came
    for other in (None, check):
        assert not got_further(other, one) and not got_further(one, other)


@pytest.mark.parametrize(
    ("studied", "further"),
    [
        ("load: error X", {"infer: error X", "infer: nan", "compare: mismatch"}),
        ("build: error X", {"infer: error X", "infer: nan", "compare: mismatch"}),
        ("infer: timeout", {"infer: nan", "compare: mismatch"}),
        ("infer: error X", {"infer: nan", "compare: mismatch"}),
        ("infer: inf", set()),
        ("compare: mismatch", set()),
        ("check: exit 1", set()),
    ],
)
def test_what_a_model_does_not_live_to_see(studied: str, further: set[str]) -> None:
    every = ("load: error X", "build: error X", "infer: timeout", "infer: error X", "infer: nan", "compare: mismatch")
    one, *others = (Signature(*text.split(": ")) for text in (studied, *every, "check: exit 1"))
    assert {other.name for other in others if got_further(one, other)} == further


def test_each_rule_looks_at_more_of_a_failure() -> None:
    wrong = Raised(("ValueError at c.py:3",), "check")
    studied = Signature("infer", "inf", "y")
    others = [
        (Signature("build", "error FAIL"), ["any"]),
        (Signature("infer", "timeout"), ["any", "stage"]),
        (Signature("infer", "inf", "z"), ["any", "stage", "kind"]),
        (Signature("infer", "inf", "y and more"), ["any", "stage", "kind"]),
        (Signature("infer", "nan", "y"), ["any", "stage", "kind", "strict"]),
        (Signature("infer", "inf", "y", wrong), ["any", "stage"]),
        (Signature("infer", "inf", "y", Raised((), "feeds: no x")), []),
    ]
    for other, rules in others:
        assert [rule.value for rule in SameFailure if same_failure(other, studied, rule)] == sorted(
            rules, key=[*SameFailure].index
        ), other


def test_what_is_told_of_a_phase() -> None:
    assert (in_words("one at a time"), in_words("nearest")) == (
        "trying to leave out one node after the other", "searching: nearest",
    )  # fmt: skip
    assert in_words(Phase.RECHECK.value) == Phase.RECHECK.words
    assert fewer(1, 3) == "1 of 4 samples left out, whose values hold NaN or Inf"


def test_a_verdict_in_the_light_of_the_failure_under_study() -> None:
    studied = Signature("check", "exit 1")
    own, model = (Signature("check", "exit 1", raised=Raised(("E at c.py:1",), about)) for about in ("check", MODEL))
    misfit = replace(own, raised=Raised(("E at c.py:2",), f"{FEEDS}: a missing input"))
    for met, also, outcome, reason in (
        (studied, (), Outcome.FAIL, "r"),
        (replace(studied, kind="exit 2"), (), Outcome.DIFFERENT, "another failure, check: exit 2: r"),
        (replace(studied, kind="exit 2"), (Signature("check", "exit 2"),), Outcome.FAIL, "r"),
        (own, (), Outcome.UNRESOLVED, f"{OWN_EXCEPTION}: r"),
        (misfit, (), Outcome.UNRESOLVED, f"{MISFIT} (a missing input): r"),
        (model, (), Outcome.DIFFERENT, "another failure, check: exit 1, E at c.py:1: r"),
    ):
        found = relative(Verdict(Outcome.FAIL, met, "r"), studied, SameFailure.kind, also=also)
        assert (found.outcome, found.reason) == (outcome, reason)
    for same in (Verdict(Outcome.DIFFERENT, model, "r"), Verdict(Outcome.FAIL, None, "r")):
        assert relative(same, studied, SameFailure.kind) is same


def test_what_a_check_always_shows_is_not_what_ended_it() -> None:
    both = Raised(("A", "B"), "check", went_on=True)
    caught, fed = Raised(("A",), "check"), Raised(("A", "B"), f"{FEEDS}: no x")
    assert both.beyond(caught, None) == replace(both, where=("B",))
    assert both.beyond(both, None) is None
    known = Raised(("B",), MODEL)
    assert both.beyond(caught, known) is known
    assert both.beyond(caught, Raised(("C",), MODEL)) == replace(both, where=("B",))
    assert fed.beyond(caught, None) is fed and fed.beyond(replace(caught, about=fed.about), None) is fed
    studied = Signature("check", "exit 1", raised=both)
    for shown, outcome in ((known, Outcome.FAIL), (Raised(("C",), "check"), Outcome.UNRESOLVED)):
        met = Verdict(Outcome.FAIL, replace(studied, raised=shown))
        assert relative(met, studied, SameFailure.kind, caught=caught).outcome is outcome
    alone = replace(studied, raised=replace(both, where=("B",)))
    assert relative(Verdict(Outcome.FAIL, alone), studied, SameFailure.kind, caught=caught).outcome is Outcome.FAIL
    for one in (studied, alone, Signature("infer", "nan", "y")):
        assert Signature.from_json(one.to_json()) == one
        assert one.raised is None or Raised.from_json(one.raised.to_json()).went_on
    assert str(replace(alone, detail="d")) == "check: exit 1, B (d)"


def test_what_is_told_of_a_verdict() -> None:
    known = Verdict(
        Outcome.FAIL, Signature("infer", "error X", "axis #"), "axis  7", {TABLE: []}, 1.23456789, "l", 3, 1.26
    )
    assert known.said == "fail: axis  7" and known.failure == "infer: error X (axis 7)"
    assert replace(known, reason="").said == "fail" and replace(known, reason="").failure == "infer: error X (axis #)"
    assert replace(known, signature=Signature("infer", "nan", "y")).failure == "infer: nan (y)"
    named = replace(known, signature=Signature("check", "exit 1", "mismatch in [_]"), reason="mismatch in ['y']")
    assert named.failure == "check: exit 1 (mismatch in ['y'])"
    assert Verdict.from_json(known.to_json()) == replace(known, seconds=1.234568, peak_rss_mb=1.3)
    assert Verdict.from_json(Verdict(Outcome.PASS).to_json()) == Verdict(Outcome.PASS)
    assert [Verdict(one, None, f"{NOT_RUN}: b").never_ran for one in Outcome] == [
        one is Outcome.UNRESOLVED for one in Outcome
    ]
    assert not Verdict(Outcome.UNRESOLVED, None, MISFIT).never_ran
    studied, other = Signature("infer", "error X", "axis #"), Signature("infer", "error X", "rank #")
    assert not message_drift("axis 3", known, studied) and not message_drift("axis 3", Verdict(Outcome.PASS), studied)
    drift = message_drift("axis\n3", Verdict(Outcome.FAIL, other, "rank " * 99), studied)
    assert ": axis 3, now rank rank" in drift and drift.endswith("...") and len(drift.partition("now ")[2]) == LONGEST
    assert message_drift("", Verdict(Outcome.FAIL, other), studied).endswith(f"whole model: {studied}, now {other}")
    row = {"tensor": "t", "kind": "k", "output": True, "bad": False, "type": 1, "shape": [2], "error": 1.0}
    assert rows_of(replace(known, metrics={TABLE: [row]})) == [row] and rows_of(replace(known, metrics={})) == []
    for stage, raised, refuses, values in (
        ("load", None, True, False), ("build", None, True, False), ("infer", None, False, True),
        ("check", Raised(("E",), MODEL), True, False), ("check", Raised((), "check"), False, True),
    ):  # fmt: skip
        one = Signature(stage, "inf", raised=raised)
        assert (one.refuses, one.about_values) == (refuses, values)
    assert str(Raised((), "check")) == "check" and not Signature("infer", "death FPE").about_values


def test_how_large_a_candidate_is_and_what_goes_with_it(tmp_path: Path) -> None:
    (model := tmp_path / "m.onnx").write_text("")
    (folder := tmp_path / "left").mkdir()
    (link := tmp_path / "link").symlink_to(folder)
    (file := tmp_path / "values").write_text("")
    made = Candidate(model, tmp_path, Trial.of([0, 1]), nodes=("a", "b", "c"), values=[file, tmp_path / "x"])
    made.left.extend([folder, link])
    assert (made.size, replace(made, nodes=()).size) == (3, 2)
    made.discard()
    assert model.exists()
    replace(made, temporary=True).discard()
    made.discard_values()
    assert not any(tmp_path.iterdir())


@given(HARMS, HARMS)
def test_a_run_gives_what_is_expected_where_it_is_much_nearer(off: float, whole: float) -> None:
    assert gives_expected(off, None) == (off <= 1)
    assert gives_expected(off, whole) == (off <= 1 and off < SHARE * whole)
