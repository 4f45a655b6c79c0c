"""One verdict of all that the sources have told. No clock is read here.

Who does not come is told by a graph of who waits for whom: for whoever has not entered a collective that one is in, or has no
counterpart to a send or receive. Who is waited for and waits for nobody has not come; a rank without a dump is named only where
all ways lead to it. Ranks that wait for one another in a circle have no culprit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Dict, Iterable, List, Tuple

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
    said, silence = Judgement(), _silent_ranks(job, now, hang)
    _hangs(job, hang, stopped, silence, said)
    _mismatches(job, said)
    if ranks := sorted(set(silence) - {rank for one in said.all for rank in one.ranks}):
        said.all.append(Accusation("silent", ranks, sentences(does(ranks, "is silent"), silence[ranks[0]])))
    _counts(job, hang, stopped, said)
    clean = _is_late_told(job, said)
    said.all.sort(key=lambda one: (list(VERDICTS).index(one.verdict), not one.ranks))
    if said.all:
        said.verdict, said.sentence = said.all[0].verdict, said.all[0].sentence
    elif clean and not said.notes:
        said.verdict, said.sentence = "clean", "No rank is late and nothing hangs."
    else:
        said.sentence, *said.notes = said.notes or ["Nothing was read yet that tells anything."]
    return said


def _silent_ranks(job: Job, now: int, hang: int) -> Dict[int, str]:
    """Nothing is heard of them while others were active."""
    silent = {}
    for rank in sorted({*range(job.world), *job.ranks}):
        own = job.ranks.get(rank)
        last = own.heard[-1] if own else 0
        if not (own and own.ended) and any(other != rank and view.active_after(last) >= hang for other, view in job.ranks.items()):
            silent[rank] = ("Nothing was ever heard of it." if not last else
                            f"Nothing has been heard of rank {rank} for {(now - last) / S:.0f} s, while others go on.")
    return silent


def _mismatches(job: Job, said: Judgement) -> None:
    """The same collective of a communicator is another one on some ranks, or has other sizes."""
    for comm in job.comms.values():
        calls: Dict[int, Dict[str, List[int]]] = {}
        for rank, member in sorted(comm.members.items()):
            for seq, op in member.ops.items():
                calls.setdefault(seq, {}).setdefault(f"{op.name} {op.shape}".strip(), []).append(rank)
        if differing := [seq for seq, kinds in calls.items() if len(kinds) > 1]:
            seq = min(differing)  # what follows it is a consequence
            *fewer, most = sorted(calls[seq].values(), key=len)
            odd = sorted(sum(fewer, [])) if len(fewer[-1]) < len(most) else []
            sides = "; ".join(does(ranks, f"calls {kind}") for kind, ranks in calls[seq].items())
            said.all.append(Accusation("mismatch", odd, f"Collective {seq} of {comm.name} is not the same on all ranks: {sides}.", comm.name, seq))


def _counts(job: Job, hang: int, stopped: bool, said: Judgement) -> None:
    """NCCL's RAS tells how many collectives hosts have handed over, not whether they have ended."""
    now, moved = job.looked, job.moved
    has_stood = stopped or now - moved >= hang
    how = "the job has stopped" if stopped else f"no count of the job has moved for {(now - moved) / S:.0f} s"
    behind: List[Tuple[Comm, List[int], List[int]]] = []
    for comm in job.ras.values():
        for dead, why in ((True, "considers its process dead"), (False, "does not reach it")):
            lost = {rank: one.lost or 0 for rank, one in sorted(comm.members.items())
                    if one.lost is not None and one.dead == dead and (dead or not comm.changes)}
            long = [rank for rank, since in lost.items() if dead or stopped or now - since >= hang]
            if long:
                told = does(long, f"is silent: NCCL RAS {why}", f"{comm.members[long[0]].process * (len(long) == 1)} of {comm.name}")
                said.all.append(Accusation("silent", long, sentences(told), comm.name))
            if recent := set(lost) - set(long):
                said.notes.append(f"NCCL RAS does not reach {ranks_text(recent)} of {comm.name}; further looks tell whether that lasts.")
        said.notes += [f"Rank {rank} of {comm.name} reports NCCL's error {one.error}." for rank, one in comm.members.items()
                       if one.error not in (0, 7)]  # 7: in progress
        counts = {rank: one.entered for rank, one in sorted(comm.members.items()) if one.entered is not None}
        most = max(counts.values(), default=0)
        late, ahead = ([rank for rank, count in counts.items() if (count < most) == is_late] for is_late in (True, False))
        if late and has_stood and not comm.changes:
            behind.append((comm, late, ahead))
    if not job.looked or any(one.verdict == "silent" for one in said.all):
        return  # the others wait for whom RAS does not reach
    waiting = {comm.members[rank].process for comm, _, ahead in behind for rank in ahead} - {""}
    named = [(comm, idle, ahead) for comm, late, ahead in behind if (idle := [one for one in late if comm.members[one].process not in waiting])]
    for comm, ranks, ahead in named:
        only, most = len(ranks) == 1, comm.members[ahead[0]].entered
        said.all.append(Accusation("hang", ranks, sentences(
            f"{does(ranks, 'has not come', comm.members[ranks[0]].process * only)}: {'it has' if only else 'they have'} handed over "
            f"{comm.members[ranks[0]].entered} collectives of {comm.name}, {does(ahead, 'has handed over')} {most}, and {how}"),
            comm.name, most, moved))
    if behind and not named:
        ways = "; ".join(f"for {ranks_text(late)} of {comm.name}" for comm, late, _ in behind)
        said.all.append(Accusation("hang", [], "Processes wait for one another in a cycle across communicators, of which no rank is the "
                                f"culprit: {ways}; {how}.", behind[0][0].name, None, moved))
    if not behind:
        said.notes.append(f"NCCL RAS does not tell whether the job hangs: {how}, and all ranks of a communicator have handed over "
                       "equally many collectives, or it is not told." if has_stood else
                       "It is not known who comes last: NCCL RAS counts the collectives that ranks have handed over, not those "
                       "that have ended.")


