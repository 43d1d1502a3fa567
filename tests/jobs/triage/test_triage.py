"""A triage, run as a user does: its steps, what is reported, and that it goes on where it was cut off."""

from __future__ import annotations

import json
import re
import signal
import sys
import venv
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.harness import Run, by_command, check_script, interrupted, winnow
from tests.jobs.models import saved
from tests.jobs.optimizer_defect import defective, loads
from tests.jobs.reduce.test_cause import COMPARE
from tests.jobs.reduce.test_who_is_right import LARGE, SHAPE, folded
from tests.matrix import sample

WORDS = ("strategy=triage", "verbosity=warning")


def low_precision(folder: Path, dtype: int) -> Path:
    """A product beyond the range of float16 that is scaled back right behind it, and what reads that."""
    kind = "float16" if dtype == TensorProto.FLOAT16 else "float"
    text = f"""g ({kind}[1,8] x) => ({kind}[1,8] y) {{
        [tanh] t = Tanh(x) [exp] e = Exp(t) [mul] wide = Mul(e, large) [scale] back = Mul(wide, small)
        [sin] y = Sin(back) }}"""
    numbers = {"large": 60000.0, "small": 1e-5}
    folder.mkdir(exist_ok=True)
    held = {name: np.array(value, helper.tensor_dtype_to_np_dtype(dtype)) for name, value in numbers.items()}
    return saved(folder / "net.onnx", text, **held)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A cast, a division and a multiplication of which ONNX Runtime's optimizers make an invalid graph; and more."""
    return defective(tmp_path / "net.onnx", behind="Exp")


def triaged(tmp_path: Path, model: Path, *more: str, body: str = "sys.exit('mul' in nodes)") -> Run:
    """Triage with a check that notes each call of it in the file ``calls``."""
    check = check_script(tmp_path, f"open({str(tmp_path / 'calls')!r}, 'a').write(sys.argv[1] + '\\n')\n{body}")
    return winnow(*WORDS, f"model={model}", *by_command(check), *more, folder=tmp_path / "run")


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_a_pipe_shows_a_line_for_each_part_and_the_log_every_check(tmp_path: Path, model: Path) -> None:
    run = triaged(tmp_path, model, "verbosity=info", "strategy.steps=[repeat,reduce,workaround]")
    lines = run.output.splitlines()
    assert [line.split("?")[0] for line in lines[: -len(run.screen)]] == [
        *("INFO does it fail", "INFO where", "INFO what helps")
    ], run.output
    assert "a check fails (exit 1), in 6 of 6 runs (6 checks, " in lines[0]
    assert "where? mul (1 of 4 nodes); cause proven (" in lines[1]
    log = (run.folder / "winnow.log").read_text()
    assert re.findall(r"step (\d), (\w+): ", log) == [
        *(("1", "stands"), ("2", "repeat"), ("3", "reduce"), ("4", "workaround"))
    ]
    assert log.count("[1] iteration 1") == 2


@pytest.mark.slow
def test_whoever_wants_to_see_every_check_does(tmp_path: Path, model: Path) -> None:
    everything = triaged(tmp_path, model, "verbosity=debug", "strategy.steps=[stands]")
    assert everything.output.count("[1] iteration 1") == 1 and "step 1, stands" in everything.output


