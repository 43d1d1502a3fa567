"""The small fault matrix: each kind of fault is done once to a run, and its answer is what it is undisturbed.

The whole matrix, with hundreds of kills: ``python -m benchmarks.faults``. Both print one table, here at the end of the
tests' output.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.faults import FAULTS, Fault, Undisturbed, row, sockets

LIGHT = [pytest.param(fault, id=fault.name) for fault in FAULTS if fault.light]


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed.of(tmp_path_factory.mktemp("faults"), (False,))


@pytest.mark.slow
@pytest.mark.parametrize("fault", LIGHT)
def test_a_fault_costs_no_answer(
    tmp_path: Path, normal: Undisturbed, fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    found = row(fault, 1, tmp_path, normal)
    record_property("fault", str(found))
    if fault.needs:
        pytest.skip(fault.needs)
    assert not found.notes


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_run_opens_no_socket(tmp_path: Path) -> None:
    assert sockets(tmp_path / "run").keys() <= {"AF_UNIX"}  # the C library's, for the name of the user
