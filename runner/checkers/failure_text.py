"""A failure in one line and one number: its text, its measure, and the drop of a user's own number.

Names, numbers, paths and addresses change while a model shrinks, so they go; what is left is a hint for a person,
never a criterion (an error message may blame another node after the next cut and still be the same failure).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runner.exit_codes import UsageError
from runner.schema.checker import Better, PythonChecker
from runner.text import LARGEST, plain
from runner.verdict import LONGEST
from strategies.search import Outcome

if TYPE_CHECKING:
    import regex

    Match = regex.Match[str]

_WORD = re.compile(r"(?!(?:nan|inf|e[-+]?\d+)\b)(?<![\w.])[^\W\d_]{2}")
_BESIDE = re.compile(r"\[[VIW]:onnxruntime:")
"""What ONNX Runtime logs that is no error: it says so of models that are right too."""
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # quoted names; an apostrophe inside a word (can't) opens no quotation
    (re.compile(r"`[^`']*[`']|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\""), "_"),
    # what ONNX Runtime puts behind "node" and "name": Node:Conv_3, node (Conv_3), Name:x
    (re.compile(r"\b([Nn]ode|[Nn]ame|[Tt]ensor|[Ii]nput|[Oo]utput)(?:\s*:\s*|\s*\(|\s*=\s*)[^\s,;()]+\)?"), r"\1 _"),
    # file paths, absolute or with at least two separators, with an optional line number
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.~+-]*/){1,}[\w.~+-]*/?[\w.+-]*(?::\d+)*"), "_"),
    (re.compile(r"\b[\w-]+\.(?:bin|cc|cpp|cu|data|engine|h|hpp|log|np[yz]|onnx|pb|py|so)(?::\d+)*"), "_"),
    # numpy's arrays: how many rows are shown depends on the shape
    (re.compile(r"\barray\(.*"), "array"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b"), "#"),
    (re.compile(r"[-+]?\b(?:nan|inf)\b"), "#"),
    # names that were numbered: Conv_3, t12, but not fp16 or i64
    (re.compile(r"\b[A-Za-z]\w*_\d+\w*|\b(?!(?:fp|bf|[fisu])\d+\b)[a-z]{1,3}\d+\b"), "_"),
    (re.compile(r"[-+]?(?<![A-Za-z0-9])\d+(?:\.\d+)*(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"#(?:\s*[,x]\s*#|\s+#)+"), "#"),
    # 1 element, 2 elements; one name, two names
    (re.compile(r"(#\s+(?!is\b|has\b|was\b|as\b)[a-z]+?)s\b"), r"\1"),
    (re.compile(r"_(?:,\s*_)+"), "_"),
    (re.compile(r"\s+"), " "),
)


def last_line(text: str) -> str:
    """The last line that says something: not blank, not only punctuation (a caret below an error), no warning."""
    lines = [line for line in plain(text).splitlines() if not _BESIDE.search(line)]
    # a line of an array that was printed says something only where nothing else does
    for says in (_WORD, re.compile(r"\w{2}")):
        for line in reversed(lines):
            if says.search(line):
                return line.strip()
    return ""


def normalize(text: str) -> str:
    """``text``'s last meaningful line without names, numbers, hex, paths; at most 160 characters."""
    line = last_line(text)[:2000]
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return line.strip()[:LONGEST]


# How bad a failure is: the number that a check prints, found by ``checker.measure``.


class Measure:
    """A regular expression over what a check prints, and which way its numbers point.

    ``pattern``: its first group, or all of it where it has none, is the number; None: nothing is measured. Raises
    UsageError for what is no regular expression.
    """

    def __init__(self, pattern: str | None, better: Better = Better.lower) -> None:
        self.pattern = UserPattern("measure", pattern) if pattern else None
        self.higher_is_better = better is Better.higher

    def of(self, text: str) -> float | None:
        """Return the worst number that is found; None where there is none."""
        found = self.pattern.every(text) if self.pattern else ()
        read = (self.number(match[1 if match.re.groups else 0]) for match in found)
        worst = min if self.higher_is_better else max
        return worst((number for number in read if number is not None), default=None)

    def number(self, value: object) -> float | None:
        """Return a number that JSON can hold; a NaN, or what is beyond all, is the worst. None for any other text."""
        number = as_number(value)
        return -LARGEST if number == LARGEST and self.higher_is_better else number


def as_number(value: object) -> float | None:
    """Return a number, or text that is one, as a float that JSON can hold; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return finite(float(value))
    except ValueError:
        return None


def finite(number: float) -> float:
    """Return a number that JSON can hold."""
    return LARGEST if math.isnan(number) else max(-LARGEST, min(LARGEST, number))


_EXAMPLES = {"measure": "measure='error ([0-9.e+-]+)'", "fail_regex": "fail_regex=['mismatch', 'NaN in .*']"}


MATCH_SECONDS = 10.0
"""CPU seconds that a search of `_BLOCK` letters, or fewer, may take: twenty times what most patterns take, or more.

