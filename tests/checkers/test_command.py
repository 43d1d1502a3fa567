from __future__ import annotations

import itertools
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runner import machine
from runner.checkers.command import CommandCheck
from runner.checkers.command_template import Template
from runner.exit_codes import CannotJudge, NotTried, UsageError
from runner.model.values import tensor_bytes
from runner.schema.checker import CommandChecker, ShowOutput
from runner.verdict import CHECK_OUTPUT, Phase, Verdict
from strategies.search import Outcome
from tests.checkers.conftest import Here
from tests.checkers.models import model


def build(here: Here, *words: str, **settings: object) -> CommandCheck:
    return CommandCheck(CommandChecker(command=[sys.executable, *words], **settings), here)  # type: ignore[arg-type]


X = {"x": np.array([-1, 2, 3, 4], np.float32)}


def test_the_command_runs_where_the_user_stands_with_its_placeholders(here: Here) -> None:
    name = here.script(
        "import os, sys\n"
        "assert os.path.isfile('check.py')\n"
        "assert sys.argv[1] == os.environ['WINNOW_MODEL'] and os.path.isfile(sys.argv[1])\n"
        "assert sys.argv[2] == os.environ['WINNOW_ITERATION'] and os.environ['MINE'] == 'yes'\n"
        "assert os.path.isdir(os.environ['WINNOW_DIR'])\n"
        "print('checked'); sys.exit(3)\n",
    )
    check = build(here, name, "{model}", "{iteration}", env={"MINE": "yes"})
    assert not check.wants_feeds
    one = here.candidate(here.relu, X)
    verdict = check.check(one)
    assert (verdict.outcome, verdict.returncode) == (Outcome.FAIL, 3)
    assert str(verdict.signature) == "check: exit 3 (checked)"
    assert verdict.log and (here.run_folder / verdict.log).read_text() == "checked\n"
    # nothing is written that was not asked for
    assert sorted(path.name for path in one.folder.iterdir()) == ["check.log", "feeds", "golden"]
    assert verdict.seconds > 0


def test_values_as_npz_and_as_data_sets(here: Here) -> None:
    name = here.script(
        "import os, sys, numpy\n"
        "x = numpy.load(sys.argv[1])['x']; y = numpy.load(sys.argv[2])['y']\n"
        "assert sys.argv[1] == os.environ['WINNOW_INPUTS']\n"
        "for i in (0, 1):\n"
        "    files = sorted(os.listdir(os.path.join(sys.argv[3], f'test_data_set_{i}')))\n"
        "    assert files == ['input_0.pb', 'output_0.pb'], files\n"
        "sys.exit(0 if (x == y).all() else 'different')\n",
    )
    check = build(here, name, "{inputs}", "{references}", "{data}")
    assert check.wants_feeds
    same, other = X, {"x": np.zeros(4, np.float32)}
    verdict = check.check(here.candidate(here.relu, same, same, expected={"y": same["x"]}))
    assert verdict.outcome is Outcome.PASS and verdict.metrics == {"sample": 1, "samples": 2}
    verdict = check.check(here.candidate(here.relu, same, other, expected={"y": same["x"]}))
    assert verdict.outcome is Outcome.FAIL and verdict.metrics == {"sample": 1, "samples": 2}
    assert verdict.log and verdict.log.endswith("check_1.log")
    # the first sample that does not pass ends it
    verdict = check.check(here.candidate(here.relu, other, same, expected={"y": same["x"]}))
    assert verdict.metrics == {"sample": 0, "samples": 2}
    # it may be found by the variable, and is empty where a model has no inputs
    name = here.script("import os, numpy; assert numpy.load(os.environ['WINNOW_INPUTS']).files == []\n")
    check = build(here, name)
    assert check.wants_feeds and check.check(here.candidate(here.relu)).outcome is Outcome.PASS


SAYS = """
import struct, sys, zipfile
code, measure, *_ = struct.unpack("<4f", zipfile.ZipFile(sys.argv[1]).read("x.npy")[-16:])
print("error", measure)
sys.exit(int(code))
"""


