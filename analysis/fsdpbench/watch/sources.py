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
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from .job import MOST_RANKS, S, Comm, Job, Member, Op, Rank, WatchError, inside, need, objects, whole, words

MOST = 64 << 20  # bytes: of a longer file the last ones
PATIENCE_S = 15  # for NCCL's RAS
EXPECTED = "expected dumps of PyTorch's flight recorder, answers of NCCL's RAS, or what fsdpbench.torch writes"
# Collectives to which all ranks bring the same sizes: no gather, scatter, all_to_all or uneven variants.
SAME_SIZES = ("all_reduce", "allreduce", "_all_gather_base", "_reduce_scatter_base", "all_gather_single",
              "reduce_scatter_single", "broadcast", "reduce")


class _Plain(pickle._Unpickler):  # type: ignore[name-defined]
    """Plain data only: a file has no way to a class or function, so that nothing of it is run. Tuples are read as lists,
    which are no keys and so are not hashed, however deep they are."""

    dispatch = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]
    dispatch[pickle.TUPLE[0]] = lambda self: self.append(self.pop_mark())
    for size, code in enumerate((pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3), 1):
        dispatch[code[0]] = lambda self, size=size: self.stack.__setitem__(slice(-size, None), [self.stack[-size:]])

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError("it holds more than plain data; nothing of it is run")


@dataclass
class Dump:
    """One dump, but for its collectives."""

    config: Dict[str, Tuple[int, ...]] = field(default_factory=dict)  # ranks of communicators by name
    status: Dict[int, List[int]] = field(default_factory=dict)  # entered, started, left; -1: none
    own: Dict[int, Any] = field(default_factory=dict)  # keys of communicators by the number that they have in this process
    has_all: bool = False  # ended collectives, too: one that is not in it has not begun


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
    comm = job.comms.setdefault(key, Comm(f"{label} of {backend}" if backend else label))
    comm.ranks, comm.by_host = ranks, backend == "gloo"
    dump.own[whole(entry.get("pg_id")) or 0] = key
    return comm, comm.members[rank]


def _pending(name: str, op: Op, rank: int, ranks: Sequence[int]) -> List[Tuple[str, int, Op]]:
    """"send 0->3", "recv 3<-0": ranks in them are those of the group."""
    place = dict(enumerate(sorted(ranks)))
    told = re.findall(r"^(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})$", name)
    ends = [(kind, *(place.get(int(one), -1) if ranks else int(one) for one in both)) for kind, *both in told]
    return [(kind, other, op) for kind, own, other in ends if rank == own != other >= 0]


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
    op.started, op.done = bool(times[0]), entry.get("state") == "completed" or (comm.by_host and retired)
    op.timed_out = retired and not op.done
    dump.has_all |= op.done
    member.heard = max([member.heard, written or 0, *(time for time in (op.came, *times) if time)])
    member.timed |= op.started
    if entry.get("is_p2p") is True or name.startswith(("send ", "recv ")):
        op.seq, member.talks = -1, True
        member.sends += [] if op.done else _pending(name, op, rank, comm.ranks)
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
    rank, written = whole(ours.get("rank", at_end and at_end[1]), MOST_RANKS - 1), whole(ours.get("written_ns"))
    if rank is None:
        raise WatchError("does not tell its rank: a dump of PyTorch has it at the end of its file's name.")
    if written is not None:
        view = job.ranks.setdefault(rank, Rank())
        view.hear(written)
        view.ended = ours.get("ended") is True
        job.world = max(job.world, whole(ours.get("ranks"), MOST_RANKS) or 0)
    for comm in job.comms.values():
        comm.members.pop(rank, None)
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
        dump.has_all |= not part.get("entries") and not dump.status
        job.dumps[rank].append(dump)


