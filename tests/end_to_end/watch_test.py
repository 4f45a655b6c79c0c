#!/usr/bin/python3
"""watch: what real jobs of PyTorch wrote (tests/watch/record.py), read at once and while it changes.

    watch_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import io
import json
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import program
from program import BAD_INPUT, CANNOT_WRITE, INTERRUPTED, OK, PATIENCE_S, RANK_FAILED, Program

SLOW, INCONCLUSIVE = 10, 11


class Ras:
    """NCCL's RAS on loopback, as src/ras/client_support.cc of NCCL speaks: `answers` are counts of four ranks, one per question;
    None: no data of that rank, which is dead. `words`: what it says instead of the first line."""

    def __init__(self, answers: list[list[int | None]], words: bytes = b"SERVER PROTOCOL 2\n", endless: bool = False):
        self.answers, self.words, self.endless, self.asked, self.heard = answers, words, endless, 0, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                caller, _ = self.socket.accept()
            except OSError:
                return  # closed
            with caller, caller.makefile("rwb") as stream:
                try:
                    self.talk(stream)
                except OSError:
                    pass  # it has gone

    def talk(self, stream: io.BufferedRWPair) -> None:
        for line in stream:
            self.heard.append(line)
            if line == b"CLIENT PROTOCOL 2\n":
                stream.write(self.words)
            elif line.startswith(b"TIMEOUT ") or line == b"SET FORMAT json\n":
                stream.write(b"OK\n")
            elif line == b"STATUS\n":
                stream.write(ras_answer(self.answers[min(self.asked, len(self.answers) - 1)]).encode())
                self.asked += 1
                return
            else:
                stream.write(b"ERROR: Unknown command\n")
            stream.flush()
            while self.endless:
                stream.write(b"x" * 65536)

    def close(self) -> None:
        self.socket.close()


def ras_answer(counts: list[int | None], timestamp: str = "2025-12-19 13:06:53") -> str:
    present, missing = [], []
    for rank, count in enumerate(counts):
        one = {"rank": rank, "host": "10.0.0.2", "pid": 4700 + rank, "cuda_dev": rank, "nvml_dev": rank}
        if count is None:
            missing.append(one | {"status": {"unresponsive": True, "considered_dead": True}})
        else:
            status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
            present.append(one | {"status": status, "collective_counts": {"AllGather": count, "AllReduce": 1}})
    return json.dumps({"nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
                       "timestamp": timestamp, "communicators_count": 1,
                       "communicators": [{"hash": "0xa", "secondary_hash": "0x1:0x2", "size": len(counts),
                                          "ranks_count": len(present), "missing_ranks_count": len(missing),
                                          "ranks": present, "missing_ranks": missing}],
                       "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}}, indent=2) + "\n"


class Watch(Program):
    def setUp(self) -> None:
        super().setUp()
        program.use_package_of_source(self)

    def ras(self, *arguments, **words) -> Ras:
        server = Ras(*arguments, **words)
        self.addCleanup(server.close)
        return server

    def test_answers_of_nccls_ras_in_a_file(self) -> None:
        (self.folder / "hang.json").write_text("".join(ras_answer([8, 8, 7, 8], f"2025-12-19 13:{s:02}:00") for s in range(2)))
        code, said = self.once("hang.json")
        self.assertEqual((code, said["verdict"], said["accusations"][0]["ranks"]), (RANK_FAILED, "hang", [2]), said)

    def test_nccls_ras_is_asked_at_each_look(self) -> None:
        server = self.ras([[10, 10, 10, 10], [20, 20, 20, 20], [30, 30, 30, None]])
        process = self.start("watch", "--ras", server.name, "--every", "1")
        self.assertTrue(process.stdout.readline().startswith("unknown: It is not known who comes last"))
        self.assertIn("Rank 3 (process 4703 on 10.0.0.2, GPU 3) of 0xa is silent", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(server.heard[:4], [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 5\n", b"SET FORMAT json\n", b"STATUS\n"])
        code, said = self.once("--ras", self.ras([[8, 8, 7, 8]]).name, "--stopped")
        self.assertEqual((code, said["verdict"], said["accusations"][0]["ranks"]), (RANK_FAILED, "hang", [2]), said)

    def test_whoever_is_no_ras_is_named(self) -> None:
        closed = socket.create_server(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        for name, sentence in ((nobody, "nobody answers there"), ("127.0.0.1:x", "expected HOST, HOST:PORT"),
                               (self.ras([], words=b"HTTP/1.1 400 Bad Request\n").name, "it says 'HTTP/1.1 400 Bad Request'"),
                               (self.ras([], words=b"", endless=True).name, "it says 'xxxx")):
            done = self.watch("--ras", name, "--once")
            self.assertEqual(done.returncode, BAD_INPUT, done.stdout + done.stderr)
            self.assertIn(sentence, done.stderr)
        self.assertIn("watch needs a SOURCE or --ras", self.watch("--once").stderr)
        # While a job has not begun, it is waited for.
        process = self.start("watch", "--ras", nobody, "--every", "0.1", "--json")
        self.assertIn("nobody answers there", json.loads(process.stdout.readline())["notes"][-1])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)

    def recorded(self, case: str, folder: str = "") -> str:
        place = self.folder / (folder or case)
        place.mkdir(exist_ok=True)
        with tarfile.open(program.SOURCE / f"tests/watch/recorded/{case}.tar.xz") as archive:
            archive.extractall(place, filter="data") if sys.version_info >= (3, 12) else archive.extractall(place)
        return str(place)

    def once(self, *words: str) -> tuple[int, dict]:
        done = self.watch(*words, "--once", "--json")
        return done.returncode, json.loads(done.stdout)

    def watch(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([program.PROGRAM, "watch", *words], cwd=self.folder, capture_output=True, text=True,
                              timeout=PATIENCE_S)

    def test_a_clean_job_is_clean(self) -> None:
        code, said = self.once(self.recorded("clean"))
        self.assertEqual((code, said["verdict"], said["accusations"]), (OK, "clean", []), said)

    def test_the_late_rank_is_named_by_its_steps(self) -> None:
        folder = Path(self.recorded("late"))
        code, said = self.once("late")
        self.assertEqual((code, [(one["verdict"], one["ranks"]) for one in said["accusations"]]), (SLOW, [("late rank", [2])]))
        self.assertGreater(said["accusations"][0]["share"], 0.1)
        for path in folder.glob("steps_*.jsonl"):
            path.unlink()
        code, said = self.once("late")
        self.assertEqual((code, said["verdict"]), (INCONCLUSIVE, "unknown"), said)

    def test_the_rank_that_was_stopped_is_named_and_not_those_that_wait(self) -> None:
        code, said = self.once(self.recorded("hang"))
        self.assertEqual((code, said["verdict"]), (RANK_FAILED, "hang"))
        self.assertEqual([(one["ranks"], one["sequence"]) for one in said["accusations"]], [([2], 35)])
        done = self.watch("hang", "--once", "--hang", "1000")
        self.assertEqual(done.returncode, INCONCLUSIVE, done.stdout)

    def test_the_pickles_of_pytorch_say_no_more_than_they_know(self) -> None:
        native = str(program.SOURCE / "tests/watch/recorded/native")
        code, said = self.once(native)
        self.assertEqual((code, said["verdict"]), (INCONCLUSIVE, "unknown"))
        self.assertIn("Rank 2 has not come", said["sentence"])
        self.assertIn("The dumps do not tell for how long", said["sentence"])
        code, said = self.once(native, "--stopped")
        self.assertEqual((code, said["accusations"][0]["ranks"]), (RANK_FAILED, [2]))

    def dumps(self, group: str, last: list[str | None], backend: str = "gloo") -> dict:
        """The answer of `watch` for dumps whose default group has ranks `group` by pg_config; last: each rank's newest collective."""
        for rank, state in enumerate(last):
            entries = [{"process_group": ["0", "default_pg"], "pg_id": 0, "collective_seq_id": seq, "profiling_name": f"{backend}:all_reduce",
                        "time_created_ns": seq * 10**9, "time_discovered_started_ns": seq if now != "scheduled" else None, "state": now,
                        "retired": now == "completed", "is_p2p": False} for seq, now in ((1, "completed"), (2, state)) if now]
            (self.folder / f"dump_{rank}").write_text(json.dumps({
                "version": "2.10", "pg_config": {"": {"name": "", "desc": "", "ranks": group}}, "entries": entries}))
        return self.once(*(f"dump_{rank}" for rank in range(len(last))), "--stopped")[1]

    def test_a_list_of_ranks_that_leaves_a_rank_out_is_another_groups(self) -> None:
        # PyTorch 2.15 lists one group of gloo under no name: here the one that was made last.
        said = self.dumps("[0, 1]", ["scheduled", "scheduled", None, "scheduled"])
        self.assertIn("Rank 2 has not come: ranks 0, 1, 3 wait in all_reduce 2", said["sentence"])
        self.assertEqual(said["accusations"][0]["ranks"], [2])
        said = self.dumps("[0, 1]", ["completed", "scheduled", "completed"])
        self.assertEqual((said["verdict"], said["accusations"]), ("unknown", []), said)
        self.assertIn("which ranks belong to it is not told", said["sentence"])

    def test_a_gpu_that_has_not_begun_is_not_among_those_that_wait(self) -> None:
        said = self.dumps("[0, 1, 2]", ["started", "started", "scheduled"], "nccl")
        self.assertEqual(said["accusations"][0]["ranks"], [2])
        self.assertRegex(said["sentence"], r"^Ranks 0, 1 wait in all_reduce 2 .*, which the GPU of rank 2 has not begun\.$")

    def test_wrong_input_is_an_error_with_a_sentence(self) -> None:
        (self.folder / "empty").mkdir()
        (self.folder / "text").write_text("hello\n")
        (self.folder / "code_1").write_bytes(b"\x80\x02cos\nsystem\n(X\x02\0\0\0lstR.")
        for words, sentence in ((("nothing",), "there is no such file"), (("empty",), "has no files"),
                                (("text",), "neither JSON nor a pickle"), (("code_1",), "nothing of it is run"),
                                (("text", "--hang", "0"), "--hang must be"), (("text", "--every", "nan"), "--every must be")):
            done = self.watch(*words, "--once")
            self.assertEqual(done.returncode, BAD_INPUT, done.stdout + done.stderr)
            self.assertIn(sentence, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_a_line_for_each_change_until_ctrl_c(self) -> None:
        folder = Path(self.recorded("clean", "job"))
        process = self.start("watch", "job", "--every", "0.1", "--metrics", "watch.prom")
        self.assertTrue(process.stdout.readline().startswith("clean: "))
        # The job continues, and hangs: each file is replaced, as its writer does.
        for path in sorted(Path(self.recorded("hang", "later")).iterdir()):
            shutil.copy(path, folder / (path.name + ".tmp"))
            (folder / (path.name + ".tmp")).replace(folder / path.name)
        for line in process.stdout:
            if line.startswith("hang: Rank 2 has not come"):
                break
        else:
            self.fail("it ended before it named the rank")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)
        metrics = (self.folder / "watch.prom").read_text()
        self.assertIn('fsdpbench_watch_verdict{verdict="clean"} ', metrics)

    def test_metrics_name_the_rank(self) -> None:
        self.watch(self.recorded("late"), "--once", "--metrics", "watch.prom")
        metrics = (self.folder / "watch.prom").read_text()
        self.assertIn('fsdpbench_watch_verdict{verdict="late rank"} 1\n', metrics)
        self.assertIn('fsdpbench_watch_accused{verdict="late rank",rank="2",communicator=""} 1\n', metrics)
        self.assertIn('fsdpbench_watch_late_share{rank="2",communicator=""} 0.', metrics)
        done = self.watch("late", "--once", "--metrics", "no/folder/watch.prom")
        self.assertEqual(done.returncode, CANNOT_WRITE, done.stderr)


if __name__ == "__main__":
    program.main()
