"""A job's process: started by path, told its order through the file descriptor that its only argument names."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> int:
    """Carry out the order; return the job's exit code."""
    # what is beside a script comes first on its path: this folder's modules are not meant, the project's are
    root = str(Path(__file__).resolve().parents[2])
    del sys.path[0]
    if root not in sys.path:
        sys.path.insert(0, root)
    from runner.cli.signals import ENDING, ignore, leave, listen  # noqa: PLC0415 - only now are names the project's

    listen(leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # the launcher blocked them, so that none came before
    from runner.cli.streams import open_streams  # noqa: PLC0415

    open_streams()
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as file:
        text = file.read()
    from runner.sweeps.job_spec import Order  # noqa: PLC0415

    code = _carried_out(Order.from_json(text))
    ignore()
    return code


def _carried_out(order: object) -> int:
    from hydra.errors import HydraException  # noqa: PLC0415
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    from runner.cli.explain import explain  # noqa: PLC0415
    from runner.cli.terminal import say  # noqa: PLC0415
    from runner.errors import WinnowError  # noqa: PLC0415
    from runner.sweeps.job_spec import Order  # noqa: PLC0415

    assert isinstance(order, Order)
    try:
        return order.carry_out()
    except WinnowError as error:
        say(f"#{order.number} winnow: {error}", error=True)
        return error.exit_code
    except (HydraException, OmegaConfBaseException, OSError, ValueError) as error:
        say(f"#{order.number} winnow: {explain(error, sweep=True)}", error=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
