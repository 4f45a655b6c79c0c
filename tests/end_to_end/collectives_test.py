#!/usr/bin/python3
"""`collectives`: its output as the tools around nccl-tests read it, its JSON, its exit codes, threads and processes.

    collectives_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import json
import re
import subprocess

import program
from program import BAD_INPUT, CANNOT_WRITE, OK, PATIENCE_S, Program, environment, free_port

WRONG_DATA, BELOW_FLOOR = 9, 10
# A line of results, as parsers of nccl-tests expect it: size, count, type, redop, root, then both halves.
NUMBER = r"(?:\d+(?:\.\d+)?(?:e[+-]\d+)?)"
HALF = rf"\s+({NUMBER}|N/A)\s+({NUMBER}|N/A)\s+({NUMBER}|N/A)\s+(\d+|N/A)"
ROW = re.compile(rf"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+){HALF}{HALF}\s*$", re.MULTILINE)
AVERAGE = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9.eE+-]+)\s*(OK|FAILED)?\s*$", re.MULTILINE)
# NVIDIA/cluster-readiness-engine, helm/cluster-readiness-engine/templates/nccl-all-reduce.yaml; out of place only.
CRE_ROW = re.compile(r"^\s*(?P<size>\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+[\d.]+\s+(?P<algBW>[\d.]+)\s+(?P<busBW>[\d.]+)")
OPS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "alltoall", "sendrecv")
BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)$", re.MULTILINE)


def superbench_rows(text: str, in_place: bool) -> list[tuple[int, float, float, float]]:
    """Size, time, algbw and busbw of each row, found as SuperBench's nccl-bw finds them: between the line that says
    out-of-place and the last lines, by the place of the columns' names, counted from the end of the line."""
    lines = text.splitlines()
    begin = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    end = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    body = lines[begin + 1:end]
    names = next(line for line in body if "time" in line and "busbw" in line)[1:].split()
    columns = [(len(names) - 1 - names[::-1].index(name) if in_place else names.index(name)) - len(names)
               for name in ("time", "algbw", "busbw")]
    rows = [line.split() for line in body if re.match(r"\s*\d", line)]
    return [(int(row[names.index("size")]), *(float(row[column]) for column in columns)) for row in rows]


