"""A SLURM cluster of one node for the tests of this folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.one_node import OneNode, missing


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    """One node with two pretended GPUs and four CPUs."""
    reason = missing()
    if importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        reason = reason or "submitit's launcher is not installed: pip install '.[slurm]'"
    if reason:
        pytest.skip(reason)
    folder: Path = tmp_path_factory.mktemp("slurm")
    with OneNode(folder, gpus=2) as node:
        yield node
