"""Importing this raises where the system has no locks on files, process groups and the like: what Winnow stands on."""

from __future__ import annotations

import importlib

try:
    importlib.import_module("fcntl")
except ImportError:
    raise ImportError(
        "Winnow runs on Linux and macOS. On Windows it runs in WSL: `wsl --install`, then install it in there"
    ) from None