def settle(job: Job) -> None:
    """Which collective each rank has entered last. Dumps may hold active entries only, so that one which is missing tells
    nothing: then pg_status does, unless sends are counted in it, too."""
    for key, comm in job.comms.items():
        if not set(comm.members) <= set(comm.ranks):  # the list is another group's, as in gloo's dumps of PyTorch 2.15
            comm.ranks = ()
        # The number that pg_status has it under, also in dumps without an entry of it.
        places = {place for dumps in job.dumps.values() for dump in dumps for place, own in dump.own.items() if own == key}
        sends = any(member.talks for member in comm.members.values())
        status: Dict[int, List[int]] = {}
        for rank in comm.all_ranks():
            member = comm.members[rank]
            member.entered = max(member.ops, default=None)
            for dump in job.dumps.get(rank, []):
                if dump.own and key[0] not in (own[0] for own in dump.own.values()):
                    continue
                numbers = [place for place, own in dump.own.items() if own == key] or list(places - set(dump.own))
                if len(numbers) == 1 and numbers[0] in dump.status and not sends:
                    status[rank] = dump.status[numbers[0]]
                elif dump.has_all and member.entered is None:
                    member.entered = 0
        # Nobody can have left what another has not entered: where it seems so, sends were counted.
        newest = max((left for _, _, left in status.values()), default=-1)
        for rank, (entered, started, left) in status.items():
            member = comm.members[rank]
            if entered >= newest:
                member.entered = entered if member.entered is None else max(member.entered, entered)
                member.left = max(member.left, -1 if comm.by_host else left)
                member.timed |= started >= 0


def _add_step(job: Job, line: Dict[str, Any]) -> None:
    """One line of fsdpbench.torch.step()."""
    ranks = need(line, "ranks", MOST_RANKS)
    rank, step, ended = need(line, "rank", ranks - 1), need(line, "fsdpbench_step"), need(line, "ended_ns")
    waits = [ms for key in ("gathers_ms", "reductions_ms", "own_ms") if isinstance(ms := line.get(key), (int, float)) and 0 <= ms <= 1e12]
    view, job.world = job.ranks.setdefault(rank, Rank()), max(job.world, ranks)
    view.hear(ended)
    if view.steps and step <= next(reversed(view.steps)):
        view.steps.clear()  # a job that begins anew in the same files
    view.steps[step] = (ended, sum(waits) if waits else -1.0)
    if len(view.steps) > 2000:
        del view.steps[next(iter(view.steps))]


def list_files(folder: str) -> List[str]:
    return sorted(one.path for one in os.scandir(folder) if one.name[0] != "." and one.is_file() and not one.name.endswith(".tmp"))


