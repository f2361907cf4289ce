"""Stores in a bucket of a real service (radosgw.sh): the program as people use it, at once, and killed at any moment."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))

import test_concurrency  # noqa: E402
from support import EXISTS, FAILURE, NIGHTLY, NOT_FOUND, PROGRAM, SAMPLE, SUCCESS, USAGE, ProgramTest, snapshot  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("VARVE_S3_TEST_FOLDER", "/nowhere"))
HEAT = os.environ.get("VARVE_TEST_HEAT", "")
KILLS = 50 if NIGHTLY else 10


def service():
    """The environment in which the program reaches the service; none if there is no service."""
    try:
        lines = (FOLDER / "environment").read_text().split()
    except OSError:
        return None
    return dict(line.split("=", 1) for line in lines)


@unittest.skipUnless(service(), "no S3 service to test with: install radosgw, ceph-mon and ceph-osd")
class InABucket(ProgramTest):
    """Gives each test a part of the bucket."""

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-s3-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.service = service()
        self.store = f"s3://{self.service['VARVE_S3_TEST_BUCKET']}/{uuid.uuid4()}"
        self.varve("init", self.store)

    def environment(self, **changes):
        return super().environment(**{**self.service, **changes})


class AStore(InABucket):
    def test_holds_sets_until_they_are_dropped(self):
        first = self.facts("save", SAMPLE / "DD0005", "--job", "run", "--step", 5)
        again = self.facts("save", SAMPLE / "DD0005", "--job", "run", "--step", 6)
        self.assertGreater(first["record"]["new_bytes"], 0)
        self.assertEqual(again["record"]["new_bytes"], 0)
        self.varve("save", SAMPLE / "DD0006", "--job", "run", "--step", 7)
        self.assertEqual([record["name"] for record in self.facts("list")["sets"]], ["run@5", "run@6", "run@7"])
        for step, folder in ((5, "DD0005"), (6, "DD0005"), (7, "DD0006")):
            self.assert_restores(f"run@{step}", SAMPLE / folder)
        self.assert_whole()
        self.fails(EXISTS, "save", SAMPLE / "DD0006", "--job", "run", "--step", 7)
        self.varve("drop", "run@7")
        pruned = self.facts("prune", "--keep-last", 1)
        self.assertLess(pruned["bytes_after"], pruned["bytes_before"])
        self.assertEqual([record["name"] for record in self.facts("list")["sets"]], ["run@6"])
        self.assert_restores("run@6", SAMPLE / "DD0005")
        self.fails(NOT_FOUND, "restore", "run@7", self.work / "none")
        self.assert_whole()

    def test_is_reached_where_the_command_line_or_the_environment_says(self):
        endpoint = self.service["AWS_ENDPOINT_URL_S3"]
        self.service["AWS_ENDPOINT_URL_S3"] = "http://nowhere.invalid"
        self.assertEqual(self.facts("list", "--s3-endpoint", endpoint)["sets"], [])
        self.service["VARVE_S3_ENDPOINT"] = endpoint
        self.assertEqual(self.facts("list")["sets"], [])

    def test_takes_what_is_larger_than_one_request(self):
        contents = os.urandom(40_000_000)
        self.write("large/data", contents)
        self.varve("save", self.work / "large", "--job", "large", "--step", 1)
        self.varve("restore", "large@1", self.work / "back")
        self.assertEqual((self.work / "back" / "data").read_bytes(), contents)

    def test_is_made_once_and_only_where_there_is_nothing(self):
        self.assertIn("there is a store already", self.fails(EXISTS, "init", self.store))
        self.varve("save", SAMPLE / "DD0005", "--job", "run", "--step", 5)
        self.fails(NOT_FOUND, "list", "--store", self.store + "/sets")
        self.fails(EXISTS, "init", self.store + "/sets")

    def test_gets_and_gives_sets_from_and_to_other_stores(self):
        near = self.work / "near"
        self.varve("init", near)
        self.varve("save", SAMPLE / "DD0005", "--job", "run", "--step", 5, "--store", near)
        self.varve("push", "run@5", "--store", near, "--to", self.store)
        self.assert_restores("run@5", SAMPLE / "DD0005")
        self.varve("push", "--all", "--store", near, "--to", self.store)
        far = self.work / "far"
        self.varve("init", far)
        self.varve("pull", "run@5", "--store", far, "--from", self.store)
        self.varve("restore", "run@5", self.work / "back", "--store", far)
        # An arena that is lost is made good from there.
        next((near / "arenas").glob("*.arena")).unlink()
        self.varve("repair", "--from", self.store, "--store", near)
        self.assertTrue(self.facts("verify", "--store", near)["whole"])

    def test_is_a_farther_level_of_save(self):
        levels = f"local:{self.work}/near keep=1; {self.store} every=1"
        for step, folder in ((5, "DD0005"), (6, "DD0006")):
            self.varve("save", SAMPLE / folder, "--job", "run", "--step", step, "--levels", levels)
        self.assertEqual([record["name"] for record in self.facts("list")["sets"]], ["run@5", "run@6"])
        self.assert_restores("run@5", SAMPLE / "DD0005")

    @unittest.skipUnless(HEAT, "the examples were not built")
    def test_is_a_level_of_a_run_that_lost_its_nearer_ones(self):
        levels = f"memory; local:{self.work}/near keep=2; {self.store} every=1"
        environment = self.environment(VARVE_LEVELS=levels, VARVE_EVERY_STEPS="300")
        environment.pop("VARVE_STORE")
        for _ in range(2):
            run = subprocess.run([HEAT], capture_output=True, text=True, timeout=300, env=environment, cwd=self.work)
            self.assertEqual(run.returncode, SUCCESS, run.stderr)
            shutil.rmtree(self.work / "near")
        steps = [int(re.search(r"@(\d+)", record["name"])[1]) for record in self.facts("list")["sets"]]
        self.assertIn(900, steps)
        self.assert_whole()


class AService(InABucket):
    def test_that_refuses_is_told_and_no_secret_is(self):
        wrong = self.environment(AWS_SECRET_ACCESS_KEY="wrong-secret")
        code, _, err = self.run_program("list", environment=wrong)
        self.assertEqual(code, FAILURE)
        self.assertIn("credentials", err)
        self.assertNotIn("wrong-secret", err)
        none = self.environment(HOME=str(self.work))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            none.pop(name)
        code, _, err = self.run_program("list", environment=none)
        self.assertEqual(code, USAGE, err)
        self.assertIn("AWS_ACCESS_KEY_ID", err)

    def test_is_named_as_an_address(self):
        for place in ("s3://", "s3://B/x", "s3://bucket/a b", "s3://bucket/../x"):
            self.fails(USAGE, "list", "--store", place)
        self.assertIn("varve init", self.fails(NOT_FOUND, "list", "--store", self.store + "-other"))


class AtOnceInABucket(test_concurrency.AtOnce, InABucket):
    """Saves at the same time."""


class SaveBesidePruneInABucket(test_concurrency.SaveBesidePrune, InABucket):
    """Savers and a pruner."""


class KilledInABucket(test_concurrency.KilledAtOnce, InABucket):
    """Saves and prunes that are killed at any moment. What one that was killed about to commit needs is kept for an hour."""

    def age_leases(self):
        pass

    def test_saves_and_prunes_leave_sets_that_are_whole_or_not_there(self):
        for step in range(1, 1000):
            with self.subTest(seed=self.seed, step=step):
                self.one_round(step)
            if min(self.kills.values()) > 0 and sum(self.kills.values()) >= KILLS:
                break
        self.varve("save", self.folder, "--job", "after", "--step", "1")
        self.saved["after@1"] = snapshot(self.folder)
        self.varve("prune", "--keep-last", "1", "--wait", "0")
        self.assertLessEqual({"kept@1", "after@1"}, self.check_all_sets())


class AServer(InABucket):
    """Clients that know the server, and nothing of the bucket."""

    def setUp(self):
        super().setUp()
        self.bucket, self.store = self.store, f"unix:{self.work}/socket"
        self.start_server()
        self.service = {}

    def start_server(self):
        known = {**super().environment(), **service()}
        self.server = subprocess.Popen([PROGRAM, "serve", "--listen", self.store, self.bucket], env=known,
                                       stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop_server)
        self.assertIn("serving s3://", self.server.stdout.readline())

    def stop_server(self):
        if self.server.poll() is None:
            self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def test_gives_them_the_store_also_when_it_was_killed(self):
        self.varve("save", SAMPLE / "DD0005", "--job", "run", "--step", 5)
        self.stop_server()
        self.start_server()
        again = self.facts("save", SAMPLE / "DD0005", "--job", "run", "--step", 6)
        self.assertEqual(again["record"]["new_bytes"], 0)
        self.varve("save", SAMPLE / "DD0006", "--job", "run", "--step", 7)
        self.assert_restores("run@7", SAMPLE / "DD0006")
        self.varve("drop", "run@5")
        self.varve("prune", "--keep-last", 1, "--wait", 0)
        self.assertEqual([record["name"] for record in self.facts("list")["sets"]], ["run@7"])
        self.assert_restores("run@7", SAMPLE / "DD0006")
        self.assert_whole()


# The bases are tests of stores in folders.
del test_concurrency

if __name__ == "__main__":
    unittest.main()
