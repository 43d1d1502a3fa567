"""Recorded values, whole: the tensor files themselves, seeded ones, and the forms that a user's check knows."""

from __future__ import annotations

from runner.model.feeds import describe, read_test_data_set, write_npz, write_test_data_set
from runner.model.seeded import seeded, seeded_array
from runner.model.tensor_file import (
    TensorFile,
    finite_of,
    finiteness,
    load,
    read,
    renamed,
    tensor_type,
    to_array,
    write,
)

__all__ = [
    "TensorFile",
    "describe",
    "finite_of",
    "finiteness",
    "load",
    "read",
    "read_test_data_set",
    "renamed",
    "seeded",
    "seeded_array",
    "tensor_type",
    "to_array",
    "write",
    "write_npz",
    "write_test_data_set",
]
