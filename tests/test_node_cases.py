"""Node test cases of the onnx package, planted in a network and cut out of it: a sample; the benchmark has all."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from runner.model.values import recorded as values
from runner.workers.pool import Pool

pytestmark = pytest.mark.slow  # onnx alone takes seconds to make its cases
pytest.importorskip("onnxruntime")
node_cases = pytest.importorskip("benchmarks.node_cases")

NAMES = [
    # plain operators, old and new, one and several outputs, omitted optional inputs
    "test_and2d", "test_not_2d", "test_batchnorm_example_training_mode", "test_clip_default_max",
    "test_gemm_default_no_bias", "test_lstm_with_peepholes", "test_resize_upsample_scales_nearest", "test_topk",
    "test_einsum_batch_matmul",
    "test_maxpool_with_argmax_2d_precomputed_pads", "test_layer_normalization_2d_axis0", "test_attention_4d",
    # operators that draw
    "test_bernoulli", "test_training_dropout_default_mask", "test_dropout_random_old",
    # control flow
    "test_if", "test_if_seq", "test_if_opt", "test_loop11", "test_loop13_seq", "test_loop16_seq_none", "test_scan9_sum",
    # sequences and optionals
    "test_sequence_insert_at_front", "test_split_to_sequence_1", "test_sequence_map_add_1_sequence_1_tensor",
    "test_sequence_map_identity_1_sequence", "test_identity_sequence", "test_identity_opt",
    "test_optional_get_element_sequence", "test_optional_has_element_optional_input",
    "test_optional_has_element_empty_optional_input",
    # strings and maps of them
    "test_strnormalizer_export_monday_casesensintive_lower", "test_string_split_basic", "test_regex_full_match_basic",
    "test_ai_onnx_ml_label_encoder_string_int",
    # types that numpy lacks
    "test_cast_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_FLOAT8E5M2", "test_cast_INT4_to_FLOAT",
    "test_dequantizelinear_float4e2m1", "test_cast_UINT2_to_UINT8",
    # empty, scalar, not finite
    "test_reduce_sum_empty_set", "test_reshape_allowzero_reordered", "test_identity_sequence", "test_isnan",
    "test_isinf", "test_range_float_type_positive_delta", "test_det_2d",
    # several nodes
    "test_softmax_axis_1_expanded", "test_gelu_tanh_1_expanded",
]  # fmt: skip


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    # onnx makes all of its cases for this, which takes seconds: not while tests are collected
    return node_cases.cases(NAMES)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, pool: Pool) -> Any:
    return node_cases.Bench(tmp_path_factory.mktemp("node_cases"), pool)


def test_cut_exactly(bench: Any, cases: list[Any]) -> None:
    rows = [bench.run(case) for case in cases]
    assert [row for row in rows if row.backend and (row.problems or not row.exact or row.checks < 2)] == []
    # other versions of onnx have a few other cases, and not every one is run by something here
    assert len(cases) >= 40 and sum(bool(row.backend) for row in rows) >= 35


def test_a_value_that_is_not_the_recorded_one_is_noticed(
    bench: Any, cases: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table can fail: here the recorded output is that of another tensor."""
    (case,) = [one for one in cases if one.name == "test_split_to_sequence_1"]
    make = node_cases.Subgraph

    def spoilt(graph: Any, store: Any, recorded: Any, *more: Any, **options: Any) -> Any:
        (sample,) = recorded.values
        path = sample["seq"].path.with_name("spoilt.pb")
        other = numpy_helper.from_list([np.zeros(3, np.float32)])
        spoiled = values.write_container(other, sample["seq"].structure, "seq", path)
        return make(graph, store, dataclasses.replace(recorded, values=({**sample, "seq": spoiled},)), *more, **options)

    monkeypatch.setattr(node_cases, "Subgraph", spoilt)
    spoilt_bench = node_cases.Bench(bench.folder.with_name("spoilt"), bench.pool)
    row = spoilt_bench.run(case)
    assert row.exact
    assert any("seq differs" in problem for problem in row.problems), row
