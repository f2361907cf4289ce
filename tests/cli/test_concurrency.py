"""Several programs work on one store at once."""

import os
import random
import shutil
import signal
import threading
import time
import unittest

from support import BUSY, EXISTS, NIGHTLY, NOT_FOUND, SAMPLE, SUCCESS, ProgramTest, snapshot

SECONDS = 120 if NIGHTLY else 6
ROUNDS = 300 if NIGHTLY else 10


class AtOnce(ProgramTest):
    def test_saves_of_different_jobs_all_succeed(self):
        processes = [self.start("save", SAMPLE / "DD0006", "--job", f"job{number}", "--step", "1") for number in range(6)]
        for process in processes:
            _, err = process.communicate(timeout=120)
            self.assertEqual((process.returncode, err), (SUCCESS, b""))
        self.assert_whole()
        for number in range(6):
            self.assert_restores(f"job{number}@1", SAMPLE / "DD0006")

    def test_of_saves_under_one_name_exactly_one_wins(self):
        for step in range(5):
            processes = [self.start("save", SAMPLE / "DD0006", "--job", "same", "--step", step) for _ in range(3)]
            codes = []
            for process in processes:
                process.communicate(timeout=120)
                codes.append(process.returncode)
            self.assertEqual(sorted(codes), [SUCCESS, EXISTS, EXISTS])
        self.assert_whole()
        self.assert_restores("same@4", SAMPLE / "DD0006")


class SaveBesidePrune(ProgramTest):
    """Three savers and a pruner in a loop. Sets share most of their chunks, so that each prune meets chunks that a save relies on."""

    def setUp(self):
        super().setUp()
        self.failures = []
        self.end = time.monotonic() + SECONDS
        self.seed = int.from_bytes(os.urandom(4), "little")

    def saver(self, job):
        choice = random.Random(f"{self.seed} {job}")
        folder = self.work / job
        shutil.copytree(SAMPLE / "DD0006", folder)
        step = 0
        while time.monotonic() < self.end:
            step += 1
            rank = choice.randrange(16)
            shutil.copy(SAMPLE / f"DD000{choice.choice((5, 6, 7))}" / f"XX1000.cpu{rank:04}", folder / f"XX1000.cpu{rank:04}")
            code, _, err = self.run_program("save", folder, "--job", job, "--step", step, "--group-size", choice.choice((4, 32)))
            if code != SUCCESS:
                self.failures.append(f"save {job}@{step}: {code} {err}")
            elif choice.random() < 0.3:
                code, _, err = self.run_program("restore", f"{job}@{step}", self.work / f"{job}.back", "--overwrite", "--no-sync")
                # A prune may have dropped it by now.
                if code not in (SUCCESS, NOT_FOUND) and f"{job}@{step}" in self.names():
                    self.failures.append(f"restore {job}@{step}: {code} {err}")

    def names(self):
        return [record["name"] for record in self.facts("list")["sets"]]

    def pruner(self):
        while time.monotonic() < self.end:
            code, _, err = self.run_program("prune", "--keep-last", "3", "--wait", "1")
            if code not in (SUCCESS, BUSY):
                self.failures.append(f"prune: {code} {err}")

    def test_loses_nothing(self):
        jobs = ["one", "two", "three"]
        threads = [threading.Thread(target=self.saver, args=(job,)) for job in jobs] + [threading.Thread(target=self.pruner)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.failures, [], f"seed {self.seed}")
        self.assert_whole()
        for name in self.names():
            self.varve("restore", name, self.work / "check" / name)
        for job in jobs:
            newest = max((name for name in self.names() if name.startswith(job + "@")), key=lambda name: int(name.split("@")[1]))
            self.assert_restores(newest, self.work / job)
        facts = self.facts("prune", "--keep-last", "1", "--wait", "0")
        self.assertLessEqual(facts["bytes_after"], facts["bytes_before"])
        self.assert_whole()
        for job in jobs:
            self.assert_restores(job, self.work / job)


