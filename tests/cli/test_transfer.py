"""Copying sets between stores: push and pull."""

import random
import signal
import time
import unittest

from support import (DAMAGED, EXISTS, INTERRUPTED, SAMPLE, SUCCESS, USAGE, ProgramTest, compressible_bytes,
                     snapshot)

SET_KEYS = {"set", "was_there", "sent_packs", "sent_bytes", "held_packs", "held_bytes", "recoded_packs",
            "recoded_from_bytes", "recoded_to_bytes", "unchecked_packs"}


class Transfer(ProgramTest):
    def setUp(self):
        super().setUp()
        self.other = self.work / "other"
        self.varve("init", self.other)
        for step in (5, 6, 7):
            self.varve("save", SAMPLE / f"DD000{step}", "--effort", "fast")

    def sets_of(self, store):
        return [record["name"] for record in self.facts("list", "--store", store)["sets"]]

    def check_other(self, *steps):
        """The other store is whole, and has these sets as they were saved."""
        self.assertEqual(self.sets_of(self.other), [f"implosion@{step}" for step in steps])
        self.assertTrue(self.facts("verify", "--deep", "--store", self.other)["whole"])
        for step in steps:
            target = self.work / f"back{step}"
            self.varve("restore", f"implosion@{step}", target, "--store", self.other, "--overwrite")
            self.assertEqual(snapshot(target), snapshot(SAMPLE / f"DD000{step}"))

    def arena_of(self, step):
        """The arena that was written for a set, and when it was not copied from elsewhere, only for that."""
        return sorted((self.store / "arenas").glob("*.arena"), key=lambda path: path.stat().st_mtime_ns)[step - 5]

    def damage(self, path):
        path.chmod(0o644)
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)


