"""Who watches a run: log lines, and where the log goes to a terminal that shows it, a panel besides.

The panel has always the same few lines, each cut to the terminal's width.

Above it stand the lines that stay: what the log says besides single checks, a line for each phase that has ended, and
what a check said where nobody has seen that yet. Single checks are in the run's log file; ``verbosity=debug`` shows
their lines as well.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import rich
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from runner.report import progress
from runner.report.progress import Checked, LogObserver, Outline, clock_time
from runner.text import counted, duration, listed, one_line
from runner.verdict import CHECK_OUTPUT, Phase, in_words
from strategies.search import Outcome

_LOG = logging.getLogger(__name__)

# The last outcomes, a mark each: a letter, and a color where there are any.

MARKS = {
    Outcome.PASS: ("P", "green"),
    Outcome.FAIL: ("F", "red"),
    Outcome.DIFFERENT: ("D", "yellow"),
    Outcome.UNRESOLVED: ("U", "magenta"),
}


def mark(outcome: Outcome) -> Text:
    """Return the mark of an outcome."""
    letter, color = MARKS[outcome]
    return Text(letter, f"bold {color}")


REFRESHES = 3
"""How often a second what is shown is drawn."""
FEW_NAMES = 3
SHORT = 1.0
"""Seconds of a phase of which nobody needs a line."""
MOST_MARKS = 24
MOST_REASONS = 3
MOST_SAID = 12
"""So many different things that a check said are shown as they come up; a log has all."""
LONGEST_SAID = 160
_NUMBERS = re.compile(r"[0-9]+")


def _without_numbers(text: str) -> str:
    return _NUMBERS.sub("N", text)


class _WithoutChecks(logging.Filter):
    """Keeps the lines of single checks out of what is shown, for the panel has them, and output that was shown before.

    ``lines``: those of the output of checks that were shown, without their numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines = set[str]()
        self._shown = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        output = getattr(record, CHECK_OUTPUT, None)
        if output is None:
            return record.name != progress.__name__
        key = _without_numbers(output)
        if key in self._shown or len(self._shown) >= MOST_SAID:
            return False
        self._shown.add(key)
        self.lines.update(_without_numbers(one_line(line)[:LONGEST_SAID]) for line in output.splitlines())
        return True


class _Rewrapped(RenderHook):
    """Clears what a terminal that became narrower makes of the panel: it wraps lines, which take more rows then.

    Rich goes up by as many rows as it drew lines, and the first row of a wrapped line would stay for ever. ``widths``:
    of the lines that stand.
    """

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


