"""What keeps a failure away, shown on the whole model: run as a user does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.exit_codes import UsageError
from runner.jobs.workaround.remedies import Findings, Remedy, Tried, findings, ranked, together
from runner.report.result_parts import Latency, Workaround
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import saved
from tests.jobs.optimizer_defect import defective, loads
from tests.matrix import sample

KEPT_APART = "sys.exit(0 if any(name.endswith('__kept') for name in made) else 1)"
FAILS_ON_SOME = """
import binascii, zipfile
with zipfile.ZipFile(sys.argv[2]) as given:
    drawn = binascii.crc32(given.read('x.npy'))
with zipfile.ZipFile(sys.argv[3]) as given:
    assert given.read('y.npy')
sys.exit(1 if 'k__kept' not in made or drawn % 6 == 0 else 0)
"""
FAILS_ON_THE_FIRST = """
import binascii, pathlib, zipfile
with zipfile.ZipFile(sys.argv[2]) as given:
    drawn = str(binascii.crc32(given.read('x.npy')))
first = pathlib.Path(__file__).with_name('first')
if not first.exists():
    first.write_text(drawn)
assert sys.argv[3]
sys.exit(1 if 'k__kept' not in made and first.read_text() == drawn else 0)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = (
        "g (float[2,3] x) => (float[2,3] y) { [neg] k = Neg(x) [abs] l = Abs(k) [exp] m = Exp(l) [tanh] y = Tanh(m) }"
    )
    return saved(tmp_path / "net.onnx", text)


def worked_around(tmp_path: Path, model: Path, body: str, *more: str, name: str = "run") -> Run:
    check = check_script(tmp_path, body)
    words = ("{inputs}", "{references}") if "argv[2]" in body else ()
    given = () if any(word.startswith("strategy.") for word in more) else ("strategy.nodes=[neg,abs]",)
    return winnow(
        *("strategy=workaround", f"model={model}", *by_command(check, *words), *given, *more), folder=tmp_path / name
    )


def test_a_runtime_that_cannot_load_a_model_is_given_passes_off_and_a_rewritten_model(tmp_path: Path) -> None:
    """A division and a multiplication behind a cast, of which ONNX Runtime's optimizers make an invalid graph."""
    model = defective(tmp_path / "net.onnx")
    if loads(model):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} no longer has this defect")
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    heals = {"heals": [["CastElimination"], ["GeluFusionL2"], ["Castaway"]]}
    (earlier / "result.json").write_text(json.dumps({"strategy": "passes", "passes": heals}))
    given = (f"strategy.results=[{earlier}]", "strategy.nodes=[cast,div,mul]", "strategy.latency_runs=2")
    run = winnow("strategy=workaround", f"model={model}", "checker=runs", *given, folder=tmp_path / "run")
    assert run.code == 0 and run.result["status"] == "found", run.output
    *good, bad, unknown = run.result["workarounds"]
    assert {one["kind"]: one["what"] for one in good} == {
        "pass": "without CastElimination",
        "rewrite": "wide as an additional output",
    }
    assert bad["what"] == "without GeluFusionL2" and not bad["passes"] and "Invalid model" in bad["why_not"]
    assert unknown["what"] == "without Castaway" and "is not known here" in unknown["why_not"]
    assert bad["tried"] and not unknown["tried"]
    for one in good:
        assert one["samples"] == {"passed": 20, "of": 20, "kind": "fresh"}, one
        assert one["latency"]["before_ms"] is None and one["latency"]["after_ms"] > 0
    by_kind = {one["kind"]: one for one in good}
    assert by_kind["pass"]["overrides"] == ["target.disabled_optimizers=[CastElimination]"]
    held: dict[str, object] = {"onnxruntime": onnxruntime, "path": str(model)}
    exec(by_kind["pass"]["code"], held)
    assert held["session"]
    assert by_kind["rewrite"]["files"] == ["workaround.onnx"]
    onnxruntime.InferenceSession(str(run.folder / "workaround.onnx"))
    report = (run.folder / "REPORT.md").read_text()
    assert report.startswith("# workaround: found") and "it does not run without" in report
    assert "| `workaround.onnx` | the whole model, wide as an additional output |" in report


