"""The parts of the last screen as functions: names that fit, failures in words, and what stays in high precision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.report.result_parts import ErrorLeft, Precision, RaisedNode
from runner.report.short_answer import failure_in_words, keeps_all, names_of, nothing_low, stays_high


def test_names_are_cut_in_the_middle_to_fit() -> None:
    long = "".join(chr(97 + at % 26) for at in range(120))
    (one,) = names_of([long])
    assert one == f"{long[:47]}...{long[-46:]}"
    several = names_of([long, "a\nb", *["c"] * 9])
    assert several[:3] == [f"{long[:15]}...{long[-14:]}", "a\\nb", "c"]
    assert names_of([long[:96]]) == [long[:96]]


@pytest.mark.parametrize(
    ("failure", "said", "told"),
    [
        ("load: error FAIL", "no such\n operator", 'loading fails: "no such operator"'),
        ("build: error X", "no kernel", 'building fails: "no kernel"'),
        ("load: error FAIL", "", None),
        ("load: death MEMORY", "died of it", None),
        ("check: exit 1", "exit 1", None),
        ("check: exit 1", "exit 2", None),
        ("check: exit 1", "off by 3", 'off by 3"'),
        ("check: returned fail", "check.py:check returned False", None),
        ("infer: nan", "NaN in y", None),
    ],
)
def test_a_failure_in_words(failure: str, said: str, told: str | None) -> None:
    found = failure_in_words(failure, said)
    bare = failure_in_words(failure)
    assert found == bare if told is None else found.endswith(told) and (said == "" or found != bare)
    assert not bare.endswith('"') and bare


NODES = tuple(RaisedNode(f"n{at}", reason="range") for at in range(2))
TOLD = Precision("float32", "float16", NODES, low_share={"nodes": 0.5})
NONE, EVERY = "no layer may be in float16 at this tolerance", "all layers must stay in float32"
ALL = replace(TOLD, low_share={"nodes": 0.0})


@pytest.mark.parametrize(
    ("told", "sentence", "said"),
    [
        (TOLD, False, "in float32: n0, n1"),
        (TOLD, True, "n0, n1 must stay in float32"),
        (replace(TOLD, selected=NODES[:1]), False, "in float32: n0 (range)"),
        (
            replace(TOLD, selected=NODES[:1], error={"searched": ErrorLeft(12.345, 0.1)}),
            True,
            "n0 must stay in float32 (error 12.3 times the tolerance otherwise)",
        ),
        (replace(TOLD, error={"held_out": ErrorLeft(12.0, 0.1)}), False, "in float32: n0, n1"),
        (ALL, False, NONE),
        (replace(ALL, low="int4"), False, "no layer may be quantized at this tolerance"),
        (
            replace(ALL, curve=((0, 9.0), (1, 3.5), (2, 0.1))),
            False,
            f"{NONE}: with a single one in float16 the error is at least 3.5 times it",
        ),
        (replace(ALL, curve=((0, 9.0), (1, 0.5), (2, 0.1))), False, NONE),
        (replace(ALL, curve=((0, 9.0), (2, 0.1))), False, NONE),
        (
            replace(ALL, without_margin=("n1",)),
            True,
            f"{EVERY} for strategy.margin; for the whole tolerance perhaps n1 (strategy.margin=1)",
        ),
    ],
)
def test_what_stays_high(told: Precision, sentence: bool, said: str) -> None:
    assert stays_high(told, sentence=sentence) == said


def test_a_mixed_model_that_is_the_original() -> None:
    assert nothing_low(ALL) and keeps_all(ALL)
    assert not keeps_all(replace(ALL, without_margin=()))
    for other in (
        TOLD,
        replace(ALL, high="int8"),
        replace(ALL, low="accuracy_level_4"),
        replace(ALL, selected=NODES[:1]),
    ):
        assert not nothing_low(other)
