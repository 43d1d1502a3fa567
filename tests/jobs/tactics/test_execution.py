"""Tactics recorded, compared and pinned in whole runs, on a pretended TensorRT whose builds choose by chance.

The stand-in mirrors what its author read: no GPU has run this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from tests.fake_tensorrt import Installed, install
from tests.harness import PRETENDED_GPUS, Run, winnow, without_nvml
from tests.report.page.pages import page_in


def run(folder: Path, made: Installed, *options: str) -> Run:
    nodes, last = [], "x"
    for number in range(4):
        nodes.append(helper.make_node("Add", [last, "w"], [f"a{number}"], name=f"add{number}"))
        last = f"a{number}"
    ends = [helper.make_tensor_value_info(name, T.FLOAT, [4, 64]) for name in ("x", last)]
    weights = [numpy_helper.from_array(np.full((64,), 0.25, np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(folder / "net.onnx"))
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
def test_builds_of_both_kinds_have_one_suspect(recorded: Recorded) -> None:
    assert recorded.run.code == 0, recorded.run.output
    assert [one["layer"] for one in recorded.run.result["suspects"]] == ["add2"]
    page = page_in(recorded.run.folder)
    assert "simulated builder" in page["labels"], "what no GPU has run must not look like it"
    assert {one["outcome"] for one in page["trials"]} == {"pass", "fail"} and page["whole"]


@pytest.mark.slow
def test_a_bad_tactic_is_isolated(recorded: Recorded, tmp_path: Path) -> None:
    recorded.made.plant("bad_tactic:add2")
    done = run(tmp_path, recorded.made, "strategy=tactic_isolate", *recorded.pair)
    assert done.code == 0, done.output
    assert [name.partition(":")[0] for name in done.result["culprits"]] == ["add2"]
    chosen = json.loads((done.folder / "reduced.tactics.json").read_text())["choices"]
    assert {one["layer"]: one["tactic"] for one in chosen}["add2"] == "0x7a1f00c0ffee1"


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("fault", ["pin_ignored", "cache_miss"])
def test_pins_that_do_not_hold_answer_nothing(recorded: Recorded, tmp_path: Path, fault: str) -> None:
    recorded.made.plant("bad_tactic:add2", fault)
    done = run(tmp_path, recorded.made, "strategy=tactic_isolate", *recorded.pair)
    assert done.code == 3, done.output
    assert not done.result.get("culprits")
