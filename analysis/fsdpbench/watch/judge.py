"""One verdict of all that the sources have told. No clock is read here.

Who does not come is told by a graph of who waits for whom: for whoever has not entered a collective that one is in, or has no
counterpart to a send or receive. Who is waited for and waits for nobody has not come; a rank without a dump is named only where
all ways lead to it. Ranks that wait for one another in a circle have no culprit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

from ..analysis.text import does, ranks_text, sentences
from ..torch.late import late_throughout
from .job import S, VERDICTS, Accusation, Comm, Job, Op
from .sources import settle

LEAST = 24  # trials of a window that says who is late
LEAST_SPAN_MS = 5000


@dataclass
class Judgement:
    verdict: str = "unknown"
    sentence: str = ""
    all: List[Accusation] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)  # what could not be judged, and why


def judge(job: Job, now: int, hang: int, stopped: bool) -> Judgement:
    silence = _silent_ranks(job, now, hang)
    found, unknown = find_hangs(job, hang, stopped, silence)
    found += _mismatches(job)
    ranks = sorted(set(silence) - {rank for one in found for rank in one.ranks})
    if ranks:
        found.append(Accusation("silent", ranks, sentences(does(ranks, "is silent"), silence[ranks[0]])))
    _counts(job, hang, stopped, found, unknown)
    late, clean = _late(job, found)
    found.sort(key=lambda one: (VERDICTS.index(one.verdict), not one.ranks))
    if found:
        return Judgement(found[0].verdict, found[0].sentence, found, unknown + late)
    if not unknown and clean:
        return Judgement("clean", "No rank is late and nothing hangs.", [], late)
    reasons = unknown + late or ["There is not enough to say anything." if job.comms or job.ranks else "Nothing was read yet."]
    return Judgement("unknown", reasons[0], [], reasons[1:])


def _silent_ranks(job: Job, now: int, hang: int) -> Dict[int, str]:
    """Nothing is heard of them while others were active."""
    silent = {}
    for rank in range(max([job.world] + [one + 1 for one in job.ranks])):
        own = job.ranks.get(rank)
        last = own.heard[-1] if own and own.heard else 0
        if (own is None and not job.world) or (own is not None and (not last or own.ended)):
            continue
        if any(other != rank and view.active_after(last) >= hang for other, view in job.ranks.items()):
            silent[rank] = ("Nothing was ever heard of it." if not last else
                            f"Nothing has been heard of rank {rank} for {(now - last) / S:.0f} s, while others go on.")
    return silent


def _mismatches(job: Job) -> List[Accusation]:
    """The same collective of a communicator is another one on some ranks, or has other sizes."""
    found = []
    for comm in job.of("flight recorder"):
        calls: Dict[int, Dict[str, List[int]]] = {}
        for rank, member in sorted(comm.members.items()):
            for seq, op in member.ops.items():
                calls.setdefault(seq, {}).setdefault(f"{op.name} {op.shape}".strip(), []).append(rank)
        if differing := [seq for seq, kinds in calls.items() if len(kinds) > 1]:
            seq = min(differing)  # what follows it is a consequence
            *fewer, most = sorted(calls[seq].values(), key=len)
            odd = sorted(sum(fewer, [])) if len(fewer[-1]) < len(most) else []
            sides = "; ".join(does(ranks, f"calls {kind}") for kind, ranks in calls[seq].items())
            found.append(Accusation("mismatch", odd, f"Collective {seq} of {comm.name} is not the same on all ranks: {sides}.", comm.name, seq))
    return found


def _counts(job: Job, hang: int, stopped: bool, found: List[Accusation], unknown: List[str]) -> None:
    """NCCL's RAS tells how many collectives hosts have handed over, not whether they have ended."""
    comms, now = job.of("NCCL RAS"), job.counted or 0
    moved = max((one.moved for comm in comms for one in comm.members.values()), default=now)
    has_stood = stopped or (max((comm.looks for comm in comms), default=0) > 1 and now - moved >= hang)
    how = "the job has stopped" if stopped else f"no count of the job has moved for {(now - moved) / S:.0f} s"

    def process(comm: Comm, ranks: List[int]) -> str:
        return f" ({comm.members[ranks[0]].process})" if len(ranks) == 1 and comm.members[ranks[0]].process else ""
    behind: List[Tuple[Comm, List[int]]] = []
    waiting = set()
    for comm in comms:
        lost = {rank: one for rank, one in sorted(comm.members.items()) if one.lost is not None}
        dead = [rank for rank, one in lost.items() if one.dead]
        gone = [rank for rank, one in lost.items() if not one.dead and not comm.changes]
        long = [rank for rank in gone if stopped or now - (comm.members[rank].lost or 0) >= hang]
        for ranks, why in ((dead, "considers its process dead"), (long, "does not reach it")):
            if ranks:
                said = does(ranks, "is silent: NCCL RAS ", f"{process(comm, ranks)} of {comm.name}")
                found.append(Accusation("silent", ranks, sentences(said + why), comm.name))
        if recent := [rank for rank in gone if rank not in long]:
            unknown.append(f"NCCL RAS does not reach {ranks_text(recent)} of {comm.name}; further looks tell whether that lasts.")
        unknown += [f"Rank {rank} of {comm.name} reports NCCL's error {one.error}." for rank, one in comm.members.items()
                    if one.error not in (0, 7)]  # 7: in progress
        most = max((one.count or 0 for one in comm.members.values()), default=0)
        late = [rank for rank, one in sorted(comm.members.items()) if one.count is not None and one.count < most]
        if late and has_stood and not comm.changes:
            behind.append((comm, late))
            waiting |= {one.process for one in comm.members.values() if one.count == most} - {""}
    if not comms or any(one.verdict == "silent" for one in found):
        return  # the others wait for whom RAS does not reach
    named = [(comm, idle) for comm, late in behind if (idle := [one for one in late if comm.members[one].process not in waiting])]
    for comm, ranks in named:
        most = max(one.count or 0 for one in comm.members.values())
        ahead = [rank for rank, one in sorted(comm.members.items()) if one.count == most]
        found.append(Accusation("hang", ranks, sentences(
            f"{does(ranks, 'has not come', process(comm, ranks))}: {'it has' if len(ranks) == 1 else 'they have'} handed over "
            f"{comm.members[ranks[0]].count} collectives of {comm.name}, {does(ahead, 'has handed over')} {most}, and {how}"),
            comm.name, most, moved))
    if behind and not named:
        ways = "; ".join(f"for {ranks_text(ranks)} of {comm.name}" for comm, ranks in behind)
        found.append(Accusation("hang", [], "Processes wait for one another in a cycle across communicators, of which no rank is the "
                                f"culprit: {ways}; {how}.", behind[0][0].name, None, moved))
    if not behind:
        unknown.append(f"NCCL RAS does not tell whether the job hangs: {how}, and all ranks of a communicator have handed over "
                       "equally many collectives, or it is not told." if has_stood else
                       "It is not known who comes last: NCCL RAS counts the collectives that ranks have handed over, not those "
                       "that have ended.")


