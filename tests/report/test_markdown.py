"""REPORT.md: what it says, and that no name in it becomes markup."""

from __future__ import annotations

import html
import platform
import re
import subprocess
from dataclasses import replace

import numpy as np
import onnx
import pytest
from markdown_it import MarkdownIt
from onnx import TensorProto, helper, numpy_helper

from runner.report.markdown import Shown, facts
from runner.report.markup import code, on_a_line, text
from runner.report.result_parts import KnownFailure, TacticSuspect
from runner.report.summary import Checks, Summary
from tests.report.hostile import STRINGS
from tests.report.rendered import report

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NASTY = [name for key, name in STRINGS.items() if key != "very long"]


def test_a_long_text_is_read_to_its_end() -> None:
    said = " ".join(f"part {number};" for number in range(300))
    assert text(said) == said, "also what a triage says of all its steps, with no middle left out"
    assert len(text("x" * 5000)) == 4000


def test_a_colon_is_escaped_where_it_would_make_a_link_or_an_emoji() -> None:
    assert text("E at a.py:3, Foo::Bar, 10:30: no") == "E at a.py:3, Foo::Bar, 10:30: no"
    assert [text(one).count("&#58;") for one in ("http://x", "a :tada: b", "mailto:x", "XMPP:x", ":+1:")] == [1] * 5


def summary(names: tuple[str, ...] = ("Mul_1",), **given: object) -> Summary:
    values: dict[str, object] = {
        "nodes_before": 340,
        "nodes_after": len(names),
        "culprits": names,
        "minimality": "proven 1-minimal",
        "checks": Checks(12, 5, 1),
        "outcomes": {"fail": 7, "pass": 10},
        "signature": KnownFailure("infer", "inf"),
        "versions": {"onnxruntime": "1.31.1", "onnx": "1.23.2"},
        "warnings": ("the graph has Shape operators",),
        "min_good": "min_good.onnx",
        "checker": "finite",
        "check": "outputs are finite",
    }
    return Summary("found", 0, "reduce", **{**values, **given})  # type: ignore[arg-type]


def model_of(names: list[str]) -> onnx.ModelProto:
    tensor = numpy_helper.from_array(np.zeros((2, 3), np.float32))
    nodes = [
        helper.make_node(
            "Foo", [name, "", "w"], [name + "!"], name=name, domain="com.x", axis=1, mode="a|b", eps=1e-5, value=tensor
        )
        for name in names
    ]
    nodes.append(helper.make_node("Bar", ["x"], ["z"], name="last", pads=list(range(20)), scales=[0.5, 2.0]))
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    return helper.make_model(graph)


def rows(markdown: str) -> list[list[str]]:
    return [line[2:-2].split(" | ") for line in markdown.splitlines() if line.startswith("|")]


def test_nodes_are_told_with_domain_and_attributes() -> None:
    markdown = html.unescape(report(summary(("Mul_1", "last")), shown=Shown(model_of(["Mul_1"]))))
    assert markdown.startswith("# Inf in the output: `com.x.Foo`, `Bar`\n")
    markdown = html.unescape(report(summary(), shown=Shown(model_of(["Mul_1"]))))
    assert markdown.startswith("# Inf in the output: `com.x.Foo`\n"), "what came along with the answer is none of it"
    assert '   [Mul_1] "Mul_1!" = com.x.Foo <axis=1, eps=1e-05, mode=a|b, value=float32[2, 3]> (Mul_1, , w)' in markdown
    assert (
        "[last] z = Bar <pads=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ...], scales=[0.5, 2]> (x)"
        in markdown
    )


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_never_markup(name: str) -> None:
    shown = text(name)
    assert shown.isprintable()
    assert not re.search(r"[|`@$]|!\d|\{[{%+-]|://|(?<!&)#\w", shown), "a forge or a site would read it"
    plain = " ".join(name.split()) if name.isprintable() else html.unescape(shown)
    for form in ("{}", "- {}", "- **{}**", "# {}", "| {} |\n| --- |", "1. x\n2. {}"):
        inline = [one for one in READER.parse(form.format(shown)) if one.type == "inline"][-1]
        marks = {one.type for one in inline.children or ()} - {"text", "text_special", "strong_open", "strong_close"}
        assert not marks, form
        assert "".join(one.content for one in inline.children or ()) == plain, form


def test_what_is_no_markup_reads_well_raw() -> None:
    name = "/m/encoder/layer.0/Add_output_0"
    assert code(name) == f"`{name}`"
    assert code("onnx::MatMul_12") == "`onnx::MatMul_12`"
    for said in (
        "a re-check (of 3 nodes) failed: inputs.path=my_inputs.npz",
        "-0.5 to 0.6 of [2, 3]; Required inputs (['x']) are missing; {switches}; a -> b; 2 * 3; ['range > 512']",
    ):
        assert text(said) == said


def test_a_name_that_is_not_plain_is_escaped() -> None:
    for name in (*NASTY, " x", "x ", "a  b", "", "ü"):
        shown = code(name)
        spans = re.fullmatch(r"`([^`|<>*!@$\\#&]*)`", shown)
        assert shown == text(name) or (spans and spans[1] == name), name


@pytest.mark.parametrize("status", ["nothing_to_find", "could_not_judge", "interrupted", "internal_error", "anything"])
def test_every_ending_has_a_report(status: str) -> None:
    markdown = report(Summary(status, 4, "reduce", message="Nothing fails."))
    assert markdown.startswith("# ")
    assert "Nothing fails" in markdown
    assert "left." not in markdown


def test_suspects_keep_the_hash_and_operators_of_one_layer_their_keys() -> None:
    one = TacticSuspect("a", "0x1", "0x7", "k" * 300, (), 1, 2)
    found = [one, replace(one, key="0x2", kernel=None, good={"kernel (0x8)": 3})]
    table = rows(report(Summary(status="found", exit_code=0, strategy="tactic_compare", suspects=tuple(found))))
    shown = [row[:3] for row in table if row[0].startswith("`a")]
    assert shown[0][0] == "`a (0x1)`" and shown[0][1].endswith("... (0x7)`") and len(shown[0][1]) < 160
    assert shown[1] == ["`a (0x2)`", "`0x7`", "kernel (0x8) (3)"]


def test_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a report says of the platform is read, and not asked of a program."""

    def start(*argv: object, **_: object) -> None:
        raise AssertionError(f"started {argv}")

    for name in ("_uname_cache", "_platform_cache"):
        monkeypatch.setattr(platform, name, {} if name == "_platform_cache" else None)
    monkeypatch.setattr(subprocess, "Popen", start)
    assert f"| platform | {platform.system()}-{platform.release()}" in report(summary(), ["winnow"])


def test_an_interrupted_run_has_a_best_only_where_it_found_one() -> None:
    assert report(replace(summary(), status="interrupted")).startswith("# reduce: interrupted\n")
    nothing = replace(summary(()), status="interrupted", nodes_after=None, minimality="budget reached")
    assert "budget reached" not in report(nothing) and "budget reached" in report(replace(nothing, status="found"))
    assert report(nothing).startswith("# reduce: interrupted\n")


def test_outcomes_without_a_check_are_told_apart() -> None:
    """A candidate that cannot be made costs none."""
    told = dict(facts(summary(outcomes={"fail": 7, "pass": 10, "unresolved": 2})))
    assert told["outcomes"] == "7 fail, 10 pass, 2 unresolved (no candidate could be made for 1)"


def test_a_text_that_has_no_shape_is_cut_as_it_is_shown() -> None:
    assert len(on_a_line("\0" * 4000)) < 4100
