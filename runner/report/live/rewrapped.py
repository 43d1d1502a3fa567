"""What a terminal that became narrower makes of lines that stand there: it wraps them, so that they take more rows.

Rich goes up by as many rows as it drew lines. Of a line that was wrapped since then the first row would stay for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.control import Control
from rich.segment import ControlType


class Rewrapped(RenderHook):
    """Clears the rows that Rich does not know of, whenever something is drawn. ``widths``: of the lines that stand."""

    def __init__(self, console: Console) -> None:
        self.widths: Sequence[int] = ()
        self._console = console

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Go up by the rows that wrapping has added since the lines were drawn, and clear them."""
        across = max(self._console.width, 1)
        added = sum((width - 1) // across for width in self.widths if width)
        # these rows are gone then; what is drawn next says what it draws
        self.widths = ()
        row = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))
        return [Control(*row * added), *renderables] if added else renderables
