"""`varve timeline`: what it says of the log of a run, and how it takes logs that are torn or hostile."""

import json
import os
import re
import subprocess
import unittest

from support import NOT_FOUND, SUCCESS, USAGE, ProgramTest

SAVE_ARRAYS = os.environ["VARVE_SAVE_ARRAYS"]


class Timeline(ProgramTest):
    def save(self, ranks=2, steps=3, **changes):
        """Sets of a session of the job "run", in the store."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VARVE_")}
        memory = self.work / "memory"
        memory.mkdir(exist_ok=True)
        environment = {**kept, "VARVE_SHARED_MEMORY": str(memory), **changes}
        ran = subprocess.run([SAVE_ARRAYS, self.store, str(ranks), str(steps)], env=environment, cwd=self.work,
                             capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(list(memory.iterdir()), [])

    def log(self):
        return self.store / "runs" / "run.timeline"

    def test_tells_of_each_checkpoint_without_configuration(self):
        self.save(steps=4)
        told = self.facts("timeline", "run")
        self.assertEqual((told["job"], told["skipped_lines"], len(told["runs"])), ("run", 0, 1))
        run = told["runs"][0]
        self.assertEqual((run["state"], run["ranks"], run["why"]), ("ended", 2, ""))
        self.assertEqual([(one["step"], one["outcome"]) for one in run["checkpoints"]],
                         [(step, "stored") for step in (1, 2, 3, 4)])
        for one in run["checkpoints"]:
            self.assertLessEqual(run["begin"], one["begin"])
            self.assertLessEqual(one["begin"], one["end"])
            self.assertLessEqual(one["begin"], one["stored"])
            self.assertLessEqual(one["stored"], run["end"])
            self.assertGreater(one["raw_bytes"], 0)
        self.assertAlmostEqual(sum(told["blocked"].values()), told["blocked_seconds"], places=6)
        # What the program waited for the store is longer than all else of these checkpoints.
        self.assertGreaterEqual(told["attributed_share"], 0.99)
        self.assert_whole()

    def test_marks_what_a_killed_run_was_doing(self):
        self.save()
        lines = [line for line in self.log().read_text().splitlines(keepends=True)]
        events = [json.loads(line) for line in lines]
        self.assertIn("making", [event["event"] for event in events])
        # As if it had been killed while it made the last checkpoint: the process is gone, and has said no more.
        last = max(i for i, event in enumerate(events) if event["event"] == "making")
        self.log().write_text("".join(lines[:last + 1]))
        run = self.facts("timeline", "run")["runs"][0]
        self.assertEqual(run["state"], "cut off")
        self.assertEqual([one["outcome"] for one in run["checkpoints"]], ["stored", "stored", "cut off"])
        self.assertEqual([(one["what"], one["step"]) for one in run["failures"]], [("cut off", 3)])
        self.assertIn("killed while it was made", self.varve("timeline", "run"))

    def test_writes_a_page_that_needs_nothing(self):
        self.save()
        code, out, err = self.run_program("timeline", "run")
        self.assertEqual((code, err), (SUCCESS, ""))
        self.assertIn("the program was blocked for", out.decode())
        page = (self.work / "varve-timeline.html").read_text()
        self.assertNotRegex(page, r'(src|href)="(?!data:)[^"#]|url\(|@import')
        facts = json.loads(re.search(r'<script type="application/json" id="timeline">(.*?)</script>', page, re.S).group(1))
        self.assertEqual(facts, self.facts("timeline", "run"))
        (self.work / "varve-timeline.html").unlink()
        self.varve("timeline", "run", "--output", self.work / "other.html")
        self.assertTrue((self.work / "other.html").exists())
        self.assertFalse((self.work / "varve-timeline.html").exists())

    def test_adds_later_runs(self):
        self.save(steps=2)
        self.varve("drop", "run@1", "run@2")
        self.save(steps=3)
        runs = self.facts("timeline", "run")["runs"]
        self.assertEqual([len(run["checkpoints"]) for run in runs], [2, 3])
        self.assertEqual({run["state"] for run in runs}, {"ended"})

    def test_leaves_out_lines_that_make_no_sense(self):
        self.save()
        whole = self.facts("timeline", "run")
        lines = self.log().read_bytes().splitlines(keepends=True)
        hostile = b'{"event":"stored","run":"a","at":1,"step":"' + b"9" * 50 + b'"}\n'
        nested = b"[" * 60_000 + b"\n"
        self.log().write_bytes(b"".join([*lines, b"\x00\xff{\n", hostile, nested, b"x" * 100_000 + b"\n", lines[0][:40]]))
        code, out, err = self.run_program("timeline", "run", "--json")
        self.assertEqual(code, SUCCESS)
        told = json.loads(out)
        self.assertEqual(told["skipped_lines"], 5)
        self.assertIn("5 lines of the log made no sense", json.loads(err)["warning"]["message"])
        self.assertEqual(told["runs"], whole["runs"])

    def test_is_safe_in_a_page_and_on_a_terminal(self):
        event = {"event": "open", "run": "a", "at": 1, "host": "</script><script>alert(1)</script>\x1b[2J", "levels": []}
        self.log().parent.mkdir(exist_ok=True)
        self.log().write_text(json.dumps(event) + "\n")
        out = self.varve("timeline", "run")
        self.assertNotIn("\x1b", out)
        page = (self.work / "varve-timeline.html").read_text()
        self.assertNotIn("<script>alert(1)", page.split("id=\"timeline\"")[1])

    def test_is_where_the_run_was_told(self):
        self.save(VARVE_TIMELINE=str(self.work / "times"))
        self.assertFalse(self.log().exists())
        self.fails(NOT_FOUND, "timeline", "run")
        facts = self.facts("timeline", "run", "--log-file", self.work / "times" / "run.timeline")
        self.assertEqual(len(facts["runs"][0]["checkpoints"]), 3)
        code, out, _ = self.run_program("timeline", "run", "--json",
                                        environment=self.environment(VARVE_TIMELINE=str(self.work / "times")))
        self.assertEqual((code, json.loads(out)), (SUCCESS, facts))

    def test_is_nowhere_if_that_is_said(self):
        self.save(VARVE_TIMELINE="none")
        self.assertFalse(self.log().exists())

    def test_is_never_a_reason_to_fail(self):
        self.log().mkdir(parents=True)
        self.save(steps=2)
        self.assertEqual(self.facts("list")["sets"][-1]["step"], 2)

    def test_is_in_the_farthest_folder(self):
        near, far = self.work / "near", self.work / "far"
        self.save(VARVE_LEVELS=f"memory; local:{near}; dir:{far}")
        self.assertTrue((far / "runs" / "run.timeline").exists())
        self.assertFalse((near / "runs" / "run.timeline").exists())
        run = self.facts("timeline", "run", "--store", far)["runs"][0]
        arrived = {there["level"]: there["arrived"] for there in run["checkpoints"][-1]["levels"]}
        self.assertGreaterEqual(arrived[f"dir:{far}"], run["checkpoints"][-1]["stored"])
        code, out, _ = self.run_program("timeline", "run", "--json", environment=self.environment(
            VARVE_STORE="", VARVE_LEVELS=f"memory; local:{near}; dir:{far}"))
        self.assertEqual((code, json.loads(out)["runs"][0]), (SUCCESS, run))

    def test_says_what_is_missing(self):
        self.assertIn("no log of the runs of this job", self.fails(NOT_FOUND, "timeline", "nobody"))
        self.assertIn("VARVE_TIMELINE", self.fails(NOT_FOUND, "timeline", "run", "--store", "tcp://localhost:1"))
        self.fails(USAGE, "timeline")
        self.fails(USAGE, "timeline", "a/b")
        self.fails(NOT_FOUND, "timeline", "run", "--log-file", self.work / "nothing")


if __name__ == "__main__":
    unittest.main()
