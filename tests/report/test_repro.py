"""repro.py, generated and run for real: it shows what was found, with nothing of this project on its path."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.report.facts import Facts, Runtime, facts_of
from runner.report.repro import write_repro
from runner.report.summary import Summary
from runner.schema.backend import OnnxReferenceBackend, OnnxRuntimeBackend, Optimization
from runner.schema.checker import AutoChecker, CommandChecker, CompareChecker, FiniteChecker, Golden, PythonChecker
from runner.schema.root import Settings

NASTY = 'a"""\n\'\\N{BULLET}{model}\u2028\u202e`$(id)`@FACTS@\udcff'
UNOPTIMISED = Runtime(optimization="none")
REFERENCE = Runtime("onnx_reference", providers=())


def bundle(folder: Path, op: str, values: dict[str, np.ndarray], outputs: dict[str, int], **attributes: object) -> None:
    """Write reduced.onnx of one node and its test_data_set_0."""
    node = helper.make_node(op, list(values), list(outputs), name="the node", **attributes)
    tensors = [numpy_helper.from_array(value, name) for name, value in values.items()]
    write(folder, [node], tensors, outputs)


def write(folder: Path, nodes: list[onnx.NodeProto], tensors: list[TensorProto], outputs: dict[str, int]) -> None:
    graph = helper.make_graph(
        nodes,
        "reduced",
        [helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in tensors],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "reduced.onnx")
    data = folder / "test_data_set_0"
    data.mkdir()
    for number, tensor in enumerate(tensors):
        (data / f"input_{number}.pb").write_bytes(tensor.SerializeToString())


def found(kind: str, stage: str = "infer", culprits: tuple[str, ...] = ("the node",)) -> Summary:
    signature = {"stage": stage, "kind": kind, "detail": "a hint"}
    return Summary("found", 0, "reduce", culprits=culprits, signature=signature, versions={"onnxruntime": "1.0"})


def run(folder: Path, summary: Summary, facts: Facts) -> tuple[int, str]:
    path = write_repro(folder, summary, facts)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [sys.executable, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", env=environment, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_finite(tmp_path: Path) -> None:
    bundle(tmp_path, "Log", {"x": np.array([-1.0, 0.0, 1.0], np.float32)}, {"y": TensorProto.FLOAT})
    code, text = run(tmp_path, found("nan"), Facts("auto"))
    assert code == 1
    assert "1 NaN, 1 Inf <-- not finite" in text
    assert "'the node'" in text
    assert run(tmp_path, found("nan"), Facts("finite", nan="ignore", inf="ignore"))[0] == 0


def test_overflow_in_half_precision_shows_on_the_reference(tmp_path: Path) -> None:
    bundle(
        tmp_path,
        "Mul",
        {"x": np.array([300.0], np.float16), "z": np.array([300.0], np.float16)},
        {"y": TensorProto.FLOAT16},
    )
    code, text = run(tmp_path, found("inf"), Facts("finite", target=REFERENCE))
    assert code == 1
    assert "onnxruntime" not in text.split("now")[1]


def test_compare_with_a_reference_and_with_recorded_outputs(tmp_path: Path) -> None:
    # ONNX Runtime evaluates the erf of Gelu to fewer digits than a tolerance of zero forgives
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    bundle(tmp_path, "Erf", {"x": x}, {"y": TensorProto.FLOAT})
    strict = Facts("compare", reference=REFERENCE, rtol={"": 0.0}, atol={"": 0.0})
    code, text = run(tmp_path, found("mismatch", "compare"), strict)
    assert code == 1
    assert "<-- differs" in text
    for metric in ("elementwise", "scale", "fraction", "cosine"):
        assert (
            run(tmp_path, found("mismatch", "compare"), Facts("compare", reference=REFERENCE, metrics=(metric,)))[0]
            == 0
        )
    assert run(tmp_path, found("mismatch", "compare"), Facts("compare"))[0] == 2
    expected = numpy_helper.from_array(np.zeros(1000, np.float32), "y")
    (tmp_path / "test_data_set_0" / "output_0.pb").write_bytes(expected.SerializeToString())
    for metric in ("elementwise", "scale", "fraction", "cosine"):
        assert run(tmp_path, found("mismatch", "compare"), Facts("compare", metrics=(metric,)))[0] == 1
    for loose in (Facts("compare", limit=float("inf")), Facts("compare", atol={"": float("inf")})):
        assert run(tmp_path, found("mismatch", "compare"), loose)[0] == 0
    assert run(tmp_path, found("mismatch", "compare"), Facts("compare", reference=REFERENCE, limit=0.0))[0] == 1


@pytest.mark.parametrize("target", [UNOPTIMISED, REFERENCE])
def test_sequences_and_optionals(tmp_path: Path, target: Runtime) -> None:
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
    graph = helper.make_graph(nodes, "reduced", inputs, outputs)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "reduced.onnx"
    )
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
        code, text = run(tmp_path, found("mismatch", "compare"), Facts("compare", target=target))
        assert code == differs, text
        assert "'t[0]'" in text


