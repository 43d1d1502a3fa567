"""python -m benchmarks.precision_natural [--shared DIR] [--samples 12,1] [--rivals PYTHON] [--only NAME,...]: fp16.

Models that fail in fp16 in natural ways (``benchmarks.precision_networks``), a second of each kind that is held back
while anything is tuned, and with ``--shared`` the given ones of ``DIR/precision``. ``strategy=precision`` sees 12
samples (or one: the sample that comes with a given model); its ``mixed.onnx`` is judged on 20 fresh ones by an
evaluator that owes nothing to Winnow, and so are AutoCast's range rule, AutoCast itself (``nvidia-modelopt`` with
``onnxslim lief psutil polygraphy onnx-graphsurgeon``) and ``auto_convert_mixed_precision`` (``onnxconverter-common``,
on the first sample) in the interpreter ``--rivals``. In brackets: how many of the fresh ones pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator

from benchmarks.precision_bench import HEADS, RTOL, Bench, Rivals, load, winnow
from benchmarks.precision_judge import Judge, error, expected, low_weights, refused, valid
from benchmarks.precision_networks import Case, Feeds, natural

FRESH = 20
GIVEN_SEED, FRESH_SEED = 1, 2
DRAWS: dict[str, Callable[[Generator], Feeds]] = {
    "a_rms_outlier": lambda rng: {"ids": rng.integers(0, 100, (1, 16))},
    "c_attn_logits": lambda rng: {
        "x": rng.normal(0, 3, (1, 16, 64)).astype(np.float32),
        "mask": (np.arange(16) < rng.integers(8, 16)).astype(np.float32).reshape(1, 1, 1, 16),
    },
    "h_adds_up": lambda rng: {"x": rng.normal(0, 1, (4, 32)).astype(np.float32)},
    "k_detect": lambda rng: {
        "img": rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32),
        "grid": rng.uniform(-1, 1, (1, 16, 16, 2)).astype(np.float32),
    },
}
OTHERS = ("m_contrib", "v_boxes", "t_untaken", "ort_ln_fuse")


def rival(python: str, seconds: float) -> Rivals:
    """Return what asks AutoCast, or ``auto_convert_mixed_precision``, in another interpreter."""

    def ask(model: Path, feeds: Path, autocast: bool) -> dict[str, Any]:
        out = model.parent / "rival.onnx"
        out.unlink(missing_ok=True)
        given = [str(feeds), "--autocast"] if autocast else [str(feeds / "00.npz")]
        command = [python, "-m", "benchmarks.precision_rivals", str(model), *given, f"--rtol={RTOL}", f"--out={out}"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"more than {seconds:.0f} s"}
        if ended.returncode:
            missing = "ModuleNotFoundError" in ended.stderr or "ImportError" in ended.stderr
            return {"error": "not installed" if missing else ended.stderr.strip()[-80:]}
        return dict(json.loads(ended.stdout.splitlines()[-1]))

    return ask


def given_cases(shared: Path) -> Iterator[Case]:
    """Yield the given models whose inputs are known."""
    for name, draw in DRAWS.items():
        yield Case(name, onnx.load(str(shared / "precision" / name / "model.onnx")), draw)


def others(shared: Path, judge: Judge) -> Iterator[str]:
    """Yield what is said about the given models that are no question of fewest nodes."""
    for name in OTHERS:
        place = shared / "precision" / name
        model, feeds = onnx.load(str(place / "model.onnx")), place / "in.npz"
        inputs = ["inputs=files", f"inputs.path={feeds}"] if feeds.exists() else ["inputs=random"]
        with tempfile.TemporaryDirectory() as folder:
            answer = winnow(place / "model.onnx", inputs, Path(folder) / "run")
            yield f"### {name}: {answer.status}\n\n{answer.result.get('message')}\n"
            for warning in answer.warnings:
                yield f"- warning: {warning}"
            share = (answer.result.get("precision") or {}).get("low_share")
            if answer.mixed is None:
                continue
            mixed = onnx.load(str(answer.mixed))
            low, total = low_weights(mixed)
            yield f"- low_share: {share}; matrix weights low in the file itself: {low} of {total}"
            levels = refused(answer.mixed)
            yield "- loads at every level" if not levels else f"- refused by plain ONNX Runtime: {levels}"
            yield f"- valid with full type inference: {'yes' if valid(answer.mixed) else 'NO'}"
            if feeds.exists():
                yield from _elsewhere(model, mixed, load(feeds), judge)


def _elsewhere(model: onnx.ModelProto, mixed: onnx.ModelProto, feeds: Feeds, judge: Judge) -> Iterator[str]:
    cases = {"the sample": feeds}
    if any(value.dtype == bool for value in feeds.values()):
        flipped = {name: np.asarray(~value) if value.dtype == bool else value for name, value in feeds.items()}
        cases["the sample with its flags flipped"] = flipped
    for what, one in cases.items():
        outputs, _ = judge.tables(mixed, [one])[0]
        yield f"- error / tolerance on {what}: {error(outputs, expected(model, [one])[0], RTOL):.2f}"
    yield ""


def main() -> int:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--samples", default="12")
    parser.add_argument("--rivals", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each rival")
    parser.add_argument("--strict", action="store_true", help="judged with rounding inside reductions and norms")
    parser.add_argument("--seed", type=int, default=0, help="other natural models, which nobody has looked at")
    parser.add_argument("--only", default="", help="models by a part of their name")
    options = parser.parse_args()
    shared = options.shared if options.shared and (options.shared / "precision").is_dir() else None
    judge = Judge(shared, strict=options.strict)
    if shared is None:
        print("No evaluator of its own (--shared): judged with the emulation that Winnow uses as well.\n")
    ask = rival(options.rivals, options.seconds)
    cases = [case for case in natural(options.seed) if _wanted(case.name, options.only)]
    parts = {"Natural": [case for case in cases if not case.held], "Held back": [case for case in cases if case.held]}
    if shared is not None:
        parts["Given"] = [case for case in given_cases(shared) if _wanted(case.name, options.only)]
    for count in map(int, options.samples.split(",")):
        for part, members in ((part, members) for part, members in parts.items() if members):
            print(
                f"## {part}, {count} sample{'s' * (count > 1)}\n\n|",
                " | ".join(HEADS),
                "|\n" + "|---" * len(HEADS) + "|",
            )
            said: list[str] = []
            for case in members:
                cells, told = row(case, count, shared, judge, ask)
                said += told
                print("|", " | ".join(map(str, cells)), "|", flush=True)
            print("", *(f"- {line}" for line in said), "", sep="\n", flush=True)
    if shared is not None and not options.only:
        print("## What is said about the others\n", *others(shared, judge), sep="\n")
    return 0


def _wanted(name: str, only: str) -> bool:
    return any(part in name for part in only.split(","))


def row(case: Case, count: int, shared: Path | None, judge: Judge, ask: Rivals) -> tuple[list[Any], list[str]]:
    """Return a row of the table, and what there is to say besides."""
    own = shared / "precision" / case.name / "in.npz" if shared else None
    given = [load(own)] if own and own.exists() and count == 1 else case.samples(GIVEN_SEED, count)
    with tempfile.TemporaryDirectory() as folder:
        return Bench(case, given, case.samples(FRESH_SEED, FRESH), judge).row(Path(folder), ask)


if __name__ == "__main__":
    sys.exit(main())
