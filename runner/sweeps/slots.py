"""How many jobs run at once: each takes as many slots as it will keep CPUs busy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_SECONDS = 0.2


class Slots:
    """``total`` slots, handed out in the order in which they are asked for. Thread-safe."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, count: int, given_up: Callable[[], bool]) -> Iterator[bool]:
        """Hold ``count`` slots (at most all of them). Yields False, and holds none, once ``given_up``."""
        count = min(count, self.total)
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            # polled: what gives up is a signal's handler, which must not wait for a lock
            while not (given_up() or (self._waiting[0] is ticket and self._free >= count)):
                self._changed.wait(_LOOK_SECONDS)
            held = not given_up()
            self._waiting.remove(ticket)
            if held:
                self._free -= count
            self._changed.notify_all()
        try:
            yield held
        finally:
            if held:
                with self._changed:
                    self._free += count
                    self._changed.notify_all()
