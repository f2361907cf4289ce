"""Sets that a program leaves in folders get into the store as they appear, whatever is killed on the way."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
import unittest

from mounting import wait_for
from serving import ServeTest
from support import BUSY, DAMAGED, EXISTS, FAILURE, NIGHTLY, PROGRAM, SAMPLE, SUCCESS, USAGE, default_signals, snapshot

KILLS = 50 if NIGHTLY else 4


class WatchTest(ServeTest):
    """Watchers end with the test."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.work / "run"
        self.run_folder.mkdir()
        plain = self.environment
        self.environment = lambda **changes: plain(XDG_STATE_HOME=str(self.work / "state"), **changes)

    def use_store(self, store):
        self.environment = lambda **changes: {**os.environ, "VARVE_STORE": str(store),
                                              "XDG_STATE_HOME": str(self.work / "state"), **changes}

    def watch(self, *options, folder=None, environment=None):
        watcher = subprocess.Popen([PROGRAM, "watch", str(folder or self.run_folder), "--json", *map(str, options)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.work,
                                   env=environment or self.environment(), preexec_fn=default_signals)
        self.servers.append(watcher)
        return watcher

    def expect(self, watcher, event, name):
        """Reads what the watcher says until it says this."""
        for line in watcher.stdout:
            facts = json.loads(line)
            if (facts["event"], facts["set"]) == (event, name):
                return facts
        self.fail(f"no {event} {name}: {watcher.stderr.read().decode()}")

    def end(self, watcher):
        watcher.send_signal(signal.SIGTERM)
        self.assertEqual(watcher.wait(timeout=60), SUCCESS, watcher.stderr.read().decode())

    def appear(self, step, source=SAMPLE / "DD0005"):
        """As careful programs write: under another name first."""
        unfinished = self.run_folder / f"out{step}.tmp"
        shutil.copytree(source, unfinished)
        return unfinished.rename(self.run_folder / f"out{step}")


class Watching(WatchTest):
    def test_saves_what_appears(self):
        watcher = self.watch("--quiet", "0.2")
        for step in (3, 4):
            folder = self.appear(step)
            facts = self.expect(watcher, "saved", f"run@{step}")
            self.assertEqual(facts["folder"], str(folder))
            self.assert_restores(f"run@{step}", folder)
        self.end(watcher)

    def test_says_what_it_does_in_the_log_that_is_asked_for(self):
        self.appear(3)
        self.write("run/out4/data", b"x")
        self.varve("save", self.run_folder / "out4")
        self.write("run/out4/data", b"other")
        for form in ("json", "logfmt"):
            code, out, err = self.run_program("watch", self.run_folder, "--quiet", "0.2", "--once", "--log", form)
            self.assertEqual((code, out), (EXISTS, b""))
            if form == "json":
                told = {(line["event"], line.get("set")): line for line in map(json.loads, err.splitlines())}
                self.assertEqual(told["saved", "run@3"]["level"], "info")
                self.assertGreater(told["saved", "run@3"]["raw_bytes"], told["saved", "run@3"]["stored_bytes"])
                self.assertEqual((told["differs", "run@4"]["level"], told["differs", "run@4"]["code"]), ("warning", "already_exists"))
                self.assertEqual(told["left_out", None]["level"], "warning")
            else:
                self.assertRegex(err, r'(?m)^time=\S+ level=info msg=".*" event=was_saved set=run@3 folder=\S+$')

    def test_catches_up(self):
        for step in (1, 2):
            self.appear(step)
        self.varve("save", self.run_folder / "out1")
        watcher = self.watch("--quiet", "0.2")
        self.expect(watcher, "was_saved", "run@1")
        self.expect(watcher, "saved", "run@2")
        self.end(watcher)

    def test_waits_for_programs_that_write(self):
        path = self.write("run/out5/data", b"begin")
        with open(path, "ab") as writer:
            watcher = self.watch("--quiet", "0.2")
            def is_waited_for():
                told = [each for watcher in self.facts("status")["watchers"] for each in watcher["pending"]]
                return any("writing data" in each["why"] for each in told)
            self.assertTrue(wait_for(is_waited_for))
            time.sleep(1)
            self.assertTrue(is_waited_for())
            self.assertEqual(self.facts("list")["sets"], [])
            writer.write(b" end")
        self.expect(watcher, "saved", "run@5")
        self.end(watcher)
        self.assertEqual(self.varve("cat", "run@5:data"), "begin end")

    def test_removes_originals_of_what_is_saved(self):
        kept = self.appear(1)
        expected = snapshot(kept)
        watcher = self.watch("--quiet", "0.2", "--remove-originals")
        self.expect(watcher, "removed", "run@1")
        self.end(watcher)
        self.assertEqual(list(self.run_folder.iterdir()), [])
        self.varve("restore", "run@1", self.work / "back")
        self.assertEqual(snapshot(self.work / "back"), expected)

    def test_takes_files_side_by_side(self):
        for step in (100, 200):
            for rank in range(3):
                self.write(f"run/restart.{step}.{rank}", os.urandom(1000))
        (self.run_folder / "restart.200.1").unlink()
        code, out, err = self.run_program("watch", self.run_folder, "--pattern", "restart.{step}.{rank}", "--ranks", "3",
                                          "--quiet", "0", "--job", "melt", "--once")
        self.assertEqual((code, err), (BUSY, ""))  # one is not whole
        self.assertIn("saved melt@100", out.decode())
        self.assertNotIn("saved melt@200", out.decode())
        self.assertRegex(out.decode(), r"left out 1 set: melt@200 \(.+\)\n$")
        self.varve("restore", "melt@100", self.work / "back")
        self.assertEqual(sorted(path.name for path in (self.work / "back").iterdir()),
                         ["restart.100.0", "restart.100.1", "restart.100.2"])

    def test_brings_sets_to_farther_levels(self):
        far = self.work / "far"
        for step in (1, 2, 3):
            self.appear(step)
        levels = f"local:{self.work}/near keep=2; dir:{far} every=2"
        self.varve("watch", self.run_folder, "--levels", levels, "--quiet", "0", "--once")
        near = {level["level"]: level["jobs"][0] for level in self.facts("levels", "--levels", levels)["levels"]}
        self.assertEqual([job["newest"] for job in near.values()], [3, 2])
        self.use_store(far)
        self.assert_restores("run@2", self.run_folder / "out2")
        self.fails(USAGE, "watch", self.run_folder, "--levels", levels, "--to", far)

    def test_removes_no_originals_before_all_levels_have_them(self):
        far, away = self.work / "far", self.work / "away"
        levels = f"local:{self.work}/near keep=1; dir:{far}/store"
        watch = lambda: self.run_program("watch", self.run_folder, "--levels", levels, "--quiet", "0", "--once",
                                         "--remove-originals")
        far.mkdir()
        self.appear(1)
        self.assertEqual(watch()[0], SUCCESS)
        self.assertEqual(list(self.run_folder.rglob("*.bin")), [])
        far.rename(away)
        for step in (2, 3):
            self.appear(step)
        code, out, _ = watch()
        self.assertNotEqual(code, SUCCESS)
        self.assertIn("left out 2 sets", out.decode())
        for step in (2, 3):
            self.assertTrue(any((self.run_folder / f"out{step}").iterdir()), "the originals are still there")
        away.rename(far)
        self.assertEqual(watch()[0], SUCCESS)
        self.assertFalse(any(path.is_file() for path in self.run_folder.rglob("*")))
        self.use_store(far / "store")
        for step in (1, 2, 3):
            self.assertIn(f"run@{step}", self.varve("list"))

    def test_brings_along_what_others_have_saved_meanwhile(self):
        near, far = self.work / "near", self.work / "far"
        watcher = self.watch("--levels", f"dir:{near}; dir:{far}", "--quiet", "0.2", "--remove-originals")
        self.appear(1)
        self.expect(watcher, "removed", "run@1")
        # Who saved it ended before it had brought it on.
        folder = self.work / "out2"
        shutil.copytree(SAMPLE / "DD0006", folder)
        self.varve("save", folder, "--store", near, "--job", "run", "--step", "2")
        folder.rename(self.run_folder / "out2")
        self.expect(watcher, "removed", "run@2")
        self.end(watcher)
        self.use_store(far)
        self.assertIn("run@2", self.varve("list"))

    def test_never_replaces_a_set(self):
        folder = self.appear(1)
        self.varve("watch", self.run_folder, "--quiet", "0", "--once")
        (folder / "more").write_bytes(b"more")
        once = ("watch", self.run_folder, "--quiet", "0", "--once", "--remove-originals")
        code, out, _ = self.run_program(*once)
        self.assertEqual(code, EXISTS)
        self.assertIn("left out 1 set: run@1 (the store has another set of that name)", out.decode())
        self.assertTrue((folder / "more").exists())
        code, out, _ = self.run_program(*once, "--json")
        last = json.loads(out.splitlines()[-1])
        self.assertEqual((code, last["event"]), (EXISTS, "left_out"))
        self.assertEqual([(one["set"], one["state"]) for one in last["sets"]], [("run@1", "differs")])
        self.varve("drop", "run@1")
        self.varve(*once)

    def test_with_once_ends_with_the_code_of_what_failed(self):
        for step in (1, 2):
            self.appear(step)
        once = ("watch", self.run_folder, "--quiet", "0", "--once")
        self.varve(*once)
        record = self.store / "sets" / "run" / "2.set"
        record.write_bytes(record.read_bytes()[:-1])
        code, out, _ = self.run_program(*once)
        self.assertEqual(code, DAMAGED)
        self.assertIn("left out 1 set: run@2 (", out.decode())

    def test_tells_its_state(self):
        self.assertEqual(self.facts("status")["watchers"], [])
        self.appear(1)
        watcher = self.watch("--quiet", "0.2")
        self.expect(watcher, "saved", "run@1")
        state = self.facts("status")["watchers"][0]
        self.assertEqual((state["running"], state["saved_sets"], state["newest"]), (True, 1, "run@1"))
        self.assertIn("another watcher", self.fails(BUSY, "watch", self.run_folder))
        other = self.watch("--quiet", "0.2", "--job", "other")
        self.expect(other, "saved", "other@1")
        self.end(other)
        self.end(watcher)
        self.assertFalse(self.facts("status")["watchers"][0]["running"])
        self.assertIn("not running", self.varve("status"))

    def test_says_what_makes_no_sense(self):
        self.fails(USAGE, "watch", self.run_folder, "--pattern", "restart.{step}.{step}")
        self.assertIn("{rank}", self.fails(USAGE, "watch", self.run_folder, "--pattern", "restart.{foo}"))
        self.assertIn("did you mean openfoam?", self.fails(USAGE, "watch", self.run_folder, "--pattern", "openfom"))
        self.fails(USAGE, "watch", self.run_folder, "--nodes", "2")
        self.fails(3, "watch", self.work / "none")

    def test_a_full_store_is_told_and_what_was_saved_stays(self):
        small = self.work / "small"
        small.mkdir()
        if os.geteuid() != 0 or subprocess.call(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small]) != 0:
            self.skipTest("needs root, to make a small file system")
        self.addCleanup(subprocess.call, ["umount", "-l", small])
        self.use_store(small / "store")
        self.varve("init", small / "store")
        self.write("run/out1/data", os.urandom(500_000))
        self.write("run/out2/data", os.urandom(5_000_000))
        self.write("run/out3/data", b"small")
        watcher = self.watch("--quiet", "0.1")
        self.assertEqual(self.expect(watcher, "failed", "run@2")["error"]["code"], "no_space")
        self.expect(watcher, "saved", "run@3")
        self.end(watcher)
        for step in (1, 3):
            self.assert_restores(f"run@{step}", self.run_folder / f"out{step}")
        code, out, _ = self.run_program("watch", self.run_folder, "--quiet", "0", "--once")
        self.assertEqual(code, FAILURE)
        self.assertIn("left out 1 set: run@2 (", out.decode())


