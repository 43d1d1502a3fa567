"""A digest in a thread of its own is that of all pieces, in their order."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from runner.judgment import ModelError
from runner.model.files.read_model import HashedAside


def test_it_is_the_digest_of_all_pieces_in_their_order() -> None:
    pieces = [os.urandom(1 + 40_000 * (number % 3)) for number in range(50)]
    with HashedAside() as digest:
        for piece in pieces:
            digest.update(piece)
        assert digest.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_what_cannot_be_hashed_is_said_and_no_thread_is_left() -> None:
    before = threading.active_count()
    with HashedAside() as digest:
        digest.update("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            digest.hexdigest()
    assert threading.active_count() == before


def test_a_file_that_the_thread_reads_comes_before_the_pieces_after_it(tmp_path: Path) -> None:
    content, pieces = os.urandom(3_000_000), [b"a", b"b" * 70_000]
    (tmp_path / "file").write_bytes(content)
    with HashedAside() as digest:
        digest.update_from(tmp_path / "file", len(content))
        for piece in pieces:
            digest.update(piece)
        assert digest.hexdigest() == hashlib.sha256(content + b"".join(pieces)).hexdigest()


def test_a_file_that_cannot_be_read_or_has_become_shorter_is_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"1234")
    with HashedAside() as digest:
        digest.update_from(tmp_path / "short", 5)
        with pytest.raises(ModelError, match="short ended 1 bytes too early"):
            digest.hexdigest()
    with HashedAside() as digest:
        digest.update_from(tmp_path, 5)
        with pytest.raises(ModelError, match="cannot be read: Is a directory"):
            digest.hexdigest()
