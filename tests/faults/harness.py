"""Starts the program in every way that a person may, and breaks what it stands on: disks, limits, streams, processes.

Whatever is started carries a mark in its environment, by which it and its children are found and ended: by their ids,
nobody else. Deadlines are for what hangs; FSDPBENCH_PATIENCE multiplies them, for sanitizers and busy machines.
"""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "end_to_end"))
import program  # noqa: E402
from program import (  # noqa: E402, F401
    BAD_INPUT, BASE, CANNOT_WRITE, FAILURE, INTERRUPTED, LONG, NO_RESOURCES, OK, RANK_FAILED, TINY, environment, free_port,
    runs, sealed, sets)

PROGRAM = ""
SOURCE = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 60 * float(os.environ.get("FSDPBENCH_PATIENCE", "1"))
MARK = "FAULTS_MARK"
RANKS = 3

# Four cells, for threads and for jobs.
SWEEP = """base = "base.toml"
trials = {trials}
[axes]
"fsdp.layout" = ["flat", "per_param"]
"train.steps" = [3, 4]
"""


class Hang(AssertionError):
    """Something did not end by its deadline."""


def marked(mark: str) -> list[int]:
    """Ids of the processes with this mark that run."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if runs(pid)]


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def until(condition, what: str, seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Hang(f"still not so after {seconds:g} s: {what}")
        time.sleep(0.01)


class Started:
    """A program in a session of its own. Its output goes into files, which never keep it waiting."""

    def __init__(self, command: list[str | bytes], folder: Path, mark: str, variables: dict | None = None,
                 limits: dict[str, int] | None = None, stdout: str = "file", stderr: str = "file",
                 group: Path | None = None) -> None:
        """stdout, stderr: "file", "closed", "gone" (a pipe that nobody reads), or a path such as /dev/full. limits: as
        prlimit names them, in its units. group: a control group to start in."""
        self.command = command
        self.logs = Path(tempfile.mkdtemp(dir=folder, prefix=".log-"))
        self.gone: list[int] = []
        streams = [self._stream(to, self.logs / name) for to, name in ((stdout, "out"), (stderr, "err"))]
        start = []
        if "closed" in (stdout, stderr) or group:
            into = f'echo $$ > {group / "cgroup.procs"} || exit 99; ' if group else ""
            start += ["/bin/sh", "-c", f'{into}exec "$@" {">&-" if stdout == "closed" else ""}'
                      f'{" 2>&-" if stderr == "closed" else ""}', "sh"]
        if limits:
            start += ["prlimit", *(f"--{name}={most}" for name, most in limits.items()), "--"]
        self.popen = subprocess.Popen([*start, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=streams[0],
                                      stderr=streams[1], start_new_session=True,
                                      env=environment(**{MARK: mark, **(variables or {})}))
        for stream in streams:
            os.close(stream)
        self.pid = self.popen.pid

    @staticmethod
    def _stream(to: str, path: Path) -> int:
        if to in ("file", "closed"):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if to == "gone":
            reading, writing = os.pipe()
            os.close(reading)
            return writing
        return os.open(to, os.O_WRONLY)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Hang(f"{self.words()} still runs after {seconds:g} s; it said: {self.err[-600:]}") from None

    def running(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        if self.running():
            kill(self.pid, number)

    def words(self) -> str:
        return " ".join(os.fsdecode(word) for word in self.command)

    def _read(self, name: str) -> str:
        path = self.logs / name
        return path.read_bytes().decode(errors="backslashreplace") if path.exists() else ""

    @property
    def out(self) -> str:
        return self._read("out")

    @property
    def err(self) -> str:
        return self._read("err")


class Bench:
    """A folder in which the program is started, one way or another, and what has to be put away afterwards."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="fsdpbench-fault-"))
        self.started: list[Started] = []
        self.mounts: list[Path] = []
        self.groups: list[Path] = []

    def start(self, *arguments: str | bytes, program: str = "", **how: object) -> Started:
        started = Started([program or PROGRAM, *arguments], self.folder, self.mark, **how)
        self.started.append(started)
        return started

    def call(self, *arguments: str | bytes, **how: object) -> Started:
        """Started and ended; its exit code is in popen.returncode."""
        started = self.start(*arguments, **how)
        started.wait()
        return started

    def mpirun(self, *arguments: str, ranks: int = RANKS) -> Started:
        # Not its usual second from SIGTERM to SIGKILL: a busy machine needs longer to write the files.
        options = ["--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "6", "-n", str(ranks)]
        variables = dict(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
        return self.start(*options, PROGRAM, *arguments, program="mpirun", variables=variables)

    def rank_variables(self, rank: int, ranks: int, port: int) -> dict[str, object]:
        return dict(RANK=rank, WORLD_SIZE=ranks, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port)

    def torchrun(self, *arguments: str, ranks: int = RANKS) -> list[Started]:
        """Processes with the variables that torchrun sets, as often as there are ranks."""
        port = free_port()
        return [self.start(*arguments, variables=self.rank_variables(rank, ranks, port)) for rank in range(ranks)]

    def rank_processes(self) -> dict[int, int]:
        """Ids of the processes that a launcher has started here, by rank."""
        ranks = {}
        for pid in marked(self.mark):
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if os.readlink(f"/proc/{pid}/exe") != os.path.realpath(PROGRAM):
                    continue
            except OSError:
                continue
            for variable in variables:
                if re.match(rb"(OMPI_COMM_WORLD_RANK|RANK)=", variable):
                    ranks[int(variable.split(b"=")[1])] = pid
        return ranks

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def small_disk(self, kib: int, inodes: int = 0) -> Path:
        """A folder with so much room; call own_mounts() first, in the main program."""
        path = Path(tempfile.mkdtemp(dir=self.folder, prefix="disk-"))
        options = f"size={kib}k" + (f",nr_inodes={inodes}" if inodes else "")
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "fsdpbench-faults", path], check=True)
        self.mounts.append(path)
        return path

    @staticmethod
    def grow(disk: Path, kib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)

    def control_group(self, controller: str, settings: dict[str, int]) -> Path:
        """A new control group below this process's own; raises SkipTest where that is not allowed."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            for root in ([f"/sys/fs/cgroup/{controller}"] if controller in controllers.split(",") else
                         ["/sys/fs/cgroup"] if not controllers else []):
                group = Path(root + name) / f"fsdpbench-faults-{self.mark[:8]}"
                try:
                    group.mkdir()
                    self.groups.append(group)
                    for key, value in settings.items():
                        (group / key).write_text(str(value))
                    return group
                except OSError:
                    continue
        raise unittest.SkipTest(f"no control group for {controller} with {', '.join(settings)} can be made here")

    def left(self) -> list[int]:
        return marked(self.mark)

    def close(self) -> None:
        for pid in self.left():
            kill(pid)
        for started in self.started:
            if started.running():
                started.wait(10)
        for mount in self.mounts:
            subprocess.run(["umount", "-l", mount], check=False)
        until(lambda: not self.left(), "all have ended", 10)
        for group in self.groups:
            try:
                group.rmdir()
            except OSError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def sanitizer() -> str:
    """They reserve address space and memory of their own."""
    return program.sanitizer(PROGRAM)


def own_mounts() -> str:
    """Lets this process mount file systems that nobody else sees: starts it once more where it may. Returns why not."""
    if os.environ.get("FAULTS_OWN_MOUNTS") == "1":
        return ""
    for options in (["-m"], ["-r", "-m"]):
        command = ["unshare", *options, "--"]
        if not shutil.which("unshare"):
            break
        probe = subprocess.run([*command, "sh", "-c", 'd=$(mktemp -d) && mount -t tmpfs x "$d" && umount "$d"; '
                                's=$?; rmdir "$d"; exit $s'], capture_output=True, check=False)
        if probe.returncode == 0:
            os.environ["FAULTS_OWN_MOUNTS"] = "1"
            os.execvp("unshare", [*command, sys.executable, "-B", *sys.argv])
    return "small disks need root, or user namespaces with tmpfs"


def own_network() -> str:
    """Lets this process make network namespaces that nobody else sees: starts it once more where it may. Returns why not."""
    if os.environ.get("FAULTS_OWN_NETWORK") == "1":
        return ""
    prepare = "mount -t tmpfs fsdpbench-faults /run && mkdir /run/netns && ip link set lo up"
    for options in (["-m", "-n"], ["-r", "-m", "-n"]):
        command = ["unshare", *options, "--", "sh", "-c"]
        if not all(map(shutil.which, ("unshare", "ip", "tc"))):
            break
        if subprocess.run([*command, f"{prepare} && ip netns add probe && ip netns exec probe unshare --uts true"],
                          capture_output=True, check=False).returncode == 0:
            os.environ["FAULTS_OWN_NETWORK"] = "1"
            os.execvp("unshare", [*command, f'{prepare} && exec "$@"', "sh", sys.executable, "-B", *sys.argv])
    return "networks of its own need root or user namespaces, ip and tc"


def all_faults() -> bool:
    """`make check-faults`, and not only what each `make test` can wait for."""
    return os.environ.get("FSDPBENCH_FAULTS") == "all"


def moments(few: int, many: int) -> range:
    """So many random moments of one thing; each `make test` draws other ones."""
    return range(many if all_faults() else few)


long_fault = unittest.skipUnless(all_faults(), "one of the long ones: make check-faults")


class Faults(unittest.TestCase):
    """A test with a bench. Nothing that it started may be left when it is over."""

    profile = "quickstart"

    def setUp(self) -> None:
        self.bench = Bench()
        self.addCleanup(self.bench.close)
        self.folder = self.bench.folder

    def run_arguments(self, *keys: str, out: str = "out", base: list[str] | None = None) -> list[str]:
        return ["run", self.profile, *sets(*(TINY if base is None else base), *keys), "--out", out]

    def check_traces(self, *files: str) -> None:
        done = program.trace_findings(PROGRAM, self.folder, files)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def ends(self, started: Started, *codes: int) -> None:
        self.assertIn(started.wait(), codes, started.out + started.err)

    def training(self, started: Started) -> None:
        """Until it says that it trains."""
        def trains() -> bool:
            ended = not started.running()
            if re.search(r"^step +\d", started.err, re.MULTILINE):
                return True
            self.assertFalse(ended, started.err)
            return False

        until(trains, f"{started.words()} trains")

    def json(self, *parts: str) -> dict:
        return json.loads(self.folder.joinpath(*parts).read_bytes())


def main(needs_mounts: bool = False) -> None:
    """of a test file: PROGRAM SOURCE_FOLDER [unittest arguments]."""
    global PROGRAM, SOURCE
    if needs_mounts:
        own_mounts()
    sys.modules["harness"].PROGRAM = PROGRAM = str(Path(sys.argv[1]).resolve())
    sys.modules["harness"].SOURCE = SOURCE = Path(sys.argv[2]).resolve()
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
