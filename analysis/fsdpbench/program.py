"""Where the program is. It is what `fsdpbench` on PATH starts, so this imports as little as it can."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Dict

_HERE = os.path.dirname(os.path.abspath(__file__))
# In a wheel, and in a source tree, whose build folder `make build` fills.
_BESIDE = (os.path.join(_HERE, "bin", "fsdpbench"), os.path.join(_HERE, "..", "..", "build", "bin", "fsdpbench"))


def program() -> str:
    """The path of the program: FSDPBENCH_PROGRAM, else the one of this package, else the one on PATH."""
    named = os.environ.get("FSDPBENCH_PROGRAM")
    if named:
        return named
    for path in _BESIDE:
        if os.access(path, os.X_OK):
            return os.path.normpath(path)
    found = shutil.which("fsdpbench")
    if found is None:
        raise FileNotFoundError(
            "The program fsdpbench is neither in this package nor on PATH: build it with `make build`, or let "
            "FSDPBENCH_PROGRAM name it.")
    return found


# What launchers tell each rank: a program that finds it takes itself for a rank of that job.
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_LOCALID",
              "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_ID", "PMIX_NAMESPACE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
_OF_A_RANK_BEGINNINGS = ("OMPI_COMM_WORLD_", "PMI_", "TORCHELASTIC_")


def environment() -> Dict[str, str]:
    """This process's environment, with this Python as the one that draws reports."""
    return {"FSDPBENCH_PYTHON": sys.executable, **os.environ}


def environment_of_a_call() -> Dict[str, str]:
    """The same for a program that this process calls. If this process is a rank of a job, the program is none."""
    return {name: value for name, value in environment().items()
            if name not in _OF_A_RANK and not name.startswith(_OF_A_RANK_BEGINNINGS)}


def main() -> None:
    """Becomes the program: signals, exit code and streams are its own."""
    path = program()
    os.execve(path, [path, *sys.argv[1:]], environment())
