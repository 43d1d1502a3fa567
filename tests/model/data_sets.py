"""Reading ``test_data_set`` folders back, as a user's own script would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from runner.model.values import recorded
from runner.model.values.recorded import TensorFile, finite_of, load
from runner.model.values.value_types import Structure

_NUMBERED = re.compile(r"(input|output)_(\d+)\.pb")


def read_test_data_set(
    folder: Path, inputs: Sequence[Structure | None] = (), outputs: Sequence[Structure | None] = ()
) -> tuple[list[TensorFile], list[TensorFile]]:
    """Return the inputs and the outputs of a ``test_data_set`` folder, in order.

    ``inputs`` and ``outputs`` say by number of those that are no tensors what they are: the files do not. Names are
    empty where the files have none. Raises OSError, or ValueError for a file that holds something else.
    """
    found: dict[str, list[tuple[int, Path]]] = {"input": [], "output": []}
    for path in Path(folder).iterdir():
        match = _NUMBERED.fullmatch(path.name)
        if match:
            found[match[1]].append((int(match[2]), path))
    return (
        [describe(path, _at(inputs, number)) for number, path in sorted(found["input"])],
        [describe(path, _at(outputs, number)) for number, path in sorted(found["output"])],
    )


def _at(structures: Sequence[Structure | None], number: int) -> Structure | None:
    return structures[number] if number < len(structures) else None


def describe(path: Path, structure: Structure | None = None) -> TensorFile:
    """Return what a file holds: a serialized TensorProto, or what ``structure`` says.

    Raises OSError, or ValueError where it holds something else.
    """
    if structure is not None and structure[0] != "tensor":
        try:
            message = recorded.parse(Path(path).read_bytes(), structure)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return recorded.describe(message, structure, message.name, path)
    tensor = load(path)
    finite, nan = finite_of(tensor)
    return TensorFile(tensor.name, Path(path), tensor.data_type, tuple(tensor.dims), finite, nan)
