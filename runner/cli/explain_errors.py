"""Hydra's and OmegaConf's errors in one clear line or two: what, where, the valid options, the next command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from traceback import walk_tb
from typing import Any, get_type_hints

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from runner.cli.arguments import FLAGS
from runner.disk_space import FULL
from runner.exit_codes import Status, WinnowError
from runner.schema.installed_choices import SCHEMAS, added
from runner.schema.root import Settings
from runner.schema.settings import type_words
from runner.text import close, did_you_mean, install, nearest, one_line, program_name

#: how much of a path a message shows
_SHOWN = 200
#: the same of what Hydra says, which repeats all choices of a sweep
_LONGEST = 1000
_OUR_MODULES = ("runner", "strategies")


def explain(error: BaseException, *, sweep: bool = False) -> str:
    """Return the message for ``error``, without a traceback. ``sweep``: the folder that may be meant is a sweep's."""
    if isinstance(error, RecursionError):
        return f"the configuration is nested too deeply to be read. {_next()}"
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        advice = f"Quote the value: \"{key}='{value}'\". In a mapping keys have no quotes: '{key}={{name: value}}'"
        said = error.message.strip().partition("\n")[0]
        return f"{error.override}: not a valid override ({said}). {advice}"
    chain = list(chain_of(error))
    if isinstance(error, (OSError, ValueError)):  # Hydra makes the folder of a run, and opens the log there
        for link in chain:
            if isinstance(link, OSError):
                return _folder(link, sweep=sweep)
    for link in chain:
        if isinstance(link, WinnowError):
            return str(link)
    for link in chain:
        if (
            isinstance(link, OmegaConfBaseException)
            and link.full_key
            and "interpolation" not in type(link).__name__.lower()
        ):
            return _wrong_value(error, link)
    if several := re.match(r"Ambiguous value for argument '([\w.+]+)=", str(error)):
        key = several[1]
        return f"{key}: several choices. Give one, or -m for a run of each; a comma in a name: \"{key}='a,b'\""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return f"{one_line(text.rstrip('.'), _LONGEST)}. {_next()}"


def _next(key: str = "") -> str:
    """Return the command that shows what can be set; of the section that ``key`` lies in where there is one."""
    section = key.partition(".")[0]
    known = section in {item.name for item in fields(Settings)}
    return f"To see what there is: {program_name()} --help{f' {section}' if known else ''}"


def _folder(error: OSError, *, sweep: bool) -> str:
    name = str(error.filename or "")
    what = f"{name[:_SHOWN]}...: " if len(name) > _SHOWN else f"{name}: " if name else ""
    key = "hydra.sweep.dir" if sweep else "hydra.run.dir"
    advice = "Make room, or give a folder elsewhere" if error.errno in FULL else "Give a folder that can be written"
    return f"{what}{error.strerror or error}. {advice}: {key}=FOLDER"


