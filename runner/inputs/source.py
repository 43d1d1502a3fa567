"""The choices of `inputs=` by name."""

from __future__ import annotations

from pathlib import Path

from runner.errors import UsageError
from runner.inputs.declared import concrete, declared
from runner.inputs.files import from_files
from runner.inputs.python import from_python
from runner.inputs.random import from_random
from runner.model.graph.index import Graph
from runner.model.values.recorded import TensorFile
from runner.schema.inputs import FilesInputs, InputsSettings, PythonInputs, RandomInputs
from runner.workers.pool import Pool

NAMES = ("files", "python", "random")


def samples(settings: InputsSettings, graph: Graph, pool: Pool, folder: Path) -> tuple[dict[str, TensorFile], ...]:
    """Values for the model's inputs: one mapping (name to tensor, in the model's order) for each sample, at least one.

    Tensor files are written into ``folder``; relative paths of the settings start at the current folder. Raises
    UsageError for values that are missing or do not fit the model, for files that cannot be read and for an unknown
    choice; NotApplicable for a model with inputs of an unknown type.
    """
    inputs = concrete(declared(graph), settings.shapes)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(settings, RandomInputs) and settings.name == "random":
        return from_random(settings, inputs, folder)
    if isinstance(settings, FilesInputs) and settings.name == "files":
        return from_files(settings, inputs, folder)
    if isinstance(settings, PythonInputs) and settings.name == "python":
        return from_python(settings, inputs, pool, folder)
    raise UsageError(f"inputs={settings.name}: there is no such choice; there are {', '.join(NAMES)}")
