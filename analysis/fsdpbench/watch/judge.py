"""One verdict of all that the sources have told. No clock is read here."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean as mean, median
from typing import Dict, List, Tuple

from ..torch.late import Times, late_rank
from .hangs import find_hangs
from .job import S, VERDICTS, Accusation, Comm, Job, capital, ranks_text, verb

LEAST = 24  # trials of a window that says who is late
LEAST_SPAN = 5 * S
Trial = Tuple[int, List[float]]  # when, and how long each rank waited, in ms


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
    named = {rank for one in found for rank in one.ranks}
    ranks = [rank for rank in silence if rank not in named]
    if ranks:
        found.append(Accusation("silent", f"{capital(ranks_text(ranks))} {verb(ranks, 'is', 'are')} silent. {silence[ranks[0]]}",
                                ranks))
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
        for seq in sorted({seq for member in comm.members.values() for seq in member.ops}):
            kinds: Dict[str, List[int]] = {}
            for rank in sorted(comm.members):
                if op := comm.members[rank].ops.get(seq):
                    kinds.setdefault(f"{op.name} {op.shape}".strip(), []).append(rank)
            if len(kinds) < 2:
                continue
            most = max(map(len, kinds.values()))
            has_majority = [len(ranks) for ranks in kinds.values()].count(most) == 1
            odd = sorted(rank for ranks in kinds.values() for rank in ranks if has_majority and len(ranks) < most)
            sides = "; ".join(f"{ranks_text(ranks)} {verb(ranks, 'calls', 'call')} {kind}" for kind, ranks in kinds.items())
            found.append(Accusation("mismatch", f"Collective {seq} of {comm.name} is not the same on all ranks: {sides}.", odd,
                                    comm.name, seq))
            break  # what follows it is a consequence
    return found


def _counts(job: Job, hang: int, stopped: bool, found: List[Accusation], unknown: List[str]) -> None:
    """NCCL's RAS tells how many collectives hosts have handed over, not whether they have ended."""
    comms, now = job.of("NCCL RAS"), job.counted or 0
    moved = max((one.moved or 0 for comm in comms for one in comm.members.values()), default=now)
    has_stood = stopped or (max((comm.looks for comm in comms), default=0) > 1 and now - moved >= hang)
    how = "the job has stopped" if stopped else f"no count of the job has moved for {(now - moved) / S:.0f} s"

    def who(comm: Comm, ranks: List[int]) -> str:
        process = comm.members[ranks[0]].process if len(ranks) == 1 else ""
        return capital(ranks_text(ranks)) + (f" ({process})" if process else "")
    behind: List[Tuple[Comm, List[int]]] = []
    waiting = set()
    for comm in comms:
        ends = min((one.ending for one in comm.members.values() if one.ending is not None), default=None)
        lost = {rank: one for rank, one in sorted(comm.members.items()) if one.lost and (ends is None or ends > one.lost)}
        dead = [rank for rank, one in lost.items() if one.dead]
        gone = [rank for rank, one in lost.items() if not one.dead and (stopped or now - (one.lost or 0) >= hang)]
        for ranks, why in ((dead, f"considers {verb(dead, 'its process', 'their processes')} dead"),
                           (gone, f"does not reach {verb(gone, 'it', 'them')}")):
            if ranks:
                found.append(Accusation("silent", f"{who(comm, ranks)} of {comm.name} {verb(ranks, 'is', 'are')} silent: "
                                        f"NCCL RAS {why}.", ranks, comm.name))
        if recent := [rank for rank in lost if rank not in dead + gone]:
            unknown.append(f"NCCL RAS does not reach {ranks_text(recent)} of {comm.name}; further looks tell whether that lasts.")
        unknown += [f"Rank {rank} of {comm.name} reports NCCL's error {one.error}." for rank, one in comm.members.items()
                    if one.error not in (0, 7)]  # 7: in progress
        most = max((one.count or 0 for one in comm.members.values()), default=0)
        late = [rank for rank, one in sorted(comm.members.items()) if one.count is not None and one.count < most]
        if late and has_stood and ends is None and not any(one.starting for one in comm.members.values()):
            behind.append((comm, late))
            waiting |= {one.process for one in comm.members.values() if one.count == most} - {""}
    if not comms or any(one.verdict == "silent" for one in found):
        return  # the others wait for whom RAS does not reach
    named = [(comm, idle) for comm, late in behind if (idle := [one for one in late if comm.members[one].process not in waiting])]
    for comm, ranks in named:
        most = max(one.count or 0 for one in comm.members.values())
        ahead = [rank for rank, one in sorted(comm.members.items()) if one.count == most]
        found.append(Accusation("hang", f"{who(comm, ranks)} {verb(ranks, 'has', 'have')} not come: {verb(ranks, 'it has', 'they have')}"
                                f" handed over {comm.members[ranks[0]].count} collectives of {comm.name}, {ranks_text(ahead)} "
                                f"{verb(ahead, 'has', 'have')} handed over {most}, and {how}.", ranks, comm.name, most, moved))
    if behind and not named:
        ways = "; ".join(f"for {ranks_text(ranks)} of {comm.name}" for comm, ranks in behind)
        found.append(Accusation("hang", f"Processes wait for one another in a cycle across communicators, of which no rank is the "
                                f"culprit: {ways}; {how}.", [], behind[0][0].name, None, moved))
    if not any(one.verdict == "hang" for one in found):
        unknown.append(f"NCCL RAS does not tell whether the job hangs: {how}, and all ranks of a communicator have handed over "
                       "equally many collectives, or it is not told." if has_stood else
                       "It is not known who comes last: NCCL RAS counts the collectives that ranks have handed over, not those "
                       "that have ended.")


