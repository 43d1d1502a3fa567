from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runner.exit_codes import UsageError
from runner.text import install
from runner.workers.gpus import Device, Machine, installed, usable, visible

A, B, C = (f"GPU-{letter * 8}-0000-0000-0000-00000000000{letter}" for letter in "abc")
M1, M2 = (f"MIG-{number * 8}-0000-0000-0000-000000000000" for number in "12")
TWO = Machine((Device(0, A, "L4"), Device(1, B, "L4")), driver=True)
CUT = Machine(
    (Device(0, A, "A100", True, {M1: f"MIG-{A}/1/0", M2: f"MIG-{A}/2/0"}), Device(1, B)),
    driver=True,
)
MIXED = Machine((Device(0, A, "T4"), Device(1, B, "L4")), driver=True)
NOTHING = Machine(why="no NVIDIA driver is here")
DRIVER_ALONE = Machine(why="nvidia-ml-py is not installed", driver=True)


def names(
    machine: Machine, allowed: str | None = None, wanted: list[str] | None = None, **more: str
) -> tuple[str, ...]:
    environment = more if allowed is None else {"CUDA_VISIBLE_DEVICES": allowed, **more}
    return usable(machine, environment, wanted).names


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        (None, (A, B)),
        ("", ()),
        ("0", (A,)),
        ("1,0", (B, A)),
        (" 1 , 0 ", (B, A)),
        ("0,7,1", (A,)),  # ends at the first that is none
        ("-1", ()),
        ("0,-1,1", (A,)),
        ("0,0", ()),  # one named twice leaves nothing
        ("1abc,0", (B, A)),  # a number ends where its digits do
        ("none", ()),
        ("NoDevFiles", ()),  # what Slurm sets where a job gets none
        (A, (A,)),
        (f"{B},{A}", (B, A)),
        ("GPU-b,GPU-a", (B, A)),  # a prefix is enough where it is clear
        ("GPU-", ()),
        (f"{A},GPU-a", ()),
        (f"{A},{C},{B}", (A,)),
        (f"{A},1", (A,)),  # all of one kind
        (f"0,{B}", (A,)),
    ],
)
def test_cuda_visible_devices_with_nvml(allowed: str | None, found: tuple[str, ...]) -> None:
    assert names(TWO, allowed) == found


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        (None, (M1, M2, B)),  # a GPU that MIG has cut is its instances
        ("0", (M1, M2)),
        (A, (M1, M2)),
        (M2, (M2,)),
        (f"MIG-{A}/2/0", (M2,)),
        (f"{M1},{M2}", (M1, M2)),
        (f"{M1},{B}", (M1,)),
        ("MIG-9", ()),
    ],
)
def test_mig(allowed: str | None, found: tuple[str, ...]) -> None:
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert names(CUT, allowed, **environment) == found


def test_mig_without_an_instance_is_no_gpu() -> None:
    found = usable(Machine((Device(0, A, "A100", True),), driver=True), {}, None)
    assert not found.names and "no instance" in found.why


@pytest.mark.parametrize(
    ("allowed", "found"),
    [
        (None, ()),
        ("", ()),
        ("1,0", ("index:1", "index:0")),
        ("0,0", ()),
        ("GPU-one,GPU-two", ("GPU-one", "GPU-two")),
        ("MIG-one,GPU-two", ("MIG-one",)),
        (f"MIG-{A}/1/0", (f"MIG-{A}/1/0",)),
        ("GPU-a/../../x y", ()),
    ],
)
def test_without_nvml_and_driver_names_are_taken_as_they_are(allowed: str | None, found: tuple[str, ...]) -> None:
    assert names(NOTHING, allowed) == found
    assert [visible(name) for name in found] == [name.removeprefix("index:") for name in found]


def test_what_a_driver_without_nvml_leaves_open_is_refused() -> None:
    # two names of one GPU would be two leases
    assert names(DRIVER_ALONE, A) == (A,)
    for allowed in ("0", "GPU-aaaa"):
        with pytest.raises(UsageError, match=rf"CUDA_VISIBLE_DEVICES.*{re.escape(install('gpu'))}.*nvidia-smi -L"):
            names(DRIVER_ALONE, allowed)
    with pytest.raises(UsageError, match=r"workers\.gpus=0"):
        names(DRIVER_ALONE, wanted=["0"])


