"""The parser of the autotuning log. Samples have the form of NVIDIA's documentation of its editable timing cache."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.backends.trt import tactics
from runner.backends.trt.tactics import Record, TacticsLog, account, parse_file, plain_hash

KEY_1 = "0x1814870c44ff0f8574df6e3dda04cbd7"
KEY_2 = "0xb222b0832016f1115ff61116c094875a"
KEY_3 = "0xe5c222cd6b9e29cbe66c8bec07cb6a07"
FAST = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_warpsize2x1x2_tensor16x8x8"
SLOW = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x32x64_stage4_warpsize2x1x2_tensor16x8x8"
HEAD = "Sorted table of all evaluated tactics:"
COLUMNS = (
    "tactic_id, cost(in ms), cost/fastest_cost, prediction_correlation, kernel_name, tactic_hash, tunable_parameter"
)
FIRST = [
    f"Autotuning op matMul1(key: {KEY_1}):",
    HEAD,
    COLUMNS,
    f"   3, 0.0112640, 1.00000, 0.50673, {FAST}, 0x665ded9abbf88,",
    f"   5, 0.0118784, 1.05455, 0.51157, {SLOW}, 0x393e4ef8ad243,",
    "The selected tactic is (tactic hash, cost(in ms)):0x665ded9abbf88,  0.011264",
    "Writing the best tactic (0x665ded9abbf88) to cache",
]
SECOND = [
    f"Autotuning op matMul2(key: {KEY_2}):",
    HEAD,
    COLUMNS,
    f"   5, 0.0112640, 1.00000, 0.50673, {SLOW}, 0x393e4ef8ad243,",
    f"   3, 0.0118784, 1.05455, 0.51157, {FAST}, 0x665ded9abbf88,",
    "The selected tactic is (tactic hash, cost(in ms)):0x393e4ef8ad243,  0.011264",
]
# as later versions word it
NODES = [
    f"Autotuning op node_linear(key: {KEY_3}): [ONNX Layer: /a/Mat[Mul]]\x1e[ONNX Layer: /a/Add]",
    HEAD,
    COLUMNS,
    "   4, 0.0126784, 1.00000, 0.84378, sm80_xmma_gemm_tilesize32x32x64_, 0x2c80ce2f5c4a6,",
    "The selected tactic is (tactic hash, cost(in ms)):0x2c80ce2f5c4a6, 0.0126784",
]


def parse(lines: list[str]) -> list[Record]:
    log = TacticsLog()
    for line in lines:
        log.hear(line)
    return log.records


def chosen(lines: list[str]) -> dict[str, str | None]:
    return {record.op: record.selected for record in parse(lines)}


def test_operators_keys_tactics_and_what_was_selected() -> None:
    first, second = parse([*FIRST, *SECOND])
    assert (first.op, first.key, first.selected, first.ms) == ("matMul1", KEY_1, "0x665ded9abbf88", 0.011264)
    assert first.kernels == {"0x665ded9abbf88": FAST, "0x393e4ef8ad243": SLOW}
    assert [record.kernels[record.selected or ""] for record in (first, second)] == [FAST, SLOW]
    assert first.nodes == ()


PREFIXES = ("[VERBOSE] ", "[11/01/2024-10:32:46] [V] [TRT] ", "    ", "2026-01-02 03:04:05,678: ")
NOISE = ["Layer: 3, 4, 5", "0x", "Tactic: 0x123 Time: 0.5", "CUDA lazy loading is not enabled", "1, 2, 3, 4, a b"]


@pytest.mark.parametrize(
    "lines",
    [
        *([prefix + line for line in (*FIRST, *SECOND)] for prefix in PREFIXES),
        pytest.param(["\n".join(FIRST), "\n".join(SECOND)], id="messages of several lines"),
        pytest.param([part for line in (*FIRST, *SECOND) for part in (line, *NOISE)], id="foreign lines in between"),
        pytest.param([*FIRST[:5], *SECOND[:3], FIRST[5], *SECOND[3:]], id="begun before the last one is decided"),
    ],
)
def test_however_the_lines_come(lines: list[str]) -> None:
    assert chosen(lines) == {"matMul1": "0x665ded9abbf88", "matMul2": "0x393e4ef8ad243"}
    assert [len(record.kernels) for record in parse(lines)] == [2, 2]


def test_what_an_operator_is_called_and_the_onnx_nodes_behind_it() -> None:
    (record,) = parse([NODES[0].replace("node_linear", "{ForeignNode[a (copy)...b]} (x)"), *NODES[1:]])
    assert (record.op, record.nodes) == ("{ForeignNode[a (copy)...b]} (x)", ("/a/Mat[Mul]", "/a/Add"))


def test_a_log_that_was_cut_off_anywhere() -> None:
    """Whatever is said of an operator is what the log says; nothing is made up from half a line."""
    text = "\n".join([*FIRST, *SECOND])
    for end in range(0, len(text), 7):
        found = chosen(text[:end].splitlines())
        assert found.get("matMul1") in {None, "0x665ded9abbf88"}
        assert found.get("matMul2") in {None, "0x393e4ef8ad243"}
    assert chosen(text[: text.index("The selected") + 60].splitlines())["matMul1"] is None


def test_a_selection_whose_head_is_lost_belongs_to_nobody() -> None:
    assert parse(FIRST[3:]) == []
    assert chosen([*FIRST[3:], *SECOND]) == {"matMul2": "0x393e4ef8ad243"}
    assert chosen([*SECOND[:4], FIRST[5]]) == {"matMul2": None}, "it was not offered this tactic"


def test_timed_again_counts_as_decided_last() -> None:
    again = [FIRST[0], *FIRST[1:5], FIRST[5].replace("0x665ded9abbf88", "0x393e4ef8ad243")]
    (record,) = parse([*FIRST, *again])
    assert record.selected == "0x393e4ef8ad243"


def test_hashes_have_one_spelling() -> None:
    assert plain_hash("0x00665DED9abbf88") == "0x665ded9abbf88"
    for wrong in ("0x1ffffffffffffffff", "-1", "x"):
        with pytest.raises(ValueError):
            plain_hash(wrong)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.sampled_from([*FIRST, *SECOND, *NODES]), st.text()), max_size=40))
def test_no_text_breaks_it(lines) -> None:
    for record in parse(lines):
        assert len(record.key) == 34


def test_memory_stays_bounded(monkeypatch) -> None:
    monkeypatch.setattr(tactics, "MOST_RECORDS", 100)
    log = TacticsLog()
    tracemalloc.start()
    for number in range(5_000):
        log.hear(f"Autotuning op op{number}(key: 0x{number:032x}):")
        log.hear(f"{number}, 0.1, 1.0, 0.5, k{'x' * 100}, 0x{number + 1:x},")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(log.records) <= 100 + tactics.MOST_OPEN
    assert held < 1 << 20


def test_files_without_line_ends_and_with_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_bytes(b"\xff" * 300_000 + b"\n" + "\n".join(FIRST).encode() + b"\n\xfe\xff")
    assert [record.op for record in parse_file(str(path))] == ["matMul1"]
    path.write_bytes("\r\n".join(NODES).encode())
    assert [record.nodes for record in parse_file(str(path))] == [("/a/Mat[Mul]", "/a/Add")]


# ---- with the cache


def test_the_cache_says_what_was_chosen_and_the_log_which_operator_it_is() -> None:
    cache = {KEY_1: ("0x393e4ef8ad243", 0.5), "0x" + "0" * 32: ("0x7", 0.1)}
    told = account(cache, parse([*FIRST, *SECOND]))
    assert [(one["layer"], one["key"], one["tactic"], one["kernel"]) for one in told["choices"]] == [
        ("matMul1", KEY_1, "0x393e4ef8ad243", SLOW),
        ("", "0x" + "0" * 32, "0x7", ""),
        ("matMul2", KEY_2, "0x393e4ef8ad243", SLOW),
    ]


def test_what_was_timed_although_it_was_pinned() -> None:
    told = account({KEY_1: ("0x665ded9abbf88", 0.5)}, parse(FIRST))
    assert told["timed"] == [KEY_1]
