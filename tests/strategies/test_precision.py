"""Which elements have to be raised: exact transcripts, and the bound on questions for any set and any ranking."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.precision import cheapest, precision
from strategies.search import Claim, Prior, Trial
from tests.strategies.transcript import needs, plain, transcript


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(20, 600),
    size=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    missed=st.integers(0, 3),
    extra=st.integers(0, 20),
)
def test_any_set_with_any_prior_is_found_within_the_bound(
    count: int, size: int, seed: int, missed: int, extra: int
) -> None:
    random = Random(seed)
    need = random.sample(range(count), size)
    ranking = random.sample(range(count), count)
    suspects = tuple({*need[missed:], *random.sample(range(count), extra)}) if seed % 2 else ()
    space = plain(count)
    lines, done = transcript(space, precision(space, Prior(suspects, tuple(ranking))), needs(*need))
    assert done.trial == Trial.of(need)
    bound = 1.5 * math.log2(math.comb(count, size)) + 2 * size + 5
    assert len(lines) <= bound + (2 * len(suspects) if suspects else 0)


def test_what_costs_most_is_left_out_first() -> None:
    """Either 1 or 2 will do beside 0."""
    condition = lambda kept: 0 in kept and bool({1, 2} & kept)  # noqa: E731
    for dear, cheap in ((1, 2), (2, 1)):
        space = cheapest(plain(3), {dear: 5.0, cheap: 1.0})
        _, done = transcript(space, precision(space, Prior((0, 1, 2), ())), condition)
        assert done.trial == Trial.of([0, cheap])


@settings(max_examples=75, deadline=None)
@given(
    st.integers(2, 24),
    st.sampled_from(["ranges", "ranking", "nothing"]),
    st.randoms(use_true_random=False),
    st.floats(0, 0.6),
)
def test_what_is_called_1_minimal_has_a_no_for_each_removal(size, known, random, rate) -> None:
    need = frozenset(random.sample(range(size), random.randint(1, min(4, size))))
    suspects = tuple(sorted(need | {random.randrange(size)})) if known == "ranges" else ()
    ranking = tuple(random.sample(range(size), size)) if known == "ranking" else ()
    answers: dict[frozenset[int], bool | None] = {}

    def told(kept: frozenset[int]) -> bool | None:
        if kept not in answers:
            answers[kept] = None if random.random() < rate else need <= kept
        return answers[kept]

    space = plain(size)
    _, done = transcript(space, precision(space, Prior(suspects, ranking)), told)
    assert done.trial is not None
    if done.claim is Claim.ONE_MINIMAL and len(done.trial) > 1:
        assert all(answers[done.trial.elements - {element}] is False for element in done.trial)
