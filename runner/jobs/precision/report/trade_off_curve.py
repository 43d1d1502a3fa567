"""The trade-off curve: the least error over the number of raised nodes, of all checks of a precision search."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runner.journal.journal_lines import Entry
from strategies.trial import Trial

Curve = list[list[float]]


def curve(entries: Iterable[Entry], raised: Callable[[Trial], int] = len) -> Curve:
    """Return [nodes raised, error / tolerance] by the number of nodes; of each number the set with the least error.

    ``raised`` counts the nodes of a trial. Checks that measured no error (another checker's, or one that met a NaN) are
    none of its points.
    """
    least: dict[int, float] = {}
    for entry in entries:
        error, limit = entry.verdict.metrics.get("error"), entry.verdict.metrics.get("limit")
        failed = entry.verdict.signature
        if entry.attempt or not isinstance(error, int | float) or not isinstance(limit, int | float) or limit <= 0:
            continue
        if failed is not None and failed.kind != "mismatch":
            continue
        count = raised(entry.trial)
        least[count] = min(least.get(count, error / limit), error / limit)
    return [[count, least[count]] for count in sorted(least)]
