"""The command line: what a user may type beyond Hydra's grammar, and the words that name a strategy and its files.

- Words without a key are a strategy, models, results or a YAML file, which becomes the primary config (`meant_words`).
- A value of a path key that names an existing file means this file, whatever characters are in its name; one that no
  grammar can read means itself too, so that the error is about a missing file and not about a bracket.
- In a sweep a comma list stays a list of choices, each of which may be such a name, and a glob is the files it finds.
- In a sweep over a group a key that only some of its options have is forced in.
- A key that one option of a group has, and not the usual one, chooses that option (``inputs.path=``: inputs=files).
- A few flags stand for keys that everybody needs (`FLAGS`).
"""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from runner.cli import paths_in_configs
from runner.cli.paths import exists, use_of
from runner.cli.paths_in_configs import is_glob, means_itself, parse, quote
from runner.exit_codes import UsageError
from runner.files import read_plain
from runner.schema.installed_choices import SCHEMAS, implied_choice, option_files
from runner.schema.root import Settings
from runner.schema.settings import PathUse
from runner.schema.strategy import StrategySettings
from runner.text import close, program_name

# The words of a command line that are neither options nor key=value: a strategy's name, then the files it is about.
#
# ``winnow reduce net.onnx`` is ``strategy=reduce model=net.onnx``, and ``winnow net.onnx`` the triage of a model.

#: what runs a model that is given with nothing else
ALONE = "triage"
_YAML = (".yaml", ".yml")
_MODEL = ".onnx"


@dataclass(frozen=True)
class Arguments:
    """``overrides`` in Hydra's grammar, and the YAML ``file`` that is the primary config (or None)."""

    overrides: tuple[str, ...]
    file: Path | None = None


def strategies() -> Mapping[str, type]:
    """Return the strategies that can be chosen, Winnow's and those of installed packages, with their settings."""
    return {name: SCHEMAS["strategy"].get(name, StrategySettings) for name in sorted(option_files("strategy"))}


def is_yaml_file(word: str) -> bool:
    """Whether a word is the path of a configuration."""
    return word.endswith(_YAML) and exists(word) and Path(word).expanduser().is_file()


def meant_words(words: Sequence[str], keys: Collection[str], known: Mapping[str, type], given: Namespace) -> Arguments:
    """Return what ``words`` mean. Raises UsageError for one that means nothing, or what something else says already.

    ``keys``, ``given``: the keys and options that stand beside them; ``known``: the settings of each strategy.
    """
    verb = words[0] if words and words[0] in known else ""
    rest = list(words[1:] if verb else words)
    _once("strategy", verb, keys)
    chosen = (f"strategy={verb}",) if verb else ()
    if verb and "results" in {item.name for item in fields(known[verb])}:
        models = [word for word in rest if word.endswith(_MODEL) and getattr(known[verb], "needs_model", False)]
        results = [word for word in rest if word not in models]
        _once("strategy.results", "".join(results[:1]), keys)
        chosen = (*chosen, f"strategy.results=[{','.join(map(quote, results))}]") if results else chosen
        rest = models
        if not rest:
            return Arguments(chosen)
    file, models = _file_and_models(rest, known, verb)
    _once("model", "".join(models[:1]), keys)
    if len(models) > 1 and not given.multirun:
        raise UsageError(f"{len(models)} models: {models[0]} and {models[1]}. Give one, or -m for a run of each.")
    if models and not (chosen or file or given.config_name or {"strategy", "experiment"} & {*keys}):
        chosen = (f"strategy={ALONE}",)
    named = [_value("model", word, multirun=given.multirun) for word in models]
    return Arguments((*chosen, f"model={','.join(named)}") if named else chosen, file)


def _once(key: str, word: str, keys: Collection[str]) -> None:
    if word and key in keys:
        raise UsageError(f"{word} and {key}=: both say the same. Give one.")


def completed(line: str, known: Collection[str]) -> tuple[str, list[str]]:
    """Return the line that a shell completes as Hydra reads it, and the strategies that its last word may become."""
    program, *words = line.split(" ")
    *before, last = words or [""]
    plain = [word for word in before if "=" in word or word.startswith("-")]
    verb = next((word for word in before if word in known), "")
    said = [f"strategy={verb}"] if verb else []
    first = len(plain) == len([word for word in before if word]) and "=" not in last
    return " ".join([program, *said, *plain, last]), [one for one in known if first and one.startswith(last)]