class Push(Transfer):
    def test_copies_a_set(self):
        facts = self.facts("push", "implosion@6", "--to", self.other)
        self.assertEqual(set(facts), {"to", "sets", "failed", "seconds"})
        self.assertEqual(set(facts["sets"][0]), SET_KEYS)
        self.assertEqual((facts["sets"][0]["set"], facts["sets"][0]["was_there"]), ("implosion@6", False))
        self.check_other(6)

    def test_copies_the_newest_if_only_the_job_is_named(self):
        self.assertRegex(self.varve("push", "implosion", "--to", self.other), r"^copied implosion@7 to .* written; 0 packs")
        self.check_other(7)

    def test_says_that_a_set_is_there(self):
        self.varve("push", "implosion@5", "--to", self.other)
        self.assertRegex(self.varve("push", "implosion@5", "--to", self.other), "^implosion@5 is in .* already\n$")
        again = self.facts("push", "implosion@5", "--to", self.other)["sets"][0]
        self.assertEqual((again["was_there"], again["sent_bytes"]), (True, 0))

    def test_of_all_sets_copies_those_that_are_lacking_oldest_first(self):
        self.varve("push", "implosion@6", "--to", self.other)
        self.varve("save", SAMPLE / "DD0005", "--job", "another", "--step", "3")
        facts = self.facts("push", "--all", "implosion", "--to", self.other)
        self.assertEqual([copied["set"] for copied in facts["sets"]], ["implosion@5", "implosion@7"])
        self.check_other(5, 6, 7)
        facts = self.facts("push", "--all", "--to", self.other)
        self.assertEqual([copied["set"] for copied in facts["sets"]], ["another@3"])
        self.assertRegex(self.varve("push", "--all", "--to", self.other), "has all sets already\n$")

    def test_sends_only_what_is_new(self):
        self.varve("push", "implosion@5", "--to", self.other)
        self.varve("save", SAMPLE / "DD0005", "--job", "again", "--step", "1")
        again = self.facts("push", "again", "--to", self.other)["sets"][0]
        self.assertEqual(again["sent_packs"], 0)
        self.assertGreater(again["held_bytes"], 10 * again["sent_bytes"])

    def test_of_another_set_of_that_name_is_refused(self):
        self.varve("save", SAMPLE / "DD0005", "--job", "implosion", "--step", "6", "--store", self.other)
        self.assertIn("hint:", self.fails(EXISTS, "push", "implosion@6", "--to", self.other))
        # It is not passed over in silence either.
        self.assertIn("implosion@6", self.fails(EXISTS, "push", "--all", "--to", self.other))
        self.assertEqual(self.sets_of(self.other), ["implosion@5", "implosion@6", "implosion@7"])

    def test_to_a_store_with_other_scores_says_what_to_do(self):
        self.varve("init", self.work / "short", "--score-bits", "160")
        self.assertIn("--score-bits 256", self.fails(USAGE, "push", "implosion", "--to", self.work / "short"))

    def test_compresses_anew(self):
        self.write("text/words", compressible_bytes(1 << 20, seed=1))
        self.varve("save", self.work / "text", "--job", "text", "--step", "1", "--codec", "store")
        copied = self.facts("push", "text", "--to", self.other, "--recode", "best")["sets"][0]
        self.assertGreater(copied["recoded_packs"], 0)
        self.assertLess(copied["recoded_to_bytes"], 0.7 * copied["recoded_from_bytes"])
        self.assertIn("compressed anew", self.varve("push", "implosion@5", "--to", self.other, "--recode", "best"))
        self.check_other_has_text()

    def check_other_has_text(self):
        self.assertTrue(self.facts("verify", "--deep", "--store", self.other)["whole"])
        self.varve("restore", "text", self.work / "words_back", "--store", self.other)
        self.assertEqual(snapshot(self.work / "words_back"), snapshot(self.work / "text"))

    def test_shows_of_a_copied_set_what_its_store_has(self):
        self.varve("push", "--all", "--to", self.other)
        for step in (5, 6, 7):
            here, there = (self.facts("show", f"implosion@{step}", "--store", store) for store in (self.store, self.other))
            for key in ("own_bytes", "shared_bytes", "shared_with", "pattern_bytes", "files"):
                self.assertEqual(here[key], there[key], key)

    def test_is_followed_by_saves_that_share_with_what_was_copied(self):
        self.varve("push", "implosion@5", "--to", self.other)
        self.assertEqual(self.facts("save", SAMPLE / "DD0005", "--job", "x", "--store", self.other)["record"]["new_bytes"], 0)

    def test_of_a_damaged_set_names_it_and_leaves_the_target_alone(self):
        self.damage(self.arena_of(5))
        error = self.fails(DAMAGED, "push", "implosion@5", "--to", self.other)
        self.assertIn("implosion@5", error)
        self.assertIn(".arena", error)
        self.assertEqual(list((self.other / "arenas").iterdir()) + list((self.other / "writers").iterdir()), [])

    def test_of_all_goes_on_after_a_damaged_set(self):
        self.damage(self.arena_of(6))
        self.fails(DAMAGED, "push", "--all", "--to", self.other)
        self.check_other(5, 7)

    def test_with_deep_makes_good_what_is_damaged_there(self):
        self.varve("push", "implosion@5", "--to", self.other)
        self.damage(next((self.other / "arenas").glob("*.arena")))
        self.fails(DAMAGED, "restore", "implosion@5", self.work / "x", "--store", self.other)
        self.assertIn("was lost", self.varve("push", "implosion@5", "--to", self.other, "--deep"))
        code, _, err = self.run_program("restore", "implosion@5", self.work / "x", "--store", self.other)
        self.assertEqual(code, SUCCESS, err)
        self.assertTrue(not err or "an arena is damaged, and marked" in err, err)  # whichever copy it met first
        self.assertEqual(snapshot(self.work / "x"), snapshot(SAMPLE / "DD0005"))

    def test_keeps_to_a_bandwidth(self):
        self.write("noise/x", random.Random(1).randbytes(1 << 20))
        self.varve("save", self.work / "noise", "--job", "noise", "--step", "1")
        begin = time.monotonic()
        self.varve("push", "noise", "--to", self.other, "--bandwidth", "2MB/s")
        self.assertGreater(time.monotonic() - begin, 0.4)

    def test_can_be_interrupted_and_done_again(self):
        self.write("noise/x", random.Random(1).randbytes(8 << 20))
        self.varve("save", self.work / "noise", "--job", "noise", "--step", "1")
        process = self.start("push", "noise", "--to", self.other, "--bandwidth", "2MB/s")
        while process.poll() is None and not list((self.other / "arenas").glob("*.part")):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertEqual(list((self.other / "arenas").iterdir()) + list((self.other / "writers").iterdir()), [])
        self.varve("push", "noise", "--to", self.other)
        self.assertEqual(self.sets_of(self.other), ["noise@1"])

    def test_killed_at_any_moment_leaves_the_set_whole_or_not_there(self):
        self.write("noise/x", random.Random(1).randbytes(8 << 20))
        self.varve("save", self.work / "noise", "--job", "noise", "--step", "1")
        for _ in range(10):
            process = self.start("push", "noise", "--to", self.other)
            time.sleep(random.uniform(0, 0.06))
            process.kill()
            process.communicate()
            self.assertIn(self.sets_of(self.other), ([], ["noise@1"]))
            self.assertTrue(self.facts("verify", "--deep", "--store", self.other)["whole"])
        self.varve("push", "noise", "--to", self.other)
        self.varve("prune", "--store", self.other)
        self.varve("restore", "noise", self.work / "x", "--store", self.other)
        self.assertEqual(snapshot(self.work / "x"), snapshot(self.work / "noise"))

    def test_twice_at_once_is_fine(self):
        processes = [self.start("push", "--all", "--to", self.other) for _ in range(3)]
        for process in processes:
            _, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, err), (SUCCESS, b""))
        self.check_other(5, 6, 7)


class Pull(Transfer):
    def test_brings_back_what_was_lost(self):
        self.varve("push", "--all", "--to", self.other)
        self.varve("drop", "implosion@6")
        self.varve("prune")
        self.assertRegex(self.varve("pull", "implosion@6", "--from", self.other), "^copied implosion@6")
        self.assert_restores("implosion@6", SAMPLE / "DD0006")
        self.assert_whole()

    def test_fills_a_new_store(self):
        self.store, source = self.other, self.store
        facts = self.facts("pull", "--all", "--from", source)
        self.assertEqual(len(facts["sets"]), 3)
        self.check_other(5, 6, 7)


if __name__ == "__main__":
    unittest.main()
