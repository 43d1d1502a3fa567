"""After one at a time: pairs and larger sets, and when they are worth it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.minimal import linear, reduce
from strategies.search import Claim, Trial
from tests.strategies.test_properties import graphs
from tests.strategies.transcript import chain, drive, transcript


def test_a_budget_is_kept() -> None:
    space = chain(12)
    sizes = []
    for extra in (0, 1, 5, 9):
        lines, done = transcript(space, linear(space, extra), lambda kept: set(range(2, 10)) <= kept)
        sizes.append(len(lines))
        assert done.trial == Trial.of(range(2, 10))
    assert [size - sizes[0] for size in sizes] == [0, 1, 5, 9]


@settings(max_examples=50, deadline=None)
@given(graphs(40), st.data(), st.sampled_from([linear, reduce]))
def test_any_answers_end_in_a_set_that_fails_whatever_the_workers(space, data, first) -> None:
    """A condition without any order in it: the answer still fails, and no single removal does."""
    seed = data.draw(st.integers(0, 10**6))

    def condition(kept: frozenset[int]) -> bool:
        return kept == space.whole.elements or hash((seed, tuple(sorted(kept)))) % 3 == 0

    ends = [drive(space, first(space), condition, workers, 7)[0] for workers in (1, 3)]
    assert ends[0] == ends[1]
    trial = ends[0].trial
    assert trial is not None
    assert condition(trial.elements)
    if ends[0].claim is Claim.ONE_MINIMAL and len(trial) > 1:
        assert not any(condition(trial.elements - {element}) for element in trial)
