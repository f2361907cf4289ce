"""What people say of sets: pins, tags, notes, another name; and the rules that go by it. What goes out as tar."""

import io
import json
import os
import pty
import subprocess
import tarfile
import unittest

from serving import ServeTest
from support import DAMAGED, EXISTS, FAILURE, HAS_TOML, NOT_FOUND, PROGRAM, SUCCESS, USAGE, ProgramTest, snapshot

HAS_TAR = os.environ.get("VARVE_WITH_TAR", "1") == "1"


class Remarks(ProgramTest):
    def setUp(self):
        super().setUp()
        for step in range(1, 5):
            self.write(f"run/dump{step:04}/data", os.urandom(40_000))
            self.varve("save", self.work / "run" / f"dump{step:04}")

    def names(self, *arguments):
        return [one["name"] for one in self.facts("list", *arguments)["sets"]]

    def test_pinned_sets_stay(self):
        self.assertEqual(self.varve("pin", "run@1"), "pinned run@1\n")
        said = self.fails(USAGE, "drop", "run@2", "run@1")
        self.assertIn("the set is pinned: run@1", said)
        self.assertIn("varve unpin run@1", said)
        self.assertEqual(len(self.names()), 4)
        self.varve("prune", "--keep-last", "1")
        self.assertEqual(self.names(), ["run@1", "run@4"])
        self.assertIn("pinned", self.varve("list"))
        self.assertEqual([one["pinned"] for one in self.facts("list")["sets"]], [True, False])
        self.assert_restores("run@1", self.work / "run" / "dump0001")
        self.assertEqual(self.varve("unpin", "run@1", "run@4"), "run@1 is no longer pinned\nrun@4 was not pinned\n")
        self.varve("drop", "run@1")
        self.assertEqual(self.names(), ["run@4"])
        self.fails(NOT_FOUND, "pin", "run@1")

    def test_tags_and_notes(self):
        self.varve("tag", "run@2", "best", "converged")
        self.assertEqual(self.varve("tag", "run@2"), "run@2: best, converged\n")
        self.varve("tag", "run@2", "converged", "--remove")
        self.assertEqual(self.facts("tag", "run@2"), {"set": "run@2", "tags": ["best"]})
        self.fails(USAGE, "tag", "run@2", "a b")
        self.varve("note", "run@2", "figure 3")
        self.assertEqual(self.varve("note", "run@2"), "figure 3\n")
        shown = self.varve("show", "run@2")
        self.assertIn("  tags     best\n  note     figure 3\n", shown)
        self.assertEqual(self.facts("show", "run@2")["note"], "figure 3")
        self.assertIn("no set has the tag: bets", self.fails(NOT_FOUND, "prune", "--keep-last", "1", "--keep-tag", "bets"))
        self.assertEqual(len(self.names()), 4)
        self.varve("prune", "--keep-last", "1", "--keep-tag", "best")
        self.assertEqual(self.names(), ["run@2", "run@4"])
        self.assertEqual(self.varve("note", "run@2", "--remove"), "run@2 has no note any more\n")
        self.assertEqual(self.varve("note", "run@2", "--remove"), "run@2 has no note\n")
        self.assertEqual(self.facts("note", "run@2", "--remove"), {"set": "run@2", "note": ""})
        self.varve("drop", "run@2")
        self.write("run/dump0002/data", b"another")
        self.varve("save", self.work / "run" / "dump0002")
        self.assertEqual(self.varve("tag", "run@2"), "run@2: no tags\n")

    def test_a_list_says_which_sets_have_a_note(self):
        self.varve("note", "run@1", "figure 3")
        self.varve("pin", "run@2")
        self.varve("tag", "run@2", "best")
        self.varve("note", "run@2", "figure 4")
        lines = [line.split() for line in self.varve("list").splitlines()]
        self.assertEqual(lines[0][-1], "tags")
        self.assertEqual((lines[1][-1], lines[2][-3:]), ("note", ["pinned,", "best,", "note"]))
        self.assertNotIn("note", lines[3])
        # Where the note itself is shown, or tags alone, there is no word of it.
        self.assertIn("  tags     pinned, best\n  note     figure 4\n", self.varve("show", "run@2"))
        self.assertEqual(self.varve("tag", "run@2"), "run@2: pinned, best\n")

    def test_a_note_comes_back_as_it_was_written(self):
        for note in ("one line", "two\nlines", "a tab\t and \x1b[31mred\x1b[0m", "it ends with a line\n", "Größe"):
            with self.subTest(note=note):
                self.varve("note", "run@1", note)
                self.assertEqual(self.varve("note", "run@1"), note if note.endswith("\n") else note + "\n")
                self.assertEqual(self.facts("note", "run@1")["note"], note)

    def test_a_note_plays_no_tricks_on_a_terminal(self):
        self.varve("note", "run@1", "two\nlines, \x1b[31mred")
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        process = self.start("note", "run@1", stdout=terminal)
        os.close(terminal)
        self.assertEqual((process.wait(timeout=60), process.stderr.read()), (SUCCESS, b""))
        process.stderr.close()
        self.assertEqual(os.read(ours, 1000).decode().replace("\r\n", "\n"), "two\nlines, \\x1b[31mred\n")

    def test_a_note_that_is_not_there_is_not_found(self):
        code, out, err = self.run_program("note", "run@1")
        self.assertEqual((code, out), (NOT_FOUND, b""))
        self.assertIn("varve: the set has no note: run@1\n", err)
        code, out, err = self.run_program("note", "run@1", "--json")
        self.assertEqual((code, out, json.loads(err)["error"]["code"]), (NOT_FOUND, b"", "not_found"))

    def test_sets_are_called_by_their_tags(self):
        self.write("run/final/data", b"the end")
        self.assertIn("saved run@5: ", self.varve("save", self.work / "run" / "final", "--job", "run", "--tag", "final"))
        self.assert_restores("run@final", self.work / "run" / "final")
        self.varve("tag", "run@2", "final")
        self.assertEqual(self.facts("show", "run@final")["record"]["name"], "run@5")
        self.varve("drop", "run@final")
        self.assertEqual(self.facts("show", "run@final")["record"]["name"], "run@2")
        self.fails(NOT_FOUND, "show", "run@first")
        self.fails(USAGE, "show", "run@a b")
        self.fails(USAGE, "tag", "run@2", "0.5")
        self.fails(USAGE, "save", self.work / "run" / "final", "--tag", "7")

    def test_a_tag_names_a_set_in_every_command(self):
        """What a program calls its set by a text is a tag."""
        folder = self.work / "run" / "before-merge"
        self.write("run/before-merge/data", b"before the branches meet")
        self.varve("save", folder, "--job", "run", "--tag", "before-merge")
        self.varve("init", self.work / "other")
        for arguments, said in ((("cat", "run@before-merge:data"), "before the branches meet"),
                                (("show", "run@before-merge"), "run@5: "),
                                (("diff", "run@4", "run@before-merge"), "run@4 → run@5: "),
                                (("restore", "run@before-merge", self.work / "back"), "restored run@5: "),
                                (("export", "run@before-merge:data:/data", "--to", self.work / "data.npy"), "exported run@5: "),
                                (("pin", "run@before-merge"), "pinned run@5"),
                                (("unpin", "run@before-merge"), "run@5 is no longer pinned"),
                                (("note", "run@before-merge", "text"), "text"),
                                (("tag", "run@before-merge"), "run@5: before-merge"),
                                (("push", "run@before-merge", "--to", self.work / "other"), "copied run@5 to "),
                                (("pull", "run@before-merge", "--from", self.store, "--to", self.work / "other"), "run@5 is in "),
                                (("list",), "before-merge"), (("drop", "run@before-merge"), "dropped run@5")):
            with self.subTest(arguments=arguments):
                self.assertIn(said, self.varve(*arguments))
        self.fails(NOT_FOUND, "cat", "run@before-merge:data")

    def test_as_many_as_there_is_room_for(self):
        would = self.varve("prune", "--max-size", "100K", "--dry-run")
        self.assertEqual(would, "would drop run@1\nwould drop run@2\n")
        self.varve("pin", "run@1")
        self.assertNotIn("more than", self.varve("prune", "--max-size", "100K"))
        self.assertEqual(self.names(), ["run@1", "run@4"])
        self.assertIn("more than --max-size 1 B: the newest set of each job", self.varve("prune", "--max-size", "1"))
        self.assertEqual(self.varve("prune", "--max-size", "1GiB", "--dry-run"), "would drop no set\n")

    def test_another_name(self):
        self.varve("pin", "run@1")
        self.varve("tag", "run@2", "best")
        self.varve("note", "run@2", "figure 3")
        self.varve("rename", "run", "heat")
        self.assertEqual(self.names(), [f"heat@{step}" for step in range(1, 5)])
        self.assert_restores("heat@3", self.work / "run" / "dump0003")
        self.assertEqual([(one["pinned"], one["tags"]) for one in self.facts("list")["sets"][:2]],
                         [(True, []), (False, ["best"])])
        self.assertEqual(self.varve("note", "heat@2"), "figure 3\n")
        self.varve("prune")
        self.assert_whole()
        self.fails(NOT_FOUND, "rename", "run", "other")
        self.fails(USAGE, "rename", "heat", "heat")
        self.fails(USAGE, "rename", "heat", "a/b")
        self.varve("save", self.work / "run" / "dump0001", "--job", "other", "--step", "2")
        self.fails(EXISTS, "rename", "heat", "other", "--join")
        self.assertEqual([name for name in self.names() if name.startswith("heat")],
                         [f"heat@{step}" for step in range(1, 5)])

    def test_two_jobs_become_one_only_when_told_to(self):
        self.varve("save", self.work / "run" / "dump0001", "--job", "other", "--step", "9")
        self.assertIn("--join", self.fails(EXISTS, "rename", "other", "run"))
        self.assertIn("other@9", self.names())
        self.varve("rename", "other", "run", "--join")
        self.assertEqual(self.names(), [f"run@{step}" for step in (1, 2, 3, 4, 9)])

    def test_a_sample_is_verified(self):
        self.assertIn("every byte of", self.varve("verify", "--sample", "50%"))
        self.fails(USAGE, "verify", "--sample", "0")
        self.assertEqual(self.facts("verify", "--sample", "0.000001%")["sampled_count"], 1, "a store is looked at")
        self.assertGreater(self.facts("verify", "--sample", "1")["checked_bytes"], 0)
        self.fails(USAGE, "verify", "--sample", "150%")
        self.fails(USAGE, "verify", "--sample", "5%", "--deep")
        facts = [self.facts("verify", "--sample", "0.9") for _ in range(4)]
        self.assertGreater(sum(one["sampled_count"] for one in facts), 0)

    def test_where_two_jobs_first_differ(self):
        for step in range(1, 5):
            contents = bytearray((self.work / "run" / f"dump{step:04}" / "data").read_bytes())
            if step > 2:
                contents[8 * step] ^= 1
            self.write(f"again/dump{step:04}/data", bytes(contents))
            self.varve("save", self.work / "again" / f"dump{step:04}")
        said = self.varve("diff", "--first", "run", "again")
        self.assertIn("run@3 and again@3 are the first that differ; 2 steps are the same before\n", said)
        self.assertIn("first in data: /data at [24]\n", said)
        facts = self.facts("diff", "--first", "run", "again")
        self.assertEqual((facts["equal_count"], facts["first"]["a"]), (2, "run@3"))
        self.assertEqual(facts["first"]["changes"][0]["first_changed"], 24)
        self.assertIn("4 steps are the same in all", self.varve("diff", "--first", "run", "run"))
        self.assertIsNone(self.facts("diff", "--first", "run", "run")["first"])
        self.fails(NOT_FOUND, "diff", "--first", "run", "none")

    def test_steps_that_are_the_same_are_not_read(self):
        """Where the trees decide, nothing else is looked at: here nothing else is whole."""
        arenas = []
        for step in range(1, 4):
            contents = (self.work / "run" / f"dump{step:04}" / "data").read_bytes()
            if step == 3:
                contents = contents[:24] + bytes([contents[24] ^ 1]) + contents[25:]
            self.write(f"again/dump{step:04}/data", contents)
            self.varve("save", self.work / "again" / f"dump{step:04}")
        for step in (1, 2):
            # Random bytes lie in their arena as they are.
            wanted = (self.work / "run" / f"dump{step:04}" / "data").read_bytes()[:100]
            arenas += [path for path in (self.store / "arenas").iterdir() if wanted in path.read_bytes()]
            for path in arenas[step - 1:]:
                contents = bytearray(path.read_bytes())
                at = contents.index(wanted)
                contents[at:at + 20_000:100] = bytes(byte ^ 1 for byte in contents[at:at + 20_000:100])
                path.chmod(0o600)
                path.write_bytes(contents)
        self.assertEqual(len(arenas), 2)
        for step in (1, 2):
            self.fails(DAMAGED, "cat", f"run@{step}:data")
        said = self.varve("diff", "--first", "run", "again")
        self.assertIn("run@3 and again@3 are the first that differ; 2 steps are the same before\n", said)
        self.assertIn("first in data: /data at [24]\n", said)

    def test_what_runs_are_told_holds_for_saves(self):
        environment = self.environment(VARVE_CODEC="store", VARVE_JOB="told")
        done = self.run_program("save", self.work / "run" / "dump0001", "--step", "9", "--json", environment=environment)
        code, out, err = done
        self.assertEqual(code, SUCCESS, err)
        record = json.loads(out)["record"]
        self.assertEqual((record["name"], record["policy"]), ("told@9", "store"))
        done = self.run_program("save", self.work / "run" / "dump0001", "--step", "10", "--json", "--effort", "fast",
                                environment=environment)
        self.assertNotEqual(json.loads(done[1])["record"]["policy"], "store")
        environment = self.environment(VARVE_EFFORT="much")
        done = self.run_program("save", self.work / "run" / "dump0001", "--step", "11", environment=environment)
        self.assertEqual(done[0], USAGE)
        self.assertIn("VARVE_EFFORT", self.text(done[2]))

    def test_what_levels_keep_does_not_hold_for_saves_to_a_store(self):
        """Nobody knows there what a level behind it is still owed."""
        environment = self.environment(VARVE_KEEP_LAST="1", VARVE_JOB="kept")
        for step in (1, 2):
            code, _, err = self.run_program("save", self.work / "run" / f"dump000{step}", environment=environment)
            self.assertEqual((code, err), (SUCCESS, ""))
        self.assertEqual([name for name in self.names() if name.startswith("kept")], ["kept@1", "kept@2"])

    @unittest.skipUnless(HAS_TOML, "built without TOML")
    def test_the_store_that_saves_are_told_is_that_of_all_commands(self):
        self.write("varve.toml", f'store = "{self.store}"\n'.encode())
        environment = self.environment(VARVE_STORE="")
        for arguments in (("save", self.work / "run" / "dump0001", "--step", "9"), ("list",), ("show", "run@9"),
                          ("find", "data"), ("verify",), ("restore", "run@9", self.work / "back"), ("drop", "run@9")):
            with self.subTest(arguments=arguments):
                code, _, err = self.run_program(*arguments, environment=environment)
                self.assertEqual((code, err), (SUCCESS, ""))
        self.assertEqual(self.names(), [f"run@{step}" for step in range(1, 5)])

    def test_levels_are_no_store_of_commands_that_have_one(self):
        environment = self.environment(VARVE_STORE="", VARVE_LEVELS=f"local:{self.work}/near")
        code, _, err = self.run_program("list", environment=environment)
        self.assertEqual(code, USAGE)
        self.assertIn("levels are named, and no store", err)
        self.assertIn("--store", err)

    @staticmethod
    def text(output):
        return output if isinstance(output, str) else output.decode()


