"""Engines that run, on a pretended TensorRT and CUDA: with nothing wrong, and with a fault planted.

They mirror what their author read: no GPU has run this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from runner.schema.backend import Flavor, TensorRtBackend
from runner.workers.pool import Pool
from runner.workers.reply import Reply
from tests.backends.trt.planted_faults import FAULTS, PLAIN, Bench, Fault, benches, judged
from tests.fake_tensorrt import RELEASES, Installed, install
from tests.matrix import sample


@pytest.fixture(scope="module")
def installations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Bench]]:
    with ExitStack() as stack:
        yield dict(benches(tmp_path_factory.mktemp("trt"), stack))


@pytest.mark.parametrize("fault", sample(FAULTS, 8), ids=lambda fault: fault.what)
def test_each_fault_ends_as_it_should(installations: dict[str, Bench], fault: Fault) -> None:
    # everywhere if releases may differ, else on one in turn
    alike = isinstance(fault.ends, str) and fault.ends != "right"
    releases = (RELEASES[FAULTS.index(fault) % 3],) if alike else RELEASES
    told = {release: judged(fault, release, installations[release]) for release in releases}
    assert told == dict.fromkeys(told, "ok")


def asked(made: Installed, folder: Path, op: str = "run", **more: Any) -> Reply:
    """What a fresh worker says of a sound model."""
    model = PLAIN.save(folder / "model.onnx")
    backend = TensorRtBackend(flavor=Flavor(made.flavor)).to_json()
    with Pool(folder / "workers") as pool:
        arguments = {"backend": backend, "model": str(model), "samples": [], "out": str(folder / "out")}
        return pool.call(op, arguments, python=str(made.python), **more)


@pytest.mark.variants
@pytest.mark.parametrize("op", ["run", "build"])
def test_what_starts_slowly_takes_no_time_of_a_model(tmp_path: Path, op: str) -> None:
    """With a longer time-out, and a slower start, where the machine is too busy for a short one."""
    made = install(tmp_path, "10")
    for timeout in (1.5, 6.0, 24.0):
        made.plant(f"slow_start:{timeout + 0.1}")
        reply = asked(made, tmp_path, op, timeout=timeout)
        if reply.death is None:
            break
    assert reply.death is None, "it ran out of time before it began"
    # without samples, a run of a model with inputs has none to execute
    assert reply.value is not None, reply


def test_its_own_plugins_are_always_there(tmp_path: Path) -> None:
    made = install(tmp_path, "11")
    assert asked(made, tmp_path, "build").value
    assert '"plugins": true' in made.notes.read_text()
    made.plant("no_plugins")
    failure = asked(made, tmp_path, "build").failure
    assert failure and (failure.stage, failure.type) == ("setup", "NotInstalled")
    assert "its own plugins cannot be registered" in failure.message
