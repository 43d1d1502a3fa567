"""Which jobs of a sweep need not run again: those that ended well with the same settings."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from runner.cli.paths import PATH_KEYS
from runner.report.atomic import write_text
from runner.report.result import RESULT_NAME, read_result

#: exit codes with which a job ended well: it has an answer
ENDED_WELL = frozenset({0, 4, 5, 6})
#: beside a job's result: with what settings it came about
NAME = "ended.json"
_WRITTEN = ("resume", "result.", "log.", "journal.", "artifacts.")
#: what may differ between the two runs and changes no answer
_IMMATERIAL = ("hydra", "resume", "verbosity", "log")


def note(folder: Path, config: DictConfig, exit_code: int) -> None:
    """Write down that the job with ``config`` has ended in ``folder``."""
    with suppress(OSError):  # it would only run once more
        write_text(folder / NAME, json.dumps({"exit_code": exit_code, "settings": digest(config)}) + "\n")


def forget(folder: Path) -> None:
    """Begin anew: whatever was noted is of an earlier run."""
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)


def earlier(folder: Path, config: DictConfig) -> Mapping[str, Any] | None:
    """Return the result in ``folder``, if ``config`` (of one job) led to it, it is an answer, and no input is newer."""
    try:
        noted = json.loads((folder / NAME).read_text(encoding="utf-8"))
        written = (folder / RESULT_NAME).stat().st_mtime_ns
        settings, code = noted["settings"], noted["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    result = read_result(folder) or {}
    if code not in ENDED_WELL or result.get("exit_code") != code or settings != digest(config):
        return None
    for path in _inputs(config):
        with suppress(OSError):
            if path.stat().st_mtime_ns > written:
                return None
    return result


def number_of(folder: Path) -> int | None:
    """Return the number that the job in ``folder`` had, as Hydra wrote it down."""
    try:
        text = (folder / ".hydra" / "hydra.yaml").read_text(encoding="utf-8")
        return int(yaml.safe_load(text)["hydra"]["job"]["num"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None


def confirm(folder: Path) -> None:
    """Make the result count as this sweep's: tables leave out what was there before."""
    for path in (folder / ".hydra" / "hydra.yaml", folder / RESULT_NAME):
        with suppress(OSError):
            os.utime(path)


def digest(config: DictConfig) -> str:
    """Return a hash of a job's settings as they were written, without those that change no answer."""
    plain = copy.deepcopy(config)
    with read_write(plain), open_dict(plain):
        for key in _IMMATERIAL:
            plain.pop(key, None)
    return hashlib.sha256(OmegaConf.to_yaml(plain).encode()).hexdigest()


def _inputs(config: DictConfig) -> Iterator[Path]:
    """Yield the files that the settings name and a run reads, as far as they exist."""
    home = Path(str(_value(config, "cwd") or ".")).expanduser()
    for key in PATH_KEYS:
        if not key.startswith(_WRITTEN):
            yield from _existing(_value(config, key), Path())
    command = _value(config, "checker.command")
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError:
            command = []
    yield from _existing(command, home)


def _value(config: DictConfig, key: str) -> Any:
    try:
        value = OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _existing(value: Any, home: Path) -> Iterator[Path]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and item:
            with suppress(OSError, ValueError, RuntimeError):
                path = home / Path(item).expanduser()
                if path.exists():
                    yield path
