"""What the page of a triage offers: only what holds, and it says on which model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.exit_codes import Status
from runner.report.diagnosis_sections import workarounds_section
from runner.report.markup import sections_text
from runner.report.result_parts import Workaround
from runner.report.short_answer import keeping_high
from runner.report.summary import Summary, result_json, summary_of
from runner.report.typed_json import from_json
from tests.report.rendered import report

SAMPLES = {"passed": 20, "of": 20, "kind": "fresh"}
OFF = {"settings": {"disabled_optimizers": ["F"]}}
RELEASES = {"package": "onnxruntime", "good_after": "1.2", "good_before": None}


def page(*workarounds: dict[str, Any], passes: str = "", too: bool = False, smallest: bool = True, **more: Any) -> str:
    told = {
        "reproduced": {"failure": "infer: nan", "reference_too": too},
        "smallest": smallest,
        "shown_on": {"passes": passes, "releases": "the reduced model"},
    }
    model = "steps/03-reduce/reduced.onnx"
    found = Summary(Status.found, 0, "triage", "so", culprits=("a",), nodes_after=1, nodes_before=9, model=model)
    values = {"triage": told, "workarounds": [*workarounds], "passes": OFF, "releases": RELEASES, **more}
    return report(summary_of({**result_json(found), **values}))


def tried(kind: str, *, passes: bool) -> dict[str, Any]:
    return {"kind": kind, "what": f"a {kind}", "passes": passes, "samples": SAMPLES, "code": "x = 1"}


@pytest.mark.parametrize("place", ["the whole model", "the reduced model", ""])
def test_what_is_turned_off_is_offered_where_it_was_shown_to_help(place: str) -> None:
    said = page(passes=place)
    assert (f"Turn off the guilty optimization (shown on {place}):" in said) is bool(place)
    release = "ake a release without it: `onnxruntime==1.2` (shown on the reduced model)"
    assert ("- Or: t" if place else "- T") + release in said, "what comes first begins with no 'Or'"


def test_what_fails_on_the_whole_model_is_not_offered() -> None:
    said = page(tried("pass", passes=False), tried("release", passes=False), passes="the reduced model")
    assert "Turn off" not in said and "a release without it" not in said and "- Report the failure" in said
    said = page(tried("release", passes=True), passes="the whole model")
    assert "- Workaround: a release (20 of 20 fresh inputs pass)" in said and "without it" not in said
    assert "- Or: turn off the guilty optimization" in said


def test_what_could_not_be_tried_says_nothing_of_a_workaround() -> None:
    """What a step found on a part is offered then, as where nothing was tried; the table tells the two apart."""
    untried = {**tried("pass", passes=False), "tried": False, "why_not": "unknown here", "latency": None}
    assert "Turn off the guilty optimization" in page(untried, passes="the reduced model")
    failed = {**untried, "tried": True, "what": "another"}
    both = [from_json(Workaround, one) for one in (untried, failed)]
    rows = [line for line in sections_text(workarounds_section(both)).splitlines() if line.startswith("| pass ")]
    assert [row.split("|")[3].strip() for row in rows] == ["could not be tried", "no"], rows


def test_what_the_model_itself_does_is_no_report_to_a_runtime() -> None:
    said = page(too=True, passes="", releases=None)
    assert "- The reference computes the NaN or Inf too" in said and "Report the failure" not in said
    assert "float32 at these nodes, if they are in a lower precision, or other inputs, or a guard" in said
    seen = {"failure": "infer: nan", "reference_too": True, "other_inputs": {"failed": 1, "of": 1}}
    said = page(tried("precision", passes=False), triage={"reproduced": seen}, passes="", releases=None)
    assert "change the model, not the runtime. What may help: a guard" in said, "the run has seen the others to fail"
    finite = {"reproduced": {"failure": "infer: nan", "reference_too": False, "plain_is_finite": True}}
    said = page(triage=finite, passes="", releases=None)
    assert "- The part that fails alone shows no bug" in said and "Report the failure" not in said


def test_the_title_says_what_fails_on_what_and_where_in_words() -> None:
    context = {"target": json.dumps({"name": "onnxruntime", "versions": {"onnxruntime": "1.2"}})}
    assert page(context=context).startswith("# NaN in the output with ONNX Runtime 1.2: `a`\n")
    of_a_check = {"reproduced": {"failure": "check: exit 1"}}
    assert page(triage=of_a_check, culprits=[]).startswith("# a check fails (exit 1)\n")


def test_what_shows_a_failure_is_named_whosever_it_is() -> None:
    finite = {"reproduced": {"failure": "infer: nan", "plain_is_finite": True}}
    for said in (page(), page(too=True), page(triage=finite)):
        assert "Attach `steps/03-reduce/bundle.zip`" in said


def test_warnings_are_on_the_page_and_a_part_is_the_smallest_only_if_it_is() -> None:
    said = page(warnings=["recorded samples alone were checked"], smallest=False)
    assert "## Warnings\n\n- recorded samples alone were checked" in said
    assert "- A part that fails alone, 1 of 9 nodes: `a`" in said and "smallest" not in said


@pytest.mark.parametrize("words", [{}, {"int4_nodes_to_exclude": "a,b"}])
def test_weights_in_four_bits_are_not_calibrated(words: dict[str, str]) -> None:
    nodes = [{"node": "a"}, {"node": "b"}]
    told = {"selected": nodes, "high": "float32", "low": "quantized", "low_share": {"nodes": 0.0}, "quantizers": words}
    said = page(precision=told)
    assert "Take a larger tolerance (+experiment=quantized lets 2 % of the values be off)" in said
    assert ("calibrate" not in said and "per channel" not in said) == bool(words)


def test_nodes_that_the_run_itself_found_too_few_are_not_offered() -> None:
    """A workaround that raises more of them passes; where none does, what fails is said beside the offer."""
    few = {"selected": [{"node": "a"}], "nodes_to_exclude": ["a"], "high": "float32", "low": "float16"}
    held = {**tried("precision", passes=False), "nodes": ["a"], "samples": {**SAMPLES, "passed": 10}, "why_not": "off"}
    more = {**tried("precision", passes=True), "nodes": ["a", "b"]}
    step = {"name": "precision", "folder": "steps/05-precision", "status": "found"}
    triage = {"reproduced": {"failure": "infer: nan"}, "steps": [step]}
    cause = {"status": "proven", "wider": {"tensor": "t", "type": "float16", "wider": "float32", "said": "2 of 3"}}
    given = {"triage": triage, "cause": cause, "message": "so; with others too", "passes": None, "releases": None}
    said = page(more, held, precision=few, whose="model", **given)
    assert "mixed.onnx" not in said and "```text\na\nb\n```" in said and "--layerPrecisions=" in said
    assert "--layerOutputTypes=a:fp32,b:fp32" in said, "as a precision run says it"
    assert "- Why: float16 overflow: 2 of 3\n" in said, "the reduction says why"
    assert "values of `t` do not fit into float16" in said
    said = page(held, precision=few, **given)
    assert "mixed.onnx` does, with the original's types of inputs and outputs; but the given model with these" in said
    assert "fails with number 11 of 20 fresh inputs" in said
    told = summary_of({**result_json(Summary("found", 0, "triage")), "precision": few, "workarounds": [held]})
    assert told.precision and keeping_high(told.precision, told.workarounds).startswith("a new conversion of the ")
    (row,) = [
        one for one in sections_text(workarounds_section([from_json(Workaround, held)])).splitlines() if "off" in one
    ]
    assert "the given ones, and the first 10 of 20 fresh ones" in row
