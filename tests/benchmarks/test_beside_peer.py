"""What a command costs, what its answer is, and the tables of both; models that are written piece by piece."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import generated_models
from benchmarks.beside_peer import (
    COLUMNS,
    Cost,
    Limits,
    Measured,
    Question,
    Row,
    Tool,
    add_row,
    lines,
    load_rows,
    measure,
    page,
    room,
    run,
    save_rows,
)
from benchmarks.generated_models import by_nodes, by_weights, culprit, decoder_stack

TIMES = "times the first: wall, CPU"
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def measured(wall: float, *, left: int | None = 1, error: str = "", job: float = 10) -> Measured:
    cost = Cost(0, wall, cpu=2.0, job_mb=job, tree_mb=2 * job)
    return Measured("any", cost, 10, 8, 2, 0.5, left, left == 1, 0.25, error)


def row(**runs: list[Measured]) -> Row:
    return Row("growth with nodes", "chain|", 1000, 1.5, 1000, runs)


def cells(line: str) -> dict[str, str]:
    return dict(zip(COLUMNS, (cell.strip() for cell in line.strip("|").split(" | ")), strict=True))


def test_a_line_has_medians_and_the_ratio_to_the_first_tool() -> None:
    first, second = map(
        cells, lines(row(peer=[measured(4), measured(8), measured(6, left=3)], ours=[measured(3), measured(1)]))
    )
    assert (first["wall s"], first[TIMES], first["exact"], first["left"]) == ("6.0", "1.00, 1.00", "2 of 3", "1")
    assert (second["wall s"], second[TIMES], second["exact"]) == ("2.0", "0.33, 1.00", "2 of 2")
    assert (second["beside checks, ms per check"], second["search + trust"]) == ("50", "8 + 2")
    assert (second["job MB"], second["tree MB"], second["disk MB"]) == ("10", "20", "0.2")


def test_a_run_without_an_answer_gives_no_seconds_and_no_ratio() -> None:
    broken = row(peer=[measured(600, left=None, error="stopped at 600 s | x")], ours=[measured(3)])
    first, second = map(cells, lines(broken))
    assert (first["wall s"], first[TIMES]) == ("stopped at 600 s / x", "")
    assert (first["exact"], first["left"]) == ("0 of 1", "")
    assert (second["wall s"], second[TIMES]) == ("3.0", "")


def grown() -> list[Row]:
    small, large = row(peer=[measured(1)], ours=[measured(2)]), row(peer=[measured(9, error="no")], ours=[measured(3)])
    large.at = 10_000
    return [small, large]


def test_a_page_has_a_table_for_each_group() -> None:
    text = page("Title", ["a note"], grown())
    assert text.count("## growth with nodes") == 1
    assert text.count("\n|") == 6


@pytest.mark.parametrize("inside", [True, False])
def test_models_are_valid_whether_their_weights_lie_inside_or_not(tmp_path: Path, monkeypatch, inside: bool) -> None:
    if not inside:
        monkeypatch.setattr(generated_models, "_MOST_INSIDE", 100)
    for write, count in ((lambda path: by_nodes(40, path), 40), (lambda path: decoder_stack(1, 8, path), 29)):
        path = tmp_path / "folder" / "model.onnx"
        write(path)
        assert (tmp_path / "folder" / "weights.bin").is_file() is not inside
        onnx.checker.check_model(path, full_check=True)
        model = onnx.load(path)
        assert len(model.graph.node) == count
        assert all(np.isfinite(onnx.numpy_helper.to_array(tensor)).all() for tensor in model.graph.initializer)
        assert culprit(path, 0.5) == (f"v{count // 2}", count)


def test_weights_have_the_size_that_was_asked_for(tmp_path: Path) -> None:
    by_weights(1, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size == pytest.approx(1e6, rel=0.03)


def test_rows_of_an_earlier_run_stay_unless_they_are_measured_anew(tmp_path: Path) -> None:
    first = [row(peer=[measured(4)]), row(ours=[measured(7, left=None, error="no")])]
    first[0].group = first[1].group = "models"
    first[1].name = "other"
    save_rows(tmp_path, "a note", {"Winnow": {"commit": "abc"}}, first)
    rows = load_rows(tmp_path)
    assert rows == first
    again = row(peer=[measured(5)])
    again.group = "models"
    add_row(rows, again)
    assert rows == [again, first[1]]
    assert load_rows(tmp_path / "new") == []


@linux
def test_memory_of_a_process_and_of_those_that_it_starts(tmp_path: Path) -> None:
    child = "import time; held = b'x' * 80_000_000; time.sleep(0.3)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}]); sys.exit(3)"
    cost = measure([sys.executable, "-S", "-c", code], tmp_path, {}, Limits(60), tmp_path / "log")
    assert cost.code == 3
    assert cost.stopped == ""
    assert cost.tree_mb > 80 > cost.job_mb > 1


@linux
@pytest.mark.parametrize(("limits", "words"), [(Limits(0.1), "0 s"), (Limits(60, 0.5), "0 MB")])
def test_a_command_that_takes_too_much_is_killed_with_all_that_it_started(tmp_path: Path, limits, words) -> None:
    cost = measure(["sh", "-c", "sleep 600 & echo $!; wait"], tmp_path, {}, limits, tmp_path / "log")
    assert cost.stopped == words
    assert cost.code == -9
    # it may have been stopped before it had started anything
    assert not [number for number in (tmp_path / "log").read_text().split() if Path(f"/proc/{number}/exe").exists()]


def test_room_on_the_disk_counts_a_file_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 1_000_000)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert room(tmp_path) == pytest.approx(1, rel=0.1)


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    "tool", [Tool("winnow"), Tool("plain", options=("checker.preload=[]",)), Tool("a function", function=True)]
)
def test_winnow_is_measured(tmp_path: Path, tool: Tool) -> None:
    by_nodes(8, tmp_path / "model.onnx")
    found = run(tool, Question(tmp_path / "model.onnx", "v3"), tmp_path / "scratch", Limits(120))
    assert (found.left, found.exact, found.error) == (1, True, "")
    assert found.checks == found.search + found.trust > 4
    assert 0 < found.beside < found.cost.cpu
    assert found.disk_mb > 0
