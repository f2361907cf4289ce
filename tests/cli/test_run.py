"""varve run: what it tells the program, what it passes on, how it ends, and when it starts a job no more."""

import signal
import time
import unittest

from support import FAILURE, SUCCESS, USAGE, ProgramTest

REQUEUE, CANNOT_EXECUTE, NO_SUCH_PROGRAM = 75, 126, 127


class Run(ProgramTest):
    def environment(self, **changes):
        kept = {key: value for key, value in super().environment().items() if not key.startswith("SLURM_")}
        return {**kept, "VARVE_JOB": "job", **changes}

    def shell(self, script, *options, **changes):
        code, out, err = self.run_program("run", *options, "--", "sh", "-c", script,
                                          environment=self.environment(**changes))
        return code, out.decode(), err

    def stop(self, script, number, *options):
        """Sends a signal once the script has printed a line."""
        process = self.start("run", *options, "--", "sh", "-c", script, environment=self.environment())
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.decode(), err.decode()

    def test_tells_the_program_where_and_how_long(self):
        script = 'echo "$VARVE_LEVELS|$VARVE_STORE|$VARVE_JOB|$VARVE_GRACE|$VARVE_END_TIME|$VARVE_NOTE_FILE"'
        levels = f"memory; dir:{self.work}/other"
        code, out, err = self.shell(script, "--levels", levels, "--job", "heat", "--grace", "90s", "--end-time",
                                    "4000000000")
        self.assertEqual((code, err), (SUCCESS, ""))
        note = f"{self.work}/other.heat.starts.note"
        self.assertEqual(out, f"{levels}||heat|90|4000000000|{note}\n")
        self.varve("init", self.work / "third")
        code, out, _ = self.shell(script, "--store", self.work / "third")
        self.assertEqual((code, out), (SUCCESS, f"|{self.work}/third|job|30||{self.work}/third/runs/job.starts.note\n"))

    def test_leaves_nothing_behind_of_a_program_that_makes_no_checkpoint(self):
        before = sorted(self.work.iterdir())
        for options in ((), ("--store", self.work / "new"), ("--store", f"{self.work}/new/"), ("--reset",)):
            self.assertEqual(self.shell("exit 0", *options, VARVE_STORE="")[0], SUCCESS)
            self.assertEqual(sorted(self.work.iterdir()), before, options)
        code, _, _ = self.run_program("run", "--", "no-such-program", environment=self.environment(VARVE_STORE=""))
        self.assertEqual(code, NO_SUCH_PROGRAM)
        self.assertEqual(sorted(self.work.iterdir()), before)

    def test_what_was_counted_before_there_was_a_store_counts_in_it(self):
        store = self.work / "new"
        for _ in range(2):
            self.assertEqual(self.shell("exit 7", "--store", store)[0], 7)
        self.assertFalse(store.exists())
        self.varve("init", store)
        self.assertEqual(self.shell("exit 7", "--store", store)[0], 7)
        self.assertEqual([path.name for path in self.work.glob("new.*")], [])
        code, _, err = self.shell("exit 7", "--store", store)
        self.assertEqual(code, FAILURE)
        self.assertIn("has failed 3 times in a row", err)

    def test_ends_as_the_program_does(self):
        for ends_with in (0, 1, 3, 42):
            code, _, err = self.shell(f"exit {ends_with}", "--reset")
            self.assertEqual((code, err), (ends_with, ""))
        self.assertEqual(self.shell("kill -SEGV $$", "--reset")[0], 128 + signal.SIGSEGV)

    def test_says_what_is_wrong(self):
        self.assertIn("a program to run is wanted", self.fails(USAGE, "run"))
        self.assertIn("auto, code, scontrol or no is wanted", self.fails(USAGE, "run", "--requeue", "maybe", "--", "true"))
        self.assertIn("say both", self.fails(USAGE, "run", "--store", "a", "--levels", "dir:b", "--", "true"))

    def test_a_program_that_cannot_be_started_is_told_as_shells_tell_it(self):
        """What it might itself have ended with, as 3, is told from that."""
        self.write("text", b"#!/bin/sh\nexit 3\n").chmod(0o644)
        for program, code in (("no-such-program", NO_SUCH_PROGRAM), ("./none", NO_SUCH_PROGRAM), ("text/below", NO_SUCH_PROGRAM),
                              ("./text", CANNOT_EXECUTE), (self.work, CANNOT_EXECUTE)):
            with self.subTest(program=program):
                self.assertIn("varve: cannot start: ", self.fails(code, "run", "--", program))
        self.assertEqual(self.shell("exit 0")[0], SUCCESS)
        (self.work / "text").chmod(0o755)
        self.fails(3, "run", "--", "./text")

    def test_passes_on_that_it_is_to_stop(self):
        script = 'trap "echo stopped; exit 9" USR1; echo ready; while :; do sleep 0.05; done'
        for number in (signal.SIGTERM, signal.SIGUSR1):
            code, out, err = self.stop(script, number)
            self.assertEqual((code, out), (REQUEUE, "stopped\n"), err)
            self.assertIn("has work left", err)
        script = script.replace("USR1", "TERM")
        self.assertEqual(self.stop(script, signal.SIGUSR1, "--signal", "TERM")[0], REQUEUE)
        self.assertEqual(self.stop(script, signal.SIGTERM, "--signal", "TERM", "--requeue", "no")[0], SUCCESS)

    def test_a_program_that_is_done_when_it_is_stopped_is_done(self):
        code, _, err = self.stop('trap "exit 0" USR1; echo ready; while :; do sleep 0.05; done', signal.SIGTERM)
        self.assertEqual((code, err), (SUCCESS, ""))

    def test_a_loop_of_crashes_ends(self):
        note = "printf 'varve note 1\\nrestarted_from 60\\n' > $VARVE_NOTE_FILE; exit 7"
        for _ in range(3):
            self.assertEqual(self.shell(note)[0], 7)
        code, out, err = self.shell("echo started")
        self.assertEqual((code, out), (FAILURE, ""))
        self.assertIn("has failed 3 times in a row, each time going on from step 60", err)
        self.assertIn("varve run --reset", err)
        self.varve("run", "--reset")
        self.assertEqual(self.shell("echo started")[:2], (SUCCESS, "started\n"))

    def test_a_newer_checkpoint_in_between_is_no_loop(self):
        for step in (60, 60, 70, 70, 80, 80):
            script = f"printf 'varve note 1\\nrestarted_from {step}\\n' > $VARVE_NOTE_FILE; exit 7"
            self.assertEqual(self.shell(script)[0], 7)

    def test_a_start_that_was_killed_with_its_node_counts(self):
        for _ in range(3):
            process = self.start("run", "--", "sh", "-c", "echo ready; exec sleep 3 >/dev/null 2>&1", environment=self.environment())
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.kill()
            process.communicate()
        code, _, err = self.shell("true")
        self.assertEqual(code, FAILURE)
        self.assertIn("before any checkpoint", err)

    def test_stops_that_were_asked_for_are_no_crashes(self):
        for _ in range(5):
            code, _, _ = self.stop('trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done', signal.SIGTERM)
            self.assertEqual(code, REQUEUE)
        self.assertEqual(self.shell("exit 0")[0], SUCCESS)

    def test_in_slurm_it_asks_what_there_is_to_know(self):
        """A Slurm of three scripts."""
        bin_folder = self.work / "bin"
        for name, script in (("squeue", "echo 1:40"),
                             ("scontrol", f'echo "$@" >> {self.work}/asked\n'
                                          'case "$*" in *config*) echo; echo "RequeueExit = $CODES";;\n'
                                          '*job*) echo JobState=RUNNING;; esac')):
            self.write(bin_folder / name, f"#!/bin/sh\n{script}\n".encode()).chmod(0o755)
        slurm = {"SLURM_JOB_ID": "12", "SLURM_JOB_NAME": "flow", "PATH": f"{bin_folder}:/usr/bin:/bin"}
        code, out, _ = self.shell('echo "$VARVE_END_TIME"', **slurm)
        self.assertEqual(code, SUCCESS)
        self.assertLess(abs(int(out) - time.time() - 100), 20)
        stopped = "printf 'varve note 1\\nlast_step 5\\nplace memory\\nstopped_by SIGUSR1\\nended yes\\n' > $VARVE_NOTE_FILE"
        code, _, err = self.shell(stopped, CODES="75", **slurm)
        self.assertEqual(code, REQUEUE)
        self.assertIn("stopped by SIGUSR1 at step 5, which is in memory", err)
        self.assertNotIn("requeue", (self.work / "asked").read_text())
        self.assertEqual(self.shell(stopped, CODES="3", **slurm)[0], REQUEUE)
        self.assertIn("requeue 12", (self.work / "asked").read_text())


if __name__ == "__main__":
    unittest.main()
