"""Whether a job of a sweep, or a step of a triage, that finished before still counts: same settings, same files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from runner.checkers.command_template import Template
from runner.exit_codes import UsageError
from runner.files import sha256_of, stamp
from runner.schema.root import Settings
from runner.schema.settings import PathUse, path_values

# Which files beside a model hold its weights: a guess before it is loaded, whatever lies there.


def weights_beside(path: Path) -> list[Path]:
    """Return the files beside the model at ``path`` that hold its weights; none where it cannot be read."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return []
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            # the key by which a tensor names its file: few models need onnx, and every start would wait for it
            if content.find(b"location") < 0:
                return []
    except (OSError, ValueError):  # what cannot be read or mapped
        return []
    from runner.model.files import parse_without_weights  # noqa: PLC0415

    return [*parse_without_weights.weights_beside(path).values()]


#: what is read of a folder: names that end so
_VALUES, _RECORDINGS = frozenset({".npz", ".npy", ".pb"}), frozenset({".json", ".log", ".txt"})
#: before the path of a file that a command names
_COMMAND = "checker.command: "


def digests(settings: Settings) -> dict[str, str | None]:
    """Return the SHA-256 of each file that the ``settings`` of a job name and a run reads, by absolute path.

    A model's external data count, and what a folder of values or recordings holds. None: there is no such file, or it
    cannot be read. Where code of the user's runs is an entry as well.
    """
    found: dict[str, str | None] = {}
    for key, use, path in files_read(settings):
        for file in _files(key, use, Path(path).absolute()):
            found[f"{_COMMAND if key == 'checker.command' else ''}{file}"] = _digest(file)
    if settings.checker.runs_own_code or settings.inputs.name == "python":
        found["cwd"] = str(Path(settings.cwd or ".").absolute())
    return found


def unchanged(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> bool:
    """Whether two `digests` agree. What a command names and was not there before is what it writes itself."""
    more = now.keys() - before.keys()
    return all(key.startswith(_COMMAND) for key in more) and all(now.get(key) == before[key] for key in before)


#: what may differ between two jobs and changes no answer
_IMMATERIAL = ("log", "verbosity", "workers", "journal", "resume", "recorded")


def asked_of(settings: Settings) -> dict[str, Any]:
    """Return what the answer of a job depends on: its settings, as a digest, and its files by content."""
    plain = {name: value for name, value in asdict(settings).items() if name not in _IMMATERIAL}
    text = json.dumps(plain, default=str)
    return {"settings": hashlib.sha256(text.encode()).hexdigest(), "files": digests(settings)}


def asked_the_same(before: object, now: Mapping[str, Any]) -> bool:
    """Whether a job is asked ``now`` what it was asked ``before``, as a note in its folder says that may be anybody's.

    Both are as `asked_of` says, and may say more.
    """
    if not isinstance(before, dict) or not isinstance(before.get("files"), dict):
        return False
    return {**before, "files": now["files"]} == now and unchanged(before["files"], now["files"])


def files_read(settings: Settings) -> Iterator[tuple[str, PathUse, str]]:
    """Yield the files and folders that a run reads: keys, what they are for, and paths."""
    yield from ((key, use, path) for key, use, path in path_values(settings) if PathUse.READ in use)
    yield from (("checker.command", PathUse.READ, str(path)) for path in files_of_command(settings).values())


def files_of_command(settings: Settings) -> Mapping[str, Path]:
    """Return the files that the check's command names, by the words of the command."""
    command = getattr(settings.checker, "command", None)
    with suppress(UsageError):  # the checker says so
        return Template(command, Path(settings.cwd or "."), {}).files() if command else {}
    return {}


def _files(key: str, use: PathUse, path: Path) -> Iterator[Path]:
    """Yield the files that are read for ``path``; itself, where it is no folder."""
    if PathUse.MODEL in use:
        yield path
        yield from weights_beside(path)
    elif not path.is_dir():
        yield path
    elif PathUse.PROGRAM in use:  # a virtual environment
        yield path / "bin" / "python"
    else:
        inputs = key in ("inputs.path", "reference.path")
        patterns, kinds = (("*", "*/*"), _VALUES) if inputs else (("**/*",), _RECORDINGS)
        yield from (file for pattern in patterns for file in path.glob(pattern) if file.suffix.lower() in kinds)


def _digest(path: Path) -> str | None:
    try:
        return _read(path, stamp(path)) if path.is_file() else None  # a pipe would be waited for
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _read(path: Path, _stamp: tuple[int, ...] | None) -> str:
    """Read a file once for all jobs and steps, as long as its stamp is the same."""
    return sha256_of(path)
