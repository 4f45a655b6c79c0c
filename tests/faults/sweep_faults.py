"""Faults of sweeps and comparisons: what they have measured is there once."""

import shutil
import signal
import subprocess

import harness
import promises
from fault import CELLS, ENDING, TRIALS, Case, damaged, fault, needs_mounts
from harness import OK


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
    subprocess.run(["mount", "-o", "remount,size=4m,nr_inodes=1000", disk], check=True)
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
    c.struck(*compare(c), number=c.chance.choice((*ENDING, signal.SIGKILL)), within_s=0.35)
    promises.whole_json(c.folder / "out/compare.json")


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
