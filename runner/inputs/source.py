"""The choices of `inputs=` by name."""

from __future__ import annotations

from pathlib import Path

from runner.inputs.declared_inputs import concrete, declared
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile
from runner.schema.inputs import InputsSettings
from runner.schema.installed_choices import implementation
from runner.workers.pool import Pool


def samples(settings: InputsSettings, graph: Graph, pool: Pool, folder: Path) -> tuple[dict[str, TensorFile], ...]:
    """Values for the model's inputs: one mapping (name to tensor, in the model's order) for each sample, at least one.

    Tensor files are written into ``folder``; relative paths of the settings start at the current folder. Raises
    UsageError for values that are missing or do not fit the model, for files that cannot be read and for an unknown
    choice; NotApplicable for a model with inputs of an unknown type.
    """
    inputs = concrete(declared(graph), settings.shapes)
    folder.mkdir(parents=True, exist_ok=True)
    choice = implementation("inputs", settings)
    found: tuple[dict[str, TensorFile], ...] = choice(settings, inputs, pool, folder)
    return found
