"""Who does not come, by flight recorders: a graph of who waits for whom, and where it ends.

A rank waits for another if it is in a collective that the other one has not entered, or in a send or receive to which
the other one has no counterpart. Whoever is waited for and waits for nobody has not come. A rank without a dump is named
only where all ways lead to it. Ranks that wait for one another in a circle across communicators have no culprit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Dict, List, Optional, Set, Tuple

from .flight import settle
from .job import S, Accusation, Comm, Job, Op, capital, ranks_text, verb

ROOTED = ("broadcast", "reduce", "gather", "scatter")  # of which some ranks may end while others have not come
FIRM, ABSENT, SOFT = range(3)  # how sure it is that somebody is waited for


@dataclass
class Wait:
    """A collective, or a send or receive, that somebody is in."""

    comm: Comm
    op: Op
    waiting: List[int] = field(default_factory=list)
    missing: List[int] = field(default_factory=list)
    since: Optional[int] = None  # the last who came
    age: int = 0  # by the records of those who wait
    timed_out: bool = False
    has_clock: bool = False  # somebody tells as of when

    def what(self) -> str:
        return f"{self.op.name} {self.op.seq if self.op.seq >= 0 else ''} of {self.comm.name}".replace("  ", " ")

    def how_long(self, stopped: bool) -> str:
        since = f"since {datetime.fromtimestamp(self.since / S, timezone.utc):%F %T} UTC" if self.since else "since the job stopped"
        return f"{since} until its timeout" if self.timed_out else since if stopped else f"for {self.age / S:.0f} s"

    def text(self, how_long: str) -> str:
        return f"{ranks_text(self.waiting)} {verb(self.waiting, 'waits', 'wait')} in {self.what()} {how_long}"


Edges = Dict[int, Dict[int, Tuple[int, Wait]]]


class Graph:
    def __init__(self, job: Job) -> None:
        settle(job)
        self.job, self.edges, self.waits = job, {}, []  # type: Job, Edges, List[Wait]
        self.stuck: Set[int] = set()  # in what others have left: its own GPU stands still, whoever else is missing later
        for comm in job.of("flight recorder"):
            self._collectives(comm)
            self._sends(comm)

    def _add(self, waiter: int, other: int, sure: int, wait: Wait) -> None:
        own = self.edges.setdefault(waiter, {})
        if other not in own or (own[other][0], -own[other][1].age) > (sure, -wait.age):
            own[other] = (sure, wait)

    def _wait(self, comm: Comm, op: Op, ops: Dict[int, Op], missing: List[int]) -> Wait:
        wait = Wait(comm, op, sorted(ops), missing)
        came = {rank: one.came for rank, one in ops.items() if one.came is not None}
        wait.since = max(came.values(), default=None)
        # Where all have come it counts from the last: before that the others only waited for it.
        wait.age = max([comm.members[rank].heard - (came[rank] if missing else max(came.values())) for rank in came] + [0])
        wait.timed_out = any(one.timed_out for one in ops.values())
        wait.has_clock = any(rank in self.job.ranks and self.job.ranks[rank].heard for rank in ops)
        self.waits.append(wait)
        return wait

    def _collectives(self, comm: Comm) -> None:
        pending = {rank: seqs for rank, member in comm.members.items() if (seqs := member.pending())}
        entered = {rank: comm.members[rank].entered if rank in comm.members else None for rank in comm.all_ranks()}
        absent = [rank for rank in entered if rank not in self.job.dumps]
        seqs = sorted({seq for own in pending.values() for seq in own})
        behind = {rank: value for rank, value in entered.items() if value is not None and seqs and value < seqs[-1]}
        seq = next((seq for seq in seqs if any(value < seq for value in behind.values())), seqs[0] if seqs else 0)
        ops = {rank: comm.members[rank].ops[seq] for rank in pending if seq in pending[rank]}
        if not ops:
            return
        late = [rank for rank, value in behind.items() if value < seq]
        wait = self._wait(comm, next(iter(ops.values())), ops, late or absent)
        for rank, own in pending.items():
            for other, value in behind.items():
                if value < own[-1] and other != rank:
                    self._add(rank, other, FIRM, wait)
            for other in absent:
                self._add(rank, other, ABSENT, wait)
        for rank, own in pending.items():
            left = max((one.left for other, one in comm.members.items() if other != rank), default=-1)
            self.stuck |= {rank} if own[0] <= left and not comm.members[rank].ops[own[0]].name.startswith(ROOTED) else set()
        if not wait.missing:  # whose GPU has not begun what the GPUs of others are in
            idle = [rank for rank in ops if comm.members[rank].timed and not ops[rank].started]
            wait.missing = idle if any(one.started for one in ops.values()) else []
            for rank in (rank for rank in ops if wait.missing and ops[rank].started):
                for other in idle:
                    self._add(rank, other, FIRM, wait)

    def _sends(self, comm: Comm) -> None:
        """In one direction as many sends as receives are pending, or the side with fewer of them has not come."""
        pairs: Dict[Tuple[int, int], Dict[str, List[Op]]] = {}
        for member in comm.members.values():
            for source, to, kind, op in member.sends:
                pairs.setdefault((source, to), {"send": [], "recv": []})[kind].append(op)
        for (source, to), both in pairs.items():
            waiter, other, mine, its = (source, to, "send", "recv")
            if len(both["recv"]) > len(both["send"]):
                waiter, other, mine, its = (to, source, "recv", "send")
            if len(both[mine]) > len(both[its]):
                op = both[mine][len(both[its])]
                wait = self._wait(comm, Op(-1, op.name), {waiter: op}, [other])
                self._add(waiter, other, SOFT if other in self.job.dumps else ABSENT, wait)

    def culprits(self, waits: List[Wait]) -> Tuple[int, Set[int]]:
        """How sure, and who is waited for, in one of these, and waits for nobody."""
        for most in (SOFT, ABSENT):  # what sends and receives seem to say may be a circle that is none
            edges = {rank: {other: sure for other, (sure, _) in own.items() if sure <= most} for rank, own in self.edges.items()}
            ends: Dict[int, Set[int]] = {}
            for rank, own in edges.items():
                for other, sure in own.items():
                    if not any(self.edges[rank][other][1] is one for one in waits):
                        continue  # others go on
                    if not edges.get(other) or (sure == FIRM and other in self.stuck):
                        ends.setdefault(sure, set()).add(other)
            if ends:
                return min(ends), ends[min(ends)]
        return FIRM, set()

    def circle(self) -> List[Tuple[int, Wait, int]]:
        """Who waits for whom all around; none where the way ends."""
        path: List[int] = [min(self.edges)]
        while path.count(path[-1]) < 2:
            if path[-1] not in self.edges:
                return []
            path.append(min(self.edges[path[-1]], key=lambda other: (self.edges[path[-1]][other][0], other)))
        path = path[path.index(path[-1]):]
        return [(rank, self.edges[rank][other][1], other) for rank, other in zip(path, path[1:])]


def find_hangs(job: Job, hang: int, stopped: bool, silence: Dict[int, str]) -> Tuple[List[Accusation], List[str]]:
    """What hangs, and sentences on what may. `silence`: of whom nothing is heard, and how that is said."""
    graph = Graph(job)
    hanging = [one for one in graph.waits if one.timed_out or stopped or one.age >= hang]
    if hanging:
        said = _accuse(graph, hanging, stopped, silence)
        return ([said], []) if said.verdict == "hang" else ([], [said.sentence])
    open_ones = [one for one in graph.waits if not one.has_clock]
    if not open_ones:
        return [], []
    said = _accuse(graph, open_ones, False, silence, "by the newest entries")
    return [], [f"{said.sentence} The dumps do not tell for how long: if the job goes on no more, --stopped says so."]


def _accuse(graph: Graph, waits: List[Wait], stopped: bool, silence: Dict[int, str], how: str = "") -> Accusation:
    sure, culprits = graph.culprits(waits)
    known = {rank for comm in graph.job.of("flight recorder") for rank in comm.all_ranks()}
    absent = sorted(known - set(graph.job.dumps))
    first = min(waits, key=lambda one: (one.op.seq < 0, -len(culprits.intersection(one.missing)), one.since or 0))
    told, how = how, how or first.how_long(stopped)
    wait, others = first.text(how), sorted(set(graph.edges) - set(first.waiting) - culprits)
    chain = f" {capital(ranks_text(others))} {verb(others, 'waits', 'wait')} for {verb(list(culprits), 'it', 'them')} in turn." if others else ""
    found = Accusation("hang", "", sorted(culprits), first.comm.name, first.op.seq if first.op.seq >= 0 else None, first.since)
    # All of a communicator that nobody has left, and who are waited for elsewhere: it hangs inside.
    inner = [one for one in waits if not one.missing and set(one.waiting) == set(one.comm.all_ranks()) and one.op.seq >= 0
             and culprits.issuperset(one.waiting) and all(one.comm.members[rank].left < one.op.seq for rank in one.waiting)]
    if inner and culprits:
        culprits, first, sure = culprits - set(inner[0].waiting), inner[0], FIRM
        found.ranks, found.communicator, found.sequence, wait = sorted(culprits), first.comm.name, first.op.seq, first.text(how)
        if not culprits:
            why = "it hangs inside, and which of them is to blame" if first.comm.ranks else "which ranks belong to it"
            found.sentence = f"{capital(wait)}, and none has left it: {why} is not told.{chain}"
            return found
    if culprits and sure == ABSENT and 2 * len(absent) > len(known):
        return Accusation("unknown", f"{capital(wait)}; only {len(known) - len(absent)} of {len(known)} ranks have left a dump: "
                          "too few to tell who has not come.")
    if culprits:
        elsewhere = [(rank, one) for rank in sorted(culprits - set(first.missing)) for one in waits if rank in one.missing][:1]
        no_dump = "" if sure != ABSENT else f" {verb(absent, 'It has', 'They have')} left no dump."
        also = "".join(f" {capital(one.text(how))} for rank {rank}." for rank, one in elsewhere)
        heard = [silence[rank] for rank in found.ranks if rank in silence][:1]
        said = f"{capital(ranks_text(found.ranks))} {verb(found.ranks, 'has', 'have')} not come: {wait}"
        if culprits <= set(first.waiting).intersection(first.missing):  # their hosts have come
            rest = sorted(set(first.waiting) - culprits)
            said = (f"{capital(ranks_text(rest))} {verb(rest, 'waits', 'wait')} in {first.what()} {how}, which the "
                    f"{verb(found.ranks, 'GPU', 'GPUs')} of {ranks_text(found.ranks)} {verb(found.ranks, 'has', 'have')} not begun")
        found.sentence = f"{said}.{''.join(' ' + one for one in heard)}{no_dump}{also}{chain}"
        return found
    if any(one.missing for one in waits):
        if not (circle := graph.circle()):
            return Accusation("unknown", f"{capital(wait)}, for ranks that wait for others, which go on.")
        steps = "; ".join(f"rank {rank} in {one.what()} for rank {other}" for rank, one, other in circle)
        found.sentence = (f"{capital(ranks_text([rank for rank, _, _ in circle]))} wait for one another in a cycle, of which no rank "
                          f"is the culprit: {steps} ({how}).")
        return found
    inside = [_inside(one, told or one.how_long(stopped), silence) for one in waits]
    return min(inside, key=lambda one: (one.verdict != "hang" or not one.ranks, one.verdict == "hang"))


def _inside(wait: Wait, how: str, silence: Dict[int, str]) -> Accusation:
    """Where nobody who is known is missing."""
    group, members = wait.comm.ranks, wait.comm.members
    gone = [rank for rank in group if rank in members and members[rank].left >= wait.op.seq and rank not in wait.waiting]
    silent = [rank for rank in wait.waiting if rank in silence]
    untold = sorted(set(group) - set(wait.waiting) - set(gone))
    found = Accusation("hang", "", [], wait.comm.name, wait.op.seq, wait.since)
    if gone and 2 * len(wait.waiting) < len(group) and not wait.op.name.startswith(ROOTED):
        found.ranks = wait.waiting
        found.sentence = (f"{capital(ranks_text(found.ranks))} {verb(found.ranks, 'has', 'have')} not left {wait.what()} {how}, "
                          f"which {ranks_text(gone)} {verb(gone, 'has', 'have')}: the GPU or its stream stands still.")
    elif silent:
        found.ranks = silent
        found.sentence = (f"{capital(ranks_text(silent))} {verb(silent, 'has', 'have')} stopped inside a collective: "
                          f"{silence[silent[0]]} {capital(wait.what())} has not ended {how}.")
    elif untold or gone or len(group) < 2:
        why = (f"whether {ranks_text(untold)} {verb(untold, 'has', 'have')} come is not told" if untold else
               f"{ranks_text(gone)} {verb(gone, 'has', 'have')} left it" if gone else
               "no other rank of it is told" if group else "which ranks belong to it is not told")
        return Accusation("unknown", f"{capital(wait.text(how))}; {why}.")
    else:
        found.sentence = (f"All {len(group)} ranks have come to {wait.what()} and none has left it {how}: no rank is to blame by "
                          "that.")
    return found
