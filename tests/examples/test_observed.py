"""What operators see of a real program under its launcher: its timeline and metrics, with a restart, a level that fails, and a
kill; and `varve top` while it runs."""

import json
import os
import subprocess
import time
import unittest

from support import MANY_RANKS, ExampleTest

HEAT = os.environ["VARVE_HEAT"]
PROGRAM = os.environ["VARVE_PROGRAM"]


class Observed(ExampleTest):
    def options(self, name, **changes):
        near, socket = self.work / f"{name}-store", self.work / "far.sock"
        return {"VARVE_JOB": "heat", "VARVE_LEVELS": f"memory; dir:{near}; unix:{socket}", "VARVE_EVERY_STEPS": "20",
                "VARVE_STORE": "", "VARVE_METRICS_FILE": str(self.work / f"{name}.prom"), **changes}

    def timeline(self, name):
        said = subprocess.run([PROGRAM, "timeline", "heat", "--json"], check=False, capture_output=True, text=True,
                              env=self.environment(name, self.options(name)), cwd=self.work)
        self.assertEqual(said.returncode, 0, said.stderr)
        return json.loads(said.stdout)

    @staticmethod
    def made(run):
        return [one for one in run["checkpoints"] if one["outcome"] != "made before"]

    def metrics(self, name):
        lines = (self.work / f"{name}.prom").read_text().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}

    def serve(self):
        """The farther level comes back."""
        folder = self.work / "far"
        subprocess.run([PROGRAM, "init", folder], check=True, capture_output=True)
        server = subprocess.Popen([PROGRAM, "serve", "--listen", f"unix:{self.work}/far.sock", "--dir", folder],
                                  stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertIn(b"serving", server.stdout.readline())

    def test_tells_all_of_a_restart_and_of_a_level_that_fails(self):
        level = f"unix:{self.work}/far.sock"
        # A run begins where all levels answer; later ones go on without.
        self.run_to_end("seen", MANY_RANKS, HEAT, 40, 256, 256,
                        **self.options("seen", VARVE_LEVELS=f"memory; dir:{self.work}/seen-store"))
        self.run_to_end("seen", MANY_RANKS, HEAT, 100, 256, 256, **self.options("seen"))
        first = self.timeline("seen")["runs"][1]
        self.assertEqual([one["step"] for one in self.made(first)], [60, 80, 100])
        self.assertEqual(first["restarts"][0]["step"], 40)
        self.assertEqual({one["outcome"] for one in self.made(first)}, {"stored"})
        self.assertIn(level, {failure["level"] for failure in first["failures"]})
        self.assertEqual(first["state"], "failed")  # the last set has not come to all levels
        metrics = self.metrics("seen")
        self.assertEqual(metrics['varve_run_running{job="heat"}'], 0)
        self.assertEqual(metrics['varve_run_failed{job="heat"}'], 1)
        self.assertGreater(metrics[f'varve_run_level_failures_total{{job="heat",level="{level}"}}'], 0)
        self.assertGreater(metrics[f'varve_run_level_lag_seconds{{job="heat",level="{level}"}}'], 0)
        self.assertEqual(metrics[f'varve_run_level_newest_step{{job="heat",level="dir:{self.work}/seen-store"}}'], 100)

        self.serve()
        self.run_to_end("seen", MANY_RANKS, HEAT, 200, 256, 256, **self.options("seen"))
        told = self.timeline("seen")
        second = told["runs"][2]
        self.assertEqual((second["state"], second["ranks"]), ("ended", MANY_RANKS))
        self.assertEqual(second["restarts"][0]["step"], 100)
        self.assertGreater(second["restarts"][0]["seconds"], 0)
        arrived = {one["step"] for one in second["checkpoints"] for there in one["levels"]
                   if there["level"] == level and there["arrived"] is not None}
        self.assertEqual(arrived, set(range(20, 201, 20)))
        self.assertEqual(told["skipped_lines"], 0)
        # Each moment in which the program waited has a cause.
        for part in (told, first, second):
            self.assertAlmostEqual(sum(part["blocked"].values()), part["blocked_seconds"], places=5)
            self.assertGreaterEqual(part["attributed_share"], 0.9)
        # Others may have had the processor for a moment, which is no cause, but not in both.
        self.assertGreaterEqual(max(first["attributed_share"], second["attributed_share"]), 0.99)
        for one in first["checkpoints"] + second["checkpoints"]:
            self.assertAlmostEqual(sum(one["blocked"].values()), one["blocked_seconds"], places=5)

    def top(self, name):
        said = subprocess.run([PROGRAM, "top", "--json"], check=True, capture_output=True,
                              env=self.environment(name, {"XDG_STATE_HOME": str(self.work / "state")}))
        return json.loads(said.stdout)["runs"]

    def test_is_seen_while_it_runs_and_when_it_was_killed(self):
        options = self.options("live", VARVE_LEVELS="none", VARVE_STORE=str(self.work / "live-store"),
                               VARVE_JOB="heat")
        process = self.start("live", MANY_RANKS, HEAT, 100_000_000, 128, 128, **options)
        try:
            deadline = time.monotonic() + 120
            seen = []
            while time.monotonic() < deadline and not (seen and seen[0]["checkpoints"]["persistent"] > 0):
                time.sleep(0.2)
                seen = self.top("live")
        finally:
            self.kill_all(process)
        self.assertEqual([(run["job"], run["state"], run["ranks"]) for run in seen], [("heat", "running", MANY_RANKS)])
        self.assertEqual([level["level"] for level in seen[0]["levels"]], ["memory", f"dir:{self.work}/live-store"])
        self.assertGreater(seen[0]["raw_bytes"], 0)
        # Its pipe is closed a little before it is dead.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and [run["state"] for run in self.top("live")] != ["killed"]:
            time.sleep(0.05)
        self.assertEqual([run["state"] for run in self.top("live")], ["killed"])
        said = subprocess.run([PROGRAM, "timeline", "heat", "--json"], check=True, capture_output=True, text=True,
                              env=self.environment("live", {}), cwd=self.work)
        told = json.loads(said.stdout)["runs"]
        self.assertEqual([run["state"] for run in told], ["cut off"])
        self.assertGreater(len(told[0]["checkpoints"]), 0)
        # The next run puts it right.
        newest = told[0]["checkpoints"][-1]["step"]
        self.run_to_end("live", MANY_RANKS, HEAT, newest + 2000, 128, 128, **options)
        self.assertEqual(self.top("live"), [])


if __name__ == "__main__":
    unittest.main()
