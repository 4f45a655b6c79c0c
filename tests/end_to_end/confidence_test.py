#!/usr/bin/python3
"""What `trace explain` says of 226 jobs of PyTorch, for which no rule was changed (tests/peer/stored_jobs.py): of the answers
at 90 % and more nine in ten are right, and no fewer than when the jobs were stored.

    confidence_test.py PROGRAM SOURCE_FOLDER [unittest arguments]
"""

import sys
from pathlib import Path

import program
from program import Program

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peer"))
import stored_jobs  # noqa: E402

FILE = Path(__file__).resolve().parent.parent / "peer/recorded/jobs-2.15.0.json.xz"


class Confidence(Program):
    def test_answers_that_are_said_to_be_sure_are_right(self) -> None:
        said = stored_jobs.judged(stored_jobs.stored(FILE), program.PROGRAM)
        sure = [is_right for _, confidence, is_right in said if confidence >= stored_jobs.SURE]
        before = stored_jobs.counts(FILE)
        self.assertGreaterEqual(sum(sure), 0.9 * len(sure))
        self.assertGreaterEqual(sum(sure), before["right"], f"{len(sure)} answers from 90 % on; {before} when stored")
        # Of what is asked nothing is left out.
        self.assertGreater(len({what for what, confidence, _ in said if confidence >= stored_jobs.SURE}), 12)


if __name__ == "__main__":
    program.main()
