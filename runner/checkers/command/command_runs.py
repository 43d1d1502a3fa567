"""One run of a check's command: as a process of its own, or forked, and again where that alone may be why it ended."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.checkers.checker import Tools
from runner.checkers.command.exit_rules import SHELL_KILLED
from runner.checkers.command.preloaded import Preloaded
from runner.errors import CannotJudge
from runner.schema.checker import CommandChecker, Flaky
from runner.workers.fork_server import ForkServer
from runner.workers.outside_kills import Kills
from runner.workers.reply import KILLED, OUT_OF_MEMORY
from runner.workers.run_command import CommandEnd, run_command


class CommandRuns:
    """Runs the command of a check within its limits. Safe for threads. ``words``: the command's, with placeholders."""

    def __init__(self, settings: CommandChecker, words: Sequence[str], tools: Tools) -> None:
        self._settings = settings
        self._tools = tools
        self._never_forked = settings.flaky is Flaky.always
        self.preloaded = Preloaded(
            words,
            settings.preload,
            cwd=tools.cwd,
            env=self._environment(),
            guardian=tools.guardian,
            unasked=not self._never_forked and settings.measure is None,
        )
        tools.ending.callback(self.preloaded.close)

    def run(self, argv: Sequence[str], own: Mapping[str, str], log: Path, *, fresh: bool) -> CommandEnd:
        """Run ``argv``; where it is killed, twice: the kernel may have meant a neighbor.

        A check that is forked and does not end by itself runs again in a process of its own, and that counts: what was
        imported before the fork may be why. Where modules were preloaded that nobody has named, none is forked after
        one that was so killed, or that ended its server. ``own``: this check's environment beside what all have.
        ``fresh``: it is not forked. Raises CannotJudge where it ends a server that was asked for.
        """
        kills, seconds = Kills(self._tools.guardian), 0.0
        fresh = fresh or self._never_forked
        while True:
            server: ForkServer | None = None
            try:
                with self.preloaded.server(argv, fresh=fresh) as server, self._tools.pool.user_lease() as lease:
                    end = run_command(
                        argv,
                        cwd=self._tools.cwd,
                        env={**self._environment(), **own},
                        timeout=self._settings.timeout,
                        memory_mb=self._settings.memory_mb,
                        log=log,
                        guardian=self._tools.guardian,
                        lease=lease,
                        server=server,
                    )
            except CannotJudge as error:
                if server and not server.alive and self.preloaded.given_up(str(error)):
                    fresh = True
                    continue
                raise
            seconds += end.seconds
            end = dataclasses.replace(end, seconds=seconds)
            if (end.death or end.cannot_start) and kills.foreign:
                unasked = self.preloaded.given_up(end.death or end.cannot_start or "")
                if server and (end.death or unasked):
                    fresh = True
                    continue
            if not (end.death == KILLED or end.returncode == SHELL_KILLED) or not kills.foreign:
                return end
            if not kills.again():
                return dataclasses.replace(end, death=OUT_OF_MEMORY) if kills.for_memory else end

    def _environment(self) -> dict[str, str]:
        """Return what all checks have in their environment."""
        # what a check prints and what it raises come in the order in which they happened
        return {"PYTHONUNBUFFERED": "1", **os.environ, **self._settings.env}
