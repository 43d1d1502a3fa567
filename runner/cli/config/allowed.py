"""What a file that came with a bug report may set of Hydra's own section: none of them may bring code with it.

Hydra takes classes, modules and environment variables from there: callbacks, handlers of logs, launchers, search paths.
On the command line a user may set any of that. A file that is not Winnow's (or an installed plugin's) may set what
`ALLOWED` names, and nothing else below ``hydra``, however it gets there: as a section of the primary file, as an option
of a group beside it, by a package of another name, or as a parameter of a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.errors import UsageError

#: what a file of a user's may set of Hydra's own; a launcher's keys are those that begin with no underscore
ALLOWED = (
    "hydra.mode",
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.launcher",
    "hydra.sweeper.max_batch_size",
    "hydra.sweeper.params",
    "hydra.verbose",
    "hydra.job.config.override_dirname.exclude_keys",
    "hydra.job.config.override_dirname.item_sep",
    "hydra.job.config.override_dirname.kv_sep",
)
#: those of which a value may be a list, of plain texts
_LISTS = frozenset({"hydra.verbose", "hydra.job.config.override_dirname.exclude_keys"})
#: a parameter of a sweep, as the override that it will be, that sets something of Hydra's own
_OF_HYDRA = re.compile(r"[+~]*(hydra([./@:=]|$)|[^=]*[@:]_?(hydra|global_)?([.=]|$)|[^=]*@[^=]*hydra)")
_PLACE = re.compile(r"hydra(\.\w+)*")


def check(content: Mapping[Any, Any], place: str, file: str) -> None:
    """Raise UsageError for what a ``file`` of a user's may not set.

    ``place``: the section that its content becomes unless whoever includes it names another, which no file may do of
    Hydra's own section.
    """
    of_hydra = _names_hydra(place)
    defaults = content.get("defaults")
    for entry in defaults if isinstance(defaults, list) else ():
        word = " ".join(map(str, entry)) if isinstance(entry, Mapping) else str(entry)
        package = word.partition("@")[2]
        if (
            _names_hydra(package)
            or "$" in package
            or (of_hydra and (isinstance(entry, Mapping) or set(word) & {*"/@"}))
        ):
            raise _error(f"defaults: {word}", file)
    if of_hydra:
        if not _PLACE.fullmatch(place):
            raise _error(place, file)
        content = {key: value for key, value in content.items() if key != "defaults"}
        for part in reversed(place.split(".")):
            content = {part: content}
    for key in _refused(content["hydra"], "hydra", file) if "hydra" in content else ():
        raise _error(key, file)


def _names_hydra(package: str) -> bool:
    return "hydra" in re.split(r"[./\[\]:@\s]+", package)


def _error(key: str, file: str) -> UsageError:
    return UsageError(
        f"{file}: {key}: a file may not set this so; much of Hydra's own section can name code to run. A file "
        f"may set {', '.join(ALLOWED)}. What else you want: on the command line"
    )


def _refused(value: Any, key: str, file: str) -> Iterator[str]:
    """Yield the keys below ``hydra`` that a file may not set, or not to such a value."""
    if key == "hydra.launcher":
        yield from [f"{key}.{inner}" for inner in _special(value)] if isinstance(value, dict) else [key]
    elif key == "hydra.sweeper.params":
        refuse_parameters(value, file)
    elif key in ALLOWED:
        texts = key in _LISTS and isinstance(value, list) and all(isinstance(one, str) for one in value)
        if isinstance(value, (dict, list)) and not texts:
            yield key
    elif isinstance(value, dict) and any(allowed.startswith(f"{key}.") for allowed in ALLOWED):
        for name, inner in value.items():
            if name != "defaults":  # on what a section stands
                yield from _refused(inner, f"{key}.{name}", file)
    else:
        yield key


def refuse_parameters(params: Any, file: str) -> None:
    """Raise UsageError for parameters of a sweep that a file may not set."""
    names = [str(name) for name in params] if isinstance(params, dict) else []
    wrong = next((name for name in names if _OF_HYDRA.match(name)), None)
    if wrong is not None or not isinstance(params, (dict, type(None))) or any(_special(params)):
        raise UsageError(
            f"{file}: hydra.sweeper.params: {wrong if wrong is not None else params}: a file sweeps over keys of "
            "Winnow's only, as in {model: 'a.onnx,b.onnx'}; what else you want: on the command line"
        )


def _special(value: Any) -> Iterator[str]:
    """Yield the keys in ``value``, at any depth, that Hydra makes objects by: `_target_` and its like."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if str(name).startswith("_"):
                yield str(name)
            yield from (f"{name}.{key}" for key in _special(inner))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from (f"{number}.{key}" for key in _special(inner))


def refuse_borrowed(node: Any, prefix: str) -> None:
    """Refuse an interpolation that brings an object's description to where Hydra makes objects of such."""
    names: Any = node if isinstance(node, DictConfig) else range(len(node)) if OmegaConf.is_list(node) else ()
    for name in names:
        key = f"{prefix}.{name!s}"
        if OmegaConf.is_missing(node, name):
            continue
        if not OmegaConf.is_interpolation(node, name):
            refuse_borrowed(node[name], key)
            continue
        try:
            value = node[name]
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException:  # whoever reads it will say so
            continue
        for special in _special(plain):
            raise UsageError(f"{key}: it stands for a value with {special}, which can name code to run. Write a value.")
