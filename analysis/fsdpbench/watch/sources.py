"""The files that are watched, read as they grow, and what answers over TCP. What a file is shows its content."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, List, Optional, Tuple

from .flight import add_dump, read_pickle
from .job import MOST_RANKS, S, Comm, Job, Member, Rank, WatchError, inside, need, number, whole, words

MOST = 64 << 20  # bytes that are read at once
EXPECTED = "expected dumps of PyTorch's flight recorder, answers of NCCL's RAS, or what fsdpbench.torch writes"
LATE = "there was no whole answer within 15 s."


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


def add_record(job: Job, text: str, path: str, seen: Optional[int]) -> str:
    """One object of a file; what it was. Raises WatchError with why it is none that is known."""
    told = parse(text)
    if "fsdpbench_step" in told:
        _add_step(job, told)
    elif "nccl_version" in told and "communicators" in told:
        _add_answer(job, told, None)
    elif told:
        add_dump(job, told, path, seen)
        return "dump"
    else:
        raise WatchError("is no JSON.")
    return "records"


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


def _add_answer(job: Job, answer: Dict[str, Any], at: Optional[int]) -> None:
    """One answer of NCCL's RAS in JSON. `at`: when it came; None: as it says, in the local time of this machine."""
    try:
        at = at or int(datetime.strptime(words(answer.get("timestamp")), "%Y-%m-%d %H:%M:%S").timestamp()) * S
    except (ValueError, OverflowError):
        raise WatchError('has no timestamp such as "2025-12-19 13:06:53".') from None
    comms = []
    for told in answer["communicators"] if isinstance(answer.get("communicators"), list) else []:
        size, ranks = need(told if isinstance(told, dict) else {}, "size", MOST_RANKS), {}
        for list_name in ("ranks", "missing_ranks"):
            for one in told[list_name] if isinstance(told.get(list_name), list) else []:
                rank = need(one if isinstance(one, dict) else {}, "rank", max(size - 1, 0))
                ranks[rank] = member = Member()
                status, host = inside(one, "status"), words(one.get("host"))
                if host not in ("", "unknown"):
                    member.process = f"process {need(one, 'pid')} on {host}, GPU {whole(one.get('nvml_dev'))}"
                if list_name == "missing_ranks":
                    member.dead = status.get("considered_dead") is True
                    member.lost = 0 if member.dead or status.get("unresponsive") is True else None
                    continue
                counts = inside(one, "collective_counts")
                member.count = sum(need(counts, kind) for kind in counts)
                member.error, member.starting = whole(status.get("async_error")) or 0, bool(status.get("init_state"))
                ends = any(status.get(flag) is True for flag in ("finalize_called", "destroy_flag", "abort_flag"))
                member.ending = 0 if ends else None
        comms.append(((words(told.get("hash")), words(told.get("secondary_hash"))), words(told.get("hash")), size, ranks))
    _add_look(job, comms, at)


# src/ras/client_support.cc of NCCL, from 2.24 on.
_SECTION = re.compile(r"(?:#(\d+)-\d+ \(([0-9a-fx]+)\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\s*$")
_RANK = re.compile(r"\s+Rank (\d{1,7})(?: has status (\w+)| has (?:not )?launched (?:up to operation (\d{1,18})|any operations)|"
                   r" reported (.*?))? -- (?:GPU (\w+).* managed by process (\d+) on node (\S+))?")
_SOME = re.compile(r"\s+\d{1,7} ranks have (?:not )?launched (?:up to operation (\d{1,18})|any operations)")


