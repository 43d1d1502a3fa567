"""What a report says first: title, sentence, expected and actual values, the model as text, how it is reproduced."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from runner.exit_codes import Status
from runner.model.values.recorded import TensorFile
from runner.report.failure_section import MOST_LINES, failure_section, model_text, relevant, versions_section
from runner.report.markdown import Shown
from runner.report.markup import sections_text
from runner.report.page.data import PageData, PageTensor
from runner.report.page.tensor_values import reduced_of
from runner.report.repro.write import Repro
from runner.report.result_parts import Cause, CauseAnswer, CauseExperiment, KnownFailure, Statistics
from runner.report.summary import Summary
from runner.verdict import Sample
from tests.report.hostile import STRINGS
from tests.report.rendered import report

VERSIONS = {
    "python": "3.11.7",
    "numpy": "2.4.6",
    "onnx": "1.23.2",
    "onnxruntime": "1.31.1 (onnxruntime-gpu)",
    "tensorrt": "10.3",
    "tensorrt_rtx": "1.7",
    "sympy": "1.14",
}


def context(target: str, reference: str = "onnx_reference", **more: Any) -> dict[str, str]:
    """What a run of a checker that runs both sides has noted of them."""
    sides = {"target": {"name": target, **more}, "reference": {"name": reference}}
    return {side: json.dumps({**told, "versions": VERSIONS}) for side, told in sides.items()}


def found(kind: str = "inf", stage: str = "infer", **told: Any) -> Summary:
    given: dict[str, Any] = {
        "nodes_before": 9,
        "nodes_after": 1,
        "culprits": ("/m/Mul",),
        "signature": KnownFailure(stage, kind),
        "context": context("onnxruntime"),
        "versions": VERSIONS,
        "model": "reduced.onnx",
    }
    return Summary("found", 0, "reduce", **(given | told))


def small(*operators: str) -> onnx.ModelProto:
    nodes = [helper.make_node(one, [f"t{at}"], [f"t{at + 1}"], name=f"/m/{one}") for at, one in enumerate(operators)]
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, "n"]) for name in ("t0", f"t{len(operators)}")
    ]
    return helper.make_model(helper.make_graph(nodes, "g", declared[:1], declared[1:]))


def tensor(name: str = "t1", **told: Any) -> PageTensor:
    values = {"dtype": "float16", "shape": [2, 3], "nan": 1, "inf": 2}
    differences = [{"index": [0, 2], "good": 65504.0, "wrong": "inf"}, {"index": [1, 0], "good": 1 / 3, "wrong": "nan"}]
    whole = {"name": name, "where": "the reduced model", "good": values, "wrong": values, "differing": 2}
    return {**whole, "differences": differences, **told}  # type: ignore[return-value, typeddict-item]


@pytest.mark.parametrize(
    ("summary", "title", "sentence"),
    [
        (
            found("inf", evidence={"output": "t1", "reference": "ran"}),
            "Inf in the output with ONNX Runtime 1.31.1: `Mul`",
            "`Mul` gives Inf in `t1` with ONNX Runtime 1.31.1; the evaluator of onnx 1.23.2 gives finite values.",
        ),
        (
            found("mismatch", "compare", evidence={"output": "t1", "reference": "ran"}),
            "wrong values with ONNX Runtime 1.31.1: `Mul`",
            "`Mul` gives wrong values in `t1` with ONNX Runtime 1.31.1, compared with the evaluator of onnx 1.23.2.",
        ),
        (
            found("error FAIL", "load"),
            "load error FAIL with ONNX Runtime 1.31.1: `Mul`",
            "`Mul` fails when it is loaded (error FAIL) with ONNX Runtime 1.31.1.",
        ),
        (
            found("death MEMORY", context=context("onnxruntime", providers=["CUDAExecutionProvider"])),
            "crash (bad memory access, or abort) with ONNX Runtime 1.31.1 (CUDAExecutionProvider): `Mul`",
            "`Mul` crashes the process (bad memory access, or abort) with ONNX Runtime 1.31.1 (CUDAExecutionProvider).",
        ),
        (
            found("death FPE", context=context("tensorrt", flavor="tensorrt_rtx")),
            "crash (FPE) with TensorRT for RTX 1.7: `Mul`",
            "`Mul` crashes the process (FPE) with TensorRT for RTX 1.7.",
        ),
        (found("exit 3", "check", context={}), "a check fails (exit 3): `Mul`", "`Mul` makes the check fail (exit 3)."),
        (
            found("exit 1", "check", context={}, signature=KnownFailure("check", "exit 1", raised="E at a.py:3")),
            "E at a.py:3: `Mul`",
            "`Mul` makes the check fail (exit 1).",
        ),
    ],
    ids=["inf", "mismatch", "error", "crash", "another crash", "command", "exception"],
)
def test_title_and_sentence_say_what_happens_on_what(summary: Summary, title: str, sentence: str) -> None:
    lines = report(summary, shown=Shown(small("Mul"))).splitlines()
    assert [lines[0], lines[2]] == [f"# {title}", sentence]


def test_several_nodes_are_a_model() -> None:
    said = report(found(nodes_after=2), shown=Shown(small("Mul", "Exp")))
    assert "\nA model of 2 nodes (`Mul`, `Exp`) gives Inf with ONNX Runtime 1.31.1.\n" in said


def test_expected_and_actual_values_stand_beside_each_other() -> None:
    same = tensor("t0", differences=[], differing=0)
    said = report(found(), shown=Shown(small("Mul"), tensors=(same, tensor())))
    assert "## Expected and actual values\n\n`t1`, `float16[2, 3]`: 2 of 6 elements differ, the worst" in said
    assert "| index | expected | actual |\n| --- | --- | --- |\n| `[0, 2]` | `65504` | `inf` |" in said
    assert "| `[1, 0]` | `0.333333333` | `nan` |" in said
    assert "`t0`" not in said.partition("## The reduced model")[0]


def test_a_title_has_what_the_check_said() -> None:
    told = "max diff 0.5 at <y>"
    signature = KnownFailure("check", "exit 1", "max diff #")
    said = report(found(signature=signature, said=told, context={}), shown=Shown(small("Mul")))
    assert said.startswith('# a check fails (exit 1): "max diff 0.5 at &#60;y>": `Mul`\n')
    long = report(found(signature=signature, said="word " * 90, context={}), shown=Shown(small("Mul")))
    assert len(long.splitlines()[0]) < 140
    raised = replace(signature, raised="ValueError at check.py:3")
    assert report(found(signature=raised, said=told), shown=Shown(small("Mul"))).startswith("# ValueError at")


def test_what_is_not_finite_on_both_sides_is_counted() -> None:
    odd = {"dtype": "float16", "shape": [2, 3], "nan": 0, "inf": 4}
    said = report(found(), shown=Shown(small("Mul"), (tensor(differences=[], differing=0, good=odd, wrong=odd),)))
    four = "4 Inf among 6 elements (float16 holds numbers up to 65504)"
    assert f"`t1`, `float16[2, 3]`, in the reduced model: {four}; the reference has as many." in said
    finite = {**odd, "inf": 0}
    simpler = found(message="1 node fails; reduced.onnx has simpler values than the model")
    assert "in the reduced model, which was made simpler: 4" in report(
        simpler, shown=Shown(small("Mul"), (tensor(differences=[], good=odd, wrong=odd),))
    )
    said = report(found(), shown=Shown(small("Mul"), (tensor(differences=[], good=finite, wrong=odd),)))
    assert f"{four}; expected: no NaN and no Inf." in said


def test_the_first_sentence_says_that_the_reference_is_not_finite_either() -> None:
    odd = {"dtype": "float16", "shape": [2, 3], "nan": 0, "inf": 4}
    less = {**odd, "inf": 3}
    told = "gives NaN or Inf in this part too, so the part shows no bug of the runtime."
    for summary in (found(), found("inf", "compare"), found(evidence={"output": "t1", "reference": "ran"})):
        for good, too in ((odd, True), (less, False)):
            said = report(summary, shown=Shown(small("Mul"), (tensor(differences=[], good=good, wrong=odd),)))
            assert (told in said.splitlines()[2]) == too
    said = report(found(evidence={"reference": "non-finite"}), shown=Shown(small("Mul")))
    assert f"the evaluator of onnx 1.23.2 {told}" in said


def test_one_runtime_on_both_sides_is_told_apart_by_its_settings() -> None:
    sides = {
        "target": {"name": "onnxruntime", "optimization": "all", "rounding": "off", "threads": 1},
        "reference": {"name": "onnxruntime", "optimization": "none", "rounding": "auto", "threads": 1},
    }
    summary = found("mismatch", "compare", context={side: json.dumps(one) for side, one in sides.items()})
    title, _, sentence = report(summary, shown=Shown(small("Mul"))).splitlines()[:3]
    assert title == "# wrong values with ONNX Runtime 1.31.1: `Mul`"
    assert (
        "with ONNX Runtime 1.31.1 (optimization=all), compared with ONNX Runtime 1.31.1 (optimization=none)."
        in sentence
    )


@pytest.mark.parametrize(
    ("status", "failed"), [(Status.found, "float16"), (Status.no_set_suffices, "float32"), (Status.could_not_judge, "")]
)
def test_a_precision_search_says_in_which_precision_it_fails_and_that_rounding_is_emulated(
    status: Status, failed: str
) -> None:
    """The user's own file may well pass, and the runtime on a CPU does not round by itself."""
    subject = {"subject.kind": "precision", "subject.low": "float16", "subject.high": "float32"} if failed else {}
    target = json.dumps({"name": "onnxruntime", "rounding": "on", "versions": VERSIONS})
    about = replace(found("nan"), status=status, context={"target": target, **subject})
    said = sections_text(failure_section(about, whole=True))
    form = f" with everything in {failed}" if failed else ""
    assert said.splitlines()[2] == f"The model{form} gives NaN with ONNX Runtime 1.31.1 (rounding=on)."


