"""A check that runs already, on a candidate that its judge is yet to ask about."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field

from runner.candidate import Candidate
from runner.checkers.command.command import CommandCheck
from runner.checkers.file_integrity import Seal
from runner.errors import WinnowError
from runner.verdict import Verdict
from runner.workers.guardian import Guardian

_SOON, _AGAIN = 0.001, 0.05
_START_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class BegunCheck:
    """The command runs in a thread; whoever takes the check waits for it, and all else happens then, as ever.

    ``seal``: the candidate's files before the check. ``of_file``: the stamp of the user's file before it was copied.
    """

    checker: CommandCheck
    candidate: Candidate
    seal: Seal
    guardian: Guardian
    of_file: tuple[int, ...] | None
    _ended: Future[Verdict] = field(default_factory=Future)
    _token: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(
        checker: CommandCheck, candidate: Candidate, seal: Seal, guardian: Guardian, of_file: tuple[int, ...] | None
    ) -> BegunCheck:
        """Begin the check, and return when its process runs.

        The caller goes on with imports: a thread that competes with these for the interpreter would start it late.
        """
        begun, others = BegunCheck(checker, candidate, seal, guardian, of_file), guardian.watched
        threading.Thread(target=begun._run, name="first check", daemon=True).start()
        for _ in range(int(_START_SECONDS / _SOON)):
            if guardian.watched > others or wait([begun._ended], _SOON).done:
                break
        return begun

    def take(self) -> bool:
        """Return whether nobody has taken this check before."""
        return self._token.acquire(blocking=False)

    def verdict(self) -> Verdict:
        """Wait for the end of the command and return what `CommandCheck.check` does, or raise what that raises.

        Raises WinnowError where the run's folder was removed meanwhile: others may have made it anew by now.
        """
        try:
            verdict = self._ended.result()
        finally:
            self._stop()  # an interruption ends it
        checks = self.candidate.folder.parent
        if not checks.is_dir():
            raise WinnowError(
                f"{checks.parent} is gone: something, perhaps the check, removed it during the first check"
            )
        return self.checker.concluded(self.candidate, verdict)

    def close(self) -> None:
        """End the command if it runs; of a check that nobody has taken nothing is left."""
        self._stop()
        if self.take():
            shutil.rmtree(self.candidate.folder, ignore_errors=True)
            with suppress(OSError):
                self.candidate.folder.parent.rmdir()

    def _run(self) -> None:
        with self.checker.starts_server_after():
            try:
                self._ended.set_result(self.checker.answer(self.candidate))
            except BaseException as error:  # noqa: BLE001 - for whoever takes the check
                self._ended.set_exception(error)

    def _stop(self) -> None:
        while not self._ended.done():  # again and again: it may be about to be started
            self.guardian.kill()
            wait([self._ended], _AGAIN)
