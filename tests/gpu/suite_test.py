#!/usr/bin/python3
"""The GPU suite's own logic, without a GPU: what it does with programs that pass, fail, hang or are not there."""

import gzip
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "rehearsal")]
import rehearse  # noqa: E402
from gpu_suite import checks, sections, speed, tools  # noqa: E402
from gpu_suite.archive import Archive  # noqa: E402
from gpu_suite.suite import Failed, Section, Suite  # noqa: E402
from gpu_suite.summary import summary  # noqa: E402

# Stands for fsdpbench: answers --version, and writes a result whose loss depends on the backend as LOSSES says. What it was
# trained on is, as with the real one, where data.path leads, and else all that lies in the source folder.
PROGRAM = """#!/usr/bin/python3 -IS
import hashlib, json, os, sys, time
from pathlib import Path
if "--version" in sys.argv:
    print("fsdpbench 0.1.0 (test)"); sys.exit(0)
if os.environ.get("HANG"):
    time.sleep(60)
settings = [a for a in sys.argv if "=" in a]
backend = next((s.split("=")[1] for s in settings if s.startswith("device.backend=")), "cuda")
losses = {"cpu": [2.0, 1.0], "cuda": [2.0, float(os.environ.get("GPU_LOSS", "1.0"))]}[backend]
if os.environ.get("RANK", "0") != "0":
    sys.exit(0)
out = Path(sys.argv[sys.argv.index("--out") + 1]); out.mkdir(parents=True)
if os.environ.get("HANG_AT") and os.environ["HANG_AT"] in " ".join(sys.argv):
    time.sleep(60)
step = {"median": 10.0, "ci_low": 9.0, "ci_high": 11.0}
text = Path(next((s.split("=")[1] for s in settings if s.startswith("data.path=")), os.environ.get("SOURCE", ".")))
bytes_ = b"".join(file.read_bytes() for file in sorted(text.rglob("*")) if file.is_file())
digest = os.environ.get("OTHER_DIGEST", "d1") if os.environ.get("OTHER", "nothing") in " ".join(sys.argv) else "d1"
device = {"pinned host memory": "1.00 GiB"}
(out / "result.json").write_text(json.dumps({
    "train": {"loss": losses, "params_digest": digest}, "metrics": {"step_ms": step, "compute_ms": 5.0, "model_tflops_per_rank": 494.5},
    "text": hashlib.sha256(bytes_).hexdigest(), "folder": os.getcwd(),
    "world": {"devices": [device]}}))
"""


TIMED = {"train.params_digest": "false"}  # what only times are wanted of brings no parameters home


class SuiteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        program = self.folder / "bin" / "fsdpbench"
        program.parent.mkdir()
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def suite(self, budget=60, root=HERE.parents[1], out="out"):
        return Suite(root, self.folder / "bin", self.folder / out, self.folder / "work", budget, {"name": "NVIDIA H200"})

    def run_one(self, function, suite=None, seconds=20):
        suite = suite or self.suite()
        suite.run_section(Section("one", seconds, function), later=60)
        written = json.loads((suite.out / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(written, suite.results)
        return suite.results["sections"][-1]

    def archived(self):
        with tarfile.open(self.folder / "out" / "logs.tar") as tar:
            return {member.name for member in tar.getmembers()}

    def environment(self, **values):
        patch = unittest.mock.patch.dict(os.environ, values)
        patch.start()
        self.addCleanup(patch.stop)

    def test_equal_losses_pass(self):
        entry = self.run_one(checks.numerics)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(set(entry["figures"].values()), {0.0})

    def test_different_losses_fail_and_name_both(self):
        self.environment(GPU_LOSS="1.5")
        entry = self.run_one(checks.numerics)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("1.5", entry["reason"])

    def test_a_loss_that_is_no_number_fails(self):
        self.environment(GPU_LOSS="nan")
        self.assertEqual(self.run_one(checks.numerics)["status"], "failed")

    def test_mfu_is_of_the_datasheet(self):
        figures = self.run_one(speed.step)["figures"]
        self.assertAlmostEqual(figures["1b: MFU % of the datasheet's 989 TFLOP/s"], 50.0)

    def test_what_hangs_is_ended_and_fails(self):
        suite = self.suite()
        self.environment(HANG="1")
        entry = self.run_one(speed.step, suite, seconds=3)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("had not ended", entry["reason"])

    def test_figures_of_before_an_overrun_are_kept(self):
        self.environment(HANG_AT="gpu-1b")
        entry = self.run_one(speed.step, seconds=4)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("had not ended", entry["reason"])
        self.assertIn("100m: step", entry["figures"])
        self.assertIn("100m: step", (self.folder / "out" / "summary.txt").read_text(encoding="utf-8"))

    def test_each_figure_is_on_the_disk_at_once(self):
        on_disk = []

        def section(suite, _seconds, figures):
            figures["first"] = 1
            on_disk.append(json.loads((suite.out / "results.json").read_text(encoding="utf-8"))["sections"][-1])

        self.run_one(section)
        self.assertEqual((on_disk[0]["status"], on_disk[0]["figures"]), ("running", {"first": 1}))

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def test_benchmarks_of_before_an_overrun_are_kept(self):
        self.program("bench_cuda_kernels", """#!/usr/bin/python3
import sys, time
path = next(a.split("=")[1] for a in sys.argv if a.startswith("--benchmark_out="))
with open(path, "w") as file:
    file.write('{"context": {"date": "today"},\\n  "benchmarks": [\\n')
    file.write('    {"name": "norm/iterations:9", "of_copy": 0.75},\\n    {"name": "softmax", "of_c')
    file.flush()
    time.sleep(60)
""")
        entry = self.run_one(speed.kernels, seconds=2)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("after 1 results", entry["reason"])
        self.assertEqual(entry["figures"], {"norm: of_copy": 0.75})

    def test_tests_of_before_an_overrun_are_counted(self):
        self.program("some_gpu_test", """#!/bin/sh
echo "[ RUN      ] A.one"; echo "[       OK ] A.one (3 ms)"; echo "[ RUN      ] A.two"; exec sleep 60
""")
        entry = self.run_one(checks.gpu_tests, seconds=2)
        self.assertEqual(entry["figures"], {"some_gpu_test": "1 passed, 0 skipped, 0 failed"})
        self.assertIn("some_gpu_test had not ended in its time in A.two", entry["reason"])

    def test_a_failed_test_is_named_without_its_parameter(self):
        self.program("some_gpu_test", """#!/bin/sh
echo "[ RUN      ] A.one/0"; echo "[  FAILED  ] A.one/0, where GetParam() = 4-byte object <00-00 00-00> (3 ms)"
echo "[ RUN      ] A.two"; echo "[       OK ] A.two (0 ms)"; exit 1
""")
        entry = self.run_one(checks.gpu_tests)
        self.assertEqual((entry["figures"], entry["reason"]),
                         ({"some_gpu_test": "1 passed, 0 skipped, 1 failed"}, "1 failed: A.one/0"))

    def test_a_program_that_skips_all_its_tests_has_checked_nothing(self):
        self.program("some_gpu_test", """#!/bin/sh
echo "[  SKIPPED ] A.one (0 ms)"; echo "[  SKIPPED ] A.two (0 ms)"
""")
        entry = self.run_one(checks.gpu_tests)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("some_gpu_test: all tests were skipped", entry["reason"])

    def test_a_section_may_have_what_others_leave(self):
        given = []
        suite = self.suite(budget=100)
        suite.run_section(Section("one", 10, lambda _suite, seconds, _figures: given.append(seconds)), later=30)
        self.assertGreater(given[0], 60)

    def test_the_sections_of_a_call_fit_into_its_time(self):
        for call in sections.CALLS:
            self.assertLessEqual(sum(section.seconds for section in call), sections.BUDGET)
        self.assertLessEqual(sections.BUDGET, 9 * 60, "a call ends within ten minutes, with what is before and after it")

    def test_our_steps_beside_pytorchs_are_timed_by_events(self):
        seen = []
        suite = self.suite()
        suite.train = lambda profile, log, seconds, overrides: seen.append(overrides) or {"metrics": {"step_ms": {"median": 10.0}}}

        def command(arguments, *_, **__):
            if "--out" in arguments:
                Path(arguments[arguments.index("--out") + 1]).write_text('{"median_ms": 12.0}', encoding="utf-8")
            return subprocess.CompletedProcess(arguments, 0, "2.9 True")

        suite.command = command
        entry = self.run_one(speed.torch, suite)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(seen, [TIMED | {"device.timer": "events"}] * 3)
        self.assertAlmostEqual(entry["figures"]["speed over PyTorch eager (1 or more: ours is at least as fast)"], 1.2)

    def test_trainings_that_are_only_timed_bring_no_parameters_home(self):
        seen, train = [], Suite.train

        def noted(suite, profile, log, seconds, overrides, environment=None):
            seen.append((log, overrides.get("train.params_digest")))
            return train(suite, profile, log, seconds, overrides, environment)

        with unittest.mock.patch.object(Suite, "train", noted):
            for section in (speed.step, speed.timers, speed.changes, speed.offload):
                self.run_one(section)
        self.assertGreater(len(seen), 14)
        self.assertEqual([log for log, asked in seen if asked != "false"], [])

    def test_steps_with_state_in_host_memory_tell_the_rates_of_their_copies(self):
        suite, asked = self.suite(), []

        def copy(name, size, us):
            return {"ph": "X", "name": name, "dur": us, "args": {"bytes": size}}

        def train(_profile, log, _seconds, overrides, _environment=None):
            asked.append(overrides["fsdp.cpu_offload"])
            folder = suite.files / "runs" / log
            folder.mkdir(parents=True, exist_ok=True)
            events = [copy("host_to_device", 4_000_000, 100.0), copy("host_to_device", 2_000_000, 100.0),
                      copy("device_to_host", 5_000_000, 100.0), {"ph": "M", "name": "host_to_device"}]
            (folder / "trace.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
            return {"metrics": {"step_ms": {"median": 10.0 * len(asked)}}, "train": {"loss": [2.0, self.last_loss]},
                    "gpus": [{"limits": {"pcie_width": 16, "pcie_generation": 5}}],
                    "world": {"devices": [{"pinned host memory": "1.00 GiB", "host updates": "by one thread"}]}}

        suite.train = train
        self.last_loss = 1.0
        entry = self.run_one(speed.offload, suite)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(asked, ["none", "optimizer", "all"])
        self.assertAlmostEqual(entry["figures"]["all: host_to_device, GB/s"], 30)
        self.assertAlmostEqual(entry["figures"]["optimizer: device_to_host, GB/s"], 50)
        self.assertAlmostEqual(entry["figures"]["PCIe, GB/s each direction at most"], 63.008)
        self.assertEqual(entry["figures"]["all: step, ms"], 30.0)
        self.assertNotIn("none: host_to_device, GB/s", entry["figures"])

        asked.clear()
        suite = self.suite()
        self.last_loss = float("nan")
        with self.assertRaises(Failed):
            suite.train = train
            speed.offload(suite, 20, {})

    def test_each_change_of_a_step_is_timed_between_two_steps_without_it(self):
        suite = self.suite()
        asked = []
        arms = speed.STEP_CHANGES + speed.STEP_OFFERS

        def train(profile, log, seconds, overrides, environment=None):
            changed = {key: value for key, value in overrides.items() if key not in ("device.timer", "train.steps", *TIMED)}
            asked.append((profile, changed))
            self.assertEqual((overrides["device.timer"], overrides["train.params_digest"]), ("events", "false"))
            if self.broken in changed:
                raise Failed(f"{self.broken} does not work")
            median = 12.0 if changed else 10.0
            return {"metrics": {"step_ms": {"median": median}}}

        suite.train = train
        suite.command = lambda *_, **__: asked.append("benchmark") or subprocess.CompletedProcess([], 0, "")
        self.program("bench_cuda_changes", "")
        self.broken = ""
        entry = self.run_one(speed.changes, suite)
        expected = ["benchmark", ("gpu-1b", {})]
        for key, value, _ in arms:
            expected += [("gpu-1b", {key: value}), ("gpu-1b", {})]
        self.assertEqual(asked, expected)
        speedups = [value for name, value in entry["figures"].items() if "speedup by" in name]
        self.assertEqual(speedups, [1.2] * len(speed.STEP_CHANGES) + [10 / 12] * len(speed.STEP_OFFERS))
        self.assertIn("bench_cuda_changes measured nothing", entry["reason"])

        self.broken = "fsdp.cast_in_optimizer"
        entry = self.run_one(speed.changes, suite)
        self.assertIn("fsdp.cast_in_optimizer does not work", entry["reason"])
        self.assertEqual(len([name for name in entry["figures"] if "speedup by" in name]), len(speedups) - 1)

    def test_the_sanitizer_looks_at_own_kernels_and_not_at_calls(self):
        self.program("compute-sanitizer", "#!/bin/sh\nprintf '%s ' \"$@\"\n")
        self.environment(PATH=f"{self.folder / 'bin'}:/usr/bin:/bin")
        self.assertEqual(self.run_one(tools.sanitizer)["figures"], {"memcheck": "no finding", "racecheck": "no finding"})
        said = (self.folder / "work" / "files" / "memcheck.log").read_text(encoding="utf-8")
        self.assertIn("--report-api-errors no", said)
        self.assertIn("--kernel-name kns=fsdpbench", said)

    def test_what_was_not_built_is_absent_with_the_reason(self):
        entry = self.run_one(speed.kernels)
        self.assertEqual((entry["status"], entry["reason"]), ("absent", "bench_cuda_kernels was not built"))

    def test_what_does_not_fit_is_named(self):
        entry = self.run_one(checks.numerics, self.suite(budget=2))
        self.assertEqual((entry["status"], entry["reason"]), ("left out", "the suite's time was up"))

    def test_the_summary_names_every_section_and_counts(self):
        suite = self.suite()
        for function in (checks.numerics, speed.kernels):
            suite.run_section(Section(function.__name__, 20, function))
        text = summary(suite.results)
        self.assertIn("NVIDIA H200", text)
        self.assertRegex(text, r"passed +numerics")
        self.assertIn("1 absent, 1 passed", text)


    def tree(self):
        """A source folder in which the suite leaves its output, as by default."""
        root = self.folder / "tree"
        for file in ("docs/one.md", "docs/two.md", "src/main.cpp"):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(f"text of {file}\n", encoding="utf-8")
        self.environment(SOURCE=str(root))
        return root

    def test_two_trainings_have_the_same_text_whatever_was_written_between_them(self):
        root = self.tree()
        suite = self.suite(root=root, out="tree/gpu-suite")
        first = suite.train("gpu-1b", "first", 20, {})
        (suite.out / "summary.txt").write_text("figures", encoding="utf-8")
        (suite.files / "more.log").write_text("said", encoding="utf-8")
        (root / "gpu-suite-again").mkdir()
        (root / "gpu-suite-again" / "results.json").write_text("{}", encoding="utf-8")
        second = suite.train("gpu-1b", "second", 20, {})
        self.assertEqual(first["text"], second["text"])
        self.assertEqual(first["text"], suite.results["data"]["sha256"], "and the results say which")

    def test_what_comes_back_is_three_files(self):
        suite = self.suite()
        self.run_one(checks.numerics, suite)
        self.assertEqual({path.name for path in suite.out.iterdir()}, {"results.json", "summary.txt", "logs.tar"})
        self.assertIn("numerics-fp32-cpu.log.gz", self.archived())
        self.assertIn("runs/numerics-fp32-cpu/result.json.gz", self.archived())
        self.assertNotIn("step-1b.log.gz", self.archived())
        self.run_one(speed.step, suite)
        self.assertIn("step-1b.log.gz", self.archived())

    def test_an_archive_leaves_out_what_is_too_large_and_says_so(self):
        folder = self.folder / "files"
        folder.mkdir()
        (folder / "small.log").write_text("said", encoding="utf-8")
        (folder / "trace.json").write_bytes(os.urandom(300_000))
        archive = Archive(folder, self.folder / "compressed", self.folder / "logs.tar", most_bytes=100_000)
        self.assertEqual(archive.renew(), ["trace.json"])
        self.assertLessEqual((self.folder / "logs.tar").stat().st_size, 100_000)
        self.assertIn("Too large for the archive: trace.json", summary(self.suite().results | {"not_in_archive": ["trace.json"]}))
        (folder / "trace.json").write_bytes(b"0" * 300_000)
        os.utime(folder / "trace.json", (time.time() + 10, time.time() + 10))
        self.assertEqual(archive.renew(), [])

    def test_a_fault_of_one_section_leaves_the_others_their_turn(self):
        suite = self.suite()
        suite.run_section(Section("one", 20, lambda *_: [][0]))
        suite.run_section(Section("two", 20, checks.numerics))
        self.assertEqual([entry["status"] for entry in suite.results["sections"]], ["failed", "passed"])

    def test_features_are_compared_each_by_itself(self):
        entry = self.run_one(checks.features)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(entry["figures"]["fsdp.cpu_offload = all: parameters"], "the same bits")
        worst = [value for name, value in entry["figures"].items() if "largest relative difference" in name]
        self.assertEqual(worst, [0.0] * 2)

    def test_a_feature_that_changes_bits_fails_and_the_others_are_tried(self):
        self.environment(OTHER="fsdp.cpu_offload", OTHER_DIGEST="d2")
        entry = self.run_one(checks.features)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("fsdp.cpu_offload = all: the digest is d2, and d1 without", entry["reason"])

    def test_processes_of_ranks_work_in_the_folder_of_the_profiles(self):
        root = self.tree()
        result = self.suite(root=root).train_ranks("quickstart", "two", 20, {}, 2)
        self.assertEqual(Path(result["folder"]), root.resolve())

    def test_cupti_and_events_are_compared_as_a_figure(self):
        figures = self.run_one(speed.timers)["figures"]
        self.assertEqual(figures["step by CUPTI over events (0.99 to 1.01 expected)"], 1.0)
        self.assertEqual(figures["computation by CUPTI over events (0.99 to 1.01 expected)"], 1.0)

    def test_ncu_looks_at_the_kernels_that_take_longest(self):
        suite = self.suite()

        def kernel(name, us):
            return {"ph": "X", "cat": "kernel", "name": name, "dur": us}

        events = [kernel(f"void fsdpbench::backend::cuda::(anonymous namespace)::k{i}<float, 4>(Pack<4>*)", i + 1) for i in range(6)]
        events += [kernel("nvjet_hsh_128x256", 100), {"ph": "X", "cat": "cpu_op", "name": "step", "dur": 1e6}]

        def train(_profile, log, _seconds, _overrides):
            (suite.files / "runs" / log / "trace").mkdir(parents=True)
            with gzip.open(suite.files / "runs" / log / "trace" / "rank_0.json.gz", "wt", encoding="utf-8") as file:
                json.dump({"traceEvents": events}, file)

        suite.train = train
        self.program("ncu", """#!/bin/sh
echo '==PROF== Connected to process 1'
echo '"ID","Kernel Name","gpu__time_duration.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed"'
echo '"","","us","%"'
case "$*" in *k3*) ;; *) echo '"0","k","12.5","91.0"' ;; esac
""")
        self.environment(PATH=f"{self.folder / 'bin'}:/usr/bin:/bin")
        entry = self.run_one(tools.ncu, suite)
        shares = [name for name in entry["figures"] if name.endswith("share of all kernels' time")]
        self.assertEqual([name.split(":")[0] for name in shares], ["nvjet_hsh_128x256", "k5", "k4", "k3", "k2"])
        self.assertEqual(entry["figures"]["k5: time"], "12.5 us")
        self.assertEqual(entry["figures"]["k5: % of the memory's peak"], "91.0")
        self.assertIn("ncu says nothing of k3", entry["reason"])


    def test_the_rehearsal_sees_what_would_not_come_back(self):
        suite = self.suite()
        self.run_one(checks.numerics, suite)
        suite.results["sections"][-1]["name"] = "numerics"
        suite.write()
        self.assertEqual(rehearse.faults_of(suite.out, ["numerics"]), [])
        self.assertIn("the sections were ['numerics'], and not ['numerics', 'trace']",
                      rehearse.faults_of(suite.out, ["numerics", "trace"]))
        suite.results["sections"][-1] |= {"status": "failed", "reason": "losses differ"}
        suite.write()
        self.assertEqual(rehearse.faults_of(suite.out, ["numerics"]), ["section numerics failed: losses differ"])
        suite.results["sections"][-1] |= {"name": "timers", "status": "passed"}
        suite.write()
        self.assertEqual(rehearse.faults_of(suite.out, ["timers"]), ["section timers does not say 'step by CUPTI over events'"])
        suite.results["sections"][-1] |= {"name": "numerics", "status": "failed"}
        suite.write()
        deep = suite.out / "runs" / "one" / "trace" / "rank 0.json"
        deep.parent.mkdir(parents=True)
        deep.write_text("", encoding="utf-8")
        for number in range(5):
            (suite.out / f"{number}.log").write_text("", encoding="utf-8")
        faults = " | ".join(rehearse.faults_of(suite.out, ["numerics"]))
        self.assertIn("9 files, more than 8", faults)
        self.assertIn("runs/one/trace/rank 0.json would not come back", faults)


class RecordedFigures(unittest.TestCase):
    """Pages have the figures that one H100 gave."""

    def test_pages_have_them(self):
        root = HERE.parents[1]
        first, second = ((root / f"profiles/recorded/gpu/h100-2026-11-{day}.txt").read_text(encoding="utf-8") for day in (27, 28))
        page = " ".join((root / "docs/gpu-status.md").read_text(encoding="utf-8").split())

        def listed(values: list[float], form: str) -> str:
            said = [format(value, form) for value in values]
            return f"{said[0]}, {said[1]} and {said[2]}"

        tests = re.findall(r"_test: (\d+) passed, (\d+) skipped, (\d+) failed", second)
        passed, skipped, failed = (sum(map(int, counts)) for counts in zip(*tests))
        self.assertEqual(failed, 0)
        self.assertIn(f"{passed} tests passed; {skipped} were skipped", page)
        steps = [float(ms) for ms in re.findall(r": step: ([\d.]+) ms", second)]
        self.assertIn(f"| {listed(steps, '.2f')} ms; ", page)
        mfu = [float(share) for share in re.findall(r": MFU % .*: ([\d.]+)", second)]
        self.assertIn(f"; {listed(mfu, '.0f')} % MFU |", page)
        predicted = [float(ms) for ms in re.findall(r" step time +([\d.]+) +ms", page)]
        self.assertIn(f"| {listed(predicted, '.1f')} ms: "
                      f"{listed([100 * p / s - 100 for p, s in zip(predicted, steps)], '+.0f')} % |", page)
        jobs = re.findall(r"gpu-\w+: ours ([\d.]+), PyTorch eager ([\d.]+), compiled ([\d.]+)", first)
        self.assertEqual(len(jobs), 3)
        for peer, number in (("eager", 1), ("compiled", 2)):
            over = [float(job[number]) / float(job[0]) for job in jobs]
            over[1] = float(re.search(rf"speed over PyTorch {peer} .*: ([\d.]+)", first)[1])  # which was measured in turns
            self.assertIn(f"| {listed(over, '.2f')} times as long |", page)
        readme = " ".join((root / "README.md").read_text(encoding="utf-8").split())
        self.assertIn(f"1 billion parameters in {steps[1]:.0f} ms", readme)


if __name__ == "__main__":
    unittest.main()
