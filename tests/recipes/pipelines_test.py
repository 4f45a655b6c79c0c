#!/usr/bin/python3
"""The recipes that are no scripts of their own (a job of Kubernetes, files of CI, a container), run command by command as what
they are written for would, with the program itself.

    pipelines_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import re
import shlex
import shutil
import subprocess
import unittest
from pathlib import Path

from accepting_test import OnThisHost
from recipes_test import FAIL, INCONCLUSIVE, SLOWER, recipes

import program  # found by recipes_test
from program import PATIENCE_S, sets

import yaml

SLOW = "--set inject.slow_rank=3 --set inject.slow_rank_factor=2"

# `docker`, as far as the container's own page uses it. A build runs the install step of the file that it is given, from the
# build that is under test, into a folder in place of /opt/fsdpbench; a run starts the entry point of that file there.
DOCKER = r"""#!/usr/bin/python3
import json, os, pathlib, re, shlex, subprocess, sys
image, built = pathlib.Path(IMAGE), BUILD
command, *words = sys.argv[1:]
if command == "build":
    text = pathlib.Path(words[-1], words[words.index("-f") + 1]).read_text().replace("\\\n", " ")
    for step in re.findall(r"cmake --install [^&\n]*", text):
        subprocess.run([built if word == "build" else str(image) if word == "/opt/fsdpbench" else word for word in shlex.split(step)],
                       check=True, stdout=subprocess.DEVNULL)
    path = re.search(r"(?m)^ENV PATH=(\S+)", text)[1]
    start = {name: json.loads(re.search(rf"(?m)^{name} (.*)", text)[1]) for name in ("ENTRYPOINT", "CMD")}
    (image / "image.json").write_text(json.dumps({"tag": words[words.index("-t") + 1], "path": path} | start))
else:
    made = json.loads((image / "image.json").read_text())
    while words[0].startswith("--"):
        words.pop(0)
    assert words.pop(0) == made["tag"]
    path = made["path"].replace("/opt/fsdpbench", str(image)).replace("$PATH", "/usr/bin:/bin")
    os.environ["PATH"] = path
    os.execvp(made["ENTRYPOINT"][0], made["ENTRYPOINT"] + (words or made["CMD"]))
"""


class Pipelines(OnThisHost):
    def shell(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """As GitHub's and Jenkins' runners call it."""
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
                "FSDPBENCH_RENDEZVOUS=/results": f"FSDPBENCH_RENDEZVOUS={self.folder}"}
        self.assertLessEqual(set(here) | {"--full"}, set(launcher["args"]))
        # Without the soak of minutes, which is tested elsewhere.
        words = [here.get(word, word) for word in launcher["args"] if word != "--full"]
        for fault, code in (("", 0), ("slow", FAIL)):
            self.host(fault)

            def attempt() -> dict | None:
                shutil.rmtree(self.folder / "accept", ignore_errors=True)
                done = self.shell(shlex.join(launcher["command"] + words), OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
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
        1.5 times as long."""
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        shutil.rmtree(self.folder / "build", ignore_errors=True)
        run = Path(__file__).resolve().parent / "run.toml"
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
  accept) exec {program.PROGRAM} accept {self.acceptance} "$@" {SLOW if fault == "slow" else ""} ;;
  run) {program.PROGRAM} simulate {run} "$@" {f"&& python3 -B {slower}" if fault == "slower" else ""} ;;
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
        self.call("simulate", str(Path(__file__).resolve().parent / "run.toml"), "--out", "kept", "-q")
        self.call("baseline", "add", "kept", "--in", "baselines")
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
            self.assertIn(said, page)
            self.assertEqual(page.count("\n# ") + page.startswith("# "), 1 if fault == "slow" else 2, page)

    def run_jenkins(self) -> tuple[dict[str, int], str]:
        """Each stage's exit code, and what all of its files of JUnit say."""
        text = re.sub(r"//[^\n]*", "", (recipes() / "ci/Jenkinsfile").read_text())
        codes: dict[str, int] = {}
        caught: set[str] = set()
        for name, body in re.findall(r"stage\('(\w+)'\)(.*?)(?=stage\('|\bpost\b)", text, re.DOTALL):
            if "catchError" in body:
                caught.add(name)
            if any(code for stage, code in codes.items() if stage not in caught):
                continue
            for command in re.findall(r"sh '([^']+)'", body):
                codes[name] = self.shell(command).returncode
        files = sorted(self.folder.glob(re.search(r"junit testResults: '([^']+)'", text)[1]))
        return codes, "".join(path.read_text() for path in files)

    def test_jenkins_goes_on_to_the_gate_and_shows_what_failed(self) -> None:
        self.host_of_ci("")
        self.shell("make build")
        kept = self.until_judged(lambda: self.shell("build/bin/fsdpbench accept cpu --set mesh.ranks=6 --out kept --overwrite")
                                 .returncode == 0 or None)
        self.assertTrue(kept)
        self.call("baseline", "add", "kept", "--in", "baselines")
        for fault, accepted in (("", 0), ("slow", FAIL)):
            def attempt() -> tuple[int, str] | None:
                self.host_of_ci(fault)
                codes, cases = self.run_jenkins()
                self.assertEqual((list(codes), codes["build"]), (["build", "accept", "gate"], 0))
                if codes["accept"] == INCONCLUSIVE:
                    return None
                self.assertEqual(codes["accept"], accepted, cases)
                return codes["gate"], cases
            gated, cases = self.until_judged(attempt)
            self.assertEqual(cases.count("<testsuites"), 2, cases)
            if fault:
                self.assertNotEqual(gated, 0)
                self.assertRegex(cases, r"<failure[^>]*rank 3 ")
            else:  # whether one earlier result suffices to judge the times depends on how busy this host is
                self.assertIn(gated, (0, INCONCLUSIVE))
                self.assertNotIn("<failure", cases)

    def test_container_ends_with_the_verdict(self) -> None:
        self.stand_in("docker", DOCKER.replace("IMAGE", repr(str(self.folder / "image")), 1)
                      .replace("BUILD", repr(str(Path(program.PROGRAM).resolve().parent.parent)), 1))
        text = (recipes() / "container/Containerfile").read_text()
        build, run = re.findall(r"(?m)^#   (docker .*)$", text)
        self.assertRegex(build, r" \.$")
        (self.folder / "image").mkdir()
        done = self.shell(re.sub(r"\.$", shlex.quote(str(program.SOURCE)), build))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # The profile of the command is that of the image; the computation and the links of its ranks are emulated.
        small = shlex.join(sets("model.layers=2", "model.width=64", "model.ffn_width=128", "train.seq_len=32", "train.steps=5",
                                "train.batch_per_rank=1", "emulate.compute_tflops=0.002", "emulate.link_gb_per_s=0.2",
                                "mesh.ranks=6"))
        for fault, code in (("", 0), (SLOW, FAIL)):
            def attempt() -> str | None:
                done = self.shell(f"{run} {small} {fault} --out out --overwrite")
                if done.returncode == INCONCLUSIVE:
                    return None
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                return done.stdout
            told = self.until_judged(attempt)
            self.assertTrue(told.startswith("FAIL: 6 ranks" if fault else "PASS: 6 ranks"), told)
        self.assertIn("rank 3 ", told)
        doctor = self.shell(re.sub(r" accept .*", "", run))
        self.assertTrue(doctor.stdout.startswith("program       fsdpbench "), doctor.stdout + doctor.stderr)


if __name__ == "__main__":
    program.main()
