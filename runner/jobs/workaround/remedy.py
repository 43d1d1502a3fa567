"""A remedy: one thing that may keep a failure away, with all that it takes to try it and to apply it."""

from __future__ import annotations

import json
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
