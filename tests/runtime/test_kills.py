"""Real processes are killed without mercy at random moments, and started again: the result is that of a run in peace."""

import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from processes import is_alive

ALONE = os.environ["VARVE_KILL_PROGRAM"]
WITH_MPI = os.environ.get("VARVE_KILL_PROGRAM_MPI", "")
MPIRUN = shlex.split(os.environ.get("VARVE_MPIRUN", ""))
NIGHTLY = os.environ.get("VARVE_NIGHTLY") == "1"

STEPS, CELLS, EVERY = 150, 100_000, 2
MODES = ("copy", "lent", "two_slots", "skip")
# Waiting for processes that were told to go.
PATIENCE_SECONDS = 60


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Job:
    """Runs of one computation in one folder."""

    def __init__(self, folder, ranks, mode):
        self.folder, self.ranks, self.mode = pathlib.Path(folder), ranks, mode
        (self.folder / "memory").mkdir(parents=True)

    def command(self):
        words = [str(self.folder), str(STEPS), str(CELLS), str(EVERY), self.mode]
        if self.ranks == 0:
            return [ALONE, *words]
        return [*MPIRUN, "-n", str(self.ranks), WITH_MPI, *words]

    def start(self):
        for path in self.folder.glob("pid.*"):
            path.unlink()
        for path in self.folder.glob("log.*"):
            path.unlink()
        # What MPI leaves behind when it is killed goes with the test's folder.
        environment = dict(os.environ, OMPI_MCA_btl_vader_backing_directory=str(self.folder),
                           OMPI_MCA_orte_tmpdir_base=str(self.folder), PRTE_MCA_prte_tmpdir_base=str(self.folder))
        return subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=environment)

    def finish(self):
        process = self.start()
        output, _ = process.communicate(timeout=300)
        if process.returncode != 0:
            raise AssertionError(f"the run failed with {process.returncode}: {output}")

    def pids(self):
        return [int(path.read_text()) for path in self.folder.glob("pid.*") if path.suffix != ".new"]

    def newest_set(self):
        return max((int(path.stem) for path in (self.folder / "store").glob("sets/kill/*.set")), default=0)

    def restarted_from(self):
        logs = {path.name: path.read_text().strip() for path in self.folder.glob("log.*") if path.suffix != ".new"}
        return {int(log.split(";")[0].split()[1]) for log in logs.values()}, logs

    def results(self):
        return {path.name: path.read_text() for path in self.folder.glob("result.*")}

    def wait_for_steps(self, process):
        """Until all ranks compute."""
        while process.poll() is None and len(self.restarted_from()[1]) < max(1, self.ranks):
            time.sleep(0.001)

    def run_and_kill(self, whom, delay, draw):
        """Kills `delay` seconds after all ranks compute, or before that after the start if it is negative. Returns
        whether the run was killed before its end."""
        process = self.start()
        if delay >= 0:
            self.wait_for_steps(process)
        deadline = time.monotonic() + abs(delay)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.001)
        killed = process.poll() is None
        pids = self.pids()
        if whom == "launcher":
            process.kill()
        elif whom == "all" and pids:
            for pid in pids:
                kill(pid)
        elif pids:
            kill(draw.choice(sorted(pids)))
        else:
            process.kill()
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        # A launcher that died may leave ranks behind that notice it only later.
        for pid in self.pids():
            kill(pid)
        limit = time.monotonic() + PATIENCE_SECONDS
        while any(is_alive(pid) for pid in self.pids()):
            if time.monotonic() > limit:
                raise AssertionError("processes do not die")
            time.sleep(0.01)
        return killed, output


class JobOnNodes(Job):
    """Runs on simulated nodes of two ranks each, which have a store each."""

    RANKS_OF_NODE = 2

    def __init__(self, folder, nodes, mode, levels):
        super().__init__(folder, self.RANKS_OF_NODE * len(nodes), mode)
        self.nodes = list(nodes)
        self.levels = levels.format(local=self.folder / "local", far=self.folder / "far")

    def command(self):
        words = [WITH_MPI, str(self.folder), str(STEPS), str(CELLS), str(EVERY), self.mode]
        command = list(MPIRUN)
        for node in self.nodes:
            command += [*([":"] if len(command) > len(MPIRUN) else []), "-n", str(self.RANKS_OF_NODE),
                        "env", f"VARVE_NODE={node}", f"VARVE_LEVELS={self.levels}", *words]
        return command

    def sets_in(self, folder):
        return sorted(int(path.stem) for path in (self.folder / folder).glob("sets/kill/*.set"))

    def ranks_of(self, node):
        first = self.RANKS_OF_NODE * self.nodes.index(node)
        return range(first, first + self.RANKS_OF_NODE)

    def lose_node(self, node):
        """Kills a node's ranks."""
        for rank in self.ranks_of(node):
            kill(int((self.folder / f"pid.{rank}").read_text()))

    def forget_node(self, node, replacement):
        """What it had is gone, and another one takes its place."""
        ranks = {str(rank) for rank in self.ranks_of(node)}
        for path in (self.folder / "memory").iterdir():
            parts = path.stem.split("-")
            # Of a segment, or of the file in which the node's first rank says how the run goes.
            if (parts[-1] if parts[1] == "live" else parts[4]) in ranks:
                path.unlink()
        shutil.rmtree(self.folder / "local" / f"node-{node}")
        self.nodes[self.nodes.index(node)] = replacement


