"""What a job reads of the files of the user, by content: whether its result still holds when the sweep goes on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.checkers.command.template import Template
from runner.cli.config.paths import PATH_KEYS, use_of
from runner.errors import UsageError
from runner.schema.settings import PathUse

#: what is read of a folder: names that end so, and whether in all folders below it or in the next ones only
_VALUES, _RECORDINGS = frozenset({".npz", ".npy", ".pb"}), frozenset({".json", ".log", ".txt"})
#: where commands and functions of the user's run matters only if there are any
_OWN_CODE = frozenset({"command", "python", "interactive"})
#: before the path of a file that a command names
_COMMAND = "checker.command: "
_BLOCK = 1 << 20
#: the key by which a tensor names its file; a model without this word has no external data
_LOCATION = b"location"


def fingerprint(config: DictConfig) -> dict[str, str | None]:
    """Return the SHA-256 of each file that the settings of a job name and a run reads, by absolute path.

    A model's external data count, and what a folder of values or recordings holds. None: there is no such file, or it
    cannot be read. Where code of the user's runs is an entry as well.
    """
    found: dict[str, str | None] = {}
    for key in sorted(key for key, use in PATH_KEYS.items() if PathUse.READ in use):
        for path in _paths(_value(config, key)):
            for file in _files(key, path):
                found[str(file)] = _digest(file)
    home = Path.cwd() / Path(str(_value(config, "cwd") or ".")).expanduser()
    if _value(config, "checker.name") in _OWN_CODE or _value(config, "inputs.name") == "python":
        found["cwd"] = str(home)
    if command := _value(config, "checker.command"):
        with suppress(UsageError):  # the job says so
            for file in Template(command, home, {}).files().values():
                found[f"{_COMMAND}{file.absolute()}"] = _digest(file)
    return found


def unchanged(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> bool:
    """Whether two fingerprints agree. What a command names and was not there before is what it writes itself."""
    more = now.keys() - before.keys()
    return all(key.startswith(_COMMAND) for key in more) and all(now.get(key) == before[key] for key in before)


def rooted(section: Any, folder: Path, prefix: str = "") -> Any:
    """Return plain settings in which paths are absolute; text with an interpolation stays as it is."""
    if isinstance(section, dict):
        items = ((str(key), value) for key, value in section.items())
        return {key: rooted(value, folder, f"{prefix}.{key}" if prefix else key) for key, value in items}
    if isinstance(section, list):
        return [rooted(value, folder, prefix) for value in section]
    use = use_of(prefix)
    is_path = isinstance(section, str) and section and use and "${" not in section
    if not is_path or ("/" not in section and use & (PathUse.PROGRAM | PathUse.LIBRARY)):
        return section
    return str(_home(folder, section))


def _value(config: DictConfig, key: str) -> Any:
    try:
        value = OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _paths(value: Any) -> Iterator[Path]:
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
        if isinstance(item, str) and item:
            yield _home(Path.cwd(), item)


def _home(folder: Path, text: str) -> Path:
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:  # no such user
        return folder / text


def _files(key: str, path: Path) -> Iterator[Path]:
    """Yield the files that are read for ``path``; itself, where it is no folder."""
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):  # too long, a NUL
        return
    if PathUse.MODEL in use_of(key):
        yield path
        yield from weights_of(path)
    elif not is_folder:
        yield path
    elif PathUse.PROGRAM in use_of(key):  # a virtual environment
        yield path / "bin" / "python"
    elif key == "inputs.path":
        folders = [path, *(one for one in _listed(path) if one.is_dir())]
        yield from (file for folder in folders for file in _listed(folder) if file.suffix in _VALUES)
    else:
        below = (Path(at, name) for at, _, names in os.walk(path) for name in names)
        yield from (file for file in below if file.suffix.lower() in _RECORDINGS)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _digest(path: Path) -> str | None:
    known = _known(path)
    return known[0] if known else None


def _known(path: Path) -> tuple[str, bool] | None:
    """Return a file's SHA-256 and whether it may name external data; None where it cannot be read."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return None
        state = path.stat()
        return _read(str(path), (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _read(path: str, _state: tuple[int, ...]) -> tuple[str, bool]:
    """Read a file once for all jobs of a sweep, as long as its state is the same."""
    sha, external, before = hashlib.sha256(), False, b""
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            sha.update(block)
            external = external or _LOCATION in before + block
            before = block[-len(_LOCATION) :]
    return sha.hexdigest(), external


def weights_of(path: Path) -> Iterator[Path]:
    """Yield the files beside a model that hold its weights."""
    known = _known(path)
    if not known or not known[1]:
        return
    import onnx  # noqa: PLC0415 - few models need it, and every start of the program would wait for it

    from runner.model.files.external_data import locations  # noqa: PLC0415

    try:
        names = locations(onnx.load(str(path), load_external_data=False))
    except Exception:  # noqa: BLE001 - whatever lies there: the job says what is wrong with it
        return
    for name in sorted(names):
        if "\0" not in name and not Path(name).is_absolute() and ".." not in Path(name).parts:
            beside = path.parent / name
            # of a link to a model the weights may lie beside its target
            yield beside if beside.exists() else path.resolve().parent / name
