"""Running again: a folder of a run or a sweep as a command, and the settings that its replay.yaml stands for.

A folder of a run or a sweep as a command: ``winnow RUN`` and ``winnow resume RUN`` go on with what lies there.

What it was is in the configuration that Hydra has left in the folder from the first moment on, so also where the run
was killed. The folder may come from anywhere: its configuration may say what a replay.yaml may say (the loader sees to
that), of Hydra's own section only what any file may, and none of its words is an option of the command line.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from runner import run_folder
from runner.cli import arguments
from runner.cli.bounded_yaml import read_yaml
from runner.cli.compose import (
    of_a_stranger,
    read_settings,
    refuse_parameters,
    store_content,
    store_user_file,
    to_settings,
)
from runner.cli.explain_errors import explain
from runner.cli.paths import is_by_name, rooted, use_of
from runner.cli.paths_in_configs import content_from_file, parse, quote
from runner.cli.run_folders import at_work
from runner.cli.signals import held
from runner.exit_codes import ENDED_WELL, Status, UsageError
from runner.journal.replay_yaml import REPLAY_NAME
from runner.report.summary import Summary, read_result
from runner.schema.installed_choices import compose
from runner.schema.root import Settings
from runner.text import program_name

VERB = "resume"
_RUN, _HYDRA, _SWEEP = ".hydra/config.yaml", ".hydra/hydra.yaml", "multirun.yaml"
#: relative paths in such a folder are as in a file that lies where the user stood
_SETTINGS = "settings.yaml"
_WORD = re.compile(r"[+~]{0,2}[A-Za-z_][\w./]*(=.*)?", re.DOTALL)
_PLAIN = re.compile(r"\w+")
_ANSWERS = ENDED_WELL | {Status.not_as_expected.exit_code}


@dataclass(frozen=True)
class RunAgain:
    """A run or a ``sweep`` in ``folder``, and the ``changes`` that were typed behind it.

    ``asked``: to go on, by name; without that word, and without changes, a run that has ended is shown.
    """

    folder: Path
    changes: Namespace
    asked: bool = True

    @property
    def sweep(self) -> bool:
        """Whether the folder is a sweep's."""
        return (self.folder / _SWEEP).exists()

    def answer(self) -> Summary | None:
        """Return the result of a run that is shown; None where there is something to go on with.

        A run is gone on with where that is asked for, or where it left nothing to be shown.
        """
        result = None if self.sweep or self.changes.overrides else read_result(self.folder)
        if not self.asked and result is not None and result.exit_code >= 0:
            return result
        return result if result is not None and result.exit_code in _ANSWERS else None

    def for_hydra(self) -> tuple[Namespace, str, Path | None]:
        """Return what Hydra is given, which finds the configuration from now on, its file, and where to stand.

        None: where the user stands. Raises UsageError for a folder that nothing can be made of.
        """
        return self._sweep() if self.sweep else self._run()

    def _run(self) -> tuple[Namespace, str, Path | None]:
        file = self.folder / _RUN
        stood = _stood_in(self.folder / _HYDRA)
        content = content_from_file(read_settings(file), stood / _SETTINGS)
        if content.get("cwd") is None and stood.is_dir():
            content["cwd"] = str(stood)
        return self._given(content, file, self._typed(content)), str(file), None

    def _sweep(self) -> tuple[Namespace, str, Path | None]:
        file = self.folder / _SWEEP
        whole = read_settings(file)
        hydra = whole.pop("hydra", None)
        sections = {name: _mapping(hydra, name) for name in ("sweep", "launcher", "sweeper", "overrides", "runtime")}
        stood = _stood_in(file)
        here = stood if stood.is_dir() else None
        content = content_from_file(whole, stood / _SETTINGS)
        launcher = {key: one for key, one in sections["launcher"].items() if not str(key).startswith("_")}
        content["hydra"] = {"launcher": launcher, "sweep": {"subdir": sections["sweep"].get("subdir", "0")}}
        self.changes.multirun = True
        given = [from_here(word) if here else word for word in self._typed(content)]
        changed = {_key(word) for word in given}
        typed = sections["overrides"].get("task")
        words = [f"{key}={value}" for key, value in _mapping(sections["sweeper"], "params").items()]
        words += map(str, typed if isinstance(typed, list) else [])
        words = [_checked(word, file) for word in words if _key(word) not in {*changed, "resume"}]
        choice = str(_mapping(sections["runtime"], "choices").get("hydra/launcher", ""))
        chosen = [f"hydra/launcher={choice}"] if _PLAIN.fullmatch(choice) else []
        return self._given(content, file, [*chosen, *words, *given]), str(file), here

    def _typed(self, content: Mapping[str, Any]) -> Sequence[str]:
        """Return the changes as Hydra reads them. ``content``: the settings that they change."""
        chosen = {group: str(_mapping(content, group).get("name")) for group in content}
        return arguments.rewrite(self.changes, chosen).overrides

    def _given(self, content: dict[str, Any], file: Path, overrides: Sequence[str]) -> Namespace:
        """Return the changes with a configuration, which Hydra finds from now on, and all ``overrides`` of it."""
        silent = ["verbosity=silent"] if self.changes.json else []
        self.changes.config_name = store_content(content, file)
        self.changes.overrides = [*overrides, *silent, f"resume={quote(str(self.folder))}"]
        return self.changes


