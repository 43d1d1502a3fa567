"""The user's command with its placeholders, what its script imports, and files of a check that must not change."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import stat
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from runner.exit_codes import CannotJudge, UsageError
from runner.files import read_plain, sha256_of, stamp
from runner.model.files.parse_without_weights import WEIGHTS, weights_beside
from runner.model.files.read_model import STRUCTURE
from runner.text import hide_environment
from runner.verdict import Candidate
from strategies.search import Outcome

# The modules that a check imports: what is neither the interpreter's nor an installed package's.
#
# Another state of one of them is another check. They are found in the text of the files, not by what happens to be
# loaded: every process finds the same.

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_STANDARD = (os.path.realpath(os.path.dirname(os.__file__)) + os.sep,)  # noqa: PTH120 - a prefix of texts
#: the versions of these are part of every run
_OURS = frozenset({"runner", "strategies", "conf"})
# a longer script is not read to its end
_LARGEST = 1 << 20


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return the digests of the local modules among ``names``, and of those that these import, by their names."""
    return {name: sha256_of(path) for name, path in local(names).items()}


def imported(script: Path, places: Sequence[str | Path]) -> dict[str, Path]:
    """Return the files of the local modules that a script imports, and of those that these import, by their names.

    ``places``: the folders in which its interpreter looks for what is not installed.
    """
    text = read_plain(script, _LARGEST)
    if script.suffix != ".py" and not re.match(rb"#!.*python", text):
        return {}
    return local(_imported(text, ""), places)


def search_path(environment: Mapping[str, str], cwd: Path) -> tuple[Path, ...]:
    """Return the folders that PYTHONPATH names; ``cwd``: where the interpreter is started."""
    given = environment.get("PYTHONPATH", "")
    return tuple(cwd / place for place in given.split(os.pathsep)) if given else ()


def local(names: Iterable[str], places: Sequence[str | Path] | None = None) -> dict[str, Path]:
    """Return the files of the local modules among ``names``, and of those that these import, by their names.

    ``places``: where they are looked for, None: where this process does.
    """
    found: dict[str, Path] = {}
    pending, seen = [*names], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            pending.append(name.rpartition(".")[0])
        spec = _spec(name, places)
        if spec is None or spec.origin is None or not _local(spec.origin) or name.partition(".")[0] in _OURS:
            continue
        found[name] = Path(spec.origin)
        if spec.origin.endswith(".py"):
            pending += _imported(read_plain(found[name]), spec.parent or "")
    return dict(sorted(found.items()))


def _spec(name: str, start: Sequence[str | Path] | None) -> ModuleSpec | None:
    """Return where a module lies, without loading anything."""
    loaded = getattr(sys.modules.get(name), "__spec__", None) if start is None else None
    if isinstance(loaded, ModuleSpec):
        return loaded
    parent = name.rpartition(".")[0]
    package = _spec(parent, start) if parent else None
    if parent and (package is None or package.submodule_search_locations is None):
        return None
    own = None if start is None else [os.fspath(place) for place in start]
    places: list[str] | None = own if package is None else list(package.submodule_search_locations or ())
    try:
        return PathFinder.find_spec(name, places)
    except (ImportError, ValueError, OSError):
        return None


def _local(origin: str) -> bool:
    real = os.path.realpath(origin)
    return os.path.isfile(real) and not real.startswith(_STANDARD) and _INSTALLED.isdisjoint(Path(real).parts)  # noqa: PTH113


