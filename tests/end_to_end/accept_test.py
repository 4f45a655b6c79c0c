#!/usr/bin/python3
"""`accept`: a verdict with its files on threads and processes, and who is to blame for an injected fault.

    accept_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import collections
import hashlib
import json
import os
import re
import socket
import subprocess
import xml.etree.ElementTree as ElementTree

import program
import watch_test
from program import BAD_INPUT, CANNOT_WRITE, OK, PATIENCE_S, Program, environment, free_port, sets

FAIL, INCONCLUSIVE = 10, 11
# Emulated links and computation keep their own time: what is measured is what was modelled, on a busy machine, too.
EMULATED = [program.TEXT, "model.layers=2", "model.width=64", "model.ffn_width=128", "train.seq_len=32", "train.batch_per_rank=1",
            "train.steps=5", "train.warmup=1", "mesh.ranks=6", "emulate.compute_tflops=0.002",
            "emulate.link_gb_per_s=0.2", "emulate.link_latency_us=0"]


def part(rank: int) -> str:
    return f"rank {rank} (device {rank} of node 0, {socket.gethostname()})"


class Accept(Program):
    def report(self, *keys: str, codes: tuple[int, ...], profile: str = "cpu", options: tuple[str, ...] = ()) -> dict:
        done = subprocess.run([program.PROGRAM, "accept", profile, *sets(*EMULATED, *keys), *options, "--out", "out",
                               "--overwrite"], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertIn(done.returncode, codes, done.stdout + done.stderr)
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertIn(result["verdict"].upper(), done.stdout)
        self.each_series_is_there_once((self.folder / "out/metrics.prom").read_text())
        return result

    def each_series_is_there_once(self, text: str) -> None:
        """node_exporter refuses a file with two samples of one series, and drops all of it; promtool says nothing."""
        series = []
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, _ = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line).groups()
            series.append((name, tuple(sorted(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', labels or "")))))
        twice = [one for one, count in collections.Counter(series).items() if count > 1]
        self.assertEqual(twice, [], "more than one sample of a series")

    def test_files(self) -> None:
        result = self.report(codes=(OK, FAIL, INCONCLUSIVE))
        self.assertEqual(result["ranks"], 6)
        rules = {judgement["rule"] for judgement in result["judgements"]}
        self.assertLessEqual({"inventory", "rendezvous", "floor", "exposed communication"}, rules)
        self.assertLessEqual({"shape", "overlap", "slow-down", "lateness"}, rules)
        self.assertEqual(len(result["arms"]["rounds"]), 8)
        for arms in result["arms"]["rounds"]:  # emulated, so never faster than the model
            self.assertGreaterEqual(arms["step_ms"], arms["kernels_beside_ms"])
            self.assertGreater(arms["comm_ms"], 0)
        scales = {(scale["kind"], scale["group_size"]) for scale in result["scales"]}
        self.assertLessEqual({(op, ranks) for op in ("all_gather", "reduce_scatter") for ranks in (2, 6)}, scales)
        pairs = result["pairs"]["gb_per_s"]
        self.assertEqual([[a == b or pairs[a][b] > 0 for b in range(6)] for a in range(6)], [[True] * 6] * 6)
        self.assertEqual([pairs[a][a] for a in range(6)], [0] * 6)
        named = {judgement["figure"] for judgement in result["judgements"]}
        for row in result["collectives"]:
            self.assertLessEqual(set(row["figures"]), named)
        suite = ElementTree.parse(self.folder / "out/junit.xml").getroot().find("testsuite")
        self.assertEqual(len(suite.findall("testcase")), len(result["judgements"]))
        self.assertEqual(int(suite.get("tests")), len(result["judgements"]))
        for kind, tag in (("fail", "failure"), ("inconclusive", "error"), ("unrated", "skipped")):
            count = sum(judgement["verdict"] == kind for judgement in result["judgements"])
            self.assertEqual(len(suite.findall(f"testcase/{tag}")), count)
        line = re.compile(r'^[a-z_]+\{([a-z]+="([^"\\]|\\.)*",?)+\} [-+0-9.e]+$')
        for text in (self.folder / "out/metrics.prom").read_text().splitlines():
            self.assertTrue(text.startswith("# ") or line.match(text), text)
        summary = (self.folder / "out/summary.md").read_text()
        self.assertIn("| rule | figure |", summary)
        evidence = hashlib.sha256((self.folder / "out/result.json").read_bytes()).hexdigest()
        self.assertIn(f"SHA-256 {evidence}", summary)
        # The worst step has a trace.
        events = json.loads((self.folder / "out/worst_step.json").read_text())["traceEvents"]
        steps = {event["args"]["step"] for event in events if "step" in event.get("args", {})}
        self.assertEqual(len(steps), 1, steps)
        self.check_traces("out/worst_step.json")

    def test_a_slow_rank_is_named(self) -> None:
        # Who comes last is measured: its delay, four times the usual, is to be longer than what a busy machine adds.
        keys = ("emulate.compute_tflops=0.0005", "inject.slow_rank=3", "inject.slow_rank_factor=2")
        result = self.report(*keys, codes=(FAIL,))
        accused = [finding["part"] for finding in result["findings"] if finding["kind"] == "slow"]
        self.assertIn(part(3), accused)
        late = [judgement for judgement in result["judgements"] if judgement["rule"] == "lateness"]
        self.assertEqual([judgement["verdict"] for judgement in late], ["fail"])
        self.assertIn(f"{part(3)} comes last", late[0]["why"])
        self.assertGreater(result["lateness"]["last_share"][3], 0.5)

    def test_a_slow_link_is_named(self) -> None:
        # Quick links, as the slow one is measured again and again.
        result = self.report("emulate.link_gb_per_s=1", "inject.slow_link_rank=2", "inject.slow_link_factor=3", codes=(FAIL,))
        accused = [finding["part"] for finding in result["findings"] if finding["kind"] == "slow"]
        self.assertIn(part(2), accused)

    def test_a_spent_budget_leaves_out_what_comes_and_says_so(self) -> None:
        # The pairs alone take longer: emulated links are never faster than their model.
        result = self.report(codes=(FAIL, INCONCLUSIVE), options=("--budget", "1s", "--full"))
        left_out = [stage["skipped"] for stage in result["stages"]]
        self.assertNotIn(False, left_out[left_out.index(True):], "nothing begins when all is spent")
        skipped = {stage["name"] for stage in result["stages"] if stage["skipped"]}
        self.assertLessEqual({"pairs of ranks", "collectives", "training steps of quickstart", "soak",
                              "computation alone, communication alone and both"}, skipped)
        inconclusive = {judgement["figure"] for judgement in result["judgements"]
                        if judgement["rule"] == "stages" and judgement["verdict"] == "inconclusive"}
        self.assertEqual(skipped, inconclusive)
        self.assertEqual(result["verdict"], "inconclusive")
        self.assertIn("is no duration", self.error("accept", "cpu", "--budget", "soon"))

    def test_one_rank_has_no_collectives_and_passes_nothing(self) -> None:
        # As when somebody forgets mpirun. Nobody reads what it prints, either.
        with open("/dev/full", "w", encoding="ascii") as full:
            process = self.start("accept", "cpu", *sets(*EMULATED, "mesh.ranks=1"), "--out", "out", stdout=full)
            self.assertIn("standard output could not be written", process.communicate(timeout=PATIENCE_S)[1])
        self.assertEqual(process.returncode, CANNOT_WRITE)
        result = json.loads((self.folder / "out/result.json").read_text())
        why = [judgement["why"] for judgement in result["judgements"] if judgement["figure"] == "collectives"]
        self.assertEqual((result["verdict"], len(why)), ("inconclusive", 1))
        self.assertIn("mpirun, torchrun or srun", why[0])

    def test_too_few_ranks_stop_it(self) -> None:
        profile = self.write("more.toml", 'version = 1\nfabric = "more"\nrun = "quickstart"\nranks = 7\nmatrix = 64\n')
        result = self.report(codes=(FAIL,), profile=profile)
        verdicts = {judgement["rule"]: judgement["verdict"] for judgement in result["judgements"]}
        self.assertEqual(verdicts["rendezvous"], "fail")
        self.assertEqual(verdicts["stages"], "inconclusive")
        self.assertNotIn("floor", verdicts)

    def test_a_floor_that_nothing_reaches_fails(self) -> None:
        profile = self.write("hard.toml", 'version = 1\nfabric = "dreams"\nrun = "quickstart"\nranks = 6\nmatrix = 64\n'
                             'transport = ["NET/IB"]\n'
                             '[[reference]]\nfigure = "all_gather"\nvalue = 1000\nsource = "nobody"\n')
        result = self.report(codes=(FAIL,), profile=profile)
        failed = {judgement["rule"] for judgement in result["judgements"] if judgement["verdict"] == "fail"}
        self.assertLessEqual({"floor", "transport"}, failed)
        self.assertEqual(len(set(result["transports"])), 1)
        self.assertEqual(len(result["rendezvous"]["ready_s"]), 6)

    def test_processes(self) -> None:
        port = free_port()
        arguments = [program.PROGRAM, "accept", "cpu", *sets(*[key for key in EMULATED if "mesh" not in key]), "--out", "out"]
        processes = [subprocess.Popen(arguments, text=True, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=environment(RANK=rank, WORLD_SIZE=3, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=3,
                                                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port)) for rank in range(3)]
        for process in processes:
            self.addCleanup(process.kill)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
        codes = {process.returncode for process in processes}
        self.assertEqual(len(codes), 1, outputs)
        self.assertLessEqual(codes, {OK, FAIL, INCONCLUSIVE}, outputs)
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertEqual(result["ranks"], 3)
        self.assertEqual(outputs[1], ("", ""))

    def test_nodes_are_ends_and_their_ranks_are_rails(self) -> None:
        # Six processes of three nodes, by the names that a launcher gives them.
        port = free_port()
        arguments = [program.PROGRAM, "accept", "cpu", *sets(*[key for key in EMULATED if "mesh" not in key]), "--out", "out"]
        processes = [subprocess.Popen(arguments, text=True, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=environment(RANK=rank, WORLD_SIZE=6, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=6,
                                                      NODE_NAME=f"node{rank // 2}", SLURM_TOPOLOGY_ADDR=f"leaf{rank // 4}.n",
                                                      SLURM_TOPOLOGY_ADDR_PATTERN="switch.node",
                                                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port)) for rank in range(6)]
        for process in processes:
            self.addCleanup(process.kill)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
        self.assertLessEqual({process.returncode for process in processes}, {OK, FAIL, INCONCLUSIVE}, outputs)
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertEqual((result["ranks"], result["nodes"]), (6, 3))
        pairs = result["pairs"]
        self.assertEqual((pairs["ends"], pairs["compared"], pairs["rounds"], pairs["measurements"]), ("nodes", False, 3, 3))
        self.assertEqual(len(pairs["one_way_gb_per_s"]), 6, "two rails of three pairs")
        for rate in pairs["one_way_gb_per_s"]:
            self.assertLessEqual(rate, 0.2001)  # the emulated link's
        self.assertEqual([[a == b or pairs["gb_per_s"][a][b] > 0 for b in range(3)] for a in range(3)], [[True] * 3] * 3)
        told = {judgement["rule"]: judgement for judgement in result["judgements"]}
        self.assertEqual(told["topology"]["why"], "Slurm (SLURM_TOPOLOGY_ADDR): 2 switches")
        self.assertEqual(told["lateness"]["verdict"] in ("pass", "fail", "inconclusive"), True)
        self.assertEqual({scale["group_size"] for scale in result["scales"]}, {2, 6})
        self.assertEqual(len(result["rendezvous"]["clocks"]), 6)
        self.assertEqual(len(set(result["transports"])), 1)
        self.assertNotIn("", result["transports"])

    def test_nccls_ras_is_asked_when_ranks_do_not_come_to_an_end(self) -> None:
        program.use_package_of_source(self)
        ras = watch_test.Ras([[8, 7]])
        self.addCleanup(ras.close)
        keys = [key for key in EMULATED if "ranks" not in key] + ["mesh.ranks=2"]
        done = subprocess.run([program.PROGRAM, "accept", "cpu", *sets(*keys), "--full", "--budget", "600s", "--limit", "1s",
                               "--ras", ras.name, "--out", "out"], cwd=self.folder, capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertIn(f"NCCL's RAS ({ras.name}) says: Rank 1 (process 4701 on 10.0.0.2, GPU 1) has not come",
                      result["findings"][0]["evidence"])
        self.assertIn("has not come", result["meanwhile"][-1])
        self.assertEqual(ras.asked, 1)

    def test_nccls_ras_is_asked_when_a_rank_is_killed(self) -> None:
        program.use_package_of_source(self)
        ras = watch_test.Ras([[8, None]])
        self.addCleanup(ras.close)
        port = free_port()
        arguments = [program.PROGRAM, "accept", "cpu", *sets(*[key for key in EMULATED if "mesh" not in key]), "--full",
                     "--budget", "600s", "--ras", ras.name, "--out", "out"]
        first, second = [subprocess.Popen(arguments, text=True, cwd=self.folder, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT,
                                          env=environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2,
                                                          MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                                                          FSDPBENCH_PYTHON=os.environ["FSDPBENCH_PYTHON"])) for rank in range(2)]
        for process in (first, second):
            self.addCleanup(process.kill)
        for line in first.stdout:
            if "matrix products" in line:
                break
        second.kill()
        said = first.communicate(timeout=PATIENCE_S)[0]
        second.communicate()
        self.assertEqual(first.returncode, 5, said)
        self.assertEqual(ras.asked, 1)
        [finding] = json.loads((self.folder / "out/result.json").read_text())["findings"]
        self.assertIn("rank 1", finding["part"])
        self.assertIn(f"NCCL's RAS ({ras.name}) says: ", finding["evidence"])

    def test_a_rank_whose_environment_differs_is_named(self) -> None:
        # Seven ranks are wanted and three come, so that it ends with the inventory.
        profile = self.write("more.toml", 'version = 1\nfabric = "more"\nrun = "quickstart"\nranks = 7\nmatrix = 64\n')
        port = free_port()
        arguments = [program.PROGRAM, "accept", profile, *sets(*[key for key in EMULATED if "mesh" not in key]), "--out", "out"]
        differs = {0: {"NCCL_DEBUG": "INFO"}, 1: {"NCCL_IB_HCA": "mlx5_0", "LD_LIBRARY_PATH": "/opt/elsewhere"}, 2: {}}
        clean = {name: value for name, value in environment().items()
                 if not name.startswith("NCCL_") and name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        processes = [subprocess.Popen(arguments, text=True, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=clean | differs[rank] | {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank),
                                                                   "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                                                   "MASTER_PORT": str(port)}) for rank in range(3)]
        for process in processes:
            self.addCleanup(process.kill)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
        self.assertEqual({process.returncode for process in processes}, {FAIL}, outputs)
        result = json.loads((self.folder / "out/result.json").read_text())
        told = {judgement["figure"]: judgement["why"] for judgement in result["judgements"]
                if judgement["rule"] == "inventory" and judgement["verdict"] == "inconclusive"}
        self.assertEqual(set(told), {"variable NCCL_IB_HCA", "variable LD_LIBRARY_PATH"},
                         "NCCL_DEBUG only says more")
        self.assertIn("= 'mlx5_0', and 2 of 3 ranks have 'not set'", told["variable NCCL_IB_HCA"])

    def test_a_configuration_that_one_rank_refuses_is_no_lost_rank(self) -> None:
        # Two hosts, one without the data: here two folders, one of which has no such file.
        other = self.folder / "other"
        other.mkdir()
        self.write("text.txt", "All the ranks of the first folder read this. " * 500)
        port = free_port()
        arguments = [program.PROGRAM, "accept", "cpu", *sets(*[key for key in EMULATED if "mesh" not in key],
                                                             "data.path=text.txt"), "--out", "out"]
        processes = [subprocess.Popen(arguments, text=True, cwd=other if rank == 1 else self.folder,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2,
                                                      MASTER_ADDR="127.0.0.1", MASTER_PORT=port)) for rank in range(2)]
        for process in processes:
            self.addCleanup(process.kill)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
        self.assertEqual([process.returncode for process in processes], [BAD_INPUT] * 2, outputs)
        self.assertIn("data.path", outputs[0][1])
        self.assertIn("there is no such file", outputs[0][1])
        self.assertFalse((self.folder / "out/fail_nodes.txt").exists(), "a node is accused")

    def test_what_is_wrong_with_a_profile_is_said(self) -> None:
        self.assertIn("acceptance profile", self.error("accept", "no-such"))
        profile = self.write("bad.toml", 'version = 1\nfabric = "x"\nrun = "quickstart"\nmatrx = 3\n')
        self.assertRegex(self.error("accept", profile), "no key 'matrx' in an acceptance profile; valid: version, .*, matrix, .*, "
                         "reference.$")
        run = self.write("run.toml", 'version = 1\nfabric = "x"\nrun = "quickstart"\ntrain = {steps = 3}\n')
        self.assertIn("; the profile of a run has train.steps.", self.error("accept", run))
        figure = self.write("figure.toml", 'version = 1\nfabric = "x"\nrun = "quickstart"\n'
                            '[[reference]]\nfigure = "latency"\nvalue = 1\nsource = "s"\n')
        self.assertIn("latency", self.error("accept", figure))
        self.assertIn("virtual", self.error("accept", "cpu", "--set", "device.backend=virtual"))
        pair = '[[reference]]\nfigure = "pair"\nvalue = 5\nsource = "s"\n'
        twice = self.write("twice.toml", f'version = 1\nfabric = "x"\nrun = "quickstart"\n{pair}{pair}')
        self.assertRegex(self.error("accept", twice), r'twice.toml:8.*"pair" has a reference already')
        low = self.write("low.toml", f'version = 1\nfabric = "x"\nrun = "quickstart"\n{pair}ceiling = 4\n')
        self.assertIn("ceiling", self.error("accept", low))


if __name__ == "__main__":
    program.main()
