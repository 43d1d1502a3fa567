"""Hand over input files that lie: one clear line each or values that fit, and nothing read elsewhere.

    python -m benchmarks.hostile_inputs [--seed 1] [--every 20] [--keep FOLDER]

npz, npy and pb files and test_data_set folders, damaged at random (seed 0 was looked at while the reader was written,
others were not) and forged on purpose. Each is read as a run reads it (`inputs=files`), in a process of its own; every
``--every``-th goes through the whole of `python -m runner` as well. Prints a table by kind, then each problem: another
exception than a usage error, an error of more than one line or without the file's name, a reading that does not end
within 10 s or takes more than 1 GiB, a file outside that was opened.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random

import numpy as np
from onnx import ModelProto, OptionalProto, SequenceProto, TensorProto, TypeProto, helper, numpy_helper

from benchmarks import varint, winnow
from benchmarks.malformed import Columns, Row, Watched, peak, slowest, table, unclear, with_problems
from benchmarks.malformed_models import OUTSIDE, SECRET, outside
from runner.exit_codes import UsageError
from runner.model.graph.graph_index import Graph
from runner.samples.declared_inputs import declared
from runner.samples.files import from_files
from runner.schema.inputs import FilesInputs

_FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", None])


def _model(kind: TypeProto, second: TypeProto | None = None) -> ModelProto:
    inputs = [helper.make_value_info("x", kind), *([helper.make_value_info("z", second)] if second else [])]
    nodes = [helper.make_node("Identity", [one.name], [f"{one.name}_out"]) for one in inputs]
    outputs = [helper.make_value_info(f"{one.name}_out", one.type) for one in inputs]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


TARGETS = {
    "fixed": _model(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])),
    "open": _model(_FLOATS),
    "any rank": _model(helper.make_tensor_type_proto(TensorProto.FLOAT, None)),
    "two": _model(_FLOATS, helper.make_tensor_type_proto(TensorProto.INT64, [None])),
    "strings": _model(helper.make_tensor_type_proto(TensorProto.STRING, [None])),
    "bfloat16": _model(helper.make_tensor_type_proto(TensorProto.BFLOAT16, [None, None])),
    "int4": _model(helper.make_tensor_type_proto(TensorProto.INT4, None)),
    "sequence": _model(helper.make_sequence_type_proto(_FLOATS)),
    "optional": _model(helper.make_optional_type_proto(_FLOATS)),
    "nested": _model(helper.make_sequence_type_proto(helper.make_sequence_type_proto(_FLOATS))),
}


DAMAGES = 24
"""For each sound file."""

Write = Callable[[Path, Path], Path]


@dataclass(frozen=True)
class Hostile:
    """A file, or a folder. ``write``: puts it at a path without suffix; it gets the folder outside as well."""

    kind: str
    name: str
    target: str
    write: Write


def _put(content: bytes, suffix: str, place: Path, _: Path) -> Path:
    path = place.with_name(place.name + suffix)
    path.write_bytes(content)
    return path


def _saved(save: Callable[..., None], *given: np.ndarray, **arrays: np.ndarray) -> bytes:
    held = io.BytesIO()
    save(held, *given, **arrays)
    return held.getvalue()


npz, npy = partial(_saved, np.savez_compressed), partial(_saved, np.save)
FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)
TENSOR = numpy_helper.from_array(FLOATS, "x")
SEQUENCE = SequenceProto(name="x", elem_type=SequenceProto.TENSOR, tensor_values=[TENSOR, TENSOR])
OPTIONAL = OptionalProto(name="x", elem_type=OptionalProto.TENSOR, tensor_value=TENSOR)
NESTED = SequenceProto(name="x", elem_type=SequenceProto.SEQUENCE, sequence_values=[SEQUENCE])
TYPED = helper.make_tensor("x", TensorProto.FLOAT, [2, 3], FLOATS.ravel().tolist())
WORDS = helper.make_tensor("x", TensorProto.STRING, [2], [b"one", b"two"])
SOUND = {
    "npz": (".npz", "open", npz(x=FLOATS)),
    "npz of two": (".npz", "two", npz(x=FLOATS, z=np.arange(3))),
    "npz of words": (".npz", "strings", npz(x=np.array(["one", "two"]))),
    "npy": (".npy", "any rank", npy(FLOATS)),
    "pb": (".pb", "open", TENSOR.SerializeToString()),
    "typed pb": (".pb", "any rank", TYPED.SerializeToString()),
    "pb of words": (".pb", "strings", WORDS.SerializeToString()),
    "sequence": (".pb", "sequence", SEQUENCE.SerializeToString()),
    "optional": (".pb", "optional", OPTIONAL.SerializeToString()),
    "nested": (".pb", "nested", NESTED.SerializeToString()),
}


def damaged(seed: int) -> Iterator[Hostile]:
    """Yield each sound file with bits flipped, bytes changed, cut off, and pieces taken out or doubled."""
    random = Random(seed)
    for name, (suffix, target, sound) in SOUND.items():
        for number in range(DAMAGES):
            how = ("flipped", "changed", "cut", "doubled")[number % 4]
            content = _damaged(sound, how, random)
            yield Hostile(f"damaged {suffix[1:]}", f"{name} {how} {number}", target, partial(_put, content, suffix))


def _damaged(sound: bytes, how: str, random: Random) -> bytes:
    content = bytearray(sound)
    start = random.randrange(len(content))
    stop = min(len(content), start + random.randint(1, 16))
    if how == "flipped":
        for _ in range(random.randint(1, 6)):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    elif how == "changed":
        content[start:stop] = random.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * (stop - start)
    elif how == "cut":
        del content[start : random.choice((len(content), stop))]
    else:
        content[start:start] = content[start:stop] * random.randint(1, 40)
    return bytes(content)


# ---- forged

_HEADERS = {
    "a shape of 2^50": "(1125899906842624,)",
    "a shape of 2^64": "(18446744073709551616,)",
    "none of very much": "(0, 4611686018427387904)",
    "none of 2^70": "(1180591620717411303424, 0)",
    "a size that overflows": "(4294967296, 4294967296, 4294967296)",
    "a negative size": "(-1, 3)",
    "two negative sizes": "(-2, -3)",
    "a size that is no number": "('a',)",
    "a size that is half": "(1.5,)",
    "a size that is true": "(True, 3)",
    "no size": "(None,)",
    "a list": "[2, 3]",
    "a number": "6",
    "a hundred ranks": "(" + "1," * 100 + ")",
    "code": "__import__('os').system('true')",
    "deep": "(" * 150 + ")" * 150,
    "long": "(" + "1," * 4000 + ")",
}
_TYPES = {
    "objects": "'|O'",
    "objects inside": "[('a', '|O')]",
    "void of nothing": "'|V0'",
    "text of nothing": "'<U0'",
    "bytes of nothing": "'|S0'",
    "text of 2^31": "'<U536870911'",
    "void of 2^31": "'|V2147483647'",
    "void of 2^40": "'|V1099511627776'",
    "fields": "[('a', '<f4'), ('b', '<f4')]",
    "a field within a field": "[('a', [('b', '<f4', (1000000000,))])]",
    "no type": "None",
    "a word": "'nonsense'",
    "dates": "'<M8[s]'",
    "a number": "7",
    "a tuple": "('<f4', (1073741824, 1073741824))",
    "commas": "'f4,' * 9",
    "big-endian": "'>f4'",
}


def _header(shape: str, kind: str, body: bytes = FLOATS.tobytes(), version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text) & (0xFFFF if version[0] == 1 else 0xFFFFFFFF))
    return b"\x93NUMPY" + version + length + text + body


def _zipped(member: bytes, name: str = "x.npy", how: int = zipfile.ZIP_STORED, times: int = 1) -> bytes:
    held = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(held, "w", how) as archive:
        warnings.simplefilter("ignore")  # of a name that is there twice
        for _ in range(times):
            archive.writestr(zipfile.ZipInfo(name), member, compress_type=how)
    return held.getvalue()


def _forged_arrays() -> Iterator[Hostile]:
    bodies = {f"shape: {name}": _header(shape, "'<f4'") for name, shape in _HEADERS.items()}
    bodies |= {f"type: {name}": _header("(2, 3)", kind) for name, kind in _TYPES.items()}
    nothing = {name: kind for name, kind in _TYPES.items() if "nothing" in name}
    bodies |= {f"nothing of much: {name}": _header("(1125899906842624,)", kind) for name, kind in nothing.items()}
    bodies |= {
        "version 3": _header("(2, 3)", "'<f4'", version=b"\x03\x00"),
        "version 9": _header("(2, 3)", "'<f4'", version=b"\x09\x09"),
        "version 0": _header("(2, 3)", "'<f4'", version=b"\x00\x00"),
        "a header of 4 GiB": b"\x93NUMPY\x02\x00" + b"\xff" * 4,
        "a header without an end": b"\x93NUMPY\x01\x00\x10\x00{",
        "nothing": b"",
        "a magic word alone": b"\x93NUMPY",
        "a pickle": b"cos\nsystem\n(S'true'\ntR.",
    }
    for name, body in bodies.items():
        for target in ("any rank", "strings"):
            yield Hostile("forged npy", name, target, partial(_put, body, ".npy"))
        yield Hostile("forged npz", name, "any rank", partial(_put, _zipped(body), ".npz"))
    sound = npy(FLOATS)
    archives = {
        "x twice": _zipped(sound, times=2),
        "a name that climbs": _zipped(sound, "../../x.npy"),
        "a name of 60,000 letters": _zipped(sound, "x" * 60_000),
        "a folder": _zipped(b"", "x.npy/"),
        "bzip2": _zipped(sound, how=zipfile.ZIP_BZIP2),
        "a bomb": _zipped(_header("(16777216,)", "'<f4'", bytes(1 << 26)), how=zipfile.ZIP_DEFLATED),
        "a bomb of LZMA": _zipped(_header("(2, 3)", "'<f4'", bytes(1 << 24)), how=zipfile.ZIP_LZMA),
        "no archive": b"PK\x05\x06" + bytes(18),
        "twenty thousand members": _zipped(b"", "y", times=20_000),
    }
    for name, content in archives.items():
        yield Hostile("forged npz", name, "open", partial(_put, content, ".npz"))
    lying = bytearray(_zipped(sound))
    at = lying.index(b"PK\x01\x02")
    lying[at + 20 : at + 28] = struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF0)  # both sizes
    yield Hostile("forged npz", "sizes of 4 GiB", "open", partial(_put, bytes(lying), ".npz"))
    locked = bytearray(_zipped(sound))
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    yield Hostile("forged npz", "encrypted", "open", partial(_put, bytes(locked), ".npz"))


def _forged_tensors() -> Iterator[Hostile]:
    made = {
        "dims of 2^60": TensorProto(name="x", data_type=1, dims=[1 << 60], raw_data=bytes(24)),
        "dims of 2^62 twice": TensorProto(name="x", data_type=1, dims=[1 << 62, 1 << 62], raw_data=bytes(24)),
        "none of much": TensorProto(name="x", data_type=1, dims=[0, 1 << 62], raw_data=b""),
        "none of too much": TensorProto(name="x", data_type=1, dims=[0, (1 << 63) - 1, (1 << 63) - 1], raw_data=b""),
        "a negative size": TensorProto(name="x", data_type=1, dims=[-2, -3], raw_data=bytes(24)),
        "a thousand ranks": TensorProto(name="x", data_type=1, dims=[1] * 1000, raw_data=bytes(4)),
        "no type": TensorProto(name="x", dims=[2, 3], raw_data=bytes(24)),
        "type 99": TensorProto(name="x", data_type=99, dims=[2, 3], raw_data=bytes(24)),
        "type -1": TensorProto(name="x", data_type=-1, dims=[2, 3], raw_data=bytes(24)),
        "words as raw data": TensorProto(name="x", data_type=8, dims=[2], raw_data=bytes(24)),
        "words that are no text": TensorProto(name="x", data_type=8, dims=[2], string_data=[b"\xff\xfe", b"\x00"]),
        "too many words": TensorProto(name="x", data_type=8, dims=[2], string_data=[b"a"] * 9),
        "both forms": TensorProto(name="x", data_type=1, dims=[1], raw_data=bytes(4), float_data=[1.0, 2.0]),
        "the wrong form": TensorProto(name="x", data_type=1, dims=[2], int64_data=[1, 2]),
        "a segment": TensorProto(name="x", data_type=1, dims=[1], segment=TensorProto.Segment(begin=0, end=1 << 40)),
        "int4": TensorProto(name="x", data_type=22, dims=[3], raw_data=bytes(2)),
        "int4, too little": TensorProto(name="x", data_type=22, dims=[1 << 40], raw_data=bytes(2)),
        "int4 as numbers": TensorProto(name="x", data_type=22, dims=[3], int32_data=[999, -999]),
        "bfloat16 as numbers": TensorProto(name="x", data_type=16, dims=[2, 1], int32_data=[1 << 30, -1]),
        "a name that is hostile": TensorProto(name="\x1b[31mx\n", data_type=1, dims=[1], raw_data=bytes(4)),
    }
    for name, tensor in made.items():
        for target in ("any rank", "strings", "int4", "bfloat16", "fixed"):
            yield Hostile("forged pb", name, target, partial(_put, tensor.SerializeToString(), ".pb"))
        held = SequenceProto(name="x", elem_type=SequenceProto.TENSOR, tensor_values=[tensor])
        yield Hostile("forged pb", f"{name}, in a sequence", "sequence", partial(_put, held.SerializeToString(), ".pb"))
    for target in ("sequence", "optional", "nested", "open"):
        for name, (_, _, content) in SOUND.items():
            yield Hostile("another kind", f"{name} for {target}", target, partial(_put, content, ".pb"))
        yield Hostile("forged pb", f"deep, for {target}", target, partial(_put, _deep(5000), ".pb"))


def _deep(levels: int) -> bytes:
    """A sequence in a sequence in a sequence."""
    content = b""
    for _ in range(levels):
        content = b"\x2a" + varint(len(content)) + content
    return content


def _elsewhere(location: str, place: Path, folder: Path) -> Path:
    """A tensor whose data lies elsewhere."""
    tensor = outside("x", [2, 3], location.format(outside=folder))
    return _put(tensor.SerializeToString(), ".pb", place, folder)


def _in_folder(name: str, make: Callable[[Path, Path], object], place: Path, outside: Path) -> Path:
    """A data set one of whose files is none."""
    place.mkdir()
    make(place / name, outside)
    return place


def _odd_files() -> Iterator[Hostile]:
    for location in (f"{{outside}}/{SECRET}", f"../outside/{SECRET}", "given.pb", "/dev/zero"):
        yield Hostile("data outside", location, "fixed", partial(_elsewhere, location))
    odd: dict[str, Callable[[Path, Path], object]] = {
        "a pipe": lambda path, _: os.mkfifo(path),
        "a folder": lambda path, _: path.mkdir(),
        "a link to nothing": lambda path, _: path.symlink_to("nothing"),
        "a link to itself": lambda path, _: path.symlink_to(path),
        "a device without an end": lambda path, _: path.symlink_to("/dev/zero"),
        "a link to a pipe outside": lambda path, outside: path.symlink_to(outside / "pipe"),
        "a file with a hole": lambda path, _: (path.touch(), os.truncate(path, 1 << 40)),
        "nothing in it": lambda path, _: path.touch(),
    }
    for name, make in odd.items():
        for member in ("input_0.pb", "input_" + "9" * 200 + ".pb", "a.npz"):
            for target in ("open", "sequence"):
                yield Hostile("odd files", f"{name}: {member[:12]}", target, partial(_in_folder, member, make))


@cache
def forged() -> tuple[Hostile, ...]:
    """Return the files that are forged on purpose."""
    return *_forged_arrays(), *_forged_tensors(), *_odd_files()


SECONDS = 10
MOST_MIB = 1024


def everything(seed: int) -> list[Hostile]:
    """Return all files of a seed, the same ones in the same order each time."""
    return [*damaged(seed), *forged()]


def read(file: Hostile, folder: Path) -> Row:
    """Write a file and read it as a run does, in a process of its own."""
    folder.mkdir(parents=True)
    row = Row(file, file.write(folder / "given", folder.parent / OUTSIDE))
    answer = folder / "answer"
    row.forked(lambda: _read(row, answer), SECONDS)
    row.said = answer.read_text() if answer.exists() else ""
    if row.code:
        row.problems.append(f"the reading process ended with {row.code}")
    row.code = None
    return judged(row)


def _read(row: Row, answer: Path) -> None:
    """Read the file; write down what came of it."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_MIB << 20, 4 * MOST_MIB << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        inputs = declared(Graph.of(TARGETS[row.file.target]))
        samples = from_files(FilesInputs(path=str(row.path)), inputs, None, answer.with_name("values"))
        told = f"read {len(samples)}"
    except UsageError as error:
        told = f"usage: {error}"
    except BaseException as error:  # noqa: BLE001 - whatever else comes is what is looked for
        told = f"raised {type(error).__name__}: {error}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    told = told if grown < MOST_MIB else f"took {grown:.0f} MiB; {told}"
    answer.write_text(told[:4000], errors="backslashreplace")


