#!/usr/bin/python3
"""The GPU suite's own logic, without a GPU: what it does with programs that pass, fail, hang or are not there."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from gpu_suite import ranks, sections  # noqa: E402
from gpu_suite.machine import peak_bf16, program_environment  # noqa: E402
from gpu_suite.summary import summary  # noqa: E402

# Stands for fsdpbench: answers --version, and writes a result whose loss depends on the backend as LOSSES says.
PROGRAM = """#!/usr/bin/python3
import json, os, sys, time
from pathlib import Path
if "--version" in sys.argv:
    print("fsdpbench 0.1.0 (test)"); sys.exit(0)
if os.environ.get("HANG"):
    time.sleep(60)
settings = [a for a in sys.argv if "=" in a]
backend = next((s.split("=")[1] for s in settings if s.startswith("device.backend=")), "cuda")
losses = {"cpu": [2.0, 1.0], "cuda": [2.0, float(os.environ.get("GPU_LOSS", "1.0"))]}[backend]
out = Path(sys.argv[sys.argv.index("--out") + 1]); out.mkdir(parents=True)
if os.environ.get("HANG_AT") and os.environ["HANG_AT"] in " ".join(sys.argv):
    time.sleep(60)
step = {"median": 10.0, "ci_low": 9.0, "ci_high": 11.0}
(out / "result.json").write_text(json.dumps({"train": {"loss": losses}, "metrics": {"step_ms": step, "model_tflops_per_rank": 494.5}}))
"""


class SuiteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        program = self.folder / "bin" / "fsdpbench"
        program.parent.mkdir()
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def suite(self, budget=60):
        return sections.Suite(HERE.parents[1], self.folder / "bin", self.folder / "out", budget, {"name": "NVIDIA H200"})

    def run_one(self, function, suite=None, seconds=20):
        suite = suite or self.suite()
        suite.run_section(sections.Section("one", seconds, function), later=60)
        written = json.loads((self.folder / "out" / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(written, suite.results)
        return suite.results["sections"][-1]

    def environment(self, **values):
        patch = unittest.mock.patch.dict(os.environ, values)
        patch.start()
        self.addCleanup(patch.stop)

    def test_equal_losses_pass(self):
        entry = self.run_one(sections.numerics)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(set(entry["figures"].values()), {0.0})

    def test_different_losses_fail_and_name_both(self):
        self.environment(GPU_LOSS="1.5")
        entry = self.run_one(sections.numerics)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("1.5", entry["reason"])

    def test_a_loss_that_is_no_number_fails(self):
        self.environment(GPU_LOSS="nan")
        self.assertEqual(self.run_one(sections.numerics)["status"], "failed")

    def test_mfu_is_of_the_datasheet(self):
        figures = self.run_one(sections.step)["figures"]
        self.assertAlmostEqual(figures["1b: MFU % of the datasheet's 989 TFLOP/s"], 50.0)

    def test_what_hangs_is_ended_and_fails(self):
        suite = self.suite()
        self.environment(HANG="1")
        entry = self.run_one(sections.step, suite, seconds=3)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("had not ended", entry["reason"])

    def test_figures_of_before_an_overrun_are_kept(self):
        self.environment(HANG_AT="gpu-1b")
        entry = self.run_one(sections.step, seconds=4)
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
        entry = self.run_one(sections.kernels, seconds=2)
        self.assertEqual(entry["status"], "failed")
        self.assertIn("after 1 results", entry["reason"])
        self.assertEqual(entry["figures"], {"norm: of_copy": 0.75})

    def test_tests_of_before_an_overrun_are_counted(self):
        self.program("some_gpu_test", """#!/bin/sh
