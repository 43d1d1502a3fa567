"""From the settings of a checker to the check. A configuration chooses among settings; it names no code to import."""

from __future__ import annotations

from runner.checkers.checker import Checker, Tools
from runner.errors import UsageError
from runner.schema.installed_choices import SCHEMAS, imported
from runner.schema.root import Settings


def build(settings: Settings, tools: Tools) -> Checker:
    """Make the checker that ``settings.checker`` is about.

    Raises UsageError for a name that is not known, or of another checker, and for settings that it cannot follow.
    """
    checker = settings.checker
    if checker.name not in SCHEMAS["checker"]:
        known = ", ".join(sorted(SCHEMAS["checker"]))
        raise UsageError(f"checker={checker.name}: there is no such checker; there are {known}")
    if checker.name != type(checker).name:
        raise UsageError(
            f"checker.name={checker.name} beside the settings of {type(checker).__name__}: choose it with "
            f"checker={checker.name}"
        )
    made: Checker = imported(f"checker={checker.name}", checker.implementation)(checker, tools, settings)
    return made
