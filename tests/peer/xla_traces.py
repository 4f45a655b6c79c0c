"""Records what jax.profiler writes of FSDP on processors, and what of it JAX's own reader counts.

    xla_traces.py FOLDER    one process with 8 devices (FOLDER/devices), two processes with one each (FOLDER/processes)

truth.json has, for each file, the thunks of each device by what they are called, with their nanoseconds: counted by
jax.profiler.ProfileData, not by us.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys

import xla_programs

STEPS = 3


def train(folder, rank, processes):
    os.environ["JAX_PLATFORMS"] = "cpu"
    if processes == 1:
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import jax
    import numpy as np
    if processes > 1:
        jax.distributed.initialize("127.0.0.1:" + os.environ["PORT"], processes, rank)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fsdp",))
    step, arguments = xla_programs.train_step(jax, mesh, checkpoint=True, layers=2, width=64, ffn=128, seq=32)
    params, momentum, x = jax.tree.map(
        lambda a: jax.make_array_from_callback(a.shape, a.sharding, lambda index: np.full(a.shape, 0.01, a.dtype)[index]), arguments)
    for _ in range(2):
        params, momentum, value = step(params, momentum, x)
    jax.block_until_ready(params)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(str(folder), profiler_options=options):
        for i in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=10 + i):
                params, momentum, value = step(params, momentum, x)
        jax.block_until_ready(params)


def thunks(path):
    """By device: how many thunks of each name, and their nanoseconds."""
    from jax.profiler import ProfileData
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    for plane in ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats and "run_id" in stats:
                    one = found[stats["device_ordinal"]][re.sub(r"(\.\d+)+$", "", stats["hlo_op"])]
                    one[0] += 1
                    one[1] += round(event.duration_ns)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.rank >= 0:
        return train(arguments.folder, arguments.rank, arguments.processes)
    import jax
    truth = {"jax": jax.__version__, "steps": STEPS, "files": {}}
    for name, processes in (("devices", 1), ("processes", 2)):
        environment = dict(os.environ, PORT=str(20000 + os.getpid() % 20000))
        jobs = [subprocess.Popen([sys.executable, __file__, arguments.folder / f"raw-{name}-{rank}", "--rank", str(rank), "--processes",
                                  str(processes)], env=environment) for rank in range(processes)]
        if any(job.wait() for job in jobs):
            sys.exit("a job failed")
        (arguments.folder / name).mkdir(parents=True, exist_ok=True)
        for rank in range(processes):
            raw = next((arguments.folder / f"raw-{name}-{rank}").rglob("*.xplane.pb"))
            truth["files"][f"{name}/rank{rank}"] = thunks(raw)
            (arguments.folder / name / f"rank{rank}.xplane.pb.gz").write_bytes(gzip.compress(raw.read_bytes(), 9, mtime=0))
            if processes == 1:
                json_file = next(raw.parent.glob("*.trace.json.gz"))
                (arguments.folder / "json").mkdir(exist_ok=True)
                (arguments.folder / "json" / "host.trace.json.gz").write_bytes(json_file.read_bytes())
    (arguments.folder / "truth.json").write_text(json.dumps(truth, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
