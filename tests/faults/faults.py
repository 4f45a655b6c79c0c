"""The faults of the campaign, each a function that breaks something of a Case. How often: its weight."""

import gzip
import json
import os
import random
import re
import signal
import shutil
import socket
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import harness
import promises
from harness import BASE, INTERRUPTED, LONG, OK, PATIENCE_S, RANKS, SWEEP, TINY, kill, sets, until

THREADS = [*TINY, "mesh.ranks=2"]
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CELLS, TRIALS = 4, 4


class Case:
    """One fault: where it happens, what is random about it, and what is asked for after each process and at the end."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.bench = harness.Bench()
        self.folder = self.bench.folder
        self.codes: list[str] = []
        self.killed = False  # somebody was ended by SIGKILL, and so may have left drafts
        self.bench.write("base.toml", BASE)
        self.bench.write("s.toml", SWEEP.format(trials=TRIALS))

    def moment(self, most_s: float) -> None:
        time.sleep(self.chance.uniform(0, most_s * PATIENCE_S / 60))

    def run(self, *keys: str, out: str = "out", base: list[str] = THREADS) -> list[str]:
        return ["run", "quickstart", *sets(*base, *keys), "--out", out]

    def ended(self, started: harness.Started, number: int = 0, heard: bool = True, launcher: bool = False) -> int:
        """Waits, and asks for what must hold of a process. number: the signal that it got, which may have come before
        the program could know what to do with it."""
        code = started.wait()
        self.codes.append(("launcher " if launcher else "") + str(code))
        promises.speaks_plainly(started.out)
        promises.speaks_plainly(started.err if not launcher else without_launchers_words(started.err))
        loading = "error while loading shared libraries" in started.err
        if code == -number and number:
            self.killed = True
        elif not launcher and not loading:
            promises.ends_as_documented(started, code, heard=heard)
        return code

    def struck(self, *arguments: str, number: int, within_s: float) -> tuple[harness.Started, int]:
        """Started, and given the signal at a random moment."""
        started = self.bench.start(*arguments)
        self.moment(within_s)
        started.signal(number)
        return started, self.ended(started, number)

    def check_result(self, code: int, out: Path | str = "out") -> dict | None:
        """A run that ended so has left such a result."""
        result = promises.result_of(self.folder / out)
        if code in (OK, 8) and not (result and result["complete"]):
            raise promises.Broken(f"exit code {code}, and result.json is {str(result)[:60]}")
        if code == INTERRUPTED and result is not None and result["complete"]:
            raise promises.Broken("exit code 130, and result.json is complete")
        return result

    def check_all(self) -> None:
        promises.nobody_left(self.bench)
        for name in ("result.json", "sweep.json", "compare.json"):
            for path in self.folder.rglob(name):
                if path.is_file() and not path.parent.name.startswith("hostile"):
                    promises.whole_json(path)
        for page in self.folder.rglob("report.html"):
            if not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
                raise promises.Broken(f"{page} is not whole")
        if not self.killed:
            promises.no_drafts(self.folder)


def without_launchers_words(text: str) -> str:
    """mpirun prints reports of its own, and passes on what the ranks say."""
    return "\n".join(line for line in text.splitlines() if line.startswith(("error:", "warning:", "step")))


class Fault(NamedTuple):
    call: Callable[[Case], None]
    weight: int


ALL: dict[str, Fault] = {}


def fault(weight: int) -> Callable:
    def add(function: Callable[[Case], None]) -> Callable[[Case], None]:
        ALL[function.__name__] = Fault(function, weight)
        return function

    return add


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Bytes flipped, cut out, repeated, or cut off."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 50))):
        if not data:
            break
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0: data[at] ^= 1 << chance.randrange(8)
            case 1: data[at] = chance.choice(b'{}[]",:\\\x00\xff\x1b0-e.')
            case 2: del data[at:at + chance.randrange(1, 60)]
            case 3: data[at:at] = data[at:at + chance.randrange(1, 60)]
            case 4: data = data[:at] if chance.random() < 0.2 else data
    return bytes(data)


def needs_mounts() -> None:
    if not os.environ.get("FAULTS_OWN_MOUNTS"):
        raise unittest.SkipTest("small disks need root, or user namespaces with tmpfs")


# run


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
    limits = {"nofile": c.chance.randrange(4, 40)} if c.chance.random() < 0.5 else {"fsize": c.chance.randrange(0, 300_000)}
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
            (c.folder / "out").rename(c.folder / "elsewhere") if c.chance.random() < 0.5 else shutil.rmtree(c.folder / "out")
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
        "mesh.ranks=0", "train.steps=nan", "fsdp.strategy=\x1b[2J", "emulate.link_gb_per_s=1e-300", "model.width=99999999",
        "train.seq_len=1073741824", "data.path=.", "data.path=/dev/zero", "mesh.shard=7", "x.y=z", "=", "train.lr=1e300"))]
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


# sweep


def sweep(c: Case, **how: object) -> harness.Started:
    return c.bench.start("sweep", "s.toml", "--out", "out", **how)


def finish_sweep(c: Case, before: list[bytes]) -> None:
    log = c.folder / "out/trials.jsonl"
    before = promises.nothing_lost(before, log)
    code = c.ended(sweep(c))
    if code != OK:
        raise promises.Broken(f"the sweep did not go on: exit code {code}")
    promises.nothing_lost(before, log)
    promises.each_once(log, CELLS, TRIALS)


@fault(8)
def sweep_struck(c: Case) -> None:
    """Killed or interrupted several times: nothing is lost, nothing is there twice."""
    lines: list[bytes] = []
    for _ in range(c.chance.randrange(1, 4)):
        c.struck("sweep", "s.toml", "--out", "out", number=c.chance.choice((*ENDING, signal.SIGKILL, signal.SIGKILL)),
                 within_s=0.35)
        lines = promises.nothing_lost(lines, c.folder / "out/trials.jsonl")
    finish_sweep(c, lines)


@fault(3)
def sweep_full_disk(c: Case) -> None:
    needs_mounts()
    disk = c.bench.small_disk(c.chance.choice((4, 8, 12, 20, 28, 40)), c.chance.choice((0, 0, 3, 5)))
    (c.folder / "out").symlink_to(disk)
    c.ended(sweep(c))
    lines = promises.whole_lines(disk / "trials.jsonl")
    harness.subprocess.run(["mount", "-o", "remount,size=4m,nr_inodes=1000", disk], check=True)
    finish_sweep(c, lines)


@fault(3)
def sweep_torn_log(c: Case) -> None:
    c.ended(sweep(c))
    log = c.folder / "out/trials.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[:c.chance.randrange(len(data))])
    finish_sweep(c, promises.whole_lines(log))


@fault(4)
def sweep_damaged_log(c: Case) -> None:
    c.ended(sweep(c))
    log = c.folder / "out/trials.jsonl"
    log.write_bytes(damaged(c.chance, log.read_bytes()))
    before = log.read_bytes()
    if c.ended(sweep(c)) == harness.BAD_INPUT and log.read_bytes() != before:
        raise promises.Broken("a log that was refused has changed")


@fault(2)
def sweep_twice(c: Case) -> None:
    both = [sweep(c), sweep(c)]
    for one in both:
        c.ended(one)
    finish_sweep(c, promises.whole_lines(c.folder / "out/trials.jsonl"))


@fault(2)
def sweep_streams(c: Case) -> None:
    to = ("file", "closed", "gone", "/dev/full")
    err = c.chance.choice(to)
    c.ended(sweep(c, stdout=c.chance.choice(to), stderr=err), heard=err == "file")
    promises.each_once(c.folder / "out/trials.jsonl", CELLS, TRIALS)


@fault(1)
def sweep_limits(c: Case) -> None:
    c.ended(sweep(c, limits={"fsize": c.chance.randrange(5_000, 80_000)}), heard=False)
    finish_sweep(c, promises.whole_lines(c.folder / "out/trials.jsonl"))


# compare


def compare(c: Case) -> list[str]:
    return ["compare", "base.toml", "--b-set", "train.steps=4", "--trials", "4", "--out", "out"]


@fault(6)
def compare_struck(c: Case) -> None:
    """The same command goes on, and no trial is there twice."""
    log = c.folder / "out/trials.jsonl"
    for _ in range(c.chance.randrange(1, 3)):
        c.struck(*compare(c), number=c.chance.choice((*ENDING, signal.SIGKILL)), within_s=0.35)
    code = c.ended(c.bench.start(*compare(c)))
    compared = promises.whole_json(c.folder / "out/compare.json")
    if code != OK and not (c.codes[0] == "0" and code == harness.BAD_INPUT):
        raise promises.Broken(f"the comparison did not go on: exit code {code}")
    if compared is None or [len(compared[side]["trials"]) for side in ("a", "b")] != [4, 4]:
        raise promises.Broken("compare.json has not all trials")
    lines = promises.whole_lines(log)
    if len(set(lines)) != len(lines):
        raise promises.Broken("a trial is there twice")


@fault(2)
def compare_full_disk(c: Case) -> None:
    needs_mounts()
    disk = c.bench.small_disk(c.chance.choice((4, 8, 12, 20, 40)))
    (c.folder / "out").symlink_to(disk)
    c.ended(c.bench.start(*compare(c)))
    harness.Bench.grow(disk, 4096)
    if c.ended(c.bench.start(*compare(c))) not in (OK, harness.BAD_INPUT):
        raise promises.Broken("the comparison did not go on")


@fault(4)
def compare_damaged_result(c: Case) -> None:
    c.ended(c.bench.start(*c.run("train.steps=6"), "-q"))
    shutil.copytree(c.folder / "out", c.folder / "hostile")
    path = c.folder / "hostile/result.json"
    path.write_bytes(damaged(c.chance, path.read_bytes()))
    c.ended(c.bench.start("compare", "out", "hostile"))
    c.ended(c.bench.start("explain", "--from", "hostile"))


# report


def has_report() -> None:
    if not (harness.SOURCE / ".venv/bin/python").exists():
        raise unittest.SkipTest("the report's package is not installed: make analysis")


@fault(2)
def report_struck(c: Case) -> None:
    has_report()
    c.ended(c.bench.start(*c.run(), "-q"))
    number = c.chance.choice((*ENDING, signal.SIGKILL))
    _, code = c.struck("report", "out", number=number, within_s=4)
    if code == OK and not (c.folder / "out/report/report.html").exists():
        raise promises.Broken("exit code 0 without a page")


@fault(1)
def report_full_disk(c: Case) -> None:
    has_report()
    needs_mounts()
    c.ended(c.bench.start(*c.run(), "-q"))
    disk = c.bench.small_disk(c.chance.choice((4, 40, 100, 300, 1000)))
    c.ended(c.bench.start("report", "out", "--out", str(disk / "page"), stdout=c.chance.choice(("file", "/dev/full"))))


@fault(2)
def report_damaged(c: Case) -> None:
    has_report()
    c.ended(c.bench.start(*c.run(), "-q"))
    shutil.move(c.folder / "out", c.folder / "hostile")
    path = c.folder / "hostile" / c.chance.choice(("result.json", "trace.json"))
    path.write_bytes(damaged(c.chance, path.read_bytes()))
    c.ended(c.bench.start("report", "hostile"))


# trace check, explain, doctor


@fault(8)
def trace_damaged(c: Case) -> None:
    c.ended(c.bench.start(*c.run(), "-q"))
    rank = c.folder / "out/trace/rank_0.json.gz"
    names = []
    for i in range(4):
        match c.chance.randrange(3):
            case 0: names.append(c.bench.write(f"t{i}.json", damaged(c.chance, (c.folder / "out/trace.json").read_bytes())))
            case 1: names.append(c.bench.write(f"t{i}.json.gz", damaged(c.chance, rank.read_bytes())))
            case 2: names.append(c.bench.write(f"t{i}.json.gz", gzip.compress(
                damaged(c.chance, gzip.decompress(rank.read_bytes())))))
    c.ended(c.bench.start("trace", "check", *map(str, names)))


@fault(3)
def one_without_results_struck(c: Case) -> None:
    c.bench.write("big.json", json.dumps({"traceEvents": [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(100_000)]}))
    command = c.chance.choice((["trace", "check", "big.json"], ["explain", "llama3-8b-emulated"], ["doctor", "--json"]))
    c.struck(*command, number=c.chance.choice((*ENDING, signal.SIGKILL)), within_s=0.5)


# mpirun


def needs_mpirun() -> None:
    if not shutil.which("mpirun"):
        raise unittest.SkipTest("there is no mpirun on this machine")
    if harness.sanitizer():
        raise unittest.SkipTest("sanitizers do not know Open MPI's threads")


def job_result(c: Case, dead: int | None) -> None:
    """Whatever is there says that it is not complete, and who is to blame, if somebody was killed."""
    result = promises.result_of(c.folder / "out")
    if result is None:
        return
    if result["complete"]:
        raise promises.Broken("a job that was ended has a complete result")
    if dead is not None and "failure" in result and result["failure"]["rank"] != dead:
        raise promises.Broken(f"rank {dead} was lost, and result.json blames: {result['failure']}")


@fault(4)
def mpirun_rank_killed(c: Case) -> None:
    needs_mpirun()
    job = c.bench.mpirun(*c.run(base=LONG))
    until(lambda: len(c.bench.rank_processes()) == RANKS or not job.running(), "all ranks are there")
    ranks = c.bench.rank_processes()
    c.moment(2)
    dead = c.chance.randrange(RANKS)
    kill(ranks.get(dead, 0) or job.pid)
    if c.ended(job, signal.SIGKILL, launcher=True) == OK:
        raise promises.Broken("a job that lost a rank has ended with exit code 0")
    c.killed = True
    promises.nobody_left(c.bench)
    job_result(c, dead)


@fault(2)
def mpirun_struck(c: Case) -> None:
    needs_mpirun()
    number = c.chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
    job = c.bench.mpirun(*c.run(base=LONG))
    c.moment(2.5)
    job.signal(number)
    c.ended(job, number, launcher=True)
    c.killed = True  # it kills its ranks
    promises.nobody_left(c.bench)
    job_result(c, None)


@fault(1)
def mpirun_rank_stopped(c: Case) -> None:
    needs_mpirun()
    job = c.bench.mpirun(*c.run(base=LONG))
    until(lambda: re.search(r"^step", job.err, re.MULTILINE) or not job.running(), "it trains")
    stopped = c.chance.randrange(RANKS)
    kill(c.bench.rank_processes()[stopped], signal.SIGSTOP)
    if c.ended(job, launcher=True) == OK:
        raise promises.Broken("a job that lost a rank has ended with exit code 0")
    c.killed = True
    promises.nobody_left(c.bench)
    job_result(c, stopped)


@fault(1)
def mpirun_sweep_killed(c: Case) -> None:
    needs_mpirun()
    log = c.folder / "out/trials.jsonl"
    job = c.bench.mpirun("sweep", "s.toml", "--out", "out", ranks=2)
    until(lambda: len(promises.whole_lines(log)) > 1 or not job.running(), "a trial is logged")
    c.moment(0.1)
    ranks = c.bench.rank_processes()
    kill(ranks.get(c.chance.randrange(2), 0) or job.pid)
    c.ended(job, signal.SIGKILL, launcher=True)
    c.killed = True
    promises.nobody_left(c.bench)
    lines = promises.nothing_lost([], log)
    again = c.bench.mpirun("sweep", "s.toml", "--out", "out", ranks=2)
    if c.ended(again, launcher=True) != OK:
        raise promises.Broken(f"the sweep did not go on: {again.err[-400:]}")
    promises.nothing_lost(lines, log)
    promises.each_once(log, CELLS, TRIALS)


# torchrun's variables


def all_ended(c: Case, ranks: list[harness.Started], struck: dict[int, int]) -> list[int]:
    """Waits for all ranks; as launchers do, those left get SIGTERM a while after one is lost, and SIGKILL never."""
    codes: dict[int, int] = {}
    lost_at = time.monotonic()
    while len(codes) < len(ranks):
        for rank, process in enumerate(ranks):
            if rank not in codes and not process.running():
                codes[rank] = c.ended(process, struck.get(rank, signal.SIGTERM), heard=rank == 0)
        if time.monotonic() > lost_at + 20 * PATIENCE_S / 60:
            for rank, process in enumerate(ranks):
                process.signal(signal.SIGTERM)
                if rank not in codes:
                    codes[rank] = c.ended(process, signal.SIGTERM, heard=False)
        time.sleep(0.02)
    return [codes[rank] for rank in range(len(ranks))]


@fault(4)
def torchrun_rank_killed(c: Case) -> None:
    ranks = c.bench.torchrun(*c.run(base=LONG))
    trains = c.chance.random() < 0.7
    if trains:
        until(lambda: re.search(r"^step", ranks[0].err, re.MULTILINE) or not ranks[0].running(), "it trains")
    c.moment(0.8)
    dead = c.chance.randrange(RANKS)
    ranks[dead].signal(signal.SIGKILL)
    if not trains:  # they may still be waiting for it: the launcher ends them
        c.moment(1)
        for process in ranks:
            process.signal(signal.SIGTERM)
    c.killed = True
    codes = all_ended(c, ranks, {dead: signal.SIGKILL})
    if OK in codes:
        raise promises.Broken(f"a rank was lost, and the exit codes are {codes}")
    job_result(c, dead)


@fault(1)
def torchrun_rank_stopped(c: Case) -> None:
    ranks = c.bench.torchrun(*c.run(base=LONG))
    until(lambda: re.search(r"^step", ranks[0].err, re.MULTILINE) or not ranks[0].running(), "it trains")
    stopped = c.chance.randrange(RANKS)
    ranks[stopped].signal(signal.SIGSTOP)
    for rank, process in enumerate(ranks):
        if rank != stopped and c.ended(process, heard=rank == 0) != harness.RANK_FAILED:
            raise promises.Broken(f"rank {stopped} was stopped, and rank {rank} said {process.err}")
    ranks[stopped].signal(signal.SIGCONT)
    if c.ended(ranks[stopped]) != harness.RANK_FAILED:
        raise promises.Broken(f"the rank that was stopped said {ranks[stopped].err}")
    job_result(c, stopped)


@fault(3)
def torchrun_signal(c: Case) -> None:
    ranks = c.bench.torchrun(*c.run(base=LONG))
    until(lambda: re.search(r"^step", ranks[0].err, re.MULTILINE) or not ranks[0].running(), "it trains")
    c.moment(0.5)
    to = [c.chance.randrange(RANKS)] if c.chance.random() < 0.5 else range(RANKS)
    number = c.chance.choice(ENDING)
    for rank in to:
        ranks[rank].signal(number)
    codes = all_ended(c, ranks, {})
    if codes != [INTERRUPTED] * RANKS:
        raise promises.Broken(f"signal {number} to {list(to)}: exit codes {codes}; {ranks[0].err[-400:]}")
    result = promises.result_of(c.folder / "out")
    if result is None or result["complete"] or "failure" in result:
        raise promises.Broken(f"interrupted, and result.json is {str(result)[:100]}")


@fault(4)
def torchrun_strangers(c: Case) -> None:
    port = harness.free_port()
    variables = [c.bench.rank_variables(rank, 2, port) for rank in range(2)]
    ranks = [c.bench.start(*c.run(base=TINY), variables=variables[0])]
    guests = []

    def knock() -> bool:
        try:
            guests.append(socket.create_connection(("127.0.0.1", port + 1), timeout=5))
            return True
        except OSError:
            return not ranks[0].running()

    until(knock, "rank 0 listens")
    for _ in range(c.chance.randrange(1, 60)):
        knock()
        data = c.chance.randbytes(c.chance.choice((0, 1, 24, 100, 5000)))
        if c.chance.random() < 0.5:
            data = (0x46534442).to_bytes(4, "little") + c.chance.randrange(1, 9).to_bytes(4, "little") + data
        try:
            guests[-1].send(data)
            if c.chance.random() < 0.3:
                guests[-1].close()
        except OSError:
            pass
    ranks.append(c.bench.start(*c.run(base=TINY), variables=variables[1]))
    codes = [c.ended(process, heard=rank == 0) for rank, process in enumerate(ranks)]
    for guest in guests:
        guest.close()
    if codes != [OK, OK]:
        raise promises.Broken(f"strangers kept the job from its end: {codes}, {ranks[0].err}")
    c.check_result(OK)


@fault(2)
def torchrun_wrong_variables(c: Case) -> None:
    name = c.chance.choice(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"))
    value = c.chance.choice(("-1", "two", "99999999999", "2000000000", "\x1b[2J", "1e9", "0x10", "3.5"))
    variables = c.bench.rank_variables(0, 2, harness.free_port()) | {name: value}
    code = c.ended(c.bench.start(*c.run(base=TINY), variables=variables))
    if code not in (harness.BAD_INPUT, harness.RANK_FAILED):
        raise promises.Broken(f"{name}={value!r}: exit code {code}")


@fault(1)
def torchrun_full_disk(c: Case) -> None:
    needs_mounts()
    disk = c.bench.small_disk(c.chance.choice((4, 16, 60, 150)))
    (c.folder / "out").symlink_to(disk)
    ranks = c.bench.torchrun(*c.run(base=TINY))
    codes = [c.ended(process, heard=rank == 0) for rank, process in enumerate(ranks)]
    if OK in codes and len(set(codes)) > 1:
        raise promises.Broken(f"ranks disagree: {codes}")
