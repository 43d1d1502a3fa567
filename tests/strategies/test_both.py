"""Repeating until both kinds were seen, and searching sets without structure, as exact transcripts."""

from __future__ import annotations

import pytest

from strategies.repeat import both
from strategies.search import Answer, Claim, Search, Space, Trial


def told(most: int, answers: str) -> tuple[int, Claim]:
    """Answer iteration by iteration: g(ood), b(ad), ? (no answer); return how many were asked for, and the end."""
    search = Search(Space(()), both(most))
    asked = 0
    while not search.done:
        (question,) = search.ask(1)
        assert question.trial == Trial.of([asked])
        search.tell(question.trial, {"g": Answer.NO, "b": Answer.YES, "?": Answer.UNKNOWN}[answers[asked]])
        asked += 1
    assert search.done.trial is None
    return asked, search.done.claim


@pytest.mark.parametrize(
    ("most", "answers", "asked"),
    [(9, "gb", 2), (9, "bg", 2), (9, "ggggb", 5), (4, "gggg", 4), (9, "b??g", 4), (3, "???", 3)],
)
def test_it_ends_as_soon_as_both_were_seen(most, answers, asked) -> None:
    assert told(most, answers) == (asked, Claim.COUNTED)


def test_one_build_is_the_least() -> None:
    with pytest.raises(ValueError, match="most=0"):
        both(0)
