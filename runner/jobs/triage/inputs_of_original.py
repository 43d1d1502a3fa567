"""What a model is fed, in the types of its original: a precision search begins with that one."""

from __future__ import annotations

from pathlib import Path

from runner.errors import UsageError
from runner.inputs.declared_inputs import concrete, declared
from runner.inputs.files import from_files
from runner.model.files.parse_without_weights import parse
from runner.model.graph.graph_index import Graph
from runner.model.values.write_npz_and_data_sets import write_npz
from runner.reference.good_values import UnfitError, cast
from runner.reference.lineage.user_map import matched_inputs, read_map
from runner.schema.backend import map_of
from runner.schema.inputs import FilesInputs, InputsSettings
from runner.schema.root import Settings


def inputs_of_original(settings: Settings, folder: Path) -> InputsSettings:
    """Return inputs for the model ``reference.model``; values from files are cast into ``folder``.

    Raises UsageError for values that its types cannot hold.
    """
    given = settings.inputs
    if not isinstance(given, FilesInputs):
        return given
    child, parent = (
        Graph.of(parse(Path(path or "").expanduser())) for path in (settings.model, settings.reference.model)
    )
    types = declared(parent)
    names = matched_inputs(declared(child), types, read_map(map_of(settings.reference), child, parent))
    samples = from_files(given, concrete(declared(child), given.shapes), None, folder / "files")
    made = []
    for number, sample in enumerate(samples):
        named = {theirs: sample[mine] for theirs, mine in names.items()}
        try:
            feeds = cast(named, {name: one.dtype for name, one in types.items()}, folder / f"cast_{number}")
        except UnfitError as error:
            raise UsageError(f"reference.model={settings.reference.model}: its input {error}") from None
        path = folder / f"sample_{number}.npz"
        write_npz(feeds, path)
        made.append(str(path))
    return FilesInputs(path=made)
