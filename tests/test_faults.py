"""The small fault matrix: each kind of fault is done once to a run, and its answer is what it is undisturbed.

The whole matrix, with hundreds of kills: ``python -m benchmarks.faults``. Both print one table, here at the end of the
tests' output.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.fault_kinds import FAULTS, Fault
from benchmarks.fault_sockets import sockets
from benchmarks.faults import Undisturbed, row

KNOWN = {
    "kill -9 of worker, guardian, check": "a worker killed while the model is read is called a mistake of the user's",
    "check deletes or rewrites it": "what such a check leaves is handed over",
    "read-only folder": "a folder that cannot be written any more is called a bug of Winnow's own",
    "check forks, daemonises, floods": "children of a check that ends by itself outlive the run",
}
"""Rows that are not all zeros yet."""
LIGHT = [
    pytest.param(
        fault, id=fault.name, marks=[pytest.mark.xfail(reason=KNOWN[fault.name])] if fault.name in KNOWN else []
    )
    for fault in FAULTS
    if fault.light
]


@pytest.fixture(scope="module", autouse=True)
def _no_telemetry() -> Iterator[None]:
    """ONNX Runtime leaves a file of its telemetry where temporary files go, unless it is told not to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORT_DISABLE_TELEMETRY", "1")
        yield


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory, _no_telemetry: None) -> Undisturbed:
    return Undisturbed.of(tmp_path_factory.mktemp("faults"), (False,))


@pytest.mark.parametrize("fault", LIGHT)
def test_a_fault_costs_no_answer(
    tmp_path: Path, normal: Undisturbed, fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    found = row(fault, 1, tmp_path, normal)
    record_property("fault", str(found))
    if fault.needs:
        pytest.skip(fault.needs)
    assert not found.notes


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_run_opens_no_socket(tmp_path: Path) -> None:
    assert sockets(tmp_path / "run").keys() <= {"AF_UNIX"}  # the C library's, for the name of the user
