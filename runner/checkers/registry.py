"""From the settings of a checker to the check. A configuration chooses among settings; it names no code to import."""

from __future__ import annotations

from runner.checkers.checker import Checker, Tools
from runner.schema.installed_choices import implementation
from runner.schema.root import Settings


def build(settings: Settings, tools: Tools) -> Checker:
    """Make the checker that ``settings.checker`` is about.

    Raises UsageError for a name that is not known, or of another checker, and for settings that it cannot follow.
    """
    made: Checker = implementation("checker", settings.checker)(settings.checker, tools, settings)
    return made
