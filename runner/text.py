"""Texts of messages: names, numbers and lines from anywhere, and how the user started Winnow."""

from __future__ import annotations

import hashlib
import html
import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from textwrap import shorten

from runner import DISTRIBUTION

MOST = 3
# names and shapes in a damaged file may be megabytes long
LONGEST = 400
_NEARLY = 0.99
LARGEST = 1e300
"""The largest number that is reported, in place of an infinity or a NaN: JSON has neither, and nothing is worse."""
# how much less a second suggestion may be like what was typed; of two, ratios from 0 to 1
_AS_CLOSE = 0.1


def listed(names: Collection[str], most: int = MOST) -> str:
    """Return the first names, and how many more there are: ``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more


def with_inside(named: str, nested: str, count: int) -> str:
    """Return the nodes of an answer, ``count`` in all, with those inside: ``choice.then/bad, inside choice``."""
    if not (named and nested):
        return named
    return f"{nested}, inside {named}" if count == 1 else f"{named}; inside: {nested}"


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: ``1 node``, ``3 nodes``."""
    plural = "" if number == 1 else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number} {noun}{plural}"


def duration(seconds: float) -> str:
    """Return a time as a person says it: ``42 s``, ``1 min 40 s``, ``12 min``, ``3 h 20 min``."""
    if round(seconds) < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if round(seconds) < 180:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def in_tolerances(error: float) -> str:
    """Return an error in units of the tolerance, in words; where the tolerance is 0, or of a NaN, it has no number."""
    return f"{error:.3g} times the tolerance" if error < LARGEST else "beyond any tolerance"


def percent(probability: float) -> str:
    """Return a probability in words: ``66%``; what would round to certainty is none."""
    return f"{probability:.0%}" if probability <= _NEARLY else f"more than {_NEARLY:.0%}"


def share(part: float) -> str:
    """Return a share as a percentage: ``66%``; none and all of it are what it says, and nothing near them."""
    return f"{part:.0%}" if 0.01 <= part <= 0.99 or part in (0, 1) else f"{part:.2%}"


def close(word: str, options: Iterable[str]) -> str:
    """Return `` (did you mean x?)`` where an option is close to ``word``, else nothing."""
    return did_you_mean(nearest(word, options))


def did_you_mean(near: Collection[str]) -> str:
    """Return that question behind a blank; nothing where there is nothing to ask about."""
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def nearest(word: str, options: Iterable[str]) -> list[str]:
    """Return the option that is close to ``word``, and a second one that is about as close; else nothing."""
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415 - only a mistake needs it

    matches = get_close_matches(word, list(options), n=2, cutoff=0.6)
    ratios = [SequenceMatcher(None, one, word).ratio() for one in matches]
    return [one for one, ratio in zip(matches, ratios, strict=True) if ratio >= ratios[0] - _AS_CLOSE]


def one_line(text: object, longest: int = LONGEST) -> str:
    """Return ``text`` as one line that a terminal can show: blanks for line breaks, escapes for what has no shape.

    Of a long one the middle is left out.
    """
    words = " ".join(str(text).split())
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)
    return line if len(line) <= longest else f"{line[: longest // 2]} ... {line[-longest // 2 :]}"


_OF_TENSORRT = re.compile(r".*?Error Code \d+: [\w ]+\((.+?)(?:\.? In \w+ at .*)?\)", re.DOTALL)
_BEFORE_WORDS = re.compile(r".*Status Message: (?:.*\bwas false\. )?(?=\S)", re.DOTALL)


def own_words(message: str) -> str:
    """Return a runtime's message without what ONNX Runtime puts before its words: a node, a source file, a condition.

    Nodes around the one that failed have put theirs before it, too. Nor what TensorRT puts around them.
    """
    if around := _OF_TENSORRT.fullmatch(message):
        return around[1]
    return _BEFORE_WORDS.sub("", message, count=1)


