"""Whether what the settings name is there and makes sense: what is wrong is one clear line, before any work."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path

from runner.checkers.tolerances import rules_of
from runner.cli.overwrite_guard import check_paths, check_weights_name, spare_inputs
from runner.disk_space import bytes_of
from runner.judgment import UsageError
from runner.schema.installed_choices import SCHEMAS, SEARCHES, added
from runner.schema.root import Settings
from runner.schema.settings import beyond_limits
from runner.schema.strategy import RepeatSettings, StrategySettings, TacticRepeatSettings
from runner.text import close, program_name
from strategies.registry import for_tasks
from strategies.repeat import repeat


def _with_model(settings: Settings) -> str:
    if settings.resume is None:
        return f"{program_name()} strategy={settings.strategy.name} model=net.onnx"
    return f"the command that the run was started with, and resume={settings.resume} behind it"


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
    check_paths(settings)
    rules_of(settings.checker)
    for key in ("memory", "disk"):
        bytes_of(f"cut.{key}", getattr(settings.cut, key))
    if not settings.model:
        if settings.strategy.needs_model:
            raise UsageError(
                f"model=: which model? strategy={settings.strategy.name} needs one. Next: {_with_model(settings)}"
            )
        runs_one = settings.strategy.checks and not settings.checker.runs_own_code
        if runs_one and settings.target.model is None:
            raise UsageError(
                f"model=: which model? checker={settings.checker.name} runs one. Give model=net.onnx, or let a command "
                "judge: checker=command checker.command='python check.py'"
            )
    else:
        _file("model", settings.model, "*.onnx")
    for key, backend in (("target", settings.target), ("reference", settings.reference)):
        if backend.model is not None:
            _file(f"{key}.model", backend.model, "*.onnx")
    _own_code(settings)
    if settings.resume is not None and not Path(settings.resume).is_dir():
        raise UsageError(f"resume={settings.resume}: no such folder. Give the run folder of an interrupted run.")
    if settings.cwd is not None and (not settings.cwd or not Path(settings.cwd).is_dir()):
        raise UsageError(f"cwd={settings.cwd}: no such folder. Give the folder in which commands of yours run.")
    check_weights_name(settings.result.external_data, foreign)
    spare_inputs(settings, files)


def _search(strategy: StrategySettings) -> None:
    """Refuse a subject that is another strategy's, a search that is not for it, and what that search does not read."""
    kind, name = type(strategy), f"strategy={strategy.name}"
    if strategy.subject != kind.subject:
        schemas = SCHEMAS["strategy"].items()
        fitting = [choice for choice, schema in schemas if getattr(schema, "subject", "") == strategy.subject]
        if not fitting:
            subjects = sorted({schema.subject for _, schema in schemas if issubclass(schema, StrategySettings)})
            raise UsageError(
                f"strategy.subject={strategy.subject}: no such subject{close(strategy.subject, subjects)}. {name} is "
                f"about {kind.subject}; others, {', '.join(subjects)}, come with other strategies. Leave it out"
            )
        raise UsageError(
            f"strategy.subject={strategy.subject}: {name} is about {kind.subject}, and what it is about "
            f"comes with the choice of a strategy: strategy={'|'.join(fitting)}"
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
    if path.is_file():
        if not os.access(path, os.R_OK):
            raise UsageError(f"{key}={name}: this file may not be read. Change its permissions or name another.")
        return
    if path.is_dir():
        raise UsageError(f"{key}={name}: this is a folder. Give a file.{_beside(path, '', pattern)}")
    if path.exists():
        raise UsageError(f"{key}={name}: this is a device or a pipe. Give a file.")
    from runner.cli.path_overrides import refuse_in_file  # noqa: PLC0415 - this loads Hydra

    refuse_in_file(key, name)
    parted = next((one for one in sorted(path.parent.glob(pattern)) if f",{path.name}," in f",{one.name},"), None)
    if parted:
        hint = f" {parted} is there: in a sweep, a name with a comma stands in quotes: \"{key}='{parted}',..\"."
    else:
        hint = _beside(path.parent, path.name, pattern)
    looked = "" if path.is_absolute() else f" (looked in {Path.cwd()})"
    raise UsageError(f"{key}={name}: no such file{looked}.{hint}")


def _beside(folder: Path, name: str, pattern: str) -> str:
    """Name the files that could be meant: close ones, else a few."""
    if not folder.is_dir():
        return f" There is no folder {folder} either."
    there = sorted(path.name for path in folder.glob(pattern))
    meant = get_close_matches(name, there, n=3, cutoff=0.5) or there[:5]
    if not meant:
        return f" {folder} has no {pattern}."
    more = f" and {len(there) - len(meant)} more" if len(there) > len(meant) else ""
    return f" There is: {', '.join(str(folder / file) for file in meant)}{more}."
