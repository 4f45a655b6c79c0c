#!/usr/bin/python3
"""The recipes that are no scripts of their own (a job of Kubernetes, files of CI), run command by command as what they are
written for would, with the program itself.

    pipelines_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import shlex
import shutil
import subprocess
import unittest

from accepting_test import OnThisHost
from recipes_test import FAIL, INCONCLUSIVE, SLOWER, recipes

import program  # found by recipes_test
from program import PATIENCE_S

import yaml

SLOW = "--set inject.slow_rank=3 --set inject.slow_rank_factor=2"


class Pipelines(OnThisHost):
    def shell(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """As GitHub's runner calls it."""
        return subprocess.run(["bash", "-eo", "pipefail", "-c", command], env=self.environment | more, cwd=self.folder,
                              capture_output=True, text=True, timeout=2 * PATIENCE_S)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun on this machine")
    def test_mpijob_ends_with_the_verdict(self) -> None:
        """Its launcher's command, with six ranks of this host in place of 32 GPUs of four."""
        job = next(iter(yaml.safe_load_all((recipes() / "kubernetes/mpijob.yaml").read_text())))
        launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        self.stand_in("mpirun", f"""echo "$@" >{self.folder}/mpirun.log
exec {shutil.which("mpirun")} --oversubscribe "$@" """)
        here = {"32": "6", "/opt/fsdpbench/bin/fsdpbench": str(self.bin / "fsdpbench"), "hgx-h100-nodes": self.acceptance,
                "/results/accept": str(self.folder / "accept"),
                "MASTER_ADDR=fsdpbench-accept-worker-0.fsdpbench-accept": "MASTER_ADDR=127.0.0.1"}
        self.assertLessEqual(set(here) | {"--full"}, set(launcher["args"]))
        # Without the soak of minutes, which is tested elsewhere.
        words = [here.get(word, word) for word in launcher["args"] if word != "--full"]
        for fault, code in (("", 0), ("slow", FAIL)):
            self.host(fault)

            def attempt() -> dict | None:
                shutil.rmtree(self.folder / "accept", ignore_errors=True)
                done = self.shell(shlex.join(launcher["command"] + words), OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                  FSDPBENCH_SECRET="a secret of this test alone", FSDPBENCH_PORT=str(program.free_port()))
                if done.returncode == INCONCLUSIVE:
                    return None
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                return json.loads((self.folder / "accept/result.json").read_text())
            result = self.until_judged(attempt)
            self.assertEqual((result["ranks"], result["verdict"]), (6, "fail" if fault else "pass"))
            self.assertIn("-np 6", self.said("mpirun"))
        self.assertIn("rank 3 ", (self.folder / "accept/summary.md").read_text())

    def host_of_ci(self, fault: str) -> None:
        """`make build` leaves a program that accepts by the profile of these tests; `run` runs on the computed clock, so that a
        gate is certain on a busy host, too. fault: "slow" is a slow rank at the acceptance, "slower" a step of the run that takes
        1.5 times as long, on the host of the acceptance in `healthy`."""
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        shutil.rmtree(self.folder / "build", ignore_errors=True)
        slower = self.write("slower.py", f"""import json, sys
sys.path.insert(0, {str(program.SOURCE / "tests/end_to_end")!r})
from program import sealed
path = "results/run/result.json"
result = json.load(open(path))
result["steps"]["slowest_rank_ms"] = [1.5 * ms for ms in result["steps"]["slowest_rank_ms"]]
open(path, "w").write(sealed(result))
""")
        self.stand_in("made", f"""command=$1; [ "$command" = gate ] || shift 2
case $command in
  accept) {f"mkdir -p results && exec cp -r {self.folder}/healthy results/accept" if fault == "slower" else ""}
          exec {program.PROGRAM} accept {self.acceptance} "$@" {SLOW if fault == "slow" else ""} ;;
  run) {program.PROGRAM} simulate {self.training} "$@" {f"&& python3 -B {slower}" if fault == "slower" else ""} ;;
  *) exec {program.PROGRAM} "$@" ;;
esac""")
        self.stand_in("make", f"""[ "$*" = build ] && mkdir -p build/bin && ln -s {self.bin}/made build/bin/fsdpbench""")

    def run_workflow(self) -> tuple[dict[str, int], str]:
        """Each step's exit code by its name, and the page of the run. After a step that fails only those run that always do."""
        (self.folder / "page.md").write_text("")
        codes: dict[str, int] = {}
        workflow = yaml.safe_load((recipes() / "ci/github-actions.yml").read_text())
        for step in workflow["jobs"]["gate"]["steps"]:
            if "run" in step and (step.get("if") == "always()" or not any(codes.values())):
                done = self.shell(step["run"], GITHUB_STEP_SUMMARY=str(self.folder / "page.md"))
                codes[step["name"]] = done.returncode
                self.told = done.stdout + done.stderr
        return codes, (self.folder / "page.md").read_text()

    def test_github_says_which_step_failed_and_why(self) -> None:
        self.host_of_ci("")
        self.shell("make build")
        self.call("simulate", self.training, "--out", "baselines/kept", "-q")
        steps = ["build", "accept the machine", "measure", "hold it against the baseline", "what came of it"]
        for fault, codes, said in (("", [0, 0, 0, 0, 0], "# PASS"), ("slower", [0, 0, 0, SLOWER, 0], "# WORSE"),
                                   ("slow", [0, FAIL, None, None, 0], "rank 3 ")):
            def attempt() -> str | None:
                self.host_of_ci(fault)
                done, page = self.run_workflow()
                if done["accept the machine"] == INCONCLUSIVE:
                    return None
                self.assertEqual([done.get(step) for step in steps], codes, fault + page + self.told)
                return page
            page = self.until_judged(attempt)
            if fault == "":
                shutil.copytree(self.folder / "results/accept", self.folder / "healthy")
            self.assertIn(said, page)
            self.assertEqual(page.count("\n# ") + page.startswith("# "), 1 if fault == "slow" else 2, page)


if __name__ == "__main__":
    program.main()