def short(name: str, longest: int) -> str:
    """Return a name on one line; the middle of a long one is left out."""
    name = name.replace("\n", "\\n")
    half = (longest - 3) // 2
    return name if len(name) <= longest else f"{name[: longest - 3 - half]}...{name[len(name) - half :]}"


def first_clauses(text: object, longest: int = LONGEST) -> str:
    """Return ``text`` as one line; of a long one as many of its first clauses (up to ``; ``) as fit, no more."""
    line = one_line(text, len(str(text)))
    first, *others = line.split("; ")
    kept = shorten(first, LONGEST, placeholder=" ...")
    for clause in others:
        if len(f"{kept}; {clause}") > longest:
            return kept
        kept += f"; {clause}"
    return kept


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def plain(text: str) -> str:
    """Return the text without what colors it on a terminal."""
    return _ANSI.sub("", text)


# How the user started Winnow, for the commands that messages tell: one that is copied from a message has to work.

#: what the console scripts are called
SCRIPTS = ("winnow", "winnow-onnx")
_ENV = re.compile(r"^(\+{0,2}checker\.env[^=]*=).*", re.DOTALL)


def program_words() -> tuple[str, ...]:
    """Return the words by which this program was started.

    Whatever else runs Winnow (a notebook, a test) is not typed again: there it is the script.
    """
    path = Path(sys.argv[0] if sys.argv else "")
    if path.parts[-2:] == (Path(__file__).parent.name, "__main__.py"):
        return ("python", "-m", "runner")
    if path.name == "winnow_onnx.py":
        return ("python", "-m", "winnow_onnx")
    return (path.name if path.name in SCRIPTS else SCRIPTS[0],)


def program_name() -> str:
    """Return what a command begins with: ``winnow`` or ``python -m runner``."""
    return " ".join(program_words())


def install(extra: str, root: Path = Path(__file__).parents[1]) -> str:
    """Return how an extra is installed: where ``root`` is a clone from that, else by the distribution's name."""
    if (root / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]' (in the clone of {DISTRIBUTION})"
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def without_values(command: Sequence[str]) -> list[str]:
    """Return a command without the values that it gives to variables of the environment, which may be secret."""
    return [_ENV.sub(r"\1...", word) for word in command]


# What settings take from the environment (`${oc.env:NAME}`): it stays there, whatever is written down or handed over.

_ENVIRONMENT: dict[str, str] = {}
_SHORTEST = 6
# words and numbers as they stand in any text: these are replaced only where they are all of a setting
_ORDINARY = re.compile(r"[A-Za-z_]{1,11}|[\d.,+-]+")


def note_environment(name: str, value: str) -> str:
    """Note a value of the environment that settings use, and return it."""
    if value:
        _ENVIRONMENT[value] = f"${{oc.env:{name}}}"
    return value


def hide_environment(text: str, *, exact: bool = False) -> str:
    """Return a text with the names of variables in place of their values; short and ordinary ones stay in it.

    ``exact``: it is one word of a setting, in which none of them stays that is all of the word.
    """
    if exact and text in _ENVIRONMENT:
        return _ENVIRONMENT[text]
    for value, name in sorted(_ENVIRONMENT.items(), key=lambda one: -len(one[0])):
        if len(value) >= _SHORTEST and not _ORDINARY.fullmatch(value):
            spelled = {value, json.dumps(value)[1:-1], repr(value)[1:-1], ascii(value)[1:-1]}
            spelled |= {html.escape(one, quote=quote) for one in spelled for quote in (False, True)}
            for one in sorted(spelled, key=len, reverse=True):
                text = text.replace(one, name)
    return text


def digest_of_environment(text: str) -> str:
    """Return a hash of the values that are not in ``hide_environment(text)``; nothing where there are none."""
    values = [value for value in sorted(_ENVIRONMENT) if value in text]
    return hashlib.sha256("\0".join(values).encode("utf-8", "surrogateescape")).hexdigest() if values else ""
