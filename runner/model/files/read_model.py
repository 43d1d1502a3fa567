"""Reading a user's model once, with care: from then on everything works on a structure and one weights file of our own.

The structure is the model as it was, to the letter, but for this: top-level Constant nodes are initializers, nodes that
draw may have a seed, and large weights lie in ``weights.bin`` beside it. Only nodes that stand in no executable order
are moved, and that is said.
"""

from __future__ import annotations

import hashlib
import heapq
import shutil
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import EncodeError, Message  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from runner.exit_codes import ModelError, NoRoomForWeights
from runner.files import stamp
from runner.model.files.parse_without_weights import (
    WEIGHTS,
    ExternalFiles,
    WeightsWriter,
    chunks,
    is_own,
    parse_without_weights,
)
from runner.model.graph import scopes
from runner.model.graph.edits import set_messages
from runner.model.graph.graph_index import is_sparse_constant
from runner.model.passes.lift_constants import lower_constants
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
    if size < OUTSIDE_FROM:
        if tensor_bytes.is_external(tensor):
            _take_in(tensor, files, digest)
    elif tensor_bytes.is_external(tensor):
        region = files.region(tensor)
        # what lies in the model file is hashed already
        offset = weights.add(chunks(*region), size, None if is_own(tensor) else digest, region)
        tensor_bytes.set_reference(tensor, WEIGHTS, offset, size)
    elif (raw := tensor_bytes.raw_bytes(tensor)) is not None:
        tensor_bytes.set_reference(tensor, WEIGHTS, weights.add([raw], size), size)


def _save(model: ModelProto, target: Path, source: Path) -> None:
    try:
        data = model.SerializeToString()
    except (ValueError, EncodeError) as error:  # the class differs between the versions of protobuf
        raise ModelError(f"{source}: its structure without weights does not fit in 2 GiB ({error})") from None
    tensor_bytes.write_whole(target, [data])


# What a model has to be: names are defined once, tensors have the data they declare, nodes are sorted.

# texts that name nothing
_TOLD = frozenset({"doc_string", "producer_name", "producer_version", "metadata_props", "denotation", "external_data"})


def check_tensors(model: ModelProto) -> None:
    """Raise ModelError for a tensor whose inline data do not fit its dims and dtype."""
    # the dims of sparse parts and attributes follow the same rules
    for tensor in chain(scopes.initializers(model), scopes.inline_tensors(model)):
        if not tensor_bytes.is_external(tensor) and (problem := tensor_bytes.size_problem(tensor)):
            raise ModelError(f"tensor {tensor.name!r}: {problem}")


def drop_duplicate_initializers(graph: GraphProto) -> list[str]:
    """Keep the last of initializers that share a name, as runtimes do; return warnings."""
    last = {tensor.name: place for place, tensor in enumerate(graph.initializer)}
    if len(last) == len(graph.initializer):
        return []
    extra = [place for place, tensor in enumerate(graph.initializer) if last[tensor.name] != place]
    names = sorted({graph.initializer[place].name for place in extra})
    for place in reversed(extra):
        del graph.initializer[place]
    return [f"initializers that are defined more than once, the last one counts: {', '.join(names)}"]


def check_names(graph: GraphProto, reads: Sequence[Sequence[str]]) -> None:
    """Raise ModelError where the top-level graph defines a name twice, or reads what nobody defines.

    ``reads``: what each node does (`scopes.reads`).
    """
    inputs = {value.name for value in graph.input}
    if "" in inputs:
        raise ModelError("a graph input has no name")
    defined: dict[str, str] = {}
    for name, place in (
        *((value.name, "a graph input") for value in graph.input),
        # those that are inputs too are overridable; of several the last one counts
        *((name, "an initializer") for name in {one.name for one in graph.initializer} - inputs),
        *(
            (one.values.name, "a sparse initializer")
            for one in graph.sparse_initializer
            if one.values.name not in inputs
        ),
        *((name, f"an output of {_shown(node)}") for node in graph.node for name in node.output if name),
    ):
        if name in defined:
            raise ModelError(f"tensor {name!r} is defined twice: as {defined[name]} and as {place}")
        defined[name] = place
    for node, names in zip(graph.node, reads, strict=True):
        for name in names:
            if name not in defined:
                raise ModelError(f"{_shown(node)} reads tensor {name!r}, which nothing in the model defines")
    for value in graph.output:
        if value.name not in defined:
            raise ModelError(f"graph output {value.name!r} is defined by nothing in the model")


