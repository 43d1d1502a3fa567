"""The user's command: placeholders (`{model}`, `{inputs}` ...) and the environment variables of the same meaning."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runner.errors import UsageError

# what each stands for, in the order in which messages list them
PLACEHOLDERS: Mapping[str, str] = {
    "model": "the candidate",
    "engine": "the engine built from it",
    "inputs": "an npz with values for its inputs",
    "references": "an npz with the recorded values of its outputs",
    "data": "a folder with test_data_set_0 and so on",
    "dir": "the iteration's own folder",
    "iteration": "its number",
}
VALUES = ("inputs", "references", "data")

# what a shell would take for more than a word
_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
# {{name}} is a literal {name}; any other brace (JSON, awk, a regex) is left alone
_FIELD = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")
# a script larger than this is not looked into for the names of environment variables
_LARGEST_SCRIPT = 1 << 20


def variable(placeholder: str) -> str:
    """The environment variable that holds the same as ``{placeholder}``."""
    return f"WINNOW_{placeholder.upper()}"


class Template:
    """An argv with placeholders.

    ``command``: a list of words, or a string that is split as a shell would split it; no shell is started. Raises
    UsageError for no command, an open quotation, or an unknown placeholder.
    """

    def __init__(self, command: object, cwd: Path, env: Mapping[str, str]) -> None:
        self.words = _split(command)
        self._cwd = cwd
        texts = [*self.words, *env.values()]
        for word in self.words:
            for name in _names(word):
                if name not in PLACEHOLDERS:
                    known = ", ".join(f"{{{field}}} ({what})" for field, what in PLACEHOLDERS.items())
                    raise UsageError(
                        f"checker.command: unknown placeholder {{{name}}} in {word!r}. Known: {known}. "
                        f"For a literal {{{name}}} write {{{{{name}}}}}"
                    )
        named = {name for word in self.words for name in _names(word)}
        scripts = [text for path in self.files().values() if (text := _script(path))]
        asked = {name for name in PLACEHOLDERS if any(variable(name) in text for text in [*texts, *scripts])}
        # what the command asks for, by placeholder or by environment variable (in its words or in a script it names)
        self.mentions: frozenset[str] = frozenset(named | asked)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """The argv to run. Every placeholder of the command must have a value."""
        return [_FIELD.sub(lambda m: f"{{{m[1]}}}" if m[1] else values[m[2]], word) for word in self.words]

    def files(self) -> dict[str, Path]:
        """The words that name existing files (also as ``--option=FILE``), relative to where the user stands."""
        found: dict[str, Path] = {}
        for word in self.words:
            for part in (word, word.partition("=")[2] if word.startswith("-") else ""):
                try:
                    if part and (path := self._cwd / Path(part).expanduser()).is_file():
                        found[word] = path
                        break
                except (OSError, ValueError, RuntimeError):  # too long for a path, a zero byte, no such home
                    continue
        return found

    @property
    def slip(self) -> str:
        """An obvious mistake, in words, that makes a command judge nothing; empty where there is none."""
        written = next((word for word in self.words if word in _SHELL), None)
        if written and Path(self.words[0]).name not in ("sh", "bash", "env"):
            return (
                f"No shell is started, so {written!r} in checker.command is a word like any other. Start one: "
                "checker.command=[sh, -c, 'python check.py \"$0\" && ...', '{model}']"
            )
        if not {"model", "engine", "data", "dir"} & self.mentions:
            return (
                "checker.command does not name {model}, so every candidate gets the same answer: "
                "checker.command='python check.py {model}', or checker.place=PATH for a check that reads a fixed path"
            )
        return ""

    def __str__(self) -> str:
        return shlex.join(self.words)


def digest(path: Path) -> str:
    """The SHA-256 of a file's content, as hex; a file that cannot be read has a digest that says so."""
    sha = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                sha.update(block)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return sha.hexdigest()


def _split(command: object) -> tuple[str, ...]:
    example = "write checker.command='python check.py {model}', or a list of words"
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"checker.command={command!r}: {error}; {example}") from error
    elif isinstance(command, Sequence):
        words = [str(word) for word in command]
    else:
        words = []
    if not words or not words[0]:
        raise UsageError(f"checker.command is empty; {example}")
    return tuple(words)


def _names(word: str) -> Iterable[str]:
    return [match[2] for match in _FIELD.finditer(word) if match[2]]


def _script(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_SCRIPT:
            return ""
        text = path.read_bytes()
    except OSError:
        return ""
    return "" if b"\0" in text[:1024] else text.decode("utf-8", "replace")
