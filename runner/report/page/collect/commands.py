"""The exact commands that go on from a run: the same again, resume, reproduce, replay, recheck."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from runner.judgment import Status
from runner.program_name import without_values
from runner.report.page.data import PageCommand
from runner.report.replay import REPLAY_NAME
from runner.report.repro.write import REPRO_NAME
from runner.report.summary import Summary


def program_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words by which Winnow was called."""
    return tuple(command[:3]) if tuple(command[1:2]) == ("-m",) else tuple(command[:1])


def commands_of(folder: Path, summary: Summary, command: Sequence[str]) -> list[PageCommand]:
    """Return what can be done with a run's folder. ``command``: what was typed; secret values are left out."""
    if not command:
        return []
    program, model = program_of(command), summary.model or ""
    answer = (folder / model).parent  # of a triage it is a step's
    found = [("Run it again", shlex.join(without_values(command)))]
    if summary.status == Status.interrupted:
        found.append(("Go on where it stopped", shlex.join([*program, "resume", str(folder)])))
    if (folder / REPLAY_NAME).is_file():
        words = [*program, str(folder / REPLAY_NAME)]
        found.append(("Run it again with the same settings, and see what has changed", shlex.join(words)))
    if model and (answer / REPLAY_NAME).is_file():
        words = [*program, "recheck", str(answer)]
        found.append(("Check the kept model again", shlex.join(words)))
    if model and (answer / REPRO_NAME).is_file():
        found.append(("Show the failure without Winnow", f"cd {shlex.quote(str(answer))} && python {REPRO_NAME}"))
    return [{"what": what, "command": words} for what, words in found]
