"""Which GPUs may be used: what NVML lists, within CUDA_VISIBLE_DEVICES, within the user's choice.

NVML is not CUDA: it is asked in the job process, and opens no context on a GPU.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from runner.exit_codes import UsageError
from runner.text import install

#: parts of the names of ONNX Runtime's execution providers that need a GPU
PROVIDERS_ON_A_GPU = ("CUDA", "Tensorrt", "TensorRT", "ROCM", "MIGraphX", "Dml", "WebGpu")
#: the variable that says to CUDA what it may use
VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
#: there where an NVIDIA driver is (the last one: Windows' subsystem for Linux)
_DRIVER_FILES = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_WHOLE = re.compile(rf"(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")
_NAME = re.compile(r"(GPU|MIG)-[0-9A-Za-z./_-]+")


@dataclass(frozen=True)
class Device:
    """One GPU, as NVML knows it. ``index``: nvidia-smi's number.

    ``instances``: the UUIDs of what a GPU in MIG mode is cut into, each with its older name, if that is known
    (``MIG-GPU-<uuid>/<gpu instance>/<compute instance>``).
    """

    index: int
    uuid: str
    model: str = ""
    mig: bool = False
    instances: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """What can be leased of it: itself, or where MIG is on its instances (it cannot be used whole then)."""
        return tuple(self.instances) if self.mig else (self.uuid,)


@dataclass(frozen=True)
class Machine:
    """The GPUs of this machine, in PCI order. ``why``: why there are none to be seen; ``driver``: whether one is there.

    Without a driver names cannot be checked, and are taken as they are: a rehearsal, or a test.
    """

    devices: tuple[Device, ...] = ()
    why: str = ""
    driver: bool = False


@dataclass(frozen=True)
class Gpus:
    """Names that may be leased: UUIDs, or ``index:N`` where no more is known; ``why``: why there are none."""

    names: tuple[str, ...] = ()
    why: str = field(default="", compare=False)


def visible(name: str) -> str:
    """Return what CUDA_VISIBLE_DEVICES holds for the GPU of this name."""
    return name.removeprefix("index:")


def installed(nvml: Callable[[], ModuleType] = lambda: importlib.import_module("pynvml")) -> Machine:
    """Ask NVML what there is. Raises nothing: ``Machine.why`` says why there is nothing to be seen."""
    driver = any(Path(path).exists() for path in _DRIVER_FILES)
    try:
        library = nvml()
    except ImportError:
        why = "nvidia-ml-py is not installed" if driver else "no NVIDIA driver is here"
        return Machine(why=f"{why}: {install('gpu')}" if driver else why, driver=driver)
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        gone = type(error).__name__ == "NVMLError_LibraryNotFound"
        return Machine(why="NVML is not here (no NVIDIA driver)" if gone else f"NVML says: {error}", driver=driver)
    try:
        devices = tuple(_devices(library))
        return Machine(devices, "" if devices else "NVML lists no GPU that may be used", driver=True)
    except library.NVMLError as error:
        return Machine(why=f"NVML says: {error}", driver=True)
    finally:
        library.nvmlShutdown()


def usable(machine: Machine, environment: Mapping[str, str], wanted: Sequence[str] | None) -> Gpus:
    """Return the GPUs of ``machine`` that CUDA_VISIBLE_DEVICES allows and that ``wanted`` (workers.gpus) names.

    Raises UsageError for a name in ``wanted`` that is none or is not allowed, and where names do not say which GPU is
    meant though there is one.
    """
    allowed = environment.get(VISIBLE)
    if allowed is None:
        seen: tuple[str, ...] | None = None
    else:
        seen = _expanded(machine, _as_cuda(machine, allowed, environment.get(_ORDER)))
    if wanted is not None:
        return _chosen(machine, wanted, seen, allowed)
    if seen is not None:
        return Gpus(seen, "" if seen else f"{VISIBLE}={allowed!r} allows none")
    names = tuple(name for device in machine.devices for name in device.names)
    return Gpus(names, machine.why or ("" if names else "MIG is on, and there is no instance"))


# ---- what NVML says


def _devices(nvml: ModuleType) -> list[Device]:
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            mig = _has_mig(nvml, handle)
            uuid, model = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError:
            continue  # not ours to use (a cgroup), or lost: CUDA does not count it either
        found.append(Device(index, uuid, model, mig, _instances(nvml, handle, uuid) if mig else {}))
    return found


def _has_mig(nvml: ModuleType, handle: object) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # a GPU that cannot


def _instances(nvml: ModuleType, handle: object, parent: str) -> dict[str, str]:
    found = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            uuid = _text(nvml.nvmlDeviceGetUUID(instance))
        except nvml.NVMLError:
            continue  # an empty place
        found[uuid] = ""
        with contextlib.suppress(nvml.NVMLError):
            numbers = nvml.nvmlDeviceGetGpuInstanceId(instance), nvml.nvmlDeviceGetComputeInstanceId(instance)
            found[uuid] = "MIG-{}/{}/{}".format(parent, *numbers)
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


# ---- what CUDA makes of its variable


def _as_cuda(machine: Machine, text: str, order: str | None) -> list[str]:
    """Read CUDA_VISIBLE_DEVICES as CUDA does: it ends at the first entry that is none; one named twice leaves nothing.

    The rules are those of the CUDA programming guide ("CUDA Environment Variables") and, where it says nothing, of
    PyTorch's ``torch.cuda._parse_visible_devices``: the first entry says whether all are numbers, GPUs or MIG
    instances, and a number ends where its digits do.
    """
    entries = [entry.strip() for entry in text.split(",")]
    kind = next((kind for kind in ("GPU-", "MIG-") if entries[0].startswith(kind)), "")
    names: list[str] = []
    for entry in entries:
        if not kind:
            name = _by_number(machine, entry, order)
        else:
            name = _by_uuid(machine, entry, VISIBLE) if entry.startswith(kind) else None
        if name is None:
            break
        if name in names:
            return []
        names.append(name)
    return names


def _by_number(machine: Machine, entry: str, order: str | None) -> str | None:
    digits = re.match(r"\+?\d+", entry)
    if digits is None:
        return None
    number = int(digits[0])
    if not machine.devices:
        return _numbered(machine, number, f"{VISIBLE}={entry}")
    if number >= len(machine.devices):
        return None
    if order != "PCI_BUS_ID" and len({device.model for device in machine.devices}) > 1:
        raise UsageError(
            f"{VISIBLE}={entry}: CUDA numbers GPUs by speed, and here are several models, so it is not certain which "
            f"one is meant. Set {_ORDER}=PCI_BUS_ID (nvidia-smi's numbers), or name UUIDs (nvidia-smi -L)"
        )
    return machine.devices[number].uuid


def _by_uuid(machine: Machine, entry: str, where: str) -> str | None:
    """Return the full name of what ``entry`` begins; None if that is nothing or several."""
    if machine.devices:
        names = _long_names(machine)
        found = {names[long] for long in names if long == entry} or {
            full for long, full in names.items() if long.startswith(entry)
        }
        return found.pop() if len(found) == 1 else None
    if not _NAME.fullmatch(entry):
        return None
    if machine.driver and not _WHOLE.fullmatch(entry):
        raise _unclear(machine, f"{where}={entry}")
    return entry


def _numbered(machine: Machine, number: int, where: str) -> str:
    if machine.driver:
        raise _unclear(machine, where)
    return f"index:{number}"


def _unclear(machine: Machine, where: str) -> UsageError:
    return UsageError(
        f"{where}: which GPU this is cannot be looked up ({machine.why}), and a lease needs its full UUID. "
        f"{install('gpu')}, or give full UUIDs (nvidia-smi -L)"
    )


def _long_names(machine: Machine) -> dict[str, str]:
    """Return every name under which a GPU or an instance is known, with its UUID."""
    names = {device.uuid: device.uuid for device in machine.devices}
    for device in machine.devices:
        for uuid, older in device.instances.items():
            names |= dict.fromkeys(filter(None, (uuid, older)), uuid)
    return names


def _expanded(machine: Machine, names: Sequence[str]) -> tuple[str, ...]:
    """Put the instances of a GPU in the place of one that MIG has cut."""
    whole = {device.uuid: device.names for device in machine.devices}
    return tuple(dict.fromkeys(part for name in names for part in whole.get(name, (name,))))


# ---- what the user chose


def _chosen(machine: Machine, wanted: Sequence[str], seen: tuple[str, ...] | None, allowed: str | None) -> Gpus:
    names: list[str] = []
    for entry in wanted:
        one = _named(machine, str(entry).strip())
        parts = _expanded(machine, [one])
        outside = [part for part in parts if seen is not None and part not in seen]
        if outside:
            raise UsageError(
                f"workers.gpus={entry}: {outside[0]} is not among those that {VISIBLE}={allowed} allows: "
                f"{', '.join(seen or ()) or 'none'}. Name one of these, or leave workers.gpus out to use all"
            )
        names += parts
    return Gpus(tuple(dict.fromkeys(names)), "" if names else "workers.gpus=[] names none")


def _named(machine: Machine, entry: str) -> str:
    """Return the full name of an entry of workers.gpus: nvidia-smi's number, or the beginning of a UUID."""
    if entry.isdecimal():
        if not machine.devices:
            return _numbered(machine, int(entry), f"workers.gpus={entry}")
        name = next((device.uuid for device in machine.devices if device.index == int(entry)), None)
    else:
        name = _by_uuid(machine, entry, "workers.gpus") if _NAME.fullmatch(entry) else None
    if name is None:
        there = ", ".join(f"{device.index} ({' '.join(device.names)})" for device in machine.devices)
        raise UsageError(
            f"workers.gpus={entry}: there is no such GPU. Give nvidia-smi's numbers or UUIDs (GPU-..., MIG-...; "
            f"nvidia-smi -L lists them){f': {there}' if there else ''}"
        )
    return name
