"""The program under test, for the tests beside it and those of tests/faults: where it is, how it is called, its exit
codes, and configurations whose steps take milliseconds."""

import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

PROGRAM = ""
SOURCE = Path(__file__).resolve().parent.parent.parent
# For what hangs: nothing waits for it to pass.
PATIENCE_S = 240 * float(os.environ.get("FSDPBENCH_PATIENCE", "1"))

OK, FAILURE, BAD_INPUT, NO_RESOURCES, CANNOT_WRITE, RANK_FAILED = range(6)
SLOWER, DIVERGED, INTERRUPTED = 7, 8, 130

# To train on: reading all sources, as a run does if nothing else is said, takes longer than these tests train.
TEXT = f"data.path={SOURCE / 'src/README.md'}"
# A step takes a millisecond; real numbers, with a digest.
TINY = [TEXT, "model.layers=2", "model.width=32", "model.ffn_width=64", "train.seq_len=16", "train.batch_per_rank=1",
        "train.steps=3", "train.warmup=1", "emulate.link_gb_per_s=none", "emulate.link_latency_us=0"]
# With TINY: a step sleeps 10 ms and more on its links, for what is to be struck in the middle.
SLOW = ["emulate.link_gb_per_s=0.01"]
# Nothing is computed; some 10 ms a step, for a minute: what is to be recorded of each step takes time to set aside.
LONG = [TEXT, "model.layers=2", "emulate.compute_tflops=0.02", "emulate.link_gb_per_s=0.5", "train.steps=6000",
        "train.warmup=1"]
# As a file. Everything is emulated: a step takes a few milliseconds of sleep, also under a sanitizer.
BASE = f"""
[data]
path = "{SOURCE / 'src/README.md'}"
[model]
layers = 2
width = 32
ffn_width = 64
[mesh]
ranks = 2
[train]
steps = 3
warmup = 1
seq_len = 16
batch_per_rank = 1
[emulate]
compute_tflops = 0.001
link_gb_per_s = 1.0
"""

# Variables that a launcher may have left in the environment of whoever runs this test.
FOREIGN = re.compile(r"^(OMPI_|PMIX_|PMI_|SLURM_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|GROUP_|TORCHELASTIC_|FSDPBENCH_)")


# Behind a shell's `&` the interrupt is ignored, by us and by whatever we start, as it should be; here it is to be sent.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


def sanitizer(path: str = "") -> str:
    """Which one the program was built with: "asan", "tsan", or ""."""
    content = Path(path or PROGRAM).read_bytes()
    return next((name for name in ("asan", "tsan") if f"__{name}_init".encode() in content), "")


def sets(*keys: str) -> list[str]:
    return [argument for key in keys for argument in ("--set", key)]


def environment(**more: object) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    return clean | {name: str(value) for name, value in more.items()}


def use_package_of_source(case: unittest.TestCase) -> None:
    """`watch` hands over to the Python package, of which it needs no other one: that of the source tree, in Debian's Python,
    whether or not `make analysis` was called."""
    folder = tempfile.TemporaryDirectory()
    case.addCleanup(folder.cleanup)
    python = Path(folder.name) / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={SOURCE}/analysis exec /usr/bin/python3 -B "$@"\n')  # without its -I
    python.chmod(0o755)
    before = unittest.mock.patch.dict(os.environ, FSDPBENCH_PYTHON=str(python))
    before.start()
    case.addCleanup(before.stop)


def free_port() -> int:
    """One with a free one above it, which is where rank 0 listens under torchrun. Not of the range from which the system
    takes the ports of outgoing connections: there anybody may take it before it is used."""
    while True:
        port = random.randrange(20000, 32000)
        try:
            for number in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            return port
        except OSError:
            continue


def digest(document: dict) -> str:
    """Digest of a JSON document, as in src/base/digest.cpp: FNV-1a of its values without the document's own digest."""
    def words(value: object) -> bytes:
        if value is None:
            return b"n"
        if isinstance(value, bool):
            return b"t" if value else b"f"
        if isinstance(value, int):
            return b"i%d;" % value
        if isinstance(value, float):
            return b"d" + struct.pack(">d", value).hex().encode()
        if isinstance(value, str):
            return b"s%d:" % len(value.encode()) + value.encode()
        if isinstance(value, list):
            return b"[" + b"".join(map(words, value)) + b"]"
        return b"{" + b"".join(b"k%d:" % len(key.encode()) + key.encode() + words(value[key]) for key in sorted(value)) + b"}"
    number = 0xcbf29ce484222325
    for byte in words({key: value for key, value in document.items() if key != "digest"}):
        number = (number ^ byte) * 0x100000001b3 % 2**64
    return f"{number:016x}"


def sealed(result: dict) -> str:
    """The text of a result that somebody made up, as a program would have written it."""
    return json.dumps(result | {"digest": digest(result)})


def runs(pid: int) -> bool:
    """Not if it has ended and only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def trace_findings(of: str | Path, folder: Path, files: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """The answer of check_trace beside the program `of` for files in a folder; it ends with 0 where they keep all rules of
    src/trace/FORMAT.md."""
    return subprocess.run([Path(of).with_name("check_trace"), *files], capture_output=True, text=True, cwd=folder,
                          timeout=PATIENCE_S, check=False)


class Program(unittest.TestCase):
    """Calls it in a folder of its own."""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.profile = str(SOURCE / "profiles/runs/quickstart.toml")

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def call(self, *arguments: str, code: int = OK, **more: str) -> subprocess.CompletedProcess[str]:
        """more: of the environment."""
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=self.folder,
                              timeout=PATIENCE_S, env={**os.environ, **more})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def check_traces(self, *files: str) -> None:
        done = trace_findings(PROGRAM, self.folder, files)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def start(self, *arguments: str, **streams: object) -> subprocess.Popen[str]:
        """Started, with pipes unless `streams` says else; ended with the test."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        process = subprocess.Popen([PROGRAM, *arguments], text=True, cwd=self.folder, **pipes)
        self.addCleanup(process.kill)
        return process

    def error(self, *arguments: str, code: int = BAD_INPUT) -> str:
        """The one line on standard error that says what is wrong; nothing on standard output."""
        done = self.call(*arguments, code=code)
        self.assertEqual(done.stdout, "")
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0].removeprefix("error: ")


def main() -> None:
    """For a test file: FILE PROGRAM SOURCE_FOLDER [unittest arguments]."""
    global PROGRAM, SOURCE
    PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
