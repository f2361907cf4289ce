"""Sets are called as programs call their checkpoints, whatever layout their files have."""

import os
import subprocess
import threading
import unittest

from support import EXISTS, INTERRUPTED, NOT_FOUND, PROGRAM, SUCCESS, USAGE, snapshot
from test_watch import WatchTest


def names_of(facts):
    return [one["set"] for one in facts["sets"]]


class Names(WatchTest):
    def openfoam(self, times=("0", "0.02", "0.2"), processors=2):
        """A case as OpenFOAM leaves it: the rank above the time."""
        for processor in range(processors):
            self.write(f"cavity/processor{processor}/constant/polyMesh/points", b"mesh")
            for time in times:
                for field in ("U", "p"):
                    self.write(f"cavity/processor{processor}/{time}/{field}", f"{time} {field} {processor}".encode() * 99)
        self.write("cavity/0/U", b"what it begins with")
        self.write("cavity/log.icoFoam", b"log")
        return self.work / "cavity"

    def test_folders_that_are_times(self):
        for time, name in (("0.02", "0.02"), ("0.2", "0.2"), ("1e-05", "1e-05"), ("1", "1.0")):
            self.write(f"case/{time}/U", time.encode())
            self.assertIn(f"saved case@{name}: ", self.varve("save", self.work / "case" / time))
        self.assertEqual([record["step"] for record in self.facts("list", "case")["sets"]], [1e-05, 0.02, 0.2, 1])
        for time in ("0.02", "0.2", "1"):
            self.assert_restores(f"case@{time}", self.work / "case" / time)
        self.fails(EXISTS, "save", self.work / "case" / "0.2")
        self.assertIn("0.2", self.varve("cat", "case@0.2:U"))
        self.varve("drop", "case@1e-05")
        self.fails(NOT_FOUND, "show", "case@1e-05")
        self.assertEqual(self.facts("show", "case")["record"]["name"], "case@1.0")

    def test_what_is_said_is_a_time_too(self):
        self.write("out/data", b"data")
        self.assertIn("saved run@0.5: ", self.varve("save", self.work / "out", "--job", "run", "--step", "0.5"))
        self.assertIn("name the step", self.fails(USAGE, "save", self.work / "out", "--job", "run"))
        self.fails(USAGE, "save", self.work / "out", "--job", "run", "--step", "half")

    def test_sets_with_times_go_to_other_stores(self):
        self.write("case/0.25/U", b"U")
        self.varve("save", self.work / "case" / "0.25")
        self.varve("init", self.work / "other")
        self.varve("push", "case@0.25", "--to", self.work / "other")
        there = self.facts("list", "--store", self.work / "other")["sets"]
        self.assertEqual([one["name"] for one in there], ["case@0.25"])
        self.assert_whole()

    def test_one_file(self):
        file = self.write("md/state.cpt", b"state" * 100)
        self.write("md/md.log", b"log")
        self.assertIn("saved md@0: 1 file,", self.varve("save", file, "--job", "md"))
        self.varve("restore", "md", self.work / "back")
        self.assertEqual([path.name for path in (self.work / "back").iterdir()], ["state.cpt"])
        self.assertIn("saved restarts@40: 1 file,", self.varve("save", self.write("restarts/restart.40", b"x")))

    def test_standard_input(self):
        dump = os.urandom(300_000)
        saved = subprocess.run([PROGRAM, "save", "--stdin", "base.sql", "--job", "base"], input=dump,
                               env=self.environment(TMPDIR=str(self.work)), capture_output=True, check=False)
        self.assertEqual(saved.returncode, SUCCESS, saved.stderr)
        self.varve("restore", "base", self.work / "back")
        self.assertEqual((self.work / "back" / "base.sql").read_bytes(), dump)
        again = subprocess.run([PROGRAM, "save", "--stdin", "base2024.sql.bz2", "--job", "base"], input=dump,
                               env=self.environment(TMPDIR=str(self.work)), capture_output=True, check=False)
        self.assertIn(b"saved base@1: ", again.stdout)
        killed = subprocess.Popen([PROGRAM, "save", "--stdin", "base.sql", "--job", "base"], stdin=subprocess.PIPE,
                                  env=self.environment(TMPDIR=str(self.work)), stderr=subprocess.DEVNULL)
        killed.stdin.write(dump)
        killed.stdin.flush()
        while not list(self.work.glob("varve-input-*/base.sql")):
            pass
        killed.terminate()
        self.assertEqual(killed.wait(timeout=30), INTERRUPTED)
        killed.stdin.close()
        self.assertEqual(list(self.work.glob("varve-input-*")), [])
        empty = subprocess.run([PROGRAM, "save", "--stdin", "base.sql", "--job", "base"], input=b"",
                               env=self.environment(TMPDIR=str(self.work)), capture_output=True, check=False)
        self.assertEqual(empty.returncode, SUCCESS)
        self.assertIn(b"warning: standard input is empty: base.sql", empty.stderr)
        self.fails(USAGE, "save", "--stdin", "base.sql")
        self.fails(USAGE, "save", "--stdin", "../base.sql", "--job", "base")
        self.fails(USAGE, "save", self.work, "--stdin", "base.sql", "--job", "base")
        self.fails(USAGE, "save")

    def test_files_are_left_out(self):
        for path in ("data/a.bin", "data/a.log", "old/b.bin", "c.bin", "empty.log"):
            self.write("run/out7/" + path)
        folder = self.work / "run" / "out7"
        self.varve("save", folder, "--exclude", "*.log", "--exclude", "old")
        self.varve("restore", "run@7", self.work / "without")
        self.assertEqual(sorted(snapshot(self.work / "without")), [b"c.bin", b"data", b"data/a.bin"])
        self.varve("save", folder, "--include", "data/*.bin", "--step", "8")
        self.varve("restore", "run@8", self.work / "only")
        self.assertEqual(sorted(snapshot(self.work / "only")), [b"data", b"data/a.bin"])
        self.assertIn("nothing in the folder is to be saved",
                      self.fails(NOT_FOUND, "save", folder, "--include", "none", "--step", "9"))
        for option in ("--exclude", "--include"):
            self.assertIn("is not closed: [a", self.fails(USAGE, "save", folder, option, "[a", "--step", "10"))
            self.assertIn("is not closed", self.fails(USAGE, "save", folder, option, "x[]", "--step", "10"))
        self.varve("save", folder, "--exclude", "ol[]d]", "--step", "11")
        self.assertIn("warning: the pattern matches nothing in the folder: *.nope",
                      self.run_program("save", folder, "--exclude", "*.nope", "--step", "12")[2])
        self.varve("save", folder, "--exclude", "old/", "--step", "10")
        self.assertEqual([file["path"] for file in self.facts("show", "run@10")["files"] if "old" in file["path"]], [])

    def test_a_folder_that_is_left_out_is_not_looked_into(self):
        self.write("run/out7/data/a.bin")
        folder = self.work / "run" / "out7"
        closed = folder / "closed"
        closed.mkdir(0o700)
        user = None
        if os.geteuid() == 0:
            user = 59_999
            for parent in (self.work, folder.parent, folder, folder / "data"):
                parent.chmod(0o755)
            for parent, _, files in os.walk(self.store):
                for path in (parent, *(os.path.join(parent, name) for name in files)):
                    os.chown(path, user, user)
        else:
            closed.chmod(0)
            self.addCleanup(closed.chmod, 0o700)

        def save(step, *choice):
            saved = subprocess.run([PROGRAM, "save", str(folder), "--step", step, *choice], env=self.environment(),
                                   cwd=self.work, user=user, extra_groups=None if user is None else [],
                                   capture_output=True, check=False, timeout=300)
            return saved.returncode, saved.stderr.decode()

        for step, choice in (("1", ()), ("1", ("--include", "*.bin"))):
            code, err = save(step, *choice)
            self.assertNotEqual(code, SUCCESS)
            self.assertIn("closed", err)
        for step, choice in (("1", ("--exclude", "closed")), ("2", ("--exclude", "clo*/")),
                             ("3", ("--include", "data/*.bin"))):
            self.assertEqual(save(step, *choice), (SUCCESS, ""))

    def test_what_is_left_out_may_come_and_go(self):
        """Beside a program that writes and removes logs in the folder, and in one below it, all the time."""
        self.write("run/data/a.bin", os.urandom(200_000))
        data = self.run_folder / "data"
        stop = threading.Event()

        def write_logs():
            while not stop.is_set():
                for folder in (self.run_folder, data):
                    for name in ("one.log", "two.log"):
                        (folder / name).write_bytes(b"log")
                        (folder / name).unlink()

        writer = threading.Thread(target=write_logs)
        writer.start()
        self.addCleanup(writer.join)
        self.addCleanup(stop.set)
        for step in ("1", "2", "3"):
            code, _, err = self.run_program("save", self.run_folder, "--exclude", "*.log", "--step", step)
            self.assertEqual(code, SUCCESS, err)
        self.varve("save", self.run_folder, "--include", "*.bin", "--step", "4")
        self.varve("restore", "run@4", self.work / "back")
        self.assertEqual(sorted(snapshot(self.work / "back")), [b"data", b"data/a.bin"])

    def test_the_store_may_lie_in_the_folder_if_it_is_left_out(self):
        self.write("data/a.bin")
        self.run_folder.rmdir()
        for choice in ((), ("--exclude", "*.log"), ("--include", "*.bin"), ("--exclude", "store/packs")):
            said = self.fails(USAGE, "save", self.work, "--job", "work", "--step", "1", *choice)
            self.assertIn("the store lies in the folder that is to be saved", said)
            self.assertIn("--exclude", said)
        self.varve("save", ".", "--job", "work", "--step", "1", "--exclude", "store")
        self.varve("save", self.work, "--job", "work", "--step", "2", "--exclude", "st*/")
        self.varve("save", self.work, "--job", "work", "--step", "3", "--include", "data/*")
        self.assertIn("the store lies in", self.fails(USAGE, "save", self.store, "--exclude", "*", "--job", "work"))
        for step in ("1", "2", "3"):
            self.assertEqual([file["path"] for file in self.facts("show", f"work@{step}")["files"]],
                             ["data", "data/a.bin"])
        self.assert_whole()

    def test_an_empty_folder_is_told(self):
        (self.work / "empty").mkdir()
        self.assertIn("the folder is empty", self.run_program("save", self.work / "empty")[2])

    def test_files_are_found_in_all_sets(self):
        for step in (1, 2):
            self.write(f"run/out{step}/fields/U", b"U" * step)
            self.varve("save", self.work / "run" / f"out{step}")
        found = self.facts("find", "U")["files"]
        self.assertEqual([(one["set"], one["path"], one["bytes"]) for one in found],
                         [("run@1", "fields/U", 1), ("run@2", "fields/U", 2)])
        self.assertIn("run@2:fields/U", self.varve("find", "fields/*"))
        self.fails(NOT_FOUND, "find", "V")
        self.assertIn("no set of this job: other", self.fails(NOT_FOUND, "find", "U", "--job", "other"))

    def test_what_a_watcher_would_take_is_explained(self):
        folder = self.openfoam()
        text = self.varve("watch", folder, "--pattern", "openfoam", "--explain")
        self.assertIn("cavity@0.02: 6 entries, 2 ranks", text)
        self.assertIn("belong to no set", text)
        facts = self.facts("watch", folder, "--pattern", "openfoam", "--explain")["folders"][0]
        self.assertEqual(names_of(facts), ["cavity@0.0", "cavity@0.02", "cavity@0.2"])
        self.assertEqual(facts["pattern"], "processor{rank}/{time}/**")
        self.assertEqual(self.facts("list")["sets"], [])

    def test_times_below_ranks_are_watched(self):
        folder = self.openfoam()
        watcher = self.watch("--quiet", "0.2", "--pattern", "openfoam", folder=folder)
        for time in ("0.0", "0.02", "0.2"):
            self.expect(watcher, "saved", f"cavity@{time}")
        self.openfoam(times=("0.4",))
        self.expect(watcher, "saved", "cavity@0.4")
        self.end(watcher)
        self.varve("restore", "cavity@0.4", self.work / "back")
        self.assertEqual((self.work / "back/processor1/0.4/U").read_bytes(),
                         (folder / "processor1/0.4/U").read_bytes())
        self.assertFalse((self.work / "back/processor1/0.2").exists())
        self.assertEqual(self.facts("show", "cavity@0.4")["record"]["rank_count"], 2)

    def test_times_below_ranks_are_found_without_a_pattern(self):
        folder = self.openfoam()
        text = self.varve("watch", folder, "--explain")
        self.assertIn("by the pattern 'processor{rank}/{time}/**', 3 sets", text)
        self.assertIn("2 folders called as ranks are", text)
        facts = self.facts("watch", folder, "--explain")["folders"][0]
        self.assertEqual(names_of(facts), ["cavity@0.0", "cavity@0.02", "cavity@0.2"])
        self.assertIn("taken for ranks", facts["why_pattern"])
        said = self.facts("watch", folder, "--explain", "--pattern", "*{step}/**")["folders"][0]
        self.assertIn("cavity@1", names_of(said))
        self.assertEqual(said["why_pattern"], "")
        watcher = self.watch("--quiet", "0.2", folder=folder)
        for time in ("0.0", "0.02", "0.2"):
            self.expect(watcher, "saved", f"cavity@{time}")
        self.openfoam(times=("0.4",))
        self.expect(watcher, "saved", "cavity@0.4")
        self.end(watcher)
        _, _, err = self.run_program("watch", folder, "--quiet", "0.1", "--once")
        self.assertEqual(err.count("by the pattern 'processor{rank}/{time}/**', are not watched as a set each"), 1)
        self.assertEqual(self.facts("show", "cavity@0.4")["record"]["rank_count"], 2)

    def test_runs_with_the_same_times_are_not_taken_for_ranks(self):
        for run in ("run0", "run1"):
            for time in ("0", "0.1", "0.2"):
                self.write(f"sweep/{run}/{time}/U", f"{run} {time}".encode())
        facts = self.facts("watch", self.work / "sweep", "--explain")["folders"][0]
        self.assertEqual(names_of(facts), ["sweep@0", "sweep@1"])

    def test_folders_that_are_times_are_watched(self):
        for time in ("0", "0.5", "1"):
            self.write(f"run/{time}/U", time.encode())
        watcher = self.watch("--quiet", "0.2")
        for time in ("0.0", "0.5", "1.0"):
            self.expect(watcher, "saved", f"run@{time}")
        self.end(watcher)
        self.assertEqual([record["step"] for record in self.facts("list", "run")["sets"]], [0, 0.5, 1])

    def test_a_count_that_turns_out_to_be_a_time_is_not_saved_twice(self):
        self.write("run/0/U", b"0")
        self.varve("save", self.run_folder / "0")
        self.write("run/0.5/U", b"0.5")
        watcher = self.watch("--quiet", "0.2")
        self.expect(watcher, "was_saved", "run@0")
        self.expect(watcher, "saved", "run@0.5")
        self.end(watcher)
        self.assertEqual(len(self.facts("list", "run")["sets"]), 2)

    def test_times_stay_times_when_those_before_them_are_gone(self):
        watcher = self.watch("--quiet", "0.2", "--remove-originals")
        for time, name in (("0.5", "0.5"), ("1", "1.0"), ("1.5", "1.5"), ("2", "2.0")):
            self.write(f"run/{time}/U", time.encode())
            self.expect(watcher, "removed", f"run@{name}")
            self.assertFalse((self.run_folder / time).exists())
        self.end(watcher)
        self.varve("restore", "run", self.work / "back")
        self.assertEqual((self.work / "back/U").read_bytes(), b"2")

    def test_folders_of_times_below_ranks_go_with_their_files(self):
        folder = self.openfoam(times=("0.5",))
        watcher = self.watch("--quiet", "0.2", "--pattern", "processor{rank}/{time}/**", "--remove-originals", folder=folder)
        self.expect(watcher, "removed", "cavity@0.5")
        self.end(watcher)
        self.assertEqual(sorted(os.listdir(folder / "processor0")), ["constant"])

    def test_a_file_that_was_being_removed_gets_its_name_back(self):
        self.write("run/restart.7.0", b"zero")
        self.write("run/.varve-removing/restart.7.1", b"one")
        watcher = self.watch("--quiet", "0.2", "--pattern", "restart.{step}.{rank}")
        self.expect(watcher, "saved", "run@7")
        self.end(watcher)
        self.assertEqual((self.run_folder / "restart.7.1").read_bytes(), b"one")
        self.assertEqual(self.facts("show", "run@7")["record"]["rank_count"], 2)

    def test_what_only_another_pattern_fits_is_told(self):
        self.write("run/restart.100", b"a")
        self.write("run/melt.50.restart.base", b"b")
        code, _, err = self.run_program("watch", self.run_folder, "--pattern", "lammps", "--quiet", "0.1", "--once")
        self.assertEqual(code, SUCCESS)
        self.assertIn("'*restart.{step}' is not watched", err)

    def test_files_without_a_step_are_saved_although_their_times_go_back(self):
        file = self.write("run/state.cpt", b"first")
        os.utime(file, (1_764_000_000, 1_764_000_000))
        watcher = self.watch("--quiet", "0.2", "--pattern", "gromacs")
        self.expect(watcher, "saved", "run@1764000000")
        file.write_bytes(b"second")
        os.utime(file, (1_763_000_000, 1_763_000_000))
        self.expect(watcher, "saved", "run@1764000001")
        self.end(watcher)
        self.varve("restore", "run", self.work / "back")
        self.assertEqual((self.work / "back/state.cpt").read_bytes(), b"second")

    def test_files_without_a_step_are_saved_whenever_they_have_changed(self):
        self.write("run/md.log", b"log")
        first = self.write("run/state.cpt", b"first")
        os.utime(first, (1_764_000_000, 1_764_000_000))
        watcher = self.watch("--quiet", "0.2", "--pattern", "gromacs")
        self.expect(watcher, "saved", "run@1764000000")
        new = self.write("run/state_new", b"second")
        os.utime(new, (1_764_000_060, 1_764_000_060))
        first.rename(self.run_folder / "state_prev.cpt")
        new.rename(first)
        self.expect(watcher, "saved", "run@1764000060")
        self.end(watcher)
        self.varve("restore", "run", self.work / "back")
        self.assertEqual(snapshot(self.work / "back").keys(), {b"state.cpt", b"state_prev.cpt"})
        self.assertEqual((self.work / "back/state.cpt").read_bytes(), b"second")
        self.fails(USAGE, "watch", self.run_folder, "--pattern", "gromacs", "--remove-originals")

    def test_very_many_small_files_share_an_arena(self):
        for i in range(2_000):
            self.write(f"frames/out1/frame.{i}", str(i).encode())
        folder = self.work / "frames" / "out1"
        self.assertIn("2000 numbers in names are not taken for ranks", self.varve("save", folder))
        record = self.facts("show", "frames@1")["record"]
        self.assertEqual((record["group_count"], record["rank_count"]), (1, 0))
        self.assertEqual(self.facts("save", folder, "--step", "2")["doubted_ranks"], 2000)
        told = self.facts("save", folder, "--step", "3", "--rank-regex", "([0-9]+)$")
        self.assertEqual((told["record"]["rank_count"], told["doubted_ranks"]), (2000, 0))
        self.assertIn("2000 numbers in names are not taken", self.varve("watch", folder.parent, "--explain"))


