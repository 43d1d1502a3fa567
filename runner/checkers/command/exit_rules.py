"""What a command's exit code and output mean: a pure function of both and of the user's lists."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from itertools import combinations

from runner.checkers.command.tracebacks import OWN_WORDS, uncaught
from runner.checkers.failure_measure import compiled
from runner.checkers.failure_text import last_line, normalize
from runner.errors import NotTried, UsageError
from runner.schema.checker import CommandChecker
from runner.verdict import CAUGHT, LISTED, NO_IMPORT, NOT_RUN, Signature, Verdict
from runner.workers.process_death import death_of
from runner.workers.reply import OUT_OF_MEMORY, refused_memory, shortage
from runner.workers.run_command import CommandEnd
from strategies.outcome import Outcome

_DEADLY = ("ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "SEGV")
# a shell reports its child's death by signal N as 128 + N
SHELL_KILLED = 128 + signal.SIGKILL
_SHELL_DEATHS = {128 + getattr(signal, f"SIG{name}"): death_of(-getattr(signal, f"SIG{name}")) for name in _DEADLY}
# the command did not get as far as checking anything: its interpreter or its option parser refused
_REFUSED = re.compile(
    r"^.*(?:can't open file .*\[Errno|unrecognized arguments?:|unrecognized option|unknown option"
    r"|invalid option|illegal option|the following arguments are required:).*$",
    re.MULTILINE,
)
_NO_MODULE = re.compile(
    r"^(?:\S*python\S*: No module named .*|(?:SyntaxError|IndentationError|TabError): .*)$", re.MULTILINE
)
# whatever ended the pipeline, and with which code: Python did not find what it was told to run
NO_SCRIPT = re.compile(r"^\S*python[\w.]*: can't open file .*\[Errno.*$", re.MULTILINE)
_NO_TESTS = re.compile(
    r"^(?:ERROR: (?:file or directory not found|usage|not found): .*|.*\bno tests ran\b.*)$", re.MULTILINE
)
REFUSALS: Mapping[int, re.Pattern[str]] = {1: _NO_MODULE, 2: _REFUSED, 4: _NO_TESTS, 5: _NO_TESTS, 64: _REFUSED}


class ExitRules:
    """The rules, in this order.

    1. cannot start, or exit 126 / 127 or an interpreter's or option parser's refusal that no list names: UNRESOLVED;
    2. time-out, memory: FAIL with that signature; 3. ``invalid_codes``: UNRESOLVED; 4. ``different_codes``: DIFFERENT;
    5. ``pass_codes``: PASS; 6. death by a signal that neither ``fail_codes`` nor a regular expression claims: FAIL with
    that signature; 7. ``fail_codes`` given: FAIL if the code is one of them and (if there are any) a regular
    expression is found; 8. only regular expressions: FAIL if one is found, whatever the code; 9. else FAIL unless the
    code is 0.

    A check that an exception ended is looked at closer, since Python's code for any exception is 1. What such an
    ending says goes into the failure's signature (`relative` then compares it with that of the whole model), except
    where a regular expression is found outside of the exception's own text: that is the user's word. An import that
    failed is UNRESOLVED, and so is what would PASS although feeds did not fit: such a check has judged nothing. Of a
    listed failure words on shapes and keys are no exception.

    Raises UsageError if lists overlap, for ``pass_codes`` beside ``fail_codes``, and for an invalid regular expression.
    """

    def __init__(self, settings: CommandChecker) -> None:
        names = ("pass_codes", "fail_codes", "different_codes", "invalid_codes")
        lists = {name: frozenset(getattr(settings, name)) for name in names}
        self._pass, self._fail, self._different, self._invalid = lists.values()
        if self._pass and self._fail:
            raise UsageError(
                "checker.pass_codes and checker.fail_codes exclude each other: with fail_codes every other code "
                "passes, with pass_codes every other code fails. Give one of them; different_codes and invalid_codes "
                "go with both"
            )
        for (one, codes), (other, others) in combinations(lists.items(), 2):
            if both := sorted(codes & others):
                raise UsageError(f"checker.{one} and checker.{other} both list {both}: a code can mean one thing only")
        self._listed = frozenset[int]().union(*lists.values())
        self._no_limit = settings.memory_mb is None
        self._regexes = [compiled("fail_regex", regex) for regex in settings.fail_regex]

    def judge(self, end: CommandEnd, output: str, command: str) -> Verdict:
        """Judge one run of ``command`` (its words, for messages) by how it ended and what it printed.

        Raises NotTried where memory ran out, the user gave no limit, and no list names the code.
        """
        code, death = end.returncode, end.death
        listed = code is not None and code in self._listed
        if why := self._never_ran(end, output, listed=listed):
            return Verdict(Outcome.UNRESOLVED, None, f"{NOT_RUN}: {why}. Command: {command}")
        refused = self._no_limit and bool(code or death) and refused_memory(output)
        if (death == OUT_OF_MEMORY or refused) and not listed:
            raise NotTried(f"{command}: {shortage()}")
        died = uncaught(output)
        if died and code in self._fail and not died.raised.where and died.raised.about in OWN_WORDS:
            died = None
        detail = normalize(died.said if died else output)
        if death in {"timeout", "memory"}:
            return self._fails(death, normalize(output), output)
        if code in self._invalid:
            said = "; ".join(filter(None, (f"exit {code} is one of invalid_codes", last_line(output))))
            return Verdict(Outcome.UNRESOLVED, None, said)
        if code in self._different:
            return Verdict(Outcome.DIFFERENT, Signature("check", f"exit {code}", detail), last_line(output))
        hit = self._hit(output)
        claimed = code in self._fail or (hit and not self._fail)
        death = death or (None if listed or code is None else _SHELL_DEATHS.get(code))
        if death and not claimed and code not in self._pass:
            return self._fails(death, normalize(output), output)
        kind = self._kind(code, hit)
        if died and died.imports and died.last and not self._hit(died.rest) and code:
            return Verdict(Outcome.UNRESOLVED, None, f"{NO_IMPORT}: {died.said}")
        if kind is None:
            # a pipeline's last command may end well after the check itself did not
            if died and died.raised.feeds and (code or (died.raised.where and died.last)):
                return Verdict(Outcome.UNRESOLVED, None, f"{died.raised.why}: {died.said}")
            return Verdict(Outcome.PASS, None, self._passing(code), {CAUGHT: died.raised.to_json()} if died else {})
        if died is None or (hit and (not died.raised.feeds or self._hit(died.rest))):
            return self._fails(kind, normalize(hit or output) if kind == "regex" else normalize(output), output)
        return Verdict(Outcome.FAIL, Signature("check", kind, detail, died.raised), died.said[:300])

    def _kind(self, code: int | None, hit: str) -> str | None:
        """The kind of the failure; None: it passes."""
        if code in self._pass:
            return None
        if self._fail:
            return LISTED if code in self._fail and (hit or not self._regexes) else None
        if self._regexes:
            return "regex" if hit else None
        return f"exit {code}" if code else None

    def _never_ran(self, end: CommandEnd, output: str, *, listed: bool) -> str:
        if end.cannot_start:
            return end.cannot_start
        said = NO_SCRIPT.search(output)
        if not said and not listed and not end.death:
            if end.returncode in {126, 127}:
                return f"exit {end.returncode}; {last_line(output)}"
            pattern = REFUSALS.get(end.returncode or 0)
            said = pattern.search(output) if pattern else None
        return f"exit {end.returncode}; {said[0].strip()}" if said else ""

    def _hit(self, output: str) -> str:
        for regex in self._regexes:
            if match := regex.search(output):
                return match[0] or regex.pattern
        return ""

    def _passing(self, code: int | None) -> str:
        if code in self._pass:
            return f"exit {code} is one of pass_codes"
        if not code or not (self._fail or self._regexes):
            return ""
        why = "no code and output of the failure" if self._fail else "no fail_regex is found in its output"
        return f"exit {code}: {why}"

    @staticmethod
    def _fails(kind: str, detail: str, output: str) -> Verdict:
        return Verdict(Outcome.FAIL, Signature("check", kind, detail), last_line(output)[:300] or kind)
