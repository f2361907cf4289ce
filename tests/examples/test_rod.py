"""Programs of VELOC and SCR, as they were written: killed, and run again, they end in the same state to the bit."""

import os
import time
import unittest

from support import MANY_RANKS, RUN_SECONDS_MAX, ExampleTest, found

STEPS = 3000


class Rod(ExampleTest):
    def environment(self, name, changes):
        kept = super().environment(name, changes)
        del kept["VARVE_STORE"]  # they say it in their own ways
        folder = self.work / name
        for part in ("persistent", "scratch"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "veloc.cfg").write_text(f"scratch = {folder}/scratch\npersistent = {folder}/persistent\nmode = async\n")
        return {**kept, "SCR_PREFIX": str(folder / "persistent"), "SCR_CACHE_BASE": str(folder / "scratch"),
                "SCR_CHECKPOINT_INTERVAL": "100", "SCR_FLUSH": "1"}

    def check(self, program, *arguments):
        def command(name):
            return [os.environ[program], *[str(self.work / name / one) for one in arguments], STEPS]

        whole = self.run_alone("whole", MANY_RANKS, *command("whole"))
        process = self.start("killed", MANY_RANKS, *command("killed"))
        end = time.monotonic() + RUN_SECONDS_MAX
        while len(list((self.work / "killed" / "persistent").rglob("*.set"))) < 2:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.kill_all(process)
        out = self.run_alone("killed", MANY_RANKS, *command("killed"))
        self.assertGreaterEqual(int(found(r"^going on from step (\d+)$", out)), 200)
        state = r"(after \d+ steps the rod holds \S+)$"
        self.assertEqual(found(state, out), found(state, whole))

    def test_a_program_of_veloc_goes_on(self):
        self.check("VARVE_ROD_VELOC", "veloc.cfg")

    def test_a_program_of_scr_goes_on(self):
        self.check("VARVE_ROD_SCR")


if __name__ == "__main__":
    unittest.main()