class AtASite(WatchTest):
    EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "site"

    def test_the_epilog_saves_what_a_job_left(self):
        if os.geteuid() != 0 or not shutil.which("runuser"):
            self.skipTest("needs root and runuser")
        folder = self.work / "scratch" / "root" / "77"
        self.write(folder / "out1" / "data.0", b"zero")
        self.write(folder / "out1" / "data.1", b"one")
        (self.work / "stores").mkdir()
        log = self.work / "log"
        self.write("bin/logger", f'#!/bin/sh\necho "$@" >> {log}\n'.encode()).chmod(0o755)
        environment = self.environment(
            SLURM_JOB_ID="77", SLURM_JOB_USER="root", SLURM_JOB_NUM_NODES="1", VARVE_SCRATCH=str(self.work / "scratch"),
            VARVE_SITE_STORE=str(self.work / "stores"),
            PATH=f"{self.work / 'bin'}:{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}")
        epilog = lambda: subprocess.run([self.EXAMPLES / "slurm_epilog.sh"], env=environment, check=True, timeout=60)
        epilog()
        self.assertFalse(folder.exists())
        self.assertFalse(log.exists())
        self.use_store(self.work / "stores" / "root")
        self.assertEqual(self.varve("cat", "job-77@1:data.1"), "one")
        self.write(folder / "out1" / "data.1", b"another one")
        epilog()
        self.assertTrue((folder / "out1").exists())
        self.assertIn("job 77: ", log.read_text())
        self.assertIn("left out 1 set: job-77@1", log.read_text())
        # Of several nodes, each has its own sets.
        shutil.rmtree(folder)
        del environment["SLURM_JOB_NUM_NODES"]
        for node in (0, 1):
            self.write(folder / "out1" / f"data.{node}", f"of node {node}".encode())
            environment["SLURMD_NODENAME"] = f"n{node}"
            epilog()
            self.assertFalse(folder.exists())
        for node in (0, 1):
            self.assertEqual(self.varve("cat", f"job-77-n{node}@1:data.{node}"), f"of node {node}")

    def test_the_service_calls_what_there_is(self):
        text = (self.EXAMPLES / "varve-watch@.service").read_text()
        self.assertIn("ExecStart=varve watch %f $VARVE_WATCH_OPTIONS", text)
        if shutil.which("systemd-analyze"):
            unit = self.work / "varve-watch@.service"
            unit.write_text(text.replace("ExecStart=varve", f"ExecStart={PROGRAM}"))
            done = subprocess.run(["systemd-analyze", "--user", "verify", unit.parent / "varve-watch@x.service"],
                                  capture_output=True, text=True)
            self.assertNotIn("varve-watch", done.stderr)