def _is_late_told(job: Job, said: Judgement) -> bool:
    """Whether the lines of steps say that nobody or somebody is late."""
    views = {rank: view.steps for rank, view in sorted(job.ranks.items()) if view.steps}
    if not views and not job.comms:
        return False
    shared = set.intersection(*map(set, views.values())) if len(views) > 1 else set()
    steps = [[own[step] for own in views.values()] for step in shared]
    trials = sorted((max(ended for ended, _ in own), [waits for _, waits in own]) for own in steps if all(waits >= 0 for _, waits in own))
    window = [one for one in trials if one[0] > trials[-1][0] - 240 * S]
    span = (window[-1][0] - window[0][0]) / 1e6 if window else 0.0
    if len(window) < LEAST or span < LEAST_SPAN_MS:
        said.notes.append(f"It is not known who comes last: there are fewer than {LEAST} steps of fsdpbench.torch.step() that all ranks "
                          f"have ended, or they cover less than {LEAST_SPAN_MS // 1000} s.")
        return False
    if late := late_throughout([waits for _, waits in window], span):
        rank, share = list(views)[late[0]], late[1]
        said.all.append(Accusation("late rank", [rank], f"Rank {rank} is late: the others wait for it {100 * share:.0f} % of the time, in "
                                   f"each quarter of the last {span / 1e3:.0f} s.", "", None, window[0][0], share))
    return True


ROOTED = ("broadcast", "reduce", "gather", "scatter")  # of which some ranks may end while others have not come


class Wait:
    """A collective, or a send or receive, that somebody is in."""

    def __init__(self, comm: Comm, ops: Dict[int, Op], missing: List[int]) -> None:
        self.comm, self.ops, self.op, self.waiting, self.missing = comm, ops, next(iter(ops.values())), sorted(ops), missing
        came = {rank: one.came for rank, one in ops.items() if one.came is not None}
        self.since = max(came.values(), default=None)  # the last who came
        # By the records of those who wait. Where all have come it counts from the last: before that the others only waited for it.
        self.age = max([comm.members[rank].heard - (came[rank] if missing else max(came.values())) for rank in came] + [0])
        self.timed_out = any(one.timed_out for one in ops.values())
        self.how_long = "by the newest entries"
        # Whose host has come to a later one of gloo has left this one, or failed in it.
        self.gone = [rank for rank, one in sorted(comm.members.items()) if rank not in ops and max(
            one.left, (one.entered or -1) if comm.by_host else -1) >= self.op.seq >= 0]
        self.is_left = bool(self.gone) and not comm.by_host and not self.op.name.startswith(ROOTED)

    def what(self) -> str:
        return f"{self.op.name} {self.op.seq if self.op.seq >= 0 else ''} of {self.comm.name}".replace("  ", " ")

    def text(self) -> str:
        return does(self.waiting, f"waits in {self.what()} {self.how_long}")

    def accuses(self, verdict: str, ranks: Iterable[int], *parts: str) -> Accusation:
        return Accusation(verdict, sorted(ranks), sentences(*parts), self.comm.name, self.op.seq if self.op.seq >= 0 else None, self.since)


