"""What TensorRT says becomes one failure: the texts are what 1.5 and 1.7 for RTX said of real models."""

from __future__ import annotations

import pytest

from runner.backends.trt.library import building, essence, executing, parsing
from runner.checkers.failure_text import normalize
from runner.verdict import Signature, same_failure

BUILDER = "IBuilder::buildSerializedNetwork: "
MYELIN = (
    BUILDER + "Error Code 1: Myelin ([myelin_graph.h:1295: attachExceptionMsgToGraph] MyelinCheckException: "
    "decompose_composite_ops.cpp:59: CHECK(composite_op->is_decomposable()) failed. Attention operation was not "
    "supported by a dedicated kernel.  (See https://example.org/x.html#fusion for shapes and datatypes with dedicated "
    "kernels.)  Alternatively, padded attention operation may be marked as decomposable"
)
TOP_K = (
    BUILDER + "Error Code 4: API Usage Error (ITopKLayer {0}: {0}: K exceeds the maximum value allowed (3840). "
    "In processCheck at /_src/optimizer/shapeof/graphShapeAnalyzer.cpp:1066 In analyzeShapes at /_src/a/b.cpp:2825)"
)
RANKS = (
    BUILDER + "Error Code 4: API Usage Error (IConditionalOutputLayer n_OutputLayer: Must have inputs with equal ranks "
    "when condition is not a build-time constant. Dimensions are [4] and [1,4]. In lowerShapes at /_src/n.cpp:144)"
)
TURING = (
    BUILDER + "Error Code 1: Myelin ([pass.cpp:337: check_turing_op_compatibility] Cannot compile operation 'node 7' "
    "for Turing (SM75): FP32 GEMM is not supported. In compileGraph at /_src/optimizer/myelin/codeGenerator.cpp:2012)"
)
NOISE = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at "
    "/_src/common/dispatch/checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient for CUDA runtime))"
)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (MYELIN, "1: Attention operation was not supported by a dedicated kernel"),
        (TOP_K.format("net/topk_3"), "4: K exceeds the maximum value allowed #"),
        (RANKS, "4: Must have inputs with equal ranks when condition is not a build-time constant"),
        (TURING, "1: Cannot compile operation _ for Turing SM75 : FP32 GEMM is not supported"),
    ],
)
def test_of_a_build(said: str, kind: str) -> None:
    failure = building([NOISE, said], [], ["net/topk_3"])
    assert (failure.stage, failure.kind) == ("build", kind)
    assert "cudaError" not in str(failure)


def test_names_do_not_change_the_kind() -> None:
    kinds = {
        building([TOP_K.format(name)], [], [name]).kind for name in ("a_b", "/model/layer.3/TopK", "x:0", "K_exceeds")
    }
    assert len(kinds) == 1


def test_a_name_that_is_a_word_does_not_change_the_kind() -> None:
    """A candidate that has a tensor `value`, or one called `4`, must say the same as one that has not."""
    expected = "4: K exceeds the maximum value allowed #"
    for names in ([], ["value"], ["the"], ["K"], ["maximum value"], ["3840"], ["4"], ["exceeds", "allowed"]):
        assert building([TOP_K.format("net/topk_3")], [], ["net/topk_3", *names]).kind == expected, names
    kinds = {building([TOP_K.format(name)], [], [name]).kind for name in ("culprit", "the", "Top K", "value", "7")}
    assert kinds == {expected}
    reshape = "ErrorCode 4: reshape changes volume to multiple of original non-zero volume."
    assert len({parsing("X", "Op", reshape, names).kind for names in ([], ["volume"], ["zero"], ["non"])}) == 1
    lost = "Error Code 10: Could not find any implementation for node {0}. In computeCosts at /_src/x.cpp:1"
    assert len({building([lost.format(name)], [], [name]).kind for name in ("culprit", "Conv_0", "b.c/d")}) == 1


def test_a_name_that_looks_like_noise_hides_nothing() -> None:
    for name in ("cudaError 35", "While parsing node number", "catchCudaError"):
        assert building([TOP_K.format(name)], [], [name]).stage == "build", name


