"""Faults of what only reads or draws: report, trace explain, explain, doctor."""

import gzip
import json
import shutil
import signal
import unittest

import harness
import promises
from fault import ENDING, Case, damaged, fault, needs_mounts
from harness import OK


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


# trace explain, explain, doctor


@fault(8)
def trace_damaged(c: Case) -> None:
    c.ended(c.bench.start(*c.run(), "-q"))
    rank = c.folder / "out/trace/rank_0.json.gz"
    names = []
    for i in range(4):
        match c.chance.randrange(3):
            case 0:
                data = damaged(c.chance, (c.folder / "out/trace.json").read_bytes())
                names.append(c.bench.write(f"t{i}.json", data))
            case 1:
                names.append(c.bench.write(f"t{i}.json.gz", damaged(c.chance, rank.read_bytes())))
            case 2:
                data = gzip.compress(damaged(c.chance, gzip.decompress(rank.read_bytes())))
                names.append(c.bench.write(f"t{i}.json.gz", data))
    c.ended(c.bench.start("trace", "explain", *map(str, names)))


@fault(3)
def one_without_results_struck(c: Case) -> None:
    c.bench.write("big.json", json.dumps({"traceEvents": [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(100_000)]}))
    command = c.chance.choice((["trace", "explain", "big.json"], ["explain", "llama3-8b-emulated"], ["doctor", "--json"]))
    c.struck(*command, number=c.chance.choice((*ENDING, signal.SIGKILL)), within_s=0.5)