def _file_and_models(words: Sequence[str], known: Mapping[str, type], verb: str) -> tuple[Path | None, list[str]]:
    """Return the configuration among the words, and the models; after a verb any other file is one."""
    configurations = [word for word in words if is_yaml_file(word)]
    models = [word for word in words if word not in configurations]
    for word in models:
        if not (word.endswith(_MODEL) or is_glob("model", word) or (verb and exists(word) and word not in known)):
            raise UsageError(_explained(word, known, verb))
    if len(configurations) > 1:
        raise UsageError(f"two configuration files: {configurations[0]} and {configurations[1]}. Give one.")
    return (Path(configurations[0]).expanduser() if configurations else None), models


def _explained(word: str, known: Mapping[str, type], verb: str) -> str:
    if {*word.split(",")} <= {*known}:
        sweep = ",".join(filter(None, (verb, word)))
        first = verb or word.partition(",")[0]
        return (
            f"{word}: give only one strategy before the model: {program_name()} {first} net.onnx. A sweep over several "
            f"is -m strategy={sweep}"
        )
    if verb or word.endswith(_YAML):
        return f"no such file: {word}. Give the path of a model or of a YAML file, or key=value."
    near = "" if exists(word) else close(word, known)
    next_step = f"Give it so: --check {word} or model={word}." if exists(word) else f"See {program_name()} --help."
    return f"{word} is neither a strategy{near}, a model (.onnx), a YAML file nor key=value. {next_step}"


# Flags: the few keys that everybody needs, as other programs write them, and Hydra's own options. A key has no dashes.


class Flag(NamedTuple):
    """A short way to type keys.

    ``value``: what it takes, ``meaning``: to what end, in words. ``keys``: what it stands for, with the value behind;
    ``of_python``: the same where the value is a Python file and that chooses otherwise.
    """

    value: str
    meaning: str
    keys: tuple[str, ...]
    of_python: tuple[str, ...] = ()


FLAGS: Mapping[str, Flag] = {
    "--check": Flag(
        "COMMAND or FILE.py",
        "exit code 0 is good; FILE.py has a function check",
        ("checker=command", "checker.command="),
        ("checker=python", "checker.file="),
    ),
    "--inputs": Flag(
        "FILE",
        "the values to feed (npz, data set, FILE.py)",
        ("inputs=files", "inputs.path="),
        ("inputs=python", "inputs.file="),
    ),
    "--expected": Flag("FILE", "the right outputs (npz, data set)", ("reference=files", "reference.path=")),
    "--original": Flag("FILE.onnx", "the model that this one was made from", ("reference.model=",)),
    "--timeout": Flag("SECONDS", "time limit of one check", ("checker.timeout=",)),
    "--out": Flag("DIR", "folder for the results", ("hydra.run.dir=",)),
}
_VERBOSE = "verbosity=[info,runner.report.progress:debug]"
_DEFINED = r"\bdef {0}\b|\b{0} *=|\bimport\b.*\b{0}\b"
_FUNCTION = re.compile(r"(\S+\.py)::?([A-Za-z_]\w*)")
#: what a key begins with
_SECTIONS = frozenset({*(item.name for item in fields(Settings)), "hydra", "experiment"})


def options(typed: Sequence[str]) -> Namespace:
    """Return the options that were typed, and as ``overrides`` all other words, with keys in place of flags.

    Raises UsageError for an option that is none or lacks its value, and for a flag beside its key.
    """
    for word, after in zip(typed, [*typed[1:], "-"], strict=False):
        key, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and f"--{key}" not in FLAGS and key.partition(".")[0] in _SECTIONS:
            meant_value = shlex.quote(value if equals else "VALUE" if after.startswith("-") else after)
            raise UsageError(f"{word.partition('=')[0]}: a key has no dashes. Write it so: {key}={meant_value}")
    given, unknown = PARSER.parse_known_intermixed_args(typed)  # behind an unknown one, all words are
    unknown += [word for word in given.overrides if word.startswith("-")]  # with a blank in it, it is taken for a word
    if unknown:
        PARSER.error(f"unrecognized arguments: {unknown[0]}")
    keys = [_VERBOSE] * given.verbose
    for flag, meant in FLAGS.items():
        for number, value in enumerate(getattr(given, flag[2:]) or ()):
            if number:
                raise UsageError(f"{flag}: it is there twice. Give one.")
            keys += _keys(flag, meant, value, given)
    given.overrides = [*keys, *given.overrides]
    return given


