"""The last screen of a run: what was found, how sure, what to open and what to type next, in a pipe and a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, save
from onnx.parser import parse_model

from runner.cli import last_screen
from runner.cli.last_screen import looks
from runner.cli.task import _is_interrupted_there, _say
from runner.exit_codes import Status
from runner.jobs.reduce.prove_cause import ANOTHER
from runner.jobs.summary import seen
from runner.report.diagnosis_sections import in_a_word
from runner.report.result_parts import WiderType
from runner.report.short_answer import short_answer
from runner.report.summary import Checks, Summary, result_json, summary_of, write_result
from runner.text import duration, share
from strategies.search import Claim
from tests.harness import ROOT

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
SHOW = (
    "import json, sys\nfrom pathlib import Path\nfrom runner.cli.last_screen import say_ended\n"
    "from runner.report.summary import summary_of\n"
    "say_ended(summary_of(json.loads(sys.argv[1])), Path(sys.argv[2]))\n"
)


def say_ended(told: Mapping[str, Any], folder: Path, number: int | None = None) -> None:
    """Show the screen of a result as its file holds it."""
    last_screen.say_ended(summary_of(told), folder, number=number)


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Shows the screen of a result in ``tmp_path``; returns what stands on either stream."""

    def show(told: Mapping[str, Any], number: int | None = None) -> str:
        say_ended(told, tmp_path, number)
        return "".join(capsys.readouterr())

    return show


def headline(told: Mapping[str, Any]) -> str:
    return last_screen.headline(summary_of(told))


def result(status: Status, message: str = "", **given: Any) -> dict[str, Any]:
    summary = Summary(status, status.exit_code, "reduce", message, **given)
    made: dict[str, Any] = json.loads(json.dumps(result_json(summary)))
    return made


