"""The editable timing cache, as far as it goes without a GPU: the library's own calls on an empty cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.backends.trt.tactics import parse_file
from runner.workers.pool import Pool
from tests.harness import ROOT
from tests.jobs.models import saved

KEY = "0x1814870c44ff0f8574df6e3dda04cbd7"
START = (
    "import json, sys, warnings\n"
    "warnings.simplefilter('ignore')\n"
    f"sys.path.insert(0, {str(ROOT)!r})\n"
    "from runner.backends.trt import tactics\n"
    "from runner.backends.trt.library import load, logger\n"
    "library = load(sys.argv[1])\n"
    "builder = library.api.Builder(logger(library))\n"
    "config = builder.create_builder_config()\n"
    f"key = {KEY!r}\n"
)


def said_by(python: str, flavor: str, *lines: str) -> object:
    script = START + "\n".join(lines)
    done = subprocess.run([python, "-c", script, flavor], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_calls_are_there_and_take_what_they_are_given(rtx_python: str, tmp_path: Path) -> None:
    """TensorRT for RTX has the code of the cache, and no entries in it."""
    told = said_by(
        rtx_python,
        "tensorrt_rtx",
        "tactics.why_not = lambda _: None",
        f"first, second = {str(tmp_path / 'first')!r}, {str(tmp_path / 'second')!r}",
        "tactics.TacticControl(library, {'save': first}, config).finish()",
        "control = tactics.TacticControl(library, {'load': [first, first], 'error_on_miss': True}, config)",
        "found = control.finish()",
        "refused = tactics.pin(library.api, config.get_timing_cache(), {key: '0x665ded9abbf88'})",
        "flags = [name for name, flag in library.members('BuilderFlag').items() if config.get_flag(flag)]",
        "print(json.dumps([found, refused, flags]))",
    )
    assert isinstance(told, list)
    found, refused, flags = told
    assert (found, refused) == ({"choices": [], "timed": []}, [KEY]), "a key that is not there is refused"
    assert {"EDITABLE_TIMING_CACHE", "ERROR_ON_TIMING_CACHE_MISS", "DISABLE_COMPILATION_CACHE"} <= set(flags)


def test_rtx_has_no_tactics_whatever_names_it_has(rtx_python: str, tmp_path: Path) -> None:
    with Pool(tmp_path) as pool:
        reply = pool.call("tactics_support", {"backend": {"flavor": "tensorrt_rtx"}}, python=rtx_python, timeout=60)
    assert reply.value is not None
    assert "times no tactics" in reply.value["why_not"]


@pytest.mark.gpu
def test_a_pin_survives_the_build(tmp_path: Path) -> None:
    """Records a build, pins another tactic, builds again. Not yet run anywhere: unverified."""
    if not Path("/proc/driver/nvidia/gpus").is_dir():
        pytest.skip("needs a GPU")
    pytest.importorskip("tensorrt", reason="TensorRT 10.8 or later and a GPU are needed")
    nodes = "[first] a = MatMul(x, w) [soft] b = Softmax(a) [second] y = MatMul(b, w)"
    text, ones = f"g (float[128,128] x) => (float[128,128] y) {{ {nodes} }}", np.ones((128, 128), np.float32)
    model, cache = saved(tmp_path / "model.onnx", text, ir=9, w=ones), str(tmp_path / "cache")

    def build(name: str, **tactics: Any) -> dict[str, Any]:
        backend, place = {"name": "tensorrt", "flavor": "tensorrt"}, {"out": str(tmp_path / name), "keep": ["log"]}
        args = {"backend": backend, "model": str(model), "samples": [], **place, "tactics": tactics}
        reply = pool.call("build", args, python=sys.executable, timeout=600, fresh=True)
        assert reply.value, reply
        told: dict[str, Any] = reply.value["tactics"]
        return told

    with Pool(tmp_path / "workers") as pool:
        pins = {one["key"]: one["tactic"] for one in build("first", load=[], pins={}, save=cache)["choices"]}
        log = parse_file(str(tmp_path / "first" / "build.log"))
        record = next(one for one in log if len(one.kernels) > 1)
        pins[record.key] = next(tactic for tactic in record.kernels if tactic != record.selected)
        told = build("second", load=[cache], pins=pins, save=None, error_on_miss=True)
    assert told["timed"] == []
    assert {one["key"]: one["tactic"] for one in told["choices"]}.items() >= pins.items()