def test_numbers_among_several_models_need_an_order() -> None:
    with pytest.raises(UsageError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        names(MIXED, "1")
    assert names(MIXED, "1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == (B,)
    assert names(MIXED, B) == (B,)


def test_numbers_of_cuda_skip_what_may_not_be_used() -> None:
    # NVML counts all GPUs of a machine, CUDA those that the job may open
    machine = Machine((Device(2, A, "L4"), Device(3, B, "L4")), driver=True)
    assert names(machine, "0") == (A,)
    assert names(machine, wanted=["3"]) == (B,)


def test_the_users_choice() -> None:
    assert names(TWO, wanted=["1"]) == (B,)
    assert names(TWO, wanted=["GPU-b", "1", "0"]) == (B, A)
    assert names(TWO, wanted=[]) == ()
    assert names(CUT, wanted=["0"]) == (M1, M2)
    assert names(NOTHING, wanted=["GPU-one", "1"]) == ("GPU-one", "index:1")
    assert names(NOTHING, "GPU-one,GPU-two", wanted=["GPU-two"]) == ("GPU-two",)


@pytest.mark.parametrize(
    ("machine", "allowed", "wanted", "words"),
    [
        (TWO, None, "7", r"workers\.gpus=7: there is no such GPU.*nvidia-smi -L.*0 \(GPU-aaaa"),
        (TWO, None, "GPU-z", "no such GPU"),
        (TWO, None, "GPU-", "no such GPU"),
        (NOTHING, None, "the first", "no such GPU"),
        (NOTHING, None, "../../etc", "no such GPU"),
        (TWO, "0", "1", rf"workers\.gpus=1: {B} is not among .*CUDA_VISIBLE_DEVICES=0 allows: {A}"),
        (TWO, "", "1", "allows: none"),
        (NOTHING, "GPU-one", "GPU-two", "not among"),
    ],
)
def test_a_wrong_choice_is_one_clear_line(machine: Machine, allowed: str | None, wanted: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        names(machine, allowed, [wanted])


# ---- NVML's side


class NvmlError(Exception):
    pass


class NVMLError_LibraryNotFound(NvmlError):  # its real name
    pass


def refuse(*_: Any) -> Any:
    raise NvmlError("Not Found")


def library(**changes: Callable[..., Any]) -> Any:
    """NVML's functions over a machine of three GPUs: one in MIG mode, one that is not ours, one without MIG."""
    cut, plain = {"uuid": A, "mig": [1, 1]}, {"uuid": B.encode()}
    instances = {0: {"uuid": M1}, 2: {"uuid": M2}}
    functions: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: [cut, None, plain][index] or refuse(),
        "nvmlDeviceGetMigMode": lambda handle: handle.get("mig") or refuse(),
        "nvmlDeviceGetUUID": lambda handle: handle["uuid"],
        "nvmlDeviceGetName": lambda _: "H100",
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 4,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, index: instances.get(index) or refuse(),
        "nvmlDeviceGetGpuInstanceId": lambda handle: 7 if handle["uuid"] == M1 else refuse(),
        "nvmlDeviceGetComputeInstanceId": lambda _: 0,
    }
    return SimpleNamespace(NVMLError=NvmlError, **{**functions, **changes})


def test_devices_and_instances() -> None:
    machine = installed(library)
    first, last = machine.devices
    assert first == Device(0, A, "H100", True, {M1: f"MIG-{A}/7/0", M2: ""})
    assert last == Device(2, B, "H100")
    assert not machine.why and machine.driver


def not_found() -> None:
    raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")


def no_module() -> Any:
    raise ImportError("pynvml")


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (lambda: library(nvmlInit=not_found), "no NVIDIA driver"),
        (lambda: library(nvmlInit=refuse), "NVML says: Not Found"),
        (lambda: library(nvmlDeviceGetCount=refuse), "NVML says: Not Found"),
        (lambda: library(nvmlDeviceGetCount=lambda: 0), "lists no GPU"),
        (no_module, "no NVIDIA driver|pip install"),
    ],
)
def test_no_gpu_is_no_error(nvml: Callable[[], Any], words: str) -> None:
    machine = installed(nvml)
    assert machine.devices == ()
    found = usable(machine, {}, None)
    assert not found.names
    assert any(word in found.why for word in words.split("|"))


@pytest.mark.gpu
def test_real_nvml() -> None:
    machine = installed()
    if not machine.devices:
        pytest.skip(f"needs a GPU: {machine.why}")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    for device in machine.devices:
        assert device.uuid in listed
        assert all(name in listed for name in device.names)
    # asking opens no context, so no process of ours shows up there
    script = "from runner.workers.gpus import installed; installed(); sys.exit('cuda' in sys.modules)"
    script = f"import sys; {script}"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
