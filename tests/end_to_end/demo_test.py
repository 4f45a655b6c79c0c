#!/usr/bin/python3
"""The lines of `make demo` about its two runs: six lines, and nothing beside them that contradicts them.

    demo_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import importlib.util
import unittest

import program


def demo():
    spec = importlib.util.spec_from_file_location("demo", program.SOURCE / "src/cmake/demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(step: float, overlap: float, rated: bool, noise: float = 0.01) -> dict:
    return {"rated": rated, "metrics": {"step_ms": {"median": step}, "overlap_pct": overlap, "aa_noise_pct": 100 * noise}}


class Demo(unittest.TestCase):
    def lines(self, *results: dict) -> "list[str]":
        lines = demo().summary(*results, ["a", "b"], "fsdpbench")
        self.assertEqual(len(lines), 6)
        for line in lines:
            self.assertNotIn("\n", line)
        return lines

    def test_a_rated_pair_says_how_much_less(self) -> None:
        lines = self.lines(result(75, 58, True), result(111, 9, True))
        self.assertIn("75 ms with prefetching and 111 ms without", lines[0])
        self.assertIn(": 32% less.", lines[0])

    def test_what_is_not_rated_is_no_fact(self) -> None:
        lines = self.lines(result(85, 52, False), result(132, 6, True))
        self.assertNotIn("less", lines[0])
        self.assertIn("too busy", lines[2])
        self.assertIn("simulate", lines[3])

    def test_a_difference_within_the_noise_is_none(self) -> None:
        self.assertIn("no difference beyond this machine's noise of 5%", self.lines(result(100, 50, True, 0.05), result(103, 9, True))[0])


if __name__ == "__main__":
    program.main()