class Collectives(Program):
    def check(self, text: str, op: str, rows: int) -> None:
        self.assertIn(f"# Collective test starting: {op}_perf\n", text)
        self.assertEqual(len(ROW.findall(text)), rows, text)
        self.assertEqual(BOUNDS.findall(text), [("0", "OK")])
        self.assertEqual(len(AVERAGE.findall(text)), 1)
        for line in text.splitlines():
            self.assertTrue(line.startswith("#") or ROW.match(line), line)

    def test_threads(self) -> None:
        for op in ("all_gather", "alltoall"):  # the others print as many columns: the next test reads them
            done = self.call("collectives", op, "-g", "3", "-b", "8", "-e", "32K", "-f", "8", "-n", "3")
            self.check(done.stdout, op, 5)

    def test_others_read_the_table_of_every_collective(self) -> None:
        for op in OPS:
            text = self.call("collectives", f"{op}_perf", "-g", "2", "-b", "1K", "-e", "16K", "-f", "4", "-n", "2",
                             "-c", "3").stdout
            self.assertIn(" validation: 3 ", text)
            rows = superbench_rows(text, in_place=False)
            self.assertEqual([size for size, *_ in rows], [1024, 4096, 16384])
            if op not in ("alltoall", "sendrecv"):  # which has no form in place: N/A, as nccl-tests print it
                rows += superbench_rows(text, in_place=True)
            for size, time_us, algbw, busbw in rows:
                self.assertGreater(time_us, 0)
                # Rates have two digits behind the point, and a time three to five in all.
                self.assertAlmostEqual(algbw, size / time_us / 1e3, delta=0.006 + 0.01 * algbw)
                factor = {"all_reduce": 1, "broadcast": 1, "sendrecv": 1}.get(op, 0.5)
                self.assertAlmostEqual(busbw, factor * algbw, delta=0.011)
            average = float(AVERAGE.search(text)[1])
            # GoogleCloudPlatform/cluster-health-scanner, src/nccl_healthcheck: whole GB/s.
            self.assertEqual(int(re.search(r"# Avg bus bandwidth\s*:\s*(\d+)", text)[1]), int(average))
            # facebookresearch/gcm, check_nccl: the first number of the line with these words.
            line = next(line for line in text.splitlines() if "Avg bus bandwidth" in line)
            self.assertAlmostEqual(float(re.search(r"[-+]?(\d*\.*\d+)", line)[0]), average, delta=1e-5 + 1e-4 * average)
            # NVIDIA/cluster-readiness-engine: pkg/nccl tries the pattern of its LogProfile nccl-bandwidth on each line.
            read = [CRE_ROW.match(line) for line in text.splitlines()]
            self.assertEqual([(int(row["size"]), float(row["algBW"]), float(row["busBW"])) for row in read if row],
                             [(size, algbw, busbw) for size, _, algbw, busbw in rows[:3]])
            # Diagnostics of whole clusters take the best row of these: eight columns after the root.
            best = [float(row.split()[7]) for row in text.splitlines()
                    if re.match(r"^\s*\d+\s+\d+\s+\w+\s+\S+\s+-?\d+(\s+\S+){8}\s*$", row)]
            self.assertEqual(len(best), 3)
            self.assertEqual(re.findall(r"(?m)^# Collective test (?:starting|concluded): (\S+)\s*$", text), [f"{op}_perf"] * 2)

    def test_the_average_is_that_of_all_rows(self) -> None:
        text = self.call("collectives", "all_gather_perf", "--ranks", "2", "-b", "64K", "-e", "256K", "-f", "2", "-n", "2",
                         "-J", "out.json").stdout
        result = json.loads((self.folder / "out.json").read_text())
        operation = result["operations"][0]
        rates = [row[half]["busbw_gb_per_s"] for row in operation["results"] for half in ("out_of_place", "in_place")]
        self.assertAlmostEqual(float(AVERAGE.search(text)[1]), sum(rates) / len(rates), delta=1e-4 * max(rates))
        self.assertEqual([row["size"] for row in operation["results"]], [65536, 131072, 262144])
        self.assertEqual(result["world"]["launch"]["ranks"], 2)
        for row in operation["results"]:
            timing = row["in_place"]
            self.assertEqual(len(timing["per_iteration"]["times_us"]), 2)
            self.assertAlmostEqual(timing["algbw_gb_per_s"], row["size"] / timing["time_us"] / 1e3)
            self.assertAlmostEqual(timing["busbw_gb_per_s"], timing["algbw_gb_per_s"] / 2)

    def test_the_environment_stays_out_of_the_file(self) -> None:
        done = subprocess.run([program.PROGRAM, "collectives", "--ranks", "2", "-b", "1K", "-n", "1", "-J", "out.json"],
                              env=environment(SECRET_TOKEN="do-not-tell"), cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertNotIn("do-not-tell", (self.folder / "out.json").read_text())

    def test_exit_codes_and_refusals(self) -> None:
        self.write("out.json", "{}")
        self.assertIn("out.json", self.error("collectives", "-b", "1K", "-J", "out.json"))
        self.call("collectives", "-b", "1K", "-n", "1", "--ranks", "2", "-J", "out.json", "--overwrite")
        # Said before anything is measured: nothing is printed.
        self.assertIn("no/out.json", self.error("collectives", "-b", "1K", "-J", "no/out.json", code=CANNOT_WRITE))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["out.json"])
        (self.folder / "taken").mkdir()
        for overwrite in ([], ["--overwrite"]):
            self.assertIn("taken: is a folder; expected a file: choose another -J.",
                          self.error("collectives", "-b", "1K", "-J", "taken", *overwrite, code=CANNOT_WRITE))
        self.assertIn("-G", self.error("collectives", "-G", "4"))
        self.assertIn("no operation 'scatter'", self.error("collectives", "scatter"))
        self.assertIn("--root 5", self.error("collectives", "broadcast", "-r", "5", "--ranks", "2", "-b", "1K"))
        for name, value in (("NCCL_TESTS_SPLIT", "MOD 8"), ("NCCL_TESTS_SPLIT_MASK", "0x7"), ("NCCL_TESTS_DEVICE", "2")):
            self.assertIn(name, self.with_variable(name, value, BAD_INPUT).stderr)
        slow = self.with_variable("NCCL_TESTS_MIN_BW", "1e9", BELOW_FLOOR)
        self.assertEqual(AVERAGE.search(slow.stdout)[2], "FAILED")
        fast = self.with_variable("NCCL_TESTS_MIN_BW", "0", OK)
        self.assertEqual(AVERAGE.search(fast.stdout)[2], "OK")

    def test_each_option_of_nccl_tests_is_read_or_refused(self) -> None:
        # The table of src/common.cu of nccl-tests 2.19.6, a value each; what is not possible here is refused by name.
        read = {"t nthreads": "2", "g ngpus": "1", "b minbytes": "1K", "e maxbytes": "2K", "i stepbytes": "1K",
                "f stepfactor": "2", "n iters": "2", "w warmup_iters": "0", "c check": "0", "o op": "avg",
                "d datatype": "bfloat16", "r root": "0", "T timeout": "60", "a average": "1", "R local_register": "0",
                "x cta_policy": "0", "I per_iter_timing": "1"}
        refused = {"m agg_iters": "2", "N run_cycles": "1", "p parallel_init": "1", "z blocking": "0", "y stream_null": "0",
                   "G cudagraph": "0", "C report_cputime": "1", "S report_timestamps": "1", "D device_implementation": "0",
                   "V device_cta_count": "16", "M memory": "0", "u unalign": "1", "K per_iter_skip": "1",
                   "I per_iter_timing": "2", "o op": "prod", "d datatype": "int8", "r root": "all",
                   "R local_register": "3", "x cta_policy": "3", "a average": "4"}
        few = ["all_gather", "-b", "1K", "-n", "2"]
        for options, code in ((read, OK), (refused, BAD_INPUT)):
            for names, value in options.items():
                letter, name = names.split()
                for words in ([f"-{letter}", value], [f"--{name}={value}"]):
                    with self.subTest(words):
                        ranks = [] if letter in "tg" else ["--ranks", "2"]
                        done = self.call("collectives", *few, *ranks, *words, code=code)
                        if code == BAD_INPUT:
                            self.assertRegex(done.stderr, rf"-{letter}\b|--{name}\b")
        columns = self.call("collectives", *few, "--ranks", "2", "-I", "1").stdout
        self.assertIn("i_p99", columns)

    def with_variable(self, name: str, value: str, code: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([program.PROGRAM, "collectives", "all_gather", "--ranks", "2", "-b", "1K", "-n", "1"],
                              env=environment(**{name: value}), cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def in_processes(self, *arguments: str, ranks: int = 3) -> list[tuple[int, str, str]]:
        port = free_port()
        processes = [
            subprocess.Popen([program.PROGRAM, "collectives", *arguments], text=True, cwd=self.folder,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=environment(RANK=rank, WORLD_SIZE=ranks, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=ranks,
                                             MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
            for rank in range(ranks)
        ]
        for process in processes:
            self.addCleanup(process.kill)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
        return [(process.returncode, *texts) for process, texts in zip(processes, outputs)]

    def test_processes(self) -> None:
        for op in OPS:
            first, *others = self.in_processes(op, "-b", "100", "-e", "10000", "-f", "10", "-n", "2", "-d", "bfloat16")
            self.assertEqual(first[0], OK, first[2])
            self.check(first[1], op, 3)
            self.assertEqual(others, [(OK, "", "")] * 2)  # rank 0 alone speaks
            pids = re.findall(r"^#  Rank +\d+ Group +0 Pid +(\d+) ", first[1], re.MULTILINE)
            self.assertEqual(len(set(pids)), 3)

    def test_every_timed_iteration_is_checked(self) -> None:
        options = ("-b", "1K", "-e", "16K", "-f", "4", "-n", "4", "-c", "0", "--check-all")
        first, *others = self.in_processes("--op-list", ",".join(OPS), *options, "-J", "out.json", ranks=2)
        self.assertEqual((first[0], others), (OK, [(OK, "", "")]), first[2])
        self.assertIn("# The data of every timed iteration is checked (--check-all)", first[1])
        for row in ROW.findall(first[1]):
            self.assertEqual((row[8], row[12]), ("0", "N/A" if row[9] == "N/A" else "0"))
        operations = json.loads((self.folder / "out.json").read_text())["operations"]
        self.assertEqual([len(operation["results"]) for operation in operations], [3] * len(OPS))
        for operation in operations:
            self.assertEqual(operation["out_of_bounds"], {"count": 0, "okay": True})
            for timing in (row[half] for row in operation["results"] for half in ("out_of_place", "in_place") if row[half]):
                self.assertEqual((timing["per_iteration"]["wrong"], timing["wrong"]), ([0] * 4, 0))

    def test_processes_beside_each_other(self) -> None:
        first, *_ = self.in_processes("-b", "64K", "-n", "3", "--beside", "--matrix", "64", ranks=2)
        self.assertEqual(first[0], OK, first[2])
        for words in ("beside all_gather", "reduce_scatter"):
            self.assertIn(words, first[1])

    def test_ranks_must_agree_with_the_launcher(self) -> None:
        results = self.in_processes("-b", "1K", "-g", "8", ranks=2)
        self.assertEqual([result[0] for result in results], [BAD_INPUT] * 2)
        self.assertIn("8 ranks were asked for", results[0][2])


if __name__ == "__main__":
    program.main()
