"""Values that a worker holds are, when they are asked for, what they would be if they had been written."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper

from runner.model.values import recorded as values
from runner.reference.recording import for_one_check
from runner.workers.pool import Pool
from runner.workers.worker import Worker, find_python
from tests.model.models import model_of
from tests.reference.test_values_on_demand import LARGE, MODELS, SIDE, chain, info, on_disk, recorder, samples


@pytest.fixture
def pool(tmp_path):
    """Of each test: what a worker holds is its own."""
    with Pool(tmp_path / "workers") as pool:
        yield pool


class Calls:
    """The operations that a pool was asked for, the samples and names of `run` left out."""

    def __init__(self, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        call = pool.call

        def counted(name, *args, **given):
            self.names.append(name)
            return call(name, *args, **given)

        monkeypatch.setattr(pool, "call", counted)

    @property
    def runs(self) -> int:
        return self.names.count("run")


@pytest.mark.variants
@pytest.mark.parametrize("name", MODELS)
def test_what_a_worker_holds_is_written_when_it_is_asked_for(name, tmp_path, pool, monkeypatch):
    proto = MODELS[name]
    given = samples(proto, tmp_path, 1)
    every = recorder(proto, tmp_path / "all", pool).record(given).values
    calls = Calls(pool, monkeypatch)
    found = recorder(proto, tmp_path / "held", pool, budget=4 * LARGE, disk=1 << 30, hold=1 << 30).record(given)
    runs, written = calls.runs, on_disk(tmp_path / "held")
    assert not found.on_demand
    assert written < on_disk(tmp_path / "all") or name == "branches"  # the values of its If are read by others
    for kept, held in zip(every, found.values, strict=True):
        for tensor in sorted(kept, key=hash):  # in any order
            assert (held[tensor].finite, held[tensor].type) == (kept[tensor].finite, kept[tensor].type)
            assert for_one_check({tensor: held[tensor]})[tensor].content() == kept[tensor].content(), tensor
    assert calls.runs == runs
    assert ("write_held" in calls.names) is (written < on_disk(tmp_path / "all"))


def waves(count: int, side: int):
    """A chain of as many large values."""
    nodes = [helper.make_node("Cos", [f"v{at}" if at else "x"], [f"v{at + 1}"]) for at in range(count)]
    shape = [side, side]
    return model_of(nodes, [info("x", shape)], [info(f"v{count}", None)])


def wave(folder: Path, side: int):
    return [{"x": values.write(np.ones((side, side), np.float32), "x", folder / "x.pb")}]


def idle(pool: Pool) -> list[Worker]:
    return [worker for workers in pool._idle.values() for worker in workers]


def test_what_a_worker_may_not_hold_is_written(tmp_path, pool, monkeypatch):
    """A runtime gives its memory back as one: what is held of half of the values would keep all of it."""
    side, count, hold = 512, 160, 96 << 20  # values of 1 MiB
    calls = Calls(pool, monkeypatch)
    given = wave(tmp_path, side)
    limits = {"budget": 1 << 30, "disk": 1 << 30, "hold": hold}
    found = recorder(waves(count, side), tmp_path / "held", pool, **limits).record(given)
    (worker,) = idle(pool)
    memory = psutil.Process(worker.pid).memory_info()
    assert memory.rss - memory.shared < hold
    assert on_disk(tmp_path / "held") > count << 20
    assert not found.on_demand
    assert found.values[0]["v7"].content() and calls.runs == 1
    recorder(waves(count // 8, side), tmp_path / "some", pool, **limits).record(given)
    assert on_disk(tmp_path / "some") < 2 << 20
    # a value that the disk has no room for is computed again, as ever
    none = recorder(waves(count, side), tmp_path / "none", pool, **{**limits, "disk": 0}).record(given)
    assert none.on_demand and none.values[0]["v7"].content() == found.values[0]["v7"].content()


@pytest.mark.slow
def test_what_a_dead_worker_held_takes_no_memory(tmp_path, pool, monkeypatch):
    """Nor does what one node alone gives, whose worker ends: else the rest would be run node by node."""
    given, side = wave(tmp_path, SIDE), SIDE
    ended = []
    call = pool.call

    def call_once(name, *args, **more):
        reply = call(name, *args, **more)
        for worker in idle(pool):
            os.kill(worker.pid, signal.SIGKILL)
        ended.append(more.get("fresh", False))
        return reply

    monkeypatch.setattr(pool, "call", call_once)
    fresh = []
    for hold in (0, 4 * LARGE):
        limits = {"budget": 8 * LARGE, "disk": 1 << 30, "hold": hold}
        found = recorder(waves(60, side), tmp_path / str(hold), pool, **limits).record(given)
        assert len(found.values[0]) == 61
        fresh.append(ended.count(True))
        ended.clear()
    assert fresh == [0, 0]


def test_a_value_that_one_sample_lacks(tmp_path, pool):
    shape = [SIDE]
    proto = model_of(
        [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Identity", ["a"], ["y"])],
        [info("x", shape, TensorProto.STRING)],
        [info("y", shape, TensorProto.STRING)],
    )
    given = [
        {"x": values.write(np.array([text * 1000] * SIDE, object), "x", tmp_path / f"x{at}.pb")}
        for at, text in enumerate(("a", "\udcff"))
    ]
    lazy = recorder(proto, tmp_path / "lazy", pool, disk=0, lazy=True).record(given)
    assert "a" not in lazy.values[1]
    assert lazy.values[0]["a"].content().count(b"a" * 1000) == SIDE


def test_what_no_worker_holds_any_more_is_computed_again(tmp_path, pool, monkeypatch):
    given = samples(chain(), tmp_path, 1)
    every = recorder(chain(), tmp_path / "all", pool).record(given).values[0]
    found = recorder(chain(), tmp_path / "held", pool, disk=1 << 30, hold=1 << 30).record(given).values[0]
    calls = Calls(pool, monkeypatch)
    for worker in idle(pool):
        os.kill(worker.pid, signal.SIGKILL)
    assert found["m1"].content() == every["m1"].content()
    assert calls.runs == 1
    # the worker that has it now holds nothing; what lies there is not asked for again
    assert (found["m1"].content(), found["t2"].content()) == (every["m1"].content(), every["t2"].content())
    assert calls.runs == 2


def test_what_is_let_go_is_computed_again(tmp_path, pool, monkeypatch):
    given = samples(chain(), tmp_path, 1)
    every = recorder(chain(), tmp_path / "all", pool).record(given).values[0]
    recorded = recorder(chain(), tmp_path / "held", pool, disk=1 << 30, hold=1 << 30).record(given)
    found, calls = recorded.values[0], Calls(pool, monkeypatch)
    assert (found["t1"].content(), calls.runs) == (every["t1"].content(), 0)
    recorded.let_go()
    assert (found["t1"].content(), calls.runs) == (every["t1"].content(), 0)
    assert (found["m1"].content(), calls.runs) == (every["m1"].content(), 1)
    before = [*calls.names]
    recorded.let_go()
    assert calls.names == before  # nothing is held


def test_a_worker_that_is_busy_is_not_waited_for(tmp_path, pool, monkeypatch):
    given = samples(chain(), tmp_path, 1)
    every = recorder(chain(), tmp_path / "all", pool).record(given).values[0]
    found = recorder(chain(), tmp_path / "held", pool, disk=1 << 30, hold=1 << 30).record(given).values[0]
    calls = Calls(pool, monkeypatch)
    holder = pool._take(find_python(None), False, None, None)
    assert found["m1"].content() == every["m1"].content()
    assert calls.runs == 1
    pool._give_back(holder)