class KilledWatchers(WatchTest):
    def test_lose_nothing(self):
        """Killed at random moments, while sets appear and originals are removed."""
        seed = random.randrange(1 << 30)
        moments = random.Random(seed)
        expected = {}
        for step in range(KILLS):
            folder = self.run_folder / f"out{step}"
            for rank in range(4):
                path = self.write(folder / f"data.{rank}", random.Random(step * 10 + rank).randbytes(200_000))
                os.utime(path, ns=(step, step))
            os.utime(folder, ns=(step, step))
            expected[step] = {path.name: path.read_bytes() for path in folder.iterdir()}
            watcher = self.watch("--quiet", "0", "--remove-originals")
            time.sleep(moments.uniform(0, 0.3))
            watcher.kill()
            watcher.communicate()
        for _ in range(3):  # a lease of a killed writer may be in the way
            self.run_program("watch", self.run_folder, "--quiet", "0", "--remove-originals", "--once")
        self.assertEqual(list(self.run_folder.iterdir()), [], f"seed {seed}")
        self.assert_whole()
        for step, files in expected.items():
            target = self.work / f"back{step}"
            self.varve("restore", f"run@{step}", target)
            self.assertEqual({path.name: path.read_bytes() for path in target.iterdir()}, files, f"seed {seed}, step {step}")


