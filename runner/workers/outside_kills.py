"""SIGKILLs that this job has not sent: memory may have run out because of others, so what was killed is tried again."""

from __future__ import annotations

from runner import machine
from runner.workers.guardian import Guardian


class Kills:
    """Counts the kills of one call or one command, over all its tries."""

    def __init__(self, guardian: Guardian) -> None:
        self._guardian, self._ours = guardian, guardian.kills
        self._before = -1  # how often the kernel had killed for want of memory before the second try; -1: none yet

    @property
    def foreign(self) -> bool:
        """Whether nothing was killed by this job itself meanwhile."""
        return self._guardian.kills == self._ours

    def again(self) -> bool:
        """Note a kill; return whether to try once more, which is so for the first."""
        if self._before >= 0:
            return False
        self._before = machine.oom_kills()
        return True

    @property
    def for_memory(self) -> bool:
        """Whether the kernel has killed for want of memory since the first kill was noted."""
        return machine.oom_kills() > self._before
