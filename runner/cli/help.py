"""What --help prints: a page for people, and what is asked about by name, out of the settings classes and `conf/`.

What a key means is said above it in ``conf/`` (and in the ``conf`` of packages that add options); its type, choices and
limits are those of its settings class.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import yaml

from runner.cli.arguments import FLAGS
from runner.cli.paths import exists
from runner.exit_codes import UsageError
from runner.schema.installed_choices import CONF, SCHEMAS, layers, option_files, usual_choices
from runner.schema.root import CutSettings, Settings
from runner.schema.settings import type_words
from runner.text import close, program_name

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
    ``text``: what it means.
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
            found.append(_documented(item.name, "", item, kind, root))
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
    return [_documented(f"{group}.{item.name}", option, item, hints[item.name], file) for item in held]


def _documented(name: str, option: str, item: Field[Any], hint: Any, file: CommentedFile) -> Key:
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
    )


def _of_hydra(root: CommentedFile) -> list[Key]:
    """Return the keys that Winnow has put into Hydra's own section."""
    launcher = read_commented(CONF / "hydra" / "launcher" / "winnow.yaml")
    jobs = Key(
        "hydra.launcher.n_jobs", "hydra", (), type_words(int | None), {"": _yaml(None)}, (), 1, None,
        launcher.comments["n_jobs"],
    )  # fmt: skip
    found = []
    for name, text in root.comments.items():
        value: Any = root.values
        for part in name.split("."):
            value = value[part]
        if name.startswith("hydra.") and not isinstance(value, dict):
            kind = list[str] if isinstance(value, list) else type(value)
            found.append(Key(name, "hydra", (), type_words(kind), {"": _yaml(value)}, (), None, None, text))
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


# The page for people.

WIDTH = 80
_COMMANDS = (
    ("net.onnx", "triage: whose bug it is, where it lies, and what helps"),
    ("reduce net.onnx", "the smallest part that still fails (strategy=reduce model=net.onnx)"),
    ("reduce net.onnx --check 'python check.py {model}'", "the same, judged by a check of yours"),
    ("mybug.yaml checker.timeout=60", "a configuration file of yours, with one setting changed"),
    ("-m reduce 'model=glob(failures/*.onnx)'", "a sweep: one run for each model, and one table"),
)
#: words that are no strategy's name, with what they do
WORDS = {
    "resume RUN": "continues an interrupted run or sweep",
    "ls": "lists the runs so far",
    "status [RUN]": "shows how far jobs are, and how to continue",
    "open [RUN]": "opens the page of a run (the last one)",
    "diff RUN RUN": "shows how two runs differ",
}
_SWITCHES = {"--json": "print result.json and nothing else", "-v": "a line for each check"}
#: the keys that people need
_KEYS = ("target.optimization", "target.providers", "inputs.shapes", "budget.seconds", "result.path")
_MORE = (
    ("--help checker", "a group, its options and keys (also --help budget)"),
    ("--help checker=command", "one option (also --help reduce), or one key"),
    ("inputs net.onnx", "prints shapes and ranges of inputs, as YAML"),
    ("--cfg job", "all settings of a run (--hydra-help: Hydra's own)"),
)
_CODES = (
    "Exit codes: 0 found, 2 usage, 3 could not judge, 4 nothing to find, 5 no set helps, 6 not applicable, 7 a "
    "failed job or not as expected, 8 suspected, 9 wrong reference, 130/143 interrupted, 1 internal error or full disk."
)


