"""The guilty optimization and the guilty release of seven real failures, beside what is known of them.

    python -m benchmarks.guilty FOLDER_OF_CASES [CASE ...] [--passes | --versions] [--cache FOLDER] [--keep FOLDER]

Both tables without an option. Each case is reduced first with ``checker=auto``; then ``strategy=passes`` is asked of
the reduced model, with the inputs that lie beside it, and of the whole one. ``strategy=versions`` is asked of both over
the sixteen releases below: as few as it takes, from an empty cache, then all of them from one that has them, offline
and without an index.

EXPECTED was written before any run of this program: the optimizations are those that the linked issues blame, the
releases those in which the whole model fails the check beside it (one environment each, made by hand). A reduced model
is another model: of it, the same check is asked here, under each release. PYTHON, the one that `make_venvs.sh` built
for the newest release, is the base of all installed ones, so that the cases share them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import numpy_helper
from packaging.version import Version

from benchmarks import print_head, print_row, winnow
from benchmarks.cases import VENVS, judged_by_auto
from runner.jobs.variants.release_cache import ReleaseCache

RELEASES = (
    *("1.16.3", "1.17.3", "1.18.1", "1.19.2", "1.20.1", "1.21.1", "1.22.1", "1.23.2"),
    *("1.24.4", "1.25.1", "1.26.0", "1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.1"),
)
PYTHON = VENVS / "ortnew" / "bin" / "python"
MOST_INSTALLED = 14


@dataclass(frozen=True)
class Expected:
    """``blamed``: the optimizations, each of which heals alone. ``broken``: first and last release. ``bad``: one."""

    blamed: tuple[str, ...]
    broken: tuple[str, str]
    bad: str

    def history(self) -> dict[str, str]:
        """Return what is known of the whole model in each release."""
        first, last = map(RELEASES.index, self.broken)
        return {one: "broken" if first <= at <= last else "good" for at, one in enumerate(RELEASES)}

    def neighbors(self, history: Mapping[str, str]) -> tuple[str | None, str | None]:
        """Return the nearest good releases before and after the bad one."""
        at = RELEASES.index(self.bad)
        earlier, later = ([one for one in side if history[one] == "good"] for side in (RELEASES[:at], RELEASES[at:]))
        return earlier[-1] if earlier else None, later[0] if later else None


OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
EXPECTED = {
    "inception_pad_avgpool": Expected(("Pad_Fusion",), ("1.20.1", "1.20.1"), "1.20.1"),
    "swin_divmul_cast": Expected(("CastElimination", "DivMulFusion"), (OLDEST, NEWEST), "1.31.1"),
    "mixer_gemm_idtranspose": Expected(("GemmTransposeFusion",), ("1.19.2", "1.29.0"), "1.27.0"),
    "mlp_double_reluclip": Expected(("FuseReluClip",), (OLDEST, NEWEST), "1.31.1"),
    "t5_rms_keepdims0": Expected(("SimplifiedLayerNormFusion",), (OLDEST, NEWEST), "1.31.1"),
    "bert_skipln_gamma3d": Expected(("SkipLayerNormFusion",), (OLDEST, "1.23.2"), "1.22.1"),
    "bert_fp16_sln": Expected(("SimplifiedLayerNormFusion",), ("1.23.2", "1.27.0"), "1.23.2"),
}


@dataclass(frozen=True)
class Place:
    """A model and its inputs. ``name``: reduced or whole."""

    name: str
    model: Path
    inputs: Path

    def options(self) -> list[str]:
        """Return how a run names them."""
        return [f"model={self.model}", "inputs=files", f"inputs.path={self.inputs}"]


def ran(options: list[str], out: Path) -> dict[str, Any]:
    """Run Winnow and return its result, or the end of what it said."""
    start = time.monotonic()
    done, found = winnow(out, *options, "verbosity=warning")
    return {**(found or {"message": done.stderr[-300:]}), "wall": time.monotonic() - start}


def places(case: Path, out: Path) -> list[Place]:
    """Reduce a case and return its reduced model and the whole one."""
    whole = Place("whole", case / "model.onnx", case / "inputs.npz")
    reduced = ran(["strategy=reduce", *whole.options(), *(judged_by_auto(case) or ())], out / "reduce")
    if reduced.get("status") != "found":
        print(f"{case.name}: not reduced: {reduced['message']}")
        return [whole]
    return [Place("reduced", out / "reduce" / "reduced.onnx", out / "reduce" / "test_data_set_0"), whole]


# ---- which optimization


def passes(case: Path, place: Place, out: Path) -> bool:
    """Print the row of one search; return whether it names what is blamed, each of which heals alone.

    More may be needed, which is shown: what makes the place at which the defect goes wrong.
    """
    blamed = EXPECTED[case.name].blamed
    options = ["strategy=passes", *place.options(), *(judged_by_auto(case) or ())]
    result = ran(options, out / f"passes_{place.name}")
    found = result.get("passes")
    if not found:
        print_row(case.name, place.name, ", ".join(blamed), *[""] * 7, f"WRONG: {result['message']}")
        return False
    needed, heals = set(found["needed"]), {one for (one, *more) in found["heals"] if not more}
    right = {*blamed} <= needed & heals and result["minimality"] == "1-minimal"
    more = sorted(needed - {*blamed})
    said = ("exact" if not more else f"blamed, and {', '.join(more)}") if right else "WRONG"
    checks = result["checks"]
    print_row(
        *(case.name, place.name, ", ".join(blamed), ", ".join(sorted(needed)), "; ".join(sorted(heals))),
        *(found["asked"], checks["search"], checks["trust"], f"{result['seconds']['total']:.1f}"),
        *(result["minimality"], said),
    )
    return right


# ---- which release


def by_its_check(case: Path, place: Place, cache: Path, out: Path) -> dict[str, str]:
    """Return what the check beside a case says of a model under each release, without Winnow's searches."""
    graph = onnx.load(place.model, load_external_data=False).graph
    tensors = {one.name: onnx.load_tensor(str(place.inputs / f"input_{at}.pb")) for at, one in enumerate(graph.input)}
    feeds = out / f"{place.name}.npz"
    numpy.savez(feeds, **{name: numpy_helper.to_array(tensor) for name, tensor in tensors.items()})
    kept, said = ReleaseCache(cache, "onnxruntime", str(PYTHON)), {}
    for release in RELEASES:
        python = kept.install(Version(release)).python
        command = [str(python), str(case / "check.py"), str(place.model), str(feeds)]
        done = subprocess.run(command, env={**os.environ, "CASE_PY": str(python)}, capture_output=True, check=False)
        said[release] = {0: "good", 1: "broken"}.get(done.returncode, "not known")
    return said


