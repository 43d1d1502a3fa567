"""Repeating and isolating with a builder that is a plain function: what is chosen decides whether the engine is bad.

All but TensorRT itself is real: the job, the command that judges, the journal, the artifacts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from runner.checkers.candidate_runs import BackendRun
from runner.checkers.checker import Tools
from runner.checkers.checker import build as build_checker
from runner.cli.compose import register, to_settings
from runner.jobs.job import Job
from runner.jobs.tactics.recordings import Building, read, write
from runner.jobs.tactics.run import Bench, _pair
from runner.jobs.tactics.run import _bench as bench_of
from runner.reference.load import load
from runner.report.summary import Summary
from runner.schema.installed_choices import CONF
from runner.verdict import Candidate, Signature
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from tests.jobs.models import saved
from tests.jobs.tactics.test_compare import build as recording
from tests.jobs.tactics.test_compare import key
from tests.matrix import sample

LAYERS = 12
GOOD = [1] * LAYERS
Choose = Callable[[int], "list[int]"]


@dataclass
class Builder:
    """``choose``: the tactics that the n-th unpinned build takes. ``honors``: whether it does what is pinned."""

    choose: Choose
    honors: Callable[[Mapping[str, str]], bool] = lambda pins: True
    fails: Callable[[list[int]], str] = lambda taken: ""
    error: str = "4"
    free: int = 0
    pinned: list[Mapping[str, str]] = field(default_factory=list)

    def __call__(self, candidate: Candidate, request: Mapping[str, Any]) -> BackendRun:
        pins = request["pins"]
        if pins:
            assert request["error_on_miss"] and [Path(path).read_bytes() for path in request["load"]]
            self.pinned.append(pins)
            honored = self.honors(pins)
            taken = [int(pins[key(place)], 16) if honored else 1 for place in range(LAYERS)]
        else:
            taken = self.choose(self.free)
            self.free += 1
            Path(request["save"]).write_bytes(b"a timing cache")
        why = self.fails(taken)
        if why:
            return BackendRun(signature=Signature("build", f"error {self.error}"), message=why)
        (candidate.folder / "model.engine").write_text(json.dumps(taken))
        choices = [
            {"layer": f"layer{place}", "key": key(place), "tactic": hex(tactic), "kernel": f"kernel{tactic}"}
            for place, tactic in enumerate(taken)
        ]
        return BackendRun(
            tactics={"choices": choices, "timed": [] if pins else [key(place) for place in range(LAYERS)]}
        )


@pytest.fixture(autouse=True, scope="module")
def _hydra() -> Iterator[None]:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


@contextmanager
def bench(folder: Path, builder: Builder, bad: str, *overrides: str) -> Iterator[Bench]:
    """A bench whose command says that an engine is bad where ``bad`` holds of its tactics ``t``."""
    saved(folder / "m.onnx", "g (float[2] x) => (float[2] y) { y = Relu(x) }")
    check = folder / "check.py"
    check.write_text(f"import json, sys\nt = json.load(open(sys.argv[1]))\nsys.exit(1 if {bad} else 0)\n")
    argv = json.dumps([sys.executable, "-I", "-S", str(check), "{engine}"])
    settings = to_settings(
        compose(
            "config",
            overrides=[
                *(f"model={folder / 'm.onnx'}", "target=tensorrt", "checker=command", f"checker.command={argv}"),
                *("checker.show_output=none", "checker.flaky=never", *overrides),
            ],
        )
    )
    run_folder = folder / "run"
    run_folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        guardian = stack.enter_context(Guardian())
        pool = stack.enter_context(Pool(run_folder / "workers", guardian))
        tools = Tools(pool, guardian, run_folder, folder)
        job = Job(settings, run_folder, ("winnow",), tools, build_checker(settings, tools), 0.0, ExitStack())
        made = bench_of(job, load(settings, pool, run_folder, record=False), "tensorrt 10.9.0")
        checker = made.building.checker
        assert isinstance(checker, Building)
        yield replace(made, building=replace(made.building, checker=replace(checker, build=builder)))


def drawn(number: int) -> list[int]:
    """Tactics from 1 to 3, another set each time."""
    return np.random.default_rng(number).integers(1, 4, LAYERS).tolist()


def isolated(folder: Path, builder: Builder, bad: str, *overrides: str) -> Summary:
    with bench(folder, builder, bad, "strategy=tactic_isolate", *overrides) as made:
        return made.isolate(None)


# ---- repeat


def test_builds_are_sorted_counted_and_compared(tmp_path: Path) -> None:
    builder = Builder(drawn)
    with bench(tmp_path, builder, "t[5] == 3", "strategy=tactic_repeat", "strategy.until=20") as made:
        summary = made.repeat()
    bad = sum(drawn(number)[5] == 3 for number in range(20))
    assert 0 < bad < 20
    assert summary.statistics is not None
    assert (summary.statistics.judged, summary.statistics.passed) == (20, 20 - bad)
    low, high = summary.statistics.pass_rate_95
    assert low < 1 - bad / 20 < high
    first, *_ = summary.suspects
    assert (first.layer, first.tactic, first.bad_builds, first.of) == ("layer5", "0x3", bad, bad)
    places = tmp_path / "run" / "artifacts"
    names = sorted(path.name for side in ("good", "bad") for path in (places / side).glob("*tactics.json"))
    assert [int(name[:5]) for name in names] == list(range(1, 21)), "named by iteration"
    kept = [read(path) for path in sorted((places / "bad").glob("*tactics.json"))]
    assert all(one.choices[5].tactic == "0x3" and one.cache == b"a timing cache" for one in kept)
    assert {one.library for one in kept} == {"tensorrt 10.9.0"}
    assert json.loads((tmp_path / "run" / "result.json").read_text())["suspects"][0]["layer"] == "layer5"


def test_a_build_that_fails_is_a_bad_one(tmp_path: Path) -> None:
    builder = Builder(lambda number: [2 if number % 2 else 1, *GOOD[1:]], fails=lambda taken: "no" * (taken[0] == 2))
    with bench(tmp_path, builder, "False", "strategy=tactic_repeat", "strategy.until=4") as made:
        summary = made.repeat()
    assert summary.outcomes == {"pass": 2, "fail": 2}
    kept = [read(path) for path in (tmp_path / "run" / "artifacts" / "bad").glob("*tactics.json")]
    assert [one.built for one in kept] == [False, False]


# ---- isolate


@pytest.mark.parametrize(
    ("bad", "layers"), sample([("t[2] == 3 and t[9] == 2", {"layer2", "layer9"}), ("t[6] == 3", {"layer6"})], 2)
)
def test_the_smallest_set_of_choices_that_fails(tmp_path: Path, bad: str, layers: set[str]) -> None:
    builder = Builder(lambda number: [2 + place % 2 for place in range(LAYERS)][::-1] if number == 2 else GOOD)
    summary = isolated(tmp_path, builder, bad)
    assert builder.free == 3
    assert (summary.status, summary.exit_code, summary.minimality) == ("found", 0, "1-minimal"), summary.message
    assert {one.layer for one in summary.suspects} == layers
    assert {name.split(":")[0] for name in summary.culprits} == layers
    handed = read(tmp_path / "run" / "reduced.tactics.json")
    taken = [int(choice.tactic, 16) for choice in handed.choices]
    assert eval(bad, {"t": taken})
    assert all(len(pins) == LAYERS for pins in builder.pinned), "every choice is pinned in every trial"


@pytest.mark.slow
def test_no_more_builds_than_a_pair_needs_and_none_twice(tmp_path: Path) -> None:
    first = Builder(drawn)
    summary = isolated(tmp_path, first, "t[7] == 3", "strategy.most_builds=30")
    again = Builder(drawn)
    known = isolated(tmp_path, again, "t[7] == 3", "strategy.most_builds=30")
    assert first.free == next(n for n in range(2, 30) if len({drawn(i)[7] == 3 for i in range(n)}) == 2)
    assert again.free == 0, "a run that goes on pays for nothing twice"
    assert 0 < len(again.pinned) == known.checks.trust, "but for the check of what it hands over"
    assert known.culprits == summary.culprits and known.checks.reused > 0


def pinned_from_files(folder: Path, builder: Builder, bad: str) -> Summary:
    """Isolate in recordings that differ in b, d and e."""
    sides = {"good": GOOD, "bad": [1, 2, 1, 2, 3, *GOOD[5:]]}
    for name, tactics in sides.items():
        write(folder / f"{name}.json", recording(*tactics, names="abcdefghijkl", cache=b"x"))
    files = [f"strategy.{name}={folder / name}.json" for name in sides]
    with bench(folder, builder, bad, "strategy=tactic_isolate", *files) as made:
        return made.isolate(_pair(made.job.settings))


@pytest.mark.parametrize(
    ("bad", "honors", "status", "said"),
    [
        ("False", True, "nothing_to_find", "all 3 differing tactics"),
        ("True", True, "could_not_judge", "good build pinned it does not pass"),
        ("t[3] == 2", False, "could_not_judge", "pinned tactics were not honored"),
    ],
)
def test_pins_that_answer_nothing(tmp_path: Path, bad: str, honors: bool, status: str, said: str) -> None:
    summary = pinned_from_files(tmp_path, Builder(drawn, honors=lambda pins: honors), bad)
    assert summary.status == status and said in summary.message, summary.message


@pytest.mark.parametrize(
    ("why", "error", "place", "outcome"),
    [
        ("", "", 1, "unresolved"),  # the pin does not hold
        ("Timing cache miss for op a", "1", 1, "unresolved"),
        ("no such key", "PinRefused", 1, "unresolved"),
        ("out of memory", "4", 4, "different"),
    ],
)
def test_what_makes_a_build_fail_otherwise_stays_in_the_answer(
    tmp_path: Path, why: str, error: str, place: int, outcome: str
) -> None:
    """The choice of d holds, or the build succeeds, only beside another one."""
    builder = Builder(drawn, fails=lambda taken: why * (taken[3] == 2 and taken[place] == 1), error=error)
    if not why:
        builder.honors = lambda pins: not (pins[key(3)] == "0x2" and pins[key(place)] == "0x1")
    summary = pinned_from_files(tmp_path, builder, "t[3] == 2")
    assert builder.free == 0, "what is given need not be built"
    assert {one.layer for one in summary.suspects} == {"d", "abcde"[place]}
    assert summary.outcomes[outcome] > 0
    assert (summary.minimality == "1-minimal except for unanswered removals") == (outcome == "unresolved")


def test_builds_of_one_kind_only(tmp_path: Path) -> None:
    builder = Builder(drawn)
    summary = isolated(tmp_path, builder, "False", "strategy.most_builds=4")
    assert (summary.status, summary.exit_code, builder.free) == ("nothing_to_find", 4, 4)
    assert "strategy.most_builds=4" in summary.message
