"""A user's number against that of a good model: how far a top-1 may fall, or a perplexity rise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runner.checkers.failure_measure import as_number
from runner.errors import UsageError
from runner.schema.checker import PythonChecker
from strategies.outcome import Outcome

VALUE = "value"
"""The key of the number in a verdict's metrics, and in a dict that a function returns."""


class Threshold:
    """``checker.max_drop`` or ``checker.max_rise`` beyond ``checker.baseline``, or beyond the first number that passed.

    Raises UsageError for limits that are none.
    """

    def __init__(self, settings: PythonChecker) -> None:
        given = {key: getattr(settings, key) for key in ("max_drop", "max_rise")}
        limits = {key: _limit(key, value) for key, value in given.items() if value is not None}
        if len(limits) > 1:
            raise UsageError(
                f"checker.max_drop={settings.max_drop} checker.max_rise={settings.max_rise}: is more better, or less? "
                "Give one of the two"
            )
        if settings.baseline is not None and (not limits or not math.isfinite(settings.baseline)):
            raise UsageError(
                f"checker.baseline={settings.baseline}: it is a finite number that checker.max_drop or "
                "checker.max_rise counts from; give one of the two besides"
            )
        self._key, self._amount, self._is_share = next(iter(limits.values()), ("", 0.0, False))
        self._baseline = settings.baseline

    @property
    def is_given(self) -> bool:
        """Whether the user's function returns a number that is held against a limit."""
        return bool(self._key)

    @property
    def lacks_baseline(self) -> bool:
        """Whether the first number has to be a good model's."""
        return self.is_given and self._baseline is None

    @property
    def allowed(self) -> float | None:
        """How far a number may move from the baseline; None where nothing limits it, or the baseline is not known."""
        if self._baseline is None or not self.is_given:
            return None
        return self._amount * abs(self._baseline) if self._is_share else self._amount

    def judge(self, numbers: Mapping[str, Any]) -> tuple[Outcome, str, float | None] | None:
        """Return the outcome of a number, why, and how far it is off in units of what is allowed.

        None where there is no number to judge; how far is None where nothing is known to count from.
        """
        value = numbers.get(VALUE)
        if not self.is_given or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        allowed = self.allowed
        if self._baseline is None or allowed is None:
            finite = math.isfinite(value)
            return (Outcome.PASS if finite else Outcome.FAIL), f"{value:g}, the baseline", None
        moved = self._baseline - value if self._key == "max_drop" else value - self._baseline
        shown = f"{self._amount:.4%}".rstrip("0%").rstrip(".") + "%" if self._is_share else f"{self._amount:.4g}"
        within = not math.isnan(moved) and moved <= allowed
        return (
            Outcome.PASS if within else Outcome.FAIL,
            f"{value:g}, where the baseline is {self._baseline:g} (checker.{self._key}={shown})",
            as_number(moved / allowed if allowed else moved),
        )

    def settle(self, numbers: Mapping[str, Any]) -> None:
        """Take the number of a good model for the baseline, unless one is given."""
        value = numbers.get(VALUE)
        if self.lacks_baseline and isinstance(value, int | float):
            self._baseline = float(value)


def _limit(key: str, given: Any) -> tuple[str, float, bool]:
    """Return the key, the limit and whether it is a share of the baseline."""
    text = str(given).strip()
    share = text.endswith("%")
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = -1.0
    if isinstance(given, bool) or not 0 <= amount < math.inf:
        raise UsageError(
            f"checker.{key}={given}: give a number that is not negative, 0.01, or a share of the baseline, 1%"
        )
    return key, (amount / 100 if share else amount), share
