"""One verdict of all that the sources have told. No clock is read here."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean as mean
from typing import Dict, List, Tuple

from ..torch.late import Times, late_rank
from .hangs import find_hangs
from .job import S, VERDICTS, Accusation, Comm, Job, does, ranks_text, sentences

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
        for seq in sorted({seq for member in comm.members.values() for seq in member.ops}):
            kinds: Dict[str, List[int]] = {}
            for rank in sorted(comm.members):
                if op := comm.members[rank].ops.get(seq):
                    kinds.setdefault(f"{op.name} {op.shape}".strip(), []).append(rank)
            if len(kinds) > 1:
                most = max(map(len, kinds.values()))
                has_majority = [len(ranks) for ranks in kinds.values()].count(most) == 1
                odd = sorted(rank for ranks in kinds.values() for rank in ranks if has_majority and len(ranks) < most)
                sides = "; ".join(does(ranks, f"calls {kind}") for kind, ranks in kinds.items())
                found.append(Accusation("mismatch", odd, f"Collective {seq} of {comm.name} is not the same on all ranks: {sides}.",
                                        comm.name, seq))
                break  # what follows it is a consequence
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
        for ranks, why in ((dead, "considers it dead"), (long, "does not reach it")):
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
    """In a collective everybody waits for the last one: the late rank is the one that waits least."""
    unknown, judged = [], False
    sources: List[Tuple[str, List[int], List[Trial]]] = []
    views = {rank: view.steps for rank, view in sorted(job.ranks.items()) if view.steps}
    if len(views) > 1:
        steps = [[own[step] for own in views.values()] for step in set.intersection(*map(set, views.values()))]
        sources.append(("", list(views), [(max(ended for ended, _, _ in own), [waits for _, _, waits in own]) for own in steps
                                          if all(waits >= 0 for _, _, waits in own)]))
    for comm in (comm for comm in job.of("flight recorder") if len(comm.members) > 1):
        shared = set.intersection(*(set(member.ops) for member in comm.members.values()))
        rows = [[member.ops[seq] for _, member in sorted(comm.members.items())] for seq in shared]
        sources.append((" of " + comm.name, sorted(comm.members), [
            (max(op.came or 0 for op in ops), [op.took / 1e6 for op in ops if op.took is not None]) for ops in rows
            if all(op.done and op.took is not None and op.name == ops[0].name for op in ops)]))
    for of, ranks, trials in sources:
        trials.sort()
        window = [one for one in trials if one[0] > trials[-1][0] - 240 * S]
        if len(window) < LEAST or window[-1][0] - window[0][0] < LEAST_SPAN:
            unknown.append(f"It is not known who comes last{of}: there are fewer than {LEAST} steps, or collectives with duration_ms "
                           f"(TORCH_NCCL_ENABLE_TIMING=1), that all ranks have ended, or they cover less than {LEAST_SPAN // S} s.")
            continue
        # By the rule of fsdpbench.torch.step(), in each quarter: equal ranks are not the same one's victims four times.
        judged, span = True, (window[-1][0] - window[0][0]) / 1e6
        quarters = [window[i * len(window) // 4:(i + 1) * len(window) // 4] for i in range(4)]
        means = [[mean(own) for own in zip(*(waits for _, waits in quarter))] for quarter in quarters]
        late = {late_rank({i: Times(span / len(window), None, None, own) for i, own in enumerate(one)}) for one in means}
        place = late.pop()
        if not late and place is not None:
            share = mean(mean(one[:place] + one[place + 1:]) - one[place] for one in means) * len(window) / span
            found.append(Accusation("late rank", [ranks[place]], f"Rank {ranks[place]}{of} is late: the others wait for it "
                                    f"{100 * share:.0f} % of the time, in each quarter of the last {span / 1e3:.0f} s.",
                                    of[4:], None, window[0][0], share))
    return list(dict.fromkeys(unknown)), judged
