"""Runs that are stopped with little time, or killed: what is left is drained, and the job goes on as if nothing had been."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime"))
from processes import is_alive  # noqa: E402
from support import LAUNCHER, RUN_SECONDS_MAX, ExampleTest, children_of, found  # noqa: E402

VARVE = os.environ["VARVE_PROGRAM"]
HEAT_PROGRAM = os.environ["VARVE_HEAT"]
HEAT = r"the plate holds (\S+)$"
STEPS = 3000
PLATE = (256, 256)
REQUEUE = 75
NIGHTLY = os.environ.get("VARVE_NIGHTLY") == "1"


def all_below(process_id):
    """The processes that this one started, and those that they started."""
    own = children_of(process_id)
    return own + [each for child in own for each in all_below(child)]


class Preempted(ExampleTest):
    """Each test has a folder for what nodes keep in memory, and one for what they all share."""

    def setUp(self):
        super().setUp()
        self.memory = self.work / "job-memory"
        self.store = self.work / "job-store"
        self.seed = random.randrange(1 << 32)
        self.random = random.Random(self.seed)

    def launch(self, steps=STEPS, ranks=2):
        return [*LAUNCHER, str(ranks), HEAT_PROGRAM, str(steps), *map(str, PLATE)]

    def begin(self, *options, command=None, **changes):
        """`varve run`, as a job script has it."""
        changes = {"VARVE_EVERY_STEPS": "100", "VARVE_JOB": "heat", **changes}
        return subprocess.Popen([VARVE, "run", *map(str, options), "--", *(command or self.launch())],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                cwd=self.work, env=self.environment("job", changes))

    def end_of(self, process, code=0):
        out, _ = process.communicate(timeout=RUN_SECONDS_MAX)
        self.assertEqual(process.returncode, code, f"seed {self.seed}: {out}")
        return out

    def expected(self):
        out = self.run_to_end("whole", 2, HEAT_PROGRAM, STEPS, *PLATE, VARVE_EVERY_STEPS="none",
                              VARVE_MEAN_TIME_BETWEEN_FAILURES="1000d")
        return found(HEAT, out)

    def steps(self, store=None):
        """Of the sets in the store."""
        store = store or self.store
        if not (store / "varve.store").is_file():
            return []
        said = subprocess.run([VARVE, "list", "--store", str(store), "--json"], check=False, capture_output=True,
                              text=True, env=self.environment("job", {}))
        self.assertEqual(said.returncode, 0, said.stderr)
        return [each["step"] for each in json.loads(said.stdout)["sets"]]

    def drain(self, *options, code=0, **changes):
        said = subprocess.run([VARVE, "drain", *options, "--json"], check=False, capture_output=True, text=True,
                              env=self.environment("job", changes), cwd=self.work)
        self.assertEqual(said.returncode, code, said.stdout + said.stderr)
        return json.loads(said.stdout)["jobs"]

    def snapshots(self):
        """What is in memory, but for what a run told `varve top`, which the job's next run takes away."""
        return [each.name for each in self.memory.iterdir() if not each.name.startswith("varve-live-")]

    def wait_for_steps(self, process, step, store=None):
        end = time.monotonic() + RUN_SECONDS_MAX
        while True:
            ended = process.poll() is not None  # before the look, as the run may come to the step and end
            if max(self.steps(store), default=0) >= step:
                return
            self.assertFalse(ended, process.stdout.read() if ended else "")
            self.assertLess(time.monotonic(), end, "no checkpoint")
            time.sleep(0.02)

    def kill_everything(self, process):
        victims = [process.pid, *all_below(process.pid)]
        for victim in victims:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.stdout.read()
        process.stdout.close()
        process.wait()
        # Ranks of a launcher that was killed go by themselves.
        end = time.monotonic() + 20
        while any(is_alive(victim) for victim in victims) and time.monotonic() < end:
            time.sleep(0.02)

    def finish_from_store_alone(self, **changes):
        """Whatever is in memory is gone; the job goes on from what is farthest."""
        shutil.rmtree(self.memory, ignore_errors=True)
        return self.end_of(self.begin(**changes))


