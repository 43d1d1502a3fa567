"""What a program can ask, what each question takes, and its run."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Union

import numpy as np

from runner.api.pickled_functions import PATHS, confirm_parameters, file_of, name_of, paths
from runner.api.result import Result
from runner.cli.check_given import check_given
from runner.cli.paths import expand_home, rooted
from runner.cli.run_folders import KEYS, FolderTakenError, check_resumed, holding
from runner.cli.signals import open_descriptors
from runner.exit_codes import Status, UsageError, WinnowError
from runner.model.graph.scopes import initializers, inline_tensors
from runner.model.values.recorded import fits_npz
from runner.model.values.tensor_bytes import is_external
from runner.report.progress import CheckEvent, Listener, listening
from runner.report.summary import RESULT_NAME, MistakeError, Summary, write_result
from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.inputs import InputsSettings
from runner.schema.installed_choices import SCHEMAS, compose
from runner.schema.root import (
    ArtifactSettings,
    BudgetSettings,
    CutSettings,
    JournalSettings,
    ResultSettings,
    SanitizeSettings,
    Settings,
    WorkerSettings,
)
from runner.schema.strategy import StrategySettings
from runner.text import close

if TYPE_CHECKING:
    from onnx import ModelProto
    from typing_extensions import Unpack

# What a program gives a run as it is (a model, functions, arrays): as files in the run's folder, and as settings.

FOLDER = "given"
"""Where it lies in the folder of the run."""
_MOST = (1 << 31) - 1
_UNFIT, _LONGEST_NAME = re.compile(r"[^A-Za-z0-9._-]+"), 40
_OF_SAVEZ = frozenset({"file", "allow_pickle"})
_PLAIN = "biufcU"

Model: TypeAlias = Union[str, PathLike[str], "ModelProto", None]
"""A file, or a model that was read already."""
Check: TypeAlias = Callable[..., Any] | str | Sequence[str] | None
"""``check(model, inputs, expected)`` as of checker=python, or a command; None: what ``checker`` says."""
Sample: TypeAlias = Mapping[str, Any]
"""A value for each input of the model, by name."""
Inputs: TypeAlias = (
    str | PathLike[str] | Sequence[str] | Sample | Sequence[Sample] | Callable[[], Any] | InputsSettings | None
)
"""Files, one sample, several, a function that returns them, or settings; None: random values."""


@dataclass(frozen=True)
class Given:
    """What was given for a run in ``folder``.

    ``keys``: the settings that it makes. ``contents``: of its files. They have names of their content, so that nothing
    takes the place of what an earlier run in the folder was given.
    """

    folder: Path
    keys: dict[str, Any] = field(default_factory=dict)
    contents: dict[Path, bytes] = field(default_factory=dict)
    _words: dict[str, str] = field(default_factory=dict)

    def told(self, message: str) -> str:
        """Return a message with the words of a program in it, instead of files that it never named."""
        if message.startswith("journal="):  # it compares the names of such files
            other = "the check or a module of yours that it uses is not what it was then. " * ("/check-" in message)
            return f"{other}{message}"
        for path, word in self._words.items():
            message = message.replace(f"{word}={path}: {path}", word).replace(f"{word}={path}", word)
            message = message.replace(path, word).replace(Path(path).name, word)
            message = message.replace(f"{word}=python: {word}:", f"{word}: ")
        return message

    def write(self) -> None:
        """Write the files, once the run has its folder."""
        for path, content in self.contents.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    def add_model(self, model: Model) -> None:
        """Take ``model``. Raises UsageError for a value that is none, or too large."""
        if model is None or isinstance(model, (str, PathLike)):
            self.keys["model"] = None if model is None else fspath(model)
            return
        if not hasattr(model, "SerializeToString") or not hasattr(model, "graph"):
            kind = type(model).__name__
            made = ". onnx.helper.make_model(graph) makes one" if kind == "GraphProto" else ""
            raise UsageError(f"model: {kind} is neither a path nor an onnx.ModelProto{made}")
        outside = next(
            (tensor.name for tensor in chain(initializers(model), inline_tensors(model)) if is_external(tensor)), None
        )
        if outside is not None:
            raise UsageError(
                f"model: the values of {outside!r} lie in a file beside the model's and were not loaded. Load it with "
                "them (onnx.load(path)), or give the path of the model's file"
            )
        if model.ByteSize() > _MOST:
            raise UsageError("model: it has 2 GiB or more. Save it with external data, and give the path of the file")
        # of a report that names the file
        own = _UNFIT.sub("_", model.graph.name)[:_LONGEST_NAME].strip("_.-")
        self.keys["model"] = self._file(own or "model", ".onnx", model.SerializeToString(), "model")

    def add_check(self, check: Check, checker: Any) -> None:
        """Take ``check`` and what was given of the ``checker`` besides. Raises UsageError where they do not fit."""
        if check is None:
            self.keys["checker"] = checker
            return
        if checker is not None and (not isinstance(checker, Mapping) or "name" in checker):
            raise UsageError("check and checker: both say what judges. Give one, or keys only: checker={'timeout': 60}")
        if callable(check):
            confirm_parameters(check, "check")
            own = self._function(check, "check")
        elif isinstance(check, str) or (isinstance(check, Sequence) and all(isinstance(word, str) for word in check)):
            own = {"name": "command", "command": check}
        else:
            raise UsageError(f"check: {type(check).__name__} is neither a function nor a command")
        self.keys["checker"] = {**(checker or {}), **own}

    def add_inputs(self, inputs: Inputs) -> None:
        """Take ``inputs``. Raises UsageError for what is none."""
        if inputs is None or isinstance(inputs, InputsSettings):
            self.keys["inputs"] = inputs
        elif callable(inputs):
            confirm_parameters(inputs, "inputs")
            self.keys["inputs"] = self._function(inputs, "inputs")
        elif isinstance(inputs, (str, PathLike)):
            self.keys["inputs"] = {"name": "files", "path": fspath(inputs)}
        else:
            every = [inputs] if isinstance(inputs, Mapping) else list(inputs)
            if every and all(isinstance(one, (str, PathLike)) for one in every):
                self.keys["inputs"] = {"name": "files", "path": every}
            elif every and all(isinstance(one, Mapping) for one in every):
                self._add_values(every)
            else:
                raise UsageError(
                    "inputs: give a path, a dict of arrays by name, a list of such dicts, a function that returns "
                    "them, or settings: RandomInputs(samples=4)"
                )

    def _add_values(self, given: list[Any]) -> None:
        """Take values as npz files, or what an npz cannot hold (sequences, bfloat16) as a function that returns it."""
        samples = [{str(name): _unwrapped(value) for name, value in one.items()} for one in given]
        if all(map(_fits, samples)):
            places = [
                self._file(f"inputs_{number}", ".npz", _npz(sample), f"inputs[{number}]")
                for number, sample in enumerate(samples)
            ]
            self.keys["inputs"] = {"name": "files", "path": places}
        else:
            self.keys["inputs"] = self._function(lambda: samples, "inputs")

    def _function(self, function: Callable[..., Any], key: str) -> dict[str, Any]:
        """Have a function written; return the keys that name it."""
        made, folder = file_of(function, key), self.folder / FOLDER
        self.contents.update({folder / name: content for name, content in made.beside.items()})
        self.contents[folder / PATHS] = paths()
        return {"name": "python", "file": self._file(key, ".py", made.text, key), "function": name_of(function, key)}

    def _file(self, name: str, kind: str, given: bytes | str, word: str) -> str:
        """Have a file written; return its path. ``word``: what the program calls it."""
        content = given.encode() if isinstance(given, str) else given
        path = self.folder / FOLDER / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}{kind}"
        self.contents[path] = content
        self._words[str(path)] = word
        return str(path)


def _unwrapped(value: Any) -> Any:
    """Return a tensor of a framework as numpy sees it."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _fits(sample: Sample) -> bool:
    """Whether an npz can hold the values."""
    named = all(fits_npz(name, sample) and name not in _OF_SAVEZ for name in sample)
    return named and all(
        not isinstance(value, list | tuple) and np.asarray(value).dtype.kind in _PLAIN for value in sample.values()
    )


