#!/usr/bin/python3
"""The recipes of docs/recipes: scripts with stand-ins of what they call, and files against what the program really does.

    recipes_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "end_to_end"))

import program  # noqa: E402
from program import PATIENCE_S, Program, sets  # noqa: E402

import yaml  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

RANK_LOST, SLOWER, WRONG_DATA, FAIL, INCONCLUSIVE, OTHER_MACHINE = 5, 7, 9, 10, 11, 12


def recipes() -> Path:
    return program.SOURCE / "docs/recipes"


def scripts() -> list[Path]:
    return [path for path in sorted(recipes().rglob("*")) if path.is_file() and path.read_bytes().startswith(b"#!/bin/")]


# torchrun with the arguments of our recipe: all ranks of a node, once more if one is lost.
TORCHRUN = """while [ $# -gt 0 ]; do
  case $1 in
    --nproc-per-node) ranks=$2; shift 2 ;;
    --max-restarts) restarts=$2; shift 2 ;;
    --no-python) shift; break ;;
    *) shift 2 ;;
  esac
done
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT TORCHELASTIC_RUN_ID=x
count=0
while :; do
  export TORCHELASTIC_RESTART_COUNT=$count
  pids=; rank=0
  while [ $rank -lt $ranks ]; do RANK=$rank LOCAL_RANK=$rank "$@" & pids="$pids $!"; rank=$((rank + 1)); done
  failed=0
  for pid in $pids; do wait $pid || failed=1; done
  [ $failed = 0 ] && exit 0
  [ $count -lt $restarts ] || exit 1
  count=$((count + 1))
done"""


class Scripts(Program):
    """Each with stand-ins: the program, which ends with a code of our choice and writes what it would, and what is there
    on a cluster only."""

    def setUp(self) -> None:
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "FSDPBENCH": str(self.bin / "fsdpbench"),
                            "FSDPBENCH_RESULTS": str(self.folder / "results"),
                            "FSDPBENCH_TEXTFILES": str(self.folder / "textfiles"), "SLURMD_NODENAME": "node7"}
        (self.folder / "textfiles").mkdir()
        for name in ("scontrol", "logger"):
            self.stand_in(name, f'echo "$@" >>{self.folder}/{name}.log')

    def stand_in(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def program_ends(self, accept: int, gate: int = 0, part: str = "rank 3 of node7 reaches half") -> None:
        self.stand_in("fsdpbench", f"""echo "$@" >>{self.folder}/fsdpbench.log
out=; command=$1
while [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; shift; done
mkdir -p "$out"
case $command in
  accept) printf '# FAIL: 8 ranks\\n\\n- {part}\\n' >"$out/summary.md"; echo 'fsdpbench_accept_verdict 3' >"$out/metrics.prom"
          echo '{{}}' >"$out/result.json"; exit {accept} ;;
  gate) printf '# WORSE: 1 of 2 figures\\n' >"$out/summary.md"; exit {gate} ;;
