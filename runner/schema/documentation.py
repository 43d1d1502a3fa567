"""What each setting means and takes, out of the classes and the comments in conf/.

Every key that can be set: what it means, what it takes, its default. One source for `--help` and for the docs.

What a key means is said above it in ``conf/`` (and in the ``conf`` of packages that add options); its type, choices and
limits are those of its settings class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import yaml

from runner.schema.installed_choices import CONF, SCHEMAS, layers, option_files
from runner.schema.root import CutSettings, Settings
from runner.schema.settings import PathUse, type_words

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# A YAML file of `conf/` with its comments: what is said at its head, and above each key.

#: a comment as long as this goes on in the next line; a shorter one ends there
_FULL_LINE = 110
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_]\w*):(\s|$)")


@dataclass
class CommentedFile:
    """What a file says: the lines at its head, values by key, comments by dotted key; and the schema it stands on."""

    head: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    schema: type | None = None


def read_commented(path: Traversable) -> CommentedFile:
    """Return what a YAML file holds and says; one that is not valid, a package's, holds nothing."""
    text = path.read_text(encoding="utf-8")
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError:
        values = None
    head: list[str] = []
    comments: dict[str, str] = {}
    above: list[str] = []
    inside: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# ").rstrip())
            continue
        head = head or [one for one in above if not one.startswith("@package")] or [""]
        match = _KEY.match(line)
        if match:
            depth = len(match["indent"])
            inside = [*((at, name) for at, name in inside if at < depth), (depth, match["key"])]
            if above:
                comments[".".join(name for _, name in inside)] = joined(above)
        above = []
    return CommentedFile(tuple(head or above), values if isinstance(values, dict) else {}, comments)


def joined(lines: Sequence[str]) -> str:
    """Return a comment with the lines that mean something, and not those that are only full."""
    said = ""
    full = True
    for line in lines:
        said += f"{'' if not said else ' ' if full else chr(10)}{line}"
        full = len(line) >= _FULL_LINE
    return said


#: what each group of options is about
GROUPS: Mapping[str, str] = {
    "strategy": "what is searched for, and how",
    "checker": "how a model is judged",
    "target": "what is under test",
    "reference": "what is trusted",
    "inputs": "what the model is fed",
    "artifacts": "which candidates are kept",
    "workers": "how many checks run at once, in what limits, and on which GPUs",
    "experiment": "settings of several groups in one word; it is appended: +experiment=NAME",
}
#: what says which option this is, and no more
_IDENTITY = frozenset({"defaults", "name", "subject"})
_EXAMPLE = "python -m runner "


@dataclass(frozen=True)
class Key:
    """A key, as the options that mean the same by it have it.

    ``name``: as it is typed. ``group``: what it begins with, "" where it has no dot. ``options``: of the group; none
    where the group has no options. ``type``: what it takes, in words. ``defaults``: as YAML, by option; by "" where
    there are none. ``choices``: names that it takes, if it takes only such. ``least``, ``most``: limits of its number.
    ``text``: what it means. ``path``: what its path is for, if it holds one.
    """

    name: str
    group: str
    options: tuple[str, ...]
    type: str
    defaults: Mapping[str, str]
    choices: tuple[str, ...]
    least: float | None
    most: float | None
    text: str
    path: PathUse | None


@dataclass(frozen=True)
class Option:
    """An option of a group: what it is, and a command that uses it, without the program's name."""

    group: str
    name: str
    text: str
    example: str


@cache
def keys() -> tuple[Key, ...]:
    """Return all keys, in the order of the configuration; one for each meaning that a name has."""
    root = read_commented(CONF / "config.yaml")
    cut = read_commented(CONF / "shared" / "cut.yaml")
    found: list[Key] = []
    hints = get_type_hints(Settings)
    for item in fields(Settings):
        kind = hints[item.name]
        if item.name in SCHEMAS:
            found += _of_group(item.name)
        elif is_dataclass(kind):
            file = replace(cut, schema=kind) if kind is CutSettings else _section(root, item.name, kind)
            found += _of_class(item.name, "", file)
        else:
            found.append(_key(item.name, "", item, kind, root))
    return (*found, *_of_hydra(root))


