"""Dumps of PyTorch's flight recorder, formats 1 to 2.10, as pickles or JSON (torch/csrc/distributed/c10d/FlightRecorder*)."""

from __future__ import annotations

import io
import os
import pickle
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from .job import MOST_RANKS, Comm, Job, Member, Op, Rank, WatchError, inside, objects, whole, words

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


def read_pickle(data: bytes) -> Any:
    """As plain data. Raises ValueError with what is wrong."""
    try:
        return _Plain(io.BytesIO(data)).load()
    except Exception as error:  # noqa: BLE001: whatever a hostile file makes of it
        raise ValueError(str(error) or type(error).__name__) from None


@dataclass
class Dump:
    """What one dump says of no collective in particular."""

    config: Dict[str, Tuple[int, ...]] = field(default_factory=dict)  # ranks of communicators by name
    status: Dict[int, List[int]] = field(default_factory=dict)  # entered, started, left; -1: none
    own: Dict[int, Key] = field(default_factory=dict)  # communicators by the number that they have in this process
    has_ended: bool = False  # ended collectives are in it, too: one that is not has not begun
    is_empty: bool = False


def rank_at_end(path: str) -> Optional[int]:
    found = re.search(r"(\d{1,7})(\.[A-Za-z]\w*)*$", os.path.basename(path))
    return int(found[1]) if found and int(found[1]) < MOST_RANKS else None


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
    told = [whole(one, MOST_RANKS - 1) for one in (ours.get("rank"), data.get("rank"), rank_at_end(path))]
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
