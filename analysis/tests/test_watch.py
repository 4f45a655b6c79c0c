"""fsdpbench watch: made dumps and answers in the shapes that their sources give them, and what is said of them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import socket
import threading
import unittest
from typing import Any, Dict, List, Optional, Tuple

import support

from fsdpbench.analysis.__main__ import main
from fsdpbench.analysis.text import ranks_text
from fsdpbench.watch.job import S, Job
from fsdpbench.watch.judge import Judgement, judge
from fsdpbench.watch.sources import Sources

T = 1_758_610_505 * S  # when dumps are from


def entry(group: Tuple[str, str], number: int, seq: int, name: str = "nccl:all_reduce", state: str = "scheduled",
          **more: Any) -> Dict[str, Any]:
    """As FlightRecorderDetail.hpp writes it."""
    return {"record_id": seq, "pg_id": number, "process_group": group, "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
            "profiling_name": name, "time_created_ns": T + seq, "input_sizes": [[8]], "input_dtypes": ["Float"],
            "output_sizes": [[8]], "output_dtypes": ["Float"], "state": state, "retired": False, "timeout_ms": 600000,
            "is_p2p": False, "time_discovered_started_ns": None, "time_discovered_completed_ns": None, **more}


def dump(groups: Dict[str, Tuple[str, List[int]]], status: Dict[int, Tuple[int, int]], entries: List[Dict[str, Any]],
         version: str = "2.9") -> Dict[str, Any]:
    """`status`: what was entered and left last, by number of the group in the process."""
    return {"version": version, "nccl_version": "2.27.3", "entries": entries,
            "pg_config": {name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in groups.items()},
            "pg_status": {str(number): {"last_enqueued_collective": entered, "last_started_collective": -1,
                                        "last_completed_collective": left} for number, (entered, left) in status.items()}}


def as_json(data: Dict[str, Any]) -> Dict[str, Any]:
    """What is different in JSON: numbers of pg_status are text, no time is 0, no entries are left out."""
    for status in data["pg_status"].values():
        status.update({key: str(value) for key, value in status.items()})
    for one in data["entries"]:
        one.update({key: 0 for key in one if key.startswith("time_discovered") and one[key] is None})
    if not data["entries"]:
        del data["entries"]
    return data


class Watched(support.FolderTest):
    def put(self, name: str, data: Any, is_json: bool = False) -> None:
        (self.folder / name).write_bytes(json.dumps(as_json(data)).encode() if is_json else pickle.dumps(data, 2))

    def judged(self, stopped: bool = True, hang: int = 12) -> Judgement:
        job = Job()
        Sources([str(self.folder)]).read(job, True)
        return judge(job, job.newest(), hang * S, stopped)

    def hangs(self, ranks: List[int], *parts: str) -> None:
        said = self.judged()
        self.assertEqual((said.verdict, said.all and said.all[0].ranks), ("hang", ranks), said)
        self.assertEqual(sum(one.verdict == "hang" for one in said.all), 1, said.all)
        for part in parts:
            self.assertIn(part, said.sentence)

    def unknown(self, *parts: str) -> None:
        said = self.judged()
        self.assertEqual((said.verdict, said.all), ("unknown", []), said)
        for part in parts:
            self.assertIn(part, " ".join([said.sentence, *said.notes]))


WORLD = ("default_pg", [0, 1, 2, 3])


class Dumps(Watched):
    def active_only(self, is_json: bool) -> None:
        """Rank 2 has entered 7 and ended it, as all have; the others wait in 8 to 10. It has no entry at all."""
        for rank in range(4):
            pair = ("TP", [0, 1] if rank < 2 else [2, 3])
            groups = {"0": WORLD, str(3 + rank // 2): pair}
            waits = [entry(("0", "default_pg"), 0, seq) for seq in (8, 9, 10)]
            ahead = [entry((str(3 + rank // 2), "TP"), 4, 21)]
            entries = [] if rank == 2 else waits + (ahead if rank < 2 else [])
            status = {0: (7 if rank == 2 else 10, 7), 4: (20 if rank > 1 else 21, 20)}
            self.put(f"_dump_{rank}", dump(groups, status, entries), is_json)

    def test_a_missing_entry_is_no_missing_member_where_only_active_ones_are_dumped(self) -> None:
        for is_json in (False, True):
            self.active_only(is_json)
            self.hangs([2], "Rank 2 has not come: ranks 0, 1, 3 wait in all_reduce 8 of 0 (default_pg) of nccl since 2025-09-23 "
                            "06:55:05 UTC")

    def test_without_counters_a_missing_entry_tells_nothing(self) -> None:
        self.active_only(False)
        for rank in range(4):
            data = pickle.loads((self.folder / f"_dump_{rank}").read_bytes())
            data["pg_status"] = {}
            if rank == 2:
                data["entries"] = [entry(("5", "PP"), 9, 3)]
            self.put(f"_dump_{rank}", data)
        self.unknown("whether rank 2 has come is not told")

    def test_whoever_waits_elsewhere_is_no_culprit(self) -> None:
        # Rank 1 has not come to the world's 5, because it waits for rank 0 in a pair.
        groups = {"0": WORLD, "1": ("TP", [0, 1])}
        for rank in range(4):
            own = {0: [], 1: [entry(("1", "TP"), 1, 9)]}.get(rank, [entry(("0", "default_pg"), 0, 5)])
            status = {0: (4 if rank < 2 else 5, 4), **({1: (8 + rank, 8)} if rank < 2 else {})}
            self.put(f"_dump_{rank}", dump({name: one for name, one in groups.items() if rank in one[1]}, status, own))
        self.hangs([0], "Rank 0 has not come")

    def test_a_cycle_across_communicators_has_no_culprit(self) -> None:
        groups = {"0": WORLD, "1": ("A", [0, 1]), "2": ("B", [0, 1])}
        for rank in range(2):
            status = {1: (5 - rank, 4), 2: (8 + rank, 8)}
            own = entry(("1", "A"), 1, 5) if rank == 0 else entry(("2", "B"), 2, 9)
            self.put(f"_dump_{rank}", dump(groups, status, [own]))
        self.hangs([], "Ranks 0, 1 wait for one another in a cycle", "rank 0 in all_reduce 5 of 1 (A)", "rank 1 in all_reduce 9 of 2")

    def test_if_all_have_come_nobody_is_to_blame_and_few_are_never_all(self) -> None:
        for rank in range(4):
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5)]))
        self.hangs([], "All 4 ranks have come to all_reduce 5 of 0")
        for rank in range(1, 4):
            (self.folder / f"_dump_{rank}").unlink()
        self.unknown("only 1 of 4 ranks have left a dump")

    def test_a_rank_without_a_dump_is_named_only_if_nobody_else_is_behind(self) -> None:
        for rank in range(3):
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5)]))
        self.hangs([3], "Rank 3 has not come", "left no dump")
        self.put("_dump_1", dump({"0": WORLD}, {0: (4, 4)}, []))
        self.hangs([1])

    def test_of_two_ranks_without_a_dump_either_may_wait_for_the_other(self) -> None:
        # Rank 3 has not come to the world's 5 because it waits for rank 2 in a pair; neither could write.
        for rank in range(2):
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5)]))
        self.hangs([], "Ranks 0, 1 wait in all_reduce 5", "ranks 2, 3 have left no dump: which of them has not come is not told")

    def test_a_rank_that_does_not_leave_what_others_have_left(self) -> None:
        for rank in range(4):
            own = [entry(("0", "default_pg"), 0, 5)] if rank == 3 else []
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5, 4 if rank == 3 else 5)}, own))
        self.hangs([3], "Rank 3 has not left all_reduce 5")

    def test_two_gpus_that_stand_still_at_different_places(self) -> None:
        # Ranks 1 and 3 have not ended 4, which the others have; their hosts have come to 6 and to 5, those of the others to 8.
        for rank, entered in enumerate((8, 6, 8, 5)):
            first = 4 if rank in (1, 3) else 6
            entries = [entry(("0", "default_pg"), 0, seq) for seq in range(first, entered + 1)]
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (entered, first - 1)}, entries))
        self.hangs([1, 3], "Ranks 1, 3 have not come: ranks 0, 2 wait in all_reduce 7")

    def test_a_gpu_that_has_not_begun_what_others_are_in(self) -> None:
        for rank in range(4):
            before = entry(("0", "default_pg"), 0, 4, state="completed", time_discovered_started_ns=T, retired=True)
            own = entry(("0", "default_pg"), 0, 5, state="started", time_discovered_started_ns=T)
            own.update({"state": "scheduled", "time_discovered_started_ns": None} if rank == 2 else {})
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5, 4)}, [before, own]))
        self.hangs([2])

    def test_sends_without_a_receive(self) -> None:
        name, groups = {0: "nccl:send 0->1", 1: "nccl:recv 1<-0"}, {"0": ("default_pg", [4, 5]), "7": ("PP", [4, 5])}
        for rank in (0, 1):
            entries = [entry(("7", "PP"), 2, 3, name[rank], is_p2p=True, p2p_seq_id=seq) for seq in range(2 - rank)]
            self.put(f"_dump_{rank + 4}", dump(groups, {2: (9, 9)}, entries))
        self.hangs([5], "Rank 5 has not come: rank 4 waits in send 0->1 of 7 (PP)")

    def test_a_circle_of_sends_that_a_collective_waits_for_has_no_culprit(self) -> None:
        groups = {"0": WORLD, "7": ("PP", [1, 2])}
        for rank in range(4):
            name = {1: "nccl:send 0->1", 2: "nccl:send 1->0"}.get(rank)
            own = entry(("7", "PP"), 2, 3, name, is_p2p=True, p2p_seq_id=1) if name else entry(("0", "default_pg"), 0, 5)
            status = {0: (4, 4), 2: (3, 2)} if name else {0: (5, 4)}
            self.put(f"_dump_{rank}", dump({key: one for key, one in groups.items() if rank in one[1]}, status, [own]))
        self.hangs([], "wait for one another in a cycle, of which no rank is the culprit", "rank 1 in send 0->1 of 7 (PP)")

    def test_what_gloo_has_retired_may_have_failed(self) -> None:
        # Rank 2 died in 5, of which an older dump is left; ranks 1 and 3 have got an error, and rank 0 still waits.
        for rank in range(8):
            own = entry(("0", "default_pg"), 0, 5, "gloo:all_reduce", retired=rank not in (0, 2))
            data = dump({"0": ("default_pg", list(range(8)))}, {0: (5, 5 if rank not in (0, 2) else 4)}, [own])
            self.put(f"_dump_{rank}", data)
        self.unknown("ranks 1, 3 to 7 have left it or failed in it")
        for rank in range(8):  # NCCL tells which of them have ended
            own = entry(("0", "default_pg"), 0, 5, state="scheduled" if rank in (0, 2) else "completed", retired=rank not in (0, 2))
            self.put(f"_dump_{rank}", dump({"0": ("default_pg", list(range(8)))}, {0: (5, 5 if rank not in (0, 2) else 4)}, [own]))
        self.hangs([0, 2], "Ranks 0, 2 have not left all_reduce 5")

    def test_whoever_gloo_does_not_know_to_have_come_may_wait_in_a_receive(self) -> None:
        for rank in range(4):
            own = entry(("0", "default_pg"), 0, 4 if rank == 1 else 5, "gloo:all_reduce", retired=rank == 1)
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {}, [own]))
        self.hangs([1], "Rank 1 has not come")
        self.assertIn("gloo does not record sends and receives", " ".join(self.judged().notes))

    def test_counters_with_sends_in_them_are_not_read(self) -> None:
        for rank in range(4):
            entries = [entry(("0", "default_pg"), 0, 5, "nccl:send 0->1" if rank == 0 else "nccl:all_reduce", is_p2p=rank == 0)]
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (2000 if rank else 3, 1)}, entries))
        self.assertNotIn(0, [rank for one in self.judged().all for rank in one.ranks if one.verdict == "hang"][1:])

    def test_other_collectives_and_sizes_are_a_mismatch(self) -> None:
        for rank in range(4):
            name = "nccl:broadcast" if rank == 3 else "nccl:all_reduce"
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5, name)]))
        said = self.judged()
        self.assertEqual((said.verdict, said.all[0].ranks, said.all[0].sequence), ("mismatch", [3], 5), said)
        self.put("_dump_3", dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5, input_sizes=[[9]])]))
        said = self.judged()
        self.assertEqual((said.verdict, said.all[0].ranks), ("mismatch", [3]), said)
        self.assertIn("Float [9]", said.sentence)

    def test_old_formats_count_all_operations_together_and_have_no_status(self) -> None:
        for rank in range(4):
            entries = [entry(("0", "default_pg"), 0, seq, state="completed", retired=True) for seq in (1, 2)]
            entries += [entry(("0", "default_pg"), 0, 3)] if rank != 1 else []
            data = dump({"0": WORLD}, {}, entries, "2.0")
            del data["pg_status"]
            for one in entries:
                one["seq_id"] = one.pop("collective_seq_id")
            self.put(f"nccl_trace_rank_{rank}", data)
        self.hangs([1])

    def test_a_timeout_is_a_hang_without_being_told_that_the_job_stopped(self) -> None:
        for rank in range(4):
            own = [entry(("0", "default_pg"), 0, 5, retired=True)] if rank else []
            self.put(f"_dump_{rank}", dump({"0": WORLD}, {0: (5 if rank else 4, 4)}, own))
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all[0].ranks), ("hang", [0]), said)
        self.assertIn("until its timeout", said.sentence)

    def test_dumps_that_do_not_tell_for_how_long_are_unknown(self) -> None:
        self.active_only(False)
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all), ("unknown", []))
        self.assertIn("Rank 2 has not come", said.sentence)
        self.assertIn("--stopped says so", said.sentence)

    def test_ranks_that_go_on_meanwhile_are_not_named(self) -> None:
        # Rank 1 has not come for 40 s; ranks 2 and 3 train on, and their dumps are of different moments.
        groups = {"1": ("A", [0, 1]), "2": ("B", [2, 3])}
        for rank in range(4):
            key = ("1", "A") if rank < 2 else ("2", "B")
            own = {0: [(5, -40)], 1: [], 2: [(9, 0)], 3: []}[rank]
            part = dump({key[0]: groups[key[0]]}, {0: (4 + (own != []) + 4 * (rank > 1), 4 + 4 * (rank > 1))},
                        [entry(key, 0, seq, time_created_ns=T + ago * S) for seq, ago in own])
            self.put(f"flight_{rank}", {"fsdpbench": {"rank": rank, "ranks": 4, "host": "a", "written_ns": T}, "dumps": [part]})
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all[0].ranks), ("hang", [1]), said)
        # What rank 1 waits for itself has just begun: whose turn it is will be seen.
        part["pg_config"]["3"] = {"name": "3", "desc": "C", "ranks": "[1, 3]"}
        groups["3"] = ("C", [1, 3])
        for rank, own, status in ((1, [entry(("3", "C"), 1, 7)], {0: (4, 4), 1: (7, 6)}), (3, [], {0: (8, 8), 1: (6, 6)})):
            part = dump({key: one for key, one in groups.items() if rank in one[1]}, status, own)
            self.put(f"flight_{rank}", {"fsdpbench": {"rank": rank, "ranks": 4, "host": "a", "written_ns": T}, "dumps": [part]})
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all), ("unknown", []), said)

    def test_a_communicator_all_of_whose_ranks_are_inside_hides_no_other(self) -> None:
        groups = {"0": WORLD, "1": ("TP", [0, 1])}
        for rank in range(4):
            own = [entry(("1", "TP"), 1, 9)] if rank < 2 else [entry(("0", "default_pg"), 0, 5)]
            status = {0: (4 if rank < 2 else 5, 4), **({1: (9, 8)} if rank < 2 else {})}
            self.put(f"_dump_{rank}", dump({name: one for name, one in groups.items() if rank in one[1]}, status, own))
        self.hangs([], "All 2 ranks have come to all_reduce 9 of 1 (TP)", "Ranks 2, 3 wait for them in turn")


class Hostile(Watched):
    def refused(self, data: bytes, sentence: str, name: str = "_dump_0") -> None:
        (self.folder / name).write_bytes(data)
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = main(["watch", "--once", "--", str(self.folder / name)])
        self.assertEqual((code, out.getvalue()), (2, ""))
        self.assertIn(sentence, errors.getvalue())
        self.assertEqual(errors.getvalue().count("\n"), 1)

    def test_a_pickle_runs_nothing(self) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(folder / "owned"),)
        folder = self.folder
        for protocol in range(2, 6):
            self.refused(pickle.dumps({"entries": [Evil()]}, protocol), "nothing of it is run")
        self.refused(b"\x80\x02cos\nsystem\n(X\x02\0\0\0lstR.", "nothing of it is run")
        self.assertFalse((folder / "owned").exists())

    def test_files_that_end_early_nest_without_end_or_ask_for_too_much(self) -> None:
        whole = pickle.dumps(dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5)]), 2)
        for end in range(1, len(whole) - 1, 7):
            self.refused(whole[:end], "is a pickle that is not read: it is truncated.")
        as_text = json.dumps(as_json(dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5)]))).encode()
        for end in range(1, len(as_text), 7):
            self.refused(as_text[:end], "is no JSON: it is truncated.")
        self.refused(as_text.replace(b":", b"", 1), "is no JSON.")
        deep = b"\x80\x02" + b"(" * 100_000 + b"." * 3
        tuples = b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s."  # a key that hashes without end
        bomb = b"\x80\x02]" + b"r\xff\xff\xff\xff" + b"."  # a place far out in the memo
        lists = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
        for data in (deep, tuples, b"\x80", b"\x80\x05\x8e" + b"\xff" * 7 + b"\x00."):
            self.refused(data, "is a pickle that is not read")
        for data in (bomb, lists):
            self.refused(data, "is no dump of a flight recorder")
        self.refused(b"{" * 100_000, "is no JSON")
        self.refused(b'{"entries":' + b"[" * 100_000, "is no JSON")
        self.refused(b"\xff\xfe\x00", "is neither JSON nor a pickle")
        self.refused(b"", "is empty")

    def test_values_of_any_kind_end_in_a_sentence(self) -> None:
        """Nothing of it raises, whatever stands where."""
        luck = random.Random(5)
        strange = [None, True, -1, 1 << 200, 1e308, float("nan"), "", "x" * 10_000, "9" * 5000, [], {}, [[]], {"a": []}, [None] * 3]
        for _ in range(400):
            data = dump({"0": WORLD}, {0: (5, 4)}, [entry(("0", "default_pg"), 0, 5), entry(("0", "default_pg"), 0, 6)])
            place: Any = data
            while isinstance(place, (dict, list)) and place:
                key = luck.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if luck.random() < 0.4 or not isinstance(place[key], (dict, list)):
                    place[key] = luck.choice(strange)
                    break
                place = place[key]
            (self.folder / "_dump_0").write_text(json.dumps(data))
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self.assertIn(main(["watch", "--once", "--stopped", "--", str(self.folder)]), (0, 2, 5, 11), data)


def ras_rank(rank: int, count: Optional[int], comma: str = ",", **status: Any) -> str:
    """As src/ras/client_support.cc of NCCL prints it; without a count: of a missing rank."""
    told = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False, **status}
    if count is None:
        told = {"unresponsive": True, "considered_dead": False, **status}
    rows = ",\n".join(f'            "{key}": {json.dumps(value)}' for key, value in told.items())
    counts = "" if count is None else f',\n          "collective_counts": {{\n            "AllGather": {count},\n            "AllReduce": 1\n          }}'
    return (f'        {{\n          "rank": {rank},\n          "host": "10.0.0.2",\n          "pid": {4700 + rank},\n          "cuda_dev": {rank},\n'
            f'          "nvml_dev": {rank}{"," if count is not None else comma}\n          "status": {{\n{rows}\n          }}{counts}\n        }}')


def ras(counts: List[Optional[int]], second: int = 0, comma: str = ",", name: str = "0xa", **status: Any) -> str:
    here = ",\n".join(ras_rank(rank, count, **status) for rank, count in enumerate(counts) if count is not None)
    gone = ",\n".join(ras_rank(rank, None, comma) for rank, count in enumerate(counts) if count is None)
    return ('{\n  "nccl_version": "2.28.9",\n  "cuda_runtime_version": 13000,\n  "cuda_driver_version": 13000,\n'
            f'  "timestamp": "2025-12-19 13:{second // 60:02}:{second % 60:02}",\n  "communicators_count": 1,\n  "communicators": [\n    {{\n      "hash": "{name}",\n'
            f'      "secondary_hash": "0x1:0x2",\n      "size": {len(counts)},\n      "ranks_count": 0,\n      "missing_ranks_count": 0,\n'
            f'      "ranks": [\n{here}\n      ],\n      "missing_ranks": [\n{gone}\n      ]\n    }}\n  ],\n  "ras": {{\n'
            '    "collection_time_sec": 0.001,\n    "timeouts_count": 0\n  }\n}\n')


TEXT = """NCCL version 2.27.7 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  {errors}

