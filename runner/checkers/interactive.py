"""A person judges, at the terminal."""

from __future__ import annotations

import logging
import sys
import threading
import time

from runner.checkers.checker import Checker, Tools
from runner.checkers.command import placing
from runner.exit_codes import UsageError
from runner.schema.checker import InteractiveChecker
from runner.text import counted
from runner.verdict import Candidate, Phase, Signature, Verdict
from strategies.search import Outcome

log = logging.getLogger(__name__)

QUESTION = "[p]ass / [f]ail / [d]ifferent failure / [s]kip / [u]ndo? "
_ANSWERS = {"p": Outcome.PASS, "f": Outcome.FAIL, "d": Outcome.DIFFERENT, "s": Outcome.UNRESOLVED}


class Undo(Exception):  # noqa: N818 - not an error: the person takes the last answer back
    """Raised by `InteractiveCheck.check`: the answer before this question is to be forgotten and asked again."""


class InteractiveCheck(Checker):
    """``checker=interactive``: prints where the candidate lies and asks; the first letter of the answer counts.

    Raises UsageError when it is built without a terminal. `check` raises `Undo`, and KeyboardInterrupt at the end of
    input (the run ends cleanly and can go on later).
    """

    name = "interactive"
    wants_feeds = False

    def __init__(self, settings: InteractiveChecker, tools: Tools, _run: object = None) -> None:
        if not sys.stdin.isatty():
            raise UsageError(
                "checker=interactive needs a terminal: standard input is not one. Run it from a terminal, or let a "
                "command judge: checker=command checker.command='python check.py {model}'"
            )
        self._settings = settings
        self._placed = placing(settings, tools)
        # one question at a time, whatever the number of workers
        self._alone = threading.Lock()

    def check(self, candidate: Candidate) -> Verdict:
        """Ask until the answer is one of the letters."""
        with self._alone, self._placed(candidate.model):
            return self._ask(candidate)

    def identity(self) -> dict[str, str]:
        """A person."""
        return {"checker": self.name}

    def describe(self) -> str:
        """What is asked."""
        return QUESTION.strip()

    def _ask(self, candidate: Candidate) -> Verdict:
        started = time.monotonic()
        where = self._settings.place or candidate.engine or candidate.model or candidate.folder
        nodes = counted(len(candidate.nodes), "node") if candidate.nodes else ""
        told = (
            "" if nodes and candidate.phase not in (Phase.CAUSE, Phase.CONTROL) else candidate.label or candidate.phase
        )
        what = ", ".join(filter(None, (nodes, told)))
        sys.stdout.write(f"\n{where}\nmodel {candidate.iteration}: {what}\n")
        while True:
            sys.stdout.flush()
            try:
                letter = input(QUESTION).strip().lower()[:1]
            except EOFError as error:
                raise KeyboardInterrupt("end of input: no more answers") from error
            if letter == "u":
                raise Undo
            if letter in _ANSWERS:
                break
            sys.stdout.write("Please answer with the first letter of one of these.\n")
        outcome = _ANSWERS[letter]
        signature = Signature("check", "answer") if outcome is Outcome.FAIL else None
        reason = "skipped by the person asked" if outcome is Outcome.UNRESOLVED else ""
        return Verdict(outcome, signature, reason, seconds=time.monotonic() - started)