def on_a_terminal(told: Mapping[str, Any], folder: Path, columns: int, **environment: str) -> str:
    """Return what is shown on a terminal of so many columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        argv = [sys.executable, "-c", SHOW, json.dumps(told), str(folder)]
        os.execve(sys.executable, argv, {**clean, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment})
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        shown += part
        if not part:
            break
    os.waitpid(pid, 0)
    return shown.decode().replace("\r\n", "\n")


def test_96_culprits_with_long_names_give_a_short_screen(tmp_path: Path, shown: Callable[..., str]) -> None:
    names = tuple(f"/bert/encoder/layer.{at}/attention/self/a_long_name_of_a_proj/MatMul_{at}" for at in range(96))
    text = "(float16[8,1024] x, float16[1024,4] w) => (float16[8,1024] y) { y = MatMul (x, w) }"
    save(parse_model(HEAD + text), tmp_path / "reduced.onnx")
    for name in ("report.html", "REPORT.md", "repro.py", "result.json", "replay.yaml"):
        (tmp_path / name).touch()
    told = result(Status.found, "96 nodes fail like the whole model", culprits=names, nodes_after=96, nodes_before=550)
    told |= {"minimality": "1-minimal", "model": "reduced.onnx", "cause": {"status": "proven", "answers": []}}
    told |= {"reliability": {"agreed": 6, "wrong": 0.3, "noticed_with": 0.88}, "checks": {"search": 120, "trust": 9}}
    told |= {"warnings": [f"warning {at}: " + "word " * 60 for at in range(7)]}
    lines = shown(told).splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 500
    assert lines[0].startswith("found: /bert/enc") and " and 93 more (96 of 550 nodes)" in lines[0]
    text = "\n".join(lines)
    assert "and 86 more" in lines[1] and "MatMul_9" in lines[1] and "MatMul_10" not in text
    assert lines[1].count(", ") == 6
    assert (
        "nodes    MatMul float16 [8, 1024] x [1024, 4]" in text and "cause proven; minimal: with any one node" in text
    )
    assert "(6 more: REPORT.md)" in text and "warning 0:" in text and "warning 1:" not in text
    assert f"open     {tmp_path}/report.html" in text
    assert f"next     winnow recheck {tmp_path}" in text
    for columns, environment in ((80, {"NO_COLOR": "1"}), (200, {})):
        there = on_a_terminal(told, tmp_path, columns, **environment)
        assert len(there.splitlines()) <= 25 and ("\x1b[1;32mfound:\x1b[0m" in there) == (not environment), there
        plain = re.sub(r"\x1b\[[\d;]*m|\x1b\]8;;.*?\x1b\\", "", there)  # colors, and links
        assert "\x1b" not in plain and ("\x1b" in there) == (not environment)
        wide = [line for line in plain.splitlines() if len(line) > columns]
        assert all(str(tmp_path) in line for line in wide), "only what is to be copied is not wrapped"


@pytest.mark.parametrize(("many", "named"), [(4, "abcd"), (5, "abc")])
def test_a_single_one_more_is_named_and_not_counted(
    tmp_path: Path, shown: Callable[..., str], many: int, named: str
) -> None:
    """Nodes, and the kinds of operators that they are."""
    names = "abcde"[:many]
    operators = ("Abs", "Exp", "Sin", "Cos", "Tanh")[:many]
    nodes = "".join(f"[{name}] y{name} = {kind} (x) " for kind, name in zip(operators, names, strict=True))
    save(parse_model(f"{HEAD} (float16[8] x) => (float16[8] ya) {{ {nodes} }}"), tmp_path / "reduced.onnx")
    said = shown(
        result(Status.found, "so", culprits=tuple(names), nodes_after=many, nodes_before=9, model="reduced.onnx")
    )
    rest = many - len(named)
    more = f" and {rest} more" if rest else ""
    assert said.startswith(f"found: {', '.join(named)}{more} ({many} of 9 nodes)\n")
    assert (f"  and      {', '.join(names[3:])}" in said) is bool(rest)
    assert ("and 2 other kinds" in said) is bool(rest) and "1 other kind" not in said


def test_what_a_terminal_would_obey_is_escaped(shown: Callable[..., str]) -> None:
    told = result(Status.found, "a\n[1] forged", culprits=("\x1b[2J", "b\nfound: x"), nodes_after=2, nodes_before=3)
    told |= {"warnings": ["\x1b]0;title\x07"], "cause": ["?"], "checks": 3, "plan": "soon", "model": "../../etc/passwd"}
    told |= {"seconds": {"total": float("inf")}, "reliability": {"agreed": 10**400, "noticed_with": float("nan")}}
    told |= {"unresolved": {"x": 10**400}, "statistics": {"pass_rate": 0.5, "pass_rate_95": [10**400, 1]}}
    said = shown(told)
    assert "\x1b" not in said and "\\x1b[2J" in said
    assert sum(line.startswith("found:") for line in said.splitlines()) == 1


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str], status: Status) -> None:
    (tmp_path / "replay.yaml").touch()
    say_ended(result(status, "so", unresolved={"no such output": 3}), tmp_path)
    said = capsys.readouterr()
    ended_well = status.exit_code in (0, 4, 5, 6, 8, 9)
    assert bool(said.out) == ended_well and bool(said.err) != ended_well
    first, *rest = (said.out or said.err).splitlines()
    assert first.startswith(f"{status}: so")
    if status in (Status.interrupted, Status.no_room, Status.internal_error):
        assert f"  next     winnow resume {tmp_path}" in rest
    if status is Status.could_not_judge:
        assert "  unknown  3 checks without a verdict:" in rest and any("strategy=repeat" in line for line in rest)
    if status is Status.usage:
        assert not rest and str(tmp_path) in first


def test_what_stands_between_the_nodes_of_an_answer_has_a_type(tmp_path: Path) -> None:
    text = """(float16[2,3] x) => (int64[2] y, float16[3,2] z) {
        [relu] r = Relu (x) [transpose] t = Transpose (r) [shape] y = Shape (t) [abs] z = Abs (t)
    }"""
    save(parse_model(HEAD + text), tmp_path / "reduced.onnx")
    said = looks(tmp_path / "reduced.onnx", ["relu", "transpose", "shape", "abs"])
    assert said == ["Relu float16 [2, 3]", "Transpose float16", "Shape int64 [2]", "Abs float16 [3, 2]"]


def test_nodes_in_a_branch_of_a_whole_model_are_shown_and_no_others(tmp_path: Path) -> None:
    """A mixed model is handed over whole: what stands beside the answer is none of it."""
    text = """(float[2] x, bool flag) => (float[2] a, float[2] y) {
        [abs] a = Abs (x)
        [choose] y = If (flag) <
            then_branch = t () => (float[2] one) { [exp] one = Exp (x) },
            else_branch = e () => (float[2] other) { [log] other = Log (x) }
        >
    }"""
    save(parse_model(HEAD + text), tmp_path / "mixed.onnx")
    assert looks(tmp_path / "mixed.onnx", ["choose.else_branch/log"]) == ["Log float32 [2]"]
    assert looks(tmp_path / "mixed.onnx", ["choose.else_branch/log", "other"], whole=True) == []


def test_an_overflow_says_in_what_of_how_many_and_what_to_try(tmp_path: Path, shown: Callable[..., str]) -> None:
    (tmp_path / "replay.yaml").touch()
    (tmp_path / "reduced.onnx").touch()
    tested = {"outcome": "unresolved", "measure": None, "reason": "the reference computes a NaN or Inf in 'y' too"}
    answer = {"culprits": ["n"], "is_cause": False, "instances": [], "good_outputs": tested, "good_inputs": None}
    cause = {"status": "untested", "reason": "", "whole": None, "answers": [answer]}
    held = {"nan": 0, "inf": 20, "elements": 384, "type": TensorProto.FLOAT16}
    told = seen({"output": "y", "sample": 0, "samples": 1, "not_finite": held})
    run = result(Status.found, "so", culprits=("n",), cause=cause, model="reduced.onnx", seen=told)
    lines = " ".join(shown(run).split())
    assert "why 20 Inf among the 384 elements of y (float16, which holds numbers up to 65504)" in lines
    several = {"output": "y", "sample": 5, "samples": 8, "not_finite": {"nan": 1, "inf": 0, "elements": 1, "type": 1}}
    assert seen(several) == "1 NaN among the 1 element of y (float32), in sample 6 of 8 (test_data_set_5)"
    assert seen({**several, "samples": 1}) == "1 NaN among the 1 element of y (float32)"
    # the type of these nodes may be float32 already
    assert (
        "; the reference computes it too" in lines
        and "helps perhaps a wider type at this place, or smaller values" in lines
    )
    assert f"strategy=workaround 'strategy.results=[{tmp_path}]' (looks for a workaround)" in lines
    cause["reason"] = "float64 has no wider type"
    assert "perhaps smaller values" in shown(result(Status.found, "so", culprits=("n",), cause=cause))


def test_a_reason_of_the_first_line_is_not_given_again(shown: Callable[..., str]) -> None:
    why, other = "the check could not import what it needs: No module named 'x'", "the machine is busy"
    begun = "the check could not import what it ... (see above)"
    for reasons, row in (
        ({why: 2}, ["  unknown  2 checks without a verdict, for the reason above"]),
        ({why: 2, other: 1}, ["  unknown  3 checks without a verdict:", f"2 x {begun}", f"1 x {other}"]),
    ):
        said = shown(result(Status.could_not_judge, f"nothing to study: {why}", unresolved=reasons))
        assert said.count(why) == 1 and all(line in said for line in row), said
    # with room for a single reason that is the one which is not known yet
    cause = {"status": "untested", "reason": why}
    told = result(Status.found, culprits=("a",), cause=cause, unresolved={why: 2, other: 1}, outcomes={"unresolved": 3})
    assert f"1 x {other}" in shown(told)
    # beside a proven cause none is given
    told["cause"] = {"status": "proven"}
    assert "unknown" not in shown(told)
    # a message that the rows take the place of is not above
    told = result(Status.found, f"a fails; {why}", culprits=("a",), unresolved={why: 2}, outcomes={"unresolved": 2})
    assert f"2 x {why}" in shown(told)
    told = replace(summary_of(told), minimality=Claim.UNPROVEN.value)
    assert short_answer(told).sure == f"minimal as far as could be judged ({why})"


def test_whose_bug_it_is_stands_in_the_first_line_beside_the_nodes() -> None:
    context = {"target": json.dumps({"name": "onnxruntime", "versions": {"onnxruntime": "1.27.0"}})}
    for whose, said in (
        ("model", "whose bug: the model itself, in "),
        ("conversion", "whose bug: the conversion, in "),
        ("quantization", "quantization error, in "),  # which may be no bug
        ("target", "whose bug: ONNX Runtime 1.27.0, in "),
        ("reference", "whose bug: the reference, not the target, in "),
        ("check", "whose bug: your check, in "),
        ("not known", ""),
        (None, ""),
        ("of another version", ""),
    ):
        found = result(Status.found, "so", culprits=("a",), whose=whose, context=context)
        assert headline(found) == f"found: {said}a; so"
    assert headline(result(Status.nothing_to_find, "so", whose="model")) == "nothing_to_find: so"
    assert (
        headline(result(Status.found, "so", culprits=("a",), whose="target"))
        == "found: whose bug: the target, in a; so"
    )


def test_that_a_cause_is_not_shown_is_said_once_with_why(shown: Callable[..., str]) -> None:
    """In the row on how sure that is; a first line that stands alone has it itself."""
    why = "the check feeds the model itself: good values reach nothing"
    for status in ("untested", "not proven"):
        cause = {"status": status, "reason": why, "answers": []}
        found = result(Status.found, "1 node still fails", culprits=("a",), cause=cause)
        first, second, *_ = shown(found).splitlines()
        assert (first, second) == ("found: a", f"  sure     cause {status}: {why}")
        assert f"a; 1 node still fails; cause {status}: {why}" in shown(found, 3)
    proven = result(Status.found, "so", culprits=("a",), cause={"status": "proven", "inside": {"status": "untested"}})
    assert (
        headline(proven)
        == "found: a; so; cause proven for the outer node; the nodes inside were only shown to fail alone"
    )
    cause = summary_of(proven).cause
    assert cause
    assert in_a_word(replace(cause, inside=None, reason=ANOTHER)) == f"proven, but {ANOTHER}"
    assert in_a_word(replace(cause, status="untested", no_value="0 / 0")) == "untested: no good value is known"
    wider = WiderType(said="1 element exceeds 65,504")
    untried = replace(cause, status="untested", wider=wider, reason=f"float16 overflow: {wider.said}; not tried")
    assert in_a_word(untried) == "untested: not tried"


def test_the_advice_on_an_overflow_is_whole_in_a_terminal_of_80_columns(
    shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.cli.terminal.width", lambda **_: 80)
    answer = {"good_outputs": {"reason": "the reference computes a NaN or Inf in 'y' too"}}
    said = shown(result(Status.found, "so", cause={"status": "untested", "answers": [answer]}))
    assert "a wider type at this place, or smaller values" in " ".join(said.split())


def test_what_nobody_foresaw_in_a_result_costs_the_screen_and_not_the_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Summary("found", 0, "reduce", "so", checks=None)  # type: ignore[arg-type]
    _say(told, tmp_path, None, refused=False)
    assert capsys.readouterr().out == f"found: so [{tmp_path}]\n"


def test_a_time_is_said_as_exactly_as_it_matters() -> None:
    said = [duration(seconds) for seconds in (4.26, 89.4, 89.6, 149, 179.6, 3600 * 3 + 1200)]
    assert said == ["4.3 s", "89 s", "1 min 30 s", "2 min 29 s", "3 min", "3 h 20 min"]


def test_a_rate_near_certainty_is_none() -> None:
    assert [share(one) for one in (0, 0.0004, 0.36, 0.9982, 0.9999, 1)] == [
        *("0%", "0.04%", "36%", "99.82%", "99.99%", "100%")
    ]


def test_nothing_is_the_best_so_far_where_nothing_was_found(shown: Callable[..., str]) -> None:
    for culprits, said in (((), False), (("a",), True)):
        told = result(Status.interrupted, "interrupted", minimality=Claim.BUDGET.value, culprits=culprits)
        assert ("the best so far" in shown(told)) is said


def test_a_result_of_many_lines_has_no_empty_one_in_a_sweep(shown: Callable[..., str]) -> None:
    lines = shown(result(Status.could_not_judge, "so\n\nthere"), 0).splitlines()
    assert lines and all(line.replace("#0", "").strip() for line in lines)


def test_another_interruption_while_the_first_is_told_leaves_its_result(tmp_path: Path) -> None:
    first = Summary(Status.interrupted, 130, "reduce", "so far", checks=Checks(search=5))
    write_result(first, tmp_path)
    second = Summary(Status.interrupted, 130, "reduce")
    assert _is_interrupted_there(second, tmp_path)
    assert not _is_interrupted_there(Summary(Status.interrupted, 143, "reduce"), tmp_path)
