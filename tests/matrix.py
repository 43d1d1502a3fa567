"""Rows of a test that says the same of many things: `make test` takes a fixed sample, `make test-all` the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

SLOW = pytest.mark.slow


def sample(rows: Iterable[Any], every: int) -> list[Any]:
    """Return the rows, all but each ``every``-th from the first on marked as slow."""
    return [row if at % every == 0 else slow(row) for at, row in enumerate(rows)]


def slow(row: Any) -> Any:
    """Return a row marked as slow. A tuple holds a value for each parameter."""
    if hasattr(row, "marks"):
        return pytest.param(*row.values, marks=[*row.marks, SLOW], id=row.id)
    return pytest.param(*row, marks=SLOW) if isinstance(row, tuple) else pytest.param(row, marks=SLOW)