@pytest.mark.variants
@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("off by 0.5 at <y>", '"off by 0.5 at &#60;y>"'),
        ("wrong by far: {folder}/my.py", '`"wrong by far: my.py"`'),  # not where the user's folder lies
    ],
)
def test_what_a_check_says_is_in_the_title(
    tmp_path: Path, model: Path, said: str, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = triaged(tmp_path, model, body=f"sys.exit({said.format(folder=tmp_path)!r} if 'mul' in nodes else 0)")
    report = (run.folder / "REPORT.md").read_text()
    assert report.startswith(f"# a check fails (exit 1): {title}: `mul`\n"), report[:200]


@pytest.mark.slow
def test_a_check_of_ones_own_and_that_a_triage_that_goes_on_asks_nothing_twice(tmp_path: Path, model: Path) -> None:
    run = triaged(tmp_path, model)
    told = run.result["triage"]
    assert run.code == 0 and run.result["culprits"] == ["mul"], run.output
    steps = {one["name"]: one for one in told["steps"]}
    assert told["branch"] == "reduce" and told["reproduced"]["failed"] == told["reproduced"]["of"] == 6
    assert [one["folder"] for one in steps.values() if one["folder"]] == [
        *("steps/00-inspect", "steps/01-stands", "steps/02-repeat", "steps/03-reduce", "steps/04-workaround")
    ]
    assert "has no {switches}" in steps["passes"]["why"] and steps["passes"]["status"] == "not asked"
    assert run.result["model"] == "steps/03-reduce/reduced.onnx" and len(run.model(run.result["model"]).graph.node) == 1
    report = (run.folder / "REPORT.md").read_text()
    assert report.startswith("# a check fails (exit 1): `mul`\n") and "`steps/03-reduce/repro.py`" in report
    kept = json.loads((run.folder / "steps" / "03-reduce" / "result.json").read_text())
    assert kept["culprits"] == ["mul"] and run.result["checks"]["search"] >= kept["checks"]["search"]
    before = len(calls(tmp_path))
    resumed = triaged(tmp_path, model, f"resume={run.folder}")
    assert resumed.result["culprits"] == ["mul"] and len(calls(tmp_path)) == before
    (tmp_path / "elsewhere").mkdir()
    resumed = winnow("resume", str(run.folder), "verbosity=warning", folder=run.folder, cwd=tmp_path / "elsewhere")
    assert resumed.result["culprits"] == ["mul"] and len(calls(tmp_path)) == before, resumed.output
    (run.folder / "steps" / "03-reduce" / "result.json").unlink()  # as if it had been killed there
    triaged(tmp_path, model, f"resume={run.folder}")
    again = {Path(name).name for name in calls(tmp_path)[before:]}
    assert again <= {"reduced.onnx", "min_good.onnx"}, "its journal knows all but what is handed over anew"


@pytest.mark.slow
def test_interrupted_in_a_step(tmp_path: Path, model: Path) -> None:
    hanging = tmp_path / "hanging"
    body = f"import time\nif len(nodes) < 4:\n    open({str(hanging)!r}, 'w')\n    time.sleep(60)\nsys.exit(1)"
    check = check_script(tmp_path, body)
    words = (*WORDS, f"model={model}", *by_command(check))
    code = interrupted(*words, folder=tmp_path / "run", ready=hanging, number=signal.SIGINT)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert code == result["exit_code"] == 130 and result["status"] == "interrupted"
    assert result["message"].endswith("no part was found so far"), "its screen has the command that goes on"
    assert [one["status"] for one in result["triage"]["steps"]] == [
        *("found", "found", "found", "not asked", "interrupted")
    ]


@pytest.mark.slow
def test_what_is_planned_what_a_budget_allows_and_what_is_no_step(tmp_path: Path, model: Path) -> None:
    planned = triaged(tmp_path, model, "plan=true")
    assert planned.code == 0 and planned.result["status"] == "planned" and len(calls(tmp_path)) == 2, planned.output
    (tmp_path / "few").mkdir()
    few = triaged(tmp_path / "few", model, "budget.checks=2")
    whys = {one["name"]: one["why"] for one in few.result["triage"]["steps"]}
    assert few.result["message"].endswith("budget.checks=2 was reached before repeat, reduce"), few.output
    assert whys["repeat"] == whys["reduce"] == "budget.checks=2 was reached" and len(calls(tmp_path / "few")) == 2
    wrong = triaged(tmp_path, model, "strategy.steps=[reduction]")
    assert (
        wrong.code == 2
        and "strategy.steps=reduction: there is no such step. Choose of inspect, stands, " in wrong.output
    )


def other_python(folder: Path, version: str) -> Path:
    """An interpreter with the packages of this one, and ONNX Runtime's by a version that can be changed."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    package_of(folder, version)
    return folder / "bin" / "python"


def package_of(folder: Path, version: str) -> None:
    (site,) = folder.glob("lib/python*/site-packages")
    info = site / "onnxruntime.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {version}\n")


@pytest.mark.slow
def test_answers_hold_for_the_packages_and_files_that_gave_them(tmp_path: Path, model: Path) -> None:
    """The interpreter's path and all settings stay the same."""
    python = other_python(tmp_path / "other", "1.0")
    words = ("strategy=triage", "strategy.steps=[]", f"model={model}", f"target.python={python}", "checker=runs")
    run = winnow(*words, folder=tmp_path / "run")
    assert run.result["triage"]["steps"][0]["checks"] == 2, run.output
    resume = f"resume={run.folder}"
    assert winnow(*words, resume, folder=run.folder).log.count("it has ended before") == 1
    package_of(tmp_path / "other", "2.0")
    assert winnow(*words, resume, folder=run.folder).log.count("it has ended before") == 1, "not once more"
    held = onnx.load(str(model))
    held.graph.node[3].op_type = "Neg"
    onnx.save(held, str(model))
    changed = winnow(*words, resume, folder=run.folder)
    assert "01-stands starts over" in changed.output and "usage" not in changed.output
    assert changed.result["triage"]["steps"][0]["checks"] == 2, changed.output


def test_a_wrong_release_is_refused_before_anything_is_asked(tmp_path: Path, model: Path) -> None:
    wrong = winnow(*WORDS, f"model={model}", "strategy.versions='>=x'", folder=tmp_path / "run")
    assert wrong.code == 2 and "strategy.versions=>=x: Invalid specifier" in wrong.output
    assert not (wrong.folder / "steps").exists()


@pytest.mark.slow
def test_resuming_without_the_command_leaves_the_run_alone(tmp_path: Path, model: Path) -> None:
    run = triaged(tmp_path, model, "strategy.steps=[]")
    (run.folder / "result.json").unlink()  # as if it had been killed
    alone = winnow(f"resume={run.folder}", folder=run.folder)
    assert alone.code == 2
    assert f"Add resume={run.folder} to the command that the run was started with" in alone.output
    assert not (run.folder / "result.json").exists()


@pytest.mark.slow
def test_steps_of_an_earlier_triage_go_and_links_in_their_place_are_refused(tmp_path: Path, model: Path) -> None:
    triaged(tmp_path, model)
    run = triaged(tmp_path, model, "strategy.steps=[repeat]")
    assert [path.name for path in sorted((run.folder / "steps").iterdir())] == [
        "00-inspect",
        "01-stands",
        "02-repeat",
    ], run.output
    assert run.code == 3 and run.result["triage"]["branch"] == "not reduced"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run.folder / "steps" / "03-reduce").symlink_to(elsewhere)
    refused = triaged(tmp_path, model)
    assert refused.code == 2 and "steps/03-reduce" in refused.output and not [*elsewhere.iterdir()]