def meant(given: Namespace) -> RunAgain | None:
    """Return the run that the arguments are about; None: they are about something else.

    Raises UsageError where one is asked for that is none, and for words behind it that are no changes of settings.
    """
    # neither key=value (or a run's folder of such a name) nor a key to delete
    words = [word for word in given.overrides if word[:1] != "~" and ("=" not in word or _is_run(Path(word)))]
    first, *more = words or [""]
    asked = first == VERB
    if asked and not more:
        name = program_name()
        raise UsageError(f"{VERB}: which run? Give its folder: {name} {VERB} outputs/latest. {name} ls lists them")
    folder = Path(more.pop(0) if asked else first)
    step = _is_step(folder)
    if not asked and (not first or first in arguments.strategies() or not (step or _is_run(folder))):
        return None
    if step and (asked or len(given.overrides) > len(words)):
        anew = f"{program_name()} {folder / REPLAY_NAME}"
        raise UsageError(f"{folder}: a step of a triage is shown by its name, and asked anew by its file: {anew}")
    if not (step or _is_run(folder)):
        raise UsageError(f"{VERB} {folder}: this is no folder of a run. {program_name()} ls lists those under outputs/")
    for word in more:
        raise UsageError(f"{word}: beside the folder of a run come changes of its settings only, as key=value")
    given.overrides = [word for word in given.overrides if word not in words]
    again = RunAgain(folder.resolve(), given, asked)
    if not asked and again.answer() is None:  # it may be anybody's, and nobody has said that its check is to run
        if at_work(again.folder):
            raise UsageError(f"{folder}: it is at work. To see how far it is: {program_name()} status {folder}")
        what = (
            "a sweep" if again.sweep else "a run with other settings" if given.overrides else "a run without a result"
        )
        raise UsageError(
            f"{folder}: {what} is not started by its name. To go on with it: {program_name()} {VERB} {folder}"
        )
    return again


def _is_run(folder: Path) -> bool:
    with suppress(OSError, ValueError):  # too long a name, a NUL
        known = run_folder.read(folder) is not None or (folder / "journal.jsonl").exists()
        return known and ((folder / _RUN).is_file() or (folder / _SWEEP).is_file())
    return False


def _is_step(folder: Path) -> bool:
    with suppress(OSError, ValueError):
        of_a_triage = folder.absolute().parent.name == run_folder.STEPS and run_folder.read(folder) is not None
        return of_a_triage and not _is_run(folder) and read_result(folder) is not None
    return False