class Kills(unittest.TestCase):
    def setUp(self):
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-kill-", dir=where))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.seed = random.SystemRandom().randrange(1 << 32)
        self.draw = random.Random(self.seed)

    def in_peace(self, ranks, mode):
        job = Job(self.work / f"peace-{ranks}-{mode}", ranks, mode)
        process = job.start()
        job.wait_for_steps(process)
        begin = time.monotonic()
        output, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, output)
        self.assertEqual(list((job.folder / "memory").iterdir()), [], "memory is left after a clean end")
        results = job.results()
        shutil.rmtree(job.folder)
        return results, time.monotonic() - begin

    def kill_and_compare(self, ranks, whom, mode, kills):
        what = f"seed {self.seed}: {ranks} ranks, {whom} killed, {mode}"
        expected, seconds = self.in_peace(ranks, mode)
        shutil.rmtree(self.work / "job", ignore_errors=True)  # of a plan that failed
        job = Job(self.work / "job", ranks, mode)
        for _ in range(kills):
            newest_before = job.newest_set()
            left_seconds = seconds * (1 - newest_before / STEPS)
            killed, output = job.run_and_kill(whom, self.draw.uniform(-0.1 * left_seconds, 0.8 * left_seconds), self.draw)
            steps, logs = job.restarted_from()
            self.assertTrue(all(step >= newest_before for step in steps), f"{what}: {newest_before}, {logs}; {output}")
            self.assertLessEqual(len(steps), 1, f"{what}: {logs}")
            if os.environ.get("VARVE_KILL_TRACE"):
                print(what, newest_before, "->", logs, job.newest_set(), killed,
                      sorted(path.name for path in (job.folder / "memory").iterdir()), flush=True)
            if not killed:
                break
        newest_before = job.newest_set()
        job.finish()
        steps, logs = job.restarted_from()
        if os.environ.get("VARVE_KILL_TRACE"):
            print(what, newest_before, "=>", logs, flush=True)
        self.assertEqual(len(steps), 1, f"{what}: {logs}")
        self.assertGreaterEqual(min(steps), newest_before, f"{what}: {logs}")
        self.assertEqual(job.results(), expected, f"{what}: {logs}")
        self.assertEqual(list((job.folder / "memory").iterdir()), [], f"{what}: memory is left")
        shutil.rmtree(job.folder)

    def test_a_run_that_is_killed_goes_on_to_the_same_result(self):
        plans = [(0, "all", "copy"), (2, "one", "lent"), (4, "all", "two_slots"), (4, "launcher", "copy"),
                 (8, "one", "skip")]
        if not WITH_MPI:
            plans = [(0, "all", mode) for mode in MODES]
        if NIGHTLY:
            ranks = (0, 1, 2, 4, 8) if WITH_MPI else (0,)
            plans = [(self.draw.choice(ranks), self.draw.choice(("one", "all", "launcher")), self.draw.choice(MODES))
                     for _ in range(50)]
        for number, whom, mode in plans:
            with self.subTest(ranks=number, whom=whom, mode=mode, seed=self.seed):
                self.kill_and_compare(number, whom, mode, kills=3)

    def lose_a_node_and_compare(self, mode, levels, rebuilt):
        what = f"seed {self.seed}: {mode}, {levels}"
        nodes = ("a", "b", "c")
        expected, _ = self.in_peace(JobOnNodes.RANKS_OF_NODE * len(nodes), mode)
        job = JobOnNodes(self.work / "job", nodes, mode, levels)
        process = job.start()
        job.wait_for_steps(process)
        # Something is far away, and more is near.
        limit = time.monotonic() + PATIENCE_SECONDS
        while not job.sets_in("far") and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
        wanted = self.draw.randrange(STEPS // 4, STEPS // 2)
        while (max(job.sets_in("local/node-a"), default=0) < wanted and process.poll() is None
               and time.monotonic() < limit):
            time.sleep(0.01)
        self.assertIsNone(process.poll(), f"{what}: it was over too soon")
        lost = self.draw.choice(nodes)
        job.lose_node(lost)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        for pid in job.pids():
            kill(pid)
        limit = time.monotonic() + PATIENCE_SECONDS
        while any(is_alive(pid) for pid in job.pids()) and time.monotonic() < limit:
            time.sleep(0.01)
        far_before = max(job.sets_in("far"), default=0)
        job.forget_node(lost, "spare")
        job.finish()
        steps, logs = job.restarted_from()
        self.assertEqual(len(steps), 1, f"{what}: {logs}")
        self.assertGreaterEqual(min(steps), far_before, f"{what}: {logs}; {output}")
        self.assertGreater(min(steps), 0, f"{what}: {logs}; {output}")
        if rebuilt:
            self.assertIn("node spare was rebuilt", logs["log.0"], what)
        self.assertEqual(job.results(), expected, f"{what}: {logs}")
        self.assertEqual(max(job.sets_in("far")), max(job.sets_in("local/node-a" if lost != "a" else "local/node-b")))
        self.assertEqual(list((job.folder / "memory").iterdir()), [], f"{what}: memory is left")
        shutil.rmtree(job.folder)

    @unittest.skipUnless(WITH_MPI, "needs MPI")
    def test_a_run_that_loses_a_node_goes_on_to_the_same_result(self):
        plans = [("copy", "memory; local:{local} keep=3; xor:3; dir:{far} every=5", True),
                 ("lent", "memory; local:{local} keep=3; dir:{far} every=5", False)]
        if NIGHTLY:
            plans = [(self.draw.choice(MODES), f"memory; local:{{local}} keep=3{scheme}; dir:{{far}} every=5", bool(scheme))
                     for scheme in ("", "; partner", "; xor:3", "; rs:2+1", "; rs:1+2") for _ in range(4)]
        for mode, levels, rebuilt in plans:
            with self.subTest(mode=mode, levels=levels, seed=self.seed):
                self.lose_a_node_and_compare(mode, levels, rebuilt)


if __name__ == "__main__":
    unittest.main()
