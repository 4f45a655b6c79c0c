#!/usr/bin/python3
"""Real faults that `accept` must find, once each; `make check-accept-faults` plants them at random.

    accept_faults_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import unittest

import accept_faults
import campaign
import harness
from harness import long_fault


class AcceptFaults(unittest.TestCase):
    def found(self, kind) -> None:
        seed = 14
        outcome = campaign.run_case(seed, 0, kind.__name__)
        if outcome.skipped:
            self.skipTest(outcome.skipped)
        self.assertEqual(outcome.broken, "")
        self.assertTrue(outcome.named, outcome.said)

    def test_a_rank_that_is_killed(self) -> None:
        self.found(accept_faults.accept_rank_killed)

    def test_a_rank_that_is_stopped_for_a_while(self) -> None:
        self.found(accept_faults.accept_rank_stopped_for_a_while)

    @long_fault  # the others wait a minute for a right one; faults.strangers has a rank of another version, too
    def test_another_version_on_one_rank(self) -> None:
        self.found(accept_faults.accept_wrong_version)

    def test_another_kernel_on_one_rank(self) -> None:
        self.found(accept_faults.accept_another_kernel)

    def test_fewer_ranks_than_wanted(self) -> None:
        self.found(accept_faults.accept_fewer_ranks_than_wanted)

    def test_a_slow_link(self) -> None:
        self.found(accept_faults.accept_slow_link_emulated)

    @long_fault
    def test_a_slow_link_between_network_namespaces(self) -> None:
        self.found(accept_faults.accept_slow_link_of_a_host)

    @long_fault
    def test_a_rank_that_is_held_back(self) -> None:
        self.found(accept_faults.accept_rank_held_back)

    @long_fault
    def test_a_rank_that_does_not_come(self) -> None:
        self.found(accept_faults.accept_rank_missing)


if __name__ == "__main__":
    harness.own_network()
    harness.main()
