"""Every question of each search as it is shown, and what two other workers would be asked.

A line has the elements, the answer, the phase, the label, how likely a yes is, and how many are left. ``spoken.txt``
has what was written down; with WINNOW_RENEW_BEHAVIOUR=1 a run of this test writes it down anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from strategies.bisect import bisect
from strategies.minimal import reduce
from strategies.precision import grow, precision
from strategies.registry import SEARCHES
from strategies.repeat import both
from strategies.search import Answer, Closure, First, Options, Prior, Search, Space, Step, Task, Trial
from tests.behaviour.test_behaviour import RENEW
from tests.strategies.transcript import Condition, answer, chain, needs

EXPECTED = Path(__file__).with_name("spoken.txt")
TREE = Space(tuple(range(24)), tuple((i // 2,) if i else () for i in range(24)))
PRIOR = Prior((5, 9, 20), (9, 5, 11, 20, 2), ((1, 5, 9), (2, 6, 10), (3, 7, 11)))
KINDS = Prior((), tuple(range(60, 0, -1)), tuple(tuple(range(first, 64, 6)) for first in range(6)))


def silent(*culprits: int) -> Condition:
    """Some questions have no answer."""
    return lambda kept: None if sum(kept) % 5 == 3 else set(culprits) <= kept


def fused(kept: frozenset[int]) -> bool:
    """What needs 3 and 12, and passes with one of their neighbors and without the other."""
    return {3, 12} <= kept and (4 in kept) == (11 in kept)


def many(kept: frozenset[int]) -> bool:
    return len(kept) > 17


def scenes() -> Iterator[tuple[str, Space, Step, Condition]]:
    told = Options(named=(3,), prior=PRIOR, until="6", start=11, coarse=(0, 8, 16, 23), label=lambda one: f"v{one}")
    sets = {"two": needs(5, 11), "silent": silent(5, 11), "fused": fused}
    histories: dict[str, Condition] = {"near": lambda kept: 3 < min(kept) < 18, "silent": silent(11), "all": needs()}
    for name, search in sorted(SEARCHES.items()):
        space = replace(TREE, order=TREE.order[:13]) if name == "linear" else TREE
        for how, condition in (histories if search.task is Task.HISTORY else sets).items():
            if (name, how) in (("minimal", "silent"), ("minimal", "fused")):  # which asks as `reduce` does
                continue
            yield f"{name}, {how}", space, search.begin(space, told), condition
    yield "named alone", TREE, reduce(TREE, named=(5, 11)), needs(5, 11)
    yield "named, many", TREE, reduce(TREE, 40, named=tuple(range(7))), needs(2, 5)
    yield "hardly an answer", TREE, reduce(TREE, 4), lambda kept: None if sum(kept) % 3 else {3, 11, 12} <= kept
    yield "one more check", TREE, reduce(TREE, 1), needs(3, 4, 12)
    yield "named, with neighbors", TREE, reduce(TREE, named=(5,)), needs(5, 11)
    for closure in Closure:
        space = Space(TREE.order, TREE.parents, closure)
        yield f"from the start, {closure.name}", space, reduce(space, 12, First.START), needs(5, 11)
        yield f"window, {closure.name}", space, bisect(space, First.START), silent(5, 11)
    yield "by kinds", chain(64), precision(chain(64), KINDS), needs(3, 40)
    yield "few by kinds", chain(32), precision(chain(32), KINDS), needs(3, 25)
    yield "kinds of one", chain(64), precision(chain(64), Prior(kinds=KINDS.kinds[:1])), needs(3, 40)
    yield "many are needed", TREE, precision(TREE, Prior()), many
    yield "ranges tell the truth", TREE, precision(TREE, PRIOR), needs(*PRIOR.suspects)
    yield "grown from nothing", TREE, grow(TREE, Trial.of([]), Prior((), PRIOR.ranking)), needs(5, 11)
    yield "one exaggerates", TREE, precision(TREE, PRIOR), needs(5, 20)
    yield "grown", TREE, grow(TREE, Trial.of([5]), Prior((20,), (9, 11))), needs(5, 9, 11)
    yield "grown by kinds", chain(64), grow(chain(64), Trial.of([5]), KINDS), needs(3, 5, 40)
    yield "each release", TREE, SEARCHES["nearest"].begin(TREE, Options(start=2, exhaustive=True)), silent(2)
    yield "until good", TREE, SEARCHES["repeat"].begin(TREE, Options(until="good")), lambda kept: 3 not in kept
    yield "both", TREE, both(4), lambda _: True


def spoken(space: Space, first: Step, condition: Condition) -> Iterator[str]:
    search = Search(space, first, {space.whole: Answer.YES})
    while not search.done:
        one, *others = search.ask(3)
        found = answer(condition, one.trial)
        assert ((one,), one.left, one) == (search.ask(), search.remaining, search.next)
        then = " or ".join(other.trial.ranges for other in others)
        yield f"{one.trial.ranges} {found.value}: {one.phase}, {one.label}; {one.likely:.3g}, {one.left} left; {then}"
        search.tell(one.trial, found)
    end = search.done
    yield f"{end.trial and end.trial.ranges}, {end.claim.value}, {end.unanswered} unanswered. {end.note}".rstrip()


def test_each_question_is_what_was_written_down() -> None:
    parts = ["\n".join([f"--- {name}", *spoken(*scene)]) for name, *scene in scenes()]  # type: ignore[arg-type]
    if os.environ.get(RENEW):
        EXPECTED.write_text("\n\n".join(parts) + "\n")
    assert parts == EXPECTED.read_text().rstrip().split("\n\n")
