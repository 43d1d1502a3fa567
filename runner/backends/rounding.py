"""Another name of `runner.backends.emulation.rounding`, which checks of users import."""

from __future__ import annotations

from runner.backends.emulation.rounding import session, write

__all__ = ["session", "write"]