def _late(job: Job, found: List[Accusation]) -> Tuple[List[str], bool]:
    """Sentences on what is not known, and whether the lines of steps say that nobody or somebody is late."""
    views = {rank: view.steps for rank, view in sorted(job.ranks.items()) if view.steps}
    if not views and not job.of("flight recorder"):
        return [], False
    shared = set.intersection(*map(set, views.values())) if len(views) > 1 else set()
    steps = [[own[step] for own in views.values()] for step in shared]
    trials = sorted((max(ended for ended, _, _ in own), [waits for _, _, waits in own]) for own in steps
                    if all(waits >= 0 for _, _, waits in own))
    window = [one for one in trials if one[0] > trials[-1][0] - 240 * S]
    span = (window[-1][0] - window[0][0]) / 1e6 if window else 0.0
    if len(window) < LEAST or span < LEAST_SPAN_MS:
        return [f"It is not known who comes last: there are fewer than {LEAST} steps of fsdpbench.torch.step() that all ranks have "
                f"ended, or they cover less than {LEAST_SPAN_MS // 1000} s."], False
    if late := late_throughout([waits for _, waits in window], span):
        place, share = late
        rank = list(views)[place]
        found.append(Accusation("late rank", [rank], f"Rank {rank} is late: the others wait for it {100 * share:.0f} % of the time, in "
                                f"each quarter of the last {span / 1e3:.0f} s.", "", None, window[0][0], share))
    return [], True


# Of flight recorders.
ROOTED = ("broadcast", "reduce", "gather", "scatter")  # of which some ranks may end while others have not come


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
        return does(self.waiting, f"waits in {self.what()} {how_long}")

    def accuses(self, verdict: str, ranks: Iterable[int], *parts: str) -> Accusation:
        return Accusation(verdict, sorted(ranks), sentences(*parts), self.comm.name, self.op.seq if self.op.seq >= 0 else None, self.since)