@unittest.skipUnless(HAS_TAR, "built without libarchive")
class Archives(ProgramTest):
    def archive(self, *arguments):
        done = subprocess.run([PROGRAM, "restore", *map(str, arguments), "--tar"], capture_output=True,
                              env=self.environment(), check=False)
        self.assertEqual(done.returncode, SUCCESS, done.stderr)
        return done.stdout

    def test_a_set_goes_out_as_tar(self):
        folder = self.work / "run1"
        self.write("run1/sub/data", os.urandom(5_000_000))
        self.write("run1/empty", b"")
        self.write("run1/zeros", bytes(3_000_000))
        self.write("run1/" + "long" * 60, b"long name")
        os.symlink("sub/data", folder / "link")
        os.chmod(folder / "empty", 0o640)
        os.utime(folder / "sub" / "data", ns=(1, 1_700_000_000_123_456_789))
        self.varve("save", folder, "--job", "run", "--step", "1")
        back = self.work / "back"
        back.mkdir()
        subprocess.run(["tar", "-x", "-p", "-C", back], input=self.archive("run@1"), check=True)
        self.assertEqual(snapshot(back), snapshot(folder))
        with tarfile.open(fileobj=io.BytesIO(self.archive("run@1", "--files", "sub/*"))) as tar:
            self.assertEqual([name for name in tar.getnames() if name != "sub"], ["sub/data"])

    def test_a_pattern_that_matches_nothing_beside_others_is_told(self):
        self.write("run1/a.txt")
        self.varve("save", self.work / "run1", "--job", "run", "--step", "1")
        done = subprocess.run([PROGRAM, "restore", "run@1", "--tar", "--files", "*.txt", "--files", "*.tyx"], capture_output=True,
                              env=self.environment(), check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (SUCCESS, b"varve: warning: the pattern matches nothing in the set: *.tyx\n"))
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            self.assertEqual(tar.getnames(), ["a.txt"])

    def test_folders_keep_their_modes_and_times_whatever_group_their_files_are_of(self):
        folder = self.work / "run1"
        for rank in range(3):
            self.write(f"run1/sub/deeper/x.rank{rank}", os.urandom(1000))
        for path in ("sub/deeper", "sub"):
            os.chmod(folder / path, 0o555)
            os.utime(folder / path, ns=(1, 1_000_000_000_000_000_000))
        os.utime(folder / "sub" / "deeper" / "x.rank0", ns=(1, -14_182_939_750_000_000))
        self.varve("save", folder, "--job", "run", "--step", "1", "--group-size", "1")
        back = self.work / "back"
        back.mkdir()
        archive = self.archive("run@1")
        subprocess.run(["tar", "-x", "-p", "-C", back], input=archive, check=True)
        self.assertEqual(snapshot(back), snapshot(folder))
        for path in ("sub", "sub/deeper", "sub/deeper/x.rank0"):
            self.assertEqual((back / path).stat().st_mtime_ns, (folder / path).stat().st_mtime_ns, path)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            names = tar.getnames()
        self.assertEqual(sorted(names[-2:]), ["sub", "sub/deeper"])
        for path in ("sub", "sub/deeper"):
            os.chmod(folder / path, 0o755)
            os.chmod(back / path, 0o755)

    def test_what_makes_no_sense(self):
        self.write("run1/data")
        self.varve("save", self.work / "run1", "--job", "run", "--step", "1")
        self.fails(USAGE, "restore", "run@1")
        self.fails(USAGE, "restore", "run@1", self.work / "back", "--tar")
        self.fails(USAGE, "restore", "run@1", "--tar", "--json")
        self.assertIn("--tar", self.fails(USAGE, "restore", "run@1", "-"))
        self.assertFalse((self.work / "-").exists())

    def test_an_output_that_cannot_be_written_is_named(self):
        self.write("run1/data", os.urandom(100_000))
        self.varve("save", self.work / "run1", "--job", "run", "--step", "1")
        for redirection in (">/dev/full", ">&-"):
            with self.subTest(redirection=redirection):
                done = subprocess.run(["sh", "-c", f'"$0" restore run@1 --tar {redirection}', PROGRAM],
                                      stderr=subprocess.PIPE, env=self.environment(), check=False, text=True)
                self.assertEqual(done.returncode, FAILURE)
                self.assertIn("cannot write to standard output: ", done.stderr)
                self.assertNotIn("prune", done.stderr)

    def test_what_cannot_be_read_gives_an_archive_without_an_end(self):
        self.write("run1/data", os.urandom(6_000_000))
        self.varve("save", self.work / "run1", "--job", "run", "--step", "1")
        arena = max((self.store / "arenas").iterdir(), key=lambda path: path.stat().st_size)
        os.chmod(arena, 0o600)
        with open(arena, "r+b") as file:
            file.seek(arena.stat().st_size * 3 // 4)
            file.write(b"damaged" * 10)
        done = subprocess.run([PROGRAM, "restore", "run@1", "--tar"], capture_output=True, env=self.environment(), check=False)
        self.assertEqual(done.returncode, DAMAGED, done.stderr)
        unpacked = subprocess.run(["tar", "-t"], input=done.stdout, capture_output=True, check=False)
        self.assertNotEqual(unpacked.returncode, 0)

    def test_a_reader_that_goes(self):
        self.write("run1/data", os.urandom(30_000_000))
        self.varve("save", self.work / "run1", "--job", "run", "--step", "1")
        reading = subprocess.Popen([PROGRAM, "restore", "run@1", "--tar"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=self.environment())
        reading.stdout.read(1000)
        reading.stdout.close()
        said = reading.stderr.read().decode()
        reading.stderr.close()
        self.assertNotEqual(reading.wait(timeout=60), SUCCESS)
        self.assertNotIn("prune", said)


class RemarksOnAServer(ServeTest):
    def test_pins_and_tags_over_a_server(self):
        _, served = self.serve()
        self.write("run1/data", os.urandom(20_000))
        self.varve("save", self.work / "run1", "--job", "run", "--step", "1", "--store", served)
        self.varve("pin", "run@1", "--store", served)
        self.varve("pin", "run@1", "--store", served)
        self.varve("tag", "run@1", "best", "--store", served)
        self.varve("note", "run@1", "text", "--store", served)
        self.varve("note", "run@1", "another", "--store", served)
        self.assertEqual(self.varve("note", "run@1", "--store", served), "another\n")
        self.fails(USAGE, "drop", "run@1", "--store", served)
        self.varve("rename", "run", "other", "--store", served)
        self.varve("unpin", "other@1", "--store", served)
        self.varve("drop", "other@1", "--store", served)
        self.assertEqual(self.facts("list", "--store", served)["sets"], [])


if __name__ == "__main__":
    unittest.main()
