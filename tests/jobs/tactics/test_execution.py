"""Tactics recorded, compared and pinned in whole runs, on a pretended TensorRT whose builds choose by chance.

The stand-in mirrors what its author read: no GPU has run this.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fake_tensorrt import Installed, install
from tests.harness import PRETENDED_GPUS, Run, winnow, without_nvml
from tests.jobs.models import saved
from tests.report.page.pages import page_in


def run(folder: Path, made: Installed, *options: str) -> Run:
    text = """g (float[4,64] x) => (float[4,64] a3) <float w = {0.25}> {
        [add0] a0 = Add(x, w) [add1] a1 = Add(a0, w) [add2] a2 = Add(a1, w) [add3] a3 = Add(a2, w) }"""
    saved(folder / "net.onnx", text)
    target = ("target=tensorrt", f"target.python={made.python}", "checker=compare", "checker.flaky=never")
    gpus = (f"workers.gpus=[{PRETENDED_GPUS[0]}]", f"workers.lease_folder={folder / 'locks'}")
    return winnow(
        f"model={folder / 'net.onnx'}", *target, *gpus, *options, folder=folder / "run", environment=without_nvml()
    )


@dataclass(frozen=True)
class Recorded:
    made: Installed
    folder: Path
    run: Run

    @property
    def pair(self) -> tuple[str, ...]:
        return tuple(f"strategy.{kind}={self.run.folder / 'artifacts' / kind}" for kind in ("good", "bad"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    made = install(folder, "10")
    made.plant("bad_tactic:add2")
    return Recorded(made, folder, run(folder, made, "strategy=tactic_repeat", "strategy.until=8"))


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("fault", ["pin_ignored", "cache_miss"])
def test_pins_that_do_not_hold_answer_nothing(recorded: Recorded, tmp_path: Path, fault: str) -> None:
    recorded.made.plant("bad_tactic:add2", fault)
    done = run(tmp_path, recorded.made, "strategy=tactic_isolate", *recorded.pair)
    assert done.code == 3, done.output
    assert "simulated builder" in page_in(recorded.run.folder)["labels"], "what no GPU has run must not look like it"
    assert not done.result.get("culprits")
