"""Suspects: tactics that bad builds chose and no good build did, layer by layer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner.errors import UsageError
from runner.jobs.tactics.recorded_tactics import Choice, Recording

# an operator's layer and key: several operators may bear one layer's name
_Operator = tuple[str, str]
_KEYS = "strategy.good, strategy.bad"


@dataclass(frozen=True)
class Suspect:
    """A choice that was only seen in bad builds.

    ``bad``: in how many of the ``of`` bad builds. ``good``: what good builds chose for this layer, and how often.
    """

    choice: Choice
    bad: int
    of: int
    good: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as result.json has it."""
        return {**self.choice.to_json(), "bad_builds": self.bad, "of": self.of, "good": dict(self.good)}


def suspects(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[Suspect, ...]:
    """Return the suspects, those of most bad builds first; among equals in the order of the builds.

    Operators are told by the layer's name and the key. Raises UsageError where the builds cannot be compared.
    """
    comparable(good, bad)
    choices = [choice for one in (*good, *bad) for choice in one.choices]
    names = {one.key: one.layer for one in choices if one.key and one.layer != one.key}
    seen: dict[_Operator, Counter[str]] = defaultdict(Counter)
    shown: dict[tuple[_Operator, str], str] = {}
    for recording in good:
        for (operator, tactic), choice in _distinct(recording, names).items():
            seen[operator][tactic] += 1
            shown[operator, tactic] = choice.shown
    counts: Counter[tuple[_Operator, str]] = Counter()
    first: dict[tuple[_Operator, str], Choice] = {}
    for recording in bad:
        for place, choice in _distinct(recording, names).items():
            operator, tactic = place
            if tactic not in seen.get(operator, ()):
                counts[place] += 1
                first.setdefault(place, replace(choice, layer=operator[0]))
    return tuple(
        Suspect(
            first[operator, tactic],
            count,
            len(bad),
            {shown[operator, other]: times for other, times in seen.get(operator, Counter()).most_common()},
        )
        for (operator, tactic), count in counts.most_common()
    )


def comparable(good: Sequence[Recording], bad: Sequence[Recording]) -> None:
    """Raise UsageError where recordings name tactics in different ways, or are of two models or two libraries.

    A recording that does not tell its model or its library is taken to be of the others'.
    """
    every = (*good, *bad)
    if len({one.kind == "polygraphy" for one in every}) > 1:
        raise UsageError(
            f"{_KEYS}: tactic replays of Polygraphy beside other recordings: they name tactics in different ways"
        )
    for noun, told in (("model", [one.model for one in every]), ("library", [one.library for one in every])):
        known = [(text, one.source) for text, one in zip(told, every, strict=True) if text]
        for text, source in known:
            if text != known[0][0]:
                raise UsageError(
                    f"{_KEYS}: {known[0][1]} is of {noun} {known[0][0]}, {source} of {noun} {text}: their tactics "
                    f"cannot be compared. Give builds of one {noun}"
                )


def _distinct(recording: Recording, names: Mapping[str, str]) -> Mapping[tuple[_Operator, str], Choice]:
    """The choices of a build, each once: an operator may be decided several times.

    ``names``: {key: layer} for a build that does not tell the names itself.
    """
    return {
        ((names.get(one.key, one.layer) if one.layer == one.key else one.layer, one.key), one.tactic): one
        for one in recording.choices
    }
