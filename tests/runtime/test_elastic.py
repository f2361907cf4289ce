"""Ranks over MPI on simulated nodes, of which one is lost: its store and its memory. The run goes on with any number of
ranks, bit for bit."""

import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import tempfile
import time
import unittest

from processes import is_alive

PROGRAM = os.environ.get("VARVE_ELASTIC_PROGRAM_MPI", "")
FILES = os.environ.get("VARVE_ELASTIC_FILES", "")
MPIRUN = shlex.split(os.environ.get("VARVE_MPIRUN", ""))
NIGHTLY = os.environ.get("VARVE_NIGHTLY") == "1"

RANKS_MAX = 8
# Each number is once what saved, and once what goes on; nightly all pairs.
PAIRS = [(before, after) for before in range(1, RANKS_MAX + 1) for after in range(1, RANKS_MAX + 1)
         if NIGHTLY or before + after == RANKS_MAX + 1]
SCHEMES = ("xor:3", "rs:2+1", "partner")
PATIENCE_SECONDS = 120


def nodes_of(ranks):
    return ["a", "b", "c"][:ranks]


def nodes_after(before, after):
    """Of the nodes that are left; with enough ranks also new ones: the lost one is "b", a new one is called "d"."""
    left = [node for node in nodes_of(before) if node != "b"]
    return (left + ["d", "c"])[:min(after, 3)] if before == 2 else (left + ["d"])[:min(after, 3)]


@unittest.skipUnless(PROGRAM, "needs MPI")
class ElasticRestarts(unittest.TestCase):
    def setUp(self):
        # A memory file system, as sessions need for their snapshots.
        temporary = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="varve-elastic-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_ranks(self, ranks, mode, nodes, levels, *more, launcher_options=(), **variables):
        """Returns the launcher's status, and what was printed."""
        environment = dict(os.environ, **variables, OMPI_MCA_btl_vader_backing_directory=str(self.folder),
                           OMPI_MCA_orte_tmpdir_base=str(self.folder), PRTE_MCA_prte_tmpdir_base=str(self.folder))
        command = [*MPIRUN, *launcher_options, "-n", str(ranks), PROGRAM, mode, str(self.folder), ",".join(nodes), "; ".join(levels), *more]
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
                                 timeout=PATIENCE_SECONDS, check=False)
        return process.returncode, process.stdout

    def save(self, ranks, levels):
        _, output = self.run_ranks(ranks, "save", nodes_of(ranks), levels)
        pids = [path.read_text() for path in self.folder.glob("pid.*")]
        self.assertEqual(len(pids), ranks, output)
        limit = time.monotonic() + PATIENCE_SECONDS
        while any(is_alive(pid) for pid in pids):
            self.assertLess(time.monotonic(), limit, "the processes do not die")
            time.sleep(0.01)

    def restart(self, ranks, nodes, levels, before, step):
        status, output = self.run_ranks(ranks, "restart", nodes, levels, str(before), str(step))
        self.assertEqual(status, 0, output)
        return (self.folder / "told").read_text()

    def memory_of(self, node, ranks):
        """The snapshots of its ranks, of a run of so many, which are named varve-USER-JOB-RUN-RANK-WHAT."""
        nodes = nodes_of(ranks)
        return [path for path in (self.folder / "memory").glob("varve-[0-9]*")
                if nodes[int(path.name.split("-")[4]) % len(nodes)] == node]

    def lose(self, node, ranks):
        shutil.rmtree(self.folder / "local" / f"node-{node}")
        lost = self.memory_of(node, ranks)
        self.assertGreaterEqual(len(lost), 2, "it had something in memory")
        for path in lost:
            path.unlink()

    def clear(self):
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        (self.folder / "memory").mkdir()

    def go_on(self, before, after, scheme):
        self.clear()
        # Of what is not to go to the stores at once, memory has all.
        levels = ["memory", f"local:{self.folder}/local every=1000"]
        has_redundancy = before > 1 and after > 1
        if not has_redundancy:
            # A lone node has nobody that protects it.
            behind = behind_after = f"dir:{self.folder}/far"
        else:
            nodes_min = 2 if scheme == "partner" else 3
            behind = scheme if before >= nodes_min else "partner"
            behind_after = scheme if after >= nodes_min else "partner"
        self.save(before, [*levels, behind])
        self.lose("b" if before > 1 else "a", before)
        nodes = nodes_after(before, after) if before > 1 else nodes_of(after)
        told = self.restart(after, nodes, [*levels, behind_after], before, 2)
        if has_redundancy:
            self.assertRegex(told, "(node [bd] was rebuilt|was rebuilt in the place of node)")
        for node in set(nodes_of(before)) & set(nodes):
            self.assertEqual(self.memory_of(node, before), [], "nothing is left in the memory of a node that goes on")

    def test_any_number_of_ranks_goes_on_from_any_other_when_a_node_is_lost(self):
        for before, after in PAIRS:
            scheme = SCHEMES[(before + 2 * after) % len(SCHEMES)]
            with self.subTest(before=before, after=after, scheme=scheme):
                self.go_on(before, after, scheme)

    def test_what_is_in_memory_alone_comes_back_when_no_node_is_lost(self):
        self.clear()
        levels = ["memory", f"local:{self.folder}/local every=1000", "partner"]
        self.save(5, levels)
        self.restart(7, nodes_of(7), levels, 5, 3)

    @unittest.skipUnless(FILES, "needs HDF5")
    def test_what_files_have_compressed_comes_back_on_any_number_of_ranks(self):
        for before, after in ((4, 3), (2, 5), (3, 3), (1, 4)):
            with self.subTest(before=before, after=after):
                self.clear()
                subprocess.run([FILES, str(self.folder), str(before), "2"], timeout=PATIENCE_SECONDS, check=True)
                told = self.restart(after, ["a"], [f"dir:{self.folder}/store"], before, 2)
                self.assertEqual(told, "")
                self.assertEqual(self.processes(), [], "what decodes the files is gone")

    def processes(self):
        """Those that were started with the folder among their arguments, but for this one's."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.folder).encode() in path.read_bytes():
                    found.append(path.parent.name)
            except OSError:
                pass
        return found

    @unittest.skipUnless(os.environ.get("VARVE_ULFM") == "1", "needs MPI that tells ranks of one that has died")
    def test_ranks_that_are_left_go_on_in_the_same_processes(self):
        # All but one die, one after the other, at any moment.
        seconds = []
        for seed in range(1, 17 if NIGHTLY else 3):
            with self.subTest(seed=seed):
                self.clear()
                levels = ("memory", f"dir:{self.folder}/store")
                _, output = self.run_ranks(RANKS_MAX, "shrink", ["a"], levels, str(RANKS_MAX - 1), str(seed),
                                           launcher_options=("--with-ft", "ulfm"), VARVE_WHEN_BUSY="two_slots")
                told = self.folder / "told"
                self.assertTrue(told.exists(), output)
                gone_on = [float(line) for line in told.read_text().splitlines()]
                self.assertEqual(len(gone_on), RANKS_MAX - 1, output)
                seconds += gone_on
        print(f"{len(seconds)} deaths; all that were left had computed a step again after {statistics.median(seconds):.2f} s "
              f"(median), {max(seconds):.2f} s (at most)")


if __name__ == "__main__":
    unittest.main()
