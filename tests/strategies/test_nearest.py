"""The nearest element without a property, on either side of one that has it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.nearest_release import each, nearest
from strategies.search import Answer, Search, Space, Step, Trial


def asked(history: str, start: int, step: Step) -> dict[int, str]:
    """Answer from ``history`` (b: has it, g: has it not, ?: no answer); return what was asked."""
    search, told = Search(Space(tuple(range(len(history)))), step), {start: history[start]}
    while not search.done:
        (ask,) = search.ask()
        (element,) = ask.trial
        told[element] = history[element]
        answer = {"b": Answer.YES, "g": Answer.NO, "?": Answer.UNKNOWN}[history[element]]
        search.tell(Trial.of([element]), answer)
    return told


def around(told: dict[int, str], start: int) -> tuple[int | None, int | None]:
    good = [element for element, said in told.items() if said == "g"]
    return max((one for one in good if one < start), default=None), min(
        (one for one in good if one > start), default=None
    )


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.data())
def test_one_span_has_exact_ends(before: int, after: int, span: int, data: st.DataObject) -> None:
    history = "g" * before + "b" * span + "g" * after
    start = before + data.draw(st.integers(0, span - 1))
    told = asked(history, start, nearest(tuple(range(len(history))), start))
    assert around(told, start) == (before - 1 if before else None, before + span if after else None)
    assert len(told) <= 1 + 2 * 2 * (max(span, before, after).bit_length() + 1)


@given(st.text("bg?", min_size=1, max_size=40), st.data())
def test_any_history_ends_beside_what_has_it(history: str, data: st.DataObject) -> None:
    """Where only some are searched at first, a good one lies beside a bad one all the same."""
    start = data.draw(st.integers(0, len(history) - 1))
    history = f"{history[:start]}b{history[start + 1 :]}"
    order = tuple(range(len(history)))
    some = data.draw(st.none() | st.sets(st.sampled_from(order)))
    coarse = {} if some is None else {"coarse": tuple(sorted(some))}
    told = asked(history, start, data.draw(st.sampled_from([nearest, each]))(order, start, **coarse))
    for good, way in zip(around(told, start), (1, -1), strict=True):
        if good is None:  # all that answer were asked and have it, or the last one that answers has
            answering = [at for at in range(start, -1 if way == 1 else len(history), -way) if history[at] != "?"]
            assert told[answering[-1]] == "b"
            continue
        neighbor = good + way
        while history[neighbor] == "?":
            neighbor += way
        assert told.get(neighbor) == "b", "what is next to a good one, towards the start, has the property"


def test_few_are_asked_where_most_are_left_out_at_first() -> None:
    history = "g" * 70 + "b" * 60 + "g" * 70
    told = asked(history, 100, nearest(tuple(range(200)), 100, coarse=tuple(range(9, 200, 10))))
    assert around(told, 100) == (69, 130) and len(told) <= 20


def test_distances_double_and_then_halve() -> None:
    order = tuple(range(33))
    assert list(asked("b" * 30 + "g" * 3, 0, nearest(order, 0))) == [0, 1, 3, 7, 15, 31, 23, 27, 29, 30]
    assert Search(Space(order), nearest(order, 0)).remaining == 2
    assert Search(Space(order), each(order, 0)).remaining == 32