def _npz(sample: Sample) -> bytes:
    made = io.BytesIO()
    np.savez(made, **sample)
    return made.getvalue()


# What every question of a program takes besides the model and the check.

Keys: TypeAlias = Mapping[str, Any]
"""Keys of a section as in a YAML file; of a group also ``name``, the option."""


class Options(TypedDict, total=False):
    """The keys of `conf/`, with the same defaults, and two that only a program has.

    A group (strategy, checker, target, reference, artifacts, workers) is the name of an option, a dict of its keys
    (``name``: the option) or settings; a section is a dict of its keys or settings. ``inputs``: files, arrays by name,
    a list of such samples, a function, or settings. ``folder``: where the run writes, ``outputs/DATE/TIME`` if not
    given. ``resume``: the folder of a run to go on with. ``progress``: is called with a `CheckEvent` each time.
    """

    inputs: Inputs
    strategy: str | Keys | StrategySettings
    checker: str | Keys | CheckerSettings
    target: str | Keys | BackendSettings
    reference: str | Keys | BackendSettings
    cut: Keys | CutSettings
    artifacts: str | Keys | ArtifactSettings
    workers: str | Keys | WorkerSettings
    budget: Keys | BudgetSettings
    journal: Keys | JournalSettings
    sanitize: Keys | SanitizeSettings
    result: Keys | ResultSettings
    plan: bool
    resume: str | PathLike[str]
    folder: str | PathLike[str]
    progress: Callable[[CheckEvent], Any]


