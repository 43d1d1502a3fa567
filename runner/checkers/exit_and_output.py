"""What a command's exit code and output mean: exit rules, exceptions and tracebacks in what it prints."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from runner.checkers.failure_text import UserPattern, last_line, normalize
from runner.exit_codes import NotTried, UsageError
from runner.schema.checker import CommandChecker
from runner.text import one_line, plain
from runner.verdict import CAUGHT, CHECK, FEEDS, LIMITS, LISTED, MODEL, NO_IMPORT, NOT_RUN, Raised, Signature, Verdict
from runner.workers.commands import CommandEnd
from runner.workers.process_tree import death_of
from runner.workers.reply import OUT_OF_MEMORY, refused_memory, shortage
from strategies.search import Outcome

# What a check's output says of the exceptions that ended it: Python's and pytest's tracebacks, runtimes' messages.
#
# Exit code 1 is what most checks mean by "it fails", and also what Python says of any uncaught exception. So the
# exception itself is looked at: which class, raised from which line of the user's own code, and what it is about.

BY_LINE = "told apart by class and line, and by what a check shows where it passes"
"""How exceptions are read, for the identity of checks: verdicts that were found otherwise are not theirs."""

_NOT_IN_NPZ = "a name that an npz does not hold"
_COMPARED = "the shape of the values to compare with"
# what runtimes, numpy and Polygraphy say where a check feeds, asks for or compares with what does not fit the model
_SAID: Mapping[str, tuple[str, ...]] = {
    "a missing input": (
        r"Required inputs \(.*are missing",
        r"Missing Input: ",
        r"Unable to find input '",
        r"inputs were not found in",
        r"Not all inputs? (?:tensors )?(?:is|are|have been) (?:set|specified|given|provided)",
        r"Address is not set for (?:input )?tensor",
    ),
    "an unknown input": (
        r"Invalid (?:Feed )?[Ii]nput [Nn]ame",
        r"Failed to find NodeArg with name",
        r"[Ee]xtra (?:inputs|items) in input data",
        r"Given invalid tensor name",
        r"[Cc]annot find (?:input|binding) ",
    ),
    "an unknown output": (r"Invalid [Oo]utput [Nn]ame", r"Unable to find output name"),
    "the rank of an input": (r"Invalid rank for input",),
    "the dimensions of an input": (
        r"Got invalid dimensions for input",
        r"[Ss]tatic dimension mismatch while setting input",
        r"Received incompatible shape",
        r"Set dimensions are .*Expected dimensions are",
        r"(?:does not|doesn't) satisfy any optimization profile",
    ),
    "the type of an input": (
        r"Unexpected input data type",
        r"Received unexpected dtype",
        r"Input must be a list of dictionaries",
    ),
    _NOT_IN_NPZ: (r"is not a file in the archive",),
    "a missing key": (r"\bKeyError: ",),
    _COMPARED: (r"operands could not be broadcast together", r"\(shapes \(.*\), \(.*\) mismatch\)"),
}
NOT_IN_NPZ = f"{FEEDS}: {_NOT_IN_NPZ}"
"""What an exception is about where a check asks an npz for a name that it does not hold."""
OTHER_SHAPE = f"{FEEDS}: {_COMPARED}"
"""What an exception is about where a check compares values of other shapes."""
OWN_WORDS = (OTHER_SHAPE, f"{FEEDS}: a missing key")
_MISFITS = {name: re.compile("|".join(patterns)) for name, patterns in _SAID.items()}
_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError"})
_RUNTIMES = re.compile(r"(?:onnxruntime|onnx|tensorrt\w*|polygraphy)\.")
_RUNTIME_FOLDERS = re.compile(r"/(?:onnx/reference|onnxruntime|tensorrt\w*|polygraphy)/")
# raised by a runtime's Python layer, these are about how it was called; ONNX's evaluator is all Python
_MISUSE = frozenset({"ValueError", "TypeError", "KeyError", "AttributeError"})
_EVALUATOR = re.compile(r"/onnx/reference/")
_MISSING_FILE = "NoSuchFile"
_PRINTED = re.compile(r"\[ONNXRuntimeError\] : \d+ : ([A-Z_]+)")
_TENSORRT = re.compile(r"\[TRT\] \[E\]|^(?:\[[^\]]*\] )?\[E\] |\bError Code \d+: ", re.MULTILINE)

_HEADER = re.compile(r"^(\s*(?:[|+] ?)*\s*)(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+)')
_ENDED = re.compile(r"^([A-Za-z_][\w.]*)(?::\s*(.*))?$")
_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d[\d.]*/|^<frozen ")
_PYTEST_TITLE = re.compile(r"^_{3,} .+ _{3,}$")
_PYTEST_FRAME = re.compile(r"^(\S.*?\.py):(\d+): ?(.*)$")
_PYTEST_ERROR = re.compile(r"^E(?: {2,}(.*))?$")
_BREAK = re.compile(r"-{5,}|={5,}|During handling of the above|The above exception was")
_MESSAGE_LINES = 30
# what may follow the exception that ended a check: a shell's word, a native library's destructors
_TRAILING_LINES = 5


@dataclass(frozen=True)
class Link:
    """One exception: its class with and without modules, the user's line that it came from, and what it said.

    ``library``: it was raised inside a runtime's own files, and not about how that was called.
    """

    qualified: str
    place: str
    message: str
    library: bool = False

    @property
    def type(self) -> str:
        """The class's own name."""
        return self.qualified.rpartition(".")[2]

    @property
    def where(self) -> str:
        """Class and line."""
        return f"{self.type} at {self.place}" if self.place else self.type

    def __str__(self) -> str:
        said = next((line.strip() for line in self.message.splitlines() if line.strip()), "")
        return f"{self.where}: {said}" if said else self.where

    @property
    def whose(self) -> str:
        """Whether a runtime raised it about the model, or the check is at fault."""
        if self.type == _MISSING_FILE:
            return CHECK
        return MODEL if self.library or _RUNTIMES.match(self.qualified) else CHECK


