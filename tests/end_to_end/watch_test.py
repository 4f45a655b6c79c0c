#!/usr/bin/python3
"""watch: what real jobs of PyTorch wrote (tests/watch/record.py), read at once and while it changes.

    watch_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import fcntl
import http.server
import io
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import termios
import threading
import time
from pathlib import Path

import program
from program import BAD_INPUT, CANNOT_WRITE, INTERRUPTED, OK, PATIENCE_S, RANK_FAILED, Program

SLOW, INCONCLUSIVE = 10, 11


def inspector_line(rank: int, number: int, took_us: int, told_us: int, communicator: str = "0xa") -> str:
    """As plugins/profiler/inspector/inspector_json.cc of NCCL writes it."""
    return json.dumps({
        "header": {"id": communicator, "comm_name": "unknown", "rank": rank, "n_ranks": 4, "nnodes": 2},
        "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                     "dump_timestamp_us": told_us, "hostname": f"node-{rank}", "pid": 100 + rank},
        "coll_perf": {"coll": "AllGather", "coll_sn": number, "coll_msg_size_bytes": 1 << 24, "coll_exec_time_us": took_us,
                      "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.0}})


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


def dcgm_text(host: str, clocks: list[int], xids: dict[int, int] | None = None) -> str:
    """As internal/pkg/rendermetrics/render_metrics.go of dcgm-exporter writes it."""
    lines = []
    for name, values in (("DCGM_FI_DEV_SM_CLOCK", clocks), ("DCGM_FI_DEV_GPU_UTIL", [98] * len(clocks)),
                         ("DCGM_FI_DEV_XID_ERRORS", [(xids or {}).get(i, 0) for i in range(len(clocks))])):
        lines += [f"# HELP {name} Something.", f"# TYPE {name} gauge"]
        lines += [f'{name}{{gpu="{i}",UUID="GPU-{host}-{i}",pci_bus_id="00000000:0{i}:00.0",device="nvidia{i}",'
                  f'modelName="NVIDIA H100 80GB HBM3",hostname="{host}",DCGM_FI_DRIVER_VERSION="590.48.01"}} {value}'
                  for i, value in enumerate(values)]
    return "\n".join(lines) + "\n"


def nvidia_smi_text(clocks: list[int], xids: dict[int, int] | None = None) -> str:
    """As nvidia_gpu_exporter writes it (docs/METRICS.md of it)."""
    lines = ["# HELP go_goroutines Number.", "# TYPE go_goroutines gauge", "go_goroutines 9"]
    for i, clock in enumerate(clocks):
        own = f'uuid="1111-{i}"'
        lines += [f"nvidia_smi_clocks_current_sm_clock_hz{{{own}}} {clock}e+06", f"nvidia_smi_utilization_gpu_ratio{{{own}}} 0.97",
                  f'nvidia_smi_gpu_info{{index="{i}",name="NVIDIA H200",pci_bus_id="00000000:0{i}:00.0",{own}}} 1']
        if i in (xids or {}):
            lines.append(f'nvidia_smi_xid_errors_total{{{own},xid="{xids[i]}"}} 1')
    return "\n".join(lines) + "\n"


class Exporter:
    """An exporter of GPU metrics on loopback: `answers` one after another, the last one again and again. Bytes are said as they
    are."""

    def __init__(self, *answers: str | bytes):
        exporter = self
        self.asked: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = answers[min(len(exporter.asked), len(answers) - 1)]
                exporter.asked.append(self.path)
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


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
    def ras(self, *arguments, **words) -> Ras:
        server = Ras(*arguments, **words)
        self.addCleanup(server.close)
        return server

    def test_answers_of_nccls_ras_in_a_file(self) -> None:
        late = [[100 * s, 100 * s, max(0, 100 * s - 150), 100 * s] for s in range(20)]
        (self.folder / "ras.json").write_text("".join(ras_answer(one, f"2025-12-19 13:06:{s:02}") for s, one in enumerate(late)))
        code, said = self.once("ras.json")
        self.assertEqual((code, said["verdict"], said["accusations"][0]["ranks"]), (SLOW, "late rank", [2]), said)
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
                               (self.ras([], words=b"", endless=True).name, "its answer has no lines")):
            done = self.watch("--ras", name, "--once")
            self.assertEqual(done.returncode, BAD_INPUT, done.stdout + done.stderr)
            self.assertIn(sentence, done.stderr)
        self.assertIn("watch needs a SOURCE, --ras", self.watch("--once").stderr)
        # While a job has not begun, it is waited for.
        process = self.start("watch", "--ras", nobody, "--every", "0.1", "--json")
        self.assertIn("nobody answers there", json.loads(process.stdout.readline())["notes"][-1])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)

    def exporter(self, *answers: str | bytes) -> Exporter:
        server = Exporter(*answers)
        self.addCleanup(server.close)
        return server

    def test_exporters_of_gpu_metrics_are_asked_again_and_again(self) -> None:
        one = self.exporter(dcgm_text("node-1", [1980] * 4), dcgm_text("node-1", [1980] * 4, {2: 79}))
        other = self.exporter(nvidia_smi_text([1970] * 4), nvidia_smi_text([1975] * 4, {1: 31}))
        process = self.start("watch", "--exporter", one.name, "--exporter", other.name, "--every", "0.2", "--metrics", "gpus.prom")
        self.assertTrue(process.stdout.readline().startswith("unknown: It is not known who comes last: exporters"))
        said = process.stdout.readline()
        self.assertIn("GPU trouble: GPU ", said)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertEqual((one.asked, other.asked), (["/metrics"] * 2, ["/metrics"] * 2))
        # Where an exporter does not tell its host, it is that which was asked.
        metrics = (self.folder / "gpus.prom").read_text()
        self.assertIn('fsdpbench_watch_gpu{host="node-1",gpu="GPU 2",trouble="Xid 79"} 1\n', metrics)
        self.assertIn(f'fsdpbench_watch_gpu{{host="{socket.gethostname()}",gpu="GPU 1",trouble="Xid 31"}} 1\n', metrics)
        self.assertIn('fsdpbench_watch_verdict{verdict="GPU trouble"} 1\n', metrics)

    def test_an_exporter_that_is_none_is_named(self) -> None:
        for answer, sentence in ((b"HTTP/1.1 404 Not Found\r\n\r\n", "GET /metrics is answered with 'HTTP/1.1 404 Not Found'"),
                                 (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP: it says 'SSH-2.0-OpenSSH'"), (b"", "does not speak HTTP"),
                                 (b"HTTP/1.0 200 OK\r\nContent-Length: 90\r\n\r\nDCGM_FI_DEV_SM_CLOCK", "before the whole answer had come"),
                                 (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "the answer is encoded"),
                                 ("up 1\n", "has no series of dcgm-exporter or nvidia_gpu_exporter")):
            done = self.watch("--exporter", self.exporter(answer).name, "--once")
            self.assertEqual(done.returncode, BAD_INPUT, done.stdout + done.stderr)
            self.assertIn(sentence, done.stderr)
        self.assertIn("expected HOST, HOST:PORT", self.watch("--exporter", "a b", "--once").stderr)

    def test_files_of_gpu_metrics_and_the_ranks_of_their_hosts(self) -> None:
        folder = Path(self.recorded("late", "gpus"))
        host = json.loads((folder / "steps_2.jsonl").read_text().splitlines()[0])["host"]
        newest = 1 + max(json.loads(path.read_text().splitlines()[-1])["ended_ns"] for path in folder.glob("steps_*.jsonl")) // 10**9

        def look(number: int) -> None:
            path = folder / "node.tmp"
            path.write_text(dcgm_text(host, [1980 + number, 1960, 1000, 1975]))
            os.utime(path, (newest + 5 * number, newest + 5 * number))
            path.replace(folder / "node.prom")

        look(0)
        code, said = self.once("gpus")
        self.assertEqual((code, said["verdict"], said["gpus"]), (SLOW, "late rank", 4), said)
        self.assertIn("is busy at 1000 MHz, where its peers are at 1975; further looks tell whether that lasts", " ".join(said["notes"]))
        process = self.start("watch", "gpus", "--every", "0.05", "--json", "--metrics", "watch.prom")
        for number in range(1, 3):  # each look is waited for, by the time that it has
            while f"fsdpbench_watch_newest_seconds {newest + 5 * (number - 1)}." not in self.text("watch.prom"):
                time.sleep(0.02)
            look(number)
        for line in process.stdout:
            said = json.loads(line)
            if len(said["accusations"]) == 3:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        late, _, gpu = said["accusations"]
        self.assertEqual((said["verdict"], late["ranks"], gpu["verdict"]), ("late rank", [2], "GPU trouble"))
        self.assertEqual((gpu["host"], gpu["gpu"], gpu["trouble"]), (host, "GPU 2", "throttled"))
        self.assertIn("On the host of rank 2: GPU 2 (00000000:02:00.0) of", late["sentence"])
        self.assertIn("Rank 2 (late rank) runs on this host.", gpu["sentence"])

    def text(self, name: str) -> str:
        return (self.folder / name).read_text() if (self.folder / name).exists() else ""

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

    def test_the_late_rank_is_named_by_its_steps_and_by_its_collectives(self) -> None:
        code, said = self.once(self.recorded("late"))
        self.assertEqual((code, said["verdict"]), (SLOW, "late rank"))
        self.assertEqual([one["ranks"] for one in said["accusations"]], [[2], [2]])
        for one in said["accusations"]:
            self.assertGreater(one["share_ci_low"], 0.1)
        for left in ("steps_*.jsonl", "flight_*.json"):  # either kind of file is enough
            folder = Path(self.recorded("late", left[:4]))
            for path in folder.glob(left):
                path.unlink()
            code, said = self.once(str(folder))
            self.assertEqual((code, [one["ranks"] for one in said["accusations"]]), (SLOW, [[2]]), said)

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
        self.assertIn("to which rank 2 has not come; the dumps do not tell for how long", said["sentence"])
        code, said = self.once(native, "--stopped")
        self.assertEqual((code, said["accusations"][0]["ranks"]), (RANK_FAILED, [2]))

    def write_inspector(self, late: int, name: str) -> str:
        luck = random.Random(4)
        folder = self.folder / name
        folder.mkdir()
        for rank in range(4):
            lines = []
            luck_of_rank = random.Random(rank)
            for number in range(200):
                waits = 400 if rank == late else 15_000 if late >= 0 else luck_of_rank.randrange(2_000)
                lines.append(inspector_line(rank, number, waits + luck.randrange(2_000), 1_748_030_377_000_000 + number * 50_000))
            (folder / f"node-{rank}-pid{rank}.log").write_text("\n".join(lines) + "\n")
        return str(folder)

    def test_files_of_ncclss_inspector(self) -> None:
        code, said = self.once(self.write_inspector(-1, "clean_inspector"))
        self.assertEqual((code, said["verdict"]), (OK, "clean"), said)
        code, said = self.once(self.write_inspector(3, "late_inspector"))
        self.assertEqual((code, said["accusations"][0]["ranks"], said["accusations"][0]["communicator"]), (SLOW, [3], "0xa"))

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
        # The same job goes on, and hangs: each file is replaced, as its writer does.
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

    def test_a_terminal_has_a_table_that_is_drawn_anew(self) -> None:
        mine, its = pty.openpty()
        self.addCleanup(os.close, mine)
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
        process = subprocess.Popen([program.PROGRAM, "watch", self.recorded("late"), "--every", "0.1"], stdout=its, stderr=its,
                                   env=program.environment(TERM="xterm"))
        os.close(its)
        drawn = b""
        while drawn.count(b"Communicators") < 3:
            drawn += os.read(mine, 65536)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=PATIENCE_S), INTERRUPTED)
        picture = drawn.split(b"late rank: Rank 2 of")[1]
        up = int(re.findall(rb"\x1b\[(\d+)A", drawn)[0])
        self.assertEqual(up, picture.count(b"\n"), picture)  # the next one begins where this did
        lines = [re.sub(rb"\x1b\[[0-9]*[A-Z]", b"", line).decode().rstrip() for line in picture.split(b"\n")]
        self.assertLess(max(map(len, lines[1:])), 60)
        self.assertIn("of the last 9 s.", " ".join(lines))  # folded, not cut

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
