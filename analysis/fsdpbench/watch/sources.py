"""The files that are watched, read as they grow, and NCCL's RAS, which answers over TCP. What a file is shows its content."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from datetime import datetime
from typing import Any, Dict, List, Optional, Set, Tuple
from urllib.parse import urlsplit

from .flight import add_dump, read_pickle
from .job import MOST_RANKS, S, Comm, Job, Member, Rank, WatchError, inside, need, number, objects, whole, words

MOST = 64 << 20  # bytes: of a longer file the last ones
IN_TEXT = "Communicators..."  # an answer of RAS that is no JSON
LATE = "there was no whole answer within 15 s."
EXPECTED = "expected dumps of PyTorch's flight recorder, answers of NCCL's RAS, or what fsdpbench.torch writes"


def add_record(job: Job, text: str, path: str) -> bool:
    """One object of a file; whether more of its kind may follow. Raises WatchError with why it is none that is known."""
    told = parse(text)
    if "fsdpbench_step" in told:
        _add_step(job, told)
    elif "nccl_version" in told and "communicators" in told:
        add_answer(job, told, None)
    elif told:
        add_dump(job, told, path)
        return False
    else:
        raise WatchError("is no JSON.")
    return True


def _add_step(job: Job, line: Dict[str, Any]) -> None:
    """One line of fsdpbench.torch.step()."""
    rank, ranks = need(line, "rank", MOST_RANKS), need(line, "ranks", MOST_RANKS)
    step, ended, took = need(line, "fsdpbench_step"), need(line, "ended_ns"), number(line.get("step_ms"))
    if rank >= ranks or took is None:
        raise WatchError("lacks a rank below ranks, or step_ms.")
    waits = [ms for key in ("gathers_ms", "reductions_ms", "own_ms") if (ms := number(line.get(key))) is not None]
    view = job.ranks.setdefault(rank, Rank())
    job.world, view.host = max(job.world, ranks), words(line.get("host")) or view.host
    view.hear(ended)
    if view.steps and step <= next(reversed(view.steps)):
        view.steps.clear()  # a job that begins anew in the same files
    view.steps[step] = (ended, took, sum(waits) if waits else -1.0)
    if len(view.steps) > 2000:
        del view.steps[next(iter(view.steps))]


class Sources:
    """`paths`: files, or folders of which every file is read that is one of these."""

    def __init__(self, paths: List[str]) -> None:
        self.paths = paths
        self.states: Dict[str, Tuple[int, int]] = {}
        self.offsets: Dict[str, int] = {}  # where steps and answers are read on; every other file is read anew
        self.good: Set[str] = set()
        self.why: Dict[str, str] = {}  # something of a file is left out
        for path in paths:
            if not os.path.exists(path):
                raise WatchError(f"{path}: there is no such file or folder.")

    def read(self, job: Job, once: bool) -> None:
        """What is new since the last time. `once`: files are whole, so that a last line without its end counts."""
        for path in [file for given in self.paths for file in self._list(given)]:
            try:
                self._read(path, job, once)
            except FileNotFoundError:
                continue  # renamed or taken away meanwhile
            except OSError as error:
                self.why[path] = f"cannot be read: {error.strerror}."
            except WatchError as error:
                self.why[path] = str(error)
        job.notes = [f"{path}: {why}" for path, why in self.why.items()]
        bad = [path for path in self.paths if path in self.why and path not in self.good]
        if once and self.paths and (bad or not self.good):
            raise WatchError(f"{bad[0]}: {self.why[bad[0]]}" if bad else job.notes[0] if job.notes else
                             f"{self.paths[0]}: has no files; {EXPECTED}.")

    @staticmethod
    def _list(path: str) -> List[str]:
        if not os.path.isdir(path):
            return [path]
        return sorted(one.path for one in os.scandir(path) if one.name[0] != "." and one.is_file() and not one.name.endswith(".tmp"))

    def _read(self, path: str, job: Job, once: bool) -> None:
        status = os.stat(path)
        if self.states.get(path) == (status.st_size, status.st_mtime_ns):
            return
        self.states[path] = (status.st_size, status.st_mtime_ns)
        offset = self.offsets.get(path, 0)
        offset = max(offset if offset <= status.st_size else 0, status.st_size - MOST)
        with open(path, "rb") as stream:
            stream.seek(offset)
            data = stream.read(MOST)
        text = data.decode("utf-8", "replace")
        if offset or text.startswith("{"):
            return self._records(path, job, data, once, offset)
        if data[:1] == b"\x80":
            try:
                add_dump(job, inside({"": read_pickle(data)}, ""), path)
            except (ValueError, RecursionError) as error:
                raise WatchError(f"is a pickle that is not read: {words(str(error))}.") from None
        elif IN_TEXT in text:
            add_text(job, text[max(text.rfind("NCCL version"), 0):], status.st_mtime_ns)
        elif data or once:
            raise WatchError(f"is neither JSON nor a pickle; {EXPECTED}.")
        self.good.add(path)
        self.why.pop(path, None)

    def _records(self, path: str, job: Job, data: bytes, once: bool, offset: int) -> None:
        """One object after another, each of which begins a line. The last one may not be written to its end."""
        starts = [match.start() for match in re.finditer(rb"^\{", data, re.MULTILINE)]
        for begin, end in zip(starts, [*starts[1:], len(data)]):
            try:
                if add_record(job, data[begin:end].decode("utf-8", "replace"), path):
                    self.offsets[path] = offset + end
                else:
                    self.why.pop(path, None)
                self.good.add(path)
            except WatchError as error:
                if end < len(data) or once:
                    self.why.setdefault(path, str(error))


# Of NCCL's RAS: src/ras/client_support.cc, from 2.24 on.
def parse(text: str) -> Dict[str, Any]:
    """An object at the beginning of a text; {}: there is none, or it is nested too deeply. NCCL 2.28.7 to 2.28.9 leave
    the comma out before the status of a missing rank."""
    for one in (lambda: text, lambda: re.sub(r'([0-9"}\]el])(\s*\n\s*")', r"\1,\2", text)):
        try:
            found = json.JSONDecoder().raw_decode(one())[0]
            return found if isinstance(found, dict) else {}
        except (ValueError, RecursionError):
            pass
    return {}


def add_answer(job: Job, answer: Dict[str, Any], at: Optional[int]) -> None:
    """`at`: when it came; None: as it says, in the local time of this machine."""
    try:
        at = at or int(datetime.strptime(words(answer.get("timestamp")), "%Y-%m-%d %H:%M:%S").timestamp()) * S
    except (ValueError, OverflowError):
        raise WatchError('has no timestamp such as "2025-12-19 13:06:53".') from None
    comms: Dict[Any, Comm] = {}
    for told in objects(answer.get("communicators")):
        comm = Comm("NCCL RAS", words(told.get("hash")), size=need(told, "size", MOST_RANKS))
        comms[comm.name, words(told.get("secondary_hash"))] = comm
        for one in objects(told.get("ranks")) + objects(told.get("missing_ranks")):
            member = comm.member(need(one, "rank", max(comm.size - 1, 0)))
            status, counts, host = inside(one, "status"), inside(one, "collective_counts"), words(one.get("host"))
            if host not in ("", "unknown"):
                member.process = f"process {need(one, 'pid')} on {host}, GPU {whole(one.get('nvml_dev'))}"
            member.dead = status.get("considered_dead") is True
            member.lost = 0 if member.dead or status.get("unresponsive") is True else None
            member.count = sum(need(counts, kind) for kind in counts) if "collective_counts" in one else None
            member.error = whole(status.get("async_error")) or 0
            comm.changes |= any(status.get(flag) for flag in ("init_state", "finalize_called", "destroy_flag", "abort_flag"))
    _add_look(job, comms, at)


_SECTION = re.compile(r"^(?:#(\d+)-\d+ \(([0-9a-fx]+)\) )?(INCOMPLETE|ERROR|MISMATCH|TIMEOUT)[ \t]*\n((?:[ \t].*\n?)*)", re.MULTILINE)
_ROW = re.compile(r"^\s+(?:\d{1,7} ranks have|Rank (\d{1,7}))(?: has status (\w+)| reported (.*?)| (?:has )?(?:not )?launched (?:up to operation "
                  r"(\d{1,18})|(any) operations))?(?: -- (?:GPU (\w+).* managed by process (\d+) on node (\S+))?)?", re.MULTILINE)


def add_text(job: Job, text: str, at: int) -> None:
    """It names ranks only where they are few among the others."""
    rows = [line.split() for line in text.splitlines()]
    sizes = {row[0]: int(row[4]) for row in rows if len(row) >= 7 and row[0].isdigit() and row[4].isdigit() and len(row[4]) < 7}
    comms: Dict[Any, Comm] = {}
    for group, name, what, body in _SECTION.findall(text):
        if not name:
            continue
        comm = comms.setdefault((name, ""), Comm("NCCL RAS", "0x" + name.lstrip("0x"), size=sizes.get(group, 0)))
        for kind in body.split("operation counts"):  # of one kind of collective: groups of ranks, some of which are listed
            counts: List[Tuple[int, List[int]]] = []
            for rank, status, error, count, none, gpu, pid, node in _ROW.findall(kind):
                counts += [(int(count or 0), [])] if count or none else []
                if not rank or int(rank) >= comm.size:
                    continue
                member = comm.member(int(rank))
                member.process = f"process {pid} on {node}, GPU {gpu}" if pid else member.process
                if what == "INCOMPLETE":
                    member.lost, member.dead = 0, f"Process {pid} on node {node}" in text
                elif what == "ERROR":
                    member.error = words(error) or member.error
                comm.changes |= what == "MISMATCH" and status != ""
                if counts:
                    counts[-1][1].append(int(rank))
            _add_counts(comm, counts)
    _add_look(job, comms or {("", ""): Comm("NCCL RAS", "all communicators")}, at)


def _add_counts(comm: Comm, counts: List[Tuple[int, List[int]]]) -> None:
    listed = {rank for _, ranks in counts for rank in ranks}
    if [ranks for _, ranks in counts].count([]) < 2:  # else nobody knows which rank is in which group
        for count, rank in [(count, one) for count, ranks in counts for one in ranks or set(range(comm.size)) - listed]:
            member = comm.member(rank)
            member.count = (member.count or 0) + count if member.lost is None else None


def _add_look(job: Job, comms: Dict[Any, Comm], at: int) -> None:
    if job.counted is not None and at < job.counted + 0.9 * S:
        return
    for key, comm in comms.items():
        before = job.comms.get(("NCCL RAS", *key), Comm("NCCL RAS", ""))
        comm.looks = before.looks + 1
        for rank, now in comm.members.items():
            old = before.members.get(rank, Member())
            now.moved = old.moved if now.count == old.count and old.moved else at
            now.lost = None if now.lost is None else old.lost or at
            now.process, now.heard = now.process or old.process, at
    others = {key: comm for key, comm in job.comms.items() if comm.source != "NCCL RAS"}
    job.comms, job.counted = {**others, **{("NCCL RAS", *key): comm for key, comm in comms.items()}}, at


def address(text: str, port: int) -> Tuple[str, int]:
    """HOST, HOST:PORT or [IPV6]:PORT."""
    try:
        found = urlsplit("//" + (f"[{text}]" if text.count(":") > 1 and "[" not in text else text))
        if found.hostname and found.port != 0 and not found.path + found.query + found.fragment and "@" not in text:
            return found.hostname, found.port or port
    except ValueError:
        pass
    raise WatchError(f"--ras {words(text)}: expected HOST, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535.")


def ask(place: Tuple[str, int], job: Job, now: int, patience_s: float = 15) -> None:
    """The status of a job (src/ras/client.cc): in JSON, or as text where NCCL is older than 2.28.7. Raises WatchError with
    what went wrong."""
    until, heard = time.monotonic() + patience_s, b""
    label = "--ras [{}]:{}: ".format(*place) if ":" in place[0] else "--ras {}:{}: ".format(*place)
    try:
        with socket.create_connection(place, patience_s) as service, service.makefile("rb") as stream:
            for order in ("CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json"):
                service.sendall(order.encode() + b"\n")
                said = words(stream.readline(4096).decode("utf-8", "replace").strip())
                if order.startswith("CLIENT") and not said.startswith("SERVER PROTOCOL "):
                    raise WatchError(f"{label}what answers there is not NCCL's RAS: it says '{said[:60]}'.")
            service.sendall(b"STATUS\n")
            while piece := stream.read1(65536):  # type: ignore[attr-defined]
                heard += piece
                if len(heard) > MOST or time.monotonic() > until:
                    raise WatchError(label + ("the answer has more than 64 MiB." if len(heard) > MOST else LATE))
    except (socket.timeout, TimeoutError):
        raise WatchError(label + LATE) from None
    except (OSError, UnicodeError) as error:
        raise WatchError(f"{label}nobody answers there: {words(str(error))}.") from None
    text = heard.decode("utf-8", "replace")
    if told := parse(text):
        add_answer(job, told, now)
    elif IN_TEXT in text:
        add_text(job, text, now)
    else:
        raise WatchError(f"{label}the answer is none of NCCL's RAS.")