class Habits(WatchTest):
    def test_a_mistyped_command_is_understood(self):
        self.assertIn("did you mean `varve restore`?", self.fails(USAGE, "restor", "x"))
        self.assertIn("`varve help` lists", self.fails(USAGE, "frobnicate"))
        for word, meant in (("ls", "list"), ("checkout", "restore"), ("rm", "drop"), ("commit", "save"), ("gc", "prune"),
                            ("fsck", "verify"), ("pruen", "prune")):
            self.assertIn(f"did you mean `varve {meant}`?", self.fails(USAGE, word, "x"))

    def test_a_mistyped_option_is_understood(self):
        self.assertIn("did you mean `--exclude`?", self.fails(USAGE, "save", self.work, "--exclud", "x"))
        self.assertIn("did you mean `--keep-last`?", self.fails(USAGE, "prune", "--kepp-last=3", "--dry-run"))
        self.assertIn("did you mean `--version`?", self.fails(USAGE, "--verion"))
        said = self.fails(USAGE, "save", "--ste", "3", self.work)
        self.assertIn("no such option: --ste", said)
        self.assertIn("did you mean `--step`?", said)
        self.assertIn("`varve help save` shows", self.fails(USAGE, "save", self.work, "--frobnicate"))

    def test_what_a_command_cannot_do_is_refused(self):
        self.write("one/state.cpt")
        state = self.work / "one/state.cpt"
        for choice in (("--exclude", "*.cpt"), ("--include", "*.dat")):
            self.assertIn("patterns choose from a folder", self.fails(USAGE, "save", state, "--job", "one", *choice))
        self.varve("save", self.work / "one", "--job", "one", "--step", "1")
        self.assertIn("--keep-going", self.fails(USAGE, "restore", "one@1", "--tar", "--keep-going"))
        self.assertIn("`varve show one@1`", self.fails(USAGE, "list", "one@1"))
        for port in ("9118", "localhost:9118"):
            self.assertIn("go to a file", self.fails(USAGE, "stat", "--metrics", port))
        self.assertNotIn("init", self.fails(NOT_FOUND, "list", "--store", state))

    def test_a_rank_expression_that_fits_nothing_is_told(self):
        self.write("ranks/x.cpu0001")
        told = self.run_program("save", self.work / "ranks", "--step", "1", "--rank-regex", r"domain(\d+)")
        self.assertIn("fits no file", told[2].decode() if isinstance(told[2], bytes) else told[2])

    def test_a_folder_of_other_things_is_not_to_become_a_store(self):
        self.write("etc/passwd")
        said = self.fails(NOT_FOUND, "list", "--store", self.work / "etc")
        self.assertNotIn("init", said)
        self.assertIn("init", self.fails(NOT_FOUND, "list", "--store", self.work / "nothing"))

    def test_a_full_output_is_not_a_full_store(self):
        with open("/dev/full", "wb") as full:
            listed = self.start("list", stdout=full)
            said = listed.communicate()[1].decode()
        self.assertIn("standard output", said)
        self.assertNotIn("prune", said)

    def test_sets_are_kept_by_their_age(self):
        for step in range(1, 4):
            self.write("run/out/data", str(step).encode())
            self.varve("save", self.run_folder / "out", "--job", "run", "--step", str(step))
        kept = self.facts("prune", "--keep-within", "1h", "--dry-run")
        self.assertEqual(kept["dropped"], [])
        dropped = self.facts("prune", "--keep-daily", "1", "--keep-hourly", "1", "--dry-run")["dropped"]
        self.assertIn("run@1", dropped)
        self.assertNotIn("run@3", dropped)
        self.fails(USAGE, "prune", "--keep-daily", "0")


if __name__ == "__main__":
    unittest.main()
