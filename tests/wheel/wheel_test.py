#!/usr/bin/python3
"""Installs a wheel as a user does and uses it, where nothing of the source tree is to be seen.

    wheel_test.py WHEEL        (pip fetches matplotlib and numpy from PyPI, or takes them from its cache)
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The test's own path; the copy of it that runs inside is told.
SOURCE = Path(os.environ.get("FSDPBENCH_HIDDEN_SOURCE") or Path(__file__).resolve().parent.parent.parent)
MOST_SECONDS_OF_A_COMMAND = 600

# Run by the new environment's Python in an empty folder.
USE = """
import subprocess, sys
import fsdpbench as fb
assert "matplotlib" not in sys.modules, "import fsdpbench is to be quick"
run = fb.simulate("llama3-8b-emulated", cluster="dgx-h100", ranks=64, set={"train.steps": 3})
print(run, run.causes[0])
assert run.step_ms > run.exposed_comm_ms > 0
run.figure("timeline").save("timeline.png")
assert "<img" in run._repr_html_()
try:
    fb.simulate("quickstrat", cluster="dgx-h100")
except fb.ProgramError as error:
    assert error.exit_code == 2 and "quickstart" in str(error), error
else:
    raise AssertionError("an unknown name was taken")
"""
TORCHRUN = {"RANK": "{rank}", "WORLD_SIZE": "2", "LOCAL_RANK": "{rank}", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
            "MASTER_PORT": "29871"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "FSDPBENCH_PORT": "29873"}
TINY = ["--set=train.steps=3", "--set=train.warmup=1", "--quiet"]


class Bench:
    """Commands in `folder`, with the environment in `venv` and nothing else on PATH but the system's own programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv/bin"
        self.work = folder / "work"
        self.work.mkdir()
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}

    def start(self, *command: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(command, cwd=self.work, env=self.environment | variables, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def call(self, *command: str, code: int = 0, **variables: str) -> str:
        begin = time.monotonic()
        process = self.start(*command, **variables)
        said, _ = process.communicate(timeout=MOST_SECONDS_OF_A_COMMAND)
        words = " ".join(command)
        print(f"{time.monotonic() - begin:6.1f} s  {words[:100]!r}", flush=True)
        if process.returncode != code:
            sys.exit(f"{words}\nended with {process.returncode} instead of {code}:\n{said}")
        return said


def use(folder: Path, wheel: Path) -> None:
    bench = Bench(folder)
    bench.call("/usr/bin/python3", "-m", "venv", str(folder / "venv"))
    cache = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True).stdout.strip()
    bench.call("pip", "install", "--quiet", "--disable-pip-version-check", str(wheel),
               **({"PIP_CACHE_DIR": cache} if cache else {}))
    bench.call("pip", "check")
    print(bench.call("fsdpbench", "--version").strip())
    bench.call("fsdpbench", "simulate", "llama3-8b-emulated", "--cluster", "dgx-h100", "--ranks", "64", "--out", "simulated",
               "--quiet")
    bench.call("fsdpbench", "run", "quickstart", "--out", "run", *TINY)
    page = bench.call("fsdpbench", "report", "run").strip()
    expect((bench.work / page).stat().st_size > 100_000, f"{page} is no page")
    (bench.work / "accelerate.yaml").write_text("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nmixed_precision: bf16\nnum_processes: 8\n")
    said = bench.call("fsdpbench", "import", "accelerate.yaml", "--model", "llama3.2-1b")
    expect('preset = "llama3.2-1b"' in said and "head_unit = false" in said, said)
    bench.call("python", "-I", "-c", USE)
    for launcher, variables in (("torchrun", TORCHRUN), ("mpirun", MPIRUN)):
        ranks = [bench.start("fsdpbench", "run", "quickstart", "--out", launcher, *TINY,
                             **{key: value.format(rank=rank) for key, value in variables.items()}) for rank in (0, 1)]
        for rank, process in enumerate(ranks):
            said, _ = process.communicate(timeout=MOST_SECONDS_OF_A_COMMAND)
            expect(process.returncode == 0, f"rank {rank} under {launcher}: {said}")
    program = next((folder / "venv").glob("lib/python3*/site-packages/fsdpbench/bin/fsdpbench"))
    expect(str(SOURCE).encode() not in program.read_bytes(), f"{program} names the source tree")
    libraries = bench.call("ldd", str(program))
    expect("not found" not in libraries, libraries)


def expect(holds: bool, why: str) -> None:
    if not holds:
        sys.exit(why)


def hidden(command: "list[str]") -> "list[str]":
    """The command where the source tree is an empty folder."""
    script = 'mount -t tmpfs none "$1" && cd / && shift && exec "$@"'
    for unshare in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0:
            return [*unshare, "sh", "-c", script, "sh", str(SOURCE), *command]
    print("The source tree stays visible: this machine allows no mounts, neither as root nor in a user namespace.")
    return command


def main() -> int:
    if sys.argv[1] == "--inside":
        use(Path(sys.argv[2]), Path(sys.argv[3]))
        print("the wheel works")
        return 0
    wheel = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="fsdpbench-wheel-") as name:
        folder = Path(name)
        for file in (wheel, Path(__file__)):
            shutil.copy(file, folder)
        inside = [sys.executable, "-B", str(folder / Path(__file__).name), "--inside", name, str(folder / wheel.name)]
        return subprocess.run(hidden(inside), env=os.environ | {"FSDPBENCH_HIDDEN_SOURCE": str(SOURCE)}).returncode


if __name__ == "__main__":
    sys.exit(main())
