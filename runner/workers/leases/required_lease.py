"""Which lease a call to a backend needs: a GPU of its own, a CPU slot, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.workers.leases.lease import Kind
from runner.workers.pool import Pool

# parts of the names of ONNX Runtime's execution providers that run on a GPU
_ON_GPU = ("CUDA", "Tensorrt", "TensorRT", "ROCM", "MIGraphX", "Dml", "WebGpu")


def lease_of(backend: Mapping[str, Any], pool: Pool, python: str | None, *, builds: bool = False) -> Kind | None:
    """Return the lease for running a model on a backend (its settings as workers take them), or for only building it.

    TensorRT for RTX builds without a GPU, for those that are named or where there is none; it takes a CPU slot then,
    since such a build wants a core and some GiB for itself.
    """
    if backend.get("name") == "onnxruntime":
        names = [str(one) if isinstance(one, str) else str(next(iter(one))) for one in backend.get("providers") or ()]
        return "gpu" if any(part in name for name in names for part in _ON_GPU) else None
    if backend.get("name") != "tensorrt":
        return None
    flavor = _flavor(backend, pool, python)
    if not pool.gpus and flavor not in pool.versions(python):
        return None  # the worker says what to install: no GPU would help
    if not builds or flavor == "tensorrt":
        return "gpu"
    targets = [str(target).upper() for target in backend.get("compute_capabilities") or ()]
    if "CURRENT" in targets or (not targets and pool.gpus):
        return "gpu"
    return "cpu"


def _flavor(backend: Mapping[str, Any], pool: Pool, python: str | None) -> str:
    flavor = str(backend.get("flavor", "auto"))
    if flavor != "auto":
        return flavor
    return "tensorrt" if "tensorrt" in pool.versions(python) else "tensorrt_rtx"
