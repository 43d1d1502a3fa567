"""A remedy: one thing that may keep a failure away, all that it takes to try and to apply it, and what came of that."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.candidate import Variant
from runner.jobs.workaround.edits import Edit


@dataclass(frozen=True)
class Remedy:
    """``kind``: pass, precision, release, tactic or rewrite. ``what``: one line for people.

    ``variant``: what runs the model, where that is otherwise; ``edits``: of the model. ``overrides``, ``code``: how
    Winnow and anybody else apply it (of edits: how the model is changed). ``environment``: what the interpreter of the
    variant holds. ``why_not``: why it cannot be tried at all, "" where it can.
    """

    kind: str
    what: str
    variant: Variant = field(default_factory=Variant)
    edits: tuple[Edit, ...] = ()
    overrides: tuple[str, ...] = ()
    code: str = ""
    environment: str = ""
    why_not: str = ""

    def identity(self) -> str:
        """Return all that a verdict on it depends on."""
        settings: Mapping[str, Any] = self.variant.settings
        told = [self.kind, self.what, settings, self.variant.python, self.code, self.environment, self.why_not]
        return json.dumps(told, default=str)


@dataclass
class Tried:
    """A remedy that was tried. ``passed``, ``of``: samples of this ``kind``."""

    remedy: Remedy
    passes: bool = False
    passed: int = 0
    of: int = 0
    kind: str = "recorded"
    latency: Mapping[str, Any] | None = None
    files: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def cost(self) -> tuple[bool, float]:
        """Where it stands: what passes comes first, what costs least before what costs more.

        In steps of a fifth, which is more than a clock errs by: among equals that comes first which was tried first.
        """
        latency = self.latency or {}
        measured = latency.get("ratio") or latency.get("after_ms")
        return (not self.passes, round(5 * math.log(measured)) if measured else math.inf)

    def to_json(self) -> dict[str, Any]:
        """Return what result.json says of it."""
        return {
            "kind": self.remedy.kind,
            "what": self.remedy.what,
            "passes": self.passes,
            "samples": {"passed": self.passed, "of": self.of, "kind": self.kind},
            "latency": self.latency,
            "overrides": list(self.overrides),
            "code": self.remedy.code,
            "files": list(self.files),
            "why_not": self.why_not,
        }
