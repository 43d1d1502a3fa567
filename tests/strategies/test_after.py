"""What a search asks after an answer that it is not told yet."""

from __future__ import annotations

import pytest

from strategies.bisect import bisect
from strategies.minimal import reduce
from strategies.search import Answer, Search, Space


@pytest.mark.parametrize("search", [bisect, reduce])
@pytest.mark.parametrize("culprits", [{7}, {3, 20, 21}])
def test_it_is_what_comes_once_it_is_told_and_changes_nothing(search, culprits: set[int]) -> None:
    space = Space(tuple(range(32)))
    one = Search(space, search(space))
    while not one.done:
        (ask,) = one.ask()
        answer = Answer.YES if ask.trial.elements >= culprits else Answer.NO
        expected = one.after(ask.trial, answer)
        assert one.ask()[0].trial == ask.trial
        one.tell(ask.trial, answer)
        assert one.done == expected if one.done else one.ask()[0].trial == expected.trial
    assert one.done.trial and one.done.trial.elements >= culprits