def _late(job: Job, found: List[Accusation]) -> Tuple[List[str], bool]:
    """In a collective everybody waits for the last one: the late rank is the one that waits least."""
    unknown, judged = [], False
    sources: List[Tuple[str, List[int], List[Trial]]] = []
    for comm in job.of("flight recorder"):
        if not comm.by_host and all(op.took is None for member in comm.members.values() for op in member.ops.values()):
            unknown += ["It is not known who comes last: the dumps have no duration_ms, which TORCH_NCCL_ENABLE_TIMING=1 "
                        "adds."] * (comm.size != 1)
        elif len(comm.members) > 1:
            sources.append((" of " + comm.name, sorted(comm.members), _trials(job, comm)))
    views = {rank: view.steps for rank, view in sorted(job.ranks.items()) if view.steps}
    if len(views) > 1:
        steps = [[own[step] for own in views.values()] for step in set.intersection(*map(set, views.values()))]
        sources.insert(0, ("", list(views), sorted((max(ended for ended, _, _ in own), [waits for _, _, waits in own])
                                                   for own in steps if all(waits >= 0 for _, _, waits in own))))
    for of, ranks, trials in sources:
        window = [one for one in trials if one[0] > trials[-1][0] - 240 * S]
        if len(window) < LEAST or window[-1][0] - window[0][0] < LEAST_SPAN:
            unknown.append(f"It is not known who comes last{of}: there are fewer than {LEAST} steps or collectives that all ranks "
                           f"have ended, or they cover less than {LEAST_SPAN // S} s.")
            continue
        # By the rule of fsdpbench.torch.step(), in each quarter: equal ranks are not the same one's victims four times.
        judged, span = True, (window[-1][0] - window[0][0]) / 1e6
        quarters = [window[i * len(window) // 4:(i + 1) * len(window) // 4] for i in range(4)]
        means = [[mean(own) for own in zip(*(waits for _, waits in quarter))] for quarter in quarters]
        late = {late_rank({i: Times(span / len(window), None, None, own) for i, own in enumerate(one)}) for one in means}
        place = late.pop()
        if not late and place is not None:
            share = mean(mean(one[:place] + one[place + 1:]) - one[place] for one in means) * len(window) / span
            found.append(Accusation("late rank", f"Rank {ranks[place]}{of} is late: the others wait for it {100 * share:.0f} % of the "
                                    f"time, in each quarter of the last {span / 1e3:.0f} s.", [ranks[place]], of[4:], None, window[0][0], share))
    return list(dict.fromkeys(unknown)), judged


def _trials(job: Job, comm: Comm) -> List[Trial]:
    """Whoever comes last is late where hosts tell when they come; where GPUs tell how long they were in it, who is in it least."""
    trials, members = [], [comm.members[rank] for rank in sorted(comm.members)]
    for seq in set.intersection(*(set(member.ops) for member in members)):
        ops = [member.ops[seq] for member in members]
        times = [op.came if comm.by_host else op.took for op in ops]
        if all(op.done and (op.name, op.shape) == (ops[0].name, ops[0].shape) for op in ops) and None not in times:
            waits = [max(times) - time if comm.by_host else time for time in times]  # type: ignore
            trials.append((max(op.came or op.told or 0 for op in ops), [one / 1e6 for one in waits]))
    hosts = {job.ranks[rank].host if rank in job.ranks else "" for rank in comm.members}
    if comm.by_host and (len(hosts) > 1 or "" in hosts) and trials:
        # Clocks of hosts differ: what a rank is late by in the middle counts as its clock's.
        clocks = [median(waits[i] - median(waits) for _, waits in trials) for i in range(len(members))]
        trials = [(time, [own - clock for own, clock in zip(waits, clocks)]) for time, waits in trials]
    return sorted(trials)
