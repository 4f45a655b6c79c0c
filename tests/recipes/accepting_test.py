#!/usr/bin/python3
"""Recipes that accept hosts, with the program itself on CPU ranks: healthy hosts, and each fault.

    accepting_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import shutil
import subprocess
import time
from pathlib import Path

from recipes_test import FAIL, INCONCLUSIVE, RANK_LOST, recipes

import program  # found by recipes_test
from program import PATIENCE_S, Program

MOST_ATTEMPTS = 20  # at an acceptance: where other programs stop processes for a second, most are inconclusive

# Stands for the program on a host that something is wrong with: FAULT is nothing, "slow", "missing", "hang", "killed" or
# "frozen": accept itself does nothing any more.
FAULTY = """#!/usr/bin/python3
import os, signal, subprocess, sys, time
fault = os.environ.get("FAULT") or FAULTS.get(os.environ.get("SLURMD_NODENAME", ""), DEFAULT)
words = [PROGRAM, *sys.argv[1:]]
if fault == "slow":
    words += ["--set", "inject.slow_rank=3", "--set", "inject.slow_rank_factor=2"]
if fault == "missing":  # one device fewer is found, so one rank fewer is started
    words += ["--set", "mesh.ranks=5"]
started = subprocess.Popen(words)
signal.signal(signal.SIGTERM, lambda *_: started.terminate())
def threads(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Threads:"))
while fault in ("hang", "killed", "frozen") and started.poll() is None:
    with open(f"/proc/{started.pid}/task/{started.pid}/children") as file:
        ranks = sorted(map(int, file.read().split()))
    if len(ranks) == 6 and threads(ranks[2]) >= 4:  # it has joined the others
        if fault == "frozen":
            os.kill(started.pid, signal.SIGSTOP)
        else:
            os.kill(ranks[2], signal.SIGSTOP if fault == "hang" else signal.SIGKILL)
        break
    time.sleep(0.02)
code = started.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


# As Slurm's, for six tasks on two nodes, both of which are this host: after the first task that ends the others have a
# while, and the largest code is that of all. FAULT: what becomes of task 4.
SRUN = """#!/usr/bin/python3
import os, subprocess, sys, time
words = sys.argv[1:]
while words[0].startswith("--"):
    words.pop(0)
fault = os.environ["FAULT"]
def start(task):
    return subprocess.Popen(words, env=os.environ | {
        "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": "6", "SLURM_NODEID": "0", "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task),
        "SLURMD_NODENAME": f"node{task // 3 + 1}"})
started = [start(task) for task in range(6)]
def threads(pid):
    with open(f"/proc/{pid}/status") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("Threads:")), 0)
while fault == "killed" and started[4].poll() is None:
    if threads(started[4].pid) >= 4:  # it has joined the others
        started[4].kill()
        break
    time.sleep(0.02)
while all(one.poll() is None for one in started):
    time.sleep(0.02)
until = time.monotonic() + 30
while any(one.poll() is None for one in started) and time.monotonic() < until:
    time.sleep(0.02)
for one in started:
    one.kill()
sys.exit(max(code if code >= 0 else 128 - code for code in (one.wait() for one in started)))
"""


class OnThisHost(Program):
    """A recipe with the program itself, on CPU ranks whose computation and links are emulated; only what is there on a
    cluster alone is a stand-in."""

    def setUp(self) -> None:
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        here = Path(__file__).resolve().parent
        path = program.TEXT.removeprefix("data.path=")
        self.training = self.write("run.toml", (here / "run.toml").read_text() + f'[data]\npath = "{path}"\n')
        self.acceptance = self.write("acceptance.toml", (here / "acceptance.toml").read_text().replace("RUN", self.training))
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "FSDPBENCH": str(self.bin / "fsdpbench"), "HOME": str(self.folder),
                            "FSDPBENCH_PROFILE": self.acceptance, "FSDPBENCH_RESULTS": str(self.folder / "results"),
                            "FSDPBENCH_LIMIT_S": "150", "FSDPBENCH_BUDGET": "2m",
                            "FSDPBENCH_TEXTFILES": str(self.folder), "SLURMD_NODENAME": "node7"}
        self.stand_in("scontrol", f"""if [ "$1" = show ]; then printf 'node%s\\n' 1 2 3 4; else echo "$@" >>{self.folder}/scontrol.log; fi""")
        self.stand_in("logger", f'echo "$@" >>{self.folder}/logger.log')

    def stand_in(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(body if body.startswith("#!") else f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def host(self, default: str = "", **by_node: str) -> None:
        self.stand_in("fsdpbench", FAULTY.replace("FAULTS.get", f"{by_node!r}.get").replace("DEFAULT", repr(default))
                      .replace("PROGRAM", repr(program.PROGRAM)))

    def said(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text

    def run_script(self, name: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([recipes() / name, *arguments], env=self.environment | more, cwd=self.folder, capture_output=True,
                              text=True, timeout=2 * PATIENCE_S)

    def until_judged(self, attempt):
        """A verdict that a busy machine leaves inconclusive is asked again; nothing is drained meanwhile."""
        for _ in range(MOST_ATTEMPTS):
            done = attempt()
            if done is not None:
                return done
            self.assertEqual(self.said("scontrol"), "")
        return self.fail(f"inconclusive {MOST_ATTEMPTS} times")


class AgainstTheProgram(OnThisHost):
    """The scheduler is asked for the right things: a node is drained, a job starts. Each recipe meets a healthy host, a slow rank and
    a rank that dies, the prolog every fault; the other exit codes that all of them know are in recipes_test.py."""

    def prolog(self, fault: str) -> tuple[int, str]:
        """Its exit code, which lets the job start if it is 0, and what Slurm was told."""
        self.host(fault)

        def attempt() -> tuple[int, str] | None:
            done = self.run_script("slurm/prolog.sh")
            logged = self.said("logger")
            if "exit code 11" in logged:
                self.assertEqual(done.returncode, 0)
                return None
            self.assertEqual(logged, "", (self.folder / "results/prolog/log").read_text())
            return done.returncode, self.said("scontrol")
        return self.until_judged(attempt)

    def drained(self, fault: str) -> str:
        code, told = self.prolog(fault)
        log = (self.folder / "results/prolog/log").read_text()
        self.assertEqual(code, 1, log)
        self.assertTrue(told.startswith("update NodeName=node7 State=DRAIN Reason=fsdpbench: "), told + log)
        self.assertEqual((self.folder / "results/prolog/fail_nodes.txt").read_text(), "node7\n")
        self.assertEqual((self.folder / "results/prolog/pass_nodes.txt").read_text(), "")
        self.assertIn("fsdpbench_accept_verdict", (self.folder / "fsdpbench.prom").read_text())
        return told

    def test_prolog_lets_the_job_start_on_a_healthy_host(self) -> None:
        code, told = self.prolog("")
        self.assertEqual((code, told), (0, ""), (self.folder / "results/prolog/log").read_text())
        result = json.loads((self.folder / "results/prolog/result.json").read_text())
        self.assertEqual((result["verdict"], result["ranks"]), ("pass", 6))
        self.assertEqual((self.folder / "results/prolog/pass_nodes.txt").read_text(), "node7\n")

    def test_prolog_drains_a_host_with_a_slow_rank(self) -> None:
        self.assertRegex(self.drained("slow"), r"rank 3 \(.*\) reaches")

    def test_prolog_drains_a_host_that_lacks_a_device(self) -> None:
        self.assertIn("5 ranks came, and 6 are expected", self.drained("missing"))

    def test_prolog_drains_a_host_on_which_a_rank_hangs(self) -> None:
        self.assertIn("rank 2 on node7 still ran, stopped by a signal, and was killed", self.drained("hang"))

    def test_prolog_drains_a_host_on_which_a_rank_dies(self) -> None:
        self.assertIn("rank 2 on node7 was ended by signal 9 (Killed)", self.drained("killed"))

    def test_prolog_drains_a_host_on_which_accept_itself_hangs(self) -> None:
        self.host("frozen")
        done = self.run_script("slurm/prolog.sh", FSDPBENCH_LIMIT_S="10", FSDPBENCH_GRACE_S="5")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("NodeName=node7 State=DRAIN Reason=fsdpbench: the acceptance hung for 15 s", self.said("scontrol"))
        self.no_rank_is_left()

    def no_rank_is_left(self) -> None:
        """A process that was killed may take a moment to be gone."""
        until = time.monotonic() + PATIENCE_S
        while str(self.folder) in (left := subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout):
            self.assertLess(time.monotonic(), until, left)
            time.sleep(0.1)

    def test_epilog_drains_what_the_program_finds(self) -> None:
        baselines = self.folder / "results/baselines"
        self.until_judged(lambda: subprocess.run(
            [program.PROGRAM, "accept", self.acceptance, "--out", "kept", "--overwrite"], cwd=self.folder,
            capture_output=True, timeout=PATIENCE_S).returncode == 0 or None)
        shutil.copytree(self.folder / "kept", baselines / "kept")
        for fault, why in (("", ""), ("slow", r"rank 3 \(.*\) reaches"), ("killed", "rank 2 on node7 was ended by signal 9")):
            self.host(fault)

            def attempt() -> str | None:
                self.assertEqual(self.run_script("slurm/epilog.sh").returncode, 0)
                told, logged = self.said("scontrol"), self.said("logger")
                return None if fault != "" and "accept 11" in logged else told
            told = self.until_judged(attempt)
            if fault == "":
                self.assertEqual(told, "")
            else:
                self.assertRegex(told, "^update NodeName=node7 State=DRAIN Reason=fsdpbench: .*" + why)

    def test_prolog_ends_ranks_at_the_limit(self) -> None:
        self.host()
        done = self.run_script("slurm/prolog.sh", FSDPBENCH_LIMIT_S="1")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("did not come to an end within", self.said("scontrol"))

    def test_a_node_is_labelled_by_what_the_program_found(self) -> None:
        self.stand_in("curl", f"""for word in "$@"; do case $word in *verdict*) echo "$word" >>{self.folder}/curl.log ;; esac; done""")
        given = {"FSDPBENCH_OUT": str(self.folder / "out"), "NODE_NAME": "node-a"}
        for fault, verdict, code in (("", "pass", 0), ("slow", "fail", FAIL), ("killed", "fail", RANK_LOST)):
            self.host(fault)

            def attempt() -> str | None:
                done = self.run_script("kubernetes/label-node.sh", self.acceptance, **given)
                label = self.said("curl")
                if done.returncode == INCONCLUSIVE:
                    self.assertIn('"fsdpbench.io/verdict":"inconclusive"', label)
                    return None
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                return label
            self.assertIn(f'"fsdpbench.io/verdict":"{verdict}"', self.until_judged(attempt), fault)

    def test_preflight_writes_lists_of_nodes_that_slurm_takes(self) -> None:
        # A healthy node, one with a slow rank, one that never answers, and one with a rank that dies.
        self.host(node2="slow", node4="killed")
        self.stand_in("srun", """while [ "${1#--}" != "$1" ]; do shift; done
for node in node1 node2 node4; do SLURMD_NODENAME=$node SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=3 "$@" || exit 1; done""")

        def attempt() -> str | None:
            shutil.rmtree(self.folder / "results", ignore_errors=True)
            done = self.run_script("slurm/preflight.sbatch", self.acceptance, SLURM_JOB_ID="17", SLURM_JOB_NODELIST="node[1-4]")
            self.assertEqual(done.returncode, FAIL, done.stdout + done.stderr)
            if "exit code 11" in done.stdout:
                self.assertNotIn("node1", self.listed("fail"))
                return None
            return done.stdout
        told = self.until_judged(attempt)
        self.assertEqual(self.listed("pass"), ["node1"], told)
        self.assertEqual(self.listed("fail"), ["node2", "node3", "node4"], told)
        self.assertEqual(self.listed("unjudged"), [], told)
        self.assertRegex(told, r"node2: fail \(exit code 10\): rank 3 ")
        self.assertRegex(told, r"node4: fail \(exit code 5\): rank 2 on node4 was ended by signal 9")

    def listed(self, what: str) -> list[str]:
        return (self.folder / f"results/17/{what}_nodes.txt").read_text().split()

    def test_sbatch_names_the_node_to_leave_out(self) -> None:
        """Two nodes of three ranks, which srun starts here on one host, so that links can be emulated; one rank of the second is
        slow."""
        text = Path(self.acceptance).read_text().replace("ranks = 6", "nodes = 2\nranks_per_node = 3")
        profile = self.write("nodes.toml", text)
        self.stand_in("fsdpbench", f'''case $1 in accept) shift; exec {program.PROGRAM} accept "$@" $FAULTS ;; *) exec {program.PROGRAM} "$@" ;; esac''')
        self.stand_in("srun", SRUN)
        slow = "--set inject.slow_rank=4 --set inject.slow_rank_factor=2"
        for fault, code, failed in (("", 0, []), ("slow", FAIL, ["node2"]), ("killed", RANK_LOST, ["node2"])):
            def attempt() -> str | None:
                shutil.rmtree(self.folder / "results", ignore_errors=True)
                done = self.run_script("slurm/accept.sbatch", profile, SLURM_JOB_ID="17", FAULTS=slow if fault == "slow" else "",
                                       FAULT=fault, FSDPBENCH_PORT=str(program.free_port()), FSDPBENCH_FULL="",
                                       FSDPBENCH_BUDGET="2m", FSDPBENCH_LIMIT="3m")
                if done.returncode == INCONCLUSIVE:
                    return None
                self.assertEqual(done.returncode, code, fault + done.stdout + done.stderr)
                return done.stdout
            told = self.until_judged(attempt)
            self.assertEqual((self.listed("pass"), self.listed("fail")), ([] if failed else ["node1", "node2"], failed), fault + told)
            self.assertEqual("to be left out: --exclude=node2" in told, bool(failed), told)
            self.no_rank_is_left()


if __name__ == "__main__":
    program.main()
