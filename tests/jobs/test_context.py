"""What has changed since a replay was written."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from runner.engine.verdict_cache import context, drifted
from runner.journal.replay_yaml import TYPED, typed_groups
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.checker import FiniteChecker
from runner.schema.root import Settings
from runner.schema.strategy import RepeatSettings
from runner.workers.pool import Pool

NOW = {
    "strategy": "subgraph",
    "cut": json.dumps({"policy": "auto", "outputs": "frontier", "record": "ahead", "shapes": "onnx"}),
    "check.checker": json.dumps({"inf": "fail", "nan": "ignore", "name": "finite", "timeout": 600.0}),
    "check.function": json.dumps({"function": "check"}),
    "target": json.dumps({"files": {}, "name": "onnxruntime", "threads": 1, "versions": {"onnxruntime": "1.30"}}),
    "model": "ab",
}


def of(recorded: Any, now: dict[str, str]) -> tuple[str, ...]:
    given = SimpleNamespace(recorded={"context": recorded}, strategy=RepeatSettings())
    return drifted(cast(Settings, given), now)


def test_each_part_that_has_changed_is_named() -> None:
    assert of(NOW, NOW) == of({}, NOW) == ()
    changed = {
        "model": "cd",
        "cut": NOW["cut"].replace("ahead", "off"),
        "check.checker": NOW["check.checker"].replace("ignore", "fail"),
        "target": NOW["target"].replace("1.30", "1.31"),
    }
    assert set(of(NOW, {**NOW, **changed})) == {
        "model changed: ab -> cd",
        "cut record changed: ahead -> off",
        "check.checker nan changed: ignore -> fail",
        "target versions onnxruntime changed: 1.30 -> 1.31",
    }


def test_another_strategy_is_the_choice_of_whoever_replays() -> None:
    now = {**NOW, "strategy": "command", "subject.kind": "command", "model": "cd"}
    assert of({**NOW, "subject.kind": "subgraph"}, now) == ("model changed: ab -> cd",)
    assert of({}, now) == ()


def test_what_follows_from_what_was_typed_is_no_drift() -> None:
    """The command that a screen says to type next changes some settings of a replay."""
    later = {"model": "cd", "inputs": "ef", "subject.graph": "01", "target": NOW["target"].replace("1.30", "1.31")}
    given = SimpleNamespace(recorded={"context": NOW, TYPED: ["inputs", "model", "target"]})
    assert drifted(cast(Settings, given), {**NOW, **later}) == ("target versions onnxruntime changed: 1.30 -> 1.31",)
    words = ["strategy=passes", "+model=net.onnx", "inputs.path=x.npz", "plan=false", "hydra.run.dir=x"]
    assert typed_groups(words) == ["inputs", "model", "strategy"]


def test_a_package_that_is_named_as_a_library_counts_by_its_version(tmp_path: Path) -> None:
    target = OnnxRuntimeBackend(custom_ops=[str(tmp_path / "ops.so")], provider_libraries={"Mine": "yaml"})
    settings = Settings(
        strategy=RepeatSettings(), checker=FiniteChecker(), target=target, reference=as_reference(OnnxRuntimeBackend)()
    )
    without = cast(Any, SimpleNamespace(identity=dict))
    with Pool(tmp_path) as pool:
        parts = context(settings, without, pool, None, without)
    versions = {key: json.loads(parts[key])["versions"] for key in ("target", "reference")}
    assert versions["target"] == {**versions["reference"], "yaml": f"{version('PyYAML')} (PyYAML)"}
