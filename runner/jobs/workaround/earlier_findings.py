"""What earlier runs found: their culprits, what heals, the good releases. Of their files only names are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.report.result import RESULT_NAME, read_result


@dataclass(frozen=True)
class Findings:
    """``nodes``: culprits, where they stand several times all of them; ``heals``: sets of optimizations to turn off.

    ``releases``: (package, version) of good releases. ``models``: digests of the models that these runs were about.
    """

    nodes: tuple[str, ...] = ()
    heals: tuple[tuple[str, ...], ...] = ()
    releases: tuple[tuple[str, str], ...] = ()
    models: tuple[str, ...] = ()


def findings(folders: Iterable[str]) -> Findings:
    """Return what the runs in these folders found. Raises UsageError for one without a result."""
    nodes: dict[str, None] = {}
    heals: dict[tuple[str, ...], None] = {}
    releases: dict[tuple[str, str], None] = {}
    models: dict[str, None] = {}
    for folder in folders:
        result = read_result(Path(folder).expanduser())
        if result is None:
            raise UsageError(f"strategy.results={folder}: no {RESULT_NAME} can be read there. Name the folder of a run")
        passes, cause, released = (_mapping(result.get(key)) for key in ("passes", "cause", "releases"))
        about = _mapping(result.get("context")).get("model")
        models |= {about: None} if isinstance(about, str) else {}
        # the culprits of strategy=passes are optimizations, those of strategy=versions are none
        if result.get("strategy") not in ("passes", "versions"):
            nodes |= dict.fromkeys(_names(result.get("culprits")))
        for answer in filter(lambda one: one.get("is_cause"), map(_mapping, _list(cause.get("answers")))):
            nodes |= dict.fromkeys(name for one in _list(answer.get("instances")) for name in _names(one))
        heals |= {names: None for one in _list(passes.get("heals")) if (names := _names(one))}
        package = released.get("package")
        good = [released.get(key) for key in ("good_after", "good_before")]
        releases |= {(package, one): None for one in good if isinstance(one, str) and isinstance(package, str)}
    return Findings(tuple(nodes), tuple(heals), tuple(releases), tuple(models))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> tuple[str, ...]:
    return tuple(name for name in _list(value) if isinstance(name, str))
