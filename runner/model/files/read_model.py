"""Reading a user's model once, with care: from then on everything works on a structure and one weights file of our own.

The structure is the model as it was, to the letter, but for this: top-level Constant nodes are initializers, nodes that
draw may have a seed, and large weights lie in ``weights.bin`` beside it. Only nodes that stand in no executable order
are moved, and that is said.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from runner.files import stamp
from runner.judgment import ModelError, NoRoomForWeights
from runner.model.files.parse_without_weights import (
    WEIGHTS,
    ExternalFiles,
    WeightsWriter,
    chunks,
    is_own,
    parse_without_weights,
)
from runner.model.graph import scopes
from runner.model.graph.graph_index import is_sparse_constant
from runner.model.graph.names_and_order import (
    check_names,
    check_tensors,
    check_text,
    drop_duplicate_initializers,
    sort_nodes,
)
from runner.model.passes.lift_constants import lower_constants
from runner.model.passes.seed_draws import seed_draws
from runner.model.values import tensor_bytes

Digest = Any  # of hashlib
STRUCTURE = "structure.onnx"
# a tensor of so many bytes may lie in the weights file; smaller ones (shapes, axes, scales) are always at hand
OUTSIDE_FROM = 1024
# models whose weights are no more than this carry them inside
INLINE_LIMIT = 32 << 20
_PROTOBUF_LIMIT = 1 << 31


def ingest(args: Mapping[str, Any]) -> dict[str, Any]:
    """Read the model at ``args["model"]`` into the folder ``args["store"]``: structure.onnx and maybe weights.bin.

    ``args["inline_limit"]`` (optional): bytes of weights from which they leave the structure. ``args["seed"]``
    (optional): what `seed_draws` takes.

    Returns ``bytes`` (of the model file and the files it refers to), ``weights_bytes`` (of all weights), ``nodes``
    (elements: top-level nodes, Constants not counted), ``constants`` (how many Constants became initializers),
    ``warnings``, ``seeded`` (the nodes that got a seed), ``sha256`` (over the model file and its external data),
    ``behind_link`` (whether the path is a link and external data lie beside its target only: no runtime finds them
    from the path).
    Raises ModelError, one clear line, for whatever is wrong with the files, and NoRoomForWeights before anything is
    copied.
    """
    path, store = Path(args["model"]), Path(args["store"])
    inline_limit = int(args.get("inline_limit", INLINE_LIMIT))
    digest, seed = hashlib.sha256(), args.get("seed")
    before = stamp(path)
    model, size, own = parse_hashed(path, inline_limit, digest)
    warnings: list[str] = []
    if not model.HasField("graph"):
        raise ModelError(f"{path} has no graph: it is not an ONNX model, or an empty one")
    if model.training_info:
        del model.training_info[:]
        warnings.append("training information was left out")
    check_text(model)
    check_tensors(model)
    files = ExternalFiles(path, own)
    _inline_small_parts(model, files, digest)
    seeded = [] if seed is None else seed_draws(model.graph, seed)  # before anything is moved
    constants = lower_constants(model.graph, model.ir_version)
    warnings.extend(drop_duplicate_initializers(model.graph))
    reads = [scopes.reads(node) for node in model.graph.node]
    check_names(model.graph, reads)
    warnings.extend(sort_nodes(model.graph, reads))

    store.mkdir(parents=True, exist_ok=True)
    weights_bytes = _place_weights(model, files, store, inline_limit, digest)
    confirm_unchanged(path, before)  # when all is read
    _save(model, store / STRUCTURE, path)
    sparse = sum(1 for node in model.graph.node if is_sparse_constant(node))
    return {
        "bytes": size + files.total_bytes,
        "weights_bytes": weights_bytes,
        "nodes": len(model.graph.node) - sparse,
        "constants": constants,
        "warnings": warnings,
        "seeded": seeded,
        "sha256": digest.hexdigest(),
        "behind_link": files.behind_link,
    }


def confirm_unchanged(path: Path, before: object) -> None:
    """Raise ModelError where a file has another stamp: what was hashed may not be what was parsed or copied."""
    if stamp(path) != before:
        raise ModelError(f"{path} was changed while it was read: start again")


def parse_hashed(path: Path, inline_limit: int, digest: Digest) -> tuple[ModelProto, int, bool]:
    """Return the model, the bytes of its file, and whether it was left to that to hold the large weights.

    ``digest`` is fed with the file.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ModelError(f"{path} is not a file")
        if size >= _PROTOBUF_LIMIT:
            raise ModelError(
                f"{path} has {size} bytes; a protobuf file cannot have 2 GiB or more: save it with external data"
            )
        if not size:
            raise ModelError(f"{path} is empty")
        if size > inline_limit and (model := parse_without_weights(path)):
            for piece in chunks(path, 0, size):
                digest.update(piece)
            return model, size, True
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    digest.update(data)
    try:
        return ModelProto.FromString(data), size, False
    except Exception as error:  # noqa: BLE001 - the class that protobuf raises differs between its versions
        raise ModelError(f"{path} {what_else(data) or f'is not an ONNX model, or it is truncated ({error})'}") from None


