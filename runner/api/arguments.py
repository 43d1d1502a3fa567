"""What a program gives a run as it is (a model, functions, arrays): as files in the run's folder, and as settings."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np

from runner.api.pickled_functions import PATHS, confirm_parameters, file_of, name_of, paths
from runner.errors import UsageError
from runner.model.graph.scopes import initializers, inline_tensors
from runner.model.values.recorded import fits_npz
from runner.model.values.tensor_bytes import is_external
from runner.schema.inputs import InputsSettings

if TYPE_CHECKING:
    from onnx import ModelProto

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
        if callable(inputs):
            confirm_parameters(inputs, "inputs")
        if inputs is None or isinstance(inputs, InputsSettings):
            self.keys["inputs"] = inputs
        elif callable(inputs):
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
