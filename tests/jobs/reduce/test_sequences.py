"""A model whose input, activations and output are sequences: recorded, cut, judged, handed over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from tests.harness import by_command, check_script, winnow
from tests.jobs.models import parsed, saved
from tests.jobs.reduce import test_whole_model_only as whole_model_only
from tests.model.data_sets import read_test_data_set


def model(folder: Path) -> Path:
    text = """g (seq(float[n,3]) s, float[2,3] x) => (float[a,b] y, seq(float[n,3]) v) {
        [insert] t = SequenceInsert(s, x) [erase] u = SequenceErase(t) [again] v = SequenceInsert(u, x)
        [concat] c = ConcatFromSequence<axis = 0>(v) [neg] y = Neg(c) }"""
    return saved(folder / "model.onnx", text)


def data_set(folder: Path) -> Path:
    folder /= "test_data_set_0"
    folder.mkdir()
    sequence = numpy_helper.from_list([np.full((at, 3), at, np.float32) for at in (1, 2)])
    (folder / "input_0.pb").write_bytes(sequence.SerializeToString())
    (folder / "input_1.pb").write_bytes(numpy_helper.from_array(np.zeros((2, 3), np.float32)).SerializeToString())
    return folder


@pytest.mark.slow
def test_a_command_finds_the_recorded_sequences(tmp_path: Path) -> None:
    check = check_script(
        tmp_path,
        "import glob\n"
        "values = {path: open(path, 'rb').read() for path in glob.glob(sys.argv[2] + '/*/input_*.pb')}\n"
        "assert len(values) == len(inputs), values\n"
        "sys.exit(1 if {'erase', 'again'} <= nodes else 0)",
    )
    files = ("inputs=files", f"inputs.path={data_set(tmp_path)}")
    run = winnow(f"model={model(tmp_path)}", *by_command(check, "{data}"), *files, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["erase", "again"]
    assert not [*run.folder.glob("checks/*/data")], "what a check was given is not kept"
    # the model's own inputs come first
    kind = ("sequence", ("tensor", 1))
    found, _ = read_test_data_set(run.folder / "test_data_set_0", [None, kind], [kind])
    assert [file.name for file in found] == ["x", "t"]
    assert found[1].elements == ((1, 3), (2, 3), (2, 3))


@pytest.mark.variants
@pytest.mark.parametrize("checker", ["python", "compare"])
def test_sequences_are_judged(tmp_path: Path, checker: str) -> None:
    (tmp_path / "mine.py").write_text(
        "import onnx\n"
        "def check(path, inputs, expected):\n"
        "    for name, value in inputs[0].items():\n"
        "        assert isinstance(value, list) == (name in 'stuv')\n"
        "    return 'erase' not in [node.name for node in onnx.load(path).graph.node]\n"
    )
    options = {
        "python": ("checker=python", f"checker.file={tmp_path / 'mine.py'}"),
        # both sides run the same: nothing differs, in the sequence neither
        "compare": ("checker=compare", "target=onnx_reference", "checker.tolerance=fixed", "checker.rtol=0"),
    }[checker]
    run = winnow(f"model={model(tmp_path)}", *options, folder=tmp_path / "run")
    assert run.code == (0 if checker == "python" else 4), run.output
    if checker == "python":
        assert run.result["culprits"] == ["erase"]


def test_a_sequence_is_not_put_into_the_whole_model(tmp_path: Path) -> None:
    model = parsed("""g (float[N,8] x) => (float[M,8] y) {
        [exp] e = Exp(x) [pack] s = SequenceConstruct(e, x) [unpack] y = ConcatFromSequence<axis = 0>(s) }""")
    found = whole_model_only.run(tmp_path, "{'ConcatFromSequence'}", model=model)
    assert found.result["unresolved"]["'s' has no value that a model can hold"], found.output
    assert found.result["cause"]["status"] == "untested"