_FIRST = 64
_OTHERS = {
    b"version https://git-lfs": "is a pointer of Git LFS, not the model: run `git lfs pull`",
    b"<": "is a web page, not a model: the download failed",
    b"PK\x03\x04": "is a zip archive, not an ONNX model: unpack or export it",
}


def what_else(data: bytes) -> str:
    """Return what a file is that is no ONNX model, by its first bytes; "": nobody knows."""
    first = data[:_FIRST].lstrip()
    return next((what for start, what in _OTHERS.items() if first.startswith(start)), "")


def _inline_small_parts(model: ModelProto, files: ExternalFiles, digest: Digest) -> None:
    """Take tensors of attributes and sparse initializers into the structure: runtimes do not look for those outside."""
    total = 0
    for tensor in scopes.inline_tensors(model):
        if tensor_bytes.is_external(tensor):
            _, _, length = files.region(tensor)
            total += length
            if total >= _PROTOBUF_LIMIT // 2:
                raise ModelError("the model has more than 1 GiB of external data in attributes of nodes")
            _take_in(tensor, files, digest)


def _take_in(tensor: TensorProto, files: ExternalFiles, digest: Digest) -> None:
    """Read the elements of an external tensor into the structure."""
    data = b"".join(chunks(*files.region(tensor)))
    if not is_own(tensor):  # hashed already, as a part of the model file
        digest.update(data)
    tensor_bytes.set_raw(tensor, data)


def _place_weights(model: ModelProto, files: ExternalFiles, store: Path, inline_limit: int, digest: Digest) -> int:
    """Put the initializers where they belong; return the bytes of those that are no strings."""
    sizes, copied = [], {}
    for at, tensor in enumerate(scopes.initializers(model)):
        # all regions, before anything is written; one that several refer to is written once
        region = files.region(tensor) if tensor_bytes.is_external(tensor) else at
        size = tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0
        copied[region] = size if size >= OUTSIDE_FROM else 0
        sizes.append((tensor, size))
    total = sum(size for _, size in sizes)
    if total <= inline_limit:
        for tensor, _ in sizes:
            if tensor_bytes.is_external(tensor):
                _take_in(tensor, files, digest)
        (store / WEIGHTS).unlink(missing_ok=True)
        return total
    free = shutil.disk_usage(store).free
    wanted = sum(copied.values())
    if wanted > free:
        raise NoRoomForWeights(
            f"a run's copy of the weights takes {wanted >> 20} MiB, {free >> 20} MiB are free in {store}"
        )
    with WeightsWriter(store / WEIGHTS) as weights:
        for tensor, size in sizes:
            _place(tensor, size, files, weights, digest)
    return total


def _place(tensor: TensorProto, size: int, files: ExternalFiles, weights: WeightsWriter, digest: Digest) -> None:
    if tensor_bytes.is_external(tensor):
        region = files.region(tensor)
        if size < OUTSIDE_FROM:
            _take_in(tensor, files, digest)
            return
        # what lies in the model file is hashed already
        offset = weights.add(chunks(*region), size, None if is_own(tensor) else digest, region)
        tensor_bytes.set_reference(tensor, WEIGHTS, offset, size)
    elif size >= OUTSIDE_FROM:
        raw = tensor_bytes.raw_bytes(tensor)
        if raw is not None:
            tensor_bytes.set_reference(tensor, WEIGHTS, weights.add([raw], size), size)


def _save(model: ModelProto, target: Path, source: Path) -> None:
    try:
        data = model.SerializeToString()
    except (ValueError, EncodeError) as error:  # the class differs between the versions of protobuf
        raise ModelError(f"{source}: its structure without weights does not fit in 2 GiB ({error})") from None
    tensor_bytes.write_whole(target, [data])


# The ONNX checker over a model file, in a worker.


def check_model(args: Mapping[str, Any]) -> dict[str, Any]:
    """Check the model at ``args["model"]``; return ``ok`` and ``message``.

    Weights beside it are looked for; shapes and types are inferred where ``full`` is true.
    """
    try:
        onnx.checker.check_model(str(args["model"]), full_check=bool(args.get("full")))
    except Exception as error:  # noqa: BLE001 - an invalid model is the answer, whatever class it comes in
        return {"ok": False, "message": f"{type(error).__name__}: {error}".strip()}
    return {"ok": True, "message": ""}
