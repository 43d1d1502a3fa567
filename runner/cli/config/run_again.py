"""A folder of a run or a sweep as a command: ``winnow RUN`` and ``winnow resume RUN`` go on with what lies there.

What it was is in the configuration that Hydra has left in the folder from the first moment on, so also where the run
was killed. The folder may come from anywhere: its configuration may say what a replay.yaml may say (the loader sees to
that), of Hydra's own section only what any file may, and none of its words is an option of the command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import run_folder
from runner.cli.config import argv as arguments
from runner.cli.config import verbs
from runner.cli.config.allowed import refuse_parameters
from runner.cli.config.bounded_yaml import read_yaml
from runner.cli.config.file_paths import content_from_file
from runner.cli.config.quoting import quote
from runner.cli.config.user_file import read_settings, store_content
from runner.cli.screen.fields import number
from runner.errors import UsageError
from runner.judgment import ENDED_WELL, Status
from runner.program_name import program_name
from runner.report.result import read_result

VERB = "resume"
_RUN, _HYDRA, _SWEEP = ".hydra/config.yaml", ".hydra/hydra.yaml", "multirun.yaml"
#: relative paths in such a folder are as in a file that lies where the user stood
_SETTINGS = "settings.yaml"
_WORD = re.compile(r"[+~]{0,2}[A-Za-z_][\w./]*(=.*)?", re.DOTALL)
_PLAIN = re.compile(r"\w+")
_ANSWERS = ENDED_WELL | {Status.not_as_expected.exit_code}


@dataclass(frozen=True)
class RunAgain:
    """A run or a ``sweep`` in ``folder``, and the ``changes`` that were typed behind it.

    ``asked``: to go on, by name; without that word, and without changes, a run that has ended is shown.
    """

    folder: Path
    changes: tuple[str, ...]
    asked: bool = True

    @property
    def sweep(self) -> bool:
        """Whether the folder is a sweep's."""
        return (self.folder / _SWEEP).exists()

    def answer(self) -> Mapping[str, Any] | None:
        """Return the result of a run that is shown; None where there is something to go on with.

        A run is gone on with where that is asked for, or where it left nothing to be shown.
        """
        result = None if self.sweep or self.changes else read_result(self.folder)
        if not self.asked and result is not None and number(result, "exit_code") is not None:
            return result
        return result if result is not None and number(result, "exit_code") in _ANSWERS else None

    def for_hydra(self) -> tuple[list[str], str, Path | None]:
        """Return arguments for Hydra, which finds the configuration from now on, its file, and where to stand.

        None: where the user stands. Raises UsageError for a folder that nothing can be made of.
        """
        return self._sweep() if self.sweep else self._run()

    def _run(self) -> tuple[list[str], str, Path | None]:
        file = self.folder / _RUN
        stood = _stood_in(self.folder / _HYDRA)
        content = content_from_file(read_settings(file), stood / _SETTINGS)
        if content.get("cwd") is None and stood.is_dir():
            content["cwd"] = str(stood)
        name = store_content(content, file)
        options, given = _typed(self.changes)
        return ["--config-name", name, *options, *given, f"resume={quote(str(self.folder))}"], str(file), None

    def _sweep(self) -> tuple[list[str], str, Path | None]:
        file = self.folder / _SWEEP
        whole = read_settings(file)
        hydra = whole.pop("hydra", None)
        sections = {name: _mapping(hydra, name) for name in ("sweep", "launcher", "sweeper", "overrides", "runtime")}
        stood = _stood_in(file)
        here = stood if stood.is_dir() else None
        content = content_from_file(whole, stood / _SETTINGS)
        launcher = {key: one for key, one in sections["launcher"].items() if not str(key).startswith("_")}
        content["hydra"] = {"launcher": launcher, "sweep": {"subdir": sections["sweep"].get("subdir", "0")}}
        options, given = _typed(["--multirun", *self.changes])
        given = [_from_here(word) if here else word for word in given]
        changed = {_key(word) for word in given}
        typed = sections["overrides"].get("task")
        words = [f"{key}={value}" for key, value in _mapping(sections["sweeper"], "params").items()]
        words += map(str, typed if isinstance(typed, list) else [])
        words = [_checked(word, file) for word in words if _key(word) not in {*changed, "resume"}]
        choice = str(_mapping(sections["runtime"], "choices").get("hydra/launcher", ""))
        chosen = [f"hydra/launcher={choice}"] if _PLAIN.fullmatch(choice) else []
        name = store_content(content, file)
        resumed = f"resume={quote(str(self.folder))}"
        return ["--config-name", name, *options, *chosen, *words, *given, resumed], str(file), here


def meant(typed: Sequence[str]) -> RunAgain | None:
    """Return the run that the arguments are about; None: they are about something else.

    Raises UsageError where one is asked for that is none, and for words behind it that are no changes of settings.
    """
    words = [at for at, word in enumerate(typed) if _is_word(typed[at - 1] if at else "", word)]
    first, *more = [typed[at] for at in words] or [""]
    asked = first == VERB
    if asked and not more:
        name = program_name()
        raise UsageError(f"{VERB}: which run? Give its folder: {name} {VERB} outputs/latest. {name} ls lists them")
    folder = Path(more.pop(0) if asked else first)
    if not asked and (not first or first in verbs.strategies() or not _is_run(folder)):
        return None
    if not _is_run(folder):
        there = "this is no folder of a run or a sweep" if folder.is_dir() else "no such folder"
        raise UsageError(f"{VERB} {folder}: {there}. {program_name()} ls lists those under outputs/")
    for word in more:
        raise UsageError(f"{word}: beside the folder of a run come changes of its settings only, as key=value")
    changes = tuple(word for at, word in enumerate(typed) if at not in words)
    return RunAgain(folder.resolve(), changes, asked)


def _is_word(before: str, word: str) -> bool:
    """Whether an argument is neither key=value (or a run's folder of such a name), an option, nor the value of one."""
    if word.startswith(("-", "~")) or arguments.takes_value(before, word):
        return False
    return "=" not in word or _is_run(Path(word))


def _is_run(folder: Path) -> bool:
    with suppress(OSError, ValueError):  # too long a name, a NUL
        known = run_folder.read(folder) is not None or (folder / "journal.jsonl").exists()
        return known and ((folder / _RUN).is_file() or (folder / _SWEEP).is_file())
    return False


def _typed(changes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what was typed as Hydra reads it: options with their values, and overrides."""
    argv = arguments.rewrite(changes).argv
    options = [word for word in argv if "=" not in word or word.startswith("-")]
    return options, [word for word in argv if word not in options]


def _mapping(of: Any, name: str) -> Mapping[str, Any]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _stood_in(file: Path) -> Path:
    """Return the folder in which the user stood, as Hydra wrote it down; where it did not, that of now."""
    with suppress(UsageError):
        content = read_yaml(file)
        place = _mapping(_mapping(content, "hydra"), "runtime").get("cwd")
        if isinstance(place, str) and Path(place).is_absolute():
            return Path(place)
    return Path.cwd()


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _from_here(word: str) -> str:
    from runner.cli.config.replayed import from_here  # noqa: PLC0415 - only a sweep needs it

    return from_here(word)


def _checked(word: str, file: Path) -> str:
    """Return an override of a sweep's. Raises UsageError for one that no file could set."""
    if not _WORD.fullmatch(word):
        raise UsageError(f"{file}: hydra.overrides.task: {word}: this is no key=value")
    refuse_parameters({word.partition("=")[0]: word.partition("=")[2]}, str(file))
    return word
