"""`--help WORD`: a group, an option of one, or a key, with what `conf/` says of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from runner.cli.config.paths import exists
from runner.cli.help.overview_page import WORDS, overview
from runner.errors import UsageError
from runner.program_name import program_name
from runner.schema.documentation.key_reference import GROUPS, Key, Option, keys, options, sections
from runner.text import close

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
    lines = [f"{name}: {sections()[name]}"]
    for option in options_of_it:
        lines += ["", f"  {name}={option.name}", *_wrapped(option.text, 6)]
    held = [key for key in known if key.name.startswith(f"{name}.")]
    return "\n".join([*lines, *(["", *map(_key, held)] if held else [])])


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
    facts = "; ".join(filter(None, [takes, f"otherwise {', '.join(others)}" if others else "", where]))
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
