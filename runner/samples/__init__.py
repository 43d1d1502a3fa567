"""Input values of the model under study, one set for each sample: from files, a function, or random."""

from __future__ import annotations

from runner.samples.declared_inputs import Declared, declared
from runner.samples.sizes_and_ranges import samples

__all__ = ["Declared", "declared", "samples"]
