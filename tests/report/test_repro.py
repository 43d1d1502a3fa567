"""repro.py, generated and run for real: it shows what was found, with nothing of this project on its path."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.checkers import metrics
from runner.checkers.task_metrics import TASKS
from runner.checkers.tolerances import rules_of
from runner.report.repro.fill_templates import held, runner, template, values_of
from runner.report.repro.write import REPRO_NAME, _flaky
from runner.report.repro.write import values_of as values_of_check
from runner.report.result_parts import CheckReliability, Count, KnownFailure
from runner.report.summary import Summary
from runner.schema.backend import (
    BackendSettings,
    OnnxRuntimeBackend,
    TensorRtBackend,
)
from runner.schema.checker import (
    CheckerSettings,
    CommandChecker,
    CompareChecker,
    FiniteChecker,
    Golden,
    Metric,
    NonFinite,
    Statistic,
)
from runner.schema.root import Settings
from tests.model.models import model_of
from tests.report.handed import REFERENCE, UNOPTIMIZED, lay, write_repro

NASTY = 'a"""\n\'\\N{BULLET}{model}\u2028\u202e`$(id)`@FACTS@\udcff'
AHEAD = CompareChecker(golden=Golden.ahead)


def settings(checker: CheckerSettings, target: BackendSettings = UNOPTIMIZED) -> Settings:
    return Settings(target=target, reference=REFERENCE, checker=checker)  # type: ignore[arg-type]


def log_of(folder: Path, *values: float) -> None:
    """Write reduced.onnx of one Log and its data set."""
    lay(folder, [helper.make_node("Log", ["x"], ["y"])], {"x": np.array(values, np.float32)})


def found(kind: str, stage: str = "infer", culprits: tuple[str, ...] = ("the node",)) -> Summary:
    signature = KnownFailure(stage, kind, "a hint")
    return Summary("found", 0, "reduce", culprits=culprits, signature=signature, versions={"onnxruntime": "1.0"})


