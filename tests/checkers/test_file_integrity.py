"""A check that changes what it is given is told so, and its verdict is not kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from runner.checkers.command_template import DIGESTED, Seal, Tampered
from runner.model.files.candidate_store import copy_for_check
from runner.model.files.read_model import STRUCTURE
from runner.model.values import tensor_bytes
from runner.reference.load import clean_up
from runner.verdict import Candidate
from strategies.search import Trial
from tests.chain_models import chain
from tests.harness import Run, by_command, check_script, winnow

CULPRIT = "n3"


def flip(path: Path) -> None:
    """Change a byte in place; the size and the time of the last change stay."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def into_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def into_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def made(folder: Path) -> Candidate:
    """A candidate that names a file of weights beside it."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    tensor_bytes.set_reference(tensor, "side.data", 0, 8)
    graph = helper.make_graph([helper.make_node("Relu", ["w"], ["y"])], "g", [], [], [tensor])
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    (folder / "side.data").write_bytes(bytes(8))
    return Candidate(path, folder, Trial.of([0]))


@pytest.mark.parametrize("change", [flip, Path.unlink, into_a_pipe, into_a_folder])
@pytest.mark.parametrize("name", ["model.onnx", "side.data"])
def test_every_change_is_seen(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    seal = Seal.of(made(tmp_path))
    seal.confirm()
    change(tmp_path / name)
    with pytest.raises(Tampered, match=name):
        seal.confirm()


def test_weights_that_all_candidates_share(tmp_path: Path) -> None:
    """They are too large to be read each time: their size and the time of the last change are looked at."""
    candidate = made(tmp_path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(DIGESTED + 1))
    (tmp_path / STRUCTURE).touch()
    seal = Seal.of(candidate)
    seal.confirm()
    with weights.open("r+b") as file:
        file.write(b"!")
    with pytest.raises(Tampered, match=r"weights\.bin"):
        seal.confirm()


def test_what_was_read_linked_or_written_again_as_it_was_is_no_change(tmp_path: Path) -> None:
    candidate = made(tmp_path)
    seal = Seal.of(candidate)
    path = tmp_path / "model.onnx"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    (tmp_path / "link").hardlink_to(path)
    (tmp_path / "side.data").touch()
    seal.confirm()
    path.write_bytes(b"location\xff" * 9)  # no model, which has no weights
    Seal.of(candidate).confirm()
    Seal.of(Candidate(None, tmp_path, Trial.of([]))).confirm()


def test_a_folder_in_place_of_a_large_candidate_is_cleaned_away(tmp_path: Path) -> None:
    (tmp_path / "store" / "00001.model.onnx" / "deep").mkdir(parents=True)
    clean_up(tmp_path, tmp_path / "artifacts", 1)
    assert not (tmp_path / "store").exists()


def reduced(folder: Path, body: str, *more: str, nodes: int = 6) -> Run:
    """A reduction whose check is ``body``."""
    model = chain(folder / "net.onnx", nodes)
    return winnow(f"model={model}", *by_command(check_script(folder, body)), *more, folder=folder / "run")


@pytest.mark.parametrize(
    ("where", "copied"), [("nowhere", True), ("beside", False), ("context", False), ("no model", False)]
)
def test_a_model_that_names_other_files_is_not_copied(tmp_path: Path, where: str, copied: bool) -> None:
    tensors = [helper.make_tensor(name, TensorProto.UINT8, [8192], bytes(8192), raw=True) for name in "wv"]
    if where == "beside":
        tensor_bytes.set_reference(tensors[1], "beside.bin", 0, 8192)
    context = {"ep_cache_context": "beside.bin"} if where == "context" else {}
    node = helper.make_node("Sum", ["w", "v"], ["y"], **context)
    outputs = [helper.make_tensor_value_info("y", TensorProto.UINT8, [8192])]
    model = helper.make_model(helper.make_graph([node], "g", [], outputs, tensors))
    file, folder = tmp_path / "mine.onnx", tmp_path / "checks" / "1"
    file.write_bytes(b"" if where == "no model" else model.SerializeToString())
    given = copy_for_check(file, folder)
    assert given == (folder / "model.onnx" if copied else file)
    assert given.read_bytes() == file.read_bytes()


def test_what_is_handed_over_is_what_was_verified(tmp_path: Path) -> None:
    """The check spoils the answer itself, after it has read it."""
    body = (
        "if sys.argv[1].endswith('reduced.onnx'): open(sys.argv[1], 'r+b').write(bytes(9))\n"
        f"sys.exit(1 if {CULPRIT!r} in nodes else 0)"
    )
    run = reduced(tmp_path, body)
    assert (run.code, run.result["status"]) == (3, "could_not_judge"), run.output
    assert "reduced.onnx" in run.result["message"]
    assert not (run.folder / "reduced.onnx").exists()


@pytest.mark.slow
def test_odd_things_that_a_check_leaves_behind(tmp_path: Path) -> None:
    """A pipe in place of the log is not waited for, and a line without end is not repeated whole."""
    body = (
        "import os\n"
        "log = os.path.dirname(sys.argv[1]) + '/check.log'\n"
        "print('x' * 3_000_000)\n"
        "if os.path.exists(log) and len(nodes) % 2: os.remove(log); os.mkfifo(log)\n"
        f"sys.exit(1 if {CULPRIT!r} in nodes else 0)"
    )
    run = reduced(tmp_path, body, "strategy.find=one", nodes=30)
    assert (run.code, run.result["culprits"]) == (0, [CULPRIT]), run.output[-2000:]
    assert len(run.output) < 200_000
    assert sum(path.stat().st_size for path in run.folder.glob("*.*")) < 2_000_000
    onnx.checker.check_model(str(run.folder / "reduced.onnx"))


def test_a_check_that_removes_the_folder_of_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = reduced(tmp_path, f"import shutil\nshutil.rmtree({str(folder)!r}, ignore_errors=True)\nsys.exit(1)")
    assert done.code == 1
    assert f"{folder} is gone" in done.output and "Traceback" not in done.output and "bug" not in done.output