@unittest.skipUnless(LAUNCHER, "without MPI there is one rank")
class Stop(Preempted):
    def test_in_time_is_requeued_and_goes_on(self):
        expected = self.expected()
        process = self.begin("--grace", "60s")
        self.wait_for_steps(process, 300)
        process.send_signal(self.random.choice((signal.SIGTERM, signal.SIGUSR1)))
        out = self.end_of(process, REQUEUE)
        last = int(found(r"at step (\d+), which is in", out))
        self.assertIn(f"is in dir:{self.store}", out)
        self.assertEqual(max(self.steps()), last)
        self.assertEqual(self.snapshots(), [])
        out = self.finish_from_store_alone()
        self.assertEqual(found(HEAT, out), expected)

    def test_with_too_little_time_stays_in_memory_and_is_drained(self):
        expected = self.expected()
        slow = {"VARVE_WRITE_BYTES_PER_SECOND": "100kB/s", "VARVE_CODEC": "store"}
        process = self.begin("--grace", "2s", **slow)
        # Nobody has measured how long a checkpoint takes: the time itself runs out.
        self.wait_for_memory(process)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out = self.end_of(process, REQUEUE)
        self.assertLess(time.monotonic() - begin, 40)
        last = int(found(r"at step (\d+), which is in memory", out))
        self.assertIn("the last checkpoint stays in memory", out)
        # What was being written when it was given up may have come to its end all the same.
        wanted = "was_there" if last in self.steps() else "whole"
        jobs = self.drain()
        self.assertIn((f"heat@{last}", wanted), [(each["set"], each["state"]) for each in jobs[0]["sets"]])
        self.assertTrue(jobs[0]["done"])
        self.assertEqual(max(self.steps()), last)
        self.assertEqual(self.snapshots(), [])
        self.assertEqual(self.drain(), [])
        out = self.finish_from_store_alone()
        self.assertEqual(found(HEAT, out), expected)

    def wait_for_memory(self, process):
        end = time.monotonic() + RUN_SECONDS_MAX
        timeline = self.store / "runs" / "heat.timeline"  # a slot is there before the first checkpoint is
        while not (timeline.exists() and '"making"' in timeline.read_text()):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        time.sleep(0.5)

    def test_comes_by_itself_before_the_jobs_end(self):
        process = self.begin("--grace", "40s", "--end-time", int(time.time()) + 44, command=self.launch(steps=10_000_000))
        out = self.end_of(process, REQUEUE)
        self.assertIn("stopped by the end of the job's time", out)

    def test_leaves_what_is_owed_to_a_far_level_to_a_drain(self):
        far, socket = self.work / "far", self.work / "socket"
        levels = f"memory; dir:{self.store}; unix:{socket} every=1000"
        subprocess.run([VARVE, "init", str(far)], check=True, stdout=subprocess.DEVNULL)
        server = self.serve(far, socket)
        process = self.begin("--grace", "20s", "--levels", levels, VARVE_STORE="")
        self.wait_for_steps(process, 300)
        server.kill()
        server.wait()
        process.send_signal(signal.SIGTERM)
        out = self.end_of(process, REQUEUE)
        last = int(found(r"at step (\d+), which is in", out))
        self.assertEqual(max(self.steps()), last)
        self.assertIn("not all levels have the last set yet", out)
        # The run has said where it is to go.
        self.drain(code=1, VARVE_STORE="")
        socket.unlink(missing_ok=True)
        self.serve(far, socket)
        jobs = self.drain("--levels", f"memory; dir:{self.store}; unix:{socket}", VARVE_STORE="")
        self.assertEqual(self.steps(far), self.steps(), jobs)

    def serve(self, folder, socket):
        server = subprocess.Popen([VARVE, "serve", "--listen", f"unix:{socket}", "--dir", str(folder)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        end = time.monotonic() + 20
        while not socket.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return server


@unittest.skipUnless(LAUNCHER, "without MPI there is one rank")
class Drain(Preempted):
    def test_of_a_job_that_was_killed_brings_what_was_in_memory(self):
        expected = self.expected()
        for _ in range(20 if NIGHTLY else 3):
            with self.subTest(seed=self.seed):
                shutil.rmtree(self.store, ignore_errors=True)
                shutil.rmtree(self.memory, ignore_errors=True)
                process = self.begin()
                self.wait_for_steps(process, 100)
                time.sleep(self.random.uniform(0, 1))
                if process.poll() is not None:
                    continue
                self.kill_everything(process)
                before = self.steps()
                in_memory = self.newest_in_memory()
                self.drain()
                after = self.steps()
                self.assertTrue(set(before) <= set(after))
                if in_memory is not None:
                    self.assertGreaterEqual(max(after), in_memory)
                self.assertEqual(self.snapshots(), [])
                out = self.finish_from_store_alone()
                self.assertEqual(found(HEAT, out), expected)

    def test_leaves_what_is_older_than_the_newest_set(self):
        # Where only some checkpoints become sets, memory has what came before the newest of them.
        levels = {"VARVE_LEVELS": f"memory; dir:{self.store} every=2", "VARVE_STORE": "", "VARVE_WHEN_BUSY": "two_slots"}
        for _ in range(20 if NIGHTLY else 3):
            with self.subTest(seed=self.seed):
                shutil.rmtree(self.store, ignore_errors=True)
                shutil.rmtree(self.memory, ignore_errors=True)
                process = self.begin(command=self.launch(steps=10_000_000), **levels)
                self.wait_for_steps(process, 200)
                time.sleep(self.random.uniform(0, 1))
                self.kill_everything(process)
                newest = max(self.steps())
                saved = [each for job in self.drain(**levels) for each in job["sets"] if each["state"] == "whole"]
                self.assertTrue(all(int(each["set"].partition("@")[2]) > newest for each in saved), (newest, saved))
                self.assertEqual(self.snapshots(), [])

    def newest_in_memory(self):
        said = subprocess.run([VARVE, "levels", "--json"], check=False, capture_output=True, text=True,
                              env=self.environment("job", {"VARVE_JOB": "heat"}), cwd=self.work)
        self.assertEqual(said.returncode, 0, said.stderr)
        jobs = json.loads(said.stdout)["levels"][0]["jobs"]
        return jobs[0].get("newest") if jobs else None

    def test_leaves_a_run_that_lives_alone(self):
        process = self.begin(command=self.launch(steps=10_000_000))
        self.wait_for_steps(process, 100)
        jobs = self.drain()
        self.assertEqual([(each["running"], each["sets"]) for each in jobs], [(True, [])])
        self.kill_everything(process)

    def test_may_be_killed_and_done_again(self):
        expected = self.expected()
        slow = {"VARVE_WRITE_BYTES_PER_SECOND": "100kB/s", "VARVE_CODEC": "store"}
        process = self.begin(**slow)
        Stop.wait_for_memory(self, process)
        self.kill_everything(process)
        for _ in range(10):
            drain = subprocess.Popen([VARVE, "drain"], env=self.environment("job", {}), cwd=self.work,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.random.uniform(0, 0.8))
            drain.kill()
            drain.wait()
        self.drain()
        self.assertEqual(len(self.steps()), 1)
        out = self.finish_from_store_alone()
        self.assertEqual(found(HEAT, out), expected)

    def test_of_two_at_once_one_works_and_nothing_is_lost(self):
        process = self.begin()
        self.wait_for_steps(process, 100)
        self.kill_everything(process)
        drains = [subprocess.Popen([VARVE, "drain", "--wait", "60s"], env=self.environment("job", {}), cwd=self.work)
                  for _ in range(4)]
        self.assertEqual([each.wait(RUN_SECONDS_MAX) for each in drains], [0] * 4)
        self.assertEqual(self.snapshots(), [])

    def test_beside_a_job_that_starts_loses_nothing(self):
        expected = self.expected()
        for _ in range(10 if NIGHTLY else 3):
            process = self.begin()
            if max(self.steps(), default=0) > STEPS // 2:
                break  # a fast machine: what is left may be over before it is killed
            self.wait_for_steps(process, max(self.steps(), default=0) + 100)
            self.kill_everything(process)
            drain = subprocess.Popen([VARVE, "drain"], env=self.environment("job", {}), cwd=self.work,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(self.random.uniform(0, 0.1))
            process = self.begin()
            time.sleep(self.random.uniform(0.3, 1))
            self.kill_everything(process)
            drain.wait(RUN_SECONDS_MAX)
        else:
            process = self.begin()
        out = self.end_of(process)
        self.assertEqual(found(HEAT, out), expected, f"seed {self.seed}")


@unittest.skipUnless(LAUNCHER, "without MPI there is one rank")
class Nodes(Preempted):
    """Two nodes on one machine, each with a memory and a store of its own."""

    def two_nodes(self, steps=STEPS):
        plate = map(str, PLATE)
        each = [HEAT_PROGRAM, str(steps), *plate]
        name = LAUNCHER[-1]
        return [*LAUNCHER, "1", "-x", "VARVE_NODE=a", *each, ":", name, "1", "-x", "VARVE_NODE=b", *each]

    def setUp(self):
        super().setUp()
        self.far = self.work / "far"
        self.levels = f"memory; local:{self.work}/local; dir:{self.far} every=1000"

    def test_bring_their_parts_when_they_come_to_it(self):
        expected = self.expected()
        process = self.begin("--levels", self.levels, command=self.two_nodes(), VARVE_STORE="")
        self.wait_for_steps(process, 300, self.work / "local" / "node-a")
        self.kill_everything(process)
        self.drain("--job", "heat", VARVE_NODE="a", VARVE_STORE="")
        self.assertEqual(self.steps(self.far), [], "half a set is none")
        jobs = self.drain("--job", "heat", VARVE_NODE="b", VARVE_STORE="")
        self.assertEqual(len(self.steps(self.far)), 1, jobs)
        # The nodes are lost, with all that they had.
        shutil.rmtree(self.work / "local")
        out = self.finish_from_store_alone(command=self.two_nodes(), VARVE_STORE="", VARVE_LEVELS=self.levels)
        self.assertEqual(found(HEAT, out), expected)

    def test_may_be_drained_at_the_same_time(self):
        process = self.begin("--levels", self.levels, command=self.two_nodes(), VARVE_STORE="")
        self.wait_for_steps(process, 300, self.work / "local" / "node-a")
        self.kill_everything(process)
        drains = [subprocess.Popen([VARVE, "drain", "--wait", "20s", "--json"], cwd=self.work, stdout=subprocess.PIPE,
                                   text=True, env=self.environment("job", {"VARVE_NODE": node, "VARVE_STORE": ""}))
                  for node in "ab"]
        jobs = [json.loads(each.communicate(timeout=RUN_SECONDS_MAX)[0])["jobs"][0] for each in drains]
        self.assertEqual([each.returncode for each in drains], [0, 0])
        self.assertEqual(len(self.steps(self.far)), 1, jobs)
        # One node may have been killed when it had the next checkpoint already, which is whole nowhere: it stays there.
        whole = max(self.steps(self.far))
        for job in jobs:
            ahead = [each for each in job["sets"] if each["state"] == "part" and int(each["set"].split("@")[1]) > whole]
            self.assertEqual(job["done"], not ahead, job)
        self.assertLessEqual(sum(not job["done"] for job in jobs), 1, jobs)
        self.assertEqual(self.snapshots() == [], all(job["done"] for job in jobs), jobs)


if __name__ == "__main__":
    unittest.main()
