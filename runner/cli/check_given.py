"""Whether what the settings name is there and makes sense, and what a run writes spares what it reads.

What is wrong is one clear line, before any work.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from runner.checkers.command_template import Template
from runner.checkers.tolerances import rules_of
from runner.disk_space import bytes_of
from runner.exit_codes import UsageError
from runner.jobs.finished_jobs import files_of_command, files_read, weights_beside
from runner.run_folder import NAME as MARKER
from runner.run_folder import OF_A_RUN, OF_A_SWEEP
from runner.schema.installed_choices import SEARCHES, added
from runner.schema.root import Settings
from runner.schema.settings import PathUse, beyond_limits, path_values
from runner.schema.strategy import RepeatSettings, StrategySettings, TacticRepeatSettings
from runner.text import close, one_line
from strategies.registry import for_tasks
from strategies.repeat import repeat

# What a run reads, what it writes outside its folder, and that the second spares the first.

#: bytes of a name, with room for what is put behind it; what a message shows of a path
_LONGEST_NAME, _SHOWN = 235, 200


def _possible(key: str, use: PathUse, path: str) -> None:
    """Refuse what can be the path of nothing, before a system call says so in its own way."""
    try:
        os.lstat(path if os.path.lexists(path) else Path(path).expanduser())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, no such user
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{key}={one_line(path, _SHOWN)}: nothing can have this path ({why}). Name another.") from None
    if PathUse.READ in use and use & (PathUse.MODEL | PathUse.LIBRARY):
        try:
            os.path.abspath(path).encode()  # noqa: PTH100 - a path that is none is refused elsewhere
        except UnicodeEncodeError:
            raise UsageError(
                f"{key}={path!a}: runtimes take only paths in UTF-8, and Python must read them so (not with LC_ALL=C "
                "and PYTHONUTF8=0). Copy it elsewhere, or name another."
            ) from None


def check_weights_name(name: str | None, foreign: Collection[str] = ()) -> None:
    """Refuse a name for the weights of what is handed over that is none, or another file's."""
    if not name:
        return
    plain = Path(name).name == name and name not in ("..", ".") and "\\" not in name
    written = [f"{first}{name}{last}" for first in ("", "min_good.") for last in ("", ".0")]
    taken = [one for one in written for known in (*OF_A_RUN, *OF_A_SWEEP, MARKER) if fnmatchcase(one, known)]
    taken += [one for one in foreign if one in written or one.startswith(f"{name}.")]
    if not plain or len(name.encode()) > _LONGEST_NAME or taken:
        raise UsageError(
            f"result.external_data={name}: the weights lie beside the model, under a plain name that no other file has "
            f"there{f' ({taken[0]} has)' if taken else ''}. For example weights.bin"
        )


def spare_inputs(settings: Settings, files: Iterable[str]) -> None:
    """What a run reads must not be what it writes or moves away; where it writes must be a place for files."""
    _check_places(settings)
    named = list(files_read(settings))
    read = {Path(path).resolve(): path for path in files}
    read |= {Path(path).resolve(): f"{key}={path}" for key, _, path in named}
    written = list(_written(settings))
    if any(path.exists() for *_, path in written):
        for model in (path for _, use, path in named if use == PathUse.READ | PathUse.MODEL):
            read |= {path.resolve(): f"{model}'s weights" for path in weights_beside(Path(model))}
    for number, (key, use, place, path) in enumerate(written):
        if path.resolve() in read:
            what = "this is" if path == Path(place) else f"result.external_data={path.name} lies beside it: it is"
            raise UsageError(f"{key}={place}: {what} {read[path.resolve()]} and would be written over. Name another.")
        twice = next((other for other, *_, there in written[:number] if there.resolve() == path.resolve()), None)
        if twice:
            raise UsageError(f"{key}={place}: {twice} is to be written there. Name another.")
        if path.is_dir() or (PathUse.MODEL in use and path.exists() and not path.is_file()):
            raise UsageError(f"{key}={place}: this is a folder, a device or a pipe. Give a file.")
    # a log that the command names is what it leaves; a program is not
    written_by_check = {
        path.resolve() for word, path in files_of_command(settings).items() if word in Template.data({word: path})
    }
    _check_leftovers(settings, {path: name for path, name in read.items() if path not in written_by_check})


def _check_places(settings: Settings) -> None:
    for key, use, place in path_values(settings):
        if not use & (PathUse.WRITE | PathUse.FOR_CHECK):
            continue
        nearest = next(parent for parent in Path(place).absolute().parents if os.path.lexists(parent))
        if not _writable(nearest):
            raise UsageError(f"{key}={place}: nothing can be written in {nearest}. Give a path in a folder of yours.")


def _check_leftovers(settings: Settings, read: Mapping[Path, str]) -> None:
    start = Path(settings.cwd or ".").absolute()
    for pattern in settings.artifacts.paths:
        for hit in glob(str(Path(pattern).expanduser()), root_dir=start, recursive=True):  # noqa: PTH207
            moved = (start / hit).resolve()
            lost = next((name for path, name in read.items() if path == moved or moved in path.parents), None)
            if lost:
                raise UsageError(f"artifacts.paths=[{pattern}]: it would move {lost} away. Name what the check leaves.")


