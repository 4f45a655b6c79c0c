"""Records what `fsdpbench watch` reads of real jobs of PyTorch on CPU ranks over gloo: `python record.py FOLDER CASE`.

clean: four ranks compute for random times and reduce. late: rank 2 takes longer at each second collective. hang: rank 2 is
stopped (SIGSTOP) in the middle, by its process id, and killed at the end. native: PyTorch's own dumps, pickled, of a job in
which rank 2 does not come. FSDPBENCH_WATCH's files are written by fsdpbench.torch.watch as in a job of a user.
"""

import os
import pathlib
import random
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "analysis"))
from fsdpbench.torch import watch  # noqa: E402
from fsdpbench.torch.late import Times  # noqa: E402

RANKS, LATE, COLLECTIVES = 4, 2, 70
HANGS_S = float(os.environ.get("HANGS_S", "20"))


def train(rank: int, folder: str, case: str, address: str) -> None:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    writer = watch.Writer(pathlib.Path(folder), 1.0) if case != "native" else None
    luck = random.Random(rank)
    values = torch.ones(4096)
    for number in range(1, COLLECTIVES + 1):
        begin = time.perf_counter()
        if case in ("hang", "native") and number == COLLECTIVES // 2 and rank == LATE:
            if case == "native":
                break
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(luck.uniform(0.08, 0.1) + (0.05 if case == "late" and rank == LATE and number % 2 else 0))
        before = time.perf_counter()
        if case == "native" and number == COLLECTIVES // 2:
            dist.all_reduce(values, async_op=True)
            break
        dist.all_reduce(values)
        end = time.perf_counter()
        if writer is not None and number > 1:
            writer.step(number, Times((end - begin) * 1e3, None, (end - before) * 1e3))
    if writer is not None:
        writer.dump()
    else:
        time.sleep(0.5)
        pathlib.Path(folder, f"nccl_trace_rank_{rank}").write_bytes(
            torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False))
        time.sleep(1)
    os._exit(0)


def main() -> None:
    folder, case = sys.argv[1], sys.argv[2]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    store = pathlib.Path(folder).resolve() / ".store"
    context = mp.get_context("spawn")
    ranks = [context.Process(target=train, args=(rank, folder, case, f"file://{store}")) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    try:
        if case == "hang":
            ranks[0].join(COLLECTIVES * 0.1 + HANGS_S)
        else:
            for rank in ranks:
                rank.join()
    finally:
        for rank in ranks:
            if rank.is_alive():
                rank.kill()
        store.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
