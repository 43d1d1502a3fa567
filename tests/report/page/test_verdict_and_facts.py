"""The sentence that a page begins with, short and honest about the cause, and the facts below it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.exit_codes import Status
from runner.report.page.run_page import commands_of, facts_of, labels_of, verdict_of
from runner.report.result_parts import Cause, KnownFailure, Precision, Reproduced, Triage
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.checker import CommandChecker, CompareChecker
from runner.schema.root import Settings

NAMES = tuple(f"/model/encoder/layer.0/{kind}" for kind in ("MatMul_0", "Add_1"))
FOUND = Summary(
    status=Status.found,
    exit_code=0,
    strategy="reduce",
    message="2 nodes fail like the whole model; cause: proven; " + "reduced.onnx has simpler values; " * 5,
    nodes_before=550,
    nodes_after=2,
    culprits=NAMES,
    signature=KnownFailure("infer", "nan"),
    cause=Cause("proven"),
)


def test_a_part_that_fails_is_named_as_on_the_last_screen_and_the_details_are_facts() -> None:
    assert verdict_of(replace(FOUND, culprits=("a", "b"))) == "a, b (2 of 550 nodes): NaN in the output"
    assert ["seen", "20 Inf"] in facts_of(replace(FOUND, seen="20 Inf")) and "seen" not in dict(facts_of(FOUND))
    assert ["result", FOUND.message] in facts_of(FOUND) and ["culprits", ", ".join(NAMES)] in facts_of(FOUND)
    theirs = replace(FOUND, whose="model", cause=Cause("not proven"))
    assert verdict_of(theirs).startswith("whose bug: the model itself; ")
    assert verdict_of(theirs).endswith("; not shown to be the cause")


def test_of_many_culprits_three_are_named_at_first() -> None:
    many = replace(FOUND, culprits=tuple(f"node{number}" for number in range(96)), nodes_after=96, cause=None)
    assert verdict_of(many).startswith("node0, node1, node2 and 93 more (96 of 550 nodes)")
    assert any(row[0] == "culprits" and "node9 and 86 more" in row[1] for row in facts_of(many))


def test_a_verdict_is_not_cut_inside_its_brackets() -> None:
    low = (
        "all of it can be in float16 (emulated: it is rounded; strict also rounds inside norms): no node has to be high"
    )
    ended = replace(FOUND, status=Status.nothing_to_find, culprits=(), message=f"{low}; the model is mixed.onnx")
    assert verdict_of(ended) == f"nothing to find: {low}"
    open_ended = replace(ended, message=f"it says ( and no more; {'and so on; ' * 12}")
    assert verdict_of(open_ended) == "nothing to find: it says ( and no more"


@pytest.mark.parametrize("status", [Status.nothing_to_find, Status.not_as_expected])
def test_how_a_run_ended_is_said_in_words(status: Status) -> None:
    ended = replace(FOUND, status=status, message="the whole model passes; " + "try other inputs; " * 10, culprits=())
    assert verdict_of(ended) == f"{str(status).replace('_', ' ')}: the whole model passes"
    assert "_" not in facts_of(ended)[0][1]
    assert verdict_of(replace(ended, status=Status.interrupted, message="interrupted; go on")) == "interrupted; go on"
    assert verdict_of(replace(ended, status=Status.found, message="3 fail; 5 pass")) == "3 fail; 5 pass"


@pytest.mark.parametrize(
    ("told", "label"),
    [
        ({"strategy": "repeat", "outcomes": {"pass": 11, "fail": 19}}, "flaky check"),
        ({"strategy": "repeat", "outcomes": {"fail": 19, "unresolved": 1}}, ""),
        ({"status": Status.could_not_judge, "message": "the check is flaky, and a model ..."}, "flaky check"),
        ({"status": Status.planned, "outcomes": {"fail": 2}}, "planned, not searched"),
        ({"status": Status.interrupted, "minimality": "budget reached"}, "interrupted"),
        ({"precision": Precision("float32", "float16")}, "low precision emulated"),
        ({"precision": Precision("float32", "quantized form")}, ""),
    ],
)
def test_what_limits_a_page_is_labelled(told: dict[str, Any], label: str) -> None:
    rounding, command = Rounding.on if "precision" in told else Rounding.auto, CommandChecker(command=["x"])
    checker = CompareChecker() if "precision" in told else command
    settings = Settings(checker=checker, target=OnnxRuntimeBackend(rounding=rounding))
    assert labels_of(replace(FOUND, **told), settings) == ([label] if label else [])


def test_a_stop_by_hand_is_no_budget_and_raised_nodes_are_not_kept() -> None:
    stopped = dict(facts_of(replace(FOUND, status=Status.interrupted, minimality="budget reached")))
    assert stopped["minimality"] == "no claim" and stopped["kept"] == "2 of 550 nodes"
    assert dict(facts_of(replace(FOUND, minimality="budget reached")))["minimality"] == "budget reached"
    assert dict(facts_of(replace(FOUND, precision=Precision(low="float16"))))["raised"] == "2 of 550 nodes"


def test_a_command_on_the_page_has_no_values_of_the_environment(tmp_path: Path) -> None:
    typed = ("winnow", "reduce", "net.onnx", "checker.env.TOKEN=abc")
    (again,) = commands_of(tmp_path, Summary("found", 0, "reduce"), typed)
    assert "abc" not in again[1] and "checker.env.TOKEN=" in again[1]


def test_facts_of_a_triage_are_those_of_the_file_and_of_the_part() -> None:
    """Its steps may end with Inf where the file has NaN, and raise more nodes than the part has."""
    told = Triage(reproduced=Reproduced(failure="infer: nan"))
    one = replace(FOUND, strategy="triage", triage=told, precision=Precision(low="float16"), nodes_after=1)
    facts = dict(facts_of(replace(one, signature=KnownFailure("infer", "inf"))))
    assert facts["failure under study"] == "infer: nan" and facts["kept"] == "1 of 550 nodes" and "raised" not in facts