@pytest.mark.slow
def test_a_rewrite_that_the_users_check_passes_and_what_it_costs(tmp_path: Path, model: Path) -> None:
    run = worked_around(tmp_path, model, KEPT_APART, f"result.path={tmp_path / 'mine.onnx'}")
    first, second = run.result["workarounds"]
    assert run.code == 0 and first["what"] == "Max(k, k) before abs" and first["kind"] == "rewrite", run.output
    assert not second["passes"] and second["what"] == "k as an additional output"
    assert first["samples"] == {"passed": 0, "of": 0, "kind": "recorded"} and first["files"] == ["workaround.onnx"]
    assert first["latency"]["ratio"] > 0 and first["latency"]["runs"] == 30
    tried = [line for line in run.log.splitlines() if "(1 workaround)" in line]
    assert "4 checks left" in tried[0] and "left" not in tried[-1], run.output
    assert "the inputs that the check feeds by itself" in run.output
    for path in (run.folder / "workaround.onnx", tmp_path / "mine.onnx"):
        assert [node.op_type for node in onnx.load(str(path)).graph.node] == ["Neg", "Max", "Abs", "Exp", "Tanh"]
    again = worked_around(tmp_path, model, KEPT_APART, f"resume={run.folder}", f"result.path={tmp_path / 'mine.onnx'}")
    assert again.code == 0 and again.result["checks"]["search"] == again.result["checks"]["trust"] == 0, again.output
    assert [one["what"] for one in again.result["workarounds"]] == [first["what"], second["what"]]


def test_what_passes_on_fresh_inputs_says_where_the_model_passes_there_too(tmp_path: Path, model: Path) -> None:
    run = worked_around(tmp_path, model, FAILS_ON_THE_FIRST)
    kept = next(one for one in run.result["workarounds"] if one["passes"])
    assert kept["samples"] == {"passed": 20, "of": 20, "kind": "fresh", "without": True}, run.output
    assert "20 of 20 fresh inputs pass with and without it" in run.screen[0]


@pytest.mark.slow
def test_what_fails_on_an_input_that_nobody_had_looked_at_is_not_offered(tmp_path: Path, model: Path) -> None:
    run = worked_around(tmp_path, model, FAILS_ON_SOME, "strategy.nodes=[neg,abs]", "checker.flaky=auto")
    kept = next(one for one in run.result["workarounds"] if one["what"] == "Max(k, k) before abs")
    assert run.code == 4 and not kept["passes"] and kept["samples"]["kind"] == "fresh", run.output
    assert 0 < kept["samples"]["passed"] < kept["samples"]["of"] == 20 and "fail" in kept["why_not"]
    assert not [*run.folder.glob("workaround*")] and kept["files"] == []
    assert (run.folder / "REPORT.md").read_text().startswith("# workaround: nothing to find\n")
    # the model as it is three times and with fresh inputs; what is not offered is not repeated
    assert run.result["checks"]["trust"] == 4
    assert " ".join(run.screen).count("no workaround helps (5 tried)") == 1


def test_a_plan_checks_the_model_as_it_is_alone(tmp_path: Path, model: Path) -> None:
    """Culprits of an earlier run that this model does not have are left out."""
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    result = {"strategy": "reduce", "culprits": ["neg", "gone", "abs"], "context": {"model": "of another one"}}
    (earlier / "result.json").write_text(json.dumps(result))
    run = worked_around(tmp_path, model, KEPT_APART, f"strategy.results=[{earlier}]", "plan=true")
    assert run.code == 0 and "would be tried: k as an additional output; Max(k, k) before abs" in run.output
    assert run.result["checks"]["preflight"] == 1 and run.result["checks"]["search"] == 0
    assert "none of these runs was about this model" in "".join(run.result["warnings"])


@pytest.mark.slow
def test_a_release_that_the_cache_does_not_have(tmp_path: Path, model: Path) -> None:
    """The folder of the run that found it is named, and no setting that nobody gave."""
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    releases = {"package": "onnxruntime", "good_before": "1.2"}
    (earlier / "result.json").write_text(json.dumps({"strategy": "versions", "releases": releases}))
    given = (f"strategy.results=[{earlier}]", f"strategy.cache={tmp_path / 'mine'}", "checker.command=false {python}")
    run = winnow("strategy=workaround", f"model={model}", "checker=command", *given, folder=tmp_path / "run")
    said = f"strategy.cache={tmp_path / 'mine'} does not have it. Name an interpreter"
    assert run.code == 3 and said in run.output and "offline" not in run.output, run.output


@pytest.mark.slow
def test_a_budget_ends_it_and_what_passed_is_told(tmp_path: Path, model: Path) -> None:
    run = worked_around(tmp_path, model, KEPT_APART, "budget.checks=2")
    assert run.code == 4 and "the budget was reached before all was tried" in run.output
    assert [one["what"] for one in run.result["workarounds"]] == ["k as an additional output"]
    assert run.result["checks"]["search"] == 2 and not [*run.folder.glob("workaround*")]  # it was not checked again


