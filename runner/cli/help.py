"""What --help prints: a page for people, and what is asked about by name.

`--help` alone: one page that fits on a screen.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from textwrap import wrap

from runner.cli.arguments import FLAGS
from runner.cli.paths import exists
from runner.judgment import UsageError
from runner.schema.documentation import GROUPS, Key, Option, keys, options, sections
from runner.schema.installed_choices import usual_choices
from runner.text import close, program_name

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
    "Exit codes: 0 found, 2 usage, 3 could not judge, 4 nothing to find, 5 no set is enough, 6 not applicable, 7 a "
    "failed job or not as expected, 8 suspected, 9 wrong reference, 130/143 interrupted, 1 internal error or full disk."
)


def overview() -> str:
    """Return the page."""
    program = program_name()
    lines = ["Winnow finds the smallest part of a model that still fails, and why it does.", ""]
    for typed, meaning in _COMMANDS:
        lines += [f"  {program} {typed}", *wrap(meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    lines += _table({f"{program} {typed}": meaning for typed, meaning in WORDS.items()})
    flags = {f"{flag} {meant.value}": meant.meaning for flag, meant in FLAGS.items()}
    lines += ["", "Flags", *_table({**flags, **_SWITCHES}), ""]
    lines += ["Groups and their options (GROUP=OPTION; the default is in brackets)"]
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
