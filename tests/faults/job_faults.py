"""Faults of jobs of processes, started by mpirun or with the variables of torchrun."""

import re
import shutil
import signal
import socket
import unittest

import harness
import promises
from fault import CELLS, ENDING, TRIALS, Case, all_ended, fault, needs_mounts
from harness import INTERRUPTED, LONG, OK, RANKS, TINY, kill, until


def needs_mpirun() -> None:
    if not shutil.which("mpirun"):
        raise unittest.SkipTest("there is no mpirun on this machine")
    if harness.sanitizer():
        raise unittest.SkipTest("under sanitizers ranks with torchrun's variables are enough")


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
