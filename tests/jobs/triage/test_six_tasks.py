"""Six failures as a new user has them: the first line, the title and the advice of each are true, and short."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.harness import ROOT, Run, winnow
from tests.six_tasks import TASKS

LINES, AT_THE_END, COLUMNS = 12, 8, 100
RAN: dict[str, Run] = {}


def asked(name: str, factory: pytest.TempPathFactory) -> Run:
    """One run of each, for all that is asserted of it."""
    if name not in RAN:
        folder = factory.mktemp(name)
        RAN[name] = winnow(*TASKS[name](folder), folder=folder / "run", cwd=folder)
    return RAN[name]


@pytest.mark.parametrize(
    ("name", "first", "title", "advice"),
    [
        pytest.param(
            "transformer",
            "found: whose bug: the model itself, in /bert/encoder/layer.5/output/dense/MatMul (1 of 550 nodes)",
            "# NaN in the output where every operator rounds as on a GPU: `/bert/encoder/layer.5/output/dense/MatMul`",
            "- Workaround: in float32: ",
            marks=pytest.mark.slow,
        ),
        (
            "folded",
            "found: whose bug: the conversion, in conv2 (1 of 6 nodes)",
            "# the conversion changed `conv2`",
            "- Fix the conversion of `conv2`: ",
        ),
        pytest.param(
            "loop",
            "found: whose bug: the model itself, in loop.body/log, inside loop (1 of 4 nodes)",
            "# NaN in the output with ONNX Runtime ",
            "- The reference computes the NaN or Inf too, so change the model, not the runtime. What may help: a guard",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "transposed",
            "found: whose bug: the conversion, in /layer2/o/mm/MatMul (1 of 8 nodes)",
            "# the conversion changed `/layer2/o/mm/MatMul`",
            "- Fix the conversion of `/layer2/o/mm/MatMul`: onnx::MatMul_2 is transposed, compared with layer2.weight",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_answer_is_true_and_short(
    tmp_path_factory: pytest.TempPathFactory, name: str, first: str, title: str, advice: str
) -> None:
    run = asked(name, tmp_path_factory)
    report = (run.folder / "REPORT.md").read_text()
    assert run.code == 0 and run.screen[0] == first, run.output
    assert report.startswith(title), report[:200]
    advised = report.partition("## What to do now\n\n")[2].partition("\n## ")[0]
    assert advised.startswith(advice) and "Report the failure" not in advised, advised
    lines = run.output.rstrip().splitlines()
    shown = [line for line in lines if not line.startswith("WARNING")]
    assert len(run.screen) <= AT_THE_END and len(shown) <= LINES, run.output
    copied = ("  next ", "  fixed", "  open ")
    assert all(len(line) <= COLUMNS for line in run.screen if not line.startswith(copied)), run.output
    assert "#" not in "".join(run.screen) and "Why asked" not in report and "&#" not in report
    assert str(run.folder.parent) not in report


def _plain(text: str) -> str:
    """Return what is said, without numbers, and as it stands before it is wrapped."""
    return re.sub(r"\d[\d.,]*", "N", re.sub(r"\n {9,}", " ", text))


_SAID = re.compile(r"INFO +|  (?=(fails|why) )")
"""How those lines of a terminal begin that a pipe or the log has as well, however long anything takes."""


@pytest.mark.slow
def test_a_triage_of_the_example_takes_twelve_lines(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = asked("transformer", tmp_path_factory)
    lines = run.output.rstrip().splitlines()
    assert len(lines) <= LINES, run.output
    said = _plain(run.log + run.output)
    for picture in (ROOT / "docs" / "pictures").glob("triage-*.txt"):
        shown = [line for line in _plain(picture.read_text()).splitlines() if _SAID.match(line)]
        new = [line for line in shown if _SAID.sub("", line) not in said]
        assert len(shown) > 20 and not new, f"make pictures writes {picture.name} anew: {new}"
    rows = {line[2:9].strip(): line for line in run.screen[1:]}
    assert [*rows] == ["fails", "why", "sure", "helps", "fixed", "open", "next"]
    assert "70 of 384 elements exceed 65,504; the largest is 131,407" in rows["why"]
    assert rows["fixed"].endswith("workaround.onnx")
    report = (run.folder / "REPORT.md").read_text()
    assert (
        "- No runtime is at fault: values of `/bert/encoder/layer.5/output/dense/MatMul_output_0` do not fit" in report
    )
    assert "## What stays in float32" in report and "node_block_list=stays_float32" in report
    assert "--nodes_to_exclude" in report and "--layerPrecisions=" in report


@pytest.mark.slow
def test_nothing_is_asked_of_a_runtime_about_a_converted_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = asked("transposed", tmp_path_factory)
    asks = {one["name"]: one for one in run.result["triage"]["steps"]}
    assert all(asks[name]["status"] == "not asked" for name in ("passes", "versions", "workaround"))
    assert not any(line.startswith("  next ") for line in run.screen), "the same run again would say the same"


def test_an_accuracy_is_told_in_numbers_with_what_stays_in_float(tmp_path_factory: pytest.TempPathFactory) -> None:
    """``checker.max_drop`` is counted from what the same check says of the original, as in a precision search."""
    run = asked("quantized", tmp_path_factory)
    rows = {line[2:9].strip(): line[11:] for line in run.screen[1:]}
    assert run.screen[0] == "found: r_QuantizeLinear, r_DequantizeLinear (2 of 9 nodes)", run.output
    assert len(run.screen) <= AT_THE_END, run.output
    assert rows["why"] == "the check's number: 1.000 float32, 0.580 quantized, 1.000 in mixed.onnx"
    assert rows["helps"].startswith("no layer may be quantized at this tolerance"), run.output
    assert "fixed" not in rows, "with both in float32 it is the original"
    title = (run.folder / "REPORT.md").read_text().partition("\n")[0]
    said = '`"0.58, 21 times the drop that is allowed; the baseline is 1, checker.max_drop=2%"`'
    assert title == f"# a check fails: {said}: `r_QuantizeLinear`, `r_DequantizeLinear`"
    assert "#" not in run.output.replace("##", "")


def test_a_model_that_no_runtime_loads_is_told_in_a_line_without_a_search(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = asked("new_opset", tmp_path_factory)
    report = (run.folder / "REPORT.md").read_text()
    assert run.screen[0].startswith("found: ai.onnx 99: onnxruntime "), run.output
    assert len(run.output.splitlines()) <= AT_THE_END, run.output
    assert report.partition("\n")[0].endswith(" does not load the model")
    advice = report.partition("## What to do now\n\n")[2]
    assert advice.startswith("- Take a release of the runtime that knows this"), report
    assert run.result["checks"]["search"] == 0


OWN_CHECK = """import sys, numpy as np, onnxruntime
data = np.load({data!r})
got = onnxruntime.InferenceSession(sys.argv[1]).run(None, {{"x": data["x"]}})[0]
sys.exit(bool((got.argmax(1) == data["label"]).mean() < 0.9))
"""


@pytest.mark.slow
def test_layers_that_must_stay_are_the_answer_where_no_part_can_be_judged(tmp_path: Path) -> None:
    """The check fits the whole model and an input of its own that Winnow does not have; it judges mixed models."""
    words = TASKS["quantized"](tmp_path)[:2]
    (tmp_path / "own.py").write_text(OWN_CHECK.format(data=str(tmp_path / "data.npz")))
    check = ["checker=command", f"checker.command={sys.executable} own.py {{model}}", "checker.flaky=never"]
    run = winnow(*words, *check, folder=tmp_path / "run", cwd=tmp_path)
    assert (run.code, run.result["status"]) == (0, "found"), run.output
    assert run.screen[0].startswith("found: fc2 must stay in float32 (quantized, it introduces a relative error of ")
    rows = {line[2:9].strip(): line[11:] for line in run.screen[1:]}
    assert rows["fixed"] == "run/steps/04-precision/mixed.onnx" and " run/replay.yaml --inputs " in rows["next"]
    assert "no workaround" not in run.output and "the reference is wrong" not in run.output
    advice = (run.folder / "REPORT.md").read_text().partition("## What to do now\n\n")[2]
    assert advice.startswith("- Keep `fc2` in float32, as `steps/04-precision/mixed.onnx` does")


@pytest.mark.slow
def test_that_no_layer_may_be_quantized_is_said_with_what_may_help(tmp_path: Path) -> None:
    words = TASKS["quantized"](tmp_path)
    given = [*words[:2], *words[5:]]
    run = winnow(*given, folder=tmp_path / "run", cwd=tmp_path)
    rows = {line[2:9].strip(): line[11:] for line in run.screen[1:]}
    assert run.code == 0 and rows["helps"].startswith("no layer may be quantized at this tolerance: ")
    assert rows["next"].endswith("checker=compare checker.metric=fraction checker.rtol=0.1 checker.fraction=0.02")
    assert "fixed" not in rows and "must stay in" not in run.output
    advice = (run.folder / "REPORT.md").read_text().partition("## What to do now\n\n")[2]
    assert advice.startswith("- No layer may be quantized at this tolerance: "), advice