def test_a_call_to_cuda_that_fails_for_want_of_a_gpu() -> None:
    said = (
        BUILDER
        + "Error Code 1: Myelin ([a.h:1: f] MyelinCheckException: b.cpp:2: CHECK(status == CUDA_SUCCESS) failed."
    )
    assert building([NOISE, said], [], [], gpu=False).kind == "NoGpu"
    assert building([NOISE, said], [], [], gpu=True).stage == "build"


def test_what_only_the_compiler_printed_counts_where_the_logger_is_silent() -> None:
    failure = building([], ["Internal Error: MyelinCheckException: a.cpp:29: CHECK(x) failed. No kernel for this."], [])
    assert failure.stage == "build"
    assert "No kernel for this" in failure.kind
    assert building([], [], []).kind == "Unexplained"


def test_a_missing_gpu_is_nobodys_model() -> None:
    failure = building([NOISE], [], [])
    assert (failure.stage, failure.kind) == ("setup", "NoGpu")
    assert "compute_capabilities" in str(failure)


def test_an_error_of_cuda_s_on_a_gpu_is_a_failure() -> None:
    said = NOISE.replace("35: CUDA driver version is insufficient for CUDA runtime", "700: an illegal memory access")
    failure = building([said], [], [], gpu=True)
    assert (failure.stage, failure.kind) == ("build", "1: cudaError #: an illegal memory access")
    assert building([said], [], [], gpu=False).kind == "NoGpu"
    failure = executing("the engine did not run", [said], [], [])
    assert (failure.stage, failure.kind) == ("infer", "1: cudaError #: an illegal memory access")
    assert executing("the engine did not run", [], [], []).kind == "Unexplained"


@pytest.mark.parametrize(
    ("code", "described", "kind"),
    [
        (
            "ErrorCode.INVALID_NODE",
            "Invalid Node - n\nITensor::getDimensions: Error Code 4: Shape Error (reshape changes volume to multiple "
            "of original non-zero volume. Reshaping [2,1,8] to [1,8]. In operator() at /_src/x/y.cpp:4633)\n" + NOISE,
            "INVALID_NODE MatMul: reshape changes volume to multiple of original non-zero volume",
        ),
        (
            "UNSUPPORTED_NODE",
            'softcap == 0.0 && "Setting softcap is not supported in TensorRT Attention."',
            "UNSUPPORTED_NODE MatMul: Setting softcap is not supported in TensorRT Attention",
        ),
        (
            "UNSUPPORTED_NODE_ATTR",
            'Assertion failed: mode == "linear": Only linear mode is supported for now, got circular',
            "UNSUPPORTED_NODE_ATTR MatMul: Only linear mode is supported for now, got circular",
        ),
        (
            "UNSUPPORTED_NODE",
            "Unsupported Node - n\nNo importer registered for op: Foo. Attempting to import as plugin.",
            "UNSUPPORTED_NODE MatMul: No importer registered for op: Foo",
        ),
    ],
)
def test_of_a_parser(code: str, described: str, kind: str) -> None:
    failure = parsing(code, "MatMul", described, [], "n")
    assert (failure.stage, failure.kind) == ("load", kind)


def test_a_parser_s_error_names_its_operator_and_node() -> None:
    """Of all operators that it does not know the parser says "false", which would make one failure of them."""
    one, other = (parsing("UNSUPPORTED_NODE", kind, "false", [], "n") for kind in ("Unique", "Bernoulli"))
    assert str(one) == "Unique 'n': the parser does not support it"
    signatures = [Signature(each.stage, f"error {each.kind}", normalize(str(each))) for each in (one, other)]
    assert not same_failure(*signatures)
    assert str(parsing("INTERNAL_ERROR", "", "Unknown activation type", [])) == "Unknown activation type"


def test_an_essence_is_short_and_of_one_line() -> None:
    assert len(essence("word " * 1000)) <= 100
    assert "\n" not in essence("a\nb")
    assert essence("") == ""