def test_a_model_that_passes_needs_none(tmp_path: Path, model: Path) -> None:
    run = worked_around(tmp_path, model, "sys.exit(0)")
    assert run.code == 4 and "there is nothing to work around" in run.output
    assert (run.folder / "REPORT.md").read_text().startswith("# workaround: nothing to find\n")


@pytest.mark.slow
def test_what_is_right_is_what_the_reference_makes_of_the_model_as_it_is(tmp_path: Path, model: Path) -> None:
    """A parent that computes something else: no rewrite of the child brings that back, and a lone Identity passes."""
    parent = onnx.load(str(model))
    parent.graph.node[0].op_type = "Sin"
    onnx.save(parent, str(tmp_path / "parent.onnx"))
    given = ("strategy.nodes=[neg,abs]", "checker.flaky=always", f"reference.model={tmp_path / 'parent.onnx'}")
    run = winnow("strategy=workaround", f"model={model}", "checker=compare", *given, folder=tmp_path / "run")
    assert run.code == 4 and "no workaround helps (5 tried)" in run.output, run.output
    assert "a lone Identity 0% (0 of 20)" in run.result["message"]


@pytest.mark.slow
def test_a_flaky_check_is_asked_until_it_is_sure(tmp_path: Path, model: Path) -> None:
    body = f"if 'tanh' not in nodes: sys.exit(0)\n{KEPT_APART}"
    run = worked_around(tmp_path, model, body, "checker.flaky=always")
    assert run.code == 0 and run.result["workarounds"][0]["what"] == "Max(k, k) before abs", run.output
    assert "the check is flaky: the whole model fails 100%" in run.result["message"]


@pytest.mark.slow
def test_another_interpreter_that_a_command_asks_for(tmp_path: Path, model: Path) -> None:
    other = tmp_path / "other"
    other.symlink_to(sys.executable)
    body = "sys.exit(0 if sys.argv[-1].endswith('other') else 1)"
    check = check_script(tmp_path, body)
    words = (*by_command(check, "{python}"), f"strategy.interpreters=[{other}]", "strategy.disabled_optimizers=[A]")
    run = winnow("strategy=workaround", f"model={model}", *words, folder=tmp_path / "run")
    first, second = run.result["workarounds"]
    assert run.code == 0 and first["kind"] == "release" and first["passes"], run.output
    assert first["what"] == f"under {other}" and first["overrides"] == [f"target.python={other}"]  # it has no packages
    assert "the check runs code of yours" in second["why_not"]


def half_model(path: Path) -> Path:
    """A product in float16 that overflows, and comes down again."""
    text = "g (float16[2,3] x) => (float16[2,3] y) { [mul] k = Mul(x, up) [back] y = Mul(k, down) }"
    return saved(path, text, up=np.float16(6e4), down=np.float16(1e-3))


@pytest.mark.parametrize("rounding", sample(["on", "strict"], 2))
def test_nodes_are_raised_where_the_target_is_emulated(tmp_path: Path, rounding: str) -> None:
    given = ("strategy.raised=[mul,back]", "strategy.latency_runs=0", f"target.rounding={rounding}")
    ranges = "inputs.ranges={x: [2.0, 3.0]}"
    model = half_model(tmp_path / "net.onnx")
    run = winnow("strategy=workaround", f"model={model}", *given, ranges, folder=tmp_path / "run")
    assert run.code == 0 and run.result["workarounds"][0]["what"] == "in float32: mul, back", run.output
    assert "the first: in float32" in run.result["message"] and "cheapest" not in run.result["message"]


def parent_of(path: Path) -> Path:
    """The same in float32, with inputs of that type too."""
    parent = onnx.load(str(path))
    for value in (*parent.graph.input, *parent.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    for held in parent.graph.initializer:
        held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held).astype("float32"), held.name))
    onnx.save(parent, str(path.with_name("parent.onnx")))
    return path.with_name("parent.onnx")


@pytest.mark.slow
def test_a_parent_whose_inputs_have_another_type_judges_a_model_that_stays_whole(tmp_path: Path) -> None:
    model = half_model(tmp_path / "net.onnx")
    given = (f"model={model}", f"reference.model={parent_of(model)}", "checker=compare")
    ranges = "inputs.ranges={x: [2.0, 3.0]}"
    run = winnow(
        *("strategy=workaround", "strategy.raised=[mul,back]", "target.rounding=on", "strategy.latency_runs=0"),
        *(*given, ranges),
        folder=tmp_path / "run",
    )
    assert run.code == 0 and run.result["workarounds"][0]["samples"]["passed"] == 20, run.output
    run = winnow("strategy=passes", *given, "inputs.ranges={x: [0.1, 0.9]}", folder=tmp_path / "passes")
    assert run.code == 4 and "nothing" in run.result["status"], run.output


