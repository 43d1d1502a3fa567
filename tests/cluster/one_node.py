"""A SLURM cluster of one node on this machine, for a test: its own munge, controller, node and pretended GPUs.

Nothing of a SLURM that the machine may have is touched: files lie in a folder, ports are free ones, and commands find
this cluster by ``SLURM_CONF``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

PROGRAMS = ("slurmctld", "slurmd", "munged", "sinfo", "sbatch", "srun", "scancel")
#: a pretended GPU is any device file; SLURM only counts them and sets CUDA_VISIBLE_DEVICES
_DEVICES = ("/dev/zero", "/dev/null", "/dev/full", "/dev/random")
_PATIENCE = 60.0


def missing() -> str:
    """Say why no cluster can be set up here; nothing if it can."""
    if os.geteuid() != 0:
        return "a SLURM cluster is set up by root only"
    lacking = [name for name in PROGRAMS if _program(name) is None]
    if lacking:
        return f"{', '.join(lacking)}: not installed (Debian: apt-get install slurmctld slurmd slurm-client munge)"
    return ""


class OneNode:
    """The cluster, from `__enter__` to `__exit__`. ``env``: what reaches it; ``gpus``: how many are pretended."""

    def __init__(self, folder: Path, gpus: int = 2) -> None:
        self.folder, self.gpus = folder, gpus
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> OneNode:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def squeue(self) -> str:
        """Return what is queued or runs."""
        return subprocess.run(["squeue", "-h"], env=self.env, capture_output=True, text=True, check=False).stdout

    def _start(self) -> None:
        host = socket.gethostname().split(".")[0]
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {name: self.folder / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
        self._spawn(
            "munged",
            *("--foreground", "--force", f"--key-file={key}", f"--socket={files['socket']}"),
            *(f"--pid-file={files['pid']}", f"--log-file={files['log']}", f"--seed-file={files['seed']}"),
        )
        self._until(files["socket"].exists, "munged")
        (self.folder / "slurm.conf").write_text(self._configuration(host, files["socket"]))
        devices = "".join(f"NodeName={host} Name=gpu File={device}\n" for device in _DEVICES[: self.gpus])
        (self.folder / "gres.conf").write_text(devices)
        # accounting by cgroups is not wanted, and its file would be looked for beside slurm.conf
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        self._spawn("slurmctld", "-D", "-i", "-f", self.env["SLURM_CONF"])
        self._spawn("slurmd", "-D", "-N", host, "-f", self.env["SLURM_CONF"])
        self._until(self._idle, "slurmd")

    def _configuration(self, host: str, munge: Path) -> str:
        controller, node = _free_ports()
        lines = (
            "ClusterName=winnow",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            f"SlurmdPort={node}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={munge}",
            f"StateSaveLocation={self.folder / 'state'}",
            f"SlurmdSpoolDir={self.folder / 'spool'}",
            f"SlurmctldPidFile={self.folder / 'slurmctld.pid'}",
            f"SlurmdPidFile={self.folder / 'slurmd.pid'}",
            f"SlurmctldLogFile={self.folder / 'slurmctld.log'}",
            f"SlurmdLogFile={self.folder / 'slurmd.log'}",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SchedulerType=sched/builtin",
            "GresTypes=gpu",
            "AccountingStorageType=accounting_storage/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            f"NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 Gres=gpu:{self.gpus} State=UNKNOWN",
            "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        )
        return "\n".join(lines) + "\n"

    def _spawn(self, name: str, *arguments: str) -> None:
        program = _program(name)
        assert program is not None
        with (self.folder / f"{name}.out").open("wb") as out:
            self._running.append(
                subprocess.Popen([program, *arguments], env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )

    def _idle(self) -> bool:
        done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=self.env, capture_output=True, text=True, check=False)
        return done.stdout.strip() == "idle"

    def _until(self, ready: object, what: str) -> None:
        assert callable(ready)
        deadline = time.monotonic() + _PATIENCE
        while not ready():
            ended = [process.args for process in self._running if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.out"))
                raise RuntimeError(f"{what} did not come up ({ended or 'still starting'}):\n{logs}")
            time.sleep(0.1)

    def _stop(self) -> None:
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            _reap(process)
        self._running.clear()


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])
