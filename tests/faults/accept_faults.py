"""Faults planted in real processes for `accept` to find. Each asks for three things: an end, no verdict "pass", and the
right name; a wrong accusation counts as none."""

import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

import harness
import promises
from fault import Case, fault
from harness import PATIENCE_S, RANK_FAILED, Started, free_port, kill, sets, until

RANKS = 5  # fewer are not compared
FAIL, INCONCLUSIVE = 10, 11
SMALL = [harness.program.TEXT, "model.layers=2", "model.width=64", "model.ffn_width=128", "train.seq_len=32", "train.batch_per_rank=1",
         "train.steps=5", "train.warmup=1", "emulate.link_latency_us=0"]
# Emulated links and computation keep their own time: what is measured is what was modelled, on a busy machine, too.
EMULATED = [*SMALL, "emulate.compute_tflops=0.002", "emulate.link_gb_per_s=0.2"]
REAL = [*SMALL, "emulate.link_gb_per_s=none"]
# Products that take longer than a rank that is held back is kept waiting at a time.
PROFILE = 'version = 1\nfabric = "planted faults"\nrun = "quickstart"\nmatrix = {matrix}\nexposed_pct = 100\n'
HOURS = 20 * PATIENCE_S  # nothing here takes so long that does not hang


class Acceptance:
    """A job of `accept`, one process a rank."""

    def __init__(self, c: Case, *keys: str, without: int | None = None, matrix: int = 256, before=lambda rank: [],
                 program=lambda rank: harness.PROGRAM, variables=lambda rank, port: {}, group=lambda rank: None,
                 ranks: int = 0) -> None:
        """before: words that start a rank's program. group: its control group. without: a rank that does not come. ranks:
        that the profile wants."""
        self.c = c
        wanted = f"ranks = {ranks}\n" if ranks else ""
        c.bench.write("wanted.toml", PROFILE.format(matrix=matrix) + wanted)
        port = free_port()
        self.ranks: dict[int, Started] = {}
        for rank in range(RANKS):
            if rank == without:
                continue
            words = [*before(rank), program(rank), "accept", "wanted.toml", *sets(*keys), "--out", "out"]
            names = c.bench.rank_variables(rank, RANKS, port) | variables(rank, port)
            self.ranks[rank] = c.bench.start(*words[1:], program=words[0], variables=names, group=group(rank))

    def measuring(self, stage: str = "inventory") -> None:
        """Until rank 0 says so, or has ended."""
        until(lambda: re.search(stage, self.ranks[0].err) or not self.ranks[0].running(), f"stage {stage}", HOURS)

    def ended(self, killed: int | None = None) -> dict[int, int]:
        """Exit codes of all ranks, none of which may say that all is well."""
        codes = {}
        for rank, process in self.ranks.items():
            process.wait(HOURS)
            codes[rank] = self.c.ended(process, signal.SIGKILL if rank == killed else 0, heard=rank == 0)
        if harness.OK in codes.values():
            raise promises.Broken(f"exit codes {codes} in spite of a fault; {self.ranks[0].out[-1500:]}")
        promises.nobody_left(self.c.bench)
        return codes

    def found(self, *parts: str) -> None:
        """One of `parts` is among the findings, and nobody else is accused."""
        self.ended()
        result = promises.whole_json(self.c.folder / "out/result.json")
        if result is None or result["verdict"] == "pass":
            raise promises.Broken(f"the verdict is {result and result['verdict']}; {self.ranks[0].err[-600:]}")
        named = {finding["part"] for finding in result["findings"]}
        accused = {finding["part"] for finding in result["findings"] if finding["kind"] != "transient"}
        self.c.named = bool(named & set(parts)) and accused <= set(parts)
        self.c.said = f"{sorted(parts)[0]}: found " + "; ".join(
            f"{finding['kind']}, {finding['evidence']}" for finding in result["findings"])

    def said(self, sentence: str, code: int | None = None) -> None:
        """Rank 0 has said what matches `sentence`, and no result passes."""
        codes = self.ended()
        result = promises.whole_json(self.c.folder / "out/result.json")
        if result is not None and result.get("verdict") == "pass":
            raise promises.Broken("the verdict is pass")
        text = self.ranks[0].err + self.ranks[0].out if 0 in self.ranks else ""
        self.c.named = bool(re.search(sentence, text)) and (code is None or codes[0] == code)
        self.c.said = f"{codes}, {text[-400:]}"


def rank_part(rank: int) -> str:
    return f"rank {rank} (device {rank} of node 0, {socket.gethostname()})"


def any_rank(c: Case) -> int:
    return c.chance.randrange(RANKS)


@fault(2)
def accept_slow_rank_emulated(c: Case) -> None:
    rank = any_rank(c)
    Acceptance(c, *EMULATED, f"inject.slow_rank={rank}",
               f"inject.slow_rank_factor={c.chance.uniform(1.3, 3):.2f}").found(rank_part(rank))


