#!/usr/bin/python3
"""Files of `accept`, `gate` and `collectives`, given to the programs that will read them: JUnit's readers and its schema,
Prometheus' own parser, and the patterns with which health checks look at nccl-tests.

    readers_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import collections
import json
import re
import subprocess
import tempfile
from pathlib import Path

import program
from program import OK, PATIENCE_S, Program, sets

import junitparser
import xmlschema
from prometheus_client.parser import text_string_to_metric_families

FAIL = 10
EMULATED = [program.TEXT, "model.layers=2", "model.width=64", "model.ffn_width=128", "train.seq_len=32", "train.batch_per_rank=1",
            "train.steps=3", "train.warmup=1", "emulate.compute_tflops=0.002", "emulate.link_gb_per_s=0.2",
            "emulate.link_latency_us=0"]
# A profile whose words are hard on every format, and whose floors nothing reaches.
HARD = """version = 1
fabric = 'a "fabric" with \\ & <tags>'
run = "quickstart"
ranks = 3
matrix = 64
[[reference]]
figure = "all_gather"
value = 1000
ceiling = 2000
source = "nobody, with | and <b>"
"""


class Acceptance(Program):
    """One acceptance, read by all."""

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.results = Path(temporary.name)
        (cls.results / "hard.toml").write_text(HARD)
        done = subprocess.run([program.PROGRAM, "accept", "hard.toml", *sets(*EMULATED, "mesh.ranks=3"), "--out", "out"],
                              cwd=cls.results, capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != FAIL:
            raise AssertionError(done.stdout + done.stderr)
        cls.result = json.loads((cls.results / "out/result.json").read_text())

    def check_junit(self, path: Path, judgements: int) -> junitparser.TestSuite:
        xmlschema.validate(str(path), str(program.SOURCE / "tests/end_to_end/junit.xsd"))
        suites = list(junitparser.JUnitXml.fromfile(str(path)))
        self.assertEqual(len(suites), 1)
        cases = list(suites[0])
        self.assertEqual((suites[0].tests, len(cases)), (judgements, judgements))
        outcomes = collections.Counter(type(case.result[0]).__name__ for case in cases if case.result)
        self.assertEqual((suites[0].failures, suites[0].errors, suites[0].skipped),
                         (outcomes["Failure"], outcomes["Error"], outcomes["Skipped"]))
        # Jenkins and GitLab follow a test from build to build by these two.
        names = collections.Counter((case.classname, case.name) for case in cases)
        self.assertEqual([name for name, count in names.items() if count > 1], [])
        return suites[0]

    def test_junit_of_an_acceptance(self) -> None:
        suite = self.check_junit(self.results / "out/junit.xml", len(self.result["judgements"]))
        self.assertGreater(suite.failures, 0)
        verdicts = collections.Counter(j["verdict"] for j in self.result["judgements"])
        self.assertEqual((suite.failures, suite.errors, suite.skipped),
                         (verdicts["fail"], verdicts["inconclusive"], verdicts["unrated"]))
        messages = [case.result[0].message for case in suite if case.result]
        self.assertTrue(any("nobody, with | and <b>" in message for message in messages), messages)

    def test_junit_of_a_gate(self) -> None:
        for out in ("before", "now"):
            self.call("simulate", "quickstart", "--ranks", "2", *sets(*EMULATED), "--out", out, "-q")
        self.call("gate", "now", "--against", "before", "--out", "gate")
        gate = json.loads((self.folder / "gate/gate.json").read_text())
        self.check_junit(self.folder / "gate/junit.xml", len(gate["changes"]) + 1)  # and the result's own verdict

    def test_prometheus(self) -> None:
        families = {f.name: f for f in text_string_to_metric_families((self.results / "out/metrics.prom").read_text())}
        self.assertEqual({f.type for f in families.values()}, {"gauge"})
        self.assertTrue(all(f.documentation for f in families.values()))
        verdict = families["fsdpbench_accept_verdict"].samples
        self.assertEqual([(s.labels["fabric"], s.value) for s in verdict], [('a "fabric" with \\ & <tags>', 3.0)])
        rules = families["fsdpbench_accept_rule"].samples
        self.assertEqual([(s.labels["rule"], s.labels["figure"]) for s in rules],
                         [(j["rule"], j["figure"]) for j in self.result["judgements"]])
        for family in families.values():  # node_exporter drops a file in which a series is there twice
            series = collections.Counter(tuple(sorted(s.labels.items())) for s in family.samples)
            self.assertEqual([labels for labels, count in series.items() if count > 1], [], family.name)

    def test_markdown_tables_have_as_many_cells_in_each_row(self) -> None:
        for line in (self.results / "out/summary.md").read_text().splitlines():
            if line.startswith("|"):
                self.assertEqual(len(re.findall(r"(?<!\\)\|", line)), 5, line)


class HealthChecks(Program):
    """nccl-tests' output as these look at it, each written from what it is documented to ask for."""

    def table(self, *arguments: str) -> str:
        return self.call("collectives", "all_reduce_perf", "-g", "2", "-b", "16K", "-e", "16K", "-n", "3", *arguments,
                         code=OK).stdout

    def test_azure_node_health_checks(self) -> None:
        """One size; the bandwidth is a column of the line that begins with it (awk '$1 == size {print $12}')."""
        fields = next(line.split() for line in self.table().splitlines() if line.split()[:1] == ["16384"])
        self.assertEqual(len(fields), 13)
        self.assertEqual(fields[2:5], ["float", "sum", "-1"])
        self.assertRegex(fields[11], r"^\d+\.\d+$")  # in place; how much it is, is the machine's
        self.assertEqual(fields[12], "0")

    def test_gcp_cluster_health_scanner(self) -> None:
        """The last number of the line of the average."""
        found = re.search(r"# Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", self.table())
        self.assertGreaterEqual(float(found.group(1)), 0)

    def test_gcm(self) -> None:
        """Every average in the output, and whether values were out of bounds."""
        text = self.table()
        averages = [float(line.split(":")[1]) for line in text.splitlines() if line.startswith("# Avg bus bandwidth")]
        self.assertEqual(len(averages), 1)
        self.assertTrue(re.search(r"Out of bounds values\s*:\s*0\s+OK", text))

    def test_dcgm(self) -> None:
        """Both lines of the footer must be there; the second word after the colon of the first is the verdict."""
        footer = {line[1:].split(":")[0].strip(): line.split(":")[1].split() for line in self.table().splitlines()
                  if line.startswith("#") and line.count(":") == 1 and line.split(":")[0].strip() in
                  ("# Out of bounds values", "# Avg bus bandwidth")}
        self.assertEqual(footer["Out of bounds values"], ["0", "OK"])
        self.assertEqual(len(footer["Avg bus bandwidth"]), 1)

    def test_superbench(self) -> None:
        """Columns by the words of the header: size first, then time, algbw, busbw of each half."""
        lines = self.table().splitlines()
        first = next(i for i, line in enumerate(lines) if "out-of-place" in line)
        words = next(line for line in lines if line.startswith("#") and {"time", "busbw"} <= set(line.split())).split()[1:]
        self.assertEqual(lines[first + 1].split()[1:], words)
        self.assertEqual(words, ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2])
        row = next(line.split() for line in lines[first + 3:] if not line.startswith("#"))
        self.assertEqual(len(row), len(words))
        self.assertEqual(row[words.index("size")], "16384")
        in_place = len(words) - 1 - words[::-1].index("busbw")
        self.assertRegex(row[in_place], r"^\d+\.\d+$")


if __name__ == "__main__":
    program.main()