class Graph:
    def __init__(self, job: Job) -> None:
        settle(job)
        self.known = {rank for comm in job.comms.values() for rank in comm.all_ranks()}
        self.absent = self.known - set(job.dumps)  # without a dump
        self.waits = [wait for comm in job.comms.values() for wait in [*self._collectives(comm), *self._sends(comm)]]
        # In what others have left: its own GPU stands still, whoever else is missing later.
        self.stuck = {rank for one in self.waits if one.is_left for rank in one.waiting}
        self.waiters = {rank for one in self.waits if one.missing for rank in set(one.waiting) - set(one.missing)}

    def _collectives(self, comm: Comm) -> List[Wait]:
        entered = {rank: comm.members[rank].entered for rank in comm.all_ranks()}
        pending: Dict[int, Dict[int, Op]] = {}
        for rank, member in comm.members.items():
            for seq in [seq for seq, op in member.ops.items() if not op.done]:
                pending.setdefault(seq, {})[rank] = member.ops[seq]
        waits = [Wait(comm, ops, [rank for rank, last in entered.items() if rank in self.absent or last is not None and last < seq])
                 for seq, ops in sorted(pending.items())]
        if telling := [one for one in waits if one.missing or one.is_left]:
            return telling
        if waits and any(op.started for op in waits[0].ops.values()):  # others are in what its GPU has not begun
            waits[0].missing = [rank for rank, op in waits[0].ops.items() if comm.members[rank].timed and not op.started]
        return waits[:1]

    @staticmethod
    def _sends(comm: Comm) -> Iterable[Wait]:
        """In one direction as many sends as receives are pending, or the side with fewer of them has not come."""
        pairs: Dict[Tuple[int, int], Dict[str, List[Op]]] = {}
        for rank, (kind, other, op) in [(rank, one) for rank, member in comm.members.items() for one in member.sends]:
            pair = (rank, other) if kind == "send" else (other, rank)
            pairs.setdefault(pair, {"send": [], "recv": []})[kind].append(op)
        for (source, to), both in pairs.items():
            waiter, other = (to, source) if len(both["recv"]) > len(both["send"]) else (source, to)
            more, fewer = sorted(both.values(), key=len, reverse=True)
            if len(more) > len(fewer):
                yield Wait(comm, {waiter: more[len(fewer)]}, [other])

    def circle(self) -> List[Tuple[int, Wait, int]]:
        """Who waits for whom all around; none where the way ends."""
        path: Dict[int, Tuple[int, Wait, int]] = {}
        rank = min(self.waiters)
        while rank not in path:
            ways = [(rank, one, other) for one in self.waits if rank in one.waiting and rank not in one.missing for other in one.missing]
            if not ways:
                return []
            path[rank] = min(ways, key=lambda way: (way[2] in self.absent, way[2], -way[1].age))
            rank = path[rank][2]
        return list(path.values())[list(path).index(rank):]


def _hangs(job: Job, hang: int, stopped: bool, silence: Dict[int, str], into: Judgement) -> None:
    """What hangs, and sentences on what may. `silence`: of whom nothing is heard, and how that is said."""
    graph = Graph(job)
    hanging = [one for one in graph.waits if one.timed_out or stopped or one.age >= hang]
    waits = hanging or ([] if job.ranks else graph.waits)  # which tell as of when
    if not waits:
        return
    for one in hanging:
        since = f"since {datetime.fromtimestamp(one.since / S, timezone.utc):%F %T} UTC" if one.since else "since the job stopped"
        one.how_long = f"{since} until its timeout" if one.timed_out else since if stopped else f"for {one.age / S:.0f} s"
    said = _accuse(graph, waits, silence)
    if said.verdict == "hang" and hanging:
        into.all.append(said)
    else:
        more = "" if hanging else "the dumps do not tell for how long: if the job goes on no more, --stopped says so"
        into.notes.append(sentences(said.sentence, more))
    if any(one.comm.by_host and set(one.missing) & set(said.ranks) for one in waits):
        into.notes.append("gloo does not record sends and receives: whoever has not come may wait in one.")