class Graph:
    def __init__(self, job: Job) -> None:
        settle(job)
        self.job, self.waits = job, []  # type: Job, List[Wait]
        self.edges: Dict[int, Dict[int, Wait]] = {}
        self.stuck: Set[int] = set()  # in what others have left: its own GPU stands still, whoever else is missing later
        self.absent: Set[int] = set()  # without a dump
        for comm in job.of("flight recorder"):
            self.absent |= set(comm.all_ranks()) - set(job.dumps)
            self._collectives(comm)
            self._sends(comm)

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

    def _add(self, waiter: int, others: List[int], wait: Wait) -> None:
        for other in set(others) - {waiter}:
            known = self.edges.setdefault(waiter, {}).setdefault(other, wait)
            self.edges[waiter][other] = max(known, wait, key=lambda one: one.age)

    def _collectives(self, comm: Comm) -> None:
        pending = {rank: seqs for rank, member in comm.members.items() if (seqs := sorted(seq for seq, op in member.ops.items() if not op.done))}
        if not pending:
            return
        entered = {rank: comm.members[rank].entered if rank in comm.members else None for rank in comm.all_ranks()}
        absent = [rank for rank in entered if rank in self.absent]
        seqs = sorted({seq for own in pending.values() for seq in own})
        behind = {rank: value for rank, value in entered.items() if value is not None and value < seqs[-1]}
        seq = next((seq for seq in seqs if any(value < seq for value in behind.values())), seqs[0])
        ops = {rank: comm.members[rank].ops[seq] for rank in pending if seq in pending[rank]}
        late = [rank for rank, value in behind.items() if value < seq]
        wait = self._wait(comm, next(iter(ops.values())), ops, late or absent)
        for rank, own in pending.items():
            self._add(rank, [other for other, value in behind.items() if value < own[-1]] + absent, wait)
            left = max((one.left for other, one in comm.members.items() if other != rank), default=-1)
            if own[0] <= left and not comm.members[rank].ops[own[0]].name.startswith(ROOTED):
                self.stuck.add(rank)
        if not wait.missing and any(one.started for one in ops.values()):  # others are in what its GPU has not begun
            wait.missing = [rank for rank in ops if comm.members[rank].timed and not ops[rank].started]
            for rank in ops:
                self._add(rank, wait.missing if ops[rank].started else [], wait)

    def _sends(self, comm: Comm) -> None:
        """In one direction as many sends as receives are pending, or the side with fewer of them has not come."""
        pairs: Dict[Tuple[int, int], Dict[str, List[Op]]] = {}
        for member in comm.members.values():
            for source, to, kind, op in member.sends:
                pairs.setdefault((source, to), {"send": [], "recv": []})[kind].append(op)
        for (source, to), both in pairs.items():
            receives = len(both["recv"]) > len(both["send"])
            waiter, other = (to, source) if receives else (source, to)
            more, fewer = sorted(both.values(), key=len, reverse=True)
            if len(more) > len(fewer):
                op = more[len(fewer)]
                self._add(waiter, [other], self._wait(comm, Op(-1, op.name), {waiter: op}, [other]))

    def culprits(self, waits: List[Wait]) -> Set[int]:
        """Who is waited for, in one of these, and waits for nobody; without a dump only if there are no others."""
        ends = {other for own in self.edges.values() for other, wait in own.items()
                if any(wait is one for one in waits) and (not self.edges.get(other) or other in self.stuck)}
        return ends - self.absent or ends

    def circle(self) -> List[Tuple[int, Wait, int]]:
        """Who waits for whom all around; none where the way ends."""
        path: List[int] = [min(self.edges)]
        while path.count(path[-1]) < 2:
            if not self.edges.get(path[-1]):
                return []
            path.append(min(self.edges[path[-1]], key=lambda other: (other in self.absent, other)))
        path = path[path.index(path[-1]):]
        return [(rank, self.edges[rank][other], other) for rank, other in zip(path, path[1:])]


def find_hangs(job: Job, hang: int, stopped: bool, silence: Dict[int, str]) -> Tuple[List[Accusation], List[str]]:
    """What hangs, and sentences on what may. `silence`: of whom nothing is heard, and how that is said."""
    graph = Graph(job)
    hanging = [one for one in graph.waits if one.timed_out or stopped or one.age >= hang]
    waits = hanging or [one for one in graph.waits if not one.has_clock]
    if not waits:
        return [], []
    said = _accuse(graph, waits, lambda one: one.how_long(stopped) if hanging else "by the newest entries", silence)
    notes = ["gloo does not record sends and receives: whoever has not come may wait in one."] if said.ranks and any(
        one.comm.by_host and set(one.missing) & set(said.ranks) for one in waits) else []
    if said.verdict == "hang" and hanging:
        return [said], notes
    more = "" if hanging else "the dumps do not tell for how long: if the job goes on no more, --stopped says so"
    return [], [sentences(said.sentence, more), *notes]


