"""The files that a check consists of: a verdict that a changed script gave is no verdict of this run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from runner.checkers.command.template import digest
from runner.errors import CannotJudge
from runner.files import stamp
from strategies.outcome import Outcome

log = logging.getLogger(__name__)
_NONE: Mapping[str, Path] = {}


class Watched:
    """Files as they were when the check was made. Safe for threads.

    ``files``: by the words that name them. ``outputs``: those that the check itself may write; one that changes in the
    first check that passes, or in the first that fails, is no longer watched (a log of what passed). ``modules``: what
    it imports; of one that is gone its interpreter tells.
    ``run_folder``: for the message.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        run_folder: Path,
        outputs: frozenset[str] = frozenset(),
        modules: Mapping[str, Path] = _NONE,
    ) -> None:
        self._modules = {f"module {name}": path for name, path in modules.items()}
        files = self._files = {**files, **self._modules}
        self._outputs = outputs
        self._run_folder = run_folder
        self._stamps = {word: stamp(path) for word, path in files.items()}
        self.digests = {word: digest(path) for word, path in files.items()}
        self._seen: set[Outcome] = set()
        self._lock = threading.Lock()

    def confirm(self, judged: Outcome | None = None) -> None:
        """See that all are as they were; ``judged``: a check has just ended so. Raises CannotJudge where one is not."""
        with self._lock:
            for word, path in list(self._files.items()):
                now = stamp(path)
                if now == self._stamps[word] or (now is None and word in self._modules):
                    continue
                if now is not None and digest(path) == self.digests[word]:
                    self._stamps[word] = now
                elif judged and judged not in self._seen and word in self._outputs:
                    log.warning("%s: the check writes this file, so changes of it are not looked at", word)
                    del self._files[word]
                else:
                    self._refuse(word, path, gone=now is None)
            self._seen |= {judged} if judged else set()

    def _refuse(self, word: str, path: Path, *, gone: bool) -> None:
        what = "is no longer there" if gone else "was changed"
        raise CannotJudge(
            f"{word} {what} while the run was under way ({path}); what the check said since then was not taken. Put "
            f"it back as it was when the run began and go on with resume={self._run_folder}, or start a new run"
        )
