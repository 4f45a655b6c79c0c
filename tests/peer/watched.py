"""The package's watch beside a real job of PyTorch on four CPU ranks over gloo: `python watched.py [--case NAME]`.

The job trains under FSDP2 with fsdpbench.torch.step(). Once the watcher has seen some of it, rank 2 is stopped by SIGSTOP,
by its process id: the line that follows must name it, and nobody else, as hanging or silent. How long that took is printed.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import torch.multiprocessing as mp

STOPPED, STEPS, PATIENCE_S = 2, 60, 300
NOT_LATE = {"hang", "silent", "mismatch"}


def work(rank, name, folder):
    os.environ.update(FSDPBENCH_WATCH=os.path.join(folder, "watch"), TORCH_FR_BUFFER_SIZE="500")
    import in_job
    import fsdpbench.torch
    job = in_job.Job(name, rank, f"file://{folder}/store")
    while True:
        with fsdpbench.torch.step():
            job.train()
        time.sleep(0.02)


def steps_of(folder):
    path = pathlib.Path(folder, "watch", f"steps_{STOPPED}.jsonl")
    return len(path.read_text().splitlines()) if path.exists() else 0


def watch(name, folder):
    pathlib.Path(folder, "watch").mkdir()
    context = mp.get_context("spawn")
    ranks = [context.Process(target=work, args=(rank, name, folder)) for rank in range(4)]
    for rank in ranks:
        rank.start()
    package = os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parents[2] / "analysis")}
    watcher = subprocess.Popen([sys.executable, "-m", "fsdpbench.analysis", "watch", "--json", "--every", "0.5", "--", f"{folder}/watch"],
                               stdout=subprocess.PIPE, text=True, env=package)
    try:
        until = time.monotonic() + PATIENCE_S
        while steps_of(folder) < STEPS:
            assert time.monotonic() < until and all(rank.is_alive() for rank in ranks), "the job does not train"
            time.sleep(0.2)
        os.kill(ranks[STOPPED].pid, signal.SIGSTOP)
        stopped = time.time_ns()
        for line in watcher.stdout:
            said = json.loads(line)
            print(f"  {said['sentence']}", flush=True)
            if said["verdict"] not in NOT_LATE:
                continue
            assert said["as_of_ns"] > stopped, "said before anything was wrong"
            assert said["accusations"][0]["ranks"] == [STOPPED], said
            print(f"  named {(said['as_of_ns'] - stopped) / 1e9:.1f} s after it was stopped")
            return
        raise AssertionError("the watcher ended")
    finally:
        watcher.kill()
        for rank in ranks:
            rank.kill()
            rank.join()


def main():
    parser = argparse.ArgumentParser(description="fsdpbench watch beside a real job.")
    parser.add_argument("--case", action="append", default=[], help="of in_job.py, with four ranks; default hsdp")
    for name in parser.parse_args().case or ["hsdp"]:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            watch(name, folder)


if __name__ == "__main__":
    main()