esac""")

    def said(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def run_script(self, name: str, *arguments: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([recipes() / name, *arguments], env=self.environment | more, cwd=self.folder,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_shellcheck(self) -> None:
        if shutil.which("shellcheck") is None:
            self.skipTest("shellcheck is not installed (make build)")
        self.assertGreaterEqual(len(scripts()), 4)
        done = subprocess.run(["shellcheck", *scripts()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        for script in scripts():
            self.assertTrue(os.access(script, os.X_OK), script)

    def test_prolog_drains_a_node_that_fails_and_says_who_is_to_blame(self) -> None:
        for code in (FAIL, WRONG_DATA):
            self.program_ends(code)
            self.run_script("slurm/prolog.sh", code=1)
            self.assertIn("NodeName=node7 State=DRAIN Reason=fsdpbench: rank 3 of node7 reaches half", self.said("scontrol"))
        self.assertEqual((self.folder / "textfiles/fsdpbench.prom").read_text(), "fsdpbench_accept_verdict 3\n")
        self.assertEqual([path.name for path in (self.folder / "textfiles").iterdir()], ["fsdpbench.prom"])

    def test_prolog_drains_no_node_that_it_could_not_judge(self) -> None:
        for code in (0, 1, 2, 3, 4, INCONCLUSIVE, 127):
            self.program_ends(code)
            self.run_script("slurm/prolog.sh")
        self.assertEqual(self.said("scontrol"), "")
        self.assertEqual(self.said("logger").count("not judged"), 6)

    def test_prolog_starts_no_job_after_a_lost_rank_a_hang_or_a_crash(self) -> None:
        for code, why in ((RANK_LOST, "rank 3 of node7 reaches half"), (124, "the acceptance hung for 275 s"),
                          (137, "the acceptance hung for 275 s"), (139, "the acceptance crashed (exit code 139)")):
            self.program_ends(code)
            self.run_script("slurm/prolog.sh", code=1)
            self.assertIn(f"NodeName=node7 State=DRAIN Reason=fsdpbench: {why}", self.said("scontrol").splitlines()[-1])

    def test_prolog_ends_what_hangs(self) -> None:
        self.stand_in("fsdpbench", "sleep 3600")
        self.run_script("slurm/prolog.sh", code=1, FSDPBENCH_LIMIT_S="1", FSDPBENCH_GRACE_S="1")
        self.assertIn("the acceptance hung for 2 s", self.said("scontrol"))

    def test_prolog_does_not_listen_to_the_job(self) -> None:
        self.stand_in("fsdpbench", f"env >{self.folder}/environment; exit 0")
        self.run_script("slurm/prolog.sh", NCCL_ALGO="Tree", LD_PRELOAD_TRICK="x")
        self.assertNotIn("NCCL_ALGO", (self.folder / "environment").read_text())

    def test_epilog_drains_what_became_slower(self) -> None:
        self.program_ends(0, SLOWER)
        self.run_script("slurm/epilog.sh")
        self.assertEqual(self.said("fsdpbench"), "", "without baselines it does nothing")
        (self.folder / "results/baselines").mkdir(parents=True)
        self.run_script("slurm/epilog.sh")
        self.assertIn("Reason=fsdpbench: WORSE: 1 of 2 figures", self.said("scontrol"))

    def test_epilog_drains_nothing_else(self) -> None:
        (self.folder / "results/baselines").mkdir(parents=True)
        for accept, gate in ((0, 0), (INCONCLUSIVE, 0), (0, INCONCLUSIVE), (0, OTHER_MACHINE), (4, 2)):
            self.program_ends(accept, gate)
            self.run_script("slurm/epilog.sh")
        self.assertEqual(self.said("scontrol"), "")
        self.program_ends(FAIL, 0)
        self.run_script("slurm/epilog.sh")
        self.assertIn("Reason=fsdpbench: rank 3 of node7 reaches half", self.said("scontrol"))
        for code, why in ((RANK_LOST, "rank 3 of node7 reaches half"), (124, "the acceptance hung for 275 s"),
                          (139, "the acceptance crashed (exit code 139)")):
            self.program_ends(code, 0)
            self.run_script("slurm/epilog.sh")
            self.assertIn(f"Reason=fsdpbench: {why}", self.said("scontrol").splitlines()[-1])

    def test_what_an_earlier_acceptance_wrote_is_no_answer_of_one_that_cannot_start(self) -> None:
        (self.folder / "results/baselines").mkdir(parents=True)
        for script in ("prolog", "epilog"):
            self.program_ends(FAIL, SLOWER)
            self.run_script(f"slurm/{script}.sh", code=1 if script == "prolog" else 0)
            (self.folder / "scontrol.log").unlink()
            (self.folder / "textfiles/fsdpbench.prom").unlink(missing_ok=True)
            self.stand_in("fsdpbench", f'echo "$1" >>{self.folder}/asked.log; exit 2')
            self.run_script(f"slurm/{script}.sh")
            self.assertEqual(self.said("scontrol"), "", script)
            self.assertEqual(self.said("asked"), "accept\n", "nothing was measured that a gate could judge")
            (self.folder / "asked.log").unlink()
            self.assertEqual(list((self.folder / "textfiles").iterdir()), [])
            self.assertIn("not judged", self.said("logger"))

    def test_sbatch_ends_with_the_gate_or_the_acceptance(self) -> None:
        self.stand_in("srun", f'[ ${{#FSDPBENCH_SECRET}} -ge 32 ] || exit 99; while [ "${{1#--}}" != "$1" ]; do shift; done; exec "$@"')
        (self.folder / "kept").mkdir()
        given = {"SLURM_JOB_ID": "17", "FSDPBENCH_BASELINES": str(self.folder / "kept"), "HOME": str(self.folder)}
        for accept, gate, code in ((0, 0, 0), (0, SLOWER, SLOWER), (FAIL, 0, FAIL), (INCONCLUSIVE, SLOWER, INCONCLUSIVE),
                                   (137, 0, RANK_LOST)):
            self.program_ends(accept, gate)
            self.run_script("slurm/accept.sbatch", "a.toml", code=code, **given)
        self.assertIn(f"accept a.toml --full --budget 30m --limit 40m --out {self.folder}/results/17", self.said("fsdpbench"))

    def test_a_training_is_queued_again_where_that_helps(self) -> None:
        self.stand_in("srun", f'[ ${{#FSDPBENCH_SECRET}} -ge 32 ] || exit 99; shift; echo "$@" >>{self.folder}/srun.log; exec "$@"')
        for code, again in ((0, 0), (2, 0), (3, 0), (5, 1), (8, 0), (130, 1), (143, 1)):
            self.stand_in("fsdpbench", f"exit {code}")
            (self.folder / "scontrol.log").unlink(missing_ok=True)
            self.run_script("slurm/train.sbatch", "a.toml", "/shared/a", "--set", "train.steps=9", code=code,
                            SLURM_JOB_ID="17")
            self.assertEqual(self.said("scontrol"), "requeue 17\n" * again, code)
        self.assertIn(" run a.toml --set checkpoint.folder=/shared/a/checkpoints --set checkpoint.every=50 --resume "
                      "/shared/a/checkpoints --out /shared/a/result --overwrite --set train.steps=9\n", self.said("srun"))
        self.stand_in("fsdpbench", "exit 5")
        (self.folder / "scontrol.log").unlink(missing_ok=True)
        self.run_script("slurm/train.sbatch", "a.toml", "b", code=5, SLURM_JOB_ID="17", SLURM_RESTART_COUNT="10")
        self.assertEqual(self.said("scontrol"), "")

    def test_a_training_is_told_that_its_time_ends_and_goes_on_later(self) -> None:
        """With the program itself: what it has done when Slurm's warning comes is saved, and not done again."""
        self.stand_in("srun", 'shift; exec "$@"')
        training = ["quickstart", str(self.folder / "t"), *sets(*program.TINY, *program.SLOW, "train.steps=1000")]
        given = self.environment | {"SLURM_JOB_ID": "17", "FSDPBENCH": program.PROGRAM, "EVERY": "1000"}
        started = subprocess.Popen([recipes() / "slurm/train.sbatch", *training], env=given, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in started.stderr:
            if line.startswith("step") and int(line.split()[1].split("/")[0]) >= 2:
                break
        started.terminate()
        started.communicate(timeout=PATIENCE_S)
        self.assertEqual(started.returncode, program.INTERRUPTED)
        self.assertEqual(self.said("scontrol"), "requeue 17\n")
        done = int(sorted((self.folder / "t/checkpoints").glob("step-*/manifest.json"))[-1].parent.name[5:])
        training[-1] = f"train.steps={done + 2}"
        subprocess.run([recipes() / "slurm/train.sbatch", *training], env=given, cwd=self.folder, check=True,
                       capture_output=True, timeout=PATIENCE_S)
        result = json.loads((self.folder / "t/result/result.json").read_text())
        self.assertEqual(result["train"]["began_after_step"], done)

    def test_a_training_goes_on_after_torchrun_has_started_it_again(self) -> None:
        """FSDPBENCH_TORCHRUN="python -m torch.distributed.run": with the real one."""
        self.stand_in("torchrun", TORCHRUN)
        # The first rank 1 is lost once something is saved.
        self.stand_in("lost", f"""if [ "$RANK" = 1 ] && mkdir {self.folder}/struck 2>/dev/null; then
  {program.PROGRAM} "$@" & running=$!
  until ls {self.folder}/t/checkpoints/step-*/manifest.json >/dev/null 2>&1; do
    kill -0 $running 2>/dev/null || break; sleep 0.01; done
  kill -9 $running; exit 9
fi
exec {program.PROGRAM} "$@"
""")
        keys = sets(*(key for key in program.TINY if "batch" not in key), *program.SLOW, "train.batch_global=4",
                     "train.steps=40")
        given = self.environment | {"FSDPBENCH": str(self.bin / "lost"), "EVERY": "1", "RANKS_PER_NODE": "2", "RESTARTS": "2",
                                    "PORT": str(program.free_port()),
                                    "TORCHRUN": os.environ.get("FSDPBENCH_TORCHRUN", "torchrun")}
        done = subprocess.run([recipes() / "torchrun/train.sh", "quickstart", str(self.folder / "t"), *keys], env=given,
                              cwd=self.folder, capture_output=True, text=True, timeout=2 * PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads((self.folder / "t/result/result.json").read_text())
        self.assertGreater(result["train"]["began_after_step"], 0)
        self.assertEqual(result["config"]["train"]["batch_per_rank"], 2)

    def test_a_node_gets_its_verdict_as_a_label(self) -> None:
        seen = []

        class Api(http.server.BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen.append((self.path, self.headers["Content-Type"], self.headers["Authorization"], json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (self.folder / "account").mkdir()
        (self.folder / "account/token").write_text("a-token")
        given = {"KUBERNETES_API": f"http://127.0.0.1:{server.server_port}", "NODE_NAME": "node-a",
                 "FSDPBENCH_OUT": str(self.folder / "out"), "SERVICE_ACCOUNT": str(self.folder / "account")}
        for code, verdict in ((0, "pass"), (FAIL, "fail"), (WRONG_DATA, "fail"), (INCONCLUSIVE, "inconclusive"), (RANK_LOST, "fail"), (124, "fail"), (137, "fail"),
                              (139, "fail"), (4, "error"), (127, "error")):
            self.program_ends(code)
            self.run_script("kubernetes/label-node.sh", "hgx-h100", code=code, **given)
            path, kind, authorization, body = seen[-1]
            self.assertEqual((path, kind, authorization), ("/api/v1/nodes/node-a", "application/merge-patch+json",
                                                           "Bearer a-token"))
            labels = body["metadata"]["labels"]
            self.assertEqual((list(body), list(body["metadata"]), labels["fsdpbench.io/verdict"]), (["metadata"], ["labels"], verdict))
            for value in labels.values():
                self.assertRegex(value, r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")  # what a label may be

    def test_a_node_whose_acceptance_hangs_does_not_keep_its_label(self) -> None:
        self.stand_in("fsdpbench", "sleep 3600")
        self.stand_in("curl", f'echo "$@" >>{self.folder}/curl.log')
        self.run_script("kubernetes/label-node.sh", "hgx-h100", code=124, NODE_NAME="a", FSDPBENCH_HANG_S="1",
                        FSDPBENCH_OUT=str(self.folder / "out"))
        self.assertIn('"fsdpbench.io/verdict":"fail"', self.said("curl"))
        job = next(document for document in yaml.safe_load_all((recipes() / "kubernetes/node-acceptance.yaml").read_text())
                   if document["kind"] == "Job")
        hangs_after_s = int(re.search(r"FSDPBENCH_HANG_S:=(\d+)", (recipes() / "kubernetes/label-node.sh").read_text()).group(1))
        self.assertGreater(job["spec"]["activeDeadlineSeconds"], hangs_after_s + 60)  # which ends the script, too

    def test_a_node_that_cannot_be_labelled_is_no_success(self) -> None:
        self.program_ends(0)
        self.run_script("kubernetes/label-node.sh", "hgx-h100", code=4, KUBERNETES_API="http://127.0.0.1:1", NODE_NAME="a",
                        FSDPBENCH_OUT=str(self.folder / "out"))


class Commands(Program):
    def test_every_command_of_a_recipe_exists_with_its_options(self) -> None:
        helps: dict[str, str] = {}
        count = 0
        for path in sorted(recipes().rglob("*")):
            if not path.is_file():
                continue
            text = path.read_text().replace("\\\n", " ")
            for command, rest in re.findall(r"(?:\bfsdpbench|\"\$FSDPBENCH\") (accept|gate|run|report|collectives)\b([^\n|;'`]*)", text):
                if command not in helps:
                    helps[command] = self.call(*command.split(), "--help").stdout
                for option in re.findall(r"(?<=\s)--[a-z][-a-z]*", rest):
                    self.assertIn(option, helps[command], f"{path}: fsdpbench {command}{rest}")
                count += 1
        self.assertGreaterEqual(count, 10)

    def test_every_profile_of_a_recipe_exists(self) -> None:
        names = set()
        for path in sorted(recipes().rglob("*")):
            if path.is_file():
                names |= set(re.findall(r'(?:FSDPBENCH_PROFILE:=|PROFILE:-|args: \["|accept |- )(cpu|[a-z]+-[a-z]\d+(?:-nodes)?)\b', path.read_text()))
        self.assertLessEqual({"cpu", "hgx-h100", "hgx-h100-nodes"}, names)
        for name in names:
            self.assertTrue((program.SOURCE / f"profiles/acceptance/{name}.toml").is_file(), name)


class Kubernetes(Program):
    def documents(self, name: str) -> list[dict]:
        return list(yaml.safe_load_all((recipes() / "kubernetes" / name).read_text()))

    def test_the_job_may_do_what_its_script_does_and_no_more(self) -> None:
        by_kind = {document["kind"]: document for document in self.documents("node-acceptance.yaml")}
        self.assertEqual(by_kind["ClusterRole"]["rules"], [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}])
        binding, account = by_kind["ClusterRoleBinding"], by_kind["ServiceAccount"]["metadata"]
        self.assertEqual(binding["roleRef"]["name"], by_kind["ClusterRole"]["metadata"]["name"])
        self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", **account}])
        job = by_kind["Job"]["spec"]
        pod = job["template"]["spec"]
        self.assertEqual((job["backoffLimit"], pod["restartPolicy"], pod["serviceAccountName"]), (0, "Never", account["name"]))
        names = {volume["name"] for volume in pod["volumes"]}
        self.assertLessEqual({mount["name"] for mount in pod["containers"][0]["volumeMounts"]}, names)
        self.assertIn("NODE_NAME", [variable["name"] for variable in pod["containers"][0]["env"]])

    def test_the_mpi_job_asks_for_nodes_that_passed(self) -> None:
        job = self.documents("mpijob.yaml")[0]
        replicas = job["spec"]["mpiReplicaSpecs"]
        worker, launcher = replicas["Worker"], replicas["Launcher"]["template"]["spec"]["containers"][0]
        self.assertEqual(worker["template"]["spec"]["nodeSelector"], {"fsdpbench.io/verdict": "pass"})
        ranks = int(launcher["args"][launcher["args"].index("-np") + 1])
        self.assertEqual(ranks, worker["replicas"] * job["spec"]["slotsPerWorker"])
        gpus = worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        self.assertEqual(int(gpus), job["spec"]["slotsPerWorker"])

    def test_schemas(self) -> None:
        """Where somebody has installed them (make check-recipes): those of Kubernetes itself."""
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("kubernetes-validate is not installed (make check-recipes)")
        for name in ("node-acceptance.yaml", "mpijob.yaml"):
            for document in self.documents(name):
                if document["apiVersion"].startswith("kubeflow.org"):
                    continue  # not Kubernetes' own
                text = json.dumps(document).replace("NODE", "node")
                kubernetes_validate.validate(json.loads(text), kubernetes_validate.latest_version(), strict=True)


class ContinuousIntegration(Program):
    def test_github_actions(self) -> None:
        workflow = yaml.safe_load((recipes() / "ci/github-actions.yml").read_text())
        # Anybody can write the code of a pull request, and the runner is a machine of one's own. YAML 1.1 takes `on` for true.
        self.assertEqual(set(workflow[True]), {"push", "workflow_dispatch"})
        self.assertIn("self-hosted", workflow["jobs"]["gate"]["runs-on"])
        self.assertEqual(workflow["permissions"], {"contents": "read"})
        steps = workflow["jobs"]["gate"]["steps"]
        self.assertTrue(all(("uses" in step) != ("run" in step) for step in steps))
        shown = next(i for i, step in enumerate(steps) if "GITHUB_STEP_SUMMARY" in step.get("run", ""))
        gated = next(i for i, step in enumerate(steps) if " gate " in step.get("run", ""))
        self.assertGreater(shown, gated)
        self.assertEqual(steps[shown]["if"], "always()")  # also of a gate that failed
        for step in steps:
            if "run" in step and shutil.which("shellcheck"):
                done = subprocess.run(["shellcheck", "--shell=bash", "-"], input=step["run"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_github_schema(self) -> None:
        """Where somebody has installed it (make check-recipes): GitHub's schema of workflows."""
        tool = Path(sys.executable).parent / "check-jsonschema"
        if not tool.exists():
            self.skipTest("check-jsonschema is not installed (make check-recipes)")
        done = subprocess.run([tool, "--builtin-schema", "vendor.github-workflows", recipes() / "ci/github-actions.yml"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Prometheus(Program):
    """The rules ask for series that `accept` and `watch` write, with the labels that they give them."""

    @classmethod
    def setUpClass(cls) -> None:
        rules = yaml.safe_load((recipes() / "prometheus/rules.yaml").read_text())
        cls.rules = [rule for group in rules["groups"] for rule in group["rules"]]
        cls.expressions = [rule["expr"] for rule in cls.rules]

    def metrics(self) -> dict[str, list[dict]]:
        done = subprocess.run([program.PROGRAM, "accept", "cpu", *sets(
            program.TEXT, "model.layers=2", "model.width=32", "train.seq_len=16", "train.steps=3", "mesh.ranks=4", "emulate.compute_tflops=0.002",
            "emulate.link_gb_per_s=0.2", "inject.slow_rank=3", "inject.slow_rank_factor=2"), "--out", "out"],
            cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, FAIL, done.stdout + done.stderr)
        self.watched()
        families = text_string_to_metric_families((self.folder / "out/metrics.prom").read_text() +
                                                  (self.folder / "watch.prom").read_text())
        return {family.name: [sample.labels for sample in family.samples] for family in families}

    def watched(self) -> None:
        """The answer of watch for the recording of a job with a late rank."""
        with tarfile.open(program.SOURCE / "tests/watch/recorded/late.tar.xz") as archive:
            archive.extractall(self.folder / "late")
        program.use_package_of_source(self)
        self.call("watch", "late", "--once", "--metrics", "watch.prom", code=10)

    def test_every_series_exists(self) -> None:
        written = self.metrics()
        from_elsewhere = {"node_textfile_mtime_seconds": {"file", "instance"}}  # node_exporter's own
        added = {"instance", "job"}  # by Prometheus
        for expression in self.expressions:
            for name, selector in re.findall(r"\b((?:fsdpbench|node)_[a-z_]+)(?:\{([^}]*)\})?", expression):
                labels = set(re.findall(r"([a-z_]+)\s*=~?", selector))
                if name in from_elsewhere:
                    self.assertLessEqual(labels, from_elsewhere[name], expression)
                    continue
                self.assertIn(name, written, expression)
                self.assertTrue(any(labels - added <= set(sample) for sample in written[name]), expression)
                for label, value in re.findall(r'([a-z_]+)="([^"$]*)"', selector):
                    self.assertIn(value, {sample.get(label) for sample in written[name]}, expression)

    def test_rules(self) -> None:
        for rule in self.rules:
            self.assertLessEqual({"alert", "expr", "labels", "annotations"}, set(rule))
            for expression in (rule["expr"],):
                for opening, closing in ("{}", "()", "[]"):
                    self.assertEqual(expression.count(opening), expression.count(closing))

    def test_prometheus_itself_takes_them(self) -> None:
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool is not installed: the rules were read as YAML only")
        done = subprocess.run([promtool, "check", "rules", recipes() / "prometheus/rules.yaml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.metrics()
        done = subprocess.run([promtool, "check", "metrics"], input=(self.folder / "out/metrics.prom").read_text(),
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    program.main()