def check_text(model: ModelProto) -> None:
    """Raise ModelError for a name that is no UTF-8 text.

    Protobuf hands out bytes for it, which nothing expects, and takes no such name in a new message.
    """
    for bad in _no_texts(model):
        raise ModelError(f"the name {bad!r} is not UTF-8 text; give it another one")


def _no_texts(message: Any) -> Iterator[bytes]:
    """Yield the names in a message, and in those nested in it, that are no text; what is told about a model is none."""
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE) or field.name in _TOLD:
            continue
        for one in (value,) if isinstance(value, (str, bytes, Message)) else value:
            if isinstance(one, Message):
                yield from _no_texts(one)
            elif isinstance(one, bytes):
                yield one


def sort_nodes(graph: GraphProto, reads: Sequence[Sequence[str]]) -> list[str]:
    """Put the nodes in an executable order where they are not; return warnings.

    ``reads``: what each node does (`scopes.reads`).
    The order is stable: of the nodes that could come next, the first in the file does.
    Raises ModelError for a cycle.
    """
    producers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    waits = [{producers[name] for name in names if name in producers} for names in reads]
    if all(before < at for at, sources in enumerate(waits) for before in sources):
        return []
    sorter = TopologicalSorter(dict(enumerate(waits)))
    try:
        sorter.prepare()
    except CycleError as error:
        raise ModelError(
            f"the graph has a cycle: {_shown(graph.node[error.args[1][0]])} depends on its own output"
        ) from None
    ready: list[int] = []
    order = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    set_messages(graph.node, [graph.node[at] for at in order])
    return ["the file's nodes are in no executable order; Winnow sorts them"]


def _shown(node: NodeProto) -> str:
    label = node.name or next((name for name in node.output if name), "")
    return f"node {label!r} ({node.op_type})"


# Nodes that draw random numbers get the seed with which ONNX Runtime draws for them in the user's file.
#
# After ``onnxruntime.set_seed(n)`` a node without a seed of its own draws as one with the seed n plus the node's place
# among those of its graph, Constants not counted, whatever the optimizations make of the others (an If whose condition
# is a constant excepted: its branch moves). So what is cut out of a model draws what the whole model draws. A Dropout
# in training draws from one sequence with all others, and a Bernoulli is replaced by nodes at the end: with a seed
# they draw the same in each run, but other numbers than in the file. What stands in a function gets none.

_EXACT = frozenset({"Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


def seed_draws(graph: GraphProto, seed: int) -> list[str]:
    """Give them a seed, in place, in nested graphs as well; return the names of those that got one."""
    found = []
    for each in scopes.graphs_below(graph):
        counted = (node for node in each.node if node.op_type != "Constant")
        for place, node in enumerate(counted):
            if (_draws_exactly(node) or _draws_otherwise(node)) and not _has_seed(node):
                number = seed + place if node.op_type == "Dropout" else float(seed + place)
                node.attribute.append(helper.make_attribute("seed", number))
                found.append(node.name or next(iter(node.output), node.op_type))
    return found


def is_seeded(node: NodeProto, *, exactly: bool) -> bool:
    """Whether a node draws by a seed of its own. ``exactly``: also one that gives the file's own numbers."""
    return _has_seed(node) and (_draws_otherwise(node) or (exactly and _draws_exactly(node)))


def _has_seed(node: NodeProto) -> bool:
    return any(attribute.name == "seed" for attribute in node.attribute)


def _draws_exactly(node: NodeProto) -> bool:
    return node.op_type in _EXACT and not scopes.domain_of(node.domain)


def _draws_otherwise(node: NodeProto) -> bool:
    drops = node.op_type == "Dropout" and len(node.input) > 2
    return (drops or node.op_type == "Bernoulli") and not scopes.domain_of(node.domain)


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