@pytest.mark.parametrize(
    ("said", "outcome", "decides"),
    [
        ([(1, 2), (1, 9), (1, 3)], Outcome.FAIL, 1),
        ([(0, 2), (0, 9), (0, 3)], Outcome.PASS, 1),
        ([(3, 99), (0, 2), (1, 3)], Outcome.FAIL, 2),
        ([(3, 99), (0, 2), (4, 3)], Outcome.UNRESOLVED, 0),
        ([(0, 99), (4, 2), (0, 3)], Outcome.DIFFERENT, 1),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_worst_sample_decides_in_any_order(
    here: Here, said: list[tuple[int, int]], outcome: Outcome, decides: int, turned: bool
) -> None:
    samples = [{"x": np.array([*one, 0, 0], np.float32)} for one in (said[::-1] if turned else said)]
    rules = {"measure": "error ([0-9.]+)", "invalid_codes": [3], "different_codes": [4]}
    verdict = build(here, "-IS", here.script(SAYS), "{inputs}", **rules).check(here.candidate(here.relu, *samples))
    assert verdict.outcome is outcome
    assert verdict.metrics == {
        "measure": said[decides][1],
        "sample": len(said) - 1 - decides if turned else decides,
        "samples": len(said),
    }


def test_a_key_that_our_own_npz_lacks_is_no_failure(here: Here) -> None:
    name = here.script("import sys, numpy; numpy.load(sys.argv[2])['y']\n")
    check = build(here, name, "{inputs}", "{references}")
    verdict = check.check(here.candidate(here.relu, X))
    assert verdict.outcome is Outcome.UNRESOLVED
    assert verdict.reason.startswith("no value of an output was recorded: KeyError")
    # another name than the outputs' is the check's own: it stays with the rule for all such exceptions
    assert check.check(here.candidate(here.relu, X, expected={"z": X["x"]})).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a 'b c' {model}", ("a", "b c", "M")),
        (["a", "--m={model}", "{dir}/x"], ("a", "--m=M", "D/x")),
        (["a", '{"k": {"n": 1}}', "{1,2}", "${model}"], ("a", '{"k": {"n": 1}}', "{1,2}", "$M")),
        (["awk", "{{print}} {{model}} {model}"], ("awk", "{print} {model} M")),
    ],
)
def test_filling_in(command: object, words: tuple[str, ...], tmp_path: Path) -> None:
    assert tuple(Template(command, tmp_path, {}).fill({"model": "M", "dir": "D"})) == words


@pytest.mark.parametrize("command", [None, "", [], "a {modle}", "a 'b", 7, [""]])
def test_commands_that_are_refused(command: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"checker\.command"):
        Template(command, tmp_path, {})


def test_an_unknown_placeholder_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\{modle\}.*\{model\}.*\{inputs\}.*\{iteration\}.*\{\{modle\}\}"):
        Template("a {modle}", tmp_path, {})


def test_a_command_that_judges_nothing_is_told(tmp_path: Path) -> None:
    words = (["a", "{model}", "&&", "b"], ["sh", "-c", "a", "{model}", "|"], ["a"], ["a", "{dir}"], ["a", "{data}"])
    said = [Template(command, tmp_path, {}).slip.partition(",")[0] for command in words]
    assert said == ["No shell is started", "", "checker.command does not name {model}", "", ""]


def test_identity_follows_the_files_that_the_command_names(here: Here) -> None:
    name = here.script("pass")
    (here.cwd / "data.json").write_text("1")
    first = build(here, name, "{model}", "--data=data.json").identity()
    assert build(here, name, "{model}", "--data=data.json").identity() == first
    (here.cwd / "data.json").write_text("2")
    second = build(here, name, "{model}", "--data=data.json").identity()
    assert second != first
    here.script("pass  # changed")
    assert build(here, name, "{model}", "--data=data.json").identity() != second
    assert build(here, name, "{model}", "--data=data.json", fail_codes=[1]).identity()["rules"] != second["rules"]
    assert build(here, "-m", "json").identity().keys() - {f"file {sys.executable}"} == {
        "checker",
        "command",
        "rules",
        "exceptions",
    }


