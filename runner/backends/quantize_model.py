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

    ``low``: int8, int4, fp8, or accuracy_level_4 (that of each MatMulNBits). ``high``: "int8" if excluded nodes get
    weights of 8 bits. ``samples``: an npz with the inputs to calibrate on, as ``NUMBER/NAME``. ``exclude``:
    names of nodes that stay. ``operators``: those that are quantized; empty: all that the tool knows. ``per_channel``,
    ``symmetric`` (activations; weights are anyway), ``calibration``, ``block_size``. Returns ``operators``: those that
    the tool has looked for. Raises what the tools raise, ValueError where nothing is quantized and nothing excluded.
    """
    with tempfile.TemporaryDirectory() as folder:
        tool = {"int4": _int4, "accuracy_level_4": _accuracy_level}.get(args["low"], _static)
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
    if low in ("int4", "accuracy_level_4"):
        return ["MatMul"] if low == "int4" else ["MatMulNBits"]
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry  # noqa: PLC0415

    return sorted({*QDQRegistry, *QLinearOpsRegistry})


def _static(args: Mapping[str, Any], folder: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static  # noqa: PLC0415

    float8 = args["low"] == "fp8"
    kind = QuantType.QFLOAT8E4M3FN if float8 else QuantType.QInt8
    methods = {one.name.lower(): one for one in CalibrationMethod}
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
        calibrate_method=CalibrationMethod.Distribution if float8 else methods[args["calibration"]],
        extra_options={"WeightSymmetric": True, "ActivationSymmetric": args["symmetric"]},
    )
    return onnx.load(folder / "quantized.onnx")


def _int4(args: Mapping[str, Any], _: Path) -> onnx.ModelProto:
    model, excluded = onnx.load(args["model"]), [*args["exclude"]]
    how = {"block_size": args["block_size"], "operators": args["operators"]}
    if args.get("high") == "int8":  # first these, of which the second turn finds nothing to quantize
        others = [node.name for node in model.graph.node if node.name not in excluded]
        model = weights_only(model, 8, **how, exclude=others)
    return weights_only(model, 4, **how, exclude=excluded)


def weights_only(
    model: onnx.ModelProto,
    bits: int,
    *,
    block_size: int,
    operators: Sequence[str] = (),
    exclude: Sequence[str] = (),
    accuracy_level: int = 0,
) -> onnx.ModelProto:
    """Return the model with weights of so many bits, but for the nodes to exclude. It is changed in place."""
    from onnxruntime.quantization import matmul_nbits_quantizer  # noqa: PLC0415

    tool = matmul_nbits_quantizer.MatMulNBitsQuantizer(
        model,
        bits=bits,
        block_size=block_size,
        is_symmetric=True,
        accuracy_level=accuracy_level or None,
        nodes_to_exclude=list(exclude),
        op_types_to_quantize=tuple(operators) or None,
    )
    tool.process()
    return tool.model.model


def _accuracy_level(args: Mapping[str, Any], _: Path) -> onnx.ModelProto:
    model, graphs = onnx.load(args["model"]), list[onnx.GraphProto]()
    graphs.append(model.graph)
    found = 0
    for graph in graphs:
        for node in graph.node:
            graphs.extend(one.g for one in node.attribute if one.type == onnx.AttributeProto.GRAPH)
            found += node.op_type == "MatMulNBits"
            if node.op_type == "MatMulNBits" and node.name not in args["exclude"]:
                kept = [one for one in node.attribute if one.name != "accuracy_level"]
                del node.attribute[:]
                node.attribute.extend([*kept, onnx.helper.make_attribute("accuracy_level", 4)])
    if not found:
        raise ValueError("it has no MatMulNBits, the only operator with an accuracy_level")
    return model


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
    print(f"{out}: {len(told['nodes_to_exclude'])} nodes stay in {args['high']}")  # noqa: T201 - a script


if __name__ == "__main__":
    main(sys.argv[1:])
