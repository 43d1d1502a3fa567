"""The words of a command line that are neither options nor key=value: a strategy's name, then the files it is about.

``winnow reduce net.onnx`` is ``strategy=reduce model=net.onnx``, and ``winnow net.onnx`` the triage of a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from runner.cli.config.file_choices import is_glob
from runner.cli.config.paths import exists
from runner.cli.config.quoting import quote
from runner.errors import UsageError
from runner.program_name import program_name
from runner.schema.installed_choices import SCHEMAS, option_files
from runner.schema.strategy import StrategySettings
from runner.text import close

#: what runs a model that is given with nothing else
ALONE = "triage"
_YAML = (".yaml", ".yml")
_MODEL = ".onnx"
#: what names a strategy in another way
_CHOOSES = frozenset({"strategy", "experiment", "--config-name", "-cn"})


@dataclass(frozen=True)
class Meant:
    """What the words mean.

    ``overrides``: in Hydra's grammar; ``models``: as typed; ``file``: the YAML file that is the primary config.
    """

    overrides: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    file: Path | None = None


def strategies() -> Mapping[str, type]:
    """Return the strategies that can be chosen, Winnow's and those of installed packages, with their settings."""
    return {name: SCHEMAS["strategy"].get(name, StrategySettings) for name in sorted(option_files("strategy"))}


def is_yaml_file(word: str) -> bool:
    """Whether a word is the path of a configuration."""
    return word.endswith(_YAML) and exists(word) and Path(word).expanduser().is_file()


def meant(words: Sequence[str], given: Collection[str], known: Mapping[str, type], *, multirun: bool = False) -> Meant:
    """Return what ``words`` mean. Raises UsageError for one that means nothing, or what something else says already.

    ``given``: the keys and options that stand beside them; ``known``: the settings of each strategy.
    """
    verb = words[0] if words and words[0] in known else ""
    rest = list(words[1:] if verb else words)
    if verb and "strategy" in given:
        raise UsageError(f"{verb} and strategy=: two strategies. Give one.")
    chosen = (f"strategy={verb}",) if verb else ()
    if verb and "results" in {item.name for item in fields(known[verb])}:
        models = [word for word in rest if word.endswith(_MODEL) and getattr(known[verb], "needs_model", False)]
        results = [word for word in rest if word not in models]
        if results and "strategy.results" in given:
            raise UsageError(f"{results[0]} and strategy.results=: results in two ways. Give one list of them.")
        chosen = (*chosen, f"strategy.results=[{','.join(map(quote, results))}]") if results else chosen
        rest = models
        if not rest:
            return Meant(chosen)
    file, models = _file_and_models(rest, known, verb)
    if models and "model" in given:
        raise UsageError(f"{models[0]} and model=: two models. Give one.")
    if len(models) > 1 and not multirun:
        raise UsageError(f"{len(models)} models: {models[0]} and {models[1]}. Give one, or -m for a run of each.")
    if models and not chosen and file is None and not any(one.partition("=")[0] in _CHOOSES for one in given):
        chosen = (f"strategy={ALONE}",)
    return Meant(chosen, tuple(models), file)


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
        raise UsageError(
            f"two configuration files: {configurations[0]} and {configurations[1]}. Give one; the other's groups can "
            "be named in its `defaults`."
        )
    return (Path(configurations[0]).expanduser() if configurations else None), models


def _explained(word: str, known: Mapping[str, type], verb: str) -> str:
    if word in known:
        return (
            f"{verb} and {word}: two strategies. Give one; a sweep over both is -m strategy={verb},{word}"
            if verb
            else f"{word}: a strategy's name comes first: {program_name()} {word} net.onnx"
        )
    if {*word.split(",")} <= {*known}:
        return f"{word}: a sweep over strategies is -m strategy={word}"
    if word.endswith(_YAML):
        return f"no such file: {word}. Give the path of a YAML file, or key=value."
    if verb:
        return f"no such file: {word}. After {verb} comes a model, or key=value."
    if exists(word):
        return f"{word} is neither a strategy, a YAML file nor key=value. A model is given as model={word}"
    return (
        f"{word} is neither a strategy{close(word, known)}, a model (.onnx), a YAML file nor key=value. "
        f"See {program_name()} --help."
    )