@dataclass(frozen=True)
class Uncaught:
    """All exceptions that an output shows, without repetitions.

    ``said``: the last one as one line. ``rest``: the output without them. ``last``: nothing else follows them, so that
    the last one is what ended the check.
    """

    raised: Raised
    said: str
    rest: str
    last: bool
    imports: bool


def uncaught(output: str) -> Uncaught | None:
    """Return what ended the check that printed ``output``; None: no exception, and no message of a misfit."""
    lines = plain(output).splitlines()
    found = [*_tracebacks(lines), *_pytest(lines)]
    links = list(dict.fromkeys(link for link, _, _ in found))
    used = {number for _, start, stop in found for number in range(start, stop)}
    rest = "\n".join(line for number, line in enumerate(lines) if number not in used)
    about, said = _about(links, list(dict.fromkeys(lines)))
    if about is None:
        return None
    if links:
        where = tuple(dict.fromkeys(link.where for link in links))
        after = [line for line in lines[max(used) + 1 :] if line.strip()]
        last = len(after) <= _TRAILING_LINES or any(_PYTEST_ERROR.match(line) for line in lines)
        said = said or str(links[-1])
        return Uncaught(
            Raised(where, about, went_on=bool(after)),
            said,
            rest,
            last,
            any(link.type in _IMPORTS for link in links[-1:]),
        )
    printed = _PRINTED.search(rest)
    return Uncaught(Raised((printed[1],) if printed else (), about), said, "", last=True, imports=False)


def _about(links: Sequence[Link], lines: Sequence[str]) -> tuple[str | None, str]:
    """What the exceptions are about, and the line that says so where it is not the last one's."""
    for name, pattern in _MISFITS.items():
        if name == _COMPARED and any(link.library for link in links):
            continue
        for link in links:
            if pattern.search(f"{link.type}: {link.message}"):
                return f"{FEEDS}: {name}", str(link)
        for line in lines:
            if pattern.search(line):
                return f"{FEEDS}: {name}", line.removeprefix("E").strip()
    if not links:
        printed = next((line.strip() for line in lines if _PRINTED.search(line)), "")
        return (MODEL, printed) if printed else (None, "")
    if any(link.whose == MODEL for link in links) or any(_TENSORRT.search(line) for line in lines):
        return MODEL, ""
    return CHECK, ""


def _tracebacks(lines: Sequence[str]) -> Iterator[tuple[Link, int, int]]:
    """Each traceback with its first line's number and that behind its last."""
    number = 0
    while number < len(lines):
        header = _HEADER.match(lines[number])
        number += 1
        if not header:
            continue
        start, indent, frames = number - 1, header[1].replace("+", "|"), []
        while number < len(lines) and lines[number].startswith(f"{indent}  "):
            if frame := _FRAME.match(lines[number].removeprefix(indent)):
                frames.append((frame[1], int(frame[2])))
            number += 1
        ended = _ENDED.match(lines[number].removeprefix(indent)) if number < len(lines) else None
        if ended:
            stop = _end_of_message(lines, number + 1, whole=not ended[2])
            message = "\n".join([ended[2] or "", *lines[number + 1 : stop]])
            yield _link(ended[1], frames, message), start, stop
            number = stop


