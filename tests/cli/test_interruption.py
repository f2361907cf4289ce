"""Stopping the program, gently or not, never harms the store."""

import os
import pty
import random
import select
import signal
import time
import unittest

from support import INTERRUPTED, NIGHTLY, SAMPLE, ProgramTest, compressible_bytes

# A few megabytes a second, so that there is time to interfere.
SLOWLY = ("--codec", "lzma:9", "--threads", "1")
KILLS = 200 if NIGHTLY else 8


class Interruption(ProgramTest):
    def setUp(self):
        super().setUp()
        self.varve("save", SAMPLE / "DD0005")
        for rank in range(4):
            self.write(f"large/x.cpu000{rank}", compressible_bytes(8 << 20, seed=rank))

    def start_large_save(self, step, *options):
        return self.start("save", self.work / "large", "--job", "large", "--step", step, *options)

    def wait_until_it_writes(self, process):
        while process.poll() is None and not list((self.store / "arenas").glob("*.part")):
            time.sleep(0.005)
        self.assertIsNone(process.poll(), "the save was too quick to be stopped")

    def assert_only_the_earlier_set(self):
        self.assertEqual([record["name"] for record in self.facts("list")["sets"]], ["implosion@5"])
        self.assert_whole()
        self.assert_restores("implosion@5", SAMPLE / "DD0005")

    def test_by_a_signal_ends_in_good_order(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start_large_save(1, *SLOWLY)
            self.wait_until_it_writes(process)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED, err)
            self.assertEqual(list((self.store / "arenas").glob("*.part")), [])
            self.assertEqual(list((self.store / "writers").iterdir()), [])
            self.assert_only_the_earlier_set()

    def test_of_a_restore_leaves_nothing(self):
        self.varve("save", self.work / "large", "--job", "large", "--step", "1", "--effort", "fast")
        for _ in range(5):
            process = self.start("restore", "large@1", self.work / "back")
            time.sleep(random.uniform(0, 0.05))
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            # Before the program catches signals, one ends it; after its last look at them, it ends as usual.
            self.assertIn(process.returncode, (0, INTERRUPTED, -signal.SIGINT))
            if process.returncode == 0:
                self.varve("restore", "large@1", self.work / "back", "--overwrite")
                return
            self.assertFalse((self.work / "back").exists())

    def test_by_kill_at_any_moment_keeps_the_store_whole(self):
        seed = int.from_bytes(os.urandom(4), "little")
        choice = random.Random(seed)
        self.start_large_save(0).communicate()
        done = {0}
        seconds = None
        for step in range(1, KILLS + 1):
            # Other bytes each time, so that there is always something to write.
            with open(self.work / "large" / "x.cpu0002", "r+b") as file:
                file.write(compressible_bytes(4 << 20, seed=choice.random()))
            begin = time.monotonic()
            process = self.start_large_save(step)
            if seconds is None:
                process.communicate()
                seconds = time.monotonic() - begin
            else:
                time.sleep(choice.uniform(0, seconds * 1.1))
            process.kill()
            process.communicate()
            done |= {record["step"] for record in self.facts("list")["sets"] if record["job"] == "large"}
            with self.subTest(seed=seed, step=step):
                self.assert_whole()
                self.assert_restores("implosion@5", SAMPLE / "DD0005")
        self.varve("save", self.work / "large", "--job", "after", "--step", "1")
        self.assert_restores("after@1", self.work / "large")
        self.varve("prune", "--wait", "0")
        self.assertEqual(list((self.store / "arenas").glob("*.part")), [])
        self.assertEqual({record["step"] for record in self.facts("list", "large")["sets"]}, done)
        self.assert_whole()
        self.assert_restores("after@1", self.work / "large")

    def test_of_a_prune_by_kill_loses_nothing(self):
        for step in range(2, 6):
            self.varve("save", SAMPLE / "DD0006", "--job", "implosion", "--step", 10 * step)
        for step in range(KILLS):
            # Half of the bytes stay, so that arenas die slowly and are rewritten.
            path = self.write("more/file", os.urandom(1 << 20)) if step == 0 else self.work / "more" / "file"
            with open(path, "r+b") as file:
                file.seek(random.randrange(2) << 19)
                file.write(os.urandom(1 << 19))
            self.varve("save", self.work / "more", "--job", "more", "--step", step)
            process = self.start("prune", "--keep-last", "2", "--wait", "0")
            time.sleep(random.uniform(0, 0.03))
            process.kill()
            process.communicate()
            self.assert_whole()
        self.assert_restores("implosion@50", SAMPLE / "DD0006")
        self.assert_restores("more", self.work / "more")


class Progress(ProgramTest):
    def terminal_output(self, *arguments):
        """What the program writes to a terminal as standard error, and its exit code."""
        ours, theirs = pty.openpty()
        process = self.start(*arguments, stderr=theirs, environment=self.environment(TERM="xterm"))
        os.close(theirs)
        seen = b""
        while True:
            if select.select([ours], [], [], 60)[0]:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    part = b""
                seen += part
                if not part:
                    break
        process.communicate()
        os.close(ours)
        return seen.decode(errors="replace"), process.returncode

    def test_is_shown_on_a_terminal_with_rate_and_time(self):
        self.write("large/file", compressible_bytes(24 << 20, seed=1))
        begin = time.monotonic()
        seen, code = self.terminal_output("save", self.work / "large", *SLOWLY)
        self.assertEqual(code, 0)
        if time.monotonic() - begin < 3:
            self.skipTest("this machine is too quick for a progress bar")
        self.assertRegex(seen, r"\d+ %.*MiB of 24\.0 MiB")
        self.assertRegex(seen, r"[KM]iB/s  \d+:\d\d left")
        self.assertTrue(seen.endswith("\r\x1b[K"))

    def test_is_quiet_for_what_is_quick(self):
        for step in range(20):
            begin = time.monotonic()
            seen, code = self.terminal_output("save", SAMPLE / "DD0005", "--job", "quick", "--step", step)
            self.assertEqual(code, 0)
            if time.monotonic() - begin < 1:
                self.assertEqual(seen, "")
                return
        self.skipTest("this machine is too busy for anything to be quick")

    def test_is_quiet_without_a_terminal(self):
        self.write("large/file", compressible_bytes(8 << 20, seed=1))
        self.varve("save", self.work / "large", *SLOWLY)


if __name__ == "__main__":
    unittest.main()