def judged(row: Row) -> Row:
    """Note what is wrong with how the reading ended."""
    kind, _, message = row.said.partition(": ")
    if kind == "usage":
        row.refused = message
        row.problems += unclear(message)
        if str(row.path) not in message:
            row.problems.append(f"the file is not named: {message[:200]}")
    elif not row.said.startswith("read "):
        row.problems.append(row.said[:300])
    return row


def run(row: Row, root: Path) -> None:
    """Run the whole of Winnow with the file as its inputs."""
    model, folder = root / f"{row.file.target}.onnx", root / "runs" / row.path.parent.parent.name
    model.write_bytes(TARGETS[row.file.target].SerializeToString())
    words = (f"model={model}", "inputs=files", f"inputs.path='{row.path}'", "checker=finite", "budget.checks=5")
    done, _ = winnow(folder, *words, timeout=300)
    row.code, said = done.returncode, done.stdout + done.stderr
    if row.code not in (0, 2, 3, 4, 6) or "Traceback" in said or "This is a bug" in said:
        row.problems.append(f"exit code {row.code}: {said.strip()[-300:]}")
    if row.refused is not None and row.code != 2:
        row.problems.append(f"it is refused when read, and the run ends with {row.code}")


COLUMNS: Columns = {
    "files": len,
    "refused": lambda group: sum(row.refused is not None for row in group),
    "read": lambda group: sum(row.said.startswith("read ") for row in group),
    "whole runs": lambda group: sum(row.code is not None for row in group),
    "most MiB": peak,
    "slowest (s)": slowest,
    "problems": with_problems,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=20, help="run every Nth as well; 0: none")
    parser.add_argument("--keep", type=Path, help="write everything here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = (given.keep or Path(scratch)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        watched = Watched(root / OUTSIDE)
        rows = [read(file, root / f"{number:04d}") for number, file in enumerate(everything(given.seed))]
        for row in rows[:: given.every] if given.every else ():
            run(row, root)
        wrong, opened = table(rows, COLUMNS), watched.opened()
        print(f"\nopened outside: {', '.join(sorted(opened)) or 'nothing'}")
    return 1 if wrong or opened else 0


if __name__ == "__main__":
    sys.exit(main())
