"""Malformed model files, always the same ones: bytes that were damaged, and files that are no models at all.

Each is written into a folder of its own. `malformed_fields` holds those whose protobuf is sound and whose content is
not.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from onnx import TensorProto

from benchmarks.malformed_bases import WEIGHTS, Base, outside

MODEL = "model.onnx"
FLIPS, TRUNCATIONS = 40, 16  # for each base
# a folder beside those of the models; nothing in it may be opened
OUTSIDE = "outside"
SECRET = "secret.bin"

Write = Callable[[Path], Path]


@dataclass(frozen=True)
class Malformed:
    """One malformed model. ``write``: puts its files into a folder and returns the path to hand over as the model."""

    kind: str
    name: str
    write: Write


def plain(kind: str, name: str, content: bytes, base: Base | None = None) -> Malformed:
    """A model file of these bytes, with the files that lie beside ``base``."""

    def write(folder: Path) -> Path:
        for beside, data in (base.beside if base else {}).items():
            (folder / beside).write_bytes(data)
        (folder / MODEL).write_bytes(content)
        return folder / MODEL

    return Malformed(kind, name, write)


def bit_flips(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield files with one to eight bits flipped; half of them only one."""
    sound = base.model.SerializeToString()
    for number in range(FLIPS):
        content = bytearray(sound)
        for _ in range(1 if number % 2 else random.randint(2, 8)):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        yield plain("bit flips", f"{base.name} {number}", bytes(content), base)