def test_the_modules_that_a_script_imports_belong_to_it(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beside it, those of its PYTHONPATH, and what these import; not what is installed, nor what is unused."""
    texts = {
        "scripts/check.py": "import json, onnx, beside\nfrom package.inner import limit\nimport elsewhere",
        "scripts/beside.py": "import lazily\ndef unused():\n    import lazily.inner\n    from ... import no",
        "scripts/lazily.py": "",
        "scripts/unused.py": "",
        "scripts/package/__init__.py": "",
        "scripts/package/inner.py": "from . import outer\nlimit = 1",
        "scripts/package/outer.py": "",
        "library/elsewhere.py": "",
    }
    for name, text in texts.items():
        (here.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (here.cwd / name).write_text(text)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    env = {"PYTHONPATH": "library"}
    first = build(here, "scripts/check.py", env=env)
    modules = {name.removeprefix("file module ") for name in first.identity() if "module" in name}
    assert modules == {"beside", "lazily", "package", "package.inner", "package.outer", "elsewhere"}
    (here.cwd / "scripts/unused.py").write_text("changed = True")
    assert build(here, "scripts/check.py", env=env).identity() == first.identity()
    assert first.check(here.candidate()).outcome is Outcome.PASS
    (here.cwd / "scripts/package/outer.py").write_text("changed = True")
    with pytest.raises(CannotJudge, match=r"module package\.outer was changed while .*outer\.py"):
        first.check(here.candidate())
    second = build(here, "scripts/check.py", env=env).identity()
    (here.cwd / "library/elsewhere.py").write_text("changed = True")
    assert len({tuple(one.values()) for one in (first.identity(), second)}) == 2
    assert build(here, "scripts/check.py", env=env).identity() != second
    started = build(here, "-m", "package.inner", env={"PYTHONPATH": "scripts"}).identity()
    assert {"file module package.inner", "file module package.outer"} <= started.keys()


def test_files_within_a_shells_command_line(here: Here) -> None:
    here.script("pass")
    template = Template(["sh", "-c", "python check.py {model} 2>&1|grep -q 'it passes'"], here.cwd, {})
    assert template.files() == {"check.py": here.cwd / "check.py"}


ENDS = "import os, sys\nif os.path.exists('now'): {act}\nsys.exit(1)\n"


@pytest.mark.parametrize("act", ["os.unlink(sys.argv[0])", "open(sys.argv[0], 'a').write('# more')"])
def test_a_script_that_changes_while_it_runs_ends_the_run(here: Here, act: str) -> None:
    text = ENDS.format(act=act)
    check = build(here, here.script(text))
    assert check.check(here.candidate()).outcome is Outcome.FAIL
    (here.cwd / "now").touch()
    with pytest.raises(CannotJudge, match=r"check\.py .*resume="):
        check.check(here.candidate())
    (here.cwd / "now").unlink()
    here.script(text)
    # written anew, with the same content
    assert check.check(here.candidate()).outcome is Outcome.FAIL


def test_a_users_file_is_never_overwritten(here: Here) -> None:
    mine = here.cwd / "mine.onnx"
    mine.write_text("precious")
    with pytest.raises(UsageError, match=r"mine\.onnx exists"):
        build(here, "-c", "pass", place="mine.onnx")
    late = build(here, "-c", "pass", place="late.onnx")
    (here.cwd / "late.onnx").write_text("precious")
    with pytest.raises(UsageError, match=r"late\.onnx exists"):
        late.check(here.candidate(here.relu))
    assert mine.read_text() == (here.cwd / "late.onnx").read_text() == "precious"


@pytest.mark.parametrize("note", ["[{path}]", "{{{path}: null}}", "{{{path}: 7}}", '{{"/x": [], {path}: {{}}}}'])
def test_a_note_from_elsewhere_makes_no_file_of_a_users_a_runs(here: Here, note: str) -> None:
    mine = here.cwd / "mine.onnx"
    mine.write_text("precious")
    here.run_folder.mkdir(exist_ok=True)
    (here.run_folder / "placed.json").write_text(note.format(path=json.dumps(str(mine))))
    with pytest.raises(UsageError, match=r"mine\.onnx exists"):
        build(here, "-c", "pass", place="mine.onnx")
    assert mine.read_text() == "precious"


def test_a_killed_run_knows_what_it_placed_but_not_what_lies_there_by_now(here: Here) -> None:
    build(here, "-c", "pass", place="fixed.onnx", keep_placed=True).check(here.candidate(here.relu))
    again = build(here, "-c", "pass", place="fixed.onnx", keep_placed=True)
    again.check(here.candidate(here.relu))
    assert (here.cwd / "fixed.onnx").read_bytes() == here.relu.read_bytes()
    (here.cwd / "new").write_text("precious")
    (here.cwd / "new").replace(here.cwd / "fixed.onnx")
    with pytest.raises(UsageError, match=r"fixed\.onnx exists"):
        build(here, "-c", "pass", place="fixed.onnx")


@pytest.mark.parametrize("text", ['{"iteration": 5, "weights": "precious"}', '["iteration"]', '"iteration"', None])
def test_information_takes_the_place_of_no_other_file(here: Here, text: str | None) -> None:
    mine = here.cwd / "state.json"
    if text is None:
        os.mkfifo(mine)
    else:
        mine.write_text(text)
    with pytest.raises(UsageError, match="holds something else"):
        build(here, "-c", "pass", iteration_info="state.json")
    assert text is None or mine.read_text() == text


@pytest.mark.parametrize("key", ["place", "iteration_info"])
@pytest.mark.parametrize("path", ["/proc/fixed.onnx", "taken/fixed.onnx", "x" * 300])
def test_a_fixed_path_that_cannot_be_written(here: Here, key: str, path: str) -> None:
    (here.cwd / "taken").write_text("a file")
    with pytest.raises(UsageError, match=rf"checker\.{key}=.*choose another path"):
        build(here, "-c", "pass", **{key: path}).check(here.candidate(here.relu))


def outside(path: Path, value: float, *names: str) -> Path:
    """A model that adds tensors full of ``value``, one in each of these files beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {f"w{at}": np.full(4, value, np.float32) for at in range(len(names))}
    nodes = [helper.make_node("Add", ["x", name], [f"y{name}"]) for name in weights]
    proto = onnx.load(model(nodes, path, weights=weights))
    for tensor, name in zip(proto.graph.initializer, names, strict=True):
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(tensor.raw_data)
        tensor_bytes.set_reference(tensor, name, 0, 16)
    path.write_bytes(proto.SerializeToString())
    return path


SUM = """
import onnx
from onnx import numpy_helper
found = [numpy_helper.to_array(tensor) for tensor in onnx.load("fixed.onnx").graph.initializer]
print({float(value) for array in found for value in array})
"""


def test_placed_weights_are_those_of_the_candidate(here: Here, tmp_path: Path) -> None:
    check = build(here, here.script(SUM), place="fixed.onnx")

    def placed(path: Path, check: CommandCheck) -> str:
        one = here.candidate(path)
        assert check.check(one).outcome is Outcome.PASS
        return (one.folder / "check.log").read_text().strip()

    # another store, files of the same names and sizes; the user's own file; several files, one in a folder
    first = outside(tmp_path / "a" / "c.onnx", 1, "weights.bin", "weights.fp16.bin")
    second = outside(tmp_path / "b" / "c.onnx", 2, "weights.bin", "weights.fp16.bin")
    mine = outside(tmp_path / "m" / "mine.onnx", 3, "weights.bin", "data/w")
    for path, value in ((first, 1), (second, 2), (first, 1), (mine, 3), (second, 2)):
        assert placed(path, check) == f"{{{value}.0}}"
    # what they were copied from is written anew, and so is a copy that the check has spoilt
    outside(second, 4, "weights.bin", "weights.fp16.bin")
    assert placed(second, check) == "{4.0}"
    (here.cwd / "weights.bin").write_bytes(np.full(4, 9, np.float32).tobytes())
    assert placed(second, check) == "{4.0}"
    del check
    assert [path.name for path in here.cwd.rglob("*") if path.is_file()] == ["check.py"]


def test_placed_weights_are_kept_with_their_model(here: Here, tmp_path: Path) -> None:
    check = build(here, "-c", "pass", place="fixed.onnx", keep_placed=True)
    check.check(here.candidate(outside(tmp_path / "store" / "c.onnx", 1, "weights.bin")))
    del check
    assert {path.name for path in here.cwd.iterdir()} == {"fixed.onnx", "weights.bin"}


def test_the_users_own_weights_may_lie_where_candidates_are_placed(here: Here, tmp_path: Path) -> None:
    mine = outside(here.cwd / "mine.onnx", 3, "weights.bin")
    check = build(here, here.script(SUM), place="fixed.onnx")
    assert check.check(here.candidate(mine)).outcome is Outcome.PASS
    other = outside(tmp_path / "store" / "c.onnx", 1, "weights.bin")
    with pytest.raises(UsageError, match=r"weights\.bin exists and was not put there"):
        check.check(here.candidate(other))
    del check
    assert (here.cwd / "weights.bin").read_bytes() == np.full(4, 3, np.float32).tobytes()
    deep = build(here, here.script(SUM.replace("fixed", "deep/fixed")), place="deep/fixed.onnx")
    assert deep.check(here.candidate(other)).outcome is Outcome.PASS  # in a folder that is made
    with pytest.raises(UsageError, match=r"place=.*the model's weights lie in a file of this name"):
        build(here, "-c", "pass", place="deep/weights.bin").check(here.candidate(other))
    (tmp_path / "store" / "weights.bin").unlink()
    with pytest.raises(UsageError, match=r"c\.onnx cannot be placed: .*weights\.bin are missing"):
        build(here, "-c", "pass", place="deep/fixed.onnx").check(here.candidate(other))


def test_iteration_information(here: Here) -> None:
    name = here.script("import json; print(json.load(open('info.json')))")
    one = here.candidate()
    check = build(here, name, iteration_info="info.json")
    assert check.check(one).outcome is Outcome.PASS
    assert json.loads((here.cwd / "info.json").read_text()) == {
        "iteration": one.iteration,
        "phase": "bisect",
        "label": "0-3",
        "nodes": ["a", "b"],
    }
    build(here, name, iteration_info="info.json")  # a run that goes on finds its own


@pytest.mark.parametrize(
    ("show", "code", "shown"), [("failing", 0, False), ("failing", 1, True), ("all", 0, True), ("none", 1, False)]
)
def test_whose_output_is_shown(here: Here, caplog: pytest.LogCaptureFixture, show: str, code: int, shown: bool) -> None:
    check = build(here, "-c", f"print('spoken'); raise SystemExit({code})", show_output=ShowOutput(show))
    with caplog.at_level(logging.INFO):
        check.check(here.candidate())
    assert ("spoken" in caplog.text) is shown
    assert ("[1] the check printed" in caplog.text) is shown
    assert "(fail)" not in caplog.text, "it may yet turn out to be no answer"
    # by this a terminal shows it once
    assert [getattr(record, CHECK_OUTPUT) for record in caplog.records] == ["spoken"] * shown


def test_what_a_control_prints_is_not_shown_and_nothing_is_in_color(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    red = build(here, "-c", r"raise SystemExit('\x1b[1;31mbad\x1b[m')", show_output=ShowOutput.failing)
    with caplog.at_level(logging.INFO):
        for one in (replace(here.candidate(here.relu), phase=Phase.CONTROL), here.candidate(here.relu)):
            red.check(one)
    assert [getattr(record, CHECK_OUTPUT) for record in caplog.records] == ["bad"]


STAMPED = """
import sys, time
print(time.strftime("%Y-%m-%d %H:%M:%S."), time.time_ns() % 10**9, sep="", end=" [E:onnxruntime] bad\\n", flush=True)
raise ValueError(f"took {time.time_ns()} ns")
"""


def test_the_same_traceback_is_shown_once(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    """From then on only the whole log points to it, though the candidate's own path in it differs."""
    traced = build(here, "-c", "import sys; raise ValueError(sys.argv[1])", "{dir}", show_output=ShowOutput.failing)
    short = build(here, "-c", "raise SystemExit('max diff 0.5')", show_output=ShowOutput.failing)
    long = build(here, "-c", "print('line\\n' * 200); raise SystemExit(1)", show_output=ShowOutput.failing)
    asked = build(here, "-c", "raise SystemExit('asked for')", show_output=ShowOutput.all)
    timed = build(here, "-c", STAMPED, show_output=ShowOutput.failing)
    with caplog.at_level(logging.DEBUG, "runner.checkers.command"):
        for check in (traced, traced, short, short, long, long, timed, timed, asked, asked):
            check.check(here.candidate(here.relu))
    said = [(record.levelname, record.getMessage()) for record in caplog.records if hasattr(record, CHECK_OUTPUT)]
    assert [level for level, _ in said] == ["INFO", "DEBUG"] * 4 + ["INFO"] * 2
    first, second, short_one, again, cut, cut_again, *_ = [message for _, message in said]
    assert "lines more in" in cut and cut_again == "[6] the check printed the same as in [5]"
    assert first.startswith("[1] the check printed:\n") and "Traceback" in first and "ValueError" in first
    assert second == "[2] the check printed the same traceback as in [1]"
    assert (short_one, again) == ("[3] the check printed:\nmax diff 0.5", "[4] the check printed the same as in [3]")


KILLED = """
import os, pathlib, signal, sys
with open("calls", "a") as file:
    file.write("x")
if sys.argv[1] == "always" or len(open("calls").read()) == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("shell", [False, True])
def test_a_kill_is_made_sure_of(here: Here, monkeypatch: pytest.MonkeyPatch, shell: bool) -> None:
    """The kernel may have meant a neighbor: of the command itself, or of what a shell waits for (exit 137)."""
    name = here.script(KILLED)
    calls = here.cwd / "calls"

    def check(word: str, **settings: object) -> tuple[Verdict, int]:
        calls.unlink(missing_ok=True)
        words = ["sh", "-c", f"{sys.executable} {name} {word}; exit $?"] if shell else [sys.executable, name, word]
        verdict = CommandCheck(CommandChecker(command=words, **settings), here).check(here.candidate(here.relu))  # type: ignore[arg-type]
        return verdict, len(calls.read_text())

    assert [check("once")[0].outcome, check("once")[1]] == [Outcome.PASS, 2]
    verdict, times = check("always")
    assert verdict.signature and (verdict.outcome, verdict.signature.kind, times) == (Outcome.FAIL, "death KILL", 2)
    # and if the kernel says that memory had run out: no answer, unless the user takes the code for one
    kills = itertools.count()
    monkeypatch.setattr(machine, "oom_kills", lambda: next(kills))
    with pytest.raises(NotTried, match=r"checker\.memory_mb=MIB"):
        check("always")
    assert len(calls.read_text()) == 2
    code = 137 if shell else -9
    assert check("always", fail_codes=[code])[0].outcome is Outcome.FAIL


def test_what_takes_the_machines_memory_is_not_judged(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "share_mb", lambda: 300)
    check = build(here, "-c", "import time; data = b'x' * (400 << 20); time.sleep(60)")
    with pytest.raises(NotTried, match="300 MiB, 80% of what there is"):
        check.check(here.candidate(here.relu))


def test_nothing_that_is_started_sends_anything(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    name = here.script("import os; print(os.environ['ORT_DISABLE_TELEMETRY'], os.environ['DO_NOT_TRACK'])")
    for given, told in (({}, "1 1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0 1")):
        verdict = build(here, name, env=given).check(here.candidate(here.relu))
        assert verdict.log and here.said(verdict) == told