def exit_code_of(error: BaseException) -> int:
    """Return the exit code: a full disk is no mistake of the user's."""
    full = any(isinstance(link, OSError) and link.errno in FULL for link in chain_of(error))
    return (Status.no_room if full else Status.usage).exit_code


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it came from."""
    link: BaseException | None = error
    seen: list[BaseException] = []
    while link is not None and all(link is not other for other in seen):
        seen.append(link)
        yield link
        link = link.__cause__ or link.__context__


def whose_bug(error: BaseException, config: Mapping[str, Any]) -> str:
    """Say whose mistake an unexpected error is: Winnow's, or that of a choice which an installed package adds.

    The innermost line that belongs to either decides; where it is ours, what theirs returned may have led to it.
    """
    packages = added().packages
    chosen = [(group, config.get(group, {}).get("name")) for group in SCHEMAS]
    chosen.append(("strategy.search", config.get("strategy", {}).get("search")))
    used = [(packages[one], f"{one[0]}={one[1]} of the installed package {packages[one]}") for one in chosen
            if one in packages]  # fmt: skip
    modules = [frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    inner = next((one for one in reversed(modules) if one in _OUR_MODULES or ("", one) in packages), "")
    package = packages.get(("", inner))
    if package is None:
        return " or ".join(["Winnow", *(text for _, text in used)])
    return " or ".join(text for other, text in used if other == package) or f"the installed package {package}"


def unknown_key(key: str, where: type | None, given: str = "") -> str:
    """Say that ``key`` (dotted) is no key of the settings class ``where``."""
    parent, _, name = key.rpartition(".")
    options = [item.name for item in fields(where)] if where is not None and is_dataclass(where) else []
    if not parent:
        options += ["experiment"]
    if parent in options:  # a file has it at its top level
        return (
            f"{given or key}: a key of a file has no dot in it. Write it in its section: {parent}: {{{name}: ...}}, or "
            f"give {key}=... on the command line."
        )
    owner = _owner(parent, where)
    elsewhere = _keys_of_choices(parent)
    others = [name] if name in elsewhere else [] if nearest(name, options) else nearest(name, elsewhere)
    meant = [f"{parent}.{one}" for one in others if one != name] or nearest(name, [] if others else options)
    text = f"{given or key}: {owner} has no key {name!r}{did_you_mean(meant)}."
    text += "".join(f" {parent}.{one} needs {_choice(parent, elsewhere[one])}." for one in others)
    if options:
        text += f" Keys: {', '.join(options)}."
    if parent in SCHEMAS and _is_base(where):
        text += (
            f" Which keys there are depends on the choice: name one ({parent}={'|'.join(SCHEMAS[parent])}); "
            f"an option file of your own starts with `defaults: [{getattr(where, 'name', '')}, _self_]`."
        )
    elif not parent and name == "experiment":
        text = f"{given or key}: experiments are appended: +{given or key}."
    return text


def _keys_of_choices(group: str) -> dict[str, list[str]]:
    """Return the choices of a group by the keys that they have."""
    found: dict[str, list[str]] = {}
    for choice, kind in SCHEMAS.get(group, {}).items():
        for item in fields(kind):
            found.setdefault(item.name, []).append(choice)
    return found


def _choice(group: str, names: list[str]) -> str:
    said = f"{group}={'|'.join(names)}"
    flag = next((f" ({name} {one.value})" for name, one in FLAGS.items() if said == one.keys[0]), "")
    return f"{said}{flag}"


def _is_base(where: type | None) -> bool:
    """Whether a settings class is what those of all choices of a group have in common."""
    return getattr(where, "implementation", None) == ""


def _owner(parent: str, where: type | None) -> str:
    name = "" if _is_base(where) or parent == "strategy" else getattr(where, "name", "")
    return f"{parent}={name}" if name and "." not in parent else parent or "the configuration"


def _wrong_value(error: BaseException, cause: OmegaConfBaseException) -> str:
    key = str(cause.full_key)
    where = cause.object_type if isinstance(cause.object_type, type) else None
    given = _override_in(str(error), key)
    source = re.match(r"In '([^']*)'", str(error))
    if source:
        given = f"{key} (in {source.group(1)})"
    first = str(cause).strip().partition("\n")[0]
    if "not in" in first or "Could not override" in str(error):
        return f"{unknown_key(key, where, given)} {_next(key)}"
    hint = get_type_hints(where).get(key.rpartition(".")[2]) if is_dataclass(where) else None
    expected = type_words(hint) if hint is not None else ""
    text = f"{given or key}: {first.rstrip('.')}."
    if expected:
        text += f" {key} takes {expected}."
        value = given.partition("=")[2]
        choices = expected.split(" | ")
        text += close(value, choices) if value else ""
    if key in SCHEMAS:
        text = (
            f"{given or key}: choose an option with {key}=NAME, or in a file's defaults with `- override {key}: NAME`."
        )
    if "False" in first and expected and "off" in expected:
        text += ' In YAML, off means false: write "off" in quotes.'
    return f"{text} {_next(key)}"


def _override_in(text: str, key: str) -> str:
    found = re.search(rf"(\+*{re.escape(key)}=.*)$", text.splitlines()[0]) if text else None
    if found is None and text:
        found = re.search(rf"use \+({re.escape(key)}=.*)$", text)
    return found.group(1) if found else ""


def _missing_option(error: MissingConfigException) -> str:
    missing = error.missing_cfg_file or ""
    group, name = str(PurePosixPath(missing).parent), PurePosixPath(missing).name
    options = list(error.options or ())
    if group == ".":
        found = re.search(r"Primary config (?:module|directory) '(.*)' not found", str(error))
        return f"no configuration called {found.group(1) if found else missing!r}. {_next()}"
    what = f"+{group}={name}" if group == "experiment" else f"{group}={name}"
    listed = f" Options: {', '.join(options)}." if options else ""
    source = re.match(r"In '([^']*)'", str(error))
    where = f" (in {source.group(1)})" if source and source.group(1) != "config" else ""
    extra = f" It comes with an extra: {install('slurm')}." if name.startswith("submitit_") else ""
    broken = added().broken.get((group.removeprefix("schema/"), name))
    if broken:
        return f"{what.removeprefix('schema/')}: {broken}"
    if name in added().schemas.get(group, {}) or (group == "strategy" and name in added().searches):
        return f"{what}{where}: an installed package adds it, but its conf/{group}/{name}.yaml is missing"
    said = f"{what}{where}: no such option{close(name, options)}.{extra}{listed}"
    return f"{said} To see all groups: {program_name()} --help"
