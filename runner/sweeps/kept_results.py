"""A kept result: the folder that a run left behind, wherever it lies by now.

The folder may come from anywhere: its files are read as those of a stranger. Of what its result.json names, a model of
its own lies inside it; a whole model (`input_model`, where there is none of its own) and what its replay names for the
check are read where they lie.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from runner.errors import UsageError
from runner.files import inside, is_plain, read_plain
from runner.journal.replay import REPLAY_NAME
from runner.model.files.parse_without_weights import parse
from runner.report.summary import Summary, read_result
from runner.schema.checker import CommandChecker
from runner.schema.inputs import FilesInputs, RandomInputs
from runner.schema.root import (
    ArtifactSettings,
    JournalSettings,
    LogSettings,
    ResultSettings,
    SanitizeSettings,
    Settings,
)
from runner.schema.settings import PathUse, map_paths
from runner.text import listed

EXPECT = "expect"
"""The file in which a person says what is expected of a kept result."""
FIXED, STILL, OTHERWISE, NOT_JUDGED = "fixed", "still broken", "broken otherwise", "not judged"
_EXPECTABLE = (STILL, FIXED, OTHERWISE)
_SCRIPTS = (".py", ".sh")
#: strategies about kept results, such as what a sweep leaves beside its jobs
_ABOUT_OTHERS = ("recheck", "bugs")
#: strategies whose failures need more than a model: engines, other precisions, other releases, many runs
_OTHERS = ("precision", "tactic", "repeat", "versions")
_DATA_SETS = "test_data_set_[0-9]*"


@dataclass(frozen=True)
class KeptResult:
    """``model``: the one that fails, in the folder or the user's whole file."""

    folder: Path
    result: Summary
    model: Path
    replay: Path

    @property
    def data_sets(self) -> list[str]:
        """The values that its model is fed."""
        sets = sorted(self.model.parent.glob(_DATA_SETS), key=lambda one: (len(one.name), one.name))
        return [str(one) for one in sets if not one.is_symlink() and any(one.glob("input_*.pb"))] if self.alone else []

    @property
    def alone(self) -> bool:
        """Whether its model is its own."""
        return inside(self.model, self.folder)

    def settings(self, found: Settings, strategy: Settings) -> Settings:
        """Return what its replay says (``found``) for its own model alone; the ``strategy`` is that of this run.

        What a replay names and is not there any more is looked for in its own folder. Raises UsageError where a script
        of the check is nowhere, or values that were kept.
        """

        def beside(use: PathUse, path: str) -> str:
            here = self.replay.parent / Path(path).name
            file = PathUse.READ in use and PathUse.PROGRAM not in use
            gone = file and "/" in path and not Path(path).exists()
            return str(here) if gone and is_plain(here) else path

        found = map_paths(found, beside)
        gone = found.cwd is None or not Path(found.cwd).is_dir()
        found = replace(found, cwd=str(self.replay.parent)) if gone else found
        sets = self.data_sets
        self._check_values(len(sets), found.recorded.get("data_sets"))
        return replace(
            found,
            model=str(self.model),
            inputs=FilesInputs(path=sets) if sets else RandomInputs() if self.alone else found.inputs,
            reference=found.reference.running if self.alone else found.reference,  # of a part it is what runs
            checker=self._checker(found),
            **{name: getattr(strategy, name) for name in ("strategy", "workers", "budget", "resume", "verbosity")},
            artifacts=ArtifactSettings(),
            journal=JournalSettings(share=False),
            result=ResultSettings(),
            sanitize=SanitizeSettings(),
            log=LogSettings(),
            recorded={},
        )

    def _check_values(self, there: int, were: object) -> None:
        """Raise UsageError where values that were kept are gone: with others the failure may not show.

        ``were``: how many sets there were, if the replay says so; an earlier version's does not.
        """
        if not self.alone:
            return
        numbers = [one.name.rpartition("_")[2] for one in self.model.parent.glob(_DATA_SETS)]
        least = 1 + max([int(one) for one in numbers if one.isdecimal()], default=0)
        kept = max(were if isinstance(were, int) else 1, least if numbers else 0)
        if there >= kept or not _takes_inputs(self.model):
            return
        lost = f"{kept - there} of its {kept} sets of values" if there else "its values"
        raise UsageError(f"{lost} (test_data_set_*) {'is' if there and kept - there == 1 else 'are'} not there")

    def _checker(self, found: Settings) -> Any:
        """Return the check, its scripts where they are now. Raises UsageError for one that is nowhere."""
        checker = found.checker
        if not isinstance(checker, CommandChecker) or not checker.command or found.cwd is None:
            return checker
        given = checker.command
        words = shlex.split(given) if isinstance(given, str) else [str(word) for word in given]
        return replace(checker, command=[self._script(word, Path(found.cwd)) for word in words])

    def _script(self, word: str, cwd: Path) -> str:
        if not word.endswith(_SCRIPTS) or "{" in word or (cwd / word).is_file():
            return word
        here = self.replay.parent / Path(word).name
        if is_plain(here):
            return str(here)
        raise UsageError(f"its check names {word}, which is not there. Put it beside {self.replay}, under this name")