def _writable(folder: Path) -> bool:
    """Whether a file can be made there; permissions alone do not tell (root, a read-only or virtual file system)."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _written(settings: Settings) -> Iterator[tuple[str, PathUse, str, Path]]:
    """What a run writes outside its folder: keys, what they are for, their values, and the files."""
    weights = settings.result.external_data
    for key, use, place in path_values(settings):
        if PathUse.WRITE in use:
            yield key, use, place, Path(place)
            if PathUse.MODEL in use and weights:
                beside = f"min_good.{weights}" if key == "result.min_good" else weights
                yield key, use, place, Path(place).parent / beside


def check_given(settings: Settings, foreign: Collection[str] = (), files: Iterable[str] = ()) -> None:
    """Raise UsageError for a number beyond its limits, a file or folder that is not there, one that would be lost.

    ``foreign``: names in the run's folder that are not the run's own. ``files``: what the run reads besides.
    """
    wrong = list(beyond_limits(settings))
    if wrong:
        raise UsageError(" ".join(wrong))
    for group in ("strategy", "checker", "target", "reference", "inputs"):
        section = getattr(settings, group)
        if not section.implementation:  # the keys of the base class, which implements nothing
            raise UsageError(
                f"{group}: the YAML of this choice (name: {section.name}) has to begin with "
                f"`defaults: [/schema/{group}/NAME@_here_, _self_]`"
            )
    _search(settings.strategy)
    for path in path_values(settings):
        _possible(*path)
    rules_of(settings.checker)
    for key in ("memory", "disk"):
        bytes_of(f"cut.{key}", getattr(settings.cut, key))
    strategy, checker = settings.strategy, settings.checker
    runs_one = strategy.checks and not checker.runs_own_code and settings.target.model is None
    if settings.model:
        _file("model", settings.model, "*.onnx")
    elif strategy.needs_model or runs_one:
        other = "" if strategy.needs_model else ", or a check that needs none: checker=command"
        started = "to the command that the run was started with"
        add = f"resume={settings.resume} {started}" if settings.resume else f"model=net.onnx{other}"
        raise UsageError(f"no model given; strategy={strategy.name} with checker={checker.name} needs one. Add {add}")
    for key, backend in (("target", settings.target), ("reference", settings.reference)):
        if backend.model is not None:
            _file(f"{key}.model", backend.model, "*.onnx")
    _own_code(settings)
    if settings.cwd is not None and (not settings.cwd or not Path(settings.cwd).is_dir()):
        raise UsageError(f"cwd={settings.cwd}: no such folder. Give the folder in which commands of yours run.")
    check_weights_name(settings.result.external_data, foreign)
    spare_inputs(settings, files)


def _search(strategy: StrategySettings) -> None:
    """Refuse a subject that is another strategy's, a search that is not for it, and what that search does not read."""
    kind, name = type(strategy), f"strategy={strategy.name}"
    if strategy.subject != kind.subject:
        raise UsageError(
            f"strategy.subject={strategy.subject}: {name} is about {kind.subject}, and what it is about comes with the "
            "choice of a strategy. Leave it out"
        )
    known = for_tasks(kind.tasks, SEARCHES) or [kind.search]
    if strategy.search not in known:
        broken = added().broken.get(("strategy", strategy.search))
        if broken and strategy.search not in SEARCHES:
            raise UsageError(f"strategy.search={strategy.search}: {broken}")
        raise UsageError(
            f"strategy.search={strategy.search}: {name} is not searched so{close(strategy.search, known)}. "
            f"Choose one of {', '.join(known)}"
        )
    if isinstance(strategy, RepeatSettings | TacticRepeatSettings):
        try:
            repeat(strategy.until)
        except ValueError as error:
            raise UsageError(f"strategy.{error}") from None
    read = SEARCHES[strategy.search].reads if strategy.search in SEARCHES else ()
    for item in fields(strategy):
        value = getattr(strategy, item.name)
        readers = [one for one in known if one in SEARCHES and item.name in SEARCHES[one].reads]
        if readers and item.name not in read and value != item.default:
            raise UsageError(
                f"strategy.{item.name}={getattr(value, 'value', value)}: strategy.search={strategy.search} does not "
                f"read it; {', '.join(readers)} would. Leave it out"
            )


def _own_code(settings: Settings) -> None:
    for key, section in (("checker", settings.checker), ("inputs", settings.inputs)):
        if not hasattr(section, "file"):
            continue
        if section.file is None:
            raise UsageError(
                f"{key}.file=: which Python file? {key}=python needs one. Next: add {key}.file=path/to/file.py"
            )
        _file(f"{key}.file", section.file, "*.py")


def _file(key: str, name: str, pattern: str) -> None:
    path = Path(name)
    if path.is_file() and os.access(path, os.R_OK):
        return
    from runner.cli.paths_in_configs import refuse_in_file  # noqa: PLC0415 - this loads Hydra

    refuse_in_file(key, name)
    looked = "" if path.is_absolute() else f" (looked in {Path.cwd()})"
    what = "this file may not be read" if path.is_file() else "this is a folder" if path.is_dir() else ""
    what = what or ("this is a device or a pipe" if path.exists() else f"no such file{looked}")
    near = _beside(path, "", pattern) if path.is_dir() else _beside(path.parent, path.name, pattern)
    raise UsageError(f"{key}={name}: {what}.{near}")


def _beside(folder: Path, name: str, pattern: str) -> str:
    """Name the files that could be meant: close ones, else a few."""
    if not folder.is_dir():
        return f" There is no folder {folder} either."
    there = sorted(path.name for path in folder.glob(pattern))
    meant = get_close_matches(name, there, n=3, cutoff=0.5) or there[:5]
    if not meant:
        return f" No {pattern} is there."
    more = f" and {len(there) - len(meant)} more" if len(there) > len(meant) else ""
    return f" There is: {', '.join(str(folder / file) for file in meant)}{more}."