def test_types_are_those_of_the_whole_model_where_that_was_fed_the_same(tmp_path: Path) -> None:
    recorded = {name: TensorFile(name, Path("t.pb"), TensorProto.FLOAT16, (1, 7)) for name in ("t0", "t1", "t2")}
    for fed, known in ((recorded["t0"], "float16[1, 7]"), (replace(recorded["t0"], shape=(1, 2)), None)):
        sample = Sample({"t0": fed})
        told = reduced_of(tmp_path, found(), small("Mul", "Exp"), sample, PageData(recorded=recorded))
        assert told.types.get("t1") == known


def test_what_the_archive_lacks_is_said_where_it_is_to_be_run() -> None:
    lacks = "left out, as the archive would be larger than 25 MB: reduced.onnx (30.1 MB)"
    shown = Shown(small("Mul"), repro=Repro("x = 1"), zipped="bundle.zip", missing=lacks)
    section = report(found(), shown=shown).partition("## To reproduce\n\n")[2]
    assert f"bundle.zip is not complete: {lacks}. First put these files beside repro.py." in section.splitlines()[2]


def test_the_whole_model_is_no_name_and_variables_have_no_values() -> None:
    one = CauseExperiment("fail")
    cause = Cause("not proven", whole=one, answers=(CauseAnswer(("Mul",), good_outputs=one),))
    said = report(found(cause=cause), ("winnow", "checker.env.A=secret", "+checker.env={A: secret}"))
    assert "The whole model ends with fail." in said and "`the whole model`" not in said
    assert "checker.env.A=... '+checker.env=...'" in said or "checker.env.A=... +checker.env=..." in said
    assert "secret" not in said


