"""The parts of the last screen as functions: names that fit, failures in words, and what stays in high precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.report import short_answer
from runner.report.diagnosis_sections import LEFT, in_a_clause, in_a_word
from runner.report.result_parts import (
    Cause,
    CauseAnswer,
    CauseExperiment,
    ErrorLeft,
    KnownFailure,
    Precision,
    RaisedNode,
    ShownCause,
    Workaround,
)
from runner.report.short_answer import (
    OTHER_LEVEL,
    failure_in_words,
    keeps_all,
    names_of,
    nothing_low,
    stays_high,
    where,
)
from runner.report.summary import Summary


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
NONE, EVERY = "no layer may be in float16 at this tolerance", "keep all layers in float32"
ERROR = {"searched": ErrorLeft(12.0, 0.1)}
OF_NONE = "n0, n1 (with none of them the error is 12 times the tolerance"
SEARCHED = "nothing but the model in float32: every layer that was searched is kept"
ALL = replace(TOLD, low_share={"nodes": 0.0}, each_fails=True)


@pytest.mark.parametrize(
    ("told", "sentence", "said"),
    [
        (TOLD, False, "in float32: n0, n1"),
        (TOLD, True, "keep n0, n1 in float32"),
        (
            replace(TOLD, error=ERROR),
            True,
            f"keep {OF_NONE.replace(' (', ' in float32 (')})",
        ),
        (
            replace(TOLD, error=ERROR, without_margin=("n1",)),
            False,
            f"in float32: {OF_NONE}; 1 of them is enough without strategy.margin)",
        ),
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
            f"{NONE}: with a single layer in float16 the error is at least 3.5 times the tolerance",
        ),
        (replace(ALL, curve=((0, 9.0), (1, 3.5), (2, 0.1)), each_fails=False), False, SEARCHED),
        (replace(ALL, curve=((0, 9.0), (2, 0.1))), False, NONE),
        (
            replace(ALL, pairs_fail="y: error 1"),
            True,
            "the Q/DQ pairs fail by themselves: with them all and nothing in float16, y: error 1",
        ),
        (
            replace(ALL, without_margin=("n1",)),
            True,
            "keep all layers in float32 (1 is enough with strategy.margin=1)",
        ),
    ],
)
def test_what_stays_high(told: Precision, sentence: bool, said: str) -> None:
    assert stays_high(told, sentence=sentence) == said


def _sure_of(summary: Summary) -> str:
    return "; ".join(short_answer._sure(summary))


def test_what_an_answer_with_one_less_does() -> None:
    found = Summary("found", 0, "precision", minimality="1-minimal", culprits=("n0", "n1"), precision=TOLD)
    blocks = {"subject.unit": "block"}
    assert _sure_of(found) == "minimal: each of them is needed"
    assert _sure_of(replace(found, context=blocks)) == "minimal: each block is needed"
    by_margin = replace(found, context=blocks, precision=replace(TOLD, by_margin=True))
    assert _sure_of(by_margin) == "minimal: with any one block fewer, strategy.margin is not kept"
    overflow = replace(found, signature=KnownFailure("overflow", "inf"))
    assert _sure_of(overflow) == "minimal: without any one node of them a tensor overflows"


def test_a_mixed_model_that_is_the_original() -> None:
    assert nothing_low(ALL) and keeps_all(ALL)
    assert not keeps_all(replace(ALL, without_margin=()))
    for other in (
        TOLD,
        replace(ALL, high="int8"),
        replace(ALL, high=OTHER_LEVEL),
        replace(ALL, selected=NODES[:1]),
    ):
        assert not nothing_low(other)


def test_what_is_counted_is_named() -> None:
    """Of a quantized model these are layers; what is kept high by request is no part of what was found."""
    every = Summary("found", 0, "precision", culprits=("a",), nodes_before=7, nodes_after=7, precision=ALL)
    assert where(every) == "a (1 of 7 nodes, besides 6 that are not searched)"
    quantized = replace(every, nodes_after=1, precision=replace(ALL, low="quantized"))
    assert (
        where(quantized) == "a (1 of 7 layers)" and where(replace(quantized, strategy="triage")) == "a (1 of 7 nodes)"
    )


def ended(outcome: str, measure: float | None = None) -> CauseExperiment:
    return CauseExperiment(outcome, measure)


ANSWER = CauseAnswer(("a",), True, (("a",),), ended("pass"), ended("fail"), ended("pass"))
CAUSE = Cause("proven", answers=(CauseAnswer(("x",)), ANSWER))
INSIDE = ShownCause("proven", "another is left", answers=(replace(ANSWER, good_outputs=ended("fail", 11.0)),))
FOUND = Summary("found", 0, "reduce", culprits=("a",), nodes_before=9, nodes_after=1, cause=CAUSE, checker="compare")
LOADS = replace(FOUND, signature=KnownFailure("load", "error FAIL"))
ALSO = " (the same pattern)"
BOTH = replace(ANSWER, culprits=("a", "b"), instances=(("a", "b"),))
ALIKE = replace(ANSWER, instances=(("a",), ("b", "c"), ("d",)))
OF_PAIRS = replace(ANSWER, culprits=("a", "d"), instances=(("a",), ("b",), ("c",), ("d",)))
INNER = replace(ANSWER, culprits=("a.f/b",), instances=(("a.f/b",),), good_outputs=ended("fail"))


def mends(these: str, its: str = "their") -> str:
    return f"the model passes if the outputs of {these} are corrected, and still fails if only {its} inputs are"


MENDS = mends("this node", "its")
FAULTS = "the model still fails if the inputs of this node are corrected, and passes if its outputs are too"
ERRS, ERROR_OF = ended("fail", 29.9), "error 29.9 times the tolerance; with right outputs of this node "
DROP = CauseExperiment("fail", 2.6, "0.5, 2.6 times the drop that is allowed; the baseline is 1, checker.max_drop=20%")


def caused(*answers: CauseAnswer, of: Summary = FOUND, **cause: Any) -> Summary:
    """A summary whose cause has these answers, where there are any, and this besides."""
    return replace(of, cause=replace(CAUSE, **({"answers": answers} if answers else {}), **cause))


def told(**more: Any) -> Summary:
    return replace(FOUND, **more)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (FOUND, MENDS),
        (
            caused(replace(BOTH, good_inputs=None), of=told(culprits=("a", "b"))),
            "the model passes if the outputs of these nodes are corrected, and passes if only their inputs are",
        ),
        (caused(replace(BOTH, good_outputs=ended("fail")), ANSWER), MENDS),
        (caused(BOTH), mends("a, b")),
        (
            caused(replace(ANSWER, good_outputs=ended("different"))),
            FAULTS,
        ),
        (caused(ALIKE), mends(f"this node, b with c and d{ALSO}")),
        (caused(OF_PAIRS), mends(f"a, d, b and c{ALSO}")),
        (
            caused(replace(ALIKE, instances=ALIKE.instances[:2]), of=told(seen="3 NaN")),
            f"3 NaN; {mends(f'this node and b with c{ALSO}')}",
        ),
        (caused(whole=ended("fail", 41.234)), f"error 41.2 times the tolerance; {MENDS}"),
        (caused(whole=ended("fail", 0.5), of=told(checker="command")), f"the check measures 0.5; {MENDS}"),
        (caused(whole=DROP, of=told(checker="python")), f"the check's number is {DROP.reason[:39]}; {MENDS}"),
        (
            caused(replace(ANSWER, good_outputs=ended("fail", 0.25)), of=told(seen="s")),
            f"s; {FAULTS}",
        ),
        (
            caused(whole=ended("fail", 9.0), inside=INSIDE),
            f"error 9 times the tolerance; {FAULTS}",
        ),
        (
            caused(replace(ANSWER, good_outputs=ended("fail", 2.46), good_inputs=ended("fail", 29)), whole=ERRS),
            f"{ERROR_OF}it falls to 2.46, with right inputs it stays; with both the model passes",
        ),
        (
            caused(replace(ANSWER, good_outputs=ended("fail", 2.46), good_inputs=ended("fail", 290)), whole=ERRS),
            f"{ERROR_OF}it falls to 2.46, with right inputs it is 290; with both the model passes",
        ),
        (
            caused(
                replace(ANSWER, good_outputs=ended("fail", 31), good_inputs=ended("fail", 2), good_around=None),
                whole=ERRS,
            ),
            f"{ERROR_OF}it is 31, with right inputs it is 2",
        ),
        (LOADS, "without this node the model loads; with only its inputs corrected it still does not load"),
        (caused(weights=("w is 0", "v", "u")), "w is 0, and 2 more changes"),
        (caused(weights=("w is 0", "3 of 1,000 elements of v differ")), "w is 0; v differs too"),
        (caused(weights=("w is 0", "w is late")), "w is 0, and 1 more change"),
        (
            caused(ALIKE, weights=("w is 0",)),
            f"w is 0; right outputs of this node, b with c and d{ALSO} mend the model",
        ),
        (told(nested=("a.body/b",)), mends("a", "its")),
        (
            caused(inside=ShownCause("proven", answers=(INNER,)), of=told(nested=("a.f/b",))),
            FAULTS,
        ),
        (
            replace(LOADS, nested=("a.f/b",)),
            "without a the model loads; with only its inputs corrected it still does not load",
        ),
        (
            caused(ALIKE, weights=("w",), of=told(nested=("a.f/b",))),
            f"w; right outputs of a, b with c and d{ALSO} mend the model",
        ),
        (caused(no_value="0 / 0"), "0 / 0"),
        (caused(status="untested", of=told(seen="s")), "s"),
        (told(seen="s", cause=replace(CAUSE, answers=())), "s"),
        (told(seen="s", status="could not judge"), "s"),
        (
            told(precision=Precision(numbers={"float32": 0.91, "as handed over": 0.8765})),
            "the check's number: 0.910 float32, 0.876 in mixed.onnx",
        ),
        (told(precision=Precision(), message="2 nodes; error 0.5"), "error 0.5"),
    ],
)
def test_why(summary: Summary, said: str) -> None:
    assert short_answer._why(summary) == said


def test_how_far_a_cause_is_shown() -> None:
    two = caused(replace(ANSWER, culprits=("b", "c")), ANSWER, status="joint").cause
    assert two and in_a_clause(two) == "2 causes, each proven (b with c; a)"
    assert in_a_clause(replace(CAUSE, reason="not the only one: x")) == "cause proven; not the only one: x"
    assert in_a_clause(replace(CAUSE, reason="it explains 9%")) == "cause proven; it explains 9%"
    assert in_a_clause(replace(CAUSE, reason="a flake")) == "cause proven, but a flake"


def test_what_is_left_beside_nodes_inside_is_said() -> None:
    said = in_a_word(replace(CAUSE, inside=INSIDE))
    assert said == "proven, also for the nodes inside, but another is left"
    assert in_a_word(replace(CAUSE, inside=replace(INSIDE, status="untested"))).endswith(
        "the nodes inside were only shown to fail alone"
    )
    unsearched = ShownCause("untested", "a.body was not searched: the check needs the whole model")
    assert in_a_word(replace(CAUSE, inside=unsearched)).endswith("; a.body was not searched")
    one = replace(INSIDE, reason=f"{LEFT}: with right outputs there x")
    said = in_a_word(replace(CAUSE, answers=(replace(ALIKE, is_cause=True),), inside=one))
    assert said.endswith("; not the only one (b, c, d too): with right outputs there x")


def test_what_helps() -> None:
    """The last screen shows the rest."""
    passing = Workaround("pass", "turn off F", passes=True)
    precision = Workaround("precision", f"Sum: {'long names, ' * 9}", passes=True, places=3)
    said = short_answer._helps(replace(FOUND, workarounds=(passing, passing)))
    assert said.startswith("turn off F (") and said.endswith(", and 1 more")
    assert short_answer._helps(replace(FOUND, workarounds=(precision,))).startswith("Sum: 3 nodes (")


def test_of_how_many_nodes_an_answer_is() -> None:
    """The first line of the last screen shows the rest."""
    for other in ({"strategy": "precision"}, {"status": "could not judge"}, {"culprits": ()}):
        assert short_answer.sized(replace(FOUND, **{"nodes_after": 3, "model": "m", **other})) == "3 of 9 nodes"
    others = [replace(FOUND, culprits=names) for names in (("a",), ("exp",), ("b", "c", "d", "e", "f"))]
    told = short_answer.other_answers(others)
    assert told.startswith("exp (answers/2); b, c") and told.endswith("more (answers/3)")


def test_where_the_whole_model_fails_otherwise_it_is_said_how_first() -> None:
    told = short_answer.short_answer(replace(FOUND, signature=KnownFailure("infer", "inf", whole="infer: nan")))
    assert told.fails == "NaN in the output (Inf in reduced.onnx)"
