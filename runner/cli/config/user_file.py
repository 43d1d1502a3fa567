"""A user's own YAML file as the primary configuration.

It is read here and not by Hydra: a file called ``config.yaml`` would otherwise be taken for the shipped one, and a file
without ``defaults`` would replace the whole configuration instead of changing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config import allowed
from runner.cli.config.bounded_yaml import BoundedLoader, read_yaml
from runner.cli.config.file_paths import content_from_file, tell_of_commands
from runner.errors import UsageError
from runner.schema.installed_choices import SCHEMAS

#: under this name Hydra finds the file; no file of a user's is likely to be called so
NAME = "winnow-user-file"
FILES: dict[str, tuple[DictConfig, str]] = {}
"""What was stored, by the name that Hydra has for it: the content, and the file."""


class _Loader(BoundedLoader):
    """YAML in which off, on, yes and no are text, as in YAML 1.2, with duplicate keys refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} is there twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def store_user_file(path: Path, name: str = NAME) -> str:
    """Register the file as a primary config and return its name. Raises UsageError for a file that is no such thing."""
    return store_content(read_user_file(path), path, name)


def store_content(content: dict[str, Any], path: Path, name: str = NAME) -> str:
    """Register what was read of the file at ``path``: see `store_user_file`."""
    options: dict[str, Any] = {}
    if "defaults" not in content:
        content, options = with_defaults(content, name)
    elif isinstance(content["defaults"], list) and "_self_" not in content["defaults"]:
        content = {**content, "defaults": [*content["defaults"], "_self_"]}  # as Hydra does, with a warning of its own
    try:
        for key, part in {**{f"{group}/{name}": option for group, option in options.items()}, name: content}.items():
            allowed.check(part, key.rpartition("/")[0], str(path))
            FILES[key] = OmegaConf.create(part), str(path)
    except OmegaConfBaseException as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error
    return name


def read_user_file(path: Path) -> dict[str, Any]:
    """Return the mapping that the YAML file holds, its paths from the file's folder on: see `read_settings`."""
    content = read_settings(path)
    tell_of_commands(content, path)
    return content_from_file(content, path)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the mapping that the YAML file holds. Raises UsageError naming file and line otherwise."""
    content = read_yaml(path, _Loader)
    if content is None:
        content = {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path}: this is no mapping of keys to values. A line of it looks like  model: net.onnx")
    return content


def with_defaults(content: Mapping[str, Any], called: str = NAME) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the file's content with the defaults that it means, and options made of its sections, by group.

    A group may be given as the name of an option, or as a section in which ``name`` is the option (or which has
    ``defaults`` of its own, as in a replay). Such a section
    becomes an option of its own, so that another choice on the command line replaces all of it.
    """
    body, options = dict(content), {}
    defaults: list[Any] = ["config"]
    for group in SCHEMAS:
        value = body.get(group)
        if isinstance(value, str):
            defaults.append({f"override {group}": value})
            del body[group]
        elif isinstance(value, Mapping) and ("defaults" in value or isinstance(value.get("name"), str)):
            defaults.append({f"override {group}": called})
            options[group] = {"defaults": [value.get("name"), "_self_"], **value}
            del body[group]
    given = body.get("hydra")
    hydra = dict(given) if isinstance(given, Mapping) else {}
    for group in ("launcher", "sweeper"):
        if isinstance(hydra.get(group), str):
            defaults.append({f"override hydra/{group}": hydra.pop(group)})
            body["hydra"] = hydra
    return {"defaults": [*defaults, "_self_"], **body}, options