class KilledAtOnce(ProgramTest):
    """Rounds of two saves and often a prune that begin together, some of which are killed at any moment."""

    KILLED = -signal.SIGKILL

    def setUp(self):
        super().setUp()
        self.seed = int.from_bytes(os.urandom(4), "little")
        self.choice = random.Random(self.seed)
        self.folder = self.work / "saved"
        shutil.copytree(SAMPLE / "DD0006", self.folder)
        self.saved = {}
        self.kills = {"save": 0, "prune": 0}
        begin = time.monotonic()
        self.save("kept", 1)[1].communicate()
        self.save_seconds = time.monotonic() - begin
        self.saved["kept@1"] = snapshot(self.folder)

    def save(self, job, step):
        options = ("--group-size", self.choice.choice((4, 32)))
        return f"{job}@{step}", self.start("save", self.folder, "--job", job, "--step", step, *options)

    def change(self):
        """A rank's file, and bytes that are always new, so that there is something to write and something to prune."""
        rank = self.choice.randrange(16)
        shutil.copy(SAMPLE / f"DD000{self.choice.choice((5, 6, 7))}" / f"XX1000.cpu{rank:04}", self.folder / f"XX1000.cpu{rank:04}")
        self.write("saved/new", self.choice.randbytes(300_000))

    def kill_some(self, processes):
        begin = time.monotonic()
        moments = [(self.choice.uniform(0, 1.5 * self.save_seconds), process) for process in processes if self.choice.random() < 0.6]
        for moment, process in sorted(moments, key=lambda pair: pair[0]):
            time.sleep(max(0, begin + moment - time.monotonic()))
            process.kill()

    def age_leases(self):
        """A save that was killed about to commit left a lease that names no process: as if its time of silence were over."""
        for lease in (self.store / "writers").iterdir():
            os.utime(lease, (time.time() - 60,) * 2)

    def one_round(self, step):
        self.change()
        if self.choice.random() < 0.5:
            self.age_leases()
        jobs = ("one", "one") if self.choice.random() < 0.25 else ("one", "two")
        saves = [self.save(job, step) for job in jobs]
        prunes = [self.start("prune", "--keep-last", "2", "--wait", "0")] if self.choice.random() < 0.7 else []
        self.kill_some([process for _, process in saves] + prunes)
        done = []
        for name, process in saves:
            _, err = process.communicate(timeout=120)
            expected = (SUCCESS, self.KILLED) if jobs[0] != jobs[1] else (SUCCESS, EXISTS, self.KILLED)
            self.assertIn(process.returncode, expected, err)
            self.kills["save"] += process.returncode == self.KILLED
            self.saved[name] = snapshot(self.folder)
            done += [name] if process.returncode == SUCCESS else []
        for process in prunes:
            _, err = process.communicate(timeout=120)
            self.assertIn(process.returncode, (SUCCESS, BUSY, self.KILLED), err)
            self.kills["prune"] += process.returncode == self.KILLED
        self.assertEqual(len(done), len(set(done)), "two saves have made one set")
        # Whatever was killed is whole or not there.
        self.assertLessEqual({"kept@1", *done}, self.check_all_sets())

    def check_all_sets(self):
        """Every set that is visible, of which it returns the names, comes back as it was saved."""
        self.assert_whole()
        names = {record["name"] for record in self.facts("list")["sets"]}
        self.saved = {name: self.saved[name] for name in names}
        for name in names:
            self.varve("restore", name, self.work / "back", "--no-sync")
            self.assertEqual(snapshot(self.work / "back"), self.saved[name], name)
            shutil.rmtree(self.work / "back")
        return names

    def assert_nothing_is_left(self):
        for folder in ("writers", "condemned", "parts"):
            path = self.store / folder
            self.assertEqual(list(path.iterdir()) if path.exists() else [], [])
        for folder in ("arenas", "index", "sets"):
            self.assertEqual([path for path in (self.store / folder).rglob("*") if path.suffix in (".part", ".tmp")], [])
        facts = self.facts("prune", "--wait", "0")
        self.assertEqual((facts["removed_arenas"], facts["leftover_files"]), (0, 0))

    def test_saves_and_prunes_leave_sets_that_are_whole_or_not_there(self):
        for step in range(1, 20 * ROUNDS + 1):
            if step > ROUNDS and min(self.kills.values()) > 0:
                break
            with self.subTest(seed=self.seed, step=step):
                self.one_round(step)
        with self.subTest(seed=self.seed):
            self.assertGreater(min(self.kills.values()), 0, "nothing was killed")
            self.varve("save", self.folder, "--job", "after", "--step", "1")
            self.saved["after@1"] = snapshot(self.folder)
            self.age_leases()
            self.varve("prune", "--keep-last", "1", "--wait", "0")
            self.assertLessEqual({"kept@1", "after@1"}, self.check_all_sets())
            self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
