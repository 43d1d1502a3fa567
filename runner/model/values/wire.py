"""Protobuf's wire format, read and written field by field where a message of protobuf would hold a whole model.

It is that of https://protobuf.dev/programming-guides/encoding. This module also runs in workers under Python 3.8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NUMBER, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
"""How a field is written: a number of any size, eight bytes, a length and as many bytes, four bytes."""
LONGEST_HEAD = 20
"""The most bytes before the content of a field, or of a whole one that is a number."""


class Field(NamedTuple):
    """One field: its number, how it is written, and where its content begins and ends."""

    number: int
    kind: int
    start: int
    stop: int


def field(data: Any, at: int) -> Field:
    """Return the field at a place of ``data``, which may end after its head. Raises ValueError where there is none."""
    key, start = read_number(data, at)
    if key & 7 == BYTES:
        length, start = read_number(data, start)
    elif key & 7 == NUMBER:
        length = read_number(data, start)[1] - start
    elif key & 7 in (EIGHT_BYTES, FOUR_BYTES):
        length = 8 if key & 7 == EIGHT_BYTES else 4
    else:
        raise ValueError("no field of a message")
    return Field(key >> 3, key & 7, start, start + length)


def read_number(data: Any, at: int) -> tuple[int, int]:
    """Return the number at a place of ``data``, and the place behind it. Raises ValueError where there is none."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError("cut off")


def write_number(value: int) -> bytes:
    """Return a number as it is written: 7 bits a byte, the lowest first, the top bit set on all but the last."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def delimited(number: int, length: int) -> bytes:
    """Return what stands before the ``length`` bytes of a field."""
    return write_number(number << 3 | BYTES) + write_number(length)