def _add_text(job: Job, text: str, at: int) -> None:
    """One answer of NCCL's RAS as text, which names ranks only where they are few among the others."""
    rows = [line.split() for line in text.splitlines()]
    sizes = {row[0]: int(row[4]) for row in rows if len(row) >= 7 and row[0].isdigit() and row[4].isdigit() and len(row[4]) < 7}
    comms: Dict[str, Tuple[int, Dict[int, Member]]] = {}
    counts: List[Tuple[int, List[int]]] = []  # of one kind of collective, with the ranks that are listed
    name = what = ""
    dead = set()
    for line in [*text.splitlines(), ""]:
        section, rank, some = _SECTION.match(line), _RANK.match(line), _SOME.match(line)
        if counts and (not line.strip() or "operation counts" in line):
            size, ranks = comms[name]
            listed = {one for _, some_ranks in counts for one in some_ranks}
            unlisted = [count for count, some_ranks in counts if not some_ranks]
            if len(unlisted) < 2:  # else nobody knows which rank is in which group
                counts += [(unlisted[0], [one for one in range(size) if one not in listed])] if unlisted else []
                for count, some_ranks in counts:
                    for member in (ranks.setdefault(one, Member()) for one in some_ranks):
                        member.count = (member.count or 0) + count if member.lost is None else None
            counts = []
        if section is not None:
            name, what = section[2] or "", section[3]
            if name:
                comms.setdefault(name, (sizes.get(section[1], 0), {}))
        elif what == "DEAD" and (found := re.match(r"\s+Process (\d+) on node (\S+)", line)):
            dead.add(f"process {found[1]} on {found[2]}")
        elif some is not None and name:
            counts.append((int(some[1] or 0), []))
        elif rank is not None and name and int(rank[1]) < comms[name][0]:
            member = comms[name][1].setdefault(int(rank[1]), Member())
            member.process = f"process {rank[6]} on {rank[7]}, GPU {rank[5]}" if rank[6] else member.process
            if what == "INCOMPLETE":
                member.lost = 0
            elif what == "ERROR":
                member.error = words(rank[4]) or member.error
            elif rank[2]:
                member.ending, member.starting = (None, True) if rank[2] == "INIT" else (0, False)
            elif "launched" in line:
                counts.append((int(rank[3] or 0), [int(rank[1])]))
            elif counts:
                counts[-1][1].append(int(rank[1]))
    for _, ranks in comms.values():
        for member in ranks.values():
            member.dead = member.lost is not None and member.process.rpartition(", GPU")[0] in dead
    _add_look(job, [((name, ""), "0x" + name.lstrip("0x"), *one) for name, one in comms.items()] or
              [(("", ""), "all communicators", 0, {})], at)


def _add_look(job: Job, comms: List[Tuple[Any, str, int, Dict[int, Member]]], at: int) -> None:
    if job.counted is not None and at < job.counted + 0.9 * S:
        return
    for gone in {key for key, comm in job.comms.items() if comm.source == "NCCL RAS"} - {("NCCL RAS", *one[0]) for one in comms}:
        del job.comms[gone]
    for own, name, size, ranks in comms:
        comm = job.comms.setdefault(("NCCL RAS", *own), Comm("NCCL RAS", name))
        for rank, now in ranks.items():
            old = comm.members.get(rank, Member())
            now.moved = old.moved if now.count == old.count and old.moved is not None else at
            now.ending = None if now.ending is None else old.ending or at
            now.lost = None if now.lost is None else old.lost or at
            now.process = now.process or old.process
            now.heard = at
        comm.size, comm.looks, comm.members = size, comm.looks + 1, ranks
    job.counted = at


@dataclass
class File:
    kind: str = ""  # "records" is read on where it ended, every other one anew
    offset: int = 0
    state: Tuple[int, int] = (-1, -1)
    good: int = 0
    bad: int = 0
    why: str = ""  # of the first that is left out


