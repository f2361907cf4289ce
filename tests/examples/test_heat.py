"""The smallest examples, in C++, C, Fortran and Python."""

import os
import time
import unittest

from support import RANK_COUNTS, RUN_SECONDS_MAX, ExampleTest, found

ALIKE = (os.environ["VARVE_HEAT"], os.environ["VARVE_HEAT_C"])
# The one in Fortran, where there is one, cuts the plate the other way.
PROGRAMS = ALIKE + tuple(os.environ.get("VARVE_HEAT_F", "").split())
if "VARVE_HEAT_PY" in os.environ:  # a command of several words
    PROGRAMS += (os.environ["VARVE_HEAT_PY"],)
HEAT = r"the plate holds (\S+)$"


class Heat(ExampleTest):
    def test_is_conserved(self):
        for program in PROGRAMS:
            for ranks in RANK_COUNTS:
                with self.subTest(program=program, ranks=ranks):
                    # Too few steps for any heat to reach the rim, where it would be lost.
                    out = self.run_to_end("whole", ranks, program, 50, 128, 128, VARVE_EVERY_STEPS="1000")
                    self.assertAlmostEqual(float(found(HEAT, out)) / 1e6, 1, delta=1e-12)

    def test_is_the_same_in_c_and_cpp(self):
        for ranks in RANK_COUNTS:
            results = {found(HEAT, self.run_to_end(f"{number}-{ranks}", ranks, program, 90, 64, 64,
                                                   VARVE_EVERY_STEPS="20"))
                       for number, program in enumerate(ALIKE)}
            self.assertEqual(len(results), 1)

    def test_goes_on_from_its_last_checkpoint(self):
        for number, program in enumerate(PROGRAMS):
            for ranks in RANK_COUNTS:
                with self.subTest(program=program, ranks=ranks):
                    whole = self.run_to_end(f"whole-{number}-{ranks}", ranks, program, 200, 64, 64,
                                            VARVE_EVERY_STEPS="50")
                    name = f"parts-{number}-{ranks}"
                    self.run_to_end(name, ranks, program, 120, 64, 64, VARVE_EVERY_STEPS="50")
                    out = self.run_to_end(name, ranks, program, 200, 64, 64, VARVE_EVERY_STEPS="50")
                    self.assertEqual(found(HEAT, out), found(HEAT, whole))
                    steps = [each["step"] for each in self.varve_facts(name, "list")["sets"]]
                    self.assertEqual(steps, [50, 100, 150, 200])

    def test_survives_a_kill(self):
        for number, program in enumerate(PROGRAMS):
            name, ranks = f"killed-{number}", RANK_COUNTS[-1]
            process = self.start(name, ranks, program, 1000000, 512, 512, VARVE_EVERY_STEPS="20")
            self.wait_for_a_set(name, process)
            self.kill_all(process)
            # It may go on from memory, which is ahead of the store, but not beyond where it was killed. That memory then
            # stays, as this run makes no checkpoint that could take its place.
            out = self.run_alone(name, ranks, program, self.newest(name) + 10, 512, 512, VARVE_EVERY_STEPS="none")
            steps = found(r"^after (\d+) steps", out)
            whole = self.run_to_end(f"whole-{number}", ranks, program, steps, 512, 512, VARVE_EVERY_STEPS="1000000")
            self.assertEqual(found(HEAT, out), found(HEAT, whole))

    def newest(self, name):
        return max((each["step"] for each in self.varve_facts(name, "list")["sets"]), default=0)

    def wait_for_a_set(self, name, process):
        end = time.monotonic() + RUN_SECONDS_MAX
        while not (self.work / f"{name}-store" / "varve.store").is_file() or self.newest(name) == 0:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end, "no checkpoint")
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
