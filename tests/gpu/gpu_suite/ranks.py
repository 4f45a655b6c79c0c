"""Starts one process a rank on this machine, as torchrun would."""

import os
import random
import socket
import subprocess
import time
from pathlib import Path


def free_port() -> int:
    """Not of the range from which the system takes the ports of outgoing connections."""
    while True:
        port = random.randrange(20000, 32000)
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            return port
        except OSError:
            continue


def environment_of(rank: int, ranks: int, port: int, one_gpu: bool) -> dict:
    environment = {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "FSDPBENCH_PORT": str(port),
    }
    if one_gpu:
        # NCCL below 2.30 takes two ranks on one GPU for a mistake unless they seem to be on different hosts, and then
        # only the network carries their bytes; from 2.30 on it must be allowed.
        environment |= {
            "NCCL_HOSTID": f"fsdpbench-{rank}", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2",
        }
    return environment


def run_ranks(command: list, ranks: int, log: Path, seconds: float, folder: Path, one_gpu: bool = False,
              environment: dict | None = None) -> list:
    """Exit codes by rank, of processes that work in `folder`. Output goes to <log>.rank_N.log. Whoever has not ended in
    time is ended, with code -9."""
    port = free_port()
    processes = []
    for rank in range(ranks):
        with open(f"{log}.rank_{rank}.log", "w", encoding="utf-8") as output:
            processes.append(subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT,
                                              env=os.environ | (environment or {}) | environment_of(rank, ranks, port, one_gpu)))
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return [process.returncode for process in processes]