def _end_of_message(lines: Sequence[str], number: int, *, whole: bool) -> int:
    """Where an exception's message ends: it goes on in indented lines; numpy's (``whole``) begins on the next line."""
    most = min(len(lines), number + _MESSAGE_LINES)
    while number < most and (whole or lines[number].startswith((" ", "\t"))):
        if _HEADER.match(lines[number]) or _BREAK.match(lines[number]):
            break
        number += 1
    return number


def _pytest(lines: Sequence[str]) -> Iterator[tuple[Link, int, int]]:
    """What pytest shows of a failure: lines with E, and ``file:line: Class`` (or ``file:line: in test``)."""
    frames: list[tuple[str, int]] = []
    said: list[tuple[int, str]] = []
    for number, line in enumerate([*lines, "___ end ___"]):
        if _PYTEST_TITLE.match(line) or line.startswith("====="):
            if said:  # the short style names no class after its frames
                yield _from_pytest("", frames, said), said[0][0], said[-1][0] + 1
            frames, said = [], []
        elif error := _PYTEST_ERROR.match(line):
            said.append((number, error[1] or ""))
        elif frame := _PYTEST_FRAME.match(line):
            frames.append((frame[1], int(frame[2])))
            if said and re.fullmatch(r"[A-Za-z_][\w.]*", frame[3]):
                yield _from_pytest(frame[3], frames, said), said[0][0], number + 1
                frames, said = [], []


def _from_pytest(name: str, frames: Sequence[tuple[str, int]], said: Sequence[tuple[int, str]]) -> Link:
    text = "\n".join(line for _, line in said)
    ended = _ENDED.match(text.partition("\n")[0])
    named = ended is not None and (ended[1].rpartition(".")[2] == name or (not name and ended[2] is not None))
    if ended and named:
        return _link(ended[1], frames, text.partition(":")[2].strip())
    return _link(name or "AssertionError", frames, text)


def _link(qualified: str, frames: Sequence[tuple[str, int]], message: str) -> Link:
    users = [frame for frame in frames if not _NOT_THE_USERS.search(frame[0])] or frames[:1]
    place = f"{users[-1][0].rpartition('/')[2]}:{users[-1][1]}" if users else ""
    within = frames[-1][0] if frames else ""
    misused = qualified in _MISUSE and not _EVALUATOR.search(within)
    library = bool(_RUNTIME_FOLDERS.search(within)) and not misused
    return Link(qualified, place, message, library)


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


def slip_of_exit(verdict: Verdict) -> str:
    """Return what is wrong with a check that handed ``sys.exit`` a bool of numpy's; "" where nothing looks like it."""
    exited = verdict.signature is not None and verdict.signature.kind == "exit 1"
    if not exited or verdict.reason not in ("True", "False"):
        return ""
    return (
        f"The check printed {verdict.reason} and exited with 1: sys.exit(value) does so with any numpy bool. Write "
        "sys.exit(bool(value))"
    )


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
        self._regexes = [UserPattern("fail_regex", regex) for regex in settings.fail_regex]
        self._searches = bool(settings.fail_regex or settings.measure)

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
        if death in LIMITS:
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
            return self._passes(end, died)
        if died is None or (hit and (not died.raised.feeds or self._hit(died.rest))):
            return self._fails(kind, normalize(hit or output) if kind == "regex" else normalize(output), output)
        return Verdict(Outcome.FAIL, Signature("check", kind, detail, died.raised), one_line(died.said, 300))

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

    def _passes(self, end: CommandEnd, died: Uncaught | None) -> Verdict:
        if end.left_out and self._searches:  # words of a failure may stand there
            why = f"{end.left_out >> 20} MiB of its output were left out and not searched; have it print less"
            return Verdict(Outcome.UNRESOLVED, None, why)
        rules = "by checker.pass_codes, checker.fail_codes and checker.fail_regex"
        why = f"exit {end.returncode} is no failure {rules}" if end.returncode else ""
        return Verdict(Outcome.PASS, None, why, {CAUGHT: died.raised.to_json()} if died else {})

    @staticmethod
    def _fails(kind: str, detail: str, output: str) -> Verdict:
        return Verdict(Outcome.FAIL, Signature("check", kind, detail), last_line(output)[:300] or kind)