# One run for a program: its folder, its settings, the job, and the answer as a value.

#: what is no key of the configuration
_OWN_KEYS = ("folder", "progress")


def run(strategy: str, model: Model, check: Check, options: Mapping[str, Any]) -> Result:
    """Run ``strategy`` and return how it ended.

    Raises UsageError for what cannot be asked, KeyboardInterrupt after Ctrl-C (what was found is in the folder), and
    what ``progress`` raises.
    """
    for key in options:
        if key not in (known := Options.__annotations__):
            raise UsageError(
                f"{key}: winnow.{strategy} takes no such argument{close(key, known)}. Others: {', '.join(known)}"
            )
    asked = {key: value for key, value in options.items() if key not in _OWN_KEYS}
    progress = options.get("progress")
    if progress is not None and not callable(progress):
        raise UsageError(f"progress: {type(progress).__name__} is no function. It is called with each check as it ends")
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder of this process is gone. Change to another: os.chdir(FOLDER)") from error
    open_descriptors()
    folder = _folder(options.get("folder"), asked.get("resume"))
    given = Given(folder)
    given.add_model(model)
    given.add_check(check, asked.pop("checker", None))
    given.add_inputs(asked.pop("inputs", None))
    keys = asked.pop("strategy", strategy)
    keys = {"name": strategy, **keys} if isinstance(keys, Mapping) else keys
    settings = compose({**asked, **given.keys, "strategy": keys})
    if not isinstance(settings.strategy, SCHEMAS["strategy"][strategy]):
        raise UsageError(f"strategy={settings.strategy.name}: this is no choice of winnow.{strategy}")
    if settings.resume is not None:
        check_resumed(settings.resume)
    told = _Told(progress)
    try:
        with _claimed(folder) as foreign:
            given.write()
            check_given(settings, foreign)
            settings = rooted(expand_home(settings), Path.cwd())
            with listening(told):
                summary = _ended(settings, folder)
    except UsageError as error:  # it speaks of what the program gave, and not of the files that were made of it
        raise UsageError(given.told(str(error))) from error.__cause__
    if told.error is not None:
        raise told.error
    if summary.status == Status.interrupted:
        ended = summary.message or "interrupted"
        raise KeyboardInterrupt(f"{ended} [{folder}]")
    if summary.status == Status.usage:
        raise UsageError(given.told(summary.message))
    return Result(summary, folder, tuple(told.checks))


