"""What sections work with: their time, their figures, the programs that they run, and where all of it is kept."""

import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from byte_text import text_of  # noqa: E402

from .archive import Archive  # noqa: E402
from .machine import libraries_of, program_environment  # noqa: E402
from .ranks import run_ranks  # noqa: E402
from .summary import summary  # noqa: E402


class Failed(Exception):
    """The section checked something and it did not hold."""


class Absent(Exception):
    """The section cannot be done here, and why."""


@dataclass
class Section:
    name: str
    seconds: float  # that it is planned with; what others leave of theirs it may have, too
    run: Callable  # (suite, seconds, figures); puts each figure into `figures` when it has it


class Figures(dict):
    """A section's figures by name; each is on the disk as soon as it is there."""

    def __init__(self, write: Callable):
        super().__init__()
        self.write = write

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        self.write()

    def add(self, others: dict) -> None:
        for name, value in others.items():
            self[name] = value


class Clock:
    """The time of a section, for its parts: a part may have what is left, less what is kept for the others."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds

    def left(self, others: float = 0) -> float:
        return max(1.0, self.end - time.monotonic() - others)


class Problems(list):
    """Of the parts of a section that do not need each other: one that fails does not keep the others from being tried."""

    def part(self, run: Callable, *arguments):
        """What `run` returns, or None if it failed."""
        try:
            return run(*arguments)
        except Failed as failure:
            self.append(str(failure))
            return None

    def raise_all(self) -> None:
        if self:
            raise Failed("; ".join(self))


class Suite:
    """Runs sections. `out` gets results.json, summary.txt and logs.tar, and nothing else; logs and traces are written in
    `work`."""

    def __init__(self, root: Path, programs: Path, out: Path, work: Path, budget: float, gpu: dict):
        self.root, self.programs, self.out, self.gpu = root, programs, out, gpu
        self.files = work / "files"
        self.data = root / "docs"  # text that no section writes into: all trainings have the same bytes
        self.begin_call(budget)
        self.own = program_environment(programs)
        self.archive = Archive(self.files, work / "compressed", out / "logs.tar")
        for folder in (self.out, self.files):
            folder.mkdir(parents=True, exist_ok=True)
        version = self.command([self.program("fsdpbench"), "--version"], 30, "version").stdout.strip()
        text = text_of(self.data)
        self.results = {
            "schema_version": 2,
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": " ".join(sys.argv),
            "program": version.splitlines()[0] if version else "fsdpbench of unknown version",
            "gpu": gpu,
            "libraries": libraries_of(programs.parent / "lib" / "fsdpbench_cuda.so", self.own),
            "data": {"path": str(self.data), "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()},
            "sections": [],
        }

    def begin_call(self, budget: float) -> None:
        """What comes now has `budget` seconds."""
        self.deadline = time.monotonic() + budget

    def program(self, name: str) -> str:
        path = self.programs / name
        if not path.exists():
            raise Absent(f"{name} was not built")
        return str(path)

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def command(self, arguments: list, seconds: float, log: str, environment: dict | None = None, partial: bool = False):
        """Runs a program; its output goes to <log>.log whatever happens. One that overruns is ended: Failed, or code 124
        and what it had said with `partial`."""
        done = None
        own = self.own if Path(str(arguments[0])).parent == self.programs else {}
        try:
            done = subprocess.run(
                [str(a) for a in arguments], cwd=self.root, env=os.environ | own | (environment or {}), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1, min(seconds, self.left())),
            )
            return done
        except subprocess.TimeoutExpired as late:
            output = late.stdout or b""
            done = subprocess.CompletedProcess(arguments, 124, output.decode(errors="replace") if isinstance(output, bytes) else output)
            if partial:
                return done
            raise Failed(f"{Path(str(arguments[0])).name} had not ended after {late.timeout:.0f} s, see {log}.log") from late
        finally:
            if done is not None:
                (self.files / f"{log}.log").write_text(done.stdout or "", encoding="utf-8")

    def training(self, profile: str, log: str, overrides: dict) -> tuple[list, Path]:
        """The command that trains, and its folder."""
        folder = self.files / "runs" / log
        shutil.rmtree(folder, ignore_errors=True)
        settings = [part for key, value in ({"data.path": self.data} | overrides).items() for part in ("--set", f"{key}={value}")]
        command = [self.program("fsdpbench"), "run", f"profiles/runs/{profile}.toml", "--out", folder, "--quiet", *settings]
        return [str(part) for part in command], folder

    def train(self, profile: str, log: str, seconds: float, overrides: dict, environment: dict | None = None) -> dict:
        """`fsdpbench run` of a profile; the content of its result.json."""
        command, folder = self.training(profile, log, overrides)
        done = self.command(command, seconds, log, environment)
        if done.returncode != 0:
            lines = done.stdout.strip().splitlines()
            raise Failed(f"{log} ended with code {done.returncode}: {lines[-1] if lines else 'no output'}")
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))

    def timed(self, profile: str, log: str, seconds: float, overrides: dict) -> dict:
        """The same where only the step's time is asked for: the final parameters stay on the GPU."""
        return self.train(profile, log, seconds, {"train.params_digest": "false"} | overrides)

    def train_ranks(self, profile: str, log: str, seconds: float, overrides: dict, ranks: int, environment: dict | None = None) -> dict:
        """The same by `ranks` processes on this one GPU."""
        command, folder = self.training(profile, log, overrides)
        codes = run_ranks(command, ranks, self.files / log, min(seconds, self.left()), self.root, one_gpu=True,
                          environment=self.own | (environment or {}))
        if any(codes):
            raise Failed(f"{log}: {ranks} ranks on one GPU ended with codes {codes}, see {log}.rank_N.log")
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))

    def write(self) -> None:
        for name, text in (("results.json", json.dumps(self.results, indent=2)), ("summary.txt", summary(self.results))):
            partial = self.out / f"{name}.partial"
            partial.write_text(text + "\n", encoding="utf-8")
            partial.rename(self.out / name)

    def run_section(self, section: Section, later: float = 0) -> None:
        """`later`: the seconds that the sections after it are planned with."""
        entry = {"name": section.name, "status": "running", "seconds": 0.0}
        self.results["sections"].append(entry)
        begin = time.monotonic()
        if self.left() < 5:
            entry |= {"status": "left out", "reason": "the suite's time was up"}
        else:
            print(f"{section.name} …", flush=True)
            entry["figures"] = Figures(self.write)
            try:
                section.run(self, min(self.left(), max(section.seconds, self.left() - later)), entry["figures"])
                entry["status"] = "passed"
            except Absent as absent:
                entry |= {"status": "absent", "reason": str(absent)}
            except Failed as failure:
                entry |= {"status": "failed", "reason": str(failure)}
            except Exception as fault:  # noqa: BLE001: the sections after it must have their turn
                entry |= {"status": "failed", "reason": repr(fault)}
        entry["seconds"] = round(time.monotonic() - begin, 1)
        self.results["not_in_archive"] = self.archive.renew()
        self.write()


def largest_difference(losses: list, reference: list) -> float:
    """Relative, over all steps. A loss that is no number differs by infinitely much."""
    if any(loss is None for loss in losses + reference):
        return float("inf")
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True)]
    return max(d if d == d else float("inf") for d in differences)


def compare_losses(figures: Figures, what: str, losses: list, reference: list, allowed: float) -> None:
    worst = largest_difference(losses, reference)
    figures[f"{what}: largest relative difference of a loss (at most {allowed:g})"] = worst
    if not worst <= allowed:
        raise Failed(f"{what}: losses differ by {worst:.3g}, more than {allowed:g}: {losses}, and not {reference}")
