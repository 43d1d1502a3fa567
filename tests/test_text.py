"""Texts of messages."""

from __future__ import annotations

import pytest

from runner.text import LARGEST, first_clauses, in_tolerances, own_words, with_inside


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a (3 of 28\nnodes); cause proven", "a (3 of 28 nodes); cause proven"),
        ("a (3 of 28 nodes); cause proven on the whole model; not the target", "a (3 of 28 nodes)"),
        (f"{'name ' * 8}(3 of 28 nodes); cause proven", f"{'name ' * 8}(3 of 28 nodes)"),
        ("name " * 100, f"{'name ' * 79}..."),
    ],
)
def test_what_is_too_long_loses_its_last_clauses(text: str, told: str) -> None:
    assert first_clauses(text, 40) == told


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("infer: a plain one", "infer: a plain one"),
        ("while running Add node. Name:'a' Status Message: axis 7", "axis 7"),
        ("If node. Status Message: Loop node. Status Message: /src/x.h:9 f(int) a == b was false. No: {2}", "No: {2}"),
        ("Reshape node. Status Message: /src/x.h:91 f(con ... b, bool) a == b was false. No: {2}", "No: {2}"),
        (
            "I::b: Error Code 4: API Usage Error (n: K is over (3840). In f at /_src/x.cpp:1 In g at /y:2)",
            "n: K is over (3840)",
        ),
        ("Reshape node. Status Message: /src/x.h:91 f(int) a == b was false.", "/src/x.h:91 f(int) a == b was false."),
    ],
)
def test_a_runtimes_own_words_are_at_the_end_of_its_message(message: str, words: str) -> None:
    assert own_words(message) == words


def test_nodes_inside_one_of_several_do_not_seem_to_be_inside_all() -> None:
    assert with_inside("loop", "loop.body/a", 1) == "loop.body/a, inside loop"
    assert with_inside("loop, cat", "loop.body/a", 2) == "loop, cat; inside: loop.body/a"
    assert with_inside("cat", "", 1) == "cat"


def test_an_error_where_no_error_is_allowed_is_no_number() -> None:
    assert in_tolerances(4.321) == "4.32 times the tolerance"
    assert in_tolerances(LARGEST) == "beyond any tolerance"
