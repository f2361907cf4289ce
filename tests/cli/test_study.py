"""`varve study`: what it prints and writes, and how it ends."""

import csv
import json
import os
import pathlib
import signal
import time
import unittest

from support import INTERRUPTED, NOT_FOUND, SAMPLE, SUCCESS, USAGE, ProgramTest, compressible_bytes

HAS_CHARTS = os.environ.get("VARVE_WITH_CHARTS", "1") == "1"
PARTS = ("contents", "dedup", "changes", "compression", "timing", "advice")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Study(ProgramTest):
    def study(self, *arguments):
        code, out, err = self.run_program("study", *arguments, "--json")
        self.assertEqual(code, SUCCESS, err)
        return json.loads(out)

    def test_prints_tables_and_writes_what_was_asked_for(self):
        code, out, err = self.run_program("study", SAMPLE, "--json-file", "facts.json", "--csv", "table.csv")
        self.assertEqual(code, SUCCESS, err)
        text = out.decode()
        for heading in ("what is in it", "deduplication", "what changes", "compression of", "time, on", "advice"):
            self.assertIn(heading, text)
        facts = json.loads((self.work / "facts.json").read_text())
        self.assertEqual(facts["sets"], ["DD0005", "DD0006", "DD0007"])
        self.assertTrue(facts["complete"])
        with open(self.work / "table.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertGreater(len(rows), 500)
        unique = [float(row["value"]) for row in rows if row["part"] == "dedup" and row["method"] == "fixed:8192"
                  and row["item"] == "both" and row["measure"] == "unique_bytes"]
        method = next(each for each in facts["dedup"]["methods"] if each["name"] == "fixed:8192" and not each["of_files"])
        self.assertAlmostEqual(sum(unique), method["total"]["both"]["unique_bytes"]["value"])
        self.assertEqual((self.work / "varve-study.html").exists(), HAS_CHARTS)
        self.assertEqual("charting library" in err, not HAS_CHARTS)

    def test_foretells_what_saves_then_store(self):
        facts = self.study(SAMPLE)
        trial = facts["advice"]["trials"][0]
        for label, foretold in zip(facts["sets"], trial["sets"]):
            self.varve("save", SAMPLE / label, "--job", "run")
            stored = self.facts("list")["sets"][-1]["stored_bytes"]
            self.assertLess(abs(foretold["stored_bytes"]["value"] - stored), 0.02 * stored, label)

    def test_of_a_store_says_the_same_as_of_the_folders(self):
        for folder in sorted(SAMPLE.iterdir()):
            self.varve("save", folder, "--job", "run")
        stored, folders = self.study("--job", "run"), self.study(SAMPLE)
        self.assertEqual(stored["sets"], ["run@5", "run@6", "run@7"])
        for a, b in zip(stored["dedup"]["methods"], folders["dedup"]["methods"]):
            self.assertEqual((a["name"], a["total"]), (b["name"], b["total"]))
        self.assertEqual(stored["changes"]["cell_changes"], folders["changes"]["cell_changes"])

    def test_takes_single_files_for_sets(self):
        for number in (1, 2):
            self.write(f"core.{number}", compressible_bytes(100_000, seed=number))
        facts = self.study("core.1", "core.2")
        self.assertEqual(facts["sets"], ["core.1", "core.2"])
        self.assertEqual(facts["raw_bytes"], 200_000)

    def test_draws_the_heat_map(self):
        for number in (1, 2):
            self.write(f"core.{number}", compressible_bytes(100_000, seed=number))
        code, _, err = self.run_program("study", "core.1", "core.2", "--png", "map.png")
        if code != SUCCESS:
            self.assertIn("without libpng", err)
            return
        self.assertTrue((self.work / "map.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n"))

    def test_says_what_it_cannot_study(self):
        self.assertEqual(self.run_program("study", "nothing-here")[0], NOT_FOUND)
        self.assertEqual(self.run_program("study")[0], USAGE)
        self.assertEqual(self.run_program("study", SAMPLE, "--job", "run")[0], USAGE)
        self.assertEqual(self.run_program("study", "--job", "nobody")[0], NOT_FOUND)
        self.assertEqual(self.run_program("study", SAMPLE, "--sample", "0")[0], USAGE)
        (self.work / "empty").mkdir()
        self.assertEqual(self.run_program("study", "empty")[0], USAGE)

    def test_reports_what_it_has_when_it_is_interrupted(self):
        for number in (1, 2):
            self.write(f"run/dump{number}/x.cpu0", compressible_bytes(32 << 20, seed=number))
        process = self.start("study", "run", "--json", "--threads", "1", "--sample", "all")
        while process.poll() is None and processor_seconds(process.pid) < 1:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        facts = json.loads(out)
        self.assertFalse(facts["complete"])
        self.assertIsNotNone(facts["contents"])
        self.assertIsNone(facts["advice"])


if __name__ == "__main__":
    unittest.main()