def syntax_of(content: bytes) -> ast.Module:
    """Return the syntax of a Python file, an empty one for what cannot be parsed: its own interpreter says so."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _imported(content: bytes, package: str) -> Iterator[str]:
    """Yield the names of modules (and of what may be one) that a file of ``package`` imports anywhere in it."""
    for node in ast.walk(syntax_of(content)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            yield from (base, *(f"{base}.{one.name}" for one in node.names))


# what each stands for, in the order in which messages list them
PLACEHOLDERS: Mapping[str, str] = {
    "model": "the candidate",
    "engine": "the engine built from it",
    "inputs": "an npz with values for its inputs",
    "references": "an npz with the recorded values of its outputs",
    "data": "a folder with test_data_set_0 and so on",
    "dir": "the iteration's own folder",
    "iteration": "its number",
    "switches": "those of strategy.switches that are on",
    "python": "the interpreter of a release",
}
VALUES = ("inputs", "references", "data")

# what a shell would take for more than a word
_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
# {{name}} is a literal {name}; any other brace (JSON, awk, a regex) is left alone
_FIELD = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")
_PROGRAMS = frozenset({".py", ".sh", ".bash", ".pl", ".rb", ".js"})


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
        # a larger file is no script
        scripts = [read_plain(path, _LARGEST).decode("utf-8", "replace") for path in self.files().values()]
        asked = {name for name in PLACEHOLDERS if any(variable(name) in text for text in [*texts, *scripts])}
        # what the command asks for, by placeholder or by environment variable (in its words or in a script it names)
        self.mentions: frozenset[str] = frozenset(named | asked)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """The argv to run. Every placeholder of the command must have a value."""
        filled = [
            shlex.split(values["switches"])  # several words, or none
            if word == "{switches}"
            else [_FIELD.sub(lambda m: f"{{{m[1]}}}" if m[1] else values[m[2]], word)]
            for word in self.words
        ]
        return [word for several in filled for word in several]

    def files(self) -> dict[str, Path]:
        """The words that name existing files, relative to where the user stands.

        Also as ``--option=FILE``, and within a word that is a shell's command line.
        """
        found: dict[str, Path] = {}
        for word in self.words:
            option = word.partition("=")[2] if word.startswith("-") else ""
            for name, part in ((word, word), (word, option), *((piece, piece) for piece in _pieces(word))):
                if name not in found and (path := _file(part, self._cwd)):
                    found[name] = path
        return found

    @staticmethod
    def data(files: Mapping[str, Path]) -> frozenset[str]:
        """Those of ``files`` that are no programs, so that the command may write them."""
        return frozenset(word for word, path in files.items() if not _is_program(path))

    def modules(self, files: Mapping[str, Path], environment: Mapping[str, str]) -> dict[str, Path]:
        """The user's own modules that the Python scripts among ``files`` import, by their names."""
        places = search_path(environment, self._cwd)
        named = (word for before, word in zip(self.words, self.words[1:], strict=False) if before == "-m")
        found = local(named, (self._cwd, *places))
        for script in files.values():
            found |= imported(script, (Path(os.path.realpath(script)).parent, *places))
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
        return shlex.join(hide_environment(word, exact=True) for word in self.words)


def digest(path: Path) -> str:
    """The SHA-256 of a file's content, as hex; a file that cannot be read has a digest that says so."""
    try:
        return sha256_of(path)
    except OSError as error:
        return f"unreadable: {error.strerror}"


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


def _file(name: str, cwd: Path) -> Path | None:
    try:
        path = cwd / Path(name).expanduser()
        return path if name and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long for a path, a zero byte, no such home
        return None


def _pieces(word: str) -> list[str]:
    """The words of a shell's command line."""
    if not any(character.isspace() for character in word):
        return []
    lexer = shlex.shlex(word, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quotation
        return word.split()


def _is_program(path: Path) -> bool:
    return path.suffix in _PROGRAMS or os.access(path, os.X_OK) or read_plain(path, 2) == b"#!"


# Files of a check that must not change: what it is given, and what it consists of.
#
# What a check is given, as it was before: a verdict on a file that the check itself has changed is about another one.
#
# Whoever runs as root may write whatever is read-only, so files are compared and not protected.

DIGESTED = 4 << 20
"""Bytes up to which a file is read; of a larger one inode, size and time of the last change are compared."""

_Stamp = tuple[int, int | str, int]
"""Size, then digest and 0, or inode and nanoseconds."""


class Tampered(CannotJudge):
    """The check has changed the files that it was given."""


@dataclass(frozen=True)
class Seal:
    """The files of a candidate, with the weights that they refer to, before its check."""

    stamps: Mapping[Path, _Stamp | None]

    @staticmethod
    def of(candidate: Candidate) -> Seal:
        """Look at the files that a check is going to be given."""
        given = [path for path in (candidate.model, candidate.engine) if path]
        weights = _weights(candidate.model) if candidate.model else []
        return Seal({path: _stamp(path) for path in (*given, *weights)})

    def confirm(self) -> None:
        """Raise Tampered where one of them is not as it was."""
        for path, before in self.stamps.items():
            now = _stamp(path)
            if now != before:
                what = "is no file any more" if now is None else "was changed"
                raise Tampered(
                    f"the check changes the files that it is given: {path} {what}. Its verdict was not taken, since it "
                    "may be about another model. Let the check work on a copy: {dir} is a folder of its own"
                )


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    if found.st_size <= DIGESTED:
        return found.st_size, hashlib.sha256(read_plain(path, DIGESTED)).hexdigest(), 0
    return found.st_size, found.st_ino, found.st_mtime_ns


def _weights(model: Path) -> list[Path]:
    """The files that hold a model's weights: those of the store that it lies in, or those that it names."""
    if (model.parent / STRUCTURE).exists():
        return list(model.parent.glob(f"{Path(WEIGHTS).stem}*.bin"))
    content = read_plain(model, DIGESTED + 1)
    # one that lies outside the store and is larger than this carries its weights
    return [*weights_beside(model).values()] if len(content) <= DIGESTED and b"location" in content else []


# The files that a check consists of: a verdict that a changed script gave is no verdict of this run.

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
