"""Several programs work on one store at once."""

import os
import random
import shutil
import threading
import time
import unittest

from support import BUSY, EXISTS, NIGHTLY, NOT_FOUND, SAMPLE, SUCCESS, ProgramTest

SECONDS = 120 if NIGHTLY else 6


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


if __name__ == "__main__":
    unittest.main()
