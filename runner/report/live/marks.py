"""The last outcomes, a mark each: a letter, and a color where there are any."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from strategies.outcome import Outcome

MARKS = {
    Outcome.PASS: ("P", "green"),
    Outcome.FAIL: ("F", "red"),
    Outcome.DIFFERENT: ("D", "yellow"),
    Outcome.UNRESOLVED: ("U", "magenta"),
}


def mark(outcome: Outcome) -> Text:
    """Return the mark of an outcome."""
    letter, color = MARKS[outcome]
    return Text(letter, f"bold {color}")


def marks(outcomes: Iterable[Outcome]) -> Text:
    """Return the marks of outcomes, the last one at the end."""
    return Text(" ").join(mark(one) for one in outcomes)


def legend(outcomes: Iterable[Outcome]) -> Text:
    """Return what the marks mean that are shown."""
    return Text(", ").join(Text.assemble(mark(one), f" {one.value}") for one in dict.fromkeys(outcomes))