@cache
def options() -> tuple[Option, ...]:
    """Return all options that can be chosen, with those that installed packages add."""
    found: list[Option] = []
    for group in GROUPS:
        for name, file in sorted(option_files(group).items()):
            first, *rest = read_commented(file).head or ("",)
            example = first.removeprefix(_EXAMPLE) if first.startswith(_EXAMPLE) else ""
            found.append(Option(group, name, joined(rest if example else [first, *rest]), example))
    return tuple(found)


@cache
def sections() -> Mapping[str, str]:
    """Return what each group of keys is about, by what its keys begin with."""
    comments = read_commented(CONF / "config.yaml").comments
    held = {item.name: comments.get(item.name, "") for item in fields(Settings) if is_dataclass(item.default_factory)}
    return {
        **GROUPS,
        **{name: text for name, text in held.items() if text},
        "cut": joined(read_commented(CONF / "shared" / "cut.yaml").head[1:]),
        "hydra": comments["hydra"],
    }


def _of_group(group: str) -> list[Key]:
    options_of_it = sorted(option_files(group))
    found = [(option, key) for option in options_of_it for key in _of_class(group, option, _made_of(group, option))]
    texts = {key.name: key.text for _, key in reversed(found) if key.text}
    same: dict[Any, Key] = {}
    for option, bare in found:
        # a package's file need not say again what its key means in all options
        key = bare if bare.text else replace(bare, text=texts.get(bare.name, ""))
        meaning = key.name, key.type, key.least, key.most, key.text
        before = same.get(meaning, replace(key, options=(), defaults={}))
        named = (*before.options, option)
        same[meaning] = replace(before, options=named, defaults={**before.defaults, **key.defaults})
    return list(same.values())


def _of_class(group: str, option: str, file: CommentedFile) -> list[Key]:
    if file.schema is None:  # a package's file that cannot be read, or of a schema that is not there
        return []
    hints = get_type_hints(file.schema)
    held = [item for item in fields(file.schema) if item.name not in (_IDENTITY if option else ())]
    return [_key(f"{group}.{item.name}", option, item, hints[item.name], file) for item in held]


def _key(name: str, option: str, item: Field[Any], hint: Any, file: CommentedFile) -> Key:
    limits = item.metadata
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    kinds = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Enum)]
    text = file.comments.get(item.name, "")
    # not those that make no sense for this key, which no comment tells
    choices = tuple(str(one.value) for one in (kinds[0] if kinds else ()) if not text or _says(text, str(one.value)))
    return Key(
        name,
        name.rpartition(".")[0],
        (option,) if option else (),
        " | ".join(choices) or type_words(hint, limits.get("path")),
        {option: _yaml(file.values.get(item.name, default))},
        choices,
        limits.get("least"),
        limits.get("most"),
        text,
        limits.get("path"),
    )


def _of_hydra(root: CommentedFile) -> list[Key]:
    """Return the keys that Winnow has put into Hydra's own section."""
    launcher = read_commented(CONF / "hydra" / "launcher" / "winnow.yaml")
    jobs = Key(
        "hydra.launcher.n_jobs", "hydra", (), type_words(int | None), {"": _yaml(None)}, (), 1, None,
        launcher.comments["n_jobs"], None,
    )  # fmt: skip
    found = []
    for name, text in root.comments.items():
        value: Any = root.values
        for part in name.split("."):
            value = value[part]
        if name.startswith("hydra.") and not isinstance(value, dict):
            kind = list[str] if isinstance(value, list) else type(value)
            found.append(Key(name, "hydra", (), type_words(kind), {"": _yaml(value)}, (), None, None, text, None))
    return [*found, jobs]


def _made_of(group: str, option: str) -> CommentedFile:
    """Return what an option's file says, with what it stands on; that of a package may be wrong in any way."""
    made = CommentedFile(read_commented(option_files(group)[option]).head)
    try:
        for layer in layers(f"{group}/{option}"):
            if isinstance(layer, type):
                made.schema = layer
                continue
            file = read_commented(layer)
            made.values |= file.values
            made.comments |= file.comments
    except Exception:  # noqa: BLE001 - whatever it is, a run with it says so
        return CommentedFile(made.head)
    return made


def _section(root: CommentedFile, name: str, kind: Any) -> CommentedFile:
    comments = {key.partition(".")[2]: text for key, text in root.comments.items() if key.startswith(f"{name}.")}
    return CommentedFile(values=root.values[name], comments=comments, schema=kind)


def _says(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def _yaml(value: Any) -> str:
    plain = value.value if isinstance(value, Enum) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")
