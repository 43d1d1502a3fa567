"""Recorded values, whole: the tensor files themselves, seeded ones, and the forms that a user's check knows."""

from __future__ import annotations

from runner.model.values.random_values import seeded, seeded_array
from runner.model.values.sequences_and_maps import contents
from runner.model.values.sequences_and_maps import write as write_container
from runner.model.values.tensor_file import (
    TensorFile,
    finite_of,
    load,
    mapped,
    paths,
    read,
    renamed,
    to_array,
    write,
)
from runner.model.values.value_types import tensor_type
from runner.model.values.write_npz_and_data_sets import write_npz, write_test_data_set

__all__ = [
    "TensorFile",
    "contents",
    "finite_of",
    "load",
    "mapped",
    "paths",
    "read",
    "renamed",
    "seeded",
    "seeded_array",
    "tensor_type",
    "to_array",
    "write",
    "write_container",
    "write_npz",
    "write_test_data_set",
]
