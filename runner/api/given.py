"""What a program gives a run as it is (a model, functions, arrays): as files in the run's folder, and as settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np

from runner.api import in_process as here
from runner.api.functions import source_of
from runner.errors import UsageError
from runner.model.values.write_npz_and_data_sets import fits_npz
from runner.schema.inputs import InputsSettings

if TYPE_CHECKING:
    from onnx import ModelProto

FOLDER = "given"
"""Where it lies in the folder of the run."""
_MOST = (1 << 31) - 1
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
    """``keys``: the settings that it makes. ``writes``: what makes each file, once the run has its folder."""

    keys: dict[str, Any] = field(default_factory=dict)
    writes: dict[Path, Callable[[Path], Any]] = field(default_factory=dict)

    def write(self) -> None:
        """Write the files."""
        for path, write in self.writes.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)

    def add_model(self, model: Model, folder: Path) -> None:
        """Take ``model``, for a run in ``folder``. Raises UsageError for a value that is none, or too large."""
        if model is None or isinstance(model, (str, PathLike)):
            self.keys["model"] = None if model is None else fspath(model)
            return
        if not hasattr(model, "SerializeToString"):
            raise UsageError(f"model: {type(model).__name__} is neither a path nor an onnx.ModelProto")
        if model.ByteSize() > _MOST:
            raise UsageError("model: it has 2 GiB or more. Save it with external data, and give the path of the file")
        content = model.SerializeToString()
        self.writes[folder / FOLDER / "model.onnx"] = lambda path: path.write_bytes(content)
        self.keys["model"] = str(folder / FOLDER / "model.onnx")

    def add_check(self, check: Check, checker: Any, folder: Path, *, in_process: bool) -> None:
        """Take ``check`` and what was given of the ``checker`` besides. Raises UsageError where they do not fit."""
        if in_process and not callable(check):
            raise UsageError("in_process=True: only a function can be called in this process. Give check=FUNCTION")
        if check is None:
            self.keys["checker"] = checker
            return
        if checker is not None and (not isinstance(checker, Mapping) or "name" in checker):
            raise UsageError("check and checker: both say what judges. Give one, or keys only: checker={'timeout': 60}")
        rest = dict(checker or {})
        if callable(check):
            path = folder / FOLDER / "check.py"
            text = here.FILE.format(number=secrets.token_hex(8)) if in_process else source_of(check, "check", "check")
            self.writes[path] = lambda path: path.write_text(text, encoding="utf-8")
            self.keys["checker"] = {"name": "python", "file": str(path), **rest}
        elif isinstance(check, str) or (isinstance(check, Sequence) and all(isinstance(word, str) for word in check)):
            self.keys["checker"] = {"name": "command", "command": check, **rest}
        else:
            raise UsageError(f"check: {type(check).__name__} is neither a function nor a command")

    def add_inputs(self, inputs: Inputs, folder: Path, *, in_process: bool) -> None:
        """Take ``inputs``. Raises UsageError for what is none."""
        if inputs is None or isinstance(inputs, InputsSettings):
            self.keys["inputs"] = inputs
            return
        if callable(inputs) and in_process:
            inputs = inputs()
        if callable(inputs):
            self._add_function(inputs, folder)
            return
        if isinstance(inputs, (str, PathLike)):
            self.keys["inputs"] = {"name": "files", "path": fspath(inputs)}
            return
        every = [inputs] if isinstance(inputs, Mapping) else list(inputs) if isinstance(inputs, Iterable) else []
        if every and all(isinstance(one, (str, PathLike)) for one in every):
            self.keys["inputs"] = {"name": "files", "path": [str(one) for one in every]}
        elif every and all(isinstance(one, Mapping) for one in every):
            self._add_values(every, folder)
        else:
            raise UsageError(
                f"inputs: {type(inputs).__name__} is none of: a path, a dict of arrays by name, a list of such dicts, "
                "a function that returns them, settings (RandomInputs(samples=4))"
            )

    def _add_values(self, given: list[Any], folder: Path) -> None:
        """Take values as npz files, or what an npz cannot hold (sequences, bfloat16) as a function that returns it."""
        samples = [{str(name): _unwrapped(value) for name, value in one.items()} for one in given]
        if not all(map(_fits, samples)):
            self._add_function(lambda: samples, folder)
            return
        paths = [folder / FOLDER / f"inputs_{number}.npz" for number in range(len(samples))]
        self.writes.update({path: _saving(sample) for path, sample in zip(paths, samples, strict=True)})
        self.keys["inputs"] = {"name": "files", "path": [str(path) for path in paths]}

    def _add_function(self, function: Callable[[], Any], folder: Path) -> None:
        path, text = folder / FOLDER / "inputs.py", source_of(function, "inputs", "samples")
        self.writes[path] = lambda path: path.write_text(text, encoding="utf-8")
        self.keys["inputs"] = {"name": "python", "file": str(path), "function": "samples"}


def _unwrapped(value: Any) -> Any:
    """Return a tensor of a framework as numpy sees it."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _fits(sample: Sample) -> bool:
    """Whether an npz can hold the values."""
    named = all(fits_npz(name, sample) and name not in _OF_SAVEZ for name in sample)
    return named and all(
        not isinstance(value, list | tuple) and np.asarray(value).dtype.kind in _PLAIN for value in sample.values()
    )


def _saving(held: Sample) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **held)
