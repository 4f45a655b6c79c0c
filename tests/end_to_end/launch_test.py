#!/usr/bin/python3
"""Jobs of one process per rank: the same numbers as threads, and an end in good order when a rank is lost.

    launch_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest
from pathlib import Path

import program
from program import (BAD_INPUT, INTERRUPTED, LONG, OK, PATIENCE_S, RANK_FAILED, SLOW, TINY, Program, environment,
                     free_port, sets)

RANKS = 4


class Process:
    """A started program whose output is read as it comes."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                                      env=env)
        self.pid = self.popen.pid
        self.out: list[str] = []
        self.err: list[str] = []
        self.readers = [threading.Thread(target=lambda: self.out.extend(self.popen.stdout)),
                        threading.Thread(target=lambda: self.err.extend(self.popen.stderr))]
        for reader in self.readers:
            reader.start()

    def wait(self, seconds: float = PATIENCE_S) -> int:
        code = self.popen.wait(timeout=seconds)
        for reader in self.readers:
            reader.join()
        self.popen.stdout.close()
        self.popen.stderr.close()
        return code

    def kill_if_running(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.wait(10)

    @property
    def output(self) -> str:
        return "".join(self.out)

    @property
    def errors(self) -> str:
        return "".join(self.err)


class Launch(Program):
    digest_of_threads = ""

    def setUp(self) -> None:
        super().setUp()
        self.data = self.folder / "text.txt"
        self.data.write_text("to be or not to be, that is the question. " * 200, encoding="utf-8")

    def start_process(self, command: list[str], **variables: object) -> Process:
        process = Process(command, self.folder, environment(**variables))
        self.addCleanup(process.kill_if_running)
        return process

    def run_arguments(self, keys: list[str], *more: str, out: str = "out") -> list[str]:
        return ["run", self.profile, *sets(*keys, f"data.path={self.data}"), "--out", out, *more]

    def result(self, out: str = "out") -> dict:
        return json.loads((self.folder / out / "result.json").read_text())

    def threads_digest(self) -> str:
        """Shared by all tests."""
        if not Launch.digest_of_threads:
            arguments = self.run_arguments(TINY, "-q", "--ranks", str(RANKS), out="threads")
            process = self.start_process([program.PROGRAM, *arguments])
            self.assertEqual(process.wait(), OK, process.errors)
            Launch.digest_of_threads = self.result("threads")["train"]["params_digest"]
        return Launch.digest_of_threads

    def check_traces(self, out: str, ranks: list[int]) -> None:
        files = sorted((self.folder / out / "trace").iterdir())
        self.assertEqual([file.name for file in files], [f"rank_{rank}.json.gz" for rank in ranks])
        done = subprocess.run([Path(program.PROGRAM).with_name("check_trace"), *files], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)

    def await_steps(self, process: Process) -> None:
        """Until rank 0 says that it trains."""
        end = time.monotonic() + PATIENCE_S
        while not re.search(r"^step +([2-9]|\d\d)", process.errors, re.MULTILINE):
            self.assertLess(time.monotonic(), end, process.errors)
            self.assertIsNone(process.popen.poll(), process.errors)
            time.sleep(0.02)

    def check_what_is_left(self, dead: int, writer: int, errors: str) -> None:
        """The files of a job whose rank `dead` was killed; `writer` wrote result.json."""
        result = self.result()
        self.assertFalse(result["complete"])
        self.assertEqual(result["failure"]["rank"], dead)
        self.assertTrue(result["failure"]["died"])
        self.assertRegex(result["failure"]["message"], rf"\brank {dead}\b")
        self.assertIn(result["failure"]["message"], errors)
        self.assertGreater(result["train"]["steps_done"], 1)
        self.assertEqual(result["steps"]["rank"], writer)
        self.assertEqual(len(result["steps"]["rank_ms"]), result["train"]["steps_done"] - 1)
        self.check_traces("out", [rank for rank in range(RANKS) if rank != dead])
        done = subprocess.run([program.PROGRAM, "explain", "--from", "out/result.json"], capture_output=True, text=True,
                              cwd=self.folder)
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn(f"rank {dead}", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Environment(Launch):
    """Processes started by hand, with the variables that launchers set."""

    def start_ranks(self, arguments: list[str], ranks: int = RANKS, slurm: bool = False, before: tuple[str, ...] = (),
                    **more: str) -> list[Process]:
        port = free_port()
        processes = []
        for rank in range(ranks):
            if slurm:
                variables = dict(SLURM_PROCID=rank, SLURM_NTASKS=ranks, SLURM_LOCALID=rank, SLURM_STEP_ID=0,
                                 SLURM_JOB_ID=4711, SLURM_STEP_NODELIST="localhost", SLURM_STEP_TASKS_PER_NODE=ranks,
                                 SLURM_NODEID=0, FSDPBENCH_PORT=port)
            else:
                variables = dict(RANK=rank, WORLD_SIZE=ranks, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=ranks,
                                 MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            processes.append(self.start_process([*before, program.PROGRAM, *arguments], **variables, **more))
        return processes

    def check_digest(self, source: str, slurm: bool) -> None:
        processes = self.start_ranks(self.run_arguments(TINY), slurm=slurm)
        for process in processes:
            self.assertEqual(process.wait(), OK, process.errors)
        self.assertIn(f"{RANKS} ranks: one process each, as {source}", processes[0].errors)
        for process in processes[1:]:
            self.assertEqual(process.output + process.errors, "")
        result = self.result()
        self.assertEqual(result["train"]["params_digest"], self.threads_digest())
        self.assertEqual(len(result["train"]["loss"]), 4)
        self.assertTrue(result["complete"])
        self.assertIn("collectives through shared memory", processes[0].output)
        self.assertEqual([device["rank"] for device in result["world"]["devices"]], list(range(RANKS)))
        self.assertIn(source, result["world"]["launch"]["source"])
        self.check_traces("out", list(range(RANKS)))

    def test_torchruns_variables_give_the_digest_of_threads(self) -> None:
        self.check_digest("torchrun", slurm=False)

    def test_messages_give_the_digest_of_threads_and_the_table_says_why(self) -> None:
        processes = self.start_ranks(self.run_arguments(TINY), FSDPBENCH_SHARE_MEMORY="0")
        for process in processes:
            self.assertEqual(process.wait(), OK, process.errors)
        self.assertIn("collectives by messages over TCP sockets: FSDPBENCH_SHARE_MEMORY is 0", processes[0].output)
        self.assertEqual(self.result()["train"]["params_digest"], self.threads_digest())
        wrong = self.start_ranks(self.run_arguments(TINY, out="wrong"), FSDPBENCH_SHARE_MEMORY="maybe")
        self.assertEqual(wrong[0].wait(), BAD_INPUT)
        self.assertIn("FSDPBENCH_SHARE_MEMORY is 'maybe'; expected 1", wrong[0].errors)

    def test_slurms_variables_give_the_digest_of_threads(self) -> None:
        self.check_digest("Slurm", slurm=True)

    def test_ranks_must_agree(self) -> None:
        processes = self.start_ranks(self.run_arguments(TINY, "--ranks", "3"), ranks=2)
        self.assertEqual([process.wait() for process in processes], [BAD_INPUT] * 2)
        self.assertIn("error: mesh.ranks = 3 was asked for, but there are 2 processes", processes[0].errors)
        self.assertEqual(processes[1].errors, "")

    def test_other_commands_run_on_rank_0_alone(self) -> None:
        processes = self.start_ranks(["explain", self.profile, "--format", "collectives"], ranks=2)
        self.assertEqual([process.wait() for process in processes], [OK] * 2)
        self.assertIn("AG", processes[0].output)
        self.assertEqual(processes[1].output + processes[1].errors, "")

    def test_what_one_rank_cannot_do_is_said_and_none_hangs(self) -> None:
        processes = self.start_ranks(self.run_arguments([*TINY, "data.path=text.txt"])[:-4] +
                                     ["--set", "model.width=33", "--out", "out"], ranks=2)
        self.assertEqual([process.wait() for process in processes], [BAD_INPUT] * 2)
        self.assertIn("model.width = 33", processes[0].errors)

    def check_kill(self, dead: int) -> None:
        processes = self.start_ranks(self.run_arguments(LONG))
        self.await_steps(processes[0])
        os.kill(processes[dead].pid, signal.SIGKILL)
        codes = [process.wait() for process in processes]
        expected = [RANK_FAILED] * RANKS
        expected[dead] = -signal.SIGKILL
        self.assertEqual(codes, expected)
        writer = 1 if dead == 0 else 0
        self.check_what_is_left(dead, writer, processes[writer].errors)
        for rank in range(2, RANKS):
            self.assertEqual(processes[rank].errors, "", rank)

    def test_a_killed_rank_ends_all_and_keeps_what_was_done(self) -> None:
        self.check_kill(2)

    def test_a_killed_rank_0_ends_all_and_keeps_what_was_done(self) -> None:
        self.check_kill(0)

    def test_the_same_command_goes_on_after_a_killed_rank(self) -> None:
        """Restarts as torchrun --max-restarts and a requeued job do them."""
        saving = [*TINY, "checkpoint.folder=saved", "checkpoint.every=1"]

        def newest() -> int:
            found = sorted((self.folder / "saved").glob("step-*/manifest.json"))
            return int(found[-1].parent.name[5:]) if found else 0

        for attempt, dead in enumerate((3, 0)):
            processes = self.start_ranks(self.run_arguments([*saving, *SLOW, "train.steps=1000"], "--resume", "saved",
                                                            out=f"out-{attempt}"))
            before = newest()
            while newest() < before + 3 and processes[dead].popen.poll() is None:
                time.sleep(0.01)
            os.kill(processes[dead].pid, signal.SIGKILL)
            codes = [process.wait() for process in processes]
            self.assertEqual(codes[1], RANK_FAILED, processes[1].errors)
        at = newest()
        steps = f"train.steps={at + 3}"
        processes = self.start_ranks(self.run_arguments([*saving, steps], "--resume", "saved"))
        self.assertEqual([process.wait() for process in processes], [OK] * RANKS, processes[0].errors)
        whole = self.start_process([program.PROGRAM, *self.run_arguments([*TINY, steps], "-q", "--ranks", "4", out="whole")])
        self.assertEqual(whole.wait(), OK, whole.errors)
        self.assertEqual(self.result()["train"]["began_after_step"], at)
        self.assertEqual(self.result()["train"]["params_digest"], self.result("whole")["train"]["params_digest"])

    def test_ctrl_c_keeps_the_steps_done(self) -> None:
        processes = self.start_ranks(self.run_arguments(LONG))
        self.await_steps(processes[0])
        for process in processes:
            os.kill(process.pid, signal.SIGINT)
        for process in processes:  # a launcher passes on what the terminal has sent already
            os.kill(process.pid, signal.SIGTERM)
        self.assertEqual([process.wait() for process in processes], [INTERRUPTED] * RANKS, processes[0].errors)
        self.assertIn("interrupted", processes[0].errors)
        result = self.result()
        self.assertFalse(result["complete"])
        self.assertNotIn("failure", result)
        if "metrics" in result:  # else the machine was so busy that the step was cut short, and rank 0's steps are there
            self.assertEqual(result["metrics"]["step_ms"]["n"], result["train"]["steps_done"] - 1)
        self.check_traces("out", list(range(RANKS)))

    def test_a_rank_that_lives_and_does_nothing_is_named(self) -> None:
        keys = [*LONG, "inject.slow_rank=1", "inject.slow_rank_factor=1000000"]
        processes = self.start_ranks(self.run_arguments(keys), ranks=2, FSDPBENCH_STALL_S="1")
        self.assertEqual([process.wait() for process in processes], [RANK_FAILED] * 2, processes[0].errors)
        self.assertRegex(processes[0].errors, r"rank 1 has not come to the \w+ where rank 0 has waited for 1 s")

    def test_a_slow_step_is_cut_short(self) -> None:
        processes = self.start_ranks(self.run_arguments(["model.layers=2", "train.steps=50", "train.warmup=1",
                                                         "emulate.compute_tflops=0.0004"]), ranks=2)
        self.await_steps(processes[0])
        os.kill(processes[1].pid, signal.SIGTERM)
        self.assertEqual([process.wait() for process in processes], [INTERRUPTED] * 2, processes[0].errors)
        self.assertEqual(self.result()["train"]["steps_done"], self.steps_said(processes[0]))
        self.assertFalse(self.result()["complete"])

    def steps_said(self, process: Process) -> int:
        return int(re.findall(r"^step +(\d+)", process.errors, re.MULTILINE)[-1])

    def test_a_signal_to_one_rank_stops_all(self) -> None:
        # As behind `&` in a script, where a launcher's ranks inherit that Ctrl-C is ignored.
        processes = self.start_ranks(self.run_arguments(LONG), ranks=2, before=("sh", "-c", 'trap "" INT; exec "$@"', "sh"))
        self.await_steps(processes[0])
        os.kill(processes[1].pid, signal.SIGINT)
        self.assertEqual([process.wait() for process in processes], [INTERRUPTED] * 2, processes[0].errors)
        self.assertIn("interrupted", processes[0].errors)
        self.assertIn("mesh.ranks = 2, the number of processes; ", processes[0].errors)


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun on this machine")
class Mpirun(Launch):
    def mpirun(self, arguments: list[str]) -> Process:
        # Not its usual second from SIGTERM to SIGKILL: a busy machine needs longer to write the files.
        options = ["--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "6", "-n", str(RANKS)]
        return self.start_process(["mpirun", *options, program.PROGRAM, *arguments], OMPI_ALLOW_RUN_AS_ROOT=1,
                          OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)

    def test_gives_the_digest_of_threads(self) -> None:
        process = self.mpirun(self.run_arguments(TINY))
        self.assertEqual(process.wait(), OK, process.errors)
        self.assertIn(f"{RANKS} ranks: one process each, as Open MPI", process.errors)
        self.assertEqual(process.output.count("\nstep time "), 1)  # one table, of rank 0
        self.assertEqual(self.result()["train"]["params_digest"], self.threads_digest())
        self.check_traces("out", list(range(RANKS)))

    def test_sweeps(self) -> None:
        sweep = self.folder / "two.toml"
        sweep.write_text(f'base = "{self.profile}"\ntrials = 2\n[axes]\n"fsdp.backward_prefetch" = ["pre", "none"]\n',
                         encoding="utf-8")
        process = self.mpirun(["sweep", str(sweep), *sets(*TINY), "--out", "sweep"])
        self.assertEqual(process.wait(), OK, process.errors)
        summary = json.loads((self.folder / "sweep/sweep.json").read_text())
        self.assertEqual([cell["status"] for cell in summary["cells"]], ["ok", "ok"])
        trials = [json.loads(line) for line in (self.folder / "sweep/trials.jsonl").read_text().splitlines()[1:]]
        self.assertEqual([trial["world"]["launch"]["ranks"] for trial in trials], [RANKS] * 4)

    def test_ctrl_c_keeps_the_steps_done(self) -> None:
        process = self.mpirun(self.run_arguments(LONG))
        self.await_steps(process)
        os.kill(process.pid, signal.SIGINT)
        self.assertNotEqual(process.wait(), OK)
        result = self.result()
        self.assertFalse(result["complete"])
        self.assertNotIn("failure", result)
        self.assertGreater(result["train"]["steps_done"], 1)


if __name__ == "__main__":
    program.main()