class Sources:
    """`paths`: files, or folders of which every file is read that is one of these; `ras`: where NCCL's RAS is asked."""

    def __init__(self, paths: List[str], ras: str = "") -> None:
        self.paths, self.services = paths, [f"--ras {ras}"] if ras else []
        self.states: Dict[str, Tuple[int, int]] = {}
        self.offsets: Dict[str, int] = {}  # where steps and answers are read on; every other file is read anew
        self.good: Set[str] = set()
        self.why: Dict[str, str] = {}  # something is left out
        for path in paths:
            if not os.path.exists(path):
                raise WatchError(f"{path}: there is no such file or folder.")

    def read(self, job: Job, once: bool) -> None:
        """What is new since the last time. `once`: files are whole, so that a last line without its end counts."""
        given = [*self.paths, *self.services]
        for path in [file for one in given for file in (list_files(one) if os.path.isdir(one) else [one])]:
            try:
                self._ask(path, job, time.time_ns()) if path in self.services else self._read(path, job, once)
            except OSError as error:
                self.why[path] = f"cannot be read: {error.strerror}."
            except WatchError as error:
                self.why[path] = str(error)
        job.notes = [f"{path}: {why}" for path, why in self.why.items()]
        bad = [f"{path}: {self.why[path]}" for path in given if path in self.why and path not in self.good]
        if once and (bad or not self.good):
            raise WatchError([*bad, *job.notes, f"{given[0]}: has no files; {EXPECTED}."][0])

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
        # Objects one after another each begin a line. The last one may not be written to its end.
        starts = [match.start() for match in re.finditer(rb"^\{", data, re.MULTILINE)] if offset or data[:1] == b"{" else [0]
        for begin, end in zip(starts, [*starts[1:], len(data)]):
            try:
                told = load(data[begin:end])
                is_step, is_answer = "fsdpbench_step" in told, "nccl_version" in told and "communicators" in told
                if isinstance(told, str):
                    add_text(job, told, status.st_mtime_ns)
                elif is_step:
                    _add_step(job, told)
                elif is_answer:
                    add_answer(job, told, None)
                else:
                    add_dump(job, told, path)
                if is_step or is_answer:  # more of its kind may follow
                    self.offsets[path] = offset + end
                else:
                    self.why.pop(path, None)
                self.good.add(path)
            except WatchError as error:
                if once or end < len(data) or data[:1] not in (b"{", b""):
                    self.why.setdefault(path, str(error))

    def _ask(self, path: str, job: Job, now: int) -> None:
        """The status of a job (src/ras/client.cc): in JSON, or as text where NCCL is older than 2.28.7."""
        until, heard = time.monotonic() + PATIENCE_S, b""
        try:
            with socket.create_connection(address(path[len("--ras "):]), PATIENCE_S) as service, service.makefile("rb") as stream:
                for order in ("CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json"):
                    service.sendall(order.encode() + b"\n")
                    said = words(stream.readline(4096).decode("utf-8", "replace").strip())
                    if order.startswith("CLIENT") and not said.startswith("SERVER PROTOCOL "):
                        raise WatchError(f"what answers there is not NCCL's RAS: it says '{said[:60]}'.")
                service.sendall(b"STATUS\n")
                while piece := stream.read1(65536):  # type: ignore[attr-defined]
                    heard += piece
                    if len(heard) > MOST or time.monotonic() > until:
                        raise WatchError("the answer has more than 64 MiB.") if len(heard) > MOST else socket.timeout
        except socket.timeout:
            raise WatchError(f"there was no whole answer within {PATIENCE_S} s.") from None
        except (OSError, UnicodeError) as error:
            raise WatchError(f"nobody answers there: {words(str(error))}.") from None
        told = load(heard)
        add_text(job, told, now) if isinstance(told, str) else add_answer(job, told, now)
        self.good.add(path)
        self.why.pop(path, None)


def load(data: bytes) -> Any:
    """One object, {} if it is something else, or the text of an answer of NCCL's RAS. Raises WatchError with what it is instead."""
    if data[:1] == b"\x80":
        stream = io.BytesIO(data)
        try:
            return inside({"": _Plain(stream).load()}, "")
        except Exception as error:  # noqa: BLE001: whatever a hostile file makes of it
            why = "it is truncated" if not stream.read() and data[-1:] != pickle.STOP else words(str(error) or type(error).__name__)
            raise WatchError(f"is a pickle that is not read: {why}.") from None
    text, why = data.decode("utf-8", "replace").rstrip(), ""
    if not text.startswith("{"):
        if "Communicators..." in text:
            return text[max(text.rfind("NCCL version"), 0):]
        raise WatchError(f"is {'neither JSON nor a pickle' if data else 'empty'}; {EXPECTED}.")
    # NCCL 2.28.7 to 2.28.9 leave the comma out before the status of a missing rank.
    for one in (str, lambda text: re.sub(r'([0-9"}\]el])(\s*\n\s*")', r"\1,\2", text)):
        text = one(text)
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError) as error:
            rest = text[getattr(error, "pos", 0):]
            why = ": it is truncated" if rest in "true false null" or str(error).startswith("Unterminated") else ""
    raise WatchError(f"is no JSON{why}.")


# NCCL's RAS: src/ras/client_support.cc, from 2.24 on.
def add_answer(job: Job, answer: Dict[str, Any], at: Optional[int]) -> None:
    """`at`: when it came; None: as it says, in the local time of this machine."""
    try:
        at = at or int(datetime.strptime(words(answer.get("timestamp")), "%Y-%m-%d %H:%M:%S").timestamp()) * S
    except (ValueError, OverflowError):
        raise WatchError('has no timestamp such as "2025-12-19 13:06:53".') from None
    comms: Dict[Any, Comm] = {}
    for told in objects(answer.get("communicators")):
        comm = Comm(words(told.get("hash")), range(need(told, "size", MOST_RANKS)))
        comms[comm.name, words(told.get("secondary_hash"))] = comm
        for one in objects(told.get("ranks")) + objects(told.get("missing_ranks")):
            member = comm.members[need(one, "rank", max(len(comm.ranks) - 1, 0))]
            status, counts, host = inside(one, "status"), inside(one, "collective_counts"), words(one.get("host"))
            if host not in ("", "unknown"):
                member.process = f" (process {need(one, 'pid')} on {host}, GPU {whole(one.get('nvml_dev'))})"
            member.dead = status.get("considered_dead") is True
            member.lost = 0 if member.dead or status.get("unresponsive") is True else None
            member.entered = sum(need(counts, kind) for kind in counts) if "collective_counts" in one else None
            member.error = whole(status.get("async_error")) or 0
            comm.changes |= any(status.get(flag) for flag in ("init_state", "finalize_called", "destroy_flag", "abort_flag"))
    _add_look(job, comms, at)