def test_what_the_optimizers_break(tmp_path: Path, model: Path) -> None:
    """The pass is asked about the reduced model, and then once about the whole."""
    if loads(model):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} no longer has this defect")
    run = winnow(*WORDS, f"model={model}", folder=tmp_path / "run")
    told = {one["name"]: one for one in run.result["triage"]["steps"]}
    assert run.code == 0 and run.result["culprits"] == ["cast", "div", "mul"], run.output
    assert run.result["passes"]["heals"] == [["CastElimination"], ["DivMulFusion"]]
    assert told["healed"]["answer"] == "0 of 2 checks failed" and "on the reduced model" in told["passes"]["why"]
    # which of them is offered first depends on how long a run takes
    assert re.search("without (CastElimination|DivMulFusion)", (run.folder / "REPORT.md").read_text())
    assert any("disabled_optimizers=['CastElimination']" in one["code"] for one in run.result["workarounds"])
    assert run.result["workarounds"][0]["samples"] == {"passed": 20, "of": 20, "kind": "fresh"}


def finite_unoptimized_only(folder: Path) -> Path:
    """A projection beyond float16 that is scaled back; ONNX Runtime's CPU provider rounds it where it is optimized."""
    text = """g (float16[1,4,4] x) => (float16[1,4,4] y) {
        [Exp] e = Exp(x) [MatMul] a = MatMul(e, w) [Add] c = Add(a, b) [Transpose] t = Transpose<perm = [0, 2, 1]>(c)
        [Mul] y = Mul(t, s) }"""
    held = {"w": np.full((4, 4), 30000, np.float16), "b": np.zeros(4, np.float16), "s": np.float16(1e-4)}
    return saved(folder / "net.onnx", text, **held)


