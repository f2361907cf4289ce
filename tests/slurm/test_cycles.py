"""A job in a real Slurm is preempted, cancelled, runs out of time, or loses a node, at random moments: it goes on from at
least what the levels promise, and ends as if nothing had been."""

import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

from cluster import Cluster, missing_programs

VARVE = os.environ["VARVE_PROGRAM"]
HEAT_PROGRAM = os.environ["VARVE_HEAT"]
CYCLES = int(os.environ.get("VARVE_SLURM_CYCLES", "6"))
PLATE = "192"
KILL_WAIT = 6
# Slurm has some jobs wait for two minutes before they start again, and looks once a minute whether they have.
RESTART_SECONDS_MAX = 300
HEAT = re.compile(r"after (\d+) steps the plate holds (\S+)$", re.MULTILINE)
GOING = ("RUNNING",)
OVER = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "PREEMPTED")


class Cycle(Cluster):
    """With a job on two of its nodes, each of which has a memory and a store of its own; both drain to a far store."""

    def __init__(self):
        super().__init__(4, ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", "RequeueExit=75",
                             f"KillWait={KILL_WAIT}", "JobRequeue=1"])
        self.memory, self.far, self.local = (self.folder / name for name in ("memory", "far", "local"))
        self.memory.mkdir()
        subprocess.run([VARVE, "init", str(self.far)], check=True, stdout=subprocess.DEVNULL)
        self.output = self.folder / "output"
        self.epilog = self.folder / "epilog.sh"
        self.write_script(self.epilog, f"""
            exec >>{self.folder}/epilog.txt 2>&1
            export VARVE_NODE=$SLURMD_NODENAME VARVE_SHARED_MEMORY={self.memory}
            timeout 60 {VARVE} drain --wait 3s --threads 1
            exit 0""")

    @property
    def levels(self):
        return f"memory; local:{self.local} keep=2; dir:{self.far} every=5"

    def write_script(self, path, text):
        path.write_text("#!/bin/bash\n" + "\n".join(line.strip() for line in text.strip().splitlines()) + "\n")
        path.chmod(0o755)

    def start_job(self, steps, minutes=None):
        script = self.folder / "job.sh"
        self.write_script(script, f"""
            export VARVE_EVERY_SECONDS=0.4 VARVE_SHARED_MEMORY={self.memory} VARVE_THREADS=1
            exec {VARVE} run --job cycle --grace {KILL_WAIT}s --levels "{self.levels}" --crash-limit 1000 -- \
                srun --mpi=pmix --kill-on-bad-exit=1 {self.folder}/rank.sh {steps}""")
        self.write_script(self.folder / "rank.sh", f"""
            export VARVE_NODE=$SLURMD_NODENAME
            # To MPI these are different nodes, which have nothing but the loopback.
            export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
            exec {HEAT_PROGRAM} $1 {PLATE} {PLATE}""")
        limit = [] if minutes is None else [f"--time={minutes}"]
        return self.submit(script, "--job-name=cycle", "--nodes=2", "--ntasks-per-node=1", "--exclusive", "--requeue",
                           "--open-mode=append", f"--output={self.output}", *limit)

    # What there is

    def note(self):
        path = self.far / "runs" / "cycle.starts.note"
        try:
            return dict(line.split(" ", 1) for line in path.read_text().splitlines()[1:])
        except OSError:
            return None

    def steps_in(self, store):
        """Of the sets that are there."""
        return {int(path.stem) for path in (store / "sets" / "cycle").glob("*.set")}

    def promised(self, nodes, with_nodes=True):
        """The step from which the job goes on at least, if it were ended now."""
        far = max(self.steps_in(self.far), default=0)
        if not with_nodes:
            return far
        local = [self.steps_in(self.local / f"node-{node}") for node in nodes]
        return max(far, max(set.intersection(*local), default=0) if local else 0)

    def nodes_of(self, job):
        listed = self.job(job).get("NodeList", "")
        return self.ask("scontrol", "show", "hostnames", listed).split()

    def lose(self, node):
        """A node is gone, with its memory and its disk."""
        files = set()
        for process in self.processes_of(node):
            try:
                maps = pathlib.Path(f"/proc/{process}/maps").read_text()
            except OSError:
                continue
            files |= set(re.findall(rf"{re.escape(str(self.memory))}/\S+", maps))
        self.fail_node(node)
        for file in files:
            pathlib.Path(file).unlink(missing_ok=True)
        # What a node has for a while is gone when it comes back, too.
        for folder in (self.local / f"node-{node}", self.folder / "tmp" / node):
            shutil.rmtree(folder, ignore_errors=True)


