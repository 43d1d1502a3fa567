"""Switches become settings of the target."""

from __future__ import annotations

from dataclasses import replace

from runner.jobs.variants.passes import builder_switches, changes, overrides, session_switches
from runner.report.diagnosis_sections import session_code
from runner.schema.backend import OnnxRuntimeBackend, TensorRtBackend


def test_what_the_user_has_set_is_no_switch() -> None:
    plain = session_switches(OnnxRuntimeBackend(), ["A", "B"])
    given = OnnxRuntimeBackend(disabled_optimizers=["A"], session_options={"enable_mem_pattern": "False"})
    left = session_switches(given, ["A", "B"])
    assert {one.name for one in plain} - {one.name for one in left} == {"A", "memory pattern"}


def test_switches_that_are_off_add_to_what_is_set() -> None:
    target = OnnxRuntimeBackend(disabled_optimizers=["A"], config_entries={"x": "1"})
    off = [
        one for one in session_switches(target, ["B", "C"]) if one.name in ("C", "memory reuse", "prepacked weights")
    ]
    changed = changes(target, off)
    assert changed == {
        "disabled_optimizers": ["A", "C"],
        "session_options": {"enable_mem_reuse": "False"},
        "config_entries": {"x": "1", "session.disable_prepacking": "1"},
    }
    assert replace(target, **changed).to_json()["disabled_optimizers"] == ["A", "C"]
    assert "target.disabled_optimizers=[A, C]" in overrides(changed)
    assert session_code(changed).splitlines() == [
        "options = onnxruntime.SessionOptions()",
        "options.enable_mem_reuse = False",
        "options.add_session_config_entry('x', '1')",
        "options.add_session_config_entry('session.disable_prepacking', '1')",
        "session = onnxruntime.InferenceSession(path, options, disabled_optimizers=['A', 'C'])",
    ]


def test_builder_options() -> None:
    target = TensorRtBackend(
        flags=["FP16", "TF32"], tactic_sources=["CUBLAS"], preview_features={"P": True, "Q": False}
    )
    switches = {one.name: one for one in builder_switches(target)}
    assert [*switches] == ["flag FP16", "flag TF32", "source CUBLAS", "preview feature P", "builder_optimization_level"]
    assert changes(target, switches.values()) == {
        "flags": [],
        "tactic_sources": [],
        "preview_features": {"P": False, "Q": False},
        "config": {"builder_optimization_level": 0},
    }
    assert session_code(changes(target, switches.values())) == ""
