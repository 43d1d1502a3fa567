"""Recorded values: one serialised TensorProto a file, which holds every ONNX dtype."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TensorFile:
    """One tensor on disk.

    ``path``: a serialised ``onnx.TensorProto``. ``dtype``: an ``onnx.TensorProto.DataType`` number. ``finite`` / ``nan``: whether all
    its elements are finite / any is NaN (integers and strings are finite).
    """

    name: str
    path: Path
    dtype: int
    shape: tuple[int, ...]
    finite: bool = True
    nan: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.name,
            "path": str(self.path),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "finite": self.finite,
            "nan": self.nan,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> TensorFile:
        """Read what ``to_json`` wrote."""
        return TensorFile(
            data["name"], Path(data["path"]), data["dtype"], tuple(data["shape"]), data["finite"], data["nan"]
        )