_SECTION = re.compile(r"^#(\d+)-\d+ \(([0-9a-fx]+)\) (INCOMPLETE|ERROR|MISMATCH|TIMEOUT)[ \t]*\n((?:[ \t].*\n?)*)", re.MULTILINE)
_ROW = re.compile(r"^\s+(?:\d{1,7} ranks have|Rank (\d{1,7}))(?: has status (\w+)| reported (.*?)| (?:has )?(?:not )?launched (?:up to operation "
                  r"(\d{1,18})|(any) operations))?(?: -- (?:GPU (\w+).* managed by process (\d+) on node (\S+))?)?", re.MULTILINE)


def add_text(job: Job, text: str, at: int) -> None:
    """It names ranks only where they are few among the others."""
    sizes = dict(re.findall(r"^ +(\d+)(?: +\d+){3} +(\d{1,6}) +\d+ ", text, re.MULTILINE))
    comms: Dict[Any, Comm] = {}
    for group, name, what, body in _SECTION.findall(text):
        comm = comms.setdefault((name, ""), Comm("0x" + name.lstrip("0x"), range(int(sizes.get(group, 0)))))
        for kind in body.split("operation counts"):  # of one kind of collective: groups of ranks, some of which are listed
            counts: List[Tuple[int, List[int]]] = []
            for rank, status, error, count, none, gpu, pid, node in _ROW.findall(kind):
                counts += [(int(count or 0), [])] if count or none else []
                if not rank or int(rank) not in comm.ranks:
                    continue
                member = comm.members[int(rank)]
                member.process = f" (process {pid} on {node}, GPU {gpu})" if pid else member.process
                if what == "INCOMPLETE":
                    member.lost, member.dead = 0, f"Process {pid} on node {node}" in text
                elif what == "ERROR":
                    member.error = words(error) or member.error
                comm.changes |= what == "MISMATCH" and status != ""
                if counts:
                    counts[-1][1].append(int(rank))
            unlisted = [ranks for _, ranks in counts if not ranks]
            if len(unlisted) > 1:  # nobody knows which rank is in which of them
                continue
            for ranks in unlisted:
                ranks += set(comm.ranks) - {rank for _, listed in counts for rank in listed}
            for count, rank in [(count, rank) for count, ranks in counts for rank in ranks]:
                member = comm.members[rank]
                member.entered = (member.entered or 0) + count if member.lost is None else None
    _add_look(job, comms, at)


def _add_look(job: Job, comms: Dict[Any, Comm], at: int) -> None:
    if at < job.looked + 0.9 * S:
        return
    for key, comm in comms.items():
        before = job.ras.get(key, Comm("")).members
        for rank, now in comm.members.items():
            old = before[rank]
            now.lost, now.process = None if now.lost is None else old.lost or at, now.process or old.process
    counts = {(key, rank): one.entered for key, comm in comms.items() for rank, one in comm.members.items()}
    job.moved = job.moved if counts == job.counts else at
    job.ras, job.counts, job.looked = comms, counts, at


def address(text: str) -> Tuple[str, int]:
    found = re.fullmatch(r"(?:\[([\w:.%]+)\]|([^\s:/?#@[\]]+))(?::(\d{1,5}))?", text)
    if found and 0 < int(found[3] or 28028) < 65536:
        return found[1] or found[2], int(found[3] or 28028)
    raise WatchError("expected HOST, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535.")
