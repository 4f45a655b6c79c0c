"""Faults of runs and simulations."""

import os
import re
import shutil
import signal
import unittest

import harness
import promises
from fault import ENDING, THREADS, Case, damaged, fault, needs_mounts
from harness import BASE, LONG, OK, sets, until


@fault(4)
def run_signal(c: Case) -> None:
    _, code = c.struck(*c.run("train.steps=150"), number=c.chance.choice(ENDING), within_s=0.6)
    c.check_result(code)


@fault(4)
def run_kill(c: Case) -> None:
    _, code = c.struck(*c.run("train.steps=30"), number=signal.SIGKILL, within_s=0.5)
    c.check_result(code)
    c.check_result(c.ended(c.bench.start(*c.run(), "--overwrite")))


@fault(2)
def run_stop(c: Case) -> None:
    started = c.bench.start(*c.run("train.steps=100"))
    for _ in range(c.chance.randrange(1, 6)):
        c.moment(0.15)
        started.signal(signal.SIGSTOP)
        c.moment(0.1)
        started.signal(signal.SIGCONT)
    c.check_result(c.ended(started))


@fault(2)
def run_two_signals(c: Case) -> None:
    started = c.bench.start(*c.run(base=[*LONG, "mesh.ranks=2"]))
    c.moment(0.7)
    numbers = [c.chance.choice(ENDING) for _ in range(3)]
    for number in numbers:
        started.signal(number)
        c.moment(0.05)
    c.killed = True  # the second ends it at once, also in the middle of a file
    c.check_result(c.ended(started, numbers[0]))


@fault(5)
def run_full_disk(c: Case) -> None:
    """Filled while it trains: a disk that is too small from the start is said before."""
    needs_mounts()
    disk = c.bench.small_disk(16 << 10)
    started = c.bench.start(*c.run("train.steps=40", out=str(disk / "out"), base=[*LONG, "mesh.ranks=2"]))
    until(lambda: re.search(r"^step", started.err, re.MULTILINE) or not started.running(), "it trains")
    started.signal(signal.SIGSTOP)
    leave = c.chance.choice((0, 4, 8, 20, 40, 60, 100, 200, 400, 2000)) << 10
    room = os.statvfs(disk)
    with open(disk / "filler", "wb") as filler:
        filler.write(b"x" * max(0, room.f_bavail * room.f_frsize - leave))
    started.signal(signal.SIGCONT)
    code = c.ended(started)
    if "step time" not in started.out:
        raise promises.Broken(f"no table: {started.err}")
    result = promises.result_of(disk / "out")
    missing = [name for name in ("result.json", "config.toml", "trace.json") if not (disk / "out" / name).exists()]
    if code != (harness.CANNOT_WRITE if missing else code) or any(name not in started.err for name in missing):
        raise promises.Broken(f"{missing} are missing, exit code {code}: {started.err}")
    if leave >= 100 << 10 and not (result and result["complete"]):
        raise promises.Broken(f"{leave} bytes were left, and there is no result: {started.err}")


@fault(2)
def run_small_disk(c: Case) -> None:
    needs_mounts()
    disk = c.bench.small_disk(c.chance.choice((4, 8, 16, 40, 100, 200, 300, 1000)), c.chance.choice((0, 0, 2, 4, 6)))
    code = c.ended(c.bench.start(*c.run(out=str(disk / "out"))))
    if code == OK:
        c.check_result(code, disk / "out")


@fault(4)
def run_limits(c: Case) -> None:
    limits = {"fsize": c.chance.randrange(0, 300_000)}
    # Sanitizers look at memory through a pipe: without descriptors they call any object invalid. They also reserve more
    # addresses than there is memory.
    if not harness.sanitizer() and c.chance.random() < 0.5:
        limits = {"nofile": c.chance.randrange(4, 40)}
    if not harness.sanitizer() and c.chance.random() < 0.3:
        limits = {"as": c.chance.randrange(60, 3000) << 20}
    c.check_result(c.ended(c.bench.start(*c.run(), limits=limits), heard=limits.get("fsize", 1 << 20) > 16 << 10))


@fault(1)
def run_threads(c: Case) -> None:
    group = c.bench.control_group("pids", {"pids.max": c.chance.randrange(2, 14)})
    c.check_result(c.ended(c.bench.start(*c.run(), group=group)))


@fault(3)
def run_streams(c: Case) -> None:
    to = ("file", "closed", "gone", "/dev/full")
    out, err = c.chance.choice(to), c.chance.choice(to)
    code = c.ended(c.bench.start(*c.run(), stdout=out, stderr=err), heard=err == "file")
    if not (promises.result_of(c.folder / "out") or {}).get("complete"):
        raise promises.Broken("a stream that nobody reads has lost the result")
    if (code == OK) != (out == "file"):
        raise promises.Broken(f"standard output to {out}: exit code {code}")