def versions(case: Path, place: Place, known: Mapping[str, str], how: str, out: Path, *more: str) -> bool:
    """Print the row of one search; return whether all that it says agrees with what is known."""
    expected = EXPECTED[case.name]
    options = ["strategy=versions", "checker=auto", f"target.python={PYTHON}", f"reference.python={PYTHON}"]
    asked = ["strategy.versions=[" + ",".join(RELEASES) + "]", f"strategy.bad={expected.bad}"]
    result = ran([*options, *place.options(), *asked, *more], out / f"versions_{place.name}_{how.replace(' ', '_')}")
    found = result.get("releases")
    if not found:
        print_row(case.name, place.name, how, *[""] * 8, f"WRONG: {result['message']}")
        return False
    outcomes = {one["version"]: one["outcome"] for one in found["asked"]}
    wrong = [f"{one} {said} and not {known[one]}" for one, said in outcomes.items() if said != known[one]]
    ends, right_ends = (found["good_before"], found["good_after"]), expected.neighbors(known)
    if ends != right_ends:
        wrong.append(f"good: {right_ends}")
    if found["installed"] > (MOST_INSTALLED if how == "few" else 0):
        wrong.append("installed")
    broken = [one for one, said in outcomes.items() if said == "broken"]
    print_row(
        *(case.name, place.name, how, f"{broken[0]} ... {broken[-1]}", *(end or "none" for end in ends)),
        *(len(outcomes), sum(said not in ("good", "broken") for said in outcomes.values()), found["installed"]),
        *(result["checks"]["search"], f"{result['wall']:.1f}", f"WRONG: {', '.join(wrong)}" if wrong else "agrees"),
    )
    return not wrong


def releases(case: Path, found: list[Place], cache: Path, out: Path) -> list[bool]:
    """Print the rows of a case; return whether each agrees with what is known."""
    right = []
    for one in found:
        known = EXPECTED[case.name].history() if one.name == "whole" else by_its_check(case, one, cache, out)
        with tempfile.TemporaryDirectory() as empty:
            right.append(versions(case, one, known, "few", out, f"strategy.cache={empty}"))
        every = (f"strategy.cache={cache}", "strategy.exhaustive=true")
        right.append(versions(case, one, known, "all", out, *every))
        right.append(versions(case, one, known, "all offline", out, *every, "strategy.offline=true"))
        right.append(versions(case, one, known, "all without an index", out, *every, "strategy.pip=[--no-index]"))
    return right


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", help=", ".join(EXPECTED))
    parser.add_argument("--passes", action="store_true")
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--cache", type=Path, help="where releases are kept, for all searches")
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    given = parser.parse_args()
    right = []
    with tempfile.TemporaryDirectory() as scratch:
        out = (given.keep or Path(scratch)).resolve()
        cases = [given.folder.resolve() / name for name in given.cases or EXPECTED]
        found = {case: places(case, out / case.name) for case in cases}
        if given.passes or not given.versions:
            print_head(
                "case", "model", "blamed", "needed", "off heals", "names", "search", "trust", "s", "minimality", ""
            )
            right += [passes(case, one, out / case.name) for case in cases for one in found[case]]
        if given.versions or not given.passes:
            cache = (given.cache or Path(scratch) / "releases").resolve()
            for release in RELEASES:
                ReleaseCache(cache, "onnxruntime", str(PYTHON)).install(Version(release))
            columns = ("case", "model", "asked", "broken", "good before", "good after", "releases", "not known")
            print_head(*columns, "installed", "checks", "s", "")
            for case in cases:
                right += releases(case, found[case], cache, out / case.name)
    print(f"{sum(right)} of {len(right)} as expected")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