@fault(2)
def accept_slow_link_emulated(c: Case) -> None:
    rank = any_rank(c)
    # Quick links, as the slow one is measured again and again.
    Acceptance(c, *EMULATED, "emulate.link_gb_per_s=1", f"inject.slow_link_rank={rank}",
               f"inject.slow_link_factor={c.chance.uniform(1.5, 4):.2f}").found(rank_part(rank))


def limited_group(c: Case, share: float) -> Path:
    """A control group whose processes get so much of one core."""
    period_us = 50_000
    quota_us = int(period_us * share)
    try:
        return c.bench.control_group("cpu", {"cpu.cfs_period_us": period_us, "cpu.cfs_quota_us": quota_us})
    except unittest.SkipTest:
        return c.bench.control_group("cpu", {"cpu.max": f"{quota_us} {period_us}"})


@fault(2)
def accept_rank_held_back(c: Case) -> None:
    """As a container with a limit, or cpulimit: it runs for a small part of each few hundredths of a second."""
    rank = any_rank(c)
    group = limited_group(c, c.chance.uniform(0.03, 0.06))
    Acceptance(c, *REAL, matrix=1024, group=lambda r: group if r == rank else None).found(rank_part(rank))


@functools.cache
def needs_priorities() -> None:
    if not shutil.which("taskset") or os.cpu_count() < 2:
        raise unittest.SkipTest("a rank on a core of its own needs taskset and two cores")
    if subprocess.run(["nice", "-n", "-10", "true"], capture_output=True, check=False).stderr:
        raise unittest.SkipTest("this user may not raise the priority of a load")


@fault(2)
def accept_rank_beside_load(c: Case) -> None:
    """Its core has other work, which goes first; the others share another core."""
    needs_priorities()
    rank = any_rank(c)
    for _ in range(2):
        c.bench.start("-c", "0", "nice", "-n", "-10", "sh", "-c", "while :; do :; done", program="taskset")
    job = Acceptance(c, *REAL, matrix=1024, before=lambda r: ["taskset", "-c", "0" if r == rank else "1"])
    job.ranks[0].wait(HOURS)
    for load in c.bench.started[:2]:
        kill(load.pid)
        load.wait()
    job.found(rank_part(rank))


# Network namespaces


@functools.cache
def shaper() -> str:
    """The kernel's means to slow a link: netem, else token buckets; empty if it has neither."""
    if os.environ.get("FAULTS_OWN_NETWORK") != "1":
        return ""
    for words in ("netem rate {rate}mbit delay 0.1ms limit 20000", "tbf rate {rate}mbit burst 256kb latency 200ms"):
        done = subprocess.run(["tc", "qdisc", "replace", "dev", "lo", "root", *words.format(rate=100).split()],
                              capture_output=True, check=False)
        if done.returncode == 0:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=False)
            return words
    return ""


def needs_shaper() -> None:
    if os.environ.get("FAULTS_OWN_NETWORK") != "1":
        raise unittest.SkipTest("networks of its own need root or user namespaces, ip and tc")
    if not shaper():
        raise unittest.SkipTest("this kernel has neither netem nor token buckets (tc qdisc)")


class Hosts:
    """Ranks on hosts of their own, as far as names and networks go: each in a network namespace with an address and a
    link to one bridge."""

    def __init__(self, c: Case, mbit: list[int]) -> None:
        self.mark = c.bench.mark[:6]
        self.spaces = [f"f{self.mark}-{rank}" for rank in range(len(mbit))]
        self.bridge = f"b{self.mark}"
        self.secret = c.bench.mark
        self._ip(f"link add {self.bridge} type bridge", f"link set {self.bridge} up")
        for rank, space in enumerate(self.spaces):
            inner, outer = f"i{self.mark}{rank}", f"o{self.mark}{rank}"
            self._ip(f"netns add {space}", f"link add {inner} type veth peer name {outer}",
                     f"link set {inner} netns {space}", f"link set {outer} master {self.bridge} up",
                     f"-n {space} addr add {self.address(rank)}/24 dev {inner}", f"-n {space} link set lo up",
                     f"-n {space} link set {inner} up")
            words = shaper().format(rate=mbit[rank]).split()
            for device in (["-n", space, "qdisc", "add", "dev", inner], ["qdisc", "add", "dev", outer]):
                subprocess.run(["tc", *device, "root", *words], check=True, capture_output=True)

    @staticmethod
    def _ip(*commands: str) -> None:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)

    def address(self, rank: int) -> str:
        return f"10.77.0.{rank + 1}"

    def before(self, rank: int) -> list[str]:
        return ["ip", "netns", "exec", self.spaces[rank], "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"',
                f"host{rank}"]

    def variables(self, rank: int, _: int) -> dict:
        return dict(LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR=self.address(0), FSDPBENCH_SECRET=self.secret,
                    FSDPBENCH_SHARE_MEMORY=0)

    def close(self) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
        subprocess.run(["ip", "link", "del", self.bridge], check=False)