def run(folder: Path, summary: Summary, given: Settings, cwd: Path | None = None) -> tuple[int, str]:
    write_repro(folder, summary, given, cwd or folder)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [sys.executable, str(folder / REPRO_NAME)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", env=environment, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.variants
@pytest.mark.parametrize("target", [UNOPTIMIZED, REFERENCE])
def test_sequences_and_optionals(tmp_path: Path, target: BackendSettings) -> None:
    """Fed, and compared, element by element."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("OptionalHasElement", ["o"], ["b"]),
    ]
    inputs = [
        helper.make_value_info("s", kind),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_value_info("o", helper.make_optional_type_proto(kind)),
    ]
    outputs = [helper.make_value_info("t", kind), helper.make_tensor_value_info("b", TensorProto.BOOL, [])]
    onnx.save(model_of(nodes, inputs, outputs, opset=18), tmp_path / "reduced.onnx")
    one, x = np.ones(3, np.float32), np.zeros(2, np.float32)
    (tmp_path / "test_data_set_0").mkdir()

    def write(name: str, message: object) -> None:
        (tmp_path / "test_data_set_0" / f"{name}.pb").write_bytes(message.SerializeToString())

    write("input_0", numpy_helper.from_list([one], "s"))
    write("input_1", numpy_helper.from_array(x, "x"))
    write("input_2", onnx.OptionalProto(elem_type=onnx.OptionalProto.SEQUENCE, name="o"))
    write("output_1", numpy_helper.from_array(np.array(False), "b"))
    for expected, differs in (([one, x], 0), ([one, x + 1], 1), ([one, x, x], 1)):
        write("output_0", numpy_helper.from_list(expected, "t"))
        code, text = run(tmp_path, found("mismatch", "compare"), settings(AHEAD, target))
        assert code == differs, text
        assert "t[0]" in text


@pytest.mark.slow
def test_session_settings(tmp_path: Path) -> None:
    log_of(tmp_path, -1.0)
    backend = OnnxRuntimeBackend(
        providers=[{"CPUExecutionProvider": {"use_arena": "0"}}],  # type: ignore[list-item]
        session_options={"enable_mem_pattern": "false"},
        custom_ops=["ops.so", "onnxruntime_extensions"],
    )
    source = runner("target", backend, tmp_path)
    assert f"register(options, {str(tmp_path / 'ops.so')!r})" in source
    assert "register(options, 'onnxruntime_extensions')" in source
    code, text = run(tmp_path, found("nan"), settings(FiniteChecker(), backend))
    assert (code, "custom operators of" in text) == (2, True)
    code, text = run(tmp_path, found("nan"), settings(FiniteChecker(), replace(backend, custom_ops=[])))
    assert (code, "cannot tell" in text) == (1, False), text
    without = replace(backend, custom_ops=[], disabled_optimizers=["GeluFusionL2"])
    assert "disabled_optimizers=['GeluFusionL2'])" in runner("target", without, tmp_path)
    code, text = run(tmp_path, found("nan"), settings(FiniteChecker(), without))
    assert (code, "cannot tell" in text) == (1, False), text


def test_bfloat16_and_float8_go_in_and_come_out(tmp_path: Path) -> None:
    for kind in (TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN):
        folder = tmp_path / str(kind)
        tensor = helper.make_tensor("x", kind, [2], [1.5, -2.0])
        expected = helper.make_tensor("y", kind, [2], [1.5, -2.0])
        lay(folder, [helper.make_node("Identity", ["x"], ["y"])], {"x": tensor}, {"y": expected})
        code, text = run(folder, found("mismatch", "compare"), settings(AHEAD))
        assert (code, "cannot tell" in text) == (0, False), text
        assert "error (scale) 0 of 0.01" in text
    folder = tmp_path / "nan"
    tensor = helper.make_tensor("x", TensorProto.BFLOAT16, [1], [float("nan")])
    lay(folder, [helper.make_node("Identity", ["x"], ["y"])], {"x": tensor})
    assert run(folder, found("nan"), settings(FiniteChecker()))[0] == 1


def test_a_command_gets_its_files_place_and_death(tmp_path: Path) -> None:
    folder, stand = tmp_path / "run", tmp_path / "stand"
    stand.mkdir()
    name = f"{NASTY[:4]}/x"
    lay(folder, [helper.make_node("Abs", [name], ["y"])], {name: np.full(3, 2.0, np.float32)})
    script = (
        "import os, sys, numpy, onnx\n"
        "feeds = numpy.load(sys.argv[2])\n"
        "(name,) = [value.name for value in onnx.load(sys.argv[1]).graph.input]\n"
        "assert feeds[name].tolist() == [2.0, 2.0, 2.0]\n"
        "assert os.path.isdir(os.path.join(os.environ['WINNOW_DATA'], 'test_data_set_0'))\n"
        "assert sys.argv[3] == chr(123) + 'model} ' + chr(123) + 'other}', sys.argv\n"
        "assert onnx.load('fixed.onnx').graph.node[0].op_type == 'Abs'\n"
        "os.abort()\n"
    )
    command = (sys.executable, "-c", script, "{model}", "{inputs}", "{{model}} {{other}}")
    given = settings(CommandChecker(command=list(command), place="fixed.onnx"))
    code, text = run(folder, found("death MEMORY", "check"), given, stand)
    assert (code, "death MEMORY" in text) == (1, True), text
    assert list(stand.iterdir()) == []
    (stand / "fixed.onnx").write_bytes(b"a file of the user's")
    assert run(folder, found("death MEMORY", "check"), given, stand)[0] == 2
    assert (stand / "fixed.onnx").read_bytes() == b"a file of the user's"
    (stand / "fixed.onnx").unlink()
    # its weights lie beside it, under the name that it has for them
    model = onnx.load(str(folder / "reduced.onnx"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    onnx.save(model, str(folder / "reduced.onnx"), save_as_external_data=True, location="w.data", size_threshold=0)
    whole = script.replace("os.abort", "assert onnx.load('fixed.onnx').graph.initializer[0].raw_data; os.abort")
    given = settings(CommandChecker(command=[*command[:2], whole, *command[3:]], place="fixed.onnx"))
    code, text = run(folder, found("death MEMORY", "check"), given, stand)
    assert (code, list(stand.iterdir())) == (1, []), text
    (stand / "w.data").write_bytes(b"a file of the user's")
    assert run(folder, found("death MEMORY", "check"), given, stand)[0] == 2
    assert [path.name for path in stand.iterdir()] == ["w.data"]


def test_what_a_build_puts_into_it(tmp_path: Path) -> None:
    backend = TensorRtBackend(
        plugins=["p.so"],
        profiles={"x": {"min": [1, 2], "opt": [1, 4], "max": [1, 8]}, "y": [3, 3]},
        shape_values={"s": [[1], [2], [3]]},
        memory_pools={"WORKSPACE": "64 MiB"},
        compute_capabilities=["8.6"],
    )
    given = values_of(backend, tmp_path)
    assert given["plugins"] == [str(tmp_path / "p.so")]
    assert given["profiles"] == {"x": ([1, 2], [1, 4], [1, 8]), "y": ([3, 3], [3, 3], [3, 3])}
    assert given["shape_values"] == {"s": ([1], [2], [3])}
    assert (given["memory_pools"], given["compute_capabilities"]) == ({"WORKSPACE": 64 * 2**20}, ["SM86"])


def of_the_template(rule: CompareChecker) -> Callable[..., tuple[str, str]]:
    """The comparison that a script holds."""
    values = {**values_of_check(rule, Path(), {}), "whole": True}
    space = {"np": np, **{name.upper(): getattr(value, "value", value) for name, value in values.items()}}
    exec("\n".join(held(template("compare"), values)), space)
    return space["difference"]  # type: ignore[no-any-return]


@pytest.mark.variants
@pytest.mark.parametrize(
    "metric", [*(one for one in Metric if one not in TASKS), Metric.sqnr, [Metric.scale, Metric.cosine]]
)
def test_it_compares_as_the_checker_does(metric: Any) -> None:
    """On any values, under any rule: it repeats what the checker measures, since it runs without it.

    In place of a metric of all samples it has that of tensors inside a model.
    """
    rounds = [(a, b) for a, b in itertools.product(_VALUES, _VALUES) if a.dtype == b.dtype]
    policies = itertools.product([Statistic.max], NonFinite, NonFinite)
    statistics = itertools.product(Statistic, [NonFinite.compare], [NonFinite.compare])
    for statistic, nan, inf in (*policies, *statistics):
        named: dict[str, Any] = {"metric": metric, "statistic": statistic, "nan": nan, "inf": inf, "quantile": 0.7}
        rule = CompareChecker(**named, fraction=0.1, rtol=0.05, atol=0.01, cosine=0.001)
        difference = of_the_template(rule)
        for a, b in rounds:
            wanted = [metrics.compare(a, b, one) for one in rules_of(rule).of_output("y")]
            kinds = {one.kind or "mismatch" for one in wanted if one.fails()}
            worst = next((kind for kind in metrics.KINDS if kind in kinds), "")
            assert difference(a, b, "y")[0] == worst, (rule, a, b)


def _values() -> Iterator[np.ndarray]:
    """Tensors that are near each other, far apart, not finite in places, zeros, and whole numbers."""
    random = np.random.default_rng(0)
    good = random.normal(size=20).astype(np.float32)
    yield from (good, good + 0.02 * random.normal(size=20), np.where(np.arange(20) == 3, 5 * good, good), -good)
    for value in (np.nan, np.inf, -np.inf):
        yield np.where(np.arange(20) == 7, value, good)
    yield np.where(np.arange(20) == 7, np.nan, np.where(np.arange(20) == 8, np.inf, good))
    yield np.where(np.arange(20) < 9, np.nan, np.inf)
    yield np.zeros(20, np.float32)
    yield np.arange(20)
    yield np.where(np.arange(20) == 3, 4, np.arange(20))
    yield np.zeros(20, np.int64)


_VALUES = [array if array.dtype == np.int64 else array.astype(np.float32) for array in _values()]


def test_a_flaky_failure_is_tried_until_it_shows(tmp_path: Path) -> None:
    """One that fails in 6 of 20 checks passes in most single ones, and that is no news."""
    folder = tmp_path / "run"
    log_of(folder, 2.0)
    count = tmp_path / "count"
    script = f"import sys\nwith open({str(count)!r}, 'a+') as f:\n f.write('.')\n sys.exit(f.tell() == 9)\n"
    given = settings(CommandChecker(command=[sys.executable, "-c", script, "{model}"]))

    def tried(whole: int, control: int) -> tuple[int, int, str]:
        count.unlink(missing_ok=True)
        rates = CheckReliability(whole_model=Count(whole, 20), control=Count(control, 20))
        code, said = run(folder, replace(found("exit 1", "check"), reliability=rates), given)
        return code, len(count.read_text()), said

    assert tried(6, 0)[:2] == (1, 9)
    code, times, said = tried(19, 0)
    assert (code, times) == (0, 4)  # it fails nearly always: four are enough to say that it does not
    assert (
        "did not show in 4 tries. 19 of 20 checks failed" in said and "fewer than 1 run of this script in 1000" in said
    )
    assert tried(20, 0)[:2] == (0, 1)
    code, times, said = tried(6, 1)
    assert (code, times) == (0, 1) and "tries" not in said  # what must pass fails too: more tries would show that
    assert run(folder, found("exit 1", "check"), given)[0] == 0


@pytest.mark.parametrize("of", [2, 20, 1000])
def test_a_flaky_failure_is_missed_by_fewer_than_one_script_in_a_thousand(of: int) -> None:
    for failed in {1, of // 4, of // 2, of - 1} - {0}:
        rates = CheckReliability(whole_model=Count(failed, of), control=Count(0, of))
        times = _flaky(replace(found("exit 1", "check"), reliability=rates))["times"]
        assert (1 - failed / of) ** times < 0.001, (failed, times)