@unittest.skipIf(missing_programs(), f"not installed: {', '.join(missing_programs())}")
class Cycles(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("VARVE_SEED", random.randrange(1 << 32)))
        self.random = random.Random(self.seed)
        self.cluster = Cycle()
        self.addCleanup(self.cluster.stop)
        self.cluster.start()
        self.count = collections.Counter()
        self.steps_lost = []

    def test_lose_no_more_than_the_levels_promise(self):
        print(f"seed {self.seed}", flush=True)
        begin = time.monotonic()
        kinds = ["preempt"] * 5 + ["cancel"] * 3 + ["node"] * 2 + ["time"]
        job = self.cluster.start_job(10**9)
        at_least = 0
        first = ["preempt", "cancel", "node", "time"]  # each at least once
        for cycle in range(CYCLES):
            kind = first[cycle] if cycle < len(first) else self.random.choice(kinds)
            if kind == "time":
                job = self.cancel(job)
                job = self.cluster.start_job(10**9, minutes=1)
            job = self.await_restart(job, at_least)
            time.sleep(self.random.uniform(0.2, 4))
            at_least, job = getattr(self, f"by_{kind}")(job)
            self.count[kind] += 1
            print(f"cycle {cycle + 1}: {kind}, at least step {at_least}", flush=True)
        job = self.await_restart(job, at_least)
        self.cancel(job)
        self.finish(begin)

    def await_restart(self, job, at_least):
        """Until the job computes; from where it says that it goes on must be what was promised."""
        def goes_on():
            nonlocal job
            # Nodes of one machine are in each other's way now and then: no rank was started then.
            if self.cluster.state(job) == "FAILED" and "launch failed" in self.tail(self.cluster.output):
                job = self.cluster.start_job(10**9)
            return self.cluster.state(job) in GOING and self.cluster.note() is not None
        self.cluster.wait_until(goes_on, f"job {job}, which is {self.cluster.job(job)}; it says "
                                         f"{self.tail(self.cluster.output)}", RESTART_SECONDS_MAX)
        step = int(self.cluster.note().get("restarted_from", 0))
        self.assertGreaterEqual(step, at_least, f"seed {self.seed}; {self.tail(self.cluster.output)}; "
                                                f"{self.tail(self.cluster.folder / 'epilog.txt')}")
        return job

    @staticmethod
    def tail(path):
        return "\n".join(path.read_text(errors="replace").splitlines()[-25:]) if path.exists() else ""

    def forget_note(self):
        (self.cluster.far / "runs" / "cycle.starts.note").unlink(missing_ok=True)

    # What happens to it; each returns the step that is promised, and the job that goes on

    def by_preempt(self, job):
        promised = self.cluster.promised(self.cluster.nodes_of(job))
        restarts = int(self.cluster.job(job)["Restarts"])
        script = self.cluster.folder / "urgent.sh"
        self.cluster.write_script(script, "sleep 1")
        urgent = self.cluster.submit(script, "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null")
        self.cluster.wait_until(lambda: int(self.cluster.job(job)["Restarts"]) > restarts, "the job to be requeued")
        self.cluster.wait_for_state(urgent, OVER)
        self.forget_note_of_ended(job)
        return promised, job

    def forget_note_of_ended(self, job):
        """The next start removes the note of the one before; until then it must not be taken for its own."""
        if self.cluster.state(job) == "PENDING":
            self.forget_note()

    def cancel(self, job):
        self.cluster.ask("scancel", job)
        self.cluster.wait_until(lambda: self.cluster.state(job) in OVER, f"the end of job {job}")
        self.cluster.wait_until(lambda: not self.cluster.ask("squeue", "-h", "-j", job).strip(), "its epilogs")
        self.assertEqual(self.cluster.state(job), "CANCELLED", "who cancels a job does not want it back")
        self.forget_note()
        return job

    def by_cancel(self, job):
        promised = self.cluster.promised(self.cluster.nodes_of(job))
        self.cancel(job)
        return promised, self.cluster.start_job(10**9)

    def by_time(self, job):
        restarts = int(self.cluster.job(job)["Restarts"])
        self.cluster.wait_until(lambda: int(self.cluster.job(job)["Restarts"]) > restarts, "the job's time to end", 120)
        promised = self.cluster.promised([], with_nodes=False)
        self.assertIn("stopped by the end of the job's time", self.cluster.output.read_text())
        # It need not be short of time again at once.
        self.cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=60")
        self.forget_note_of_ended(job)
        return promised, job

    def by_node(self, job):
        nodes = self.cluster.nodes_of(job)
        promised = self.cluster.promised(nodes, with_nodes=False)
        lost = self.random.choice(nodes)
        restarts = int(self.cluster.job(job)["Restarts"])
        self.cluster.lose(lost)
        self.cluster.wait_until(lambda: self.cluster.state(job) in OVER
                                or int(self.cluster.job(job).get("Restarts", 0)) > restarts, "the job to fail", 120)
        self.cluster.ask("scontrol", "update", f"NodeName={lost}", "State=DOWN", "Reason=lost")
        self.cluster.wait_until(lambda: self.cluster.state(job) != "COMPLETING", "the end of what was left", 120)
        for folder in (self.cluster.local / f"node-{lost}", self.cluster.folder / "tmp" / lost):
            shutil.rmtree(folder, ignore_errors=True)
        self.cluster.start_node(lost)
        self.cluster.ask("scontrol", "update", f"NodeName={lost}", "State=RESUME")
        if self.cluster.state(job) not in OVER:
            self.forget_note_of_ended(job)
            return promised, job
        self.forget_note()
        return promised, self.cluster.start_job(10**9)

    # The end

    def finish(self, begin):
        newest = self.cluster.promised(self.cluster.nodes)
        steps = newest + 500
        self.forget_note()
        job = self.cluster.start_job(steps)
        self.cluster.wait_until(lambda: self.cluster.state(job) in OVER, "the job's end", 300)
        out = self.tail(self.cluster.output)
        self.assertEqual(self.cluster.state(job), "COMPLETED", out)
        found = HEAT.findall(out)[-1]
        undisturbed = self.undisturbed(steps)
        self.assertEqual(found, undisturbed, f"seed {self.seed}")
        verified = subprocess.run([VARVE, "verify", "--store", str(self.cluster.far), "--deep", "--json"], check=True,
                                  capture_output=True, text=True, env=self.cluster.environment())
        self.assertTrue(json.loads(verified.stdout)["whole"])
        print(f"{CYCLES} cycles in {time.monotonic() - begin:.0f} s, {steps} steps, seed {self.seed}: "
              f"{', '.join(f'{number} {kind}' for kind, number in sorted(self.count.items()))}")

    def undisturbed(self, steps):
        alone = self.cluster.folder / "alone"
        alone.mkdir()
        done = subprocess.run([*os.environ["VARVE_LAUNCHER"].split(), "2", HEAT_PROGRAM, str(steps), PLATE, PLATE],
                              check=True, capture_output=True, text=True, cwd=alone,
                              env=self.cluster.environment(VARVE_STORE=str(alone / "store"), VARVE_EVERY_STEPS="1000000000"))
        return HEAT.findall(done.stdout)[-1]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    unittest.main()
