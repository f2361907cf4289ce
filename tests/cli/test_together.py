"""`varve save`, `restore` and `verify` by several processes that a launcher has started."""

import contextlib
import json
import os
import pathlib
import pathlib
import shutil
import signal
import subprocess
import time

from support import (BUSY, DAMAGED, EXISTS, FAILURE, NIGHTLY, NOT_FOUND, PROGRAM, SAMPLE, SUCCESS, USAGE, ProgramTest,
                     compressible_bytes, default_signals, snapshot)

LAUNCHER = os.environ.get("VARVE_MPIEXEC")
COUNTS = (1, 2, 4)


class Together(ProgramTest):
    def launch(self, count, *arguments):
        return subprocess.Popen([LAUNCHER, "-n", str(count), PROGRAM, *map(self.encode, arguments)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.environment(), cwd=self.work, preexec_fn=default_signals)

    def by_two(self, first, second):
        """Two processes with commands of their own, each with settings of its environment. Returns as together()."""
        def command(settings, *arguments):
            return ["-n", "1", "env", *settings, PROGRAM, *map(self.encode, arguments)]
        process = subprocess.Popen([LAUNCHER, *command(*first), ":", *command(*second)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.environment(), cwd=self.work, preexec_fn=default_signals)
        out, err = process.communicate(timeout=100)
        own = [line for line in err.decode(errors="replace").splitlines() if line.startswith("varve: ")]
        return process.returncode, out.decode(), own

    def together(self, count, *arguments):
        """Returns (exit code, standard output, what `varve` said on standard error)."""
        process = self.launch(count, *arguments)
        out, err = process.communicate(timeout=300)
        own = [line for line in err.decode(errors="replace").splitlines() if line.startswith("varve: ")]
        return process.returncode, out.decode(), own

    def succeeds(self, count, *arguments):
        code, out, err = self.together(count, *arguments)
        self.assertEqual((code, err), (SUCCESS, []), out)
        return out

    def assert_nothing_is_left(self):
        for folder in ("parts", "writers"):
            path = self.store / folder
            self.assertEqual(list(path.iterdir()) if path.exists() else [], [])

    def test_save_makes_one_set_and_one_output(self):
        for step, count in enumerate(COUNTS):
            out = self.succeeds(count, "save", SAMPLE / "DD0006", "--job", "run", "--step", step, "--json")
            self.assertEqual(out.count("\n"), 1, out)
            facts = json.loads(out)
            self.assertEqual(facts["record"]["rank_count"], 16)
            self.assert_restores(f"run@{step}", SAMPLE / "DD0006")
        self.assertEqual([entry["step"] for entry in self.facts("list")["sets"]], list(range(len(COUNTS))))
        self.assert_whole()
        self.assert_nothing_is_left()

    def test_processes_need_not_be_told_the_same_number_of_threads(self):
        save = ("save", SAMPLE / "DD0006", "--job", "run", "--step", 1)
        code, out, err = self.by_two(([], *save), (["VARVE_THREADS=1"], *save))
        self.assertEqual((code, err), (SUCCESS, []), out)
        restore = ("restore", "run@1", "back")
        code, out, err = self.by_two(([], *restore), ([], *restore, "--threads", 1))
        self.assertEqual((code, err), (SUCCESS, []), out)
        self.assertEqual(snapshot(self.work / "back"), snapshot(SAMPLE / "DD0006"))

    def test_what_one_process_alone_is_told_is_refused_with_a_word(self):
        save = ("save", SAMPLE / "DD0006", "--job", "run", "--step", 1)
        for settings, reason in ((["VARVE_LEVELS=dir:other"], "say both where checkpoints go"),
                                 (["-u", "VARVE_STORE", f"VARVE_LEVELS=dir:{self.store}"], "levels says something else here"),
                                 (["VARVE_MEMORY_BYTES=many"], "VARVE_MEMORY_BYTES")):
            code, out, err = self.by_two(([], *save), (settings, *save))
            self.assertEqual((code, len(err)), (USAGE, 1), (out, err))
            self.assertIn(reason, err[0])
            self.assertIn("rank 1", err[0])
        self.assertEqual(self.facts("list")["sets"], [])

    def test_what_is_known_is_found_whoever_saved_it(self):
        self.succeeds(4, "save", SAMPLE / "DD0006", "--job", "run", "--step", 1)
        out = self.succeeds(2, "save", SAMPLE / "DD0006", "--job", "run", "--step", 2, "--json")
        self.assertLess(json.loads(out)["record"]["new_bytes"], 1000)

    def test_restore_gives_what_was_saved(self):
        self.varve("save", SAMPLE / "DD0006")
        for count in COUNTS:
            out = self.succeeds(count, "restore", "implosion@6", f"back{count}", "--json")
            self.assertEqual(json.loads(out)["file_count"], len(snapshot(SAMPLE / "DD0006")))
            self.assertEqual(snapshot(self.work / f"back{count}"), snapshot(SAMPLE / "DD0006"))

    def test_a_pattern_that_matches_nothing_is_told_once(self):
        self.varve("save", SAMPLE / "DD0006")
        for count in COUNTS:
            restore = ("restore", "implosion@6", "back", "--overwrite", "--files", "*.cpu0001", "--files", "*.typo")
            code, out, err = self.together(count, *restore)
            self.assertEqual((code, err), (SUCCESS, ["varve: warning: the pattern matches nothing in the set: *.typo"]), out)
        self.assertEqual(os.listdir(self.work / "back"), ["XX1000.cpu0001"])

    def test_verify_says_what_one_process_says(self):
        self.succeeds(2, "save", SAMPLE / "DD0006")
        for count in COUNTS:
            self.assertEqual(self.succeeds(count, "verify", "--deep"), self.varve("verify", "--deep"))

    def damage(self):
        for arena in sorted((self.store / "arenas").glob("*.arena"))[-1:]:
            contents = bytearray(arena.read_bytes())
            for at in range(200, len(contents) // 2, 50):
                contents[at] ^= 1
            arena.write_bytes(contents)

    def test_damage_that_one_process_meets_stops_all(self):
        self.succeeds(2, "save", SAMPLE / "DD0006")
        self.damage()
        for count in COUNTS:
            code, out, err = self.together(count, "restore", "implosion@6", "back")
            # Who met it marks the arena, and says so if it is the one that speaks.
            failures = [line for line in err if "damaged, and marked" not in line]
            self.assertEqual((code, out, len(failures)), (DAMAGED, "", 1), err)
            self.assertFalse((self.work / "back").exists())
            code, out, err = self.together(count, "verify", "--deep", "--json")
            self.assertEqual((code, out.count("\n"), err), (DAMAGED, 1, []))
            self.assertFalse(json.loads(out)["whole"])

    def test_failures_are_told_once(self):
        self.succeeds(2, "save", SAMPLE / "DD0006")
        for expected, arguments in ((EXISTS, ("save", SAMPLE / "DD0006")),
                                    (NOT_FOUND, ("restore", "nothing@1", "back")),
                                    (NOT_FOUND, ("save", self.work / "nothing")),
                                    (NOT_FOUND, ("verify", "--store", "no-store")),
                                    (USAGE, ("save", "--no-such-option")),
                                    (USAGE, ("no-such-command",))):
            code, out, err = self.together(3, *arguments)
            self.assertEqual((code, out, len(err)), (expected, "", 1), (arguments, err))
        self.assert_nothing_is_left()
        self.assertFalse((self.work / "back").exists())

    def test_a_file_in_the_way_keeps_all_from_restoring(self):
        self.varve("save", SAMPLE / "DD0006")
        self.write("back/XX1000.cpu0015", b"mine\n")
        for count in COUNTS:
            code, _, err = self.together(count, "restore", "implosion@6", "back")
            self.assertEqual((code, len(err)), (EXISTS, 1), err)
            self.assertEqual([path.name for path in (self.work / "back").iterdir()], ["XX1000.cpu0015"])
        self.succeeds(4, "restore", "implosion@6", "back", "--overwrite")
        self.assertEqual(snapshot(self.work / "back"), snapshot(SAMPLE / "DD0006"))

    def test_other_commands_are_each_processes_own(self):
        self.varve("save", SAMPLE / "DD0006")
        code, out, _ = self.together(2, "list")
        self.assertEqual((code, out.count("implosion")), (SUCCESS, 2))

    def test_killed_processes_leave_nothing_of_a_set(self):
        for rank in range(4):
            self.write(f"large/rank{rank}.dat", compressible_bytes(6_000_000, rank))
        for attempt in range(20 if NIGHTLY else 3):
            process = self.launch(4, "save", self.work / "large", "--job", "run", "--step", attempt, "--codec", "lzma:9")
            time.sleep(0.3 + 0.17 * (attempt % 10))
            for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[:2]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            process.communicate(timeout=300)
        for entry in self.facts("list")["sets"]:
            self.assert_restores(f"run@{entry['step']}", self.work / "large")
        self.assert_whole()
        self.succeeds(2, "save", self.work / "large", "--job", "run", "--step", 100, "--codec", "store")
        self.assert_restores("run@100", self.work / "large")


class WithoutTheOtherProgram(ProgramTest):
    def run_as(self, program, process, **more):
        finished = subprocess.run([program, "verify"], capture_output=True, cwd=self.work, check=False,
                                  env=self.environment(PMI_SIZE="3", PMI_RANK=str(process), **more))
        return finished.returncode, finished.stdout.decode(), finished.stderr.decode()

    def test_several_processes_are_told_what_is_missing(self):
        program = self.work / "varve"
        shutil.copy(PROGRAM, program)
        code, out, err = self.run_as(program, 0)
        self.assertEqual((code, out), (FAILURE, ""))
        self.assertIn("varve-mpi", err)
        self.assertIn("hint:", err)
        self.assertEqual(self.run_as(program, 2), (FAILURE, "", ""))

    def test_processes_that_are_to_work_alone_do(self):
        code, out, err = self.run_as(PROGRAM, 2, VARVE_ALONE="1")
        self.assertEqual((code, err), (SUCCESS, ""))
        self.assertIn("no damage", out)

    def test_a_launcher_that_the_library_does_not_know_is_noticed(self):
        if LAUNCHER is None:
            self.skipTest("built without MPI")
        code, out, err = self.run_as(PROGRAM, 0)
        self.assertEqual((code, out), (FAILURE, ""))
        self.assertIn("launcher", err)


if LAUNCHER is None:
    del Together
