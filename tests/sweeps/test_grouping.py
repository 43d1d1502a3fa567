"""How failures are grouped, and how few questions that takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from runner.report.summary import summary_of
from runner.sweeps.bugs import CHECKED, LIKENESS, Failure, ShownRemedy, failure_of, form_of, grouped, operators_of
from runner.sweeps.recheck import KeptResult

KIND = {"stage": "compare", "kind": "mismatch"}


def off(name: str) -> ShownRemedy:
    return ShownRemedy(f"{name} off", (f"target.disabled_optimizers=[{name}]",))


def failure(name: str, *remedies: str, operators: str = "Add Mul", form: str = "f", kind: str = "mismatch") -> Failure:
    kept = KeptResult(
        Path(name), summary_of({"signature": {**KIND, "kind": kind}}), Path("m.onnx"), Path("replay.yaml")
    )
    return Failure(kept, tuple(operators.split()), form, len(name), tuple(map(off, remedies)))


def groups(*failures: Failure, cures: str = "", unknown: str = "") -> tuple[list[list[str]], list[str], list[str]]:
    """Return the groups by name, how each member joined, and what was asked; ``cures``: what heals what."""
    asked: list[str] = []

    def heals(remedy: ShownRemedy, one: Failure) -> bool | None:
        asked.append(f"{remedy.name.removesuffix(' off')}:{one.kept.folder}")
        return None if asked[-1] in unknown.split() else asked[-1] in cures.split()

    bugs = grouped(failures, heals)
    named = [[str(member.failure.kept.folder) for member in bug.members] for bug in bugs]
    return named, [member.how for bug in bugs for member in bug.members[1:]], asked


def test_what_was_shown_to_heal_both_is_not_asked_again() -> None:
    assert groups(failure("a", "P"), failure("bb", "P"), failure("ccc", "Q")) == (
        [["a", "bb"], ["ccc"]],
        [CHECKED],
        ["P:ccc"],
    )


def test_a_pass_that_has_a_part_in_two_bugs_does_not_make_them_one() -> None:
    """As SimplifiedLayerNormFusion does: alone in one defect of ONNX Runtime, and with two others in another."""
    assert groups(failure("a", "P"), failure("bb", "Q", "P", "R")) == ([["a"], ["bb"]], [], ["Q:a"])
    assert groups(failure("a", "P"), failure("bb", "Q", "P"), cures="Q:a")[0] == [["a", "bb"]]


def test_where_the_same_passes_are_needed_another_release_may_heal_with_fewer_of_them() -> None:
    one, other = (replace(found, needed=frozenset("PQ")) for found in (failure("a", "P"), failure("bb", "P", "Q")))
    assert groups(one, other) == ([["a", "bb"]], [CHECKED], [])


def test_what_cannot_be_judged_is_no_evidence_and_what_has_nothing_in_common_is_not_asked() -> None:
    far = failure("dddd", "R", operators="Conv")
    assert groups(failure("a", "P"), failure("bb", "Q"), far, cures="Q:a", unknown="P:bb") == (
        [["a", "bb"], ["dddd"]],
        [CHECKED],
        ["P:bb", "Q:a"],
    )
    assert groups(failure("a", "P"), failure("bb", "Q"), unknown="P:bb Q:a")[0] == [["a"], ["bb"]]


def test_likeness_counts_only_where_nothing_is_known_to_heal() -> None:
    same, other, healed = failure("bb"), failure("ccc", form="g"), failure("dddd", "P")
    assert groups(failure("a"), same, other, healed, failure("eeeee", kind="nan")) == (
        [["a", "bb"], ["ccc"], ["dddd"], ["eeeee"]],
        [LIKENESS],
        ["P:a", "P:ccc", "P:eeeee"],
    )


def test_what_heals_any_of_a_bug_is_asked_of_a_failure_of_which_nothing_is_known() -> None:
    assert groups(failure("a"), failure("bb", "P"), failure("ccc", form="g"), cures="P:a P:ccc") == (
        [["a", "bb", "ccc"]],
        [CHECKED, CHECKED],
        ["P:a", "P:ccc"],
    )


def model(*, names: str = "", size: int = 4, transposed: int = 0, swap: bool = False) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], [f"{names}y"], name=f"{names}gemm", transA=transposed),
        helper.make_node("Relu", ["x"], [f"{names}r"], name=f"{names}relu"),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [size, size], [0.5] * size * size)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, size]) for n in ("x", f"{names}y", f"{names}r")]
    return helper.make_model(helper.make_graph(nodes[::-1] if swap else nodes, "g", ends[:1], ends[1:], [weight]))


def test_the_form_of_a_model_is_not_its_names_sizes_or_order_but_what_it_computes() -> None:
    assert form_of(model()) == form_of(model(names="other/", size=6, swap=True)) != form_of(model(transposed=1))
    assert operators_of(model()) == ("Gemm", "Relu")


@pytest.mark.parametrize(
    "override",
    [
        "checker.command=evil",
        "target.python=/evil",
        "target.custom_ops=[/evil.so]",
        "hydra.callbacks.a._target_=evil",
        "target.config_entries={a: '${oc.env:HOME}'}",
        "target@checker=onnxruntime",
        "target.disabled_optimizers=[A],[B]",
        "target.session_options={optimized_model_filepath: /home/me/kept.onnx}",
        "target.session_options={enable_mem_pattern: False, enable_profiling: True}",
        "target.session_options={enable_mem_pattern: False, profile_file_prefix: /home/me/kept}",
        "target.config_entries={session.optimized_model_external_initializers_file_name: kept}",
        "target.providers=[CUDAExecutionProvider]",
        "target.config={builder_optimization_level: 0}",
        "target.timing_cache=kept",
        "target.threads=100000",
    ],
)
def test_a_stranger_s_result_names_no_code(tmp_path: Path, override: str) -> None:
    onnx.save(model(), str(tmp_path / "reduced.onnx"))
    passes = {"heals": [["A"], ["B"]], "overrides": [override], "settings": {"disabled_optimizers": ["A"]}}
    result = {"signature": KIND, "passes": passes}
    kept = KeptResult(tmp_path, summary_of(result), tmp_path / "reduced.onnx", tmp_path / "replay.yaml")
    assert failure_of(kept).remedies == ()
    passes["overrides"] = ["target.disabled_optimizers=[A]"]
    kept = replace(kept, result=summary_of(result))
    assert failure_of(kept).remedies == (off("A"), off("B"))
    memory = "target.session_options={enable_mem_pattern: False, enable_mem_reuse: False}"
    off_too = [memory, "target.optimization=basic"]
    both = {"kind": "pass", "what": "without A, B", "passes": True, "overrides": off_too}
    kept = replace(kept, result=summary_of({"signature": KIND, "workarounds": [both]}))
    assert failure_of(kept).remedies == (ShownRemedy("A and B off", tuple(off_too)),)
