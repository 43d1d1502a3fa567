"""How bad a failure is: the number that a check prints, found by ``checker.measure``."""

from __future__ import annotations

import math
import re

from runner.errors import UsageError
from runner.schema.checker import Better

LARGEST = 1e300
"""The largest number that is reported, in place of an infinity or a NaN: JSON has neither, and nothing is worse."""


class Measure:
    """A regular expression over what a check prints, and which way its numbers point.

    ``regex``: its first group, or all of it where it has none, is the number; None: nothing is measured. Raises
    UsageError for what is no regular expression.
    """

    def __init__(self, regex: str | None, better: Better = Better.lower) -> None:
        self._regex = compiled("measure", regex) if regex else None
        self.higher_is_better = better is Better.higher

    def of(self, text: str) -> float | None:
        """Return the worst number that is found; None where there is none."""
        if self._regex is None:
            return None
        found = [match[1] if match.re.groups else match[0] for match in self._regex.finditer(text)]
        worst = min if self.higher_is_better else max
        return worst((number for one in found if (number := self.number(one)) is not None), default=None)

    def number(self, value: object) -> float | None:
        """Return a number that JSON can hold; a NaN, or what is beyond all, is the worst. None for any other text."""
        number = as_number(value)
        return -LARGEST if number == LARGEST and self.higher_is_better else number


def as_number(value: object) -> float | None:
    """Return a number, or text that is one, as a float that JSON can hold; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return finite(float(value))
    except ValueError:
        return None


def finite(number: float) -> float:
    """Return a number that JSON can hold."""
    return LARGEST if math.isnan(number) else max(-LARGEST, min(LARGEST, number))


_EXAMPLES = {"measure": "measure='error ([0-9.e+-]+)'", "fail_regex": "fail_regex=['mismatch', 'NaN in .*']"}


def compiled(key: str, regex: str) -> re.Pattern[str]:
    """Return a regular expression of the settings. Raises UsageError for what is none."""
    try:
        return re.compile(regex, re.MULTILINE)
    except re.error as error:
        example = f"write it as checker.{_EXAMPLES[key]}"
        raise UsageError(f"checker.{key}: {regex!r} is no regular expression: {error}; {example}") from error
