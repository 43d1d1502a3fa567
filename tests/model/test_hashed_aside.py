"""A digest in a thread of its own is that of all pieces, in their order."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest

from runner.model.files.hashed_aside import HashedAside


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