def truncations(base: Base) -> Iterator[Malformed]:
    """Yield files that end too early: by one byte, and at places all over."""
    sound = base.model.SerializeToString()
    ends = {1, 2, len(sound) - 1, *(len(sound) * step // TRUNCATIONS for step in range(1, TRUNCATIONS - 2))}
    for end in sorted(ends):
        yield plain("truncated", f"{base.name} {end}", sound[:end], base)


def wire(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield what protobuf itself has to cope with."""
    sound = base.model.SerializeToString()
    contents = {
        "twice in one file": sound + sound,
        "followed by zeros": sound + bytes(64),
        "followed by noise": sound + random.randbytes(64),
        "a field of 2 GiB that is not there": sound + b"\x3a" + b"\xff\xff\xff\xff\x07",
        "a length that never ends": sound + b"\x3a" + b"\xff" * 11,
        "field number zero": b"\x00\x00" + sound,
        "the graph as a number": b"\x38\x01" + sound,
        "the graph as a 64 bit word": b"\x39" + bytes(8) + sound,
        "an end without a group": sound + b"\x0c",
        "a group without an end": sound + b"\x0b",
        "10,000 unknown groups in each other": sound + b"\xa3\x06" * 10_000 + b"\xa4\x06" * 10_000,
        "an unknown field": sound + b"\xa2\x06\x05hello",
        "a graph in pieces": sound + b"\x3a\x00",
    }
    for name, content in contents.items():
        yield plain("wire format", name, content, base)


def not_models(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield files of another kind."""
    sound = base.model.SerializeToString()
    contents = {
        "empty": b"",
        "one byte": b"\x08",
        "zeros": bytes(1 << 20),
        "text": b"this is not a model\n" * 40,
        "JSON": json.dumps({"ir_version": 8, "graph": {"node": []}}).encode(),
        "ONNX as text": b'<ir_version: 8, opset_import: ["": 17]>\ng (float[2] x) => (float[2] y) { y = Neg(x) }\n',
        "gzip": gzip.compress(sound, mtime=0),
        "zip": b"PK\x03\x04" + random.randbytes(200),
        "ELF": b"\x7fELF\x02\x01\x01" + random.randbytes(200),
        "PNG": b"\x89PNG\r\n\x1a\n" + random.randbytes(200),
        "TFLite": b"\x1c\0\0\0TFL3" + random.randbytes(200),
        "UTF-16": "ä model".encode("utf-16"),
        "git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n",
        "a tensor": TensorProto(name="t", data_type=1, dims=[2], raw_data=bytes(8)).SerializeToString(),
        "only a version": b"\x08\x08",
        **{f"noise {number}": random.randbytes(1 << number) for number in range(2, 14)},
    }
    for name, content in contents.items():
        yield plain("not a model", name, content)


def paths() -> Iterator[Malformed]:
    """Yield paths at which there is no file that can be read."""
    makers: dict[str, Callable[[Path], object]] = {
        "missing": lambda path: None,
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a socket": _socket,
        "a dangling link": lambda path: path.symlink_to("nowhere"),
        "a loop of links": lambda path: path.symlink_to(path.name),
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "3 GiB of nothing": _sparse,
    }
    for name, make in makers.items():
        yield Malformed("path", name, _path(make))


def _path(make: Callable[[Path], object]) -> Write:
    def write(folder: Path) -> Path:
        make(folder / MODEL)
        return folder / MODEL

    return write


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def escapes(base: Base) -> Iterator[Malformed]:
    """Yield external data that lies outside the model's folder, or is not what it says."""
    up = f"../{OUTSIDE}/{SECRET}"
    locations = {
        "above": up,
        "above, through a folder": f"sub/../../{OUTSIDE}/{SECRET}",
        "above, with backslashes": up.replace("/", "\\"),
        "above, with a dot": f"./{up}",
        "absolute": f"ROOT/{OUTSIDE}/{SECRET}",
        "absolute, with two slashes": f"/ROOT/{OUTSIDE}/{SECRET}",
        "a drive": "C:\\secret.bin",
        "a URL": f"file://ROOT/{OUTSIDE}/{SECRET}",
        "a home": f"~/{SECRET}",
        "a variable": "$HOME/secret.bin",
        "a link out": "link",
        "a link to a link out": "link2",
        "a folder that is a link out": f"folder/{SECRET}",
        "a link to a pipe outside": "pipelink",
        "a loop of links": "loop",
        "a pipe": "pipe",
        "a folder": "sub",
        "the model's folder": ".",
        "the folder above": "..",
        "nothing": "",
        "missing": "nowhere.bin",
        "/dev/zero": "/dev/zero",
        "a link to /dev/zero": "zero",
        "/dev/stdin": "/dev/stdin",
        "/proc/self/mem": "/proc/self/mem",
        "a NUL": f"{WEIGHTS}\0.txt",
        "a newline": f"{WEIGHTS}\n",
        "5,000 letters": "x" * 5000,
        "a link to a secret by a folder of links": f"folder/../{OUTSIDE}/{SECRET}",
    }
    for name, location in locations.items():
        yield _external(base, name, lambda tensor, location=location: _set(tensor, location=location))
    entries: dict[str, dict[str, object]] = {
        "an offset behind the end": {"offset": 1 << 40},
        "an offset of 2**63": {"offset": 1 << 63},
        "an offset of 2**70": {"offset": 1 << 70},
        "a negative offset": {"offset": -1},
        "an offset that is no number": {"offset": "many"},
        "an offset of 5,000 digits": {"offset": "9" * 5000},
        "an offset with underscores": {"offset": "1_0"},
        "a negative length": {"length": -256},
        "no bytes": {"length": 0},
        "one byte": {"length": 1},
        "a huge length": {"length": 1 << 62},
        "a length that is no number": {"length": "0x10"},
    }
    for name, changed in entries.items():
        yield _external(base, name, lambda tensor, changed=changed: _set(tensor, **changed))
    yield _external(base, "no entries at all", lambda tensor: tensor.ClearField("external_data"))
    yield _external(base, "two locations", lambda tensor: tensor.external_data.add(key="location", value=up))
    yield _external(base, "inside and outside", lambda tensor: setattr(tensor, "raw_data", bytes(256)))
    yield _external(base, "absurd dims", lambda tensor: tensor.dims.extend([1 << 40, 1 << 40]))
    yield _external(base, "a negative dimension", lambda tensor: tensor.dims.__setitem__(0, -8))
    yield _external(base, "strings", lambda tensor: setattr(tensor, "data_type", 8))
    yield _external(base, "an unknown type", lambda tensor: setattr(tensor, "data_type", 99))
    yield _external(base, "a location type of 7", lambda tensor: tensor.MergeFromString(b"\x70\x07"))
    yield _in_attribute(base, up)


def _set(tensor: TensorProto, **changed: object) -> None:
    for entry in tensor.external_data:
        if entry.key in changed:
            entry.value = str(changed[entry.key])


def _external(base: Base, name: str, change: Callable[[TensorProto], object]) -> Malformed:
    def write(folder: Path) -> Path:
        root = folder.parent
        (folder / "sub").mkdir()
        for link, target in {
            "link": root / OUTSIDE / SECRET,
            "link2": Path("link"),
            "folder": root / OUTSIDE,
            "pipelink": root / OUTSIDE / "pipe",
            "loop": Path("loop"),
            "zero": Path("/dev/zero"),
        }.items():
            (folder / link).symlink_to(target)
        os.mkfifo(folder / "pipe")
        for beside, data in base.beside.items():
            (folder / beside).write_bytes(data)
        model = type(base.model).FromString(base.model.SerializeToString())
        change(model.graph.initializer[0])
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = entry.value.replace(
                    "ROOT", str(root).lstrip("/") if "//ROOT" in entry.value else str(root)
                )
        (folder / MODEL).write_bytes(model.SerializeToString())
        return folder / MODEL

    return Malformed("external data", name, write)


def _in_attribute(base: Base, location: str) -> Malformed:
    model = type(base.model).FromString(base.model.SerializeToString())
    constant = model.graph.node.add(op_type="Constant", output=["c"])
    attribute = constant.attribute.add(name="value", type=4)
    attribute.t.CopyFrom(outside("c", [4], location))
    return plain("external data", "a Constant's value above", model.SerializeToString(), base)


def secret() -> bytes:
    """What lies outside: as many float32 of one odd value as any of the models could want."""
    return struct.pack("<f", 1234.5678) * 4096
