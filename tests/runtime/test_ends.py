"""Sessions of real processes that end in no good order: after MPI, and in processes that were forked."""

import os
import pathlib
import shlex
import subprocess
import tempfile
import unittest

ALONE = os.environ["VARVE_END_PROGRAM"]
WITH_MPI = os.environ.get("VARVE_END_PROGRAM_MPI", "")
MPIRUN = shlex.split(os.environ.get("VARVE_MPIRUN", ""))
PATIENCE_SECONDS = 120


class Ends(unittest.TestCase):
    def setUp(self):
        # A memory file system, as sessions need for their snapshots.
        temporary = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="varve-ends-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "memory").mkdir()

    def run_program(self, command, mode, leaves_memory=False, **variables):
        words = [str(self.folder), mode]
        environment = dict(os.environ, **variables, OMPI_MCA_btl_vader_backing_directory=str(self.folder),
                           OMPI_MCA_orte_tmpdir_base=str(self.folder), PRTE_MCA_prte_tmpdir_base=str(self.folder))
        process = subprocess.run([word for part in command for word in (words if part == "ARGUMENTS" else [part])],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
                                 timeout=PATIENCE_SECONDS, check=False)
        self.assertEqual(process.returncode, 0, process.stdout)
        if not leaves_memory:
            self.assertEqual(list((self.folder / "memory").iterdir()), [], f"memory is left: {process.stdout}")

    def assert_saved(self, job, places=("store",)):
        for place in places:
            saved = sorted(path.name for path in (self.folder / place / "sets" / job).iterdir())
            self.assertEqual(saved, ["1.set", "2.set"], f"{job} in {place}")

    def test_a_forked_child_that_exits_leaves_the_session_alone(self):
        self.run_program([ALONE, "ARGUMENTS"], "fork")
        self.assert_saved("end")

    def test_a_forked_child_is_refused_every_call(self):
        self.run_program([ALONE, "ARGUMENTS"], "fork_calls")
        self.assert_saved("end")

    def test_a_forked_child_is_ended_by_the_signals_that_ask_its_parent_to_stop(self):
        self.run_program([ALONE, "ARGUMENTS"], "fork_signal")
        self.assert_saved("end")

    def test_a_program_that_exits_while_its_checkpoint_is_being_saved_ends_as_it_says(self):
        for _ in range(20):
            self.run_program([ALONE, "ARGUMENTS"], "leave", leaves_memory=True, VARVE_CODEC="best")

    @unittest.skipUnless(WITH_MPI, "needs MPI")
    def test_a_forked_child_of_a_rank_leaves_the_session_alone(self):
        self.run_program([*MPIRUN, "-n", "2", WITH_MPI, "ARGUMENTS"], "fork_calls")
        self.assert_saved("end")

    @unittest.skipUnless(WITH_MPI, "needs MPI")
    def test_a_session_that_is_open_in_mpi_finalize_ends_there(self):
        self.run_program([*MPIRUN, "-n", "3", WITH_MPI, "ARGUMENTS"], "finalize")
        self.assert_saved("end")

    @unittest.skipUnless(WITH_MPI, "needs MPI")
    def test_several_sessions_end_in_mpi_finalize(self):
        self.run_program([*MPIRUN, "-n", "2", WITH_MPI, "ARGUMENTS"], "finalize_two")
        self.assert_saved("end")
        self.assert_saved("other")

    def on_nodes(self, nodes, variables):
        """The command of one rank on each of several nodes."""
        command = list(MPIRUN)
        for place, node in enumerate(nodes):
            command += [*([":"] if place > 0 else []), "-n", "1", "env", f"VARVE_NODE={node}", *variables, WITH_MPI,
                        "ARGUMENTS"]
        return command

    @unittest.skipUnless(WITH_MPI, "needs MPI")
    def test_threads_that_send_snapshots_to_another_node_end_in_mpi_finalize(self):
        self.run_program(self.on_nodes(("a", "b"), ("VARVE_GROUP=2",)), "finalize")
        self.assert_saved("end")

    @unittest.skipUnless(WITH_MPI, "needs MPI")
    def test_redundancy_over_nodes_ends_in_mpi_finalize(self):
        levels = f"memory; local:{self.folder}/near; xor:3; dir:{self.folder}/far"
        self.run_program(self.on_nodes(("a", "b", "c"), (f"VARVE_LEVELS={levels}",)), "finalize")
        self.assert_saved("end", ("near/node-a", "near/node-b", "near/node-c", "far"))


if __name__ == "__main__":
    unittest.main()
