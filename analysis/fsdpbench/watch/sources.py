"""The files that are watched, read as they grow: what fsdpbench.torch writes, dumps of PyTorch's flight recorder (formats 1 to 2.10, as
pickles or JSON, torch/csrc/distributed/c10d/FlightRecorder*), answers of NCCL's RAS, which also come over TCP. A file shows what it is."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional, Set, Tuple
from urllib.parse import urlsplit

from .job import MOST_RANKS, S, Comm, Job, Member, Op, Rank, WatchError, inside, need, number, objects, whole, words

MOST = 64 << 20  # bytes: of a longer file the last ones
IN_TEXT = "Communicators..."  # an answer of RAS that is no JSON
LATE = "there was no whole answer within 15 s."
EXPECTED = "expected dumps of PyTorch's flight recorder, answers of NCCL's RAS, or what fsdpbench.torch writes"
# Collectives to which all ranks bring the same sizes: no gather, scatter, all_to_all or uneven variants.
SAME_SIZES = ("all_reduce", "allreduce", "_all_gather_base", "_reduce_scatter_base", "all_gather_single",
              "reduce_scatter_single", "broadcast", "reduce")
Key = Tuple[str, str, str, Tuple[int, ...]]  # backend, name, description, ranks


class _Plain(pickle._Unpickler):  # type: ignore[name-defined]
    """Plain data only: a file has no way to a class or function, so that nothing of it is run. Tuples are read as lists,
    which are no keys and so are not hashed, however deep they are."""

    dispatch = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]
    dispatch[pickle.TUPLE[0]] = lambda self: self.append(self.pop_mark())
    dispatch[pickle.TUPLE1[0]] = lambda self: self.stack.append([self.stack.pop()])
    dispatch[pickle.TUPLE2[0]] = lambda self: self.stack.__setitem__(slice(-2, None), [self.stack[-2:]])
    dispatch[pickle.TUPLE3[0]] = lambda self: self.stack.__setitem__(slice(-3, None), [self.stack[-3:]])

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError("it holds more than plain data; nothing of it is run")


@dataclass
class Dump:
    """What one dump says of no collective in particular."""

    config: Dict[str, Tuple[int, ...]] = field(default_factory=dict)  # ranks of communicators by name
    status: Dict[int, List[int]] = field(default_factory=dict)  # entered, started, left; -1: none
    own: Dict[int, Key] = field(default_factory=dict)  # communicators by the number that they have in this process
    has_ended: bool = False  # ended collectives are in it, too: one that is not has not begun
    is_empty: bool = False


def _ranks(value: Any) -> Tuple[int, ...]:
    told = re.findall(r"\d{1,8}", value) if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(rank for rank in map(whole, told) if rank is not None and rank < MOST_RANKS)


def _member(job: Job, dump: Dump, entry: Dict[str, Any], backend: str, rank: int) -> Tuple[Comm, Member]:
    """The communicator of an entry and the rank in it. PyTorch may list the default group under another name than its
    operations have: all ranks of the job count for it, or the largest group that is listed."""
    told = entry.get("process_group")
    parts = [words(part) for part in told[:2]] if isinstance(told, list) else []
    name, desc = parts if len(parts) == 2 else (words(entry.get("pg_name")) or str(whole(entry.get("pg_id")) or 0), "")
    ranks = dump.config.get(name, ())
    key, label = (backend, name, desc, ranks), f"{name} ({desc})" if desc and desc != "undefined" else name
    if not ranks and desc == "default_pg":
        ranks = tuple(range(job.world)) or max(dump.config.values(), key=len, default=())
    comm = job.comms.setdefault(key, Comm("flight recorder", f"{label} of {backend}" if backend else label))
    comm.ranks, comm.size, comm.by_host = list(ranks), len(ranks), backend == "gloo"
    dump.own[whole(entry.get("pg_id")) or 0] = key
    return comm, comm.member(rank)


def _pending(name: str, op: Op, rank: int, ranks: List[int]) -> List[Tuple[int, int, str, Op]]:
    """"send 0->3", "recv 3<-0": ranks in them are those of the group."""
    found, place = re.fullmatch(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})", name), dict(enumerate(sorted(ranks)))
    if found is None:
        return []
    own, other = (place.get(int(one), -1) if ranks else int(one) for one in found.groups()[1:])
    pair = (own, other) if found[1] == "send" else (other, own)
    return [(*pair, found[1], op)] if rank == own != other >= 0 else []


def _add_entry(job: Job, dump: Dump, entry: Dict[str, Any], rank: int, written: Optional[int]) -> None:
    full, seq = words(entry.get("profiling_name")), whole(entry.get("collective_seq_id", entry.get("seq_id")))
    backend, _, name = full.rpartition(":")
    if not name or seq is None:
        return
    comm, member = _member(job, dump, entry, backend, rank)
    retired, op = entry.get("retired") is True, Op(seq, name, came=whole(entry.get("time_created_ns")) or None)
    types, sizes = entry.get("input_dtypes"), entry.get("input_sizes")
    if isinstance(types, list) and isinstance(sizes, list) and len(sizes) < 1000 and name in SAME_SIZES:
        op.shape = words(" ".join([*map(str, types), *(str(dims).replace(", ", " x ") for dims in sizes)]))
    times = [whole(entry.get(f"time_discovered_{what}_ns")) for what in ("started", "completed")]
    op.told, op.started = max((time for time in (op.came, *times) if time), default=None), bool(times[0])
    op.done = entry.get("state") == "completed" or (comm.by_host and retired)
    op.timed_out = retired and not op.done
    dump.has_ended |= op.done
    member.heard = max(member.heard, written or 0, op.told or 0)
    member.timed |= op.started
    if entry.get("is_p2p") is True or name.startswith(("send ", "recv ")):
        member.sends += [] if op.done else _pending(name, op, rank, comm.ranks)
        member.talks = True
        return
    if before := member.ops.get(seq):  # several of one coalesced call
        op.name, op.shape = before.name if before.name == name else words(f"{before.name}+{name}"), ""
        op.done, op.started = op.done and before.done, op.started or before.started
    member.ops[seq] = op
    member.left = max(member.left, seq if op.done and not comm.by_host else -1)


def add_dump(job: Job, data: Dict[str, Any], path: str) -> None:
    """Raises WatchError with why it is none."""
    ours = inside(data, "fsdpbench")
    if not ours and "pg_config" not in data and "entries" not in data:
        raise WatchError("is no dump of a flight recorder: neither pg_config nor entries are in it.")
    at_end = re.search(r"(\d{1,7})(\.[A-Za-z]\w*)*$", os.path.basename(path))
    told = [whole(one, MOST_RANKS - 1) for one in (ours.get("rank"), data.get("rank"), at_end and at_end[1])]
    rank, written = next((one for one in told if one is not None), None), whole(ours.get("written_ns"))
    if rank is None:
        raise WatchError("does not tell its rank: a dump of PyTorch has it at the end of its file's name.")
    if written is not None:
        view = job.ranks.setdefault(rank, Rank())
        view.hear(written)
        view.host, view.ended = words(ours.get("host")), ours.get("ended") is True
        job.world = max(job.world, whole(ours.get("ranks"), MOST_RANKS) or 0)
    for comm in job.of("flight recorder"):
        if rank in comm.members:
            comm.members[rank] = Member()
    job.dumps[rank] = []
    for part in objects(data.get("dumps")) if ours else [data]:
        dump = Dump({words(name): _ranks(inside(part["pg_config"], name).get("ranks")) for name in inside(part, "pg_config")})
        for name in inside(part, "pg_status"):
            one = inside(part["pg_status"], name)
            last = [whole(one.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed")]
            if whole(name) is not None:
                dump.status[int(name)] = [-1 if value is None else value for value in last]
        if not isinstance(part.get("entries", []), list):
            raise WatchError("has entries that are no list.")
        for entry in objects(part.get("entries")):
            _add_entry(job, dump, entry, rank, written)
        dump.is_empty = not part.get("entries") and not dump.status
        job.dumps[rank].append(dump)


def settle(job: Job) -> None:
    """Which collective each rank has entered last. Dumps may hold active entries only, so that one which is missing tells
    nothing: then pg_status does, unless sends are counted in it, too."""
    for key, comm in job.comms.items():
        if comm.source != "flight recorder":
            continue
        if not set(comm.members) <= set(comm.ranks):  # the list is another group's, as in gloo's dumps of PyTorch 2.15
            comm.ranks, comm.size = [], 0
        # The number that pg_status has it under, also in dumps without an entry of it.
        places = {place for dumps in job.dumps.values() for dump in dumps for place, own in dump.own.items() if own == key}
        sends = any(member.talks for member in comm.members.values())
        told: Dict[int, List[int]] = {rank: [] for rank in comm.all_ranks()}
        status: Dict[int, List[int]] = {}
        for rank, found in told.items():
            found += [max(comm.members[rank].ops)] if rank in comm.members and comm.members[rank].ops else []
            for dump in job.dumps.get(rank, []):
                if dump.own and key[0] not in (own[0] for own in dump.own.values()):
                    continue
                numbers = [number for number, own in dump.own.items() if own == key] or list(places - set(dump.own))
                place = numbers[0] if len(numbers) == 1 else None
                if place in dump.status and not sends:
                    status[rank] = dump.status[place]
                elif dump.has_ended or dump.is_empty:
                    found.append(0)
        # Nobody can have left what another has not entered: where it seems so, sends were counted.
        left = max((one[2] for one in status.values()), default=-1)
        for rank, found in told.items():
            if rank in status and status[rank][0] >= left:
                found.append(status[rank][0])
                member = comm.member(rank)
                member.left = max(member.left, -1 if comm.by_host else status[rank][2])
                member.timed |= status[rank][1] >= 0
            if found:
                comm.member(rank).entered = max(found)


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
                add_dump(job, inside({"": _Plain(io.BytesIO(data)).load()}, ""), path)
            except WatchError:
                raise
            except Exception as error:  # noqa: BLE001: whatever a hostile file makes of it
                raise WatchError(f"is a pickle that is not read: {words(str(error) or type(error).__name__)}.") from None
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
                told = parse(data[begin:end].decode("utf-8", "replace"))
                if not told:
                    raise WatchError("is no JSON.")
                is_step, is_answer = "fsdpbench_step" in told, "nccl_version" in told and "communicators" in told
                if is_step or is_answer:  # more of its kind may follow
                    _add_step(job, told) if is_step else add_answer(job, told, None)
                    self.offsets[path] = offset + end
                else:
                    add_dump(job, told, path)
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
