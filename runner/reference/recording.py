"""Recorded values: made in pieces within limits, kept or computed again on demand.

Recorded values: what every tensor of the original holds in the reference run, for every sample.

The model is run with all its tensors as outputs, a long one in windows: a runtime takes longer for each output the more
there are. A window that cannot be run (it crashes, hangs or needs more memory than there is) is run in pieces: a piece
that fails is halved, down to the single node that cannot be run; what depends on that node stays unrecorded. With a
limit on the disk, values beyond it are computed again when they are asked for.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import onnx
from onnx import TypeProto

from runner import machine
from runner.disk_space import Room
from runner.exit_codes import NotTried, UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import CutError, cut
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import has_low_floats
from runner.model.values import tensor_bytes
from runner.model.values.recorded import TensorFile, paths
from runner.model.values.value_types import common_shape, structure_of, tensor_type, type_of
from runner.text import counted
from runner.workers.pool import Pool, lease_of
from runner.workers.reply import without_folder

# Pieces of a model that are run together: what they give, how large that is, and what of it has to be kept.


@dataclass(frozen=True, eq=False)
class Piece:
    """Nodes that were run together. ``types``: what was known of their tensors before; ``folder``: of the values."""

    nodes: tuple[int, ...]
    types: Mapping[str, onnx.TypeProto]
    folder: Path


def needed(graph: Graph, piece: Sequence[int]) -> frozenset[str]:
    """Return the tensors of a piece that have to be kept: those that others read, and what is drawn at random."""
    made = frozenset(name for index in piece for name in graph.nodes[index].outputs)
    drawing = frozenset(graph.drawing)
    if any(graph.nodes[index].name in drawing for index in piece):
        return made  # all that follows from it would be another the second time
    inside = frozenset(piece)
    read = frozenset(name for name in made if not inside.issuperset(graph.readers.get(name, ())))
    return read | made & graph.output_set


def declared_bytes(graph: Graph, types: Mapping[str, onnx.TypeProto], piece: Sequence[int]) -> list[int]:
    """Return the bytes of each tensor that a piece makes and whose shape is known."""
    names = [name for index in piece for name in graph.nodes[index].outputs if name in types]
    return [size for name in names if (size := bytes_of(types[name]))]


def weight_bytes(graph: Graph, piece: Sequence[int]) -> int:
    """Return the bytes of the weights that a piece reads."""
    names = {name for index in piece for name in graph.nodes[index].inputs if name in graph.initializers}
    tensors = [tensor for name in names if isinstance(tensor := graph.initializers[name], onnx.TensorProto)]
    return sum(tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0 for tensor in tensors)


def bytes_of(kind: onnx.TypeProto) -> int:
    """Return the bytes of a tensor of this type; 0 where its shape is not known."""
    dims = [dim.dim_value for dim in kind.tensor_type.shape.dim]
    known = kind.HasField("tensor_type") and all(dim > 0 for dim in dims)
    return tensor_bytes.byte_size(kind.tensor_type.elem_type, dims) or 0 if known else 0


# Recorded values that are not all kept: what is asked for is computed again, within a limit of bytes on the disk.
#
# Every value was computed once, so its type, shape and whether it is finite are known. What is read beyond the piece
# of the model that made it is always kept: the very same piece, fed with the very same values, gives the others again.

RunAgain = Callable[[Piece, frozenset[str], int], str | None]
"""Runs a piece and writes these tensors, so many bytes, where they lay; says why that failed, if it did."""


@dataclass(eq=False)
class ValuesOnDemand:
    """Files of values that can be computed again: no more than ``limit`` bytes of those that nobody uses.

    ``kept``: bytes of those that are there.
    """

    run: RunAgain
    limit: int
    kept: int = field(default=0, init=False)
    _pieces: dict[Path, Piece] = field(default_factory=dict, init=False)
    _sizes: dict[Path, int] = field(default_factory=dict, init=False)
    _there: dict[Path, None] = field(default_factory=dict, init=False)  # the one that was used last comes last
    _users: Counter[Path] = field(default_factory=Counter, init=False)
    # a value may be let go of at any moment, in this thread as well
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def add(self, file: TensorFile, piece: Piece) -> None:
        """Take a value that ``piece`` made; ``file.length`` tells the size of one that was not written."""
        self._pieces[file.place] = piece
        self._sizes[file.place] = file.size
        if file.length is None:
            self._arrived(file.place)
            self._make_room()

    @property
    def missing(self) -> int:
        """How many values are not there."""
        return len(self._pieces) - len(self._there)

    def of(self, values: Sequence[Mapping[str, TensorFile]]) -> tuple[dict[str, TensorFile], ...]:
        """Return values of which those that were added are computed when they are asked for."""
        return tuple({name: self._own(file) for name, file in sample.items()} for sample in values)

    def _own(self, file: TensorFile) -> TensorFile:
        size = self._sizes.get(file.place)
        return file if size is None else replace(file, length=size, recompute=self)

    def __call__(self, files: Sequence[TensorFile]) -> None:
        """Have these files there until the last of these objects is gone. Raises NotTried where that cannot be."""
        with self._lock:
            wanted: dict[Piece, list[TensorFile]] = {}
            for file in files:
                self._users[file.place] += 1
                weakref.finalize(file, self._let_go, file.place).atexit = False
                if file.place not in self._there:
                    wanted.setdefault(self._pieces[file.place], []).append(file)
                else:
                    self._there[file.place] = self._there.pop(file.place)
            for piece, missing in wanted.items():
                names = frozenset(file.name for file in missing)
                if why := self.run(piece, names, sum(self._sizes[file.place] for file in missing)):
                    raise NotTried(
                        f"the reference computed {', '.join(sorted(names))} once and cannot again ({why}): give "
                        "cut.record=all, which keeps all values"
                    )
                for place, made_by in self._pieces.items():
                    if made_by is piece and place not in self._there and place.exists():
                        self._arrived(place)
            self._make_room()

    def _arrived(self, place: Path) -> None:
        self._there[place] = None
        self.kept += self._sizes[place]

    def _let_go(self, place: Path) -> None:
        with self._lock:
            self._users[place] -= 1

    def _make_room(self) -> None:
        """Remove what was not used for the longest time, as long as there is too much."""
        for place in [place for place in self._there if self._users[place] <= 0] if self.kept > self.limit else ():
            if self.kept <= self.limit:
                break
            place.unlink(missing_ok=True)
            del self._there[place]
            self.kept -= self._sizes[place]


def for_one_check(values: Mapping[str, TensorFile]) -> dict[str, TensorFile]:
    """Return the same values as objects of their own: files that were computed for them may go when they are gone."""
    return {name: replace(file) if file.recompute else file for name, file in values.items()}


# The types of recorded values.


def recorded_types(values: Sequence[Mapping[str, TensorFile]]) -> dict[str, TypeProto]:
    """Return the type of each recorded value; a dimension that differs between samples is left open.

    Of a value that is a tensor in one sample and none in another no type is known.
    """
    found: dict[str, TypeProto] = {}
    for name, first in values[0].items() if values else ():
        every = [sample[name] for sample in values if name in sample]
        if any(one.structure != first.structure for one in every):
            continue
        if first.structure is None:
            found[name] = tensor_type(first.dtype, common_shape([one.shape for one in every]))
        else:
            found[name] = type_of(first.structure, [shape for one in every for shape in one.elements])
    return found


WINDOW = 1000
"""Nodes that are run together at most."""
PACK = 1 << 16
"""Bytes up to which a value gets no file of its own."""
SHARE_OF_MEMORY, LEAST_MB = 0.8, 256
"""Part of the free memory that a worker may take where the user set no limit, and what it may in any case: what it has
already is not free any more."""
CONSTANT = 4 << 20
"""Bytes up to which a value that no data reaches is always kept: it is a part of candidates."""
SHARE_OF_TIME = 1 / 16
"""Part of the time that several nodes together get: one that hangs must leave time to find it, and for the others."""
SHORT_PATIENCE, MARGIN = 4.0, 20.0
"""Once something hangs: seconds that a piece gets in any case, and how much longer than others it may take."""
SHORTEST_SECONDS = 0.5
"""With less time left, no further piece is tried."""


@dataclass(frozen=True)
class Narrow:
    """A ``type`` that loses digits of a tensor.

    ``readers``: the nodes that read it there, each with those that come out wrong for it: itself, or ones after it.
    """

    type: str
    readers: Mapping[int, frozenset[int]]

    def is_for(self, reader: int, among: Collection[int]) -> bool:
        """Whether one of these nodes comes out wrong where the reader gets the tensor rounded."""
        return not self.readers.get(reader, frozenset()).isdisjoint(among)

    def parts(self, made_by: int, among: Collection[int]) -> bool:
        """Whether some of these nodes need the digits, and not all that do are there with what makes the tensor."""
        needing = frozenset().union(*self.readers.values())
        return not needing.isdisjoint(among) and not {made_by, *self.readers, *needing} <= {*among}


@dataclass(frozen=True)
class Recorded:
    """``values[sample][tensor]``.

    ``unrunnable``: nodes that the reference cannot run, ``reason``: of the first of them. ``out_of_time``: it was
    stopped before every node was tried. ``partners``: the tensors whose value another model (reference.model) tells,
    None: there is none; no other tensor is to be judged. ``unfit``: why a value must not be fed, by tensor;
    ``narrow``: the tensors whose type loses digits that are needed.
    ``wrong``: nodes wrong on that model's values, in the reference's runtime; ``error``: of an output, in tolerances.
    ``on_demand``: not all are kept; the others are computed again on request.
    ``rounds``: a model of low precision could not be run as one, so values are rounded where its parts meet.
    ``run``: what the run itself gave, where files say what the outputs should hold, which ``values`` has then; ``off``:
    how far that run is from it at worst, in tolerances, ``off_by``: in words. ``unjudged``: outputs not in the files.
    """

    values: tuple[Mapping[str, TensorFile], ...]
    unrunnable: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    out_of_time: bool = False
    partners: frozenset[str] | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)
    narrow: Mapping[str, Narrow] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    error: float = 0.0
    on_demand: bool = False
    rounds: bool = False
    run: tuple[Mapping[str, TensorFile], ...] = ()
    off: float = 0.0
    off_by: str = ""
    unjudged: frozenset[str] = frozenset()

    @cached_property
    def types(self) -> Mapping[str, onnx.TypeProto]:
        """The types of the values, see `recorded_types`."""
        return recorded_types(self.values)

    def why_unfit(self, name: str, readers: Collection[int], among: Collection[int] = ()) -> str:
        """Why a value must not be fed to one of these nodes, where these stand behind it; "": it may."""
        narrow = self.narrow.get(name)
        if narrow is None or not any(narrow.is_for(one, among or readers) for one in readers):
            return self.unfit.get(name, "")
        return f"{narrow.type} has too few digits for the good value of {name!r}"

    def healthy(self, outputs: Sequence[str]) -> bool:
        """Whether the reference run ended with finite outputs, so that an Inf on the way is meant (a mask, say)."""
        return all(name in sample and sample[name].finite for sample in self.values for name in outputs)


_SILENCE = 10.0
"""Seconds after which a person wonders what is going on."""
log = logging.getLogger(__name__)


@contextmanager
def _said_if_slow(what: str) -> Iterator[None]:
    """Say what is going on inside if it takes long."""
    timer = threading.Timer(_SILENCE, log.info, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass
class Recorder:
    """Runs the original on the reference and keeps what every tensor holds.

    ``budget``: bytes of values and weights in memory at a time. ``disk``: bytes of values that are kept though they
    can be computed again, None: all are kept. ``lazy``: such values are not kept before somebody asks for them.
    """

    graph: Graph
    store: Store
    pool: Pool
    backend: Mapping[str, Any]
    types: Mapping[str, onnx.TypeProto]
    folder: Path
    python: str | None = None
    timeout: float = 600.0
    memory_mb: int | None = None
    budget: int | None = None
    disk: int | None = None
    lazy: bool = False
    _pieces: int = field(default=0, init=False)
    _demand: ValuesOnDemand | None = field(default=None, init=False)
    _node_bytes: float = field(default=0.0, init=False)

    def record(self, samples: Sequence[Mapping[str, TensorFile]], nodes: Sequence[int] | None = None) -> Recorded:
        """Record every tensor for each of ``samples`` (values of the model's inputs).

        ``nodes``: the elements to run, ascending, where the others' values are among the samples.
        """
        started = time.monotonic()
        everything = tuple(range(len(self.graph.nodes)) if nodes is None else nodes)
        low = has_low_floats(self.graph.model, self.types.values())
        window = max(len(everything), 1) if low else WINDOW
        waiting = [everything[at : at + window] for at in reversed(range(0, len(everything), window))]
        self._room.confirm(self._least_bytes(waiting) * len(samples), "recording the values of all tensors")
        values: list[dict[str, TensorFile]] = [dict(sample) for sample in samples]
        demand = None if self.disk is None else ValuesOnDemand(partial(self._again, values), self.disk)
        self._demand = demand
        self._node_bytes = max((file.size for sample in samples for file in sample.values()), default=0)
        unrunnable, reasons = list[str](), list[str]()
        out_of_time, hung, rounds, pace = False, False, False, 0.0
        while waiting and not out_of_time:
            piece = self._runnable(waiting.pop(), values)
            if not piece:
                continue
            if len(piece) > 1 and not low and self._is_too_much(piece):
                waiting += [piece[len(piece) // 2 :], piece[: len(piece) // 2]]
                continue
            left = self.timeout - (time.monotonic() - started)
            if left < SHORTEST_SECONDS:
                out_of_time = True
                continue
            begun = time.monotonic()
            with _said_if_slow(f"the reference computes the values of {counted(len(piece), 'node')}"):
                reason = self._run(piece, values, self._patience(len(piece), left, pace, hung=hung))
            if reason is None:
                pace = max(pace, (time.monotonic() - begun) / len(piece))
                continue
            self._room.confirm()  # a full disk is no fault of a node
            hung = hung or reason == "timeout"
            if len(piece) == 1:
                unrunnable.append(self.graph.nodes[piece[0]].name)
                reasons.append(reason)
                continue
            rounds = rounds or low
            middle = len(piece) // 2
            waiting += [piece[middle:], piece[:middle]]
        missing = demand.missing if demand else 0
        found = demand.of(values) if demand and missing else tuple(values)
        reason, seconds = reasons[0] if reasons else "", time.monotonic() - started
        return Recorded(found, tuple(unrunnable), reason, seconds, out_of_time, on_demand=bool(missing), rounds=rounds)

    @property
    def _room(self) -> Room:
        return Room(self.folder.parent)

    def _least_bytes(self, pieces: Sequence[Sequence[int]]) -> int:
        """Return the bytes that the values of one sample take at least: of those tensors whose shape is known."""
        every = sum(sum(declared_bytes(self.graph, self.types, piece)) for piece in pieces)
        if self.disk is None:
            return every
        held = {name for piece in pieces for name in needed(self.graph, piece)}
        must = sum(bytes_of(self.types[name]) for name in held if name in self.types)
        return must + min(every - must, 0 if self.lazy else self.disk)

    def _is_too_much(self, piece: Sequence[int]) -> bool:
        """Whether a piece would not fit into the memory for it, by what is declared, was fed, or ran before."""
        if self.budget is None:
            return False
        known, weights = declared_bytes(self.graph, self.types, piece), weight_bytes(self.graph, piece)
        return weights + max(sum(known), self._node_bytes * len(piece)) > self.budget

    def _patience(self, nodes: int, left: float, pace: float, *, hung: bool) -> float:
        """Seconds that a piece may take: ``left`` are, and the slowest piece so far took ``pace`` for each node."""
        if nodes == 1:
            return left / 8
        most = min(left / 2, self.timeout * SHARE_OF_TIME)
        # something never ends; whatever ends takes about as long as its like
        return min(most, max(SHORT_PATIENCE, MARGIN * pace * nodes)) if hung and pace else most

    def _runnable(self, piece: tuple[int, ...], values: Sequence[Mapping[str, TensorFile]]) -> tuple[int, ...]:
        """Those nodes of ``piece`` whose inputs are known or made inside it."""
        known: Mapping[str, Any] = values[0] if values else {}
        made: set[str] = set()
        kept = []
        for index in piece:
            node = self.graph.nodes[index]
            if all(name in made or name in known or name in self.graph.initializers for name in node.inputs):
                made.update(node.outputs)
                kept.append(index)
        return tuple(kept)

    def _run(self, nodes: tuple[int, ...], values: list[dict[str, TensorFile]], timeout: float) -> str | None:
        """Run nodes with all their tensors as outputs; return why it failed, if it did."""
        self._pieces += 1
        piece = Piece(nodes, self._types(nodes, values), self.folder / f"piece{self._pieces}")
        piece.folder.mkdir(parents=True)
        demand = self._demand
        must = needed(self.graph, nodes) if demand else frozenset[str]()
        full = demand and (self.lazy or demand.kept >= demand.limit)
        found = self._call(piece, values, timeout, must | self.graph.data_independent if full else None, pack=True)
        if isinstance(found, str):
            return found
        size = 0
        for sample, made in zip(values, found["samples"], strict=True):
            for name, tensor in made.items():
                file = sample[name] = TensorFile.from_json(tensor)
                size += file.size
                constant = name in self.graph.data_independent and file.size <= CONSTANT if demand else True
                if demand and file.packed is None and name not in must and not constant:
                    demand.add(file, piece)
        self._node_bytes = size / len(nodes) / max(len(values), 1)
        return None

    def _again(self, values: list[dict[str, TensorFile]], piece: Piece, names: frozenset[str], size: int) -> str | None:
        """Run a piece once more as it was run; write these tensors alone, which take ``size`` bytes."""
        self._room.confirm(size, "computing recorded values again")
        found = self._call(piece, values, self.timeout, names, pack=False)
        if not isinstance(found, str):
            return None
        self._room.confirm()
        return found

    def _call(
        self,
        piece: Piece,
        values: list[dict[str, TensorFile]],
        timeout: float,
        write: frozenset[str] | None,
        *,
        pack: bool,
    ) -> str | dict[str, Any]:
        """Return what `run` answers about a piece, or why it failed.

        ``write``: as `run` takes it; ``pack``: small values go into one file.
        """
        try:
            made = cut(self.graph, piece.nodes, types=piece.types, constants={}, expose="all")
            path = self.store.write(made.model, piece.folder)
        except CutError as error:
            return str(error)
        left = machine.free_mb()
        reply = self.pool.call(
            "run",
            {
                "backend": dict(self.backend),
                "model": str(path),
                "samples": [paths({name: sample[name] for name in made.inputs}) for sample in values],
                "out": str(piece.folder),
                **({"pack": PACK} if pack else {}),
                **({} if write is None else {"write": sorted(write.intersection(made.outputs))}),
            },
            python=self.python,
            timeout=timeout,
            memory_mb=self.memory_mb or max(int(left * SHARE_OF_MEMORY), LEAST_MB),
            fresh=len(piece.nodes) == 1,  # the halves of a larger piece are the second opinion
            confirm=False,
            lease=lease_of(self.backend, self.pool, self.python),
        )
        path.unlink(missing_ok=True)
        if reply.failure and reply.failure.stage == "setup":
            under = f" python={self.python}" if self.python else ""
            raise UsageError(f"no values can be recorded with {self.backend['name']}{under}: {reply.failure.message}")
        if reply.value is None:
            said = f"{reply.failure.stage}: {reply.failure.message}" if reply.failure else "no answer"
            return reply.death or without_folder(said, path)
        return dict(reply.value)

    def _types(self, piece: Sequence[int], values: Sequence[Mapping[str, TensorFile]]) -> dict[str, onnx.TypeProto]:
        """What is known of the types of the tensors that a piece reads and gives."""
        used = {name for index in piece for name in (*self.graph.nodes[index].inputs, *self.graph.nodes[index].outputs)}
        held = [{name: sample[name] for name in used if name in sample} for sample in values]
        known = {**self.types, **recorded_types(held)}
        # the model's own inputs as the file declares them: a shape decides which branches a runtime looks into
        for name in self.graph.inputs:
            if name in self.graph.value_types and structure_of(self.graph.value_types[name]):
                known.pop(name, None)
        return known