def test_what_was_measured_stands_where_no_values_are_known() -> None:
    told = {"output": "t1", "error": 0.25, "limit": 0.01, "max_abs": 2.0, "max_rel": None, "fraction": 0.5}
    said = report(found("mismatch", "compare", evidence=told), shown=Shown(small("Mul")))
    assert "t1: error 0.25, allowed 0.01; largest difference 2; 50% of all elements beyond the tolerance." in said


def test_the_end_of_what_a_check_printed_is_shown_without_colors() -> None:
    said = "\n".join(f"line {number}" for number in range(2000)) + "\n\x1b[31mE: it failed\x1b[0m\n"
    shown = report(found("exit 1", "check"), shown=Shown(small("Mul"), said=said))
    assert "\nE: it failed\n```" in shown and "line 1999" in shown and "line 3\n" not in shown
    assert len(shown) < 6000


def test_a_model_is_text_with_types_and_without_the_values_of_weights() -> None:
    model = small("Mul", "Exp")
    model.graph.node[0].input.append("w")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((4, 5), np.float16), "w"))
    model.graph.value_info.append(helper.make_tensor_value_info("t1", TensorProto.FLOAT16, [1, 7]))
    lines = model_text(model)
    assert [line.strip() for line in lines[1:]] == [
        "model (float16[1, n] t0) => (float16[1, n] t2)",
        "<float16[4, 5] w>  # weights",
        "{",
        '["/m/Mul"] t1 = Mul (t0, w)  # float16[1, 7]',
        '["/m/Exp"] t2 = Exp (t1)  # float16[1, n]',
        "}",
    ]


def test_bodies_are_shown_within_their_node() -> None:
    body = small("Neg").graph
    branch = helper.make_node("If", ["c"], ["y"], name="if", then_branch=body, else_branch=body)
    text = "\n".join(model_text(helper.make_model(helper.make_graph([branch], "g", [], []))))
    assert text.count('["/m/Neg"] t1 = Neg (t0)') == 2
    assert "\n      else_branch: (float16[1, n] t0) => (float16[1, n] t1)\n" in text


def test_a_long_model_is_folded_and_ends_in_dots() -> None:
    said = report(found(), shown=Shown(small(*["Neg"] * 60)))
    assert "<summary>64 lines</summary>" in said and said.count("= Neg (") == 60
    said = report(found(), shown=Shown(small(*["Neg"] * MOST_LINES)))
    assert said.count("= Neg (") == MOST_LINES - 2 and "\n...\n```" in said


