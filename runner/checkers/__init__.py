"""How a candidate is judged: each checker turns a candidate into a verdict."""

from __future__ import annotations

from runner.checkers.checker import Checker, Tools
from runner.checkers.interactive import Undo
from runner.checkers.registry import BUILDERS, build

__all__ = ["BUILDERS", "Checker", "Tools", "Undo", "build"]