class SeveralNodes(WatchTest):
    NODES = 3

    def setUp(self):
        super().setUp()
        self.server, self.location = self.serve()
        plain = self.environment
        self.environment = lambda **changes: plain(**{"VARVE_STORE": self.location, **changes})
        for node in range(self.NODES):
            (self.work / f"node{node}").mkdir()

    def write_set(self, step):
        """Each node has the files of its ranks; returns all that the set must have."""
        files = {}
        for path in sorted((SAMPLE / "DD0006").iterdir()):
            if not path.is_file() or ".cpu" not in path.name:
                continue
            rank = int(path.name.rsplit("cpu", 1)[1])
            target = self.work / f"node{rank % self.NODES}" / f"out{step}" / path.name
            target.parent.mkdir(exist_ok=True)
            shutil.copy(path, target)
            files[path.name] = path.read_bytes()
        return files

    def watch_nodes(self, *options):
        return [self.watch("--nodes", self.NODES, "--node", f"n{node}", "--job", "run", "--quiet", "0.2", *options,
                           folder=self.work / f"node{node}") for node in range(self.NODES)]

    def check(self, step, files):
        target = self.work / f"back{step}"
        self.varve("restore", f"run@{step}", target)
        self.assertEqual({path.name: path.read_bytes() for path in target.iterdir()}, files)

    def test_make_one_set(self):
        watchers = self.watch_nodes("--remove-originals")
        for step in (1, 2):
            files = self.write_set(step)
            for watcher in watchers:
                self.expect(watcher, "removed", f"run@{step}")
            self.check(step, files)
            self.assertEqual(self.facts("show", f"run@{step}")["record"]["rank_count"], len(files))
        for watcher in watchers:
            self.end(watcher)
        self.assert_whole()

    def test_remove_what_was_saved_without_their_knowing(self):
        """All of the set is there, and no watcher has learnt it: each finds its share, and removes that."""
        files = self.write_set(1)
        for watcher in self.watch_nodes():
            self.expect(watcher, "saved", "run@1")
            self.end(watcher)
        watchers = self.watch_nodes("--remove-originals")
        for watcher in watchers:
            self.expect(watcher, "removed", "run@1")
            self.end(watcher)
        self.assertEqual([path for path in self.work.glob("node*/out1/*") if path.is_file()], [])
        self.check(1, files)

    def test_survive_the_end_of_one(self):
        """A watcher is killed while it waits for the others or the set is saved; it is started again, and all is well."""
        files = self.write_set(1)
        watchers = self.watch_nodes()
        time.sleep(random.uniform(0.1, 0.6))
        watchers[0].kill()
        watchers[0].communicate()
        watchers[0] = self.watch("--nodes", self.NODES, "--node", "n0", "--job", "run", "--quiet", "0.2",
                                 folder=self.work / "node0")
        deadline = time.monotonic() + 60
        while not self.facts("list")["sets"] and time.monotonic() < deadline:
            time.sleep(0.1)
        self.check(1, files)
        self.assert_whole()
        for watcher in watchers:
            self.end(watcher)

    def test_survive_the_end_of_the_server(self):
        files = self.write_set(1)
        watchers = self.watch_nodes()
        time.sleep(random.uniform(0.1, 0.6))
        self.server.kill()
        self.server.communicate()
        self.serve()
        deadline = time.monotonic() + 60
        while not self.facts("list")["sets"] and time.monotonic() < deadline:
            time.sleep(0.1)
        self.check(1, files)
        self.assert_whole()
        for watcher in watchers:
            self.end(watcher)


if __name__ == "__main__":
    unittest.main()