@pytest.mark.slow
def test_a_model_that_only_the_recording_and_an_optimization_take_beyond_float16(tmp_path: Path) -> None:
    """To be recorded a tensor is rounded, so the reference overflows as well; its plain run of the file does not."""
    run = winnow(*WORDS, f"model={finite_unoptimized_only(tmp_path)}", folder=tmp_path / "run")
    told = {one["name"]: one for one in run.result["triage"]["steps"]}
    if not told["stands"]["answer"].startswith("2 of 2"):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not round here")
    assert told["plain"]["answer"] == "0 of 1 check failed" and told["plain"]["checks"] == 1, run.output
    assert "no bug of the runtime" not in run.output and "at the edge" in run.result["message"]
    assert run.result["passes"]["needed"] == ["MatMulAddFusion"] and "the whole model" in told["passes"]["why"]
    # which of them is offered first depends on how long a run takes
    assert ("pass", True) in [(one["kind"], one["passes"]) for one in run.result["workarounds"]]
    assert "Report the failure" not in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_a_model_in_float16_beside_its_original(tmp_path: Path) -> None:
    """What has to stay high is asked of the original, and verified on the model."""
    parent, child = (low_precision(tmp_path / name, dtype) for name, dtype in (("high", 1), ("low", 10)))
    run = winnow(
        *WORDS, f"model={child}", f"reference.model={parent}", "target=onnx_reference", folder=tmp_path / "run"
    )
    told = {one["name"]: one for one in run.result["triage"]["steps"]}
    assert run.code == 0 and run.result["triage"]["branch"] == "extract" and told["precision"]["status"] == "found"
    assert "keep mul, scale in float32" in run.result["message"] and run.result["culprits"] == ["mul"]
    first = run.result["workarounds"][0]
    assert (first["kind"], first["passes"]) == ("precision", True)


@pytest.mark.slow
def test_a_reference_that_is_wrong_ends_the_triage_as_it_ends_the_reduction(tmp_path: Path) -> None:
    """Without the optimization the target would be as wrong as the reference: that is no workaround."""
    model = folded(tmp_path, ["bn"], weight=1, bias=LARGE)
    np.savez(tmp_path / "x.npz", x=np.linspace(0.1, 3, 32, dtype=np.float32).reshape(SHAPE))
    given = (f"model={model}", "inputs=files", f"inputs.path={tmp_path / 'x.npz'}", *COMPARE)
    run = winnow(*given, "strategy=triage", folder=tmp_path / "run")
    assert (run.code, run.result["status"], run.result["whose"]) == (9, "reference_wrong", "reference"), run.output
    assert not run.result["workarounds"] and not run.result["passes"]


@pytest.mark.parametrize(
    ("word", "content", "said"),
    sample(
        [
            ("triage", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", "run `git lfs pull`"),
            ("reduce", b"\n<!DOCTYPE html><html><body>Not Found</body></html>", "the download failed"),
            ("triage", b"PK\x03\x04" + bytes(60), "is a zip archive"),
            ("reduce", bytes(range(256)), "is not an ONNX model, or it is truncated"),
            ("inspect", b"", "is empty"),
        ],
        5,
    ),
)
def test_a_file_that_is_no_model_is_a_mistake_of_the_command_line(
    tmp_path: Path, word: str, content: bytes, said: str
) -> None:
    """As of a reduction, with what the file is instead."""
    (tmp_path / "net.onnx").write_bytes(content)
    run = winnow(word, f"model={tmp_path / 'net.onnx'}", folder=tmp_path / word)
    assert run.code == 2 and said in run.output and "internal_error" not in run.output, run.output


@pytest.mark.slow
@pytest.mark.parametrize("switches", [(), ("--fuse", "--fold")])
def test_a_command_gets_all_switches_where_none_is_searched_and_else_stays_as_it_was_typed(
    tmp_path: Path, model: Path, switches: tuple[str, ...]
) -> None:
    check = tmp_path / "check.py"
    on = "'--fuse' in sys.argv and" if switches else ""
    check.write_text(f"import sys\nsys.exit({on} b'Exp' in open(sys.argv[1], 'rb').read())\n")
    command = f"{sys.executable} {check} {{model}}" + " {switches}" * bool(switches)
    given = (*WORDS, f"model={model}", "checker=command", f"checker.command={command!r}", "checker.flaky=never")
    more = (f"strategy.switches=[{','.join(switches)}]", "strategy.steps=[reduce,passes]")
    run = winnow(*given, *(more if switches else ("strategy.steps=[reduce]",)), folder=tmp_path / "run")
    assert run.code == 0, run.output
    if switches:
        assert run.result["passes"]["needed"] == ["--fuse"], run.output
    else:
        (replay,) = (run.folder / "steps").glob("*-reduce/replay.yaml")
        assert f"command: {command}" in " ".join(replay.read_text().split()), replay.read_text()