The CPU time of all threads counts, so checks that run side by side use it up together.
"""
_BLOCK = 4 << 20
# what `regex` reads in another way than `re`: braces that count nothing, and brackets within a class
_TOKENS = re.compile(
    r"\\N\{[^}]*\}|\\.|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<any>\{,\})|\{(?!\d+,?\d*\}|,\d+\})", re.DOTALL
)


class UserPattern:
    """A regular expression of the settings, as `re` reads it, whose searches end (`MATCH_SECONDS`).

    Raises UsageError for what is no regular expression; so does a search that takes longer, since it may take for ever.
    """

    def __init__(self, key: str, text: str) -> None:
        import regex  # noqa: PLC0415 - the few runs that give a pattern need it

        self._key, self.pattern = key, text
        try:
            re.compile(text, re.MULTILINE)
            self._regex = regex.compile(_TOKENS.sub(_as_re_reads_it, text), regex.MULTILINE | regex.VERSION0)
        except (re.error, regex.error) as error:
            example = f"write it as checker.{_EXAMPLES[key]}"
            raise UsageError(f"checker.{key}: {text!r} is no regular expression: {error}; {example}") from error

    def search(self, text: str) -> Match | None:
        """Return the first match."""
        return next(self.every(text), None)

    def every(self, text: str) -> Iterator[Match]:
        """Yield all matches, which do not overlap."""
        seconds = MATCH_SECONDS * max(1.0, len(text) / _BLOCK)
        try:
            yield from self._regex.finditer(text, timeout=seconds)
        except TimeoutError as error:
            raise UsageError(
                f"checker.{self._key}: {self.pattern!r} took more than {seconds:g} s of CPU to search what a "
                "check printed: it tries the same letters in too many ways, as (a+)+ does. Write it with one "
                f"repetition of each thing, like checker.{_EXAMPLES[self._key]}"
            ) from error


def _as_re_reads_it(token: re.Match[str]) -> str:
    if token["any"]:
        return "{0,}"
    if inside := token["set"]:
        return "[" + re.sub(r"\\.|\[", lambda found: found[0] if len(found[0]) > 1 else r"\[", inside[1:])
    return token[0] if token[0].startswith("\\") else "\\" + token[0]


# A user's number against that of a good model: how far a top-1 may fall, or a perplexity rise.

VALUE = "value"
"""The key of the number in a verdict's metrics, and in a dict that a function returns."""
ALLOWED = " that is allowed"
"""What follows on a user's number and how far it exceeds its limit."""


class Threshold:
    """``checker.max_drop`` or ``checker.max_rise`` beyond ``checker.baseline``, or beyond the first number that passed.

    Raises UsageError for limits that are none.
    """

    def __init__(self, settings: PythonChecker) -> None:
        given = {key: getattr(settings, key) for key in ("max_drop", "max_rise")}
        limits = {key: _limit(key, value) for key, value in given.items() if value is not None}
        if len(limits) > 1:
            raise UsageError(
                f"checker.max_drop={settings.max_drop} checker.max_rise={settings.max_rise}: is more better, or less? "
                "Give one of the two"
            )
        if settings.baseline is not None and (not limits or not math.isfinite(settings.baseline)):
            raise UsageError(
                f"checker.baseline={settings.baseline}: it is a finite number that checker.max_drop or "
                "checker.max_rise counts from; give one of the two besides"
            )
        self._key, self._amount, self._is_share = next(iter(limits.values()), ("", 0.0, False))
        self._baseline = settings.baseline

    @property
    def is_given(self) -> bool:
        """Whether the user's function returns a number that is held against a limit."""
        return bool(self._key)

    @property
    def lacks_baseline(self) -> bool:
        """Whether the first number has to be a good model's."""
        return self.is_given and self._baseline is None

    @property
    def allowed(self) -> float | None:
        """How far a number may move from the baseline; None where nothing limits it, or the baseline is not known."""
        if self._baseline is None or not self.is_given:
            return None
        return self._amount * abs(self._baseline) if self._is_share else self._amount

    def judge(self, numbers: Mapping[str, Any]) -> tuple[Outcome, str, float | None] | None:
        """Return the outcome of a number, why, and how far it is off in units of what is allowed.

        None where there is no number to judge; how far is None where nothing is known to count from.
        """
        value = numbers.get(VALUE)
        if not self.is_given or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        allowed = self.allowed
        if self._baseline is None or allowed is None:
            finite = math.isfinite(value)
            return (Outcome.PASS if finite else Outcome.FAIL), f"{value:g}, the baseline", None
        moved = self._baseline - value if self._key == "max_drop" else value - self._baseline
        shown = f"{self._amount:.4%}".rstrip("0%").rstrip(".") + "%" if self._is_share else f"{self._amount:.4g}"
        within, way = not math.isnan(moved) and moved <= allowed, self._key.removeprefix("max_")
        far = (
            f"{moved / allowed:.3g} times the {way}"
            if allowed and math.isfinite(moved)
            else f"beyond a {way} of {allowed:g}"
        )
        said = f"{value:g}" + f", {far}{ALLOWED}" * (not within)
        return (
            Outcome.PASS if within else Outcome.FAIL,
            f"{said}; the baseline is {self._baseline:g}, checker.{self._key}={shown}",
            as_number(moved / allowed if allowed else moved),
        )

    def settle(self, numbers: Mapping[str, Any]) -> None:
        """Take the number of a good model for the baseline, unless one is given."""
        value = numbers.get(VALUE)
        if self.lacks_baseline and isinstance(value, int | float):
            self._baseline = float(value)


def _limit(key: str, given: Any) -> tuple[str, float, bool]:
    """Return the key, the limit and whether it is a share of the baseline."""
    text = str(given).strip()
    share = text.endswith("%")
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = -1.0
    if isinstance(given, bool) or not 0 <= amount < math.inf:
        raise UsageError(
            f"checker.{key}={given}: give a number that is not negative, 0.01, or a share of the baseline, 1%"
        )
    return key, (amount / 100 if share else amount), share
