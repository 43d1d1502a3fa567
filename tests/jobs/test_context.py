"""What has changed since a replay was written."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from runner.jobs.context import drifted
from runner.schema.root import Settings

EARLIER = {
    "strategy": "subgraph",
    "recording": "onnx, ahead",
    "check.checker": json.dumps({"inf": True, "nan": False, "name": "finite", "timeout": 600.0}),
    "check.function": json.dumps(["check", None]),
    "target": json.dumps({"name": "onnxruntime", "threads": 1, "versions": {"onnxruntime": "1.30"}}),
    "model": "ab",
}
NOW = {
    "strategy": "subgraph",
    "cut": json.dumps({"policy": "auto", "outputs": "frontier", "record": "ahead", "shapes": "onnx"}),
    "check.checker": json.dumps({"inf": "fail", "nan": "ignore", "name": "finite", "timeout": 600.0}),
    "check.function": json.dumps({"function": "check"}),
    "target": json.dumps({"files": {}, "name": "onnxruntime", "threads": 1, "versions": {"onnxruntime": "1.30"}}),
    "model": "ab",
}


def of(recorded: Any, now: dict[str, str]) -> tuple[str, ...]:
    return drifted(cast(Settings, SimpleNamespace(recorded={"context": recorded})), now)


def test_what_an_earlier_version_recorded_in_another_form_is_no_drift() -> None:
    assert of(EARLIER, NOW) == of(NOW, NOW) == of({}, NOW) == ()
    changed = {
        "model": "cd",
        "cut": NOW["cut"].replace("ahead", "off"),
        "check.checker": NOW["check.checker"].replace("ignore", "fail"),
        "target": NOW["target"].replace("1.30", "1.31"),
    }
    assert set(of(EARLIER, {**NOW, **changed})) == {
        "model changed: ab -> cd",
        "cut record changed: ahead -> off",
        "check.checker nan changed: ignore -> fail",
        "target versions onnxruntime changed: 1.30 -> 1.31",
    }
