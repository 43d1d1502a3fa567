"""What was measured, as a table: a line for each model and tool, medians of all rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.beside_peer.tools import Measured

COLUMNS = (
    *("model", "nodes", "MB", "tool", "wall s", "CPU s", "times the first: wall, CPU", "beside checks, ms per check"),
    *("search + trust", "left", "exact", "job MB", "tree MB", "disk MB", "measured"),
)
RULE = "|---" * len(COLUMNS) + "|"


@dataclass
class Row:
    """All runs on one model, by tool; what others are compared with comes first. ``at``: where it stands in a plot."""

    group: str
    name: str
    nodes: int
    megabytes: float
    at: float
    runs: dict[str, list[Measured]] = field(default_factory=dict)
    measured: str = ""

    def middle(self, tool: str, figure: Callable[[Measured], float | None]) -> float | None:
        """Return the median of a figure over the runs that have one."""
        found = [value for value in map(figure, self.runs[tool]) if value is not None]
        return median(found) if found else None

    def seconds(self, tool: str) -> tuple[float, float] | None:
        """Return the medians of wall and CPU time; None where a run has no answer."""
        runs = self.runs[tool]
        if any(one.error for one in runs):
            return None
        return median(one.cost.wall for one in runs), median(one.cost.cpu for one in runs)

    def ratios(self, tool: str) -> tuple[float, float] | None:
        """Return how many times the first tool's wall and CPU time this one takes."""
        mine, first = self.seconds(tool), self.seconds(next(iter(self.runs)))
        return (mine[0] / first[0], mine[1] / first[1]) if mine and first else None


def lines(row: Row) -> list[str]:
    """Return the row's lines of the table."""
    return [_line(row, tool) for tool in row.runs]


def _line(row: Row, tool: str) -> str:
    runs = row.runs[tool]
    errors = [run.error for run in runs if run.error]
    if errors:
        cells = [errors[0].replace("|", "/"), "", "", ""]
    else:
        beside = row.middle(tool, lambda run: 1000 * run.beside / max(run.checks, 1))
        seconds, ratios = row.seconds(tool) or (), row.ratios(tool) or ()
        cells = [*(_text(one, 1) for one in seconds), ", ".join(_text(one, 2) for one in ratios), _text(beside, 0)]
    middle = row.middle
    search, trust = (middle(tool, figure) for figure in (lambda run: run.search, lambda run: run.trust))
    return _joined(
        *(row.name, f"{row.nodes:,}", _text(row.megabytes, 1), tool, *cells),
        *(f"{_text(search, 0)} + {_text(trust, 0)}", _text(middle(tool, lambda run: run.left), 0)),
        f"{sum(run.exact for run in runs)} of {len(runs)}",
        *(_text(middle(tool, lambda run: run.cost.job_mb), 0), _text(middle(tool, lambda run: run.cost.tree_mb), 0)),
        *(_text(middle(tool, lambda run: run.disk_mb), 1), row.measured),
    )


def header() -> list[str]:
    """Return the first two lines of the table."""
    return [_joined(*COLUMNS), RULE]


def page(title: str, notes: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a Markdown page of a table for each group."""
    parts = [f"# {title}", *notes]
    for group in dict.fromkeys(row.group for row in rows):
        table = [line for row in rows if row.group == group for line in lines(row)]
        parts += [f"## {group}", "\n".join([*header(), *table])]
    return "\n\n".join(parts) + "\n"


def _joined(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
