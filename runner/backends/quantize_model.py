"""python quantize.py: quantizes a float model with ONNX Runtime's own tools, but for the nodes that an answer names.

A run of Winnow calls `quantize` in a worker, and leaves this file beside its result, where it stands alone: it reads
what was asked from quantize.json, the nodes that stay in float from result.json, and writes excluded.onnx. It needs
onnx and onnxruntime, and onnx_ir for int4.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

LARGE = 1 << 30
"""Bytes of weights from which on they lie in a file of their own: a protobuf holds 2 GiB."""


def quantize(args: Mapping[str, Any]) -> dict[str, Any]:
    """Quantize the model at ``args["model"]`` into ``args["out"]``.

    ``low``: int8, int4 or fp8. ``samples``: an npz with the inputs to calibrate on, as ``NUMBER/NAME``. ``exclude``:
    names of nodes that stay. ``operators``: those that are quantized; empty: all that the tool knows. ``per_channel``,
    ``symmetric`` (activations; weights are anyway), ``block_size``. Returns ``operators``: those that the tool
    has looked for. Raises whatever the tools raise, ValueError where nothing is quantized and nothing excluded.
    """
    with tempfile.TemporaryDirectory() as folder:
        tool = _weights_only if args["low"] == "int4" else _static
        made = tool(args, Path(folder))
        known = ("MatMulNBits", "GatherBlockQuantized", "DequantizeLinear")
        if not args["exclude"] and not any(node.op_type in known for node in made.graph.node):
            raise ValueError(f"ONNX Runtime's tool finds no node to quantize to {args['low']}")
        out = Path(args["out"])
        Path(f"{out}.data").unlink(missing_ok=True)
        large = sum(len(one.raw_data) for one in made.graph.initializer) > LARGE
        onnx.save(made, out, save_as_external_data=large, location=f"{out.name}.data")
    return {"operators": sorted(args["operators"]) or _known(args["low"])}


def _known(low: str) -> list[str]:
    if low == "int4":
        return ["MatMul"]
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry  # noqa: PLC0415

    return sorted({*QDQRegistry, *QLinearOpsRegistry})


def _static(args: Mapping[str, Any], folder: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static  # noqa: PLC0415

    float8 = args["low"] == "fp8"
    kind = QuantType.QFLOAT8E4M3FN if float8 else QuantType.QInt8
    quantize_static(
        args["model"],
        folder / "quantized.onnx",
        _Samples(Path(args["samples"])),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=list(args["operators"]),
        per_channel=args["per_channel"] and not float8,
        activation_type=kind,
        weight_type=kind,
        nodes_to_exclude=list(args["exclude"]),
        use_external_data_format=os.path.getsize(args["model"]) > LARGE,  # noqa: PTH202 - of whatever was given
        calibrate_method=CalibrationMethod.Distribution if float8 else CalibrationMethod.MinMax,
        extra_options={"WeightSymmetric": True, "ActivationSymmetric": args["symmetric"]},
    )
    return onnx.load(folder / "quantized.onnx")


def _weights_only(args: Mapping[str, Any], _: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import matmul_nbits_quantizer  # noqa: PLC0415

    tool = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        onnx.load(args["model"]),
        block_size=args["block_size"],
        is_symmetric=True,
        nodes_to_exclude=list(args["exclude"]),
        op_types_to_quantize=tuple(args["operators"]) or None,
    )
    tool.process()
    return tool.model.model


class _Samples:
    """What ONNX Runtime calibrates on."""

    def __init__(self, path: Path) -> None:
        self._held = np.load(path)
        self._left = iter(sorted({int(name.partition("/")[0]) for name in self._held}))

    def get_next(self) -> dict[str, np.ndarray] | None:
        number = next(self._left, None)
        if number is None:
            return None
        named = (name.partition("/") for name in self._held)
        return {name: self._held[f"{stem}/{name}"] for stem, _, name in named if stem == str(number)}


def main(argv: Sequence[str]) -> None:
    """Write excluded.onnx, or the file that is named."""
    here = Path(__file__).parent
    args = json.loads((here / "quantize.json").read_text())
    told = json.loads((here / "result.json").read_text())["precision"]
    out = Path(argv[0]) if argv else here / "excluded.onnx"
    beside = {key: str(here / args[key]) for key in ("model", "samples") if args[key]}
    quantize({**args, **beside, "out": str(out), "exclude": told["nodes_to_exclude"]})
    print(f"{out}: {len(told['nodes_to_exclude'])} nodes stay in float")  # noqa: T201 - a script


if __name__ == "__main__":
    main(sys.argv[1:])