def _accuse(graph: Graph, waits: List[Wait], silence: Dict[int, str]) -> Accusation:
    # Who is waited for, in one of these, and waits for nobody; without a dump only if there are no others.
    ends = {rank for one in waits for rank in one.missing if rank not in graph.waiters or rank in graph.stuck}
    culprits = ends - graph.absent or ends
    if not culprits and not any(one.missing for one in waits):
        inside = [_inside(one, silence, "unknown") for one in waits]
        return min(inside, key=lambda one: (one.verdict != "hang" or not one.ranks, one.verdict == "hang"))
    # Who is waited for may be inside a collective that has all it needs, as far as is told.
    within = [one for one in waits if not one.missing and culprits & set(one.waiting) - graph.stuck]
    idle = culprits - {rank for one in within for rank in one.waiting}
    first = min(within if culprits and not idle else waits,
                key=lambda one: (one.op.seq < 0, -len(idle & set(one.missing)), one.since or 0))
    if not culprits:
        if not (circle := graph.circle()):
            return first.accuses("unknown", [], f"{first.text()}, for ranks that wait for others, which go on")
        steps = "; ".join(f"rank {rank} in {one.what()} for rank {other}" for rank, one, other in circle)
        return first.accuses("hang", [], f"{ranks_text([rank for rank, _, _ in circle])} wait for one another in a cycle, of which no "
                             f"rank is the culprit: {steps} ({first.how_long})")
    others = sorted(graph.waiters - set(first.waiting) - idle)
    chain = does(others, f"waits for {'it' if len(culprits) == 1 else 'them'} in turn") if others else ""
    if not idle:
        return _inside(first, silence, "hang", chain)
    no_dump, too_few = idle <= graph.absent, 2 * len(graph.absent) > len(graph.known)
    if no_dump and (too_few or len(idle) > 1):  # each of them may wait for another
        why = (f"only {len(graph.known - graph.absent)} of {len(graph.known)} ranks have left a dump: too few to tell who has not come" if
               too_few else f"{does(sorted(idle), 'has left')} no dump: which of them has not come is not told")
        return first.accuses("unknown" if too_few else "hang", [], f"{first.text()}; {why}", chain)
    said = f"{does(sorted(idle), 'has not come')}: {first.text()}"
    if idle <= set(first.waiting) & set(first.missing):  # their hosts have come
        rest = sorted(set(first.waiting) - idle)
        said = f"{does(rest, 'waits in')} {first.what()} {first.how_long}, which the GPU of {does(sorted(idle), 'has not begun')}"
    elsewhere = [f"{one.text()} for rank {rank}" for rank in sorted(idle - set(first.missing)) for one in waits if rank in one.missing]
    return first.accuses("hang", idle, said, *[silence[rank] for rank in sorted(idle) if rank in silence][:1],
                         "it has left no dump" if no_dump else "", *elsewhere[:1], chain)


def _inside(wait: Wait, silence: Dict[int, str], otherwise: str, *more: str) -> Accusation:
    """Where nobody who is known is missing. `otherwise`: the verdict if it is not told whether all have come."""
    group, gone = wait.comm.ranks, wait.gone
    silent = [rank for rank in wait.waiting if rank in silence]
    untold = sorted(set(group) - set(wait.waiting) - set(gone))
    if wait.is_left and 2 * len(wait.waiting) < len(group):
        return wait.accuses("hang", wait.waiting, f"{does(wait.waiting, 'has not left')} {wait.what()} {wait.how_long}, which "
                            f"{does(gone, 'has left')}: the GPU or its stream stands still", *more)
    if silent:
        return wait.accuses("hang", silent, f"{does(silent, 'has stopped inside a collective')}: {silence[silent[0]]}",
                            f"{wait.what()} has not ended {wait.how_long}", *more)
    if untold or gone or len(group) < 2:
        why = (f"whether {does(untold, 'has come')} is not told" if untold else "which ranks belong to it is not told" if not group else
               "no other rank of it is told" if not gone else does(gone, f"has left it{' or failed in it' * wait.comm.by_host}"))
        return wait.accuses(otherwise, [], f"{wait.text()}; {why}", *more)
    return wait.accuses("hang", [], f"all {len(group)} ranks have come to {wait.what()} and none has left it {wait.how_long}: no rank is to "
                        "blame by that", *more)