def folders(named: Sequence[str], key: str = "strategy.results") -> list[Path]:
    """Return the result folders that folders, replay files and patterns name, each once, in order.

    A folder that is none stands for those in it. Raises UsageError for a name that leads to none.
    """
    if not named:
        raise UsageError(f"{key}=: which kept results? Give their folders: {key}=[bugs/1, bugs/2] or '[bugs/*]'")
    found: dict[Path, None] = {}
    for name in named:
        pattern = has_magic(name) and not Path(name).exists()
        paths = sorted(glob(name)) if pattern else [name]  # noqa: PTH207 - the pattern may begin at the root
        here = [one for path in paths for one in _results(Path(path))]
        if not here:
            raise UsageError(
                f"{key}={name}: no kept result there: a folder with result.json and {REPLAY_NAME}, as each run leaves "
                "it (or one that holds such folders)"
            )
        found |= dict.fromkeys(one for one in here if (read_result(one) or Summary()).strategy not in _ABOUT_OTHERS)
    if not found:
        raise UsageError(f"{key}={listed(named)}: these are no failures, but what was said of such")
    return list(found)


def _results(path: Path) -> Iterator[Path]:
    folder = path.parent if path.name == REPLAY_NAME else path
    if (folder / REPLAY_NAME).is_file() or (folder / "result.json").is_file():
        yield folder
    elif folder.is_dir():
        yield from (one for one in sorted(folder.iterdir()) if (one / "result.json").is_file())


def read(folder: Path) -> KeptResult:
    """Return the kept result in ``folder``. Raises UsageError that says why there is none."""
    result = read_result(folder)
    if result is None:
        raise UsageError("there is no result.json that can be read")
    if result.strategy.startswith(_OTHERS):
        raise UsageError(f"strategy={result.strategy} keeps no model that fails by itself")
    if result.signature is None:
        raise UsageError(f"its run ended with {result.status!r}, and no failure is kept")
    model = _model(folder, result)
    own = model.parent / REPLAY_NAME
    replay = own if inside(own, folder) and is_plain(own) else folder / REPLAY_NAME
    if not is_plain(replay) or replay.is_symlink():
        raise UsageError(f"there is no {REPLAY_NAME}")
    return KeptResult(folder, result, model, replay)


def _takes_inputs(path: Path) -> bool:
    """Return whether a model is fed anything. Raises UsageError for a file that is none."""
    try:
        graph = parse(path).graph
    except (DecodeError, OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error})") from None
    return not {one.name for one in graph.input} <= {one.name for one in graph.initializer}


def _model(folder: Path, result: Summary) -> Path:
    if result.model is not None:
        model = folder / result.model
        if not inside(model, folder) or model.is_symlink() or not is_plain(model):
            raise UsageError(f"its model {result.model} is no file in its folder")
        return model
    if not result.input_model or not is_plain(folder / result.input_model):
        raise UsageError(f"it has no model of its own, and the whole one ({result.input_model}) is not there")
    return folder / result.input_model


def expected(folder: Path) -> str:
    """Return what is expected of a kept result. Raises UsageError for another word."""
    word = " ".join(read_plain(folder / EXPECT, 1000).decode(errors="replace").split()) or STILL
    if word not in _EXPECTABLE:
        raise UsageError(f"{folder / EXPECT}: {word[:60]!r}: write one of these: {', '.join(_EXPECTABLE)}")
    return word
