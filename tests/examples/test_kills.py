"""The flow solver ends in the same state if it was killed without mercy in between."""

import os
import unittest

from support import MANY_RANKS, RANK_COUNTS, ExampleTest, found

# Long enough that a run is not over before it can be killed.
FLOW = (os.environ["VARVE_LBM"], "--cells", "32,24,32", "--steps", 1000, "--every", 100)


class Kill(ExampleTest):
    def state(self, out):
        return found(r"^state after step 1000: (\w+)$", out)

    def check(self, ranks, mode, **changes):
        expected = self.state(self.run_to_end("whole", ranks, *FLOW, "--mode", "none"))
        command = (*FLOW, "--mode", mode)
        self.run_and_kill("killed", ranks, "checkpoint of step 200", *command, **changes)
        # The next checkpoint destroys the snapshot of the last, so that the one before it must be in the store.
        self.run_and_kill("killed", ranks, "going on from step", *command, **changes)
        self.run_and_kill("killed", ranks, "checkpoint of step 500", *command, **changes)
        out = self.run_to_end("killed", ranks, *command, **changes)
        self.assertGreaterEqual(int(found(r"^going on from step (\d+)$", out)), 400)
        self.assertEqual(self.state(out), expected)
        self.assertTrue(self.varve_facts("killed", "verify", "--deep")["whole"])

    def test_of_copied_checkpoints_changes_nothing(self):
        for ranks in RANK_COUNTS:
            with self.subTest(ranks=ranks):
                self.setUp()
                self.check(ranks, "async")

    def test_of_lent_grids_changes_nothing(self):
        self.check(MANY_RANKS, "lent")

    def test_with_a_group_for_each_rank_changes_nothing(self):
        self.check(MANY_RANKS, "async", VARVE_GROUP="rank")

    @unittest.skipIf(MANY_RANKS == 1, "without MPI there is one rank")
    def test_between_runs_of_other_numbers_of_ranks_changes_nothing(self):
        expected = self.state(self.run_to_end("whole", MANY_RANKS, *FLOW, "--mode", "none"))
        command = (*FLOW, "--mode", "async")
        for ranks, step in ((4, 200), (3, 400), (7, 600), (1, 700)):
            self.run_and_kill("killed", ranks, f"checkpoint of step {step}", *command)
        out = self.run_to_end("killed", 5, *command)
        self.assertGreaterEqual(int(found(r"^going on from step (\d+)$", out)), 600)
        self.assertEqual(self.state(out), expected)

    def test_of_checkpoints_that_were_waited_for_changes_nothing(self):
        self.check(RANK_COUNTS[min(1, len(RANK_COUNTS) - 1)], "sync")


if __name__ == "__main__":
    unittest.main()