@pytest.mark.slow
def test_what_could_not_be_tried_is_not_counted_as_tried(tmp_path: Path, model: Path) -> None:
    """An optimizer's name that is none, where nothing else is given; an interpreter that cannot run a model."""
    other = tmp_path / "other"
    other.symlink_to(sys.executable)  # it has no packages there
    broken = onnx.load(str(model))
    broken.graph.node[1].domain = "nowhere"
    broken.opset_import.append(helper.make_opsetid("nowhere", 1))
    onnx.save(broken, str(model))
    for given, code, said in (
        ("strategy.disabled_optimizers=[[CastEliminaton]]", 2, "Did you mean CastElimination"),
        (f"strategy.interpreters=[{other}]", 3, "no workaround could be tried (1 known): "),
    ):
        run = winnow("strategy=workaround", f"model={model}", "checker=runs", given, folder=tmp_path / str(code))
        assert run.code == code and said in run.output, run.output


def tried(kind: str, ratio: float | None, error: float | None = None, *, places: int = 1, passes: bool = True) -> Tried:
    told = Workaround(passes=passes, latency=Latency(1.0, ratio, ratio) if ratio else None)
    return Tried(Remedy(kind, f"{kind} {ratio} {error}", places=places), told, error)


def test_in_which_order_workarounds_are_offered() -> None:
    """What leaves nothing wrong before what passes narrowly, a single place before many, what is cheap before dear."""
    narrow, heals, slower = tried("rewrite", 0.9, 0.098), tried("pass", 1.04, 5e-6), tried("precision", 1.0, 4e-6)
    unmeasured, fails = tried("release", None), tried("tactic", None, passes=False)
    assert ranked([narrow, fails, slower, unmeasured, heals]) == [heals, slower, unmeasured, narrow, fails]
    assert ranked([tried("rewrite", 2.0), heals])[0] is heals
    many, one, two = tried("rewrite", 0.9, places=74), tried("precision", 1.5), tried("precision", 1.0, places=2)
    assert ranked([many, two, one]) == [one, two, many]
    # costs that the clock cannot tell apart leave the order of trial
    dear, second, first = tried("rewrite", 12.8), tried("rewrite", 1.02), tried("rewrite", 1.14)
    assert ranked([dear, second, first, fails]) == [second, first, dear, fails]
    assert ranked([fails, first, second, dear]) == [first, second, dear, fails]


def test_refusals(tmp_path: Path, model: Path) -> None:
    for given, said in (
        ("strategy.fresh=3", "there is nothing to try. Give what earlier runs found"),
        ("strategy.nodes=[abz]", "strategy.nodes=abz: the model has no such node at its top level (did you mean abs?)"),
    ):
        run = worked_around(tmp_path, model, KEPT_APART, given)
        assert run.code == 2 and said in run.output, run.output


def test_what_is_no_set_of_names() -> None:
    assert together("A") == ("A",) and together(["A", "B"]) == ("A", "B")
    for given in ([["A"]], [], 3, {"A": 1}):
        with pytest.raises(UsageError, match="neither a name nor a list of names"):
            together(given)


def test_of_earlier_results_only_names_are_read(tmp_path: Path) -> None:
    cause = {"answers": [{"is_cause": True, "instances": [["a"], ["c", 3]]}, {"is_cause": False, "instances": [["d"]]}]}
    reduced = {"strategy": "reduce", "culprits": ["a", "b"], "cause": cause, "passes": 3, "releases": []}
    releases = {"package": "onnxruntime", "good_before": "1.2", "good_after": None}
    told = {
        "reduce": reduced,
        "versions": {"strategy": "versions", "culprits": ["x"], "releases": releases},
        "passes": {"strategy": "passes", "culprits": ["P"], "passes": {"heals": [["P"], "Q", [], [1]]}},
    }
    for name, result in told.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    found = findings(str(tmp_path / name) for name in told)
    assert found == Findings(("a", "b", "c"), (("P",),), (("onnxruntime", "1.2"),))
    with pytest.raises(UsageError, match="Name the folder of a run"):
        findings([str(tmp_path)])
