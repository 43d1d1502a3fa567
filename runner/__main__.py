"""Entry: ``python -m runner`` and the console script ``winnow``."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(300_000, 20, 20)  # what a run loads and indexes stays: it need not be looked through so often
    _mend_path()
    # in this order, and only now that names are safe from the user's folder: signals may come while the rest is loaded
    try:
        from runner.cli.signals import ENDING, ignore, leave, listen  # noqa: PLC0415

        listen(leave)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # a sweep blocks them until its job can answer them
    except KeyboardInterrupt:
        sys.exit(130)
    from runner.cli.streams import open_streams  # noqa: PLC0415

    open_streams()
    from runner.cli.app import run  # noqa: PLC0415
    from runner.sweeps.sweep import Sweep  # noqa: PLC0415

    code = run(sys.argv[0], sys.argv[1:], Sweep())
    ignore()
    gc.freeze()  # all that is left ends with the process: nothing in it need be looked for
    sys.exit(code)


def _mend_path() -> None:
    """Take off the path what Python puts first there: names in it are not ours.

    ``python -m`` puts the folder where the user stands, with onnx.py or strategies/ of theirs; a start by path (a sweep
    does that) puts this folder, whose modules have names of the standard library.
    """
    package = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - nothing is loaded yet
    ours = os.path.dirname(package)  # noqa: PTH120 - as above
    first = os.path.realpath(sys.path[0]) if sys.path and sys.path[0] else ""
    if first == package:
        del sys.path[0]
        if ours not in map(os.path.realpath, sys.path):
            sys.path.insert(0, ours)
        return
    try:
        here = os.getcwd()  # noqa: PTH109 - as above
    except FileNotFoundError:
        return  # the folder was removed
    if sys.path and (sys.path[0] or here) == here and os.path.realpath(here) != ours:
        del sys.path[0]


if __name__ == "__main__":
    main()