def _mapping(of: Any, name: str) -> Mapping[str, Any]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _stood_in(file: Path) -> Path:
    """Return the folder in which the user stood, as Hydra wrote it down; where it did not, that of now."""
    with suppress(UsageError):
        content = read_yaml(file)
        place = _mapping(_mapping(content, "hydra"), "runtime").get("cwd")
        if isinstance(place, str) and Path(place).is_absolute():
            return Path(place)
    return Path.cwd()


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")


def _checked(word: str, file: Path) -> str:
    """Return an override of a sweep's. Raises UsageError for one that no file could set."""
    if not _WORD.fullmatch(word):
        raise UsageError(f"{file}: hydra.overrides.task: {word}: this is no key=value")
    refuse_parameters({word.partition("=")[0]: word.partition("=")[2]}, str(file))
    return word


# The settings that a kept replay.yaml stands for, as if it were run again: composed under the rules for any file.

#: beside the run's own file, of which later jobs of a sweep may be composed
_NAME = "winnow-replay"
#: what the command line may change in a kept result: what runs it, and what judges it
_CHANGES = frozenset({"target", "reference", "checker"})
#: what a run about kept results reads for itself
_OWN = frozenset({"strategy", "workers", "budget", "resume", "verbosity", "plan", "log", "cwd", "recorded"})


def typed_changes(settings: Settings) -> tuple[str, ...]:
    """Return the overrides of the run that goes on which are for all kept results alike.

    ``settings``: of that run. Raises UsageError for what it says and does not read: a word that was typed, and, unless
    it is a replay, what a file says.
    """
    if not HydraConfig.initialized():
        return ()
    words = [str(word) for word in HydraConfig.get().overrides.task]
    given, usual = asdict(settings), asdict(compose({}))
    for name in (item.name for item in fields(Settings) if item.name not in _OWN):
        typed = next((word for word in words if _group(word) == name), "")
        read = typed and name in _CHANGES
        if not read and (typed or not settings.recorded) and given[name] != usual[name]:
            raise UsageError(
                f"{typed or f'{name}:'} is not read here: each kept result is checked as its own replay.yaml says, "
                "with what is typed for target, reference and checker. Leave it out"
                + (f", or type it: {name}.KEY=VALUE" if name in _CHANGES else "")
            )
    before = settings.recorded.get("changes")
    kept = [str(one) for one in before if _group(str(one)) in _CHANGES] if isinstance(before, list) else []
    return (*kept, *(from_here(word) for word in words if _group(word) in _CHANGES))


def replayed(path: Path, overrides: Sequence[str]) -> Settings:
    """Return the settings of a replay with what the ``overrides`` change in it; its paths start at its own folder.

    Raises UsageError for a file that is no such thing, and for what it may not say.
    """
    try:
        with of_a_stranger(), held():  # OmegaConf loses an interruption in the midst of its own work
            name = store_user_file(path, _NAME)
            config = GlobalHydra.instance().config_loader().load_configuration(name, list(overrides), RunMode.RUN)
            with open_dict(config):
                del config["hydra"]
            return rooted(to_settings(config), path.parent)
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise UsageError(explain(error).replace(_NAME, str(path))) from error


def from_here(override: str) -> str:
    """Return an override whose path, if it has one, starts where the user stands and not at a replay's folder."""
    key, made, here = override.partition("=")[0], parse(override), Path.cwd()
    use, value = use_of(key.lstrip("+")), None if made is None or made.is_sweep_override() else made.value()
    if not use or not isinstance(value, str) or not value or value.startswith("~") or is_by_name(use, value, here):
        return override
    return f"{key}={quote(str(here / value))}"


def _group(override: str) -> str:
    """Return the group of settings that an override is about."""
    return override.partition("=")[0].lstrip("+~").partition(".")[0]