def test_a_model_that_does_not_run(tmp_path: Path) -> None:
    bundle(tmp_path, "Gather", {"x": np.ones(3, np.float32), "i": np.array([7])}, {"y": TensorProto.FLOAT})
    code, text = run(tmp_path, found("error INVALID_ARGUMENT"), Facts("auto", target=UNOPTIMISED))
    assert code == 1
    assert "out of" in text
    # another status (an older runtime that does not know the model's IR version, say) is another failure
    code, text = run(tmp_path, found("error RUNTIME_EXCEPTION"), Facts("auto", target=UNOPTIMISED))
    assert (code, "not the failure that was found" in text) == (2, True)
    assert run(tmp_path, found("error IndexError"), Facts("runs", target=REFERENCE))[0] == 1
    # the same is no NaN, and no mismatch
    for kind, checker in (("nan", "finite"), ("mismatch", "compare")):
        code, text = run(tmp_path, found(kind), Facts(checker, reference=REFERENCE))
        assert code == 2
        assert "does not run here" in text


def test_a_death_and_a_hang_are_shown_from_outside(tmp_path: Path) -> None:
    bundle(tmp_path, "Abs", {"x": np.ones(3, np.float32)}, {"y": TensorProto.FLOAT})
    assert run(tmp_path, found("death MEMORY"), Facts("auto"))[0] == 0
    # a stand-in for a runtime that dies: a module of its name on the path of the script
    for body, kind, words in (
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "death MEMORY", "killed by SIGSEGV"),
        ("import time; time.sleep(60)", "timeout", "did not end in 3.0 s"),
        ("import time; hoard = b'1' * 400_000_000; time.sleep(60)", "memory", "used more than 300 MiB"),
        ("import os; os._exit(9)", "exit 9", "ended with exit status 9"),
    ):
        (tmp_path / "onnxruntime.py").write_text(f"__version__ = '0'\ndef get_available_providers():\n    {body}\n")
        code, text = run(tmp_path, found(kind), Facts("runs", timeout=3.0, memory_mb=300 if kind == "memory" else None))
        assert code == 1, text
        assert words in text


def test_a_function_of_the_users(tmp_path: Path) -> None:
    folder, check = tmp_path / "run", tmp_path / "check.py"
    bundle(folder, "Abs", {"x": np.ones(3, np.float32)}, {"y": TensorProto.FLOAT})
    facts = Facts("python", file=str(check), timeout=60.0)
    for answer, code in (("False", 1), ("True", 0), ("{'outcome': 'fail', 'worst': 1}", 1), ("'different'", 2)):
        check.write_text(
            f"def check(model, inputs, expected):\n    assert inputs[0]['x'].shape == (3,)\n    return {answer}\n"
        )
        assert run(folder, found("returned fail", "check"), facts)[0] == code
    check.write_text("import os\ndef check(model, inputs, expected):\n    os.abort()\n")
    assert run(folder, found("death MEMORY", "check"), facts)[0] == 1
    # a function that raises has not judged, and a traceback's exit status is that of a failure which shows
    check.write_text("def check(model, inputs, expected):\n    raise ValueError('boo')\n")
    code, text = run(folder, found("returned fail", "check"), facts)
    assert (code, "boo" in text) == (2, True)
    check.unlink()
    assert run(folder, found("returned fail", "check"), facts)[0] == 2


