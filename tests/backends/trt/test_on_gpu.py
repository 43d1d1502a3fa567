"""Engines that run on a real GPU: what the stand-in's table says of sound models must hold there too.

Not yet run anywhere: unverified.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runner.workers.gpus import installed, usable
from runner.workers.pool import Pool
from tests.backends.trt.planted_faults import FAULTS, Bench, Fault

SOUND = [fault for fault in FAULTS if fault.ends == "right" and not fault.planted]


@pytest.fixture(scope="module", params=["tensorrt", "tensorrt_rtx"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    machine = installed()
    if not machine.devices:
        pytest.skip(f"needs a GPU: {machine.why}")
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-python is not installed")
    folder: Path = tmp_path_factory.mktemp(request.param)
    with Pool(folder / "asked") as pool:
        if request.param not in pool.versions():
            pytest.skip(f"{request.param} is not installed")
    with ExitStack() as stack:
        made = Bench(folder, stack, None, usable(machine, os.environ, None), request.param)
        told = made.run("plain", {})
        if "cannot run on this GPU" in told:
            pytest.skip(told.removeprefix("refused: "))
        yield made


@pytest.mark.gpu
@pytest.mark.parametrize("model", SOUND, ids=lambda model: model.what)
def test_a_sound_model_is_right(bench: Bench, model: Fault) -> None:
    assert bench.run(model.model, model.settings) == "right"


@pytest.mark.gpu
def test_a_shape_outside_of_the_profile_is_untried(bench: Bench) -> None:
    assert bench.run("dynamic", {"profiles": {"x": [4, 64]}}).startswith("untried: ")
    assert bench.run("plain", {}) == "right", "the worker is fit for the next"
