"""Entry: ``python -m runner`` and the console script ``winnow``."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    _forget_current_folder()
    # in this order, and only now that names are safe from the user's folder: signals may come while the rest is loaded
    try:
        from runner.cli.signals import ignore, leave, listen  # noqa: PLC0415

        listen(leave)
    except KeyboardInterrupt:
        sys.exit(130)
    from runner.cli.streams import open_streams  # noqa: PLC0415

    open_streams()
    from runner.cli.app import run  # noqa: PLC0415

    code = run(sys.argv[0], sys.argv[1:])
    ignore()
    sys.exit(code)


def _forget_current_folder() -> None:
    """Take the folder that ``python -m`` puts first off the path: a user's onnx.py or strategies/ there is not ours."""
    ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - nothing is loaded yet
    try:
        here = os.getcwd()  # noqa: PTH109 - as above
    except FileNotFoundError:
        return  # the folder was removed
    if sys.path and (sys.path[0] or here) == here and os.path.realpath(here) != ours:
        del sys.path[0]


if __name__ == "__main__":
    main()