def _folder(folder: str | PathLike[str] | None, resume: str | PathLike[str] | None) -> Path:
    """Return where the run writes: as it was given, where it goes on, or a folder of its own like a command's."""
    if folder is not None and resume is not None:
        raise UsageError("folder and resume: a run goes on in the folder that it has. Leave out folder")
    place = resume if folder is None else folder
    if place is not None:
        return Path(fspath(place)).expanduser().absolute()
    return Path.cwd() / "outputs" / f"{datetime.now():%Y-%m-%d/%H-%M-%S-%f}"


@contextmanager
def _claimed(folder: Path) -> Iterator[frozenset[str]]:
    """Have ``folder`` for this run; one that was made for a run that could not even begin is removed again."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # it cannot be made, or be a name
        raise UsageError(f"folder={folder}: {getattr(error, 'strerror', error)}. Give another") from error
    try:
        with holding(folder) as foreign:
            yield foreign
    except FolderTakenError as error:
        raise UsageError(str(error).replace(f"{KEYS[False]}=", "folder=")) from None
    except OSError as error:
        if error.filename != str(folder):
            raise
        raise UsageError(f"folder={folder}: {error.strerror}. Give another") from error
    finally:
        if new and not any((folder / name).exists() for name in (RESULT_NAME, "journal.jsonl", "steps")):
            shutil.rmtree(folder, ignore_errors=True)


def _ended(settings: Settings, folder: Path) -> Summary:
    """Run the job; what cannot be judged is an answer too. Raises UsageError, and any mistake of Winnow's own."""
    from runner.jobs.processes import processes  # noqa: PLC0415 - as above
    from runner.jobs.run import run as run_job  # noqa: PLC0415

    command = ("winnow", str(folder / "replay.yaml"))  # that asks the same of a command line
    try:
        with processes(settings, folder):
            return run_job(settings, folder, command)
    except UsageError:
        raise
    except WinnowError as error:
        summary = Summary(error.status, error.exit_code, settings.strategy.name, str(error))
        write_result(summary, folder)
        return summary
    except MistakeError as error:
        raise (error.__cause__ or error) from None


class _Told:
    """Remembers the checks, and tells the program of them; where that raises, the run ends as by Ctrl-C."""

    def __init__(self, progress: Callable[[CheckEvent], Any] | None) -> None:
        self.checks: list[CheckEvent] = []
        self.error: BaseException | None = None
        self._progress: Listener | None = progress
        self._lock = threading.Lock()

    def __call__(self, checked: CheckEvent) -> None:
        with self._lock:
            self.checks.append(checked)
            if self._progress is None or self.error is not None:
                return
            try:
                self._progress(checked)
            except BaseException as error:
                self.error = error
                raise KeyboardInterrupt from error


def reduce(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the smallest part of ``model`` that still fails (`strategy=reduce`, or one of its searches).

    ``check``: a function ``check(model, inputs, expected)``, as of checker=python, or a command; None: ``checker``
    says what judges, and without it the target must load, run, stay finite and agree with the reference.
    """
    return run("reduce", model, check, options)


def precision(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the fewest nodes of ``model`` that must stay in high precision, and the mixed model."""
    return run("precision", model, check, options)


def triage(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return what fails, why, since when, and what helps: one question after another."""
    return run("triage", model, check, options)


def layerwise(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return how far each tensor of ``model`` is from the reference's, and which goes wrong first."""
    return run("layerwise", model, check, options)


def passes(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the optimizations of the target that the failure needs."""
    return run("passes", model, check, options)


def versions(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return the releases of a package in which the failure is there, and the nearest good ones."""
    return run("versions", model, check, options)


def workaround(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return what heals ``model`` without another release, and what it costs."""
    return run("workaround", model, check, options)


def extract(model: Model, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return named nodes of ``model`` as a model of their own (``strategy={"nodes": [..]}``), and its verdict."""
    return run("extract", model, check, options)


def repeat(model: Model = None, check: Check = None, **options: Unpack[Options]) -> Result:
    """Return how often the same check passes (``strategy={"until": 20}``)."""
    return run("repeat", model, check, options)


def inspect(model: Model, **options: Unpack[Options]) -> Result:
    """Return what ``model`` is made of; nothing is checked."""
    return run("inspect", model, None, options)
