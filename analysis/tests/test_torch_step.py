"""fsdpbench.torch.step without torch: what the ranks' times say."""

from __future__ import annotations

import unittest

import support  # noqa: F401: finds the package

from fsdpbench.torch.late import Times, late_rank, line_of


class LateRank(unittest.TestCase):
    def test_it_is_the_one_that_waits_least_if_the_others_wait_for_it(self) -> None:
        self.assertEqual(late_rank({0: Times(100, 40, 10), 1: Times(100, 3, 1), 2: Times(100, 45, 5)}), 1)

    def test_nobody_is_late_if_two_wait_little_or_the_difference_is_small(self) -> None:
        self.assertIsNone(late_rank({0: Times(100, 40, 10), 1: Times(100, 3, 1), 2: Times(100, 4, 1)}))
        self.assertIsNone(late_rank({0: Times(100, 10, 3), 1: Times(100, 3, 1)}))
        self.assertIsNone(late_rank({0: Times(100, 40, 10)}))

    def test_waits_that_no_hook_has_seen_count_nothing(self) -> None:
        self.assertEqual(late_rank({0: Times(100, None, 50), 1: Times(100, None, 1)}), 1)
        self.assertIsNone(late_rank({0: Times(100, None, None), 1: Times(100, None, None)}))


class Line(unittest.TestCase):
    def test_it_has_the_slowest_step_the_median_waits_and_the_late_rank(self) -> None:
        self.assertEqual(line_of({0: Times(100, 40, 10), 1: Times(101, 3, 1)}, 50, 2),
                         "step 101.0 ms over 50 steps; waits for gathers 21.5 ms; waits for reductions 5.5 ms; "
                         "rank 1 is late: it waits 4.0 ms, the others 50.0 ms")

    def test_waits_in_the_jobs_own_collectives_count(self) -> None:
        self.assertEqual(line_of({0: Times(100, 4, 1, 60), 1: Times(101, 3, 1, 2)}, 50, 2),
                         "step 101.0 ms over 50 steps; waits for gathers 3.5 ms; waits for reductions 1.0 ms; waits for own "
                         "collectives 31.0 ms; rank 1 is late: it waits 6.0 ms, the others 65.0 ms")

    def test_of_ranks_that_have_said_nothing_and_waits_that_are_not_seen(self) -> None:
        self.assertEqual(line_of({0: Times(100, None, 1)}, 4, 3), "step 100.0 ms over 4 steps; waits for reductions 1.0 ms; "
                                                                  "2 ranks have said nothing")


if __name__ == "__main__":
    unittest.main()