@fault(2)
def accept_slow_link_of_a_host(c: Case) -> None:
    """Over TCP between network namespaces, one of which has a slower link."""
    needs_shaper()
    slow = any_rank(c)
    hosts = Hosts(c, [130 if rank == slow else 400 for rank in range(RANKS)])
    try:
        job = Acceptance(c, *SMALL, "emulate.compute_tflops=0.002", "emulate.link_gb_per_s=none", before=hosts.before,
                         variables=hosts.variables)
        job.found(f"node {slow} (host{slow})", f"NIC 0 of node {slow} (host{slow})",
                  f"rank {slow} (device 0 of node {slow}, host{slow})")
    finally:
        hosts.close()


# Processes that come, go, and stand still


def with_a_stopped_rank(c: Case) -> tuple[Acceptance, int]:
    rank = any_rank(c)
    job = Acceptance(c, *EMULATED)
    job.measuring()
    c.moment(1)
    kill(job.ranks[rank].pid, signal.SIGSTOP)
    return job, rank


@fault(2)
def accept_rank_stopped_for_a_while(c: Case) -> None:
    job, rank = with_a_stopped_rank(c)
    time.sleep(c.chance.uniform(1.5, 4))
    kill(job.ranks[rank].pid, signal.SIGCONT)
    job.found(rank_part(rank))


@fault(2)
def accept_rank_stopped_for_good(c: Case) -> None:
    job, rank = with_a_stopped_rank(c)
    others = {r: process for r, process in job.ranks.items() if r != rank}
    for process in others.values():
        process.wait(HOURS)
    kill(job.ranks[rank].pid, signal.SIGCONT)
    codes = job.ended()
    text = "".join(process.err for process in others.values())
    c.named = bool(re.search(rf"\brank {rank}\b", text)) and set(codes.values()) == {RANK_FAILED}
    c.said = f"{codes}, {text[-400:]}"


@fault(3)
def accept_rank_killed(c: Case) -> None:
    rank = any_rank(c)
    job = Acceptance(c, *EMULATED)
    job.measuring()
    c.moment(2)
    kill(job.ranks[rank].pid)
    c.killed = True
    codes = job.ended(killed=rank)
    others = [process for r, process in job.ranks.items() if r != rank]
    text = "".join(process.err for process in others)
    c.named = bool(re.search(rf"error: .*\brank {rank}\b", text)) and all(
        code == RANK_FAILED for r, code in codes.items() if r != rank)
    c.said = f"{codes}, {text[-400:]}"


@fault(1)
def accept_rank_missing(c: Case) -> None:
    rank = c.chance.randrange(1, RANKS)
    Acceptance(c, *EMULATED, without=rank).said(rf"error: .*\brank {rank}\b", RANK_FAILED)


@fault(1)
def accept_fewer_ranks_than_wanted(c: Case) -> None:
    Acceptance(c, *EMULATED, ranks=RANKS + 1).said(rf"{RANKS} ranks came, and {RANKS + 1} are expected", FAIL)


def of_another_revision(c: Case) -> str:
    """A copy of the program that says it was built from other sources."""
    said = subprocess.run([harness.PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    revision = re.search(r"\(([0-9a-f]{7,40})", said)
    if not revision:
        raise unittest.SkipTest(f"this program does not know its revision: {said}")
    old = revision[1].encode()
    new = bytes(old[:-1]) + (b"0" if old[-1:] != b"0" else b"1")
    content = Path(harness.PROGRAM).read_bytes()
    path = c.bench.write("another", content.replace(old, new))
    path.chmod(0o700)
    return str(path)


@fault(2)
def accept_wrong_version(c: Case) -> None:
    rank = c.chance.randrange(1, RANKS)
    another = of_another_revision(c)
    job = Acceptance(c, *EMULATED, program=lambda r: another if r == rank else harness.PROGRAM)
    job.said(rf"error: .*\brank {rank}\b.* runs another version", RANK_FAILED)


@fault(2)
def accept_another_kernel(c: Case) -> None:
    """The program starts and runs; the inventory must see that its system says something else."""
    probe = subprocess.run(["setarch", "--uname-2.6", "uname", "-r"], capture_output=True, text=True, check=False)
    if not probe.stdout.startswith("2.6"):
        raise unittest.SkipTest("setarch cannot let a process see another kernel here")
    rank = any_rank(c)
    job = Acceptance(c, *EMULATED, before=lambda r: ["setarch", "--uname-2.6"] if r == rank else [])
    job.said(rf"rank {rank} on \S+ has kernel = '.*2\.6", FAIL)