echo "[ RUN      ] A.one"; echo "[       OK ] A.one (3 ms)"; echo "[ RUN      ] A.two"; exec sleep 60
""")
        entry = self.run_one(sections.gpu_tests, seconds=2)
        self.assertEqual(entry["figures"], {"some_gpu_test": "1 passed, 0 skipped, 0 failed"})
        self.assertIn("some_gpu_test had not ended in its time in A.two", entry["reason"])

    def test_a_section_may_have_what_others_leave(self):
        given = []
        suite = self.suite(budget=100)
        suite.run_section(sections.Section("one", 10, lambda _suite, seconds, _figures: given.append(seconds)), later=30)
        self.assertGreater(given[0], 60)
        self.assertLessEqual(sum(section.seconds for section in sections.SECTIONS), sections.BUDGET)

    def test_our_steps_beside_pytorchs_are_timed_by_events(self):
        seen = []
        suite = self.suite()
        suite.train = lambda profile, log, seconds, overrides: seen.append(overrides) or {"metrics": {"step_ms": {"median": 10.0}}}

        def command(arguments, *_, **__):
            if "--out" in arguments:
                Path(arguments[arguments.index("--out") + 1]).write_text('{"median_ms": 12.0}', encoding="utf-8")
            return subprocess.CompletedProcess(arguments, 0, "2.9 True")

        suite.command = command
        entry = self.run_one(sections.torch, suite)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(seen, [{"device.timer": "events"}] * 3)
        self.assertAlmostEqual(entry["figures"]["speed over PyTorch eager (1 or more: ours is at least as fast)"], 1.2)

    def test_steps_with_state_in_host_memory_tell_the_rates_of_their_copies(self):
        suite, asked = self.suite(), []

        def copy(name, size, us):
            return {"ph": "X", "name": name, "dur": us, "args": {"bytes": size}}

        def train(_profile, log, _seconds, overrides, _environment=None):
            asked.append(overrides["fsdp.cpu_offload"])
            folder = suite.out / "runs" / log
            folder.mkdir(parents=True)
            events = [copy("host_to_device", 4_000_000, 100.0), copy("host_to_device", 2_000_000, 100.0),
                      copy("device_to_host", 5_000_000, 100.0), {"ph": "M", "name": "host_to_device"}]
            (folder / "trace.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
            return {"metrics": {"step_ms": {"median": 10.0 * len(asked)}}, "train": {"loss": [2.0, self.last_loss]},
                    "gpus": [{"limits": {"pcie_width": 16, "pcie_generation": 5}}],
                    "world": {"devices": [{"pinned host memory": "1.00 GiB", "host updates": "by one thread"}]}}

        suite.train = train
        self.last_loss = 1.0
        entry = self.run_one(sections.offload, suite)
        self.assertEqual(entry["status"], "passed", entry)
        self.assertEqual(asked, ["none", "optimizer", "all"])
        self.assertAlmostEqual(entry["figures"]["all: host_to_device, GB/s"], 30)
        self.assertAlmostEqual(entry["figures"]["optimizer: device_to_host, GB/s"], 50)
        self.assertAlmostEqual(entry["figures"]["PCIe, GB/s each direction at most"], 63.008)
        self.assertEqual(entry["figures"]["all: step, ms"], 30.0)
        self.assertNotIn("none: host_to_device, GB/s", entry["figures"])

        asked.clear()
        suite = self.suite()
        suite.out = self.folder / "again"
        suite.out.mkdir()
        self.last_loss = float("nan")
        with self.assertRaises(sections.Failed):
            suite.train = train
            sections.offload(suite, 20, {})

    def test_each_change_of_a_step_is_timed_between_two_steps_without_it(self):
        suite = self.suite()
        asked = []
        changes = sections.STEP_CHANGES + sections.STEP_OFFERS

        def train(profile, log, seconds, overrides, environment=None):
            changed = {key: value for key, value in overrides.items() if key not in ("device.timer", "train.steps")}
            asked.append((profile, changed))
            self.assertEqual(overrides["device.timer"], "events")
            median = 8.0 if "device.graphs" in changed else 12.0 if changed else 10.0
            return {"metrics": {"step_ms": {"median": median}}}

        suite.train = train
        entry = self.run_one(sections.changes, suite)
        expected = [("gpu-1b", {})]
        for key, value, _ in changes:
            expected += [("gpu-1b", {key: value}), ("gpu-1b", {})]
        for profile in sections.GRAPH_PROFILES:
            expected += [(profile, {}), (profile, {"device.graphs": "step"}), (profile, {})]
        self.assertEqual(asked, expected)
        speedups = [value for name, value in entry["figures"].items() if "speedup by" in name]
        self.assertEqual(speedups, [1.2] * len(sections.STEP_CHANGES) + [10 / 12] * len(sections.STEP_OFFERS) +
                         [1.25] * len(sections.GRAPH_PROFILES))
        self.assertEqual(entry["status"], "absent", "bench_cuda_changes is not built here")

    def test_the_sanitizer_looks_at_own_kernels_and_not_at_calls(self):
        self.program("compute-sanitizer", "#!/bin/sh\nprintf '%s ' \"$@\"\n")
        self.environment(PATH=f"{self.folder / 'bin'}:/usr/bin:/bin")
        self.assertEqual(self.run_one(sections.sanitizer)["figures"], {"memcheck": "no finding", "racecheck": "no finding"})
        said = (self.folder / "out" / "memcheck.log").read_text(encoding="utf-8")
        self.assertIn("--report-api-errors no", said)
        self.assertIn("--kernel-name kns=fsdpbench", said)

    def test_what_was_not_built_is_absent_with_the_reason(self):
        entry = self.run_one(sections.kernels)
        self.assertEqual((entry["status"], entry["reason"]), ("absent", "bench_cuda_kernels was not built"))

    def test_what_does_not_fit_is_named(self):
        entry = self.run_one(sections.numerics, self.suite(budget=2))
        self.assertEqual((entry["status"], entry["reason"]), ("left out", "the suite's time was up"))

    def test_the_summary_names_every_section_and_counts(self):
        suite = self.suite()
        for function in (sections.numerics, sections.kernels):
            suite.run_section(sections.Section(function.__name__, 20, function))
        text = summary(suite.results)
        self.assertIn("NVIDIA H200", text)
        self.assertRegex(text, r"passed +numerics")
        self.assertIn("1 absent, 1 passed", text)


class PiecesTest(unittest.TestCase):
    def test_no_peak_is_guessed(self):
        self.assertEqual(peak_bf16("NVIDIA H100 PCIe"), 756e12)
        self.assertEqual(peak_bf16("NVIDIA H100 80GB HBM3"), 989e12)
        self.assertIsNone(peak_bf16("NVIDIA T4"))

    def test_libraries_of_the_pack_are_for_its_programs_only(self):
        self.assertEqual(program_environment(Path("/opt/build-cuda/bin")), {})
        path = program_environment(Path("/opt/gpu-pack/bin"))["LD_LIBRARY_PATH"]
        self.assertTrue(path.startswith("/opt/gpu-pack/lib:"), path)

    def test_a_build_for_this_processor_is_not_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "bin" / "fsdpbench"
            program.parent.mkdir()
            program.touch(mode=0o755)
            (Path(folder) / "CMakeCache.txt").write_text("FSDPBENCH_NATIVE:BOOL=ON\n", encoding="utf-8")
            done = subprocess.run([HERE / "pack", folder, f"{folder}/pack.tar.xz"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("-D FSDPBENCH_NATIVE=OFF", done.stderr)

    def test_ranks_on_one_gpu_look_like_different_hosts(self):
        hosts = {ranks.environment_of(rank, 4, 1234, one_gpu=True)["NCCL_HOSTID"] for rank in range(4)}
        self.assertEqual(len(hosts), 4)
        self.assertNotIn("NCCL_HOSTID", ranks.environment_of(0, 2, 1234, one_gpu=False))

    def test_ranks_get_their_place_and_a_late_one_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            code = "import os, sys, time; r = int(os.environ['RANK']); time.sleep(60 if r == 2 else 0); sys.exit(r)"
            self.assertEqual(ranks.run_ranks([sys.executable, "-c", code], 3, Path(folder) / "log", 3), [0, 1, -9])

    def test_without_a_gpu_the_suite_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "fsdpbench").touch()
            done = subprocess.run([HERE / "run", "--bin", folder], env={"PATH": folder}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("There is no NVIDIA GPU here", done.stdout)


if __name__ == "__main__":
    unittest.main()
