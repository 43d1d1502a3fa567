"""The ending of a session."""

from __future__ import annotations

from dataclasses import dataclass

from runner.judgment import Status, Whose
from runner.session.cause import Cause
from runner.session.stage import Standing
from runner.verdict import Signature
from strategies.search import Done
from strategies.trial import Trial


@dataclass(frozen=True)
class Ending:
    """How a session ended.

    ``standing``: the answer; ``main``: its trial before it was refined. ``min_good``: the passing trial that differs
    least from a failing one. ``drift``: how the message of the answer's failure differs from that of the whole model's.
    ``measures``: of an answer that was made simpler, how bad it is by the check, before that and now.
    ``cause``: what is known about the cause, None: it was not asked. ``whose``: whose failure it is, where no cause
    says it. ``code``: the exit code where it is not the status's own.
    """

    status: Status
    message: str
    done: Done | None = None
    standing: Standing | None = None
    min_good: Trial | None = None
    signature: Signature | None = None
    remaining: int = 0
    main: Trial | None = None
    cause: Cause | None = None
    drift: str = ""
    measures: tuple[float, float] | None = None
    code: int | None = None
    whose: Whose | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the run."""
        return self.status.exit_code if self.code is None else self.code

    @property
    def trial(self) -> Trial | None:
        """The trial of the answer."""
        return self.standing.trial if self.standing else None
