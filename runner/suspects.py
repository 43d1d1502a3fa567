"""Suspects: tactics that bad builds chose and no good build did, layer by layer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.recordings import Choice, Recording


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
        return {
            "layer": self.choice.layer,
            "key": self.choice.key or None,
            "tactic": self.choice.tactic,
            "kernel": self.choice.kernel or None,
            "nodes": list(self.choice.nodes),
            "bad_builds": self.bad,
            "of": self.of,
            "good": dict(self.good),
        }


def suspects(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[Suspect, ...]:
    """Return the suspects, those of most bad builds first; among equals in the order of the builds.

    Layers are told by their names. Raises ValueError where the two sides name tactics in different ways.
    """
    if len({one.kind == "polygraphy" for one in (*good, *bad)}) > 1:
        raise ValueError("tactic replays of Polygraphy beside other recordings: they name tactics in different ways")
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    shown: dict[tuple[str, str], str] = {}
    for recording in good:
        for choice in _distinct(recording):
            seen[choice.layer][choice.tactic] += 1
            shown[choice.layer, choice.tactic] = choice.shown
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Choice] = {}
    for recording in bad:
        for choice in _distinct(recording):
            if choice.tactic not in seen.get(choice.layer, ()):
                place = choice.layer, choice.tactic
                counts[place] += 1
                first.setdefault(place, choice)
    return tuple(
        Suspect(
            first[place],
            count,
            len(bad),
            {shown[place[0], tactic]: times for tactic, times in seen.get(place[0], Counter()).most_common()},
        )
        for place, count in counts.most_common()
    )


def _distinct(recording: Recording) -> Sequence[Choice]:
    """The choices of a build, each once: an operator may be decided several times."""
    return list({(choice.layer, choice.tactic): choice for choice in recording.choices}.values())