def test_files_that_are_broken_are_no_failure(tmp_path: Path) -> None:
    bundle(tmp_path, "Log", {"x": np.array([-1.0], np.float32)}, {"y": TensorProto.FLOAT})
    (tmp_path / "test_data_set_0" / "input_0.pb").write_bytes(b"\xff")
    assert run(tmp_path, found("nan"), Facts("finite"))[0] == 2


def test_session_settings(tmp_path: Path) -> None:
    bundle(tmp_path, "Log", {"x": np.array([-1.0], np.float32)}, {"y": TensorProto.FLOAT})
    settings = OnnxRuntimeBackend(
        providers=[{"CPUExecutionProvider": {"use_arena": "0"}}],  # type: ignore[list-item]
        session_options={"enable_mem_pattern": "false"},
        custom_ops=["ops.so", "onnxruntime_extensions"],
    )
    whole = Settings(target=settings, reference=OnnxRuntimeBackend(), checker=FiniteChecker())  # type: ignore[call-arg]
    facts = facts_of(whole, tmp_path)
    assert facts.target.custom_ops == (str(tmp_path / "ops.so"), "onnxruntime_extensions")
    code, text = run(tmp_path, found("nan"), facts)
    assert (code, "custom operators of" in text) == (2, True)
    plain = replace(facts, target=replace(facts.target, custom_ops=()))
    code, text = run(tmp_path, found("nan"), plain)
    assert (code, "cannot tell" in text) == (1, False), text


def test_nan_where_the_reference_has_none_is_a_difference(tmp_path: Path) -> None:
    bundle(tmp_path, "Log", {"x": np.array([-1.0, 1.0], np.float32)}, {"y": TensorProto.FLOAT})
    for good, code in (([0.0, 0.0], 1), ([np.nan, 0.0], 0)):
        expected = numpy_helper.from_array(np.array(good, np.float32), "y")
        (tmp_path / "test_data_set_0" / "output_0.pb").write_bytes(expected.SerializeToString())
        assert run(tmp_path, found("nan", "compare"), Facts("auto"))[0] == code


def test_bfloat16_and_float8_go_in_and_come_out(tmp_path: Path) -> None:
    for kind in (TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN):
        folder = tmp_path / str(kind)
        tensor = helper.make_tensor("x", kind, [2], [1.5, -2.0])
        write(folder, [helper.make_node("Identity", ["x"], ["y"])], [tensor], {"y": kind})
        expected = helper.make_tensor("y", kind, [2], [1.5, -2.0])
        (folder / "test_data_set_0" / "output_0.pb").write_bytes(expected.SerializeToString())
        code, text = run(folder, found("mismatch"), Facts("compare"))
        assert (code, "cannot tell" in text) == (0, False), text
        assert "max |b| = 2" in text
    folder = tmp_path / "nan"
    tensor = helper.make_tensor("x", TensorProto.BFLOAT16, [1], [float("nan")])
    write(folder, [helper.make_node("Identity", ["x"], ["y"])], [tensor], {"y": TensorProto.BFLOAT16})
    assert run(folder, found("nan"), Facts("finite"))[0] == 1


@pytest.mark.parametrize(
    ("script", "rules", "code"),
    [
        ("sys.exit(1)", {}, 1),
        ("sys.exit(0)", {}, 0),
        ("sys.exit(1)", {"fail_codes": (3,)}, 0),
        ("sys.exit(3)", {"fail_codes": (3,), "fail_regex": ("^boo",)}, 0),
        ("print('hey\\nboo'); sys.exit(3)", {"fail_codes": (3,), "fail_regex": ("^boo",)}, 1),
        ("print('boo')", {"fail_regex": ("boo",)}, 1),
        ("sys.exit(5)", {"pass_codes": (5,)}, 0),
        ("sys.exit(4)", {"different_codes": (4,)}, 2),
        ("sys.exit(2)", {"invalid_codes": (2,)}, 2),
        ("sys.exit(127)", {}, 2),
        ("os.abort()", {}, 2),
    ],
)
def test_a_command_is_judged_by_its_codes(tmp_path: Path, script: str, rules: dict[str, tuple[int]], code: int) -> None:
    bundle(tmp_path, "Abs", {"x": np.ones(3, np.float32)}, {"y": TensorProto.FLOAT})
    command = (sys.executable, "-c", f"import os, sys\n{script}", "{model}")
    assert run(tmp_path, found("exit 1", "check"), Facts("command", command=command, **rules))[0] == code  # type: ignore[arg-type]