class Panel(LogObserver):
    """Shows a panel on ``console``, which the log's handler prints on as well.

    ``shown``: the handlers whose lines the terminal shows.
    """

    def __init__(
        self,
        title: str,
        noun: str,
        outline: Outline,
        console: Console,
        shown: tuple[logging.Handler, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hidden, self._shown = _WithoutChecks(), shown
        for handler in shown:
            handler.addFilter(self._hidden)
        super().__init__(title, noun, outline)
        self._title, self.clock, self._began = title, clock, clock()
        self._phase, self._phase_began, self._in_phase = "", self._began, 0
        self._done, self._failed, self._last = 0, 0, self._began
        self._outcomes: deque[Outcome] = deque(maxlen=MOST_MARKS)
        self._best: tuple[int, tuple[str, ...]] | None = None
        self._of: object = None
        self._why, self._unresolved, self._said = Counter[str](), "", set[str]()
        self._live = Live(self, console=console, transient=True, refresh_per_second=REFRESHES)
        self._rewrapped = _Rewrapped(console)
        console.push_render_hook(self._rewrapped)  # before the panel's own, which takes down what was drawn
        self._live.start()

    def checked(self, told: Checked, kept: int) -> None:
        """Take a check in; the next drawing shows it."""
        super().checked(told, kept)
        verdict, outcome = told.verdict, told.verdict.outcome
        if in_words(told.phase) != self._phase:
            self._end_phase()
            self._phase, self._phase_began, self._in_phase = in_words(told.phase), self._last, 0
        self._in_phase += 1
        self._done += 1
        self._failed += outcome is Outcome.FAIL
        self._last = self.clock()
        self._outcomes.append(outcome)
        wanted = Phase.of(told.phase).searching and outcome is self.progress.outline.wanted
        if wanted and (self._best is None or self._of is not told.of or kept <= self._best[0]):
            self._best, self._of = (kept, told.names()), told.of
        if outcome is Outcome.UNRESOLVED:
            self._why[one_line(verdict.reason)] += 1
            why = (f"{count} x {reason}" for reason, count in self._why.most_common(MOST_REASONS))
            self._unresolved = f"unresolved: {'; '.join(why)}"
        self._say_new(told)

    def finished(self) -> None:
        """Take the panel down; the lines above it stay."""
        self._live.stop()
        self._live.console.pop_render_hook()
        for handler in self._shown:
            handler.removeFilter(self._hidden)

    # ---- lines that stay

    def _end_phase(self) -> None:
        """Say how long a phase took; of the pre-flight the log has said what it found."""
        seconds = self._last - self._phase_began
        if self._in_phase > 1 and seconds >= SHORT:
            checks = counted(self._in_phase, "check")
            self._live.console.print(Text(f"{self._phase}, {checks} in {clock_time(seconds)}", "dim"))

    def _say_new(self, told: Checked) -> None:
        """Show what a check said the first time that this line comes up; numbers in it do not count."""
        said = one_line(told.verdict.reason)[:LONGEST_SAID]
        plain = _without_numbers(said)
        key = f"{told.verdict.outcome.value} {plain}"
        if Phase.of(told.phase).begins and told.verdict.outcome is Outcome.FAIL:  # the log says so
            self._said.add(key)
        if not said or plain in self._hidden.lines or key in self._said or len(self._said) >= MOST_SAID:
            return
        self._said.add(key)
        outcome = told.verdict.outcome
        word = Text("no verdict" if outcome is Outcome.UNRESOLVED else outcome.value, mark(outcome).style)
        line = Text.assemble(f"check {told.iteration or '-'}, ", word, f": {said}")
        self._live.console.print(line, soft_wrap=True)

    # ---- the panel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as it stands now."""
        drawn = self.lines(options.max_width)
        for line in drawn:
            line.truncate(options.max_width, overflow="ellipsis")
            line.no_wrap = True
        self._rewrapped.widths = [line.cell_len for line in drawn]
        yield from drawn

    def lines(self, width: int) -> list[Text]:
        """Return its lines for a terminal that is so wide."""
        now = self.clock()
        head = f"{self._title}  {clock_time(now - self._began)}  {self._phase or 'getting ready'}"
        found = [Text("─" * min(width, 60), "dim"), Text(head, "bold"), Text(self._found())]
        found.append(Text(self._to_come(now)))
        shown = [*self._outcomes][-max((width - 40) // 2, 8) :]
        marks = Text(" ").join(map(mark, shown))
        legend = Text(", ").join(Text.assemble(mark(one), f" {one.value}") for one in dict.fromkeys(shown))
        found.append(Text.assemble("last: ", marks, "  (", legend, ")") if shown else Text("last: -"))
        if self._unresolved:
            found.append(Text(self._unresolved))
        return found

    def _found(self) -> str:
        if self.progress.outline.repeats:
            share = f" ({self._failed / self._done:.0%})" if self._done else ""
            return f"fails so far: {self._failed} of {self._done}{share}"
        if self._best is None:
            return f"of {self.counted(self.progress.outline.elements)}: nothing smaller yet"
        size, names = self._best
        whole = self.progress.outline.elements
        does = "fails" if self.progress.outline.wanted is Outcome.FAIL else "passes"
        named = f": {one_line(listed(names, FEW_NAMES))}" if names else ""
        return f"smallest that {does} so far: {size} of {self.counted(whole)}{named}"

    def _to_come(self, now: float) -> str:
        left, seconds = self.progress.left, self.progress.seconds(now - self._last)
        done = f"checks: {self._done} done"
        if not left:
            begins = not self.progress.outline.repeats and not self.progress.asked
            return f"{done}, how many are left is known after the pre-flight" if begins else done
        if seconds is None:
            return f"{done}, {left} left"
        of = " of this step" if self.progress.outline.step else ""
        return f"{done}, {left} left    time left{of}: about {duration(seconds)}"


# Who watches.


def observer(title: str, noun: str, outline: Outline, console: Console | None = None) -> LogObserver:
    """Return who watches a run. A quiet log (``verbosity=warning``) gets no panel either."""
    console = console or rich.get_console()
    if not shows_panel(console):
        return LogObserver(title, noun, outline)
    return Panel(title, noun, outline, console, () if _shows(logging.DEBUG) else tuple(_handlers()))


def shows_panel(console: Console) -> bool:
    """Whether a panel is shown there: it is a terminal that can draw one, and the log is not quiet."""
    return console.is_terminal and not console.is_dumb_terminal and _shows(logging.INFO)


def in_a_pipe() -> bool:
    """Whether lines go to no terminal, and ``verbosity=debug`` does not ask for all of them."""
    return not rich.get_console().is_terminal and not _shows(logging.DEBUG)


def _handlers() -> list[logging.Handler]:
    """Return the handlers whose lines reach the terminal: files get them all."""
    return [handler for handler in logging.getLogger().handlers if not isinstance(handler, logging.FileHandler)]


def _shows(level: int) -> bool:
    """Whether lines of this level reach the terminal, as ``verbosity`` says."""
    record = _LOG.makeRecord(_LOG.name, level, __file__, 0, "", (), None)
    return _LOG.isEnabledFor(level) and all(handler.filter(record) for handler in _handlers())


# What a terminal shows before the first check: that a model is read and values are recorded, and for how long.


def getting_ready(title: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> ExitStack:
    """Return what shows a line until it is closed, where a panel would be shown; closing it again does nothing."""
    console, shown, began = console or rich.get_console(), ExitStack(), clock()

    def line() -> Text:
        said = f"{title}  {clock_time(clock() - began)}  getting ready: reading the model, recording values"
        return Text(said, "bold", overflow="ellipsis", no_wrap=True)

    if shows_panel(console):
        live = Live(console=console, transient=True, refresh_per_second=REFRESHES, get_renderable=line)
        shown.enter_context(live)
    return shown