def _keys(flag: str, meant: Flag, value: str, given: Namespace) -> list[str]:
    """Return what a flag stands for."""
    named = None if exists(value) or not meant.of_python else _FUNCTION.fullmatch(value)
    value, function = named.groups() if named else (value, "")
    *choice, key = meant.of_python if meant.of_python and value.endswith(".py") and " " not in value else meant.keys
    typed = [other.partition("=")[0] for other in given.overrides]
    wanted = _DEFINED.format(function or "check").encode()
    asks = key == "checker.file=" and "checker.function" not in typed
    if asks and exists(value) and not re.search(wanted, read_plain(Path(value))):
        script = f"--check {value}:FUNCTION names another. If it is a script: --check 'python {value} {{model}}'"
        raise UsageError(f"--check {value}: it has no function called {function or 'check'}. {script}")
    if flag == "--out" and given.multirun:
        key = "hydra.sweep.dir="
    choice += [f"{key.partition('.')[0]}.function={function}"] * bool(function)
    for one in (*choice, key):
        _once(one.partition("=")[0], flag, typed)
    return [*choice, f"{key}{value}"]


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        word = message.partition(": ")[2]
        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        near = close(word, [*known, "--help"]) if word.startswith("-") else ""
        raise UsageError(f"{message}{near}. To see what there is: {program_name()} --help")


def _parser() -> ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flag, meant in FLAGS.items():
        parser.add_argument(flag, action="append", help=meant.meaning)
    parser.add_argument("--config-path", "-cp", help="a folder of configurations, in place of Winnow's")
    parser.add_argument("--config-name", "-cn", help="the configuration in it")
    parser.add_argument("--config-dir", "-cd", help="a folder of yours with further options")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"), help="show the settings")
    parser.add_argument("--package", "-p", help="with --cfg: of this section alone")
    parser.add_argument("--info", "-i", const="all", nargs="?", choices=_INFO, help="show where they come from")
    for switch, meaning in _SWITCHES.items():
        parser.add_argument(*switch, action="store_true", help=meaning)
    parser.add_argument("overrides", nargs="*", help="key=value, and words")
    return parser


_SWITCHES = {
    ("--multirun", "-m"): "a run for each choice",
    ("--run", "-r"): "one run",
    ("--json",): "print result.json and nothing else",
    ("--verbose", "-v"): "a line for each check",
    ("--resolve",): "with --cfg: values in place of interpolations",
    ("--hydra-help",): "show this",
    ("--shell-completion", "-sc"): "install=SHELL, uninstall=SHELL or query=SHELL",
}
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
PARSER = _parser()


def _implied(given: Collection[str], chosen: Mapping[str, str]) -> list[str]:
    """Return the choice of each group of which keys are given that one option alone has, and not the usual one.

    ``chosen``: of groups, by a run that goes on; what has the keys stays as that run had it.
    """
    keys = {group: {key.split(".")[1] for key in given if key.startswith(f"{group}.")} for group in SCHEMAS}
    named = {group: implied_choice(group, held) for group, held in keys.items() if held and group not in given}
    named = {group: name for group, name in named.items() if name != chosen.get(group)}
    return [f"{group}={name}" for group, name in named.items() if name]


