"""`--help` alone: one page that fits on a screen."""

from __future__ import annotations

import re
from collections import defaultdict
from textwrap import wrap

from runner.program_name import program_name
from runner.schema.documentation.commented_yaml import read_commented
from runner.schema.documentation.key_reference import GROUPS, keys, options
from runner.schema.installed_choices import CONF

WIDTH = 80
_COMMANDS = (
    ("net.onnx", "triage: whose bug it is, where it lies, since when, and what helps"),
    ("reduce net.onnx", "the smallest part that still fails (strategy=reduce model=net.onnx)"),
    ("reduce net.onnx checker=python checker.file=check.py", "by a check of yours (a command: checker=command)"),
    ("mybug.yaml checker.timeout=60", "a file of yours, and what to change in it"),
    ("-m reduce 'model=glob(failures/*.onnx)'", "a sweep: a run for each, and one table"),
)
#: words that are no strategy's name, with what they do
WORDS = {
    "resume RUN": "goes on with a run or a sweep that was interrupted",
    "ls": "lists the runs so far",
}
#: the keys that people need
_KEYS = (
    *("model", "checker.command", "checker.timeout", "reference.model", "target.optimization", "inputs.path"),
    *("inputs.shapes", "budget.seconds", "result.path", "plan", "hydra.run.dir"),
)
_MORE = (
    ("--help checker", "a group: its options and keys (also --help budget)"),
    ("--help checker=command", "an option (also --help reduce)"),
    ("--help checker.timeout", "a key"),
    ("--cfg job", "all settings of a run (--info defaults-tree: where from)"),
    ("--hydra-help", "Hydra's own options"),
)
_CODES = (
    "Exit codes: 0 found, 2 usage, 3 could not judge, 4 nothing to find, 5 no set suffices, 6 not applicable, 7 a "
    "sweep with failed jobs, 130/143 interrupted (go on with resume=FOLDER), 1 internal error."
)


def overview() -> str:
    """Return the page."""
    program = program_name()
    lines = ["Winnow finds the smallest part of a model that still fails, and why it does.", ""]
    for typed, meaning in (*_COMMANDS, *WORDS.items()):
        lines += [f"  {program} {typed}", *wrap(meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    lines += ["", "Groups, of which an option is chosen (GROUP=OPTION; in brackets: if none is)"]
    lines += _table(_options_of_groups())
    lines += ["", "Keys that people need (KEY=VALUE)"]
    meanings = defaultdict[str, str](str)
    for key in keys():
        meanings[key.name] = meanings[key.name] or re.split(r"[;:(\n]|\. ", key.text)[0].rstrip()
    lines += _table({name: meanings[name] for name in _KEYS})
    lines += ["", f"More: {program} ...", *_table(dict(_MORE)), "", *wrap(_CODES, WIDTH)]
    return "\n".join(lines)


def _options_of_groups() -> dict[str, str]:
    """Return the options by group, those of two groups that have the same ones together."""
    listed = read_commented(CONF / "config.yaml").values["defaults"]
    chosen = {group: option for entry in listed if isinstance(entry, dict) for group, option in entry.items()}
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