@fault(3)
def run_one_folder(c: Case) -> None:
    more = ["--overwrite"] if c.chance.random() < 0.5 else []
    runs = []
    for _ in range(c.chance.randrange(2, 4)):
        runs.append(c.bench.start(*c.run(), *more))
        c.moment(0.1)
    codes = [c.ended(one) for one in runs]
    if OK not in codes:
        raise promises.Broken(f"nobody had the folder: {codes}")
    c.check_result(OK)


@fault(2)
def run_same_second(c: Case) -> None:
    runs = [c.bench.start("run", "quickstart", *sets(*THREADS), "-q") for _ in range(4)]
    for one in runs:
        c.ended(one)
    results = [promises.result_of(folder) for folder in (c.folder / "runs").iterdir()]
    if [bool(result and result["complete"]) for result in results] != [True] * 4:
        raise promises.Broken(f"{len(results)} results of 4")


@fault(3)
def run_over_an_old_one(c: Case) -> None:
    c.check_result(c.ended(c.bench.start(*c.run("mesh.ranks=4", "train.steps=5"))))
    number = c.chance.choice((*ENDING, signal.SIGKILL))
    _, code = c.struck(*c.run("train.steps=40"), "--overwrite", number=number, within_s=0.5)
    result = promises.result_of(c.folder / "out")
    config = c.folder / "out/config.toml"
    if result is not None and config.exists():
        steps = int(re.search(r"^steps = (\d+)", config.read_text(), re.MULTILINE).group(1))
        if steps != result["config"]["train"]["steps"]:
            raise promises.Broken("the result of one run beside the configuration of another")
    if code == OK and len(list((c.folder / "out/trace").iterdir())) != 2:
        raise promises.Broken("traces of an older run are left")


@fault(1)
def run_folder_gone(c: Case) -> None:
    started = c.bench.start(*c.run("train.steps=300"))
    c.moment(0.5)
    if (c.folder / "out").exists():
        try:
            if c.chance.random() < 0.5:
                (c.folder / "out").rename(c.folder / "elsewhere")
            else:
                shutil.rmtree(c.folder / "out")
        except OSError:
            pass  # it was gone, or just being filled
    c.ended(started)


@fault(1)
def run_planted(c: Case) -> None:
    victim = c.bench.write("victim", "mine")
    (c.folder / "out").mkdir()
    for name in ("result.json.part", "trace.json", "config.toml", ".result.json.part"):
        (c.folder / "out" / name).symlink_to(victim)
    c.check_result(c.ended(c.bench.start(*c.run())))
    if victim.read_text() != "mine":
        raise promises.Broken("a planted link was followed")


@fault(6)
def run_damaged_profile(c: Case) -> None:
    c.bench.write("p.toml", damaged(c.chance, BASE.encode()))
    keys = [] if c.chance.random() < 0.5 else [c.chance.choice((
        "mesh.ranks=0", "train.steps=nan", "fsdp.strategy=\x1b[2J", "emulate.link_gb_per_s=1e-300", "x.y=z", "=",
        "model.width=99999999", "train.seq_len=1073741824", "data.path=.", "data.path=/dev/zero", "mesh.shard=7",
        "train.lr=1e300"))]
    command = c.chance.choice((["explain"], ["run", "--out", "out"]))
    started = c.bench.start(command[0], "p.toml", *sets("train.steps=2", "train.warmup=1", *keys), *command[1:])
    c.ended(started)
    if len(started.err) > 8000:
        raise promises.Broken(f"{len(started.err)} bytes of messages")


@fault(1)
def run_memory(c: Case) -> None:
    """A control group with little memory: said before the run, or enough."""
    most = c.chance.randrange(100, 600) << 20
    try:
        group = c.bench.control_group("memory", {"memory.limit_in_bytes": most})
    except unittest.SkipTest:
        group = c.bench.control_group("memory", {"memory.max": most})
    wide = c.chance.choice((64, 512, 1024, 2048))
    code = c.ended(c.bench.start(*c.run(f"model.width={wide}", f"model.ffn_width={2 * wide}", "model.layers=4",
                                        "train.steps=2"), group=group))
    if code not in (OK, harness.NO_RESOURCES):
        raise promises.Broken(f"{most >> 20} MiB: exit code {code}")
    c.check_result(code)


@fault(2)
def simulate_struck(c: Case) -> None:
    keys = sets("emulate.compute_tflops=0.02", "emulate.link_gb_per_s=1", f"mesh.ranks={c.chance.choice((8, 64, 512))}")
    number = c.chance.choice((*ENDING, signal.SIGKILL))
    _, code = c.struck("simulate", "quickstart", *keys, "--out", "out", number=number, within_s=0.4)
    c.check_result(code)
    c.check_result(c.ended(c.bench.start("simulate", "quickstart", *keys, "--out", "out", "--overwrite")))