def test_a_command_gets_its_files_place_and_death(tmp_path: Path) -> None:
    folder, stand = tmp_path / "run", tmp_path / "stand"
    stand.mkdir()
    bundle(folder, "Abs", {NASTY[:4] + "/x": np.full(3, 2.0, np.float32)}, {"y": TensorProto.FLOAT})
    script = (
        "import os, sys, numpy, onnx\n"
        "feeds = numpy.load(sys.argv[2])\n"
        "(name,) = [value.name for value in onnx.load(sys.argv[1]).graph.input]\n"
        "assert feeds[name].tolist() == [2.0, 2.0, 2.0]\n"
        "assert os.path.isdir(os.path.join(os.environ['WINNOW_DATA'], 'test_data_set_0'))\n"
        "assert sys.argv[3] == '{' + 'model} {other}', sys.argv\n"
        "assert onnx.load('fixed.onnx').graph.node[0].op_type == 'Abs'\n"
        "os.abort()\n"
    )
    command = (sys.executable, "-c", script, "{model}", "{inputs}", "{{model}} {other}")
    facts = Facts("command", command=command, place="fixed.onnx", cwd=str(stand))
    code, text = run(folder, found("death MEMORY", "check"), facts)
    assert (code, "SIGABRT" in text) == (1, True), text
    assert list(stand.iterdir()) == []
    (stand / "fixed.onnx").write_bytes(b"a file of the user's")
    assert run(folder, found("death MEMORY", "check"), facts)[0] == 2
    assert (stand / "fixed.onnx").read_bytes() == b"a file of the user's"
    (stand / "fixed.onnx").unlink()
    # its weights lie beside it, under the name that it has for them
    model = onnx.load(str(folder / "reduced.onnx"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    onnx.save(model, str(folder / "reduced.onnx"), save_as_external_data=True, location="w.data", size_threshold=0)
    whole = script.replace("os.abort", "assert onnx.load('fixed.onnx').graph.initializer[0].raw_data; os.abort")
    facts = replace(facts, command=(*command[:2], whole, *command[3:]))
    code, text = run(folder, found("death MEMORY", "check"), facts)
    assert (code, list(stand.iterdir())) == (1, []), text
    (stand / "w.data").write_bytes(b"a file of the user's")
    assert run(folder, found("death MEMORY", "check"), facts)[0] == 2
    assert [path.name for path in stand.iterdir()] == ["w.data"]
    assert run(folder, found("exit 1", "check"), Facts("command", command=("/no/such/program",)))[0] == 2


def test_names_never_become_code(tmp_path: Path) -> None:
    bundle(tmp_path, "Log", {"x": np.array([-1.0], np.float32)}, {"y": TensorProto.FLOAT})
    facts = Facts("finite", outputs=(NASTY,), env={"A": NASTY})
    code, text = run(tmp_path, found("nan", NASTY, (NASTY, "@NEEDS@")), facts)
    assert code == 1
    assert ascii(NASTY) in text
    source = (tmp_path / "repro.py").read_text()
    assert "\u202e" not in source
    assert "@NEEDS@" in source


def test_facts_of_a_configuration(tmp_path: Path) -> None:
    reference = OnnxRuntimeBackend(optimization=Optimization.none)

    def settings(**given: object) -> Settings:
        return Settings(**{"target": OnnxRuntimeBackend(), "reference": reference, **given})  # type: ignore[arg-type]

    assert facts_of(settings(checker=AutoChecker()), tmp_path).reference == UNOPTIMISED
    assert facts_of(settings(checker=CompareChecker(golden=Golden.ahead)), tmp_path).reference is None
    other = OnnxReferenceBackend(model="fp32.onnx")
    assert facts_of(settings(checker=CompareChecker(), reference=other), tmp_path).reference is None
    assert facts_of(settings(checker=FiniteChecker(inf=False)), tmp_path).inf == "ignore"
    assert facts_of(settings(checker=PythonChecker(file="a.py")), tmp_path).file == str(tmp_path / "a.py")
    command = facts_of(settings(checker=CommandChecker(command="python 'a b.py' {model}", fail_codes=[1])), tmp_path)
    assert command.command == ("python", "a b.py", "{model}")
    assert (command.fail_codes, command.cwd) == ((1,), str(tmp_path))
