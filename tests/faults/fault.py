"""A fault of the campaign: a function that breaks something of a Case. How often it is drawn: its weight."""

import os
import random
import signal
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import harness
import promises
from harness import BASE, INTERRUPTED, OK, PATIENCE_S, SWEEP, TINY, sets

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
        self.killed = False  # somebody was ended at once, and so may have left drafts
        self.named: bool | None = None  # of a fault that is to be found: whether it was named right, and what was said
        self.said = ""
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
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice(b'{}[]",:\\\x00\xff\x1b0-e.')
            case 2:
                del data[at:at + chance.randrange(1, 60)]
            case 3:
                data[at:at] = data[at:at + chance.randrange(1, 60)]
            case 4:
                data = data[:at] if chance.random() < 0.2 else data
    return bytes(data)


def needs_mounts() -> None:
    if not os.environ.get("FAULTS_OWN_MOUNTS"):
        raise unittest.SkipTest("small disks need root, or user namespaces with tmpfs")