def overview() -> str:
    """Return the page for people, which fits on a screen."""
    program = program_name()
    lines = ["Winnow finds the smallest part of a model that still fails, and why it does.", ""]
    for typed, meaning in _COMMANDS:
        lines += [f"  {program} {typed}", *wrap(meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    lines += _table({f"{program} {typed}": meaning for typed, meaning in WORDS.items()})
    flags = {f"{flag} {meant.value}": meant.meaning for flag, meant in FLAGS.items()}
    lines += ["", "Flags", *_table({**flags, **_SWITCHES}), ""]
    lines += ["Groups and their options (GROUP=OPTION; [the default]; a model alone: triage)"]
    lines += _table(_options_of_groups())
    lines += ["", "Frequent keys (KEY=VALUE)"]
    meanings = defaultdict[str, str](str)
    for key in keys():
        meanings[key.name] = meanings[key.name] or re.split(r"[;:(\n]|\. ", key.text)[0].rstrip()
    lines += _table({name: meanings[name] for name in _KEYS})
    lines += ["", f"More: {program} ...", *_table(dict(_MORE)), "", *wrap(_CODES, WIDTH)]
    return "\n".join(lines)


def _options_of_groups() -> dict[str, str]:
    """Return the options by group, those of two groups that have the same ones together."""
    chosen = usual_choices()
    names: dict[str, str] = {}
    for group in GROUPS:
        held = [one.name for one in options() if one.group == group]
        text = ", ".join(f"[{name}]" if chosen.get(group) == name else name for name in held)
        same = next((other for other, before in names.items() if before == text), "")
        names.pop(same, None)
        names[f"{same}, {group}" if same else group] = text
    names["experiment"] = f"{names['experiment']} (as +experiment=NAME)"
    return names


def _table(rows: dict[str, str]) -> list[str]:
    first = max(map(len, rows)) + 4
    lines = []
    for name, text in rows.items():
        lead = f"  {name}".ljust(first)
        lines += wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * first, break_on_hyphens=False)
    return lines


# `--help WORD`: a group, an option of one, or a key, with what `conf/` says of it.

_FILES = (".onnx", ".yaml", ".yml")
_NARROWEST, _WIDEST = 60, 110


def help_text(typed: Sequence[str]) -> str:
    """Return what there is to say of what was typed beside `--help`, in any order; of nothing: the page for people.

    Raises UsageError for a word that nothing is called by.
    """
    known = topics()
    # a topic is meant by its name, whatever is called so where the user stands
    words = [
        word
        for word in typed
        if word in known or _keys_called(word) or not (word.startswith("-") or word.endswith(_FILES) or exists(word))
    ]
    return "\n\n".join(map(_about, dict.fromkeys(words))) if words else overview()


def topics() -> list[str]:
    """Return all that can be asked about."""
    choices = [name for one in options() for name in (f"{one.group}={one.name}", *_verb(one))]
    words = [typed.split()[0] for typed in WORDS]
    return list(dict.fromkeys([*sections(), *choices, *words, *(key.name for key in keys())]))


def _about(word: str) -> str:
    name, equals, value = word.lstrip("+~").partition("=")
    found = options()
    chosen = [one for one in found if (name, value) == (one.group, one.name) or (not equals and name in _verb(one))]
    if chosen:
        return "\n\n".join(map(_option, chosen))
    if equals and name in GROUPS:
        held = [one.name for one in found if one.group == name]
        wrong = f"{name} has no option {value}{close(value, held)}" if value else "no option is named behind the ="
        raise UsageError(f"--help {word}: {wrong}. Options: {', '.join(held)}.")
    known = keys()
    if name in sections():
        return _group(name, [one for one in found if one.group == name], known)
    meant = _keys_called(name)
    said = [f"{program_name()} {typed}: {text}" for typed, text in WORDS.items() if typed.split()[0] == word]
    if said or meant:
        return "\n".join([*said, *map(_key, meant)])
    raise UsageError(
        f"--help {word}: there is no group, option or key of this name{close(name, topics())}. "
        f"Groups: {', '.join(sections())}. To see what there is: {program_name()} --help"
    )


def _keys_called(name: str) -> list[Key]:
    """Return the key of this name; else those in this section, or whose last part is called so."""
    return [key for key in keys() if key.name == name] or [
        key for key in keys() if key.name.startswith(f"{name}.") or key.name.rpartition(".")[2] == name
    ]


def _verb(option: Option) -> tuple[str, ...]:
    """Return the word that means an option by itself: a strategy's name."""
    return (option.name,) if option.group == "strategy" else ()


def _option(option: Option) -> str:
    lines = [f"{option.group}={option.name}", *_wrapped(option.text, 2)]
    lines += ["", f"  {program_name()} {option.example}"] if option.example else []
    held = [key for key in keys() if key.group == option.group and option.name in key.options]
    held.sort(key=lambda key: len(key.options))  # what only this option has comes first
    return "\n".join([*lines, *(["", *(_key(key, option.name) for key in held)] if held else [])])


def _group(name: str, options_of_it: Sequence[Option], known: Sequence[Key]) -> str:
    """Return what a group is about: its keys at length, or where it has options these, a line or two each."""
    lines = [f"{name}: {sections()[name]}"]
    held = [key for key in known if key.name.startswith(f"{name}.")]
    if not options_of_it:
        return "\n".join([*lines, *(["", *map(_key, held)] if held else [])])
    rows = {f"{name}={one.name}": re.split(r"[:;\n]|\. ", one.text)[0].rstrip(".") for one in options_of_it}
    names = ", ".join(dict.fromkeys(key.name for key in held))
    example = f"{name}={options_of_it[0].name}"
    more = f"More: {program_name()} --help {example}" + (f", {program_name()} --help {held[0].name}" if held else "")
    return "\n".join([*lines, "", *_table(rows), *(["", "Keys", *_wrapped(names, 2)] if held else []), "", more])


def _key(key: Key, option: str = "") -> str:
    """Return a key with its default, what it takes, and what it means; ``option``: as it is with this one."""
    counted = Counter(key.defaults.values()).most_common()
    default = key.defaults[option] if option else counted[0][0]
    others = [f"{value} with {name}" for name, value in key.defaults.items() if value != default and not option]
    limits = [f"at least {key.least:g}"] if key.least is not None else []
    limits += [f"at most {key.most:g}"] if key.most is not None else []
    # choices are in the text
    takes = ", ".join([*([] if key.type == "anything" or (key.choices and key.text) else [key.type]), *limits])
    several = {one.name for one in options() if one.group == key.group} - {*key.options} if key.options else ()
    where = f"{key.group}={'|'.join(key.options)}" if several and not option else ""
    facts = "; ".join(filter(None, [takes, f"default {', '.join(others)}" if others else "", where]))
    lines = [f"{key.name}={default}", *_wrapped(key.text, 6), *(_wrapped(f"({facts})", 6) if facts else [])]
    return "\n".join(lines)


def _wrapped(text: str, indent: int) -> list[str]:
    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    lead = " " * indent
    said = (
        wrap(line, width, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False)
        for line in text.split("\n")
    )
    return [line for lines in said for line in lines]
