"""A remedy: one thing that may keep a failure away, all that it takes to try and to apply it, and what came of that."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.candidate import Variant
from runner.model.graph.edits import Edit

_KINDS = ("pass", "tactic", "rewrite", "precision", "release")
"""Those first that change least, where they cost the same."""
_ALIKE = 10.0
"""Errors that are so many times apart count as one."""
_NO_ERROR = 1e-4
"""An error that is so small a part of what the check allows counts as none."""
_NOISE = 1.2
"""Times whose ratio is smaller count as one."""


@dataclass(frozen=True)
class Remedy:
    """``kind``: pass, precision, release, tactic or rewrite. ``what``: one line for people.

    ``variant``: what runs the model, where that is otherwise; ``edits``: of the model. ``overrides``, ``code``: how
    Winnow and anybody else apply it (of edits: how the model is changed). ``environment``: what the interpreter of the
    variant holds. ``why_not``: why it cannot be tried at all, "" where it can. ``places``: how many of the model it
    changes; one that sets something else counts as one.
    """

    kind: str
    what: str
    variant: Variant = field(default_factory=Variant)
    edits: tuple[Edit, ...] = ()
    overrides: tuple[str, ...] = ()
    code: str = ""
    environment: str = ""
    why_not: str = ""
    places: int = 1

    def identity(self) -> str:
        """Return all that a verdict on it depends on."""
        settings: Mapping[str, Any] = self.variant.settings
        told = [self.kind, self.what, settings, self.variant.python, self.code, self.environment, self.why_not]
        return json.dumps(told, default=str)


@dataclass
class Tried:
    """A remedy that was tried. ``passed``, ``of``: samples of this ``kind``.

    ``tried``: false where it could not be tried at all, which says nothing about it. ``error``: the check's measure of
    what is still wrong with it, None where there is none: of a comparison, as a part of what is allowed. ``where``: in
    words, where it was verified and only there; "": nothing is known by which it would fail elsewhere.
    """

    remedy: Remedy
    passes: bool = False
    passed: int = 0
    of: int = 0
    kind: str = "recorded"
    latency: Mapping[str, Any] | None = None
    files: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    why_not: str = ""
    tried: bool = True
    error: float | None = None
    where: str = ""

    @property
    def cost(self) -> tuple[bool, float]:
        """How long it takes, as a part of the time without it where that is known; what was not measured is last."""
        latency = self.latency or {"after_ms": math.inf, "ratio": None}
        return (latency["ratio"] is None, latency["after_ms"] if latency["ratio"] is None else latency["ratio"])

    def to_json(self) -> dict[str, Any]:
        """Return what result.json says of it."""
        return {
            "kind": self.remedy.kind,
            "what": self.remedy.what,
            "tried": self.tried,
            "passes": self.passes,
            "samples": {"passed": self.passed, "of": self.of, "kind": self.kind},
            "where": self.where,
            "places": self.remedy.places,
            "latency": self.latency,
            "overrides": list(self.overrides),
            "code": self.remedy.code,
            "files": list(self.files),
            "why_not": self.why_not,
        }


def ranked(tried: Iterable[Tried]) -> list[Tried]:
    """Return what passes before what does not.

    Of these first what leaves as little wrong as the best does: what passes narrowly may heal one place of several.
    Then what changes the fewest places, of these what costs least, and of what costs the same the gentler kind.
    """
    tried = list(tried)
    good = [one for one in tried if one.passes]
    least = min((one.error for one in good if one.error is not None), default=0.0)
    allowed = max(_ALIKE * least, _NO_ERROR)
    step: dict[int, tuple[bool, float]] = {}
    first = (False, 0.0)
    for one in sorted(good, key=lambda one: one.cost):
        unknown, cost = one.cost
        if (unknown, cost) > (first[0], first[1] * _NOISE):
            first = one.cost
        step[id(one)] = first
    good.sort(
        key=lambda one: (
            (one.error or 0.0) > allowed,
            one.remedy.places,
            step[id(one)],
            _KINDS.index(one.remedy.kind),
        )
    )
    return good + [one for one in tried if not one.passes]
