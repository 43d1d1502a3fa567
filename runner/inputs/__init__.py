"""What is fed: values for the model's own inputs, one set for each sample."""

from __future__ import annotations

from runner.inputs.declared import Declared, declared
from runner.inputs.source import samples

__all__ = ["Declared", "declared", "samples"]
