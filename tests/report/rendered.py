"""A report as Markdown, as REPORT.md has it."""

from __future__ import annotations

from collections.abc import Sequence

from runner.report.markdown import Shown, document_of
from runner.report.markup import to_markdown
from runner.report.summary import Summary

NOTHING = Shown()


def report(summary: Summary, command: Sequence[str] = (), shown: Shown = NOTHING) -> str:
    """Return the text of REPORT.md."""
    return to_markdown(document_of(summary, command, shown))
