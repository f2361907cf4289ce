"""LAMMPS, whose restart files are in the checkpoints."""

import os
import unittest

from support import RANK_COUNTS, ExampleTest, found

MELT = os.environ["VARVE_MELT"]
ENERGY = r"atoms have (\S+) of energy each$"


class Melt(ExampleTest):
    def test_goes_on_from_its_last_checkpoint(self):
        for ranks in RANK_COUNTS:
            with self.subTest(ranks=ranks):
                whole = self.run_to_end(f"whole-{ranks}", ranks, MELT, 150, 50)
                name = f"parts-{ranks}"
                self.run_to_end(name, ranks, MELT, 100, 50)
                out = self.run_to_end(name, ranks, MELT, 150, 50)
                self.assertEqual(found(r"^going on from step (\d+)", out), "100")
                # A restart sorts its atoms anew, and sums are of another order.
                self.assertAlmostEqual(float(found(ENERGY, out)), float(found(ENERGY, whole)), places=5)

    def test_survives_a_kill(self):
        # It prints nothing until its end: so it is killed when there is a set.
        process = self.start("killed", RANK_COUNTS[-1], MELT, 1000000, 20)
        while not (self.work / "killed-store" / "varve.store").is_file() or not self.varve_facts("killed", "list")["sets"]:
            self.assertIsNone(process.poll())
        self.kill_all(process)
        newest = max(each["step"] for each in self.varve_facts("killed", "list")["sets"])
        out = self.run_alone("killed", RANK_COUNTS[-1], MELT, newest + 40, 20)
        self.assertGreaterEqual(int(found(r"^going on from step (\d+)", out)), newest)


if __name__ == "__main__":
    unittest.main()
