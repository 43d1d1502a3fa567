"""Entry: ``python -m runner`` and the console script ``winnow``."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its code."""
    _forget_current_folder()
    try:
        from runner.cli.app import run  # noqa: PLC0415 - only now are names safe from the user's folder

        code = run(sys.argv[0], sys.argv[1:])
    except KeyboardInterrupt:  # while modules were loaded
        code = 130
    sys.exit(code)


def _forget_current_folder() -> None:
    """Take the folder that ``python -m`` puts first off the path: a user's onnx.py or strategies/ there is not ours."""
    here, ours = Path.cwd(), Path(__file__).resolve().parents[1]
    if sys.path and Path(sys.path[0] or here) == here and here.resolve() != ours:
        del sys.path[0]


if __name__ == "__main__":
    main()