class Sources:
    """`paths`: files, or folders of which every file is read that is one of these."""

    def __init__(self, paths: List[str]) -> None:
        self.paths, self.first = paths, True
        self.files: Dict[str, File] = {}
        for path in paths:
            if not os.path.exists(path):
                raise WatchError(f"{path}: there is no such file or folder.")

    def read(self, job: Job, now: int, once: bool) -> None:
        """What is new since the last time. `once`: files are whole, so that a last line without its end counts."""
        for path in [file for given in self.paths for file in self._list(given, once)]:
            file = self.files.setdefault(path, File())
            try:
                self._read(path, file, job, now, once)
            except FileNotFoundError:
                continue  # renamed or taken away meanwhile
            except (OSError, WatchError) as error:
                file.why = f"cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
            if once and path in self.paths and not file.good:
                raise WatchError(f"{path}: {file.why}")
        job.notes = [f"{path}: {file.why}" if not file.bad else
                     f"{path}: {file.bad} of {file.good + file.bad} records are left out; the first {file.why}"
                     for path, file in self.files.items() if file.why]
        if once and self.paths and not any(file.good for file in self.files.values()):
            raise WatchError(job.notes[0] if job.notes else f"{self.paths[0]}: there is nothing to read; {EXPECTED}.")
        self.first = False

    @staticmethod
    def _list(path: str, once: bool) -> List[str]:
        if not os.path.isdir(path):
            return [path]
        try:
            own = sorted(one.path for one in os.scandir(path) if one.name[0] != "." and one.is_file())
        except OSError as error:
            raise WatchError(f"{path}: cannot be read: {error.strerror}.") from None
        if not own and once:
            raise WatchError(f"{path}: has no files; {EXPECTED}.")
        return [one for one in own if not one.endswith(".tmp")]

    def _read(self, path: str, file: File, job: Job, now: int, once: bool) -> None:
        status = os.stat(path)
        if (status.st_size, status.st_mtime_ns) == file.state:
            return
        if status.st_size < file.offset:
            file.offset = 0  # another file by now
        file.state, seen = (status.st_size, status.st_mtime_ns), None if self.first else now
        with open(path, "rb") as stream:
            stream.seek(file.offset)
            data = stream.read(MOST)
        text = data.decode("utf-8", "replace")
        if file.kind == "records" or text.startswith("{"):
            self._records(path, file, job, data, once, seen)
        elif data[:1] == b"\x80":
            try:
                add_dump(job, inside({"": read_pickle(data)}, ""), path, seen)
            except (ValueError, RecursionError) as error:
                raise WatchError(f"is a pickle that is not read: {words(str(error))}.") from None
            file.good, file.why = 1, ""
        elif "Communicators..." in text:
            _add_text(job, text[max(text.rfind("NCCL version"), 0):], status.st_mtime_ns)
            file.good, file.why = 1, ""
        elif data or once:
            raise WatchError(f"is neither JSON nor a pickle; {EXPECTED}.")

    def _records(self, path: str, file: File, job: Job, data: bytes, once: bool, seen: Optional[int]) -> None:
        """One object after another, each of which begins a line. The last one may not be written to its end."""
        starts = [match.start() for match in re.finditer(rb"^\{", data, re.MULTILINE)] + [len(data)]
        for begin, end in zip(starts, starts[1:]):
            record = data[begin:end].decode("utf-8", "replace")
            is_cut = end == len(data) and (len(data) == MOST or not once) and not parse(record)
            if is_cut:
                starts[-1] = begin
                break
            try:
                kind = add_record(job, record, path, seen)
                if kind == "dump":
                    file.good, file.bad, file.why = 1, 0, ""
                    return  # read anew once it changes
                file.kind, file.good = kind, file.good + 1
            except WatchError as error:
                file.bad, file.why = file.bad + 1, file.why or str(error)
        if file.kind == "records":
            file.offset += starts[-1] if starts[-1] or len(data) < MOST else len(data)
            if len(data) == MOST:
                file.state = (-1, -1)
                self._read(path, file, job, seen or 0, once)


class Endpoint:
    def __init__(self, option: str, text: str, port: int) -> None:
        found = re.fullmatch(r"(?:\[([^ /\[\]]{1,253})\]|([^ /\[\]:]{1,253})|([^ /\[\]]*:[^ /\[\]]*:[^ /\[\]]*))(?::(\d{1,5}))?", text)
        self.port = int(found[4] or port) if found else 0
        if not found or not 0 < self.port < 65536:
            raise WatchError(f"{option} {words(text)}: expected HOST, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535.")
        self.host = found[1] or found[2] or found[3]
        self.label = f"{option} [{self.host}]:{self.port}" if ":" in self.host else f"{option} {self.host}:{self.port}"


def ask_ras(endpoint: Endpoint, job: Job, now: int, patience_s: float = 15) -> None:
    """The status of a job from NCCL's RAS (src/ras/client.cc): in JSON, or as text where NCCL is older than 2.28.7. Raises
    WatchError with what went wrong."""
    until, heard = time.monotonic() + patience_s, b""
    try:
        with socket.create_connection((endpoint.host, endpoint.port), patience_s) as ras, ras.makefile("rb") as stream:
            for order in ("CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json"):
                ras.sendall(order.encode() + b"\n")
                said = words(stream.readline(4096).decode("utf-8", "replace").strip())
                if order.startswith("CLIENT") and not said.startswith("SERVER PROTOCOL "):
                    raise WatchError(f"what answers there is not NCCL's RAS: it says '{said[:60]}'.")
            ras.sendall(b"STATUS\n")
            while piece := stream.read1(65536):  # type: ignore[attr-defined]
                heard += piece
                if len(heard) > MOST or time.monotonic() > until:
                    raise WatchError("the answer has more than 64 MiB." if len(heard) > MOST else LATE)
        text = heard.decode("utf-8", "replace")
        if told := parse(text):
            _add_answer(job, told, now)
        elif "Communicators..." in text:
            _add_text(job, text, now)
        else:
            raise WatchError("the answer is none of NCCL's RAS.")
    except WatchError as error:
        raise WatchError(f"{endpoint.label}: {error}") from None
    except (socket.timeout, TimeoutError):
        raise WatchError(f"{endpoint.label}: {LATE}") from None
    except (OSError, UnicodeError) as error:
        raise WatchError(f"{endpoint.label}: nobody answers there: {words(str(error))}.") from None
