"""The start of the scripts ``winnow`` and ``winnow-onnx``, and ``python -m winnow_onnx``: a name that nobody else has.

Winnow's packages are called runner, strategies and conf, as others may be: a project's on PYTHONPATH, say. Found from
here, they are Winnow's, whatever else is on the path.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run Winnow's command line, and exit with its code."""
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - nothing is loaded yet
    try:
        from runner.__main__ import main as start  # noqa: PLC0415 - only now that it is found
    finally:
        del sys.path[0]
    start()


if __name__ == "__main__":
    main()