Errors
======

{wrong}Warnings
========

{warning}"""


class Ras(Watched):
    def write(self, *answers: str) -> None:
        (self.folder / "ras.json").write_text("".join(answers))

    def test_an_answer_without_the_comma_before_a_missing_ranks_status(self) -> None:
        for comma in ("", ","):
            self.write(ras([8, 8]), *(ras([8, None], second, comma) for second in range(5, 30, 5)))
            said = self.judged(stopped=False)
            self.assertEqual((said.verdict, said.all[0].ranks, said.notes), ("silent", [1], []), said)

    def test_a_rank_is_behind_once_nothing_moves(self) -> None:
        self.write(ras([8, 8, 7, 8], 0), ras([8, 8, 7, 8], 5))
        self.assertEqual(self.judged(stopped=False).verdict, "unknown")
        self.write(ras([8, 8, 7, 8], 0), ras([8, 8, 7, 8], 60))
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all[0].ranks), ("hang", [2]), said)
        self.assertIn("Rank 2 (process 4702 on 10.0.0.2, GPU 2) has not come: it has handed over 8 collectives of 0xa, ranks 0, 1, 3",
                      said.sentence)
        self.write(ras([8, 8, 7, 8], 0), ras([9, 9, 8, 9], 60))
        self.assertEqual(self.judged(stopped=False).verdict, "unknown")

    def test_equal_counts_and_ending_communicators_accuse_nobody(self) -> None:
        self.write(ras([8, 8, 8, 8], 0), ras([8, 8, 8, 8], 60))
        self.unknown("whether the job hangs")
        self.write(ras([8, 8, 7, 8], destroy_flag=True))
        self.unknown("whether the job hangs")

    def test_whoever_waits_in_another_communicator_is_not_named(self) -> None:
        both = json.loads(ras([8, 7]))
        other = json.loads(ras([5, 6], name="0xb"))["communicators"][0]
        third = json.loads(ras([5, 5, 6, 6], name="0xc"))["communicators"][0]
        both["communicators"] += [other]
        self.write(json.dumps(both))
        self.hangs([], "in a cycle across communicators", "for rank 1 of 0xa; for rank 0 of 0xb")
        both["communicators"] = [both["communicators"][0], third]
        self.write(json.dumps(both))
        self.assertIn([1], [one.ranks for one in self.judged().all])

    def test_text_names_dead_and_missing_ranks(self) -> None:
        wrong = ("DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
                 "  Process 4703 on node 10.0.0.2 managing GPU 3\n\n"
                 "#0-0 (00000000000000ab) INCOMPLETE\n  Missing communicator data from 1 rank\n"
                 "  Rank 3 -- GPU 3 managed by process 4703 on node 10.0.0.2\n\n")
        (self.folder / "ras.txt").write_text(TEXT.format(errors="INCOMPLETE", wrong=wrong, warning=""))
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all[0].ranks), ("silent", [3]), said)
        self.assertIn("Rank 3 (process 4703 on 10.0.0.2, GPU 3) of 0xab is silent: NCCL RAS considers its process dead", said.sentence)

    def test_text_names_those_that_have_launched_less(self) -> None:
        for what in ("AllGather operation counts", "collective operation counts"):  # 2.25 and later, 2.24
            warning = (f"#0-0 (00000000000000ab) MISMATCH\n  Communicator ranks have different {what}\n"
                       "  7 ranks have launched up to operation 250\n  Rank 5 has launched up to operation 249 -- GPU 5 managed by "
                       "process 4705 on node 10.0.0.2\n\n")
            (self.folder / "ras.txt").write_text(TEXT.format(errors="MISMATCH", wrong="", warning=warning))
            said = self.judged()
            self.assertEqual((said.verdict, said.all[0].ranks), ("hang", [5]), said)
            self.assertEqual(self.judged(stopped=False).verdict, "unknown")
        (self.folder / "ras.txt").write_text(TEXT.format(errors="OK", wrong="", warning=""))
        self.unknown("whether the job hangs")

    def test_whatever_is_changed_in_an_answer_ends_in_a_sentence(self) -> None:
        luck = random.Random(3)
        for whole in (ras([8, 8, None, 7]), TEXT.format(errors="OK", wrong="", warning="#0-0 (ab) MISMATCH\n  2 ranks have launched "
                      "up to operation 9\n  Rank 1 -- GPU 1 managed by process 4 on node a\n")):
            for _ in range(200):
                begin = luck.randrange(len(whole))
                text = whole[:begin] + luck.choice(["", "{", "]", '"', "-1", "1e999", "null", "\0", "9" * 30]) + whole[begin + luck.randrange(9):]
                (self.folder / "ras.json").write_text(text)
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    self.assertIn(main(["watch", "--once", "--", str(self.folder)]), (2, 5, 11), text)

    def test_a_service_of_an_old_nccl_answers_with_text(self) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def serve() -> None:
            with server.accept()[0] as caller, caller.makefile("rwb") as stream:
                for line in stream:
                    stream.write({b"CLIENT PROTOCOL 2\n": b"SERVER PROTOCOL 2\n", b"TIMEOUT 5\n": b"OK\n"}.get(line, b"ERROR: Unknown\n"))
                    stream.flush()
                    if line == b"STATUS\n":
                        stream.write(TEXT.format(errors="OK", wrong="", warning="").encode())
                        return
        threading.Thread(target=serve, daemon=True).start()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(["watch", "--once", "--stopped", "--json", f"--ras=127.0.0.1:{server.getsockname()[1]}"])
        self.assertEqual((code, json.loads(out.getvalue())["verdict"]), (11, "unknown"))


class Steps(Watched):
    def write(self, waits: List[float], steps: int = 60) -> None:
        """Ranks of one host whose steps take 100 ms, with so much waiting in the middle."""
        luck = random.Random(1)
        for rank, middle in enumerate(waits):
            rows = [{"fsdpbench_step": step, "rank": rank, "ranks": len(waits), "host": "a", "ended_ns": T + step * S // 5, "step_ms": 200,
                     "gathers_ms": middle * luck.uniform(0.8, 1.2), "reductions_ms": luck.uniform(0, 9)} for step in range(1, steps)]
            (self.folder / f"steps_{rank}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")

    def test_the_late_rank_waits_least(self) -> None:
        self.write([60, 60, 2, 60])
        said = self.judged(stopped=False)
        self.assertEqual((said.verdict, said.all[0].ranks), ("late rank", [2]), said)
        self.assertGreater(said.all[0].share, 0.1)

    def test_equal_ranks_are_clean_and_few_steps_tell_nothing(self) -> None:
        self.write([50, 50, 50, 50])
        self.assertEqual(self.judged(stopped=False).verdict, "clean")
        self.write([60, 60, 2, 60], 20)
        self.unknown("fewer than 24 steps")

    def test_equal_ranks_are_hardly_ever_accused(self) -> None:
        for seed in range(40):
            luck = random.Random(seed)
            job = Job()
            for rank in range(8):
                (self.folder / f"steps_{rank}.jsonl").write_text("".join(json.dumps(
                    {"fsdpbench_step": step, "rank": rank, "ranks": 8, "ended_ns": T + step * S // 5, "step_ms": 200,
                     "own_ms": luck.paretovariate(1.5) * 10 + (400 if step == 30 else 0)}) + "\n" for step in range(300)))
            Sources([str(self.folder)]).read(job, True)
            self.assertEqual(judge(job, job.newest(), 12 * S, False).all, [])

    def test_a_rank_that_falls_silent_while_others_go_on(self) -> None:
        self.write([50, 50, 50])
        lines = (self.folder / "steps_1.jsonl").read_text().splitlines()[:5]
        (self.folder / "steps_1.jsonl").write_text("\n".join(lines) + "\n")
        said = self.judged(stopped=False, hang=8)
        self.assertEqual((said.verdict, said.all[0].ranks), ("silent", [1]), said)
        self.assertNotEqual(self.judged(stopped=False, hang=20).verdict, "silent")

    def test_everybody_pauses_and_nobody_is_silent(self) -> None:
        for rank in range(2):
            rows = [{"fsdpbench_step": step, "rank": rank, "ranks": 2, "ended_ns": T + (step + (600 if step > 9 - rank else 0)) * S,
                     "step_ms": 200, "own_ms": 1} for step in range(1, 14 - 3 * rank)]
            (self.folder / f"steps_{rank}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        self.assertNotEqual(self.judged(stopped=False).verdict, "silent")


class Words(unittest.TestCase):
    def test_ranks(self) -> None:
        self.assertEqual(ranks_text([3]), "rank 3")
        self.assertEqual(ranks_text([4, 0, 1, 2, 6, 7]), "ranks 0 to 2, 4, 6, 7")


if __name__ == "__main__":
    unittest.main()