_OVERRIDE = re.compile(r"(?P<key>(?:\+\+|\+)?[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
_HYDRA_FOLDERS = frozenset({"hydra.run.dir", "hydra.sweep.dir"})
_SWEEPER_PARAMS = "hydra.sweeper.params"
_TEXT_KEYS = frozenset({"checker.command"})
#: lists of folders, of which one stands for a list of one
_RESULTS = "strategy.results"
#: mappings by tensor: Hydra's grammar has neither an empty key nor one in quotes
_BY_TENSOR = frozenset({"checker.rtol", "checker.atol"})


def rewrite(given: Namespace, chosen: Mapping[str, str] = MappingProxyType({})) -> Arguments:
    """Rewrite the words that are no options. Raises UsageError for one that means nothing.

    ``chosen``: the choice of each group in the run that they change.
    """
    overrides, words, keys = list[str](), list[str](), list[str]()
    for argument in given.overrides:
        match = _OVERRIDE.fullmatch(argument)
        if (not argument.startswith("~") or argument.startswith("~/")) and _is_word(argument):
            words.append(argument)
        elif match:
            key, value = match["key"].lstrip("+"), match["value"]
            _refuse_parameters(argument, key, value)
            overrides.append(f"{match['key']}={_value(key, value, multirun=given.multirun)}")
            keys.append(key)
        else:
            overrides.append(argument)
    meant = meant_words(words, keys, strategies() if words else {}, given)
    overrides += meant.overrides
    # a file, a folder and an experiment may choose options of the user's own
    own = meant.file or given.config_path or given.config_name or given.config_dir or "experiment" in keys
    return Arguments(tuple(_for_some_choices([*overrides, *([] if own else _implied(keys, chosen))])), meant.file)


def _refuse_parameters(argument: str, key: str, value: str) -> None:
    """Raise UsageError for parameters of a sweep: Hydra reads one of them nowhere but in files, and breaks on all."""
    if key.startswith(f"{_SWEEPER_PARAMS}.") or (key == _SWEEPER_PARAMS and value.startswith("{")):
        raise UsageError(
            f"{argument}: Hydra reads the parameters of a sweep from files only. On the command line give the choices "
            "themselves: -m KEY=CHOICE,CHOICE"
        )


def _is_word(argument: str) -> bool:
    """Whether an argument is no key=value: it has no such sign, or it is a file's name that has one."""
    if "=" not in argument or is_yaml_file(argument):
        return True
    return argument.partition("=")[0].lstrip("+").partition(".")[0] not in _SECTIONS and exists(argument)


def _for_some_choices(argv: Sequence[str]) -> list[str]:
    """Return ``argv`` with ``++`` before a key that only some options of a group have which the sweep chooses from.

    Hydra composes a sweep with the group's default before it composes the jobs, and refuses the key there. A job whose
    choice does not have it is refused by `to_settings`.
    """
    parsed = (parse(argument) for argument in argv if argument.partition("=")[0] in SCHEMAS)
    swept = {override.key_or_group for override in parsed if override is not None and override.is_sweep_override()}

    def partial(argument: str) -> bool:
        group, _, key = argument.partition("=")[0].partition(".")
        name = key.partition(".")[0]
        if group not in swept or not name:
            return False
        have = [name in {item.name for item in fields(schema)} for schema in SCHEMAS[group].values()]
        return any(have) and not all(have)

    return [f"++{argument}" if partial(argument) else argument for argument in argv]


def _value(key: str, text: str, *, multirun: bool) -> str:
    use = use_of(key)
    if key == _RESULTS and text and text[0] not in "[$":
        text = f"[{text}]"
    if paths_in_configs.is_glob(key, text):
        return paths_in_configs.choices(key, text)
    if use and not exists(text):
        paths_in_configs.refuse_among_others(key, text)
    if use and not (PathUse.LIBRARY in use and text.startswith("{")):  # a mapping to libraries
        return path_value(key, text, multirun=multirun)
    if key in _HYDRA_FOLDERS:
        if "${" in text or not text or _is_quoted(key, text):
            return text
        return _literal(key, str(Path(text).expanduser()) if text[0] == "~" else text)
    if key in _TEXT_KEYS:
        return text_value(key, text, multirun=multirun)
    if key in _BY_TENSOR and text.startswith("{") and parse(f"{key}={text}") is None:
        return quote(text)
    return text


def text_value(key: str, text: str, *, multirun: bool) -> str:
    """Return a command in Hydra's grammar: what it would refuse, or take for a number or for choices, means itself."""
    override = parse(f"{key}={text}") if text else None
    if override is None:
        return quote(text) if text else text
    if override.is_sweep_override():
        return text if multirun else quote(text)
    return text if isinstance(override.value(), (str, list)) else quote(text)


def path_value(key: str, text: str, *, multirun: bool) -> str:
    """Return ``text`` in Hydra's grammar: a path to the letter, choices of a sweep, or a list of paths.

    A comma in a name that exists is one where the name stands alone; among other names it has to be in Hydra's quotes.
    """
    if not text:
        return text
    if exists(text) and not (multirun and all(map(exists, text.split(",")))):
        return _literal(key, text)
    listed = text.startswith("[") and text.endswith("]")
    if listed and exists(text[1:-1]) and not (multirun and all(map(exists, text[1:-1].split(",")))):
        return f"[{_literal(key, text[1:-1])}]"
    parts = [part if exists(part) else part.strip() for part in (text[1:-1] if listed else text).split(",")]
    readable = parse(f"{key}={text}") is not None
    if readable and not any(exists(part) and not means_itself(key, part) for part in parts):
        return text
    choices = ",".join(_literal(key, part) for part in parts)
    return f"[{choices}]" if listed else choices if multirun or readable else _literal(key, text)


def _literal(key: str, text: str) -> str:
    return text if means_itself(key, text) else quote(text)


def _is_quoted(key: str, text: str) -> bool:
    """Whether ``text`` is in Hydra's own quotes, and no folder of that very name is there."""
    return text[0] == text[-1] and text[0] in "'\"" and not exists(text) and parse(f"{key}={text}") is not None