def _accuse(graph: Graph, waits: List[Wait], how: Callable[[Wait], str], silence: Dict[int, str]) -> Accusation:
    """`how`: for how long, of a wait."""
    culprits = graph.culprits(waits)
    if not culprits and not any(one.missing for one in waits):
        inside = [_inside(one, how(one), silence) for one in waits]
        return min(inside, key=lambda one: (one.verdict != "hang" or not one.ranks, one.verdict == "hang"))
    # Who is waited for may be inside a collective that has all it needs, as far as is told.
    within = [one for one in waits if not one.missing and culprits & set(one.waiting) - graph.stuck]
    idle = culprits - {rank for one in within for rank in one.waiting}
    first = min(within if culprits and not idle else waits,
                key=lambda one: (one.op.seq < 0, -len(idle & set(one.missing)), one.since or 0))
    wait = first.text(how(first))
    if not culprits:
        if not (circle := graph.circle()):
            return first.accuses("unknown", [], f"{wait}, for ranks that wait for others, which go on")
        steps = "; ".join(f"rank {rank} in {one.what()} for rank {other}" for rank, one, other in circle)
        return first.accuses("hang", [], f"{ranks_text([rank for rank, _, _ in circle])} wait for one another in a cycle, of which no "
                             f"rank is the culprit: {steps} ({how(first)})")
    others = sorted(set(graph.edges) - set(first.waiting) - idle)
    chain = does(others, f"waits for {'it' if len(culprits) == 1 else 'them'} in turn") if others else ""
    if not idle:
        untold = sorted(set(first.comm.ranks) - set(first.waiting))
        why = (f"whether {does(untold, 'has come')} is not told" if untold else "none has left it: it hangs inside, and which of them "
               "is to blame is not told" if first.comm.ranks else "who belongs to it is not told")
        return first.accuses("hang", [], f"{wait}, and {why}", chain)
    known = {rank for comm in graph.job.of("flight recorder") for rank in comm.all_ranks()}
    no_dump = idle <= graph.absent
    if no_dump and 2 * len(graph.absent) > len(known):
        return first.accuses("unknown", [], f"{wait}; only {len(known - graph.absent)} of {len(known)} ranks have left a dump: too few to "
                             "tell who has not come")
    if no_dump and len(idle) > 1:  # each of them may wait for another
        return first.accuses("hang", [], f"{wait}, and {does(sorted(idle), 'has left')} no dump: which of them has not come is not told", chain)
    said, behind = f"{does(sorted(idle), 'has not come')}: {wait}", sorted(idle - set(first.missing))
    if idle <= set(first.waiting) & set(first.missing):  # their hosts have come
        rest = sorted(set(first.waiting) - idle)
        said = f"{does(rest, 'waits in')} {first.what()} {how(first)}, which the GPU of {does(sorted(idle), 'has not begun')}"
    elsewhere = [f"{one.text(how(one))} for rank {rank}" for rank in behind for one in waits if rank in one.missing]
    return first.accuses("hang", idle, said, *[silence[rank] for rank in sorted(idle) if rank in silence][:1],
                         "it has left no dump" if no_dump else "", *elsewhere[:1], chain)


def _inside(wait: Wait, how: str, silence: Dict[int, str]) -> Accusation:
    """Where nobody who is known is missing."""
    group, members, gloo = wait.comm.ranks, wait.comm.members, wait.comm.by_host
    gone = [rank for rank in group if rank in members and rank not in wait.waiting
            and max(members[rank].left, (members[rank].entered or -1) if gloo else -1) >= wait.op.seq]
    silent = [rank for rank in wait.waiting if rank in silence]
    untold = sorted(set(group) - set(wait.waiting) - set(gone))
    if gone and 2 * len(wait.waiting) < len(group) and not wait.op.name.startswith(ROOTED) and not gloo:
        return wait.accuses("hang", wait.waiting, f"{does(wait.waiting, 'has not left')} {wait.what()} {how}, which {does(gone, 'has left')}: "
                            "the GPU or its stream stands still")
    if silent:
        return wait.accuses("hang", silent, f"{does(silent, 'has stopped inside a collective')}: {silence[silent[0]]}",
                            f"{wait.what()} has not ended {how}")
    if untold or gone or len(group) < 2:
        why = (f"whether {does(untold, 'has come')} is not told" if untold else
               does(gone, "has left it or failed in it" if gloo else "has left it") if gone else
               "no other rank of it is told" if group else "which ranks belong to it is not told")
        return wait.accuses("unknown", [], f"{wait.text(how)}; {why}")
    return wait.accuses("hang", [], f"all {len(group)} ranks have come to {wait.what()} and none has left it {how}: no rank is to blame by "
                        "that")