def test_containers_have_their_types() -> None:
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    several = helper.make_optional_type_proto(helper.make_sequence_type_proto(floats))
    table = helper.make_map_type_proto(TensorProto.INT64, floats)
    declared = [helper.make_value_info("a", several), helper.make_value_info("b", table)]
    lines = model_text(helper.make_model(helper.make_graph([], "g", declared, [])))
    assert lines[1] == "model (optional(seq(float32)) a, map(int64, float32) b) => ()"


LONG = Repro("\n".join(["def main():", *["    pass"] * 200, "", "def target(folder):", "    return run(folder)", ""]))


def test_of_a_check_of_the_users_that_is_shown() -> None:
    check = {"my.py": "print(1)\n", "tools/long.sh": "echo\n" * 50, "data.json": "{}"}
    said = report(found("exit 1", "check"), shown=Shown(small("Mul"), repro=LONG, zipped="bundle.zip", check=check))
    assert "It runs `my.py`:\n\n```python\nprint(1)\n```" in said
    assert "It runs `tools/long.sh`:\n\n<details>\n<summary>50 lines</summary>\n\n```sh\necho" in said
    assert "def target" not in said


def packages(summary: Summary, check: str = "") -> list[str]:
    return list(relevant(summary, check))


def test_the_versions_are_of_what_took_part() -> None:
    always = ["numpy", "onnx", "python"]
    assert packages(found()) == sorted([*always, "onnxruntime"])
    assert packages(found(context=context("onnx_reference"))) == always
    rtx = found(context=context("tensorrt", flavor="tensorrt_rtx"))
    assert packages(rtx) == sorted([*always, "tensorrt_rtx"])
    own = found(context={}, check="python check.py")
    assert packages(own) == sorted([*always, "onnxruntime"])
    assert "tensorrt" in packages(own, "import tensorrt as trt") and "tensorrt" in packages(
        found(check="trtexec --onnx")
    )
    assert "sympy" in packages(own, "import sympy")
    said = report(found(), shown=Shown(small("Mul")))
    assert "| onnxruntime | 1.31.1 (onnxruntime-gpu) |" in said and "| tensorrt" not in said and "digest" not in said


def test_a_gpu_is_named_where_one_is_used(tmp_path: Path) -> None:
    for number in range(2):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   42\n")
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n")
    said = sections_text(versions_section(found(context=context("tensorrt")), driver=tmp_path))
    assert "| GPU | 2 x NVIDIA H100 80GB HBM3 |" in said and "| NVIDIA driver | 550.54.15 |" in said
    assert "GPU" not in sections_text(versions_section(found(), driver=tmp_path))
    own = sections_text(versions_section(found(context={}), "onnxruntime.get_device() == 'cuda'", tmp_path))
    assert "GPU" in own


ANYTHING = st.one_of(st.sampled_from([*STRINGS.values(), "</details>", "\n</details>\n# x", "</summary>"]), st.text())


@settings(max_examples=25, deadline=None)
@given(ANYTHING, ANYTHING, ANYTHING)
def test_no_text_becomes_markup(one: str, two: str, three: str) -> None:
    """Folds end where they have to, and blocks hold whatever they hold."""
    node = helper.make_node(one or "x", [two], [three], name=two, domain=three, mode=one.encode("utf-8", "replace"))
    graph = helper.make_graph([node], one, [], [helper.make_tensor_value_info(two, 1, [three])])
    told = {"output": one, "reference": "ran", "reason": two, "error": 1.0, "limit": 0.5}
    more = {"warnings": (one, two), "nested": (three,), "statistics": Statistics(iterations=3), "message": three}
    given_ = found(two, one, evidence=told, check=one, checker=two, versions={one: two, "numpy": three}, **more)
    shown = Shown(
        helper.make_model(graph),
        (tensor(one, differences=[{"index": [0], "good": two, "wrong": three}]),),
        Repro(f"x = {three!r}\n"),
        said=two,
        check={one: two, two: three},
        zipped="bundle.zip",
        files={one: two},
    )
    text = report(given_, [one, two], shown)
    assert all(char.isprintable() or char == "\n" for char in text)
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert outside.count("<details>") == outside.count("</details>") == len(re.findall("^<details>$", outside, re.M))
    spans = re.sub(r"^</?details>$|^<summary>[^<]*</summary>$|`[^`\n]+`", "", outside, flags=re.MULTILINE)
    assert not re.search(r"<[a-z/!?]|\]\(|://|!\[", spans, re.IGNORECASE)
    assert len(re.findall(r"^# ", outside, re.MULTILINE)) == 1
    for block in re.findall(r"(?:^\|.*\|\n)+", outside, re.MULTILINE):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1
