"""What goes wrong is said clearly, with the documented exit code, and does no harm."""

import errno
import json
import mmap
import os
import resource
import subprocess
import unittest

from support import (BUSY, DAMAGED, EXISTS, FAILURE, NOT_FOUND, PROGRAM, SAMPLE, SUCCESS, USAGE, ProgramTest,
                     compressible_bytes, default_signals, snapshot)

HAS_LZ4 = os.environ.get("VARVE_WITH_LZ4", "1") == "1"


class Usage(ProgramTest):
    @staticmethod
    def model(*wrong):
        """One command line that would be right without `wrong`."""
        right = ("--size", "1G", "--memory-bandwidth", "1G", "--io-bandwidth", "1G")
        return [("model", *(word for i in (0, 2, 4) if right[i] not in wrong for word in right[i:i + 2]), *wrong)]

    def test_wrong_command_lines_end_with_a_hint(self):
        for arguments in ((), ("frobnicate",), ("save",), ("save", "a", "b"), ("save", ".", "--no-such-option"),
                          ("save", ".", "--scheme", "clever"), ("save", ".", "--effort", "heroic"), ("save", ".", "--codec", "rot13"),
                          ("save", ".", "--effort", "fast", "--codec", "store"), ("save", ".", "--chunker", "fixed:3"),
                          ("save", ".", "--match", "("), ("save", ".", "--memory", "much"), ("save", ".", "--step", "-1"),
                          ("save", ".", "--step", "1.5"), ("save", ".", "--threads", "1000000"), ("save", "."), ("save", ".", "--group-size", "0"), ("save", ".", "--raw", "f63"),
                          ("save", ".", "--rank-regex", "("), ("save", ".", "--job", "a/b"), ("save", ".", "--job", ".."),
                          ("restore", "a@1"), ("restore", "a@x!", "b"), ("show", "a@1", "--rank", "x"), ("cat", "a@1"),
                          ("drop",), ("drop", "job"), ("prune", "--keep-last", "0"), ("prune", "--keep-last", "x"),
                          ("prune", "--job", "a"), ("prune", "--wait", "-1"), ("init", "x", "--score-bits", "8"), ("list", "--store"),
                          ("push", "a@1"), ("push", "--to", "x"), ("push", "a@1", "--all", "--to", "x"), ("push", "a@1", "--to", "x", "--recode", "rot13"),
                          ("push", "a@1", "--to", "x", "--bandwidth", "0"), ("push", "a@1", "--to", "x", "--quick", "--recode", "best"), ("pull", "a@1"),
                          ("model",), ("model", "--size", "1G", "--memory-bandwidth", "1G"), *self.model("--size", "0"), *self.model("--size", "1e20"),
                          *self.model("--io-bandwidth", "fast"), *self.model("--nodes", "1,,2"), *self.model("--nodes", "0"),
                          *self.model("--m", "0"), *self.model("--runtime", "5m"), *self.model("--checkpoints", "0"),
                          *self.model("--mtbf", "1h", "--node-mtbf", "1h")):
            with self.subTest(arguments=arguments):
                self.assertRegex(self.fails(USAGE, *arguments), r"^varve: \S")
        self.assertIn("hint:", self.fails(USAGE, "frobnicate"))

    def test_values_out_of_range_are_refused_with_the_range(self):
        self.write("saved/file")
        save = ("save", self.work / "saved")
        lz4 = (((*save, "--codec", "lz4:-1"), "0 to 12"),) if HAS_LZ4 else ()
        for arguments, said in (*lz4, ((*save, "--codec", "zstd:99"), "-7 to 22"), ((*save, "--codec", "gzip:50"), "1 to 12"),
                                ((*save, "--codec", "lorenzo+lzma:77"), "1 to 9"), ((*save, "--codec", "gzip:-1"), "1 to 12"),
                                ((*save, "--codec", "fpzip:3"), "no levels"),
                                ((*save, "--memory", "0"), "--memory: at least 16.0 MiB is wanted: 0"),
                                ((*save, "--memory", "1"), "--memory: at least 16.0 MiB is wanted: 1"),
                                (("restore", "job@1", "x", "--memory", "1M"), "--memory: at least 16.0 MiB is wanted: 1M"),
                                ((*save, "--block-bytes", "0"), "--block-bytes: 1 B to 1.00 GiB are wanted: 0"),
                                (("watch", self.work, "--ranks", "0"), "--ranks: at least 1 is wanted"),
                                (("watch", self.work, "--nodes", "0"), "--nodes: at least 1 is wanted"),
                                (("prune", "--wait", "abc"), "--wait: not a duration: abc"),
                                (("prune", "--rewrite-below", "2"), "--rewrite-below: a share is from 0 to 1, or from 0% to 100%: 2"),
                                (("prune", "--rewrite-below", "5x%"), "--rewrite-below: a share is from 0 to 1, or from 0% to 100%: 5x%"),
                                (("prune", "--wait", "2e9"), "--wait: seconds up to"),
                                (("model", "--m", "-1"), "--m: a number above 0 is wanted: -1"),
                                ((*save, "--rank-regex", "("), "--rank-regex: not a regular expression"),
                                (("watch", self.work, "--rank-regex", "("), "--rank-regex: not a regular expression"),
                                (("study", self.work, "--rank-regex", "("), "--rank-regex: not a regular expression")):
            with self.subTest(arguments=arguments):
                self.assertIn(said, self.fails(USAGE, *arguments))
        self.assertEqual(self.facts("list")["sets"], [])

    def test_an_unknown_codec_is_told_what_there_is(self):
        err = self.fails(USAGE, "save", self.write("saved/file").parent, "--codec", "rot13")
        self.assertRegex(err, r"store, paper.*: zstd,.*lzma,")
        self.assertNotIn("constant", err)

    def test_empty_names_are_refused(self):
        for arguments, name in ((("save", ""), "DIR"), (("restore", "job@1", ""), "DIR"), (("restore", "", "x"), "SET"),
                                (("cat", ""), "PART"), (("drop", ""), "SET"), (("watch", ""), "DIR")):
            with self.subTest(arguments=arguments):
                self.assertIn(f"varve: {name}: it is empty", self.fails(USAGE, *arguments))

    def test_a_store_that_is_not_used_is_refused(self):
        for command in (("model", "--size", "1G", "--memory-bandwidth", "1G", "--io-bandwidth", "1G"), ("status",),
                        ("seal", "x"), ("unmount", "x")):
            self.assertIn("takes no --store", self.fails(USAGE, "--store", self.store, *command))
        levels = f"local:{self.work}/near"
        for command in (("save", self.write("saved/file").parent), ("watch", self.work, "--once"), ("levels",)):
            with self.subTest(command=command):
                self.assertIn("--store", self.fails(USAGE, *command, "--levels", levels, "--store", self.store))
        self.assertFalse((self.work / "near").exists())

    def test_a_missing_store_name_is_explained(self):
        code, _, err = self.run_program("list", environment={"PATH": os.environ["PATH"]})
        self.assertEqual(code, USAGE)
        self.assertIn("VARVE_STORE", err)

    def test_a_missing_folder_is_told_before_a_missing_store(self):
        for name in ("no-such-run", "no-such-run/dump0007"):
            err = self.fails(NOT_FOUND, "save", self.work / name, "--store", self.work / "none")
            self.assertIn(str(self.work / name), err)
            self.assertNotIn("none", err)
        levels = self.work / "near"
        code, _, err = self.run_program("save", self.work / "no-such-run", "--levels", f"local:{levels}",
                                        environment={"PATH": os.environ["PATH"]})
        self.assertEqual(code, NOT_FOUND)
        self.assertFalse(levels.exists())
        err = self.fails(NOT_FOUND, "save", self.write("saved/file").parent, "--store", self.work / "none")
        self.assertIn(str(self.work / "none"), err)

    def test_errors_are_objects_with_json(self):
        for code, name, arguments in ((NOT_FOUND, "not_found", ("show", "nope@1")), (USAGE, "invalid_argument", ("prune", "--keep-last", "0")),
                                      (USAGE, "invalid_argument", ("save", ".", "--frobnicate"))):
            error = json.loads(self.fails(code, *arguments, "--json"))["error"]
            self.assertEqual(set(error), {"code", "message", "subject", "hint", "remedy", "remedy_argument"})
            self.assertEqual(error["code"], name)

    def test_a_program_learns_what_can_be_done(self):
        self.varve("save", self.write("saved/file").parent, "--job", "job", "--step", "1")
        for code, arguments, remedy, about in (
                (NOT_FOUND, ("show", "job@2"), "list_sets", ""),
                (EXISTS, ("save", self.work / "saved", "--job", "job", "--step", "1"), "choose_another_step", "job@1"),
                (NOT_FOUND, ("list", "--store", self.work / "none"), "create_store", str(self.work / "none")),
                (USAGE, ("drop", "job"), "none", "")):
            with self.subTest(arguments=arguments):
                error = json.loads(self.fails(code, *arguments, "--json"))["error"]
                self.assertEqual((error["remedy"], error["remedy_argument"]), (remedy, about))
        self.assertIn("`varve drop job@1`", self.fails(EXISTS, "save", self.work / "saved", "--job", "job", "--step", "1"))

    def test_a_file_in_place_of_a_folder_is_refused(self):
        path = self.write("saved/file")
        self.varve("save", self.work / "saved", "--job", "job", "--step", "1")
        self.assertIn("neither a folder nor a file", self.fails(USAGE, "save", "/dev/null"))
        self.assertIn("not a folder", self.fails(USAGE, "restore", "job@1", path))


class NotThere(ProgramTest):
    def test_what_does_not_exist_is_not_found(self):
        self.write("saved/file")
        self.varve("save", self.work / "saved", "--job", "job", "--step", "1")
        for arguments in (("list", "--store", self.work / "nowhere"), ("list", "--store", self.work / "saved"), ("list", "nojob"),
                          ("show", "job@2"), ("show", "nojob"), ("restore", "job@2", "x"), ("drop", "job@2"), ("diff", "job@1", "job@2"),
                          ("cat", "job@1:nofile"), ("cat", "job@1:file", "--variable", "none"), ("save", self.work / "nowhere"),
                          ("restore", "job@1", "x", "--rank", "77"), ("restore", "job@1", "x", "--files", "*.none"),
                          ("show", "job@1", "--files", "*.none"), ("push", "job@1", "--to", self.work / "nowhere"),
                          ("push", "job@2", "--to", self.store), ("push", "nojob", "--all", "--to", self.store),
                          ("pull", "job@1", "--from", self.work / "nowhere"), ("pull", "nojob", "--from", self.store), ("prune", "--job", "nojob", "--keep-last", "1")):
            with self.subTest(arguments=arguments):
                self.fails(NOT_FOUND, *arguments)
        self.assertFalse((self.work / "x").exists())

    def test_a_store_is_offered_to_be_made_only_where_that_helps(self):
        self.assertIn("varve init", self.fails(NOT_FOUND, "list", "--store", self.work / "nowhere"))
        for command in (("repair",), ("pull", "job@1")):
            self.assertNotIn("varve init", self.fails(NOT_FOUND, *command, "--from", self.work / "nowhere"))
        for location in ("http://x", "ftp://host/store"):
            err = self.fails(USAGE, "list", "--store", location)
            self.assertIn("tcp://", err)
            self.assertNotIn("varve init", err)
        for folder in (self.work / "nowhere", self.write("saved/file").parent):
            self.assertIn("no store here", self.fails(NOT_FOUND, "rebalance", "--store", folder))

    def test_what_exists_is_not_made_again(self):
        self.write("saved/file")
        self.varve("save", self.work / "saved", "--job", "job", "--step", "1")
        self.fails(EXISTS, "save", self.work / "saved", "--job", "job", "--step", "1")
        self.fails(EXISTS, "init", self.store)
        self.fails(EXISTS, "init", self.work / "saved")
        self.assertEqual(os.listdir(self.work / "saved"), ["file"])

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            process = self.start("list", stdout=full)
            self.assertIn(b"standard output", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, FAILURE)

    def test_why_output_cannot_be_written_is_said(self):
        self.write("saved/file", os.urandom(3_000_000))
        self.varve("save", self.work / "saved", "--job", "job", "--step", "1")
        with open("/dev/full", "wb") as full:
            process = self.start("cat", "job@1:file", stdout=full)
            self.assertIn(os.strerror(errno.ENOSPC), process.communicate(timeout=60)[1].decode())
        self.assertEqual(process.returncode, FAILURE)
        for command in (["cat", "job@1:file"], ["list"]):
            process = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, *command], env=self.environment(),
                                     cwd=self.work, stderr=subprocess.PIPE, timeout=60)
            self.assertIn(os.strerror(errno.EBADF), process.stderr.decode(), command)
            self.assertEqual(process.returncode, FAILURE)


class Changing(ProgramTest):
    def test_a_file_that_is_written_meanwhile_makes_the_save_busy(self):
        path = self.write("saved/file", compressible_bytes(24 << 20, seed=1))
        process = self.start("save", self.work / "saved", "--job", "job", "--step", "1", "--effort", "best", "--threads", "1")
        while process.poll() is None:
            with open(path, "r+b") as file:
                file.write(os.urandom(8))
        err = process.communicate()[1].decode()
        self.assertEqual(process.returncode, BUSY, err)
        self.assertIn("hint:", err)
        self.assertEqual(self.facts("list")["sets"], [])
        self.assert_whole()


    def test_a_file_that_is_written_through_a_mapping_makes_the_save_busy(self):
        path = self.write("saved/file", compressible_bytes(8 << 20, seed=1))
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            def write():
                for page in range(0, len(mapped), 4096):
                    mapped[page:page + 8] = os.urandom(8)
            mapped.flush()
            os.utime(path, ns=(0, 0))
            write()
            if os.stat(path).st_mtime_ns == 0:
                self.skipTest("this file system never notes writes through mappings")
            for _ in range(50):  # now each page is dirty: no write is noticed, until the kernel writes it back
                os.utime(path, ns=(0, 0))
                write()
                if os.stat(path).st_mtime_ns == 0:
                    break
            else:
                self.skipTest("the kernel writes pages back all the time")
            process = self.start("save", self.work / "saved", "--job", "job", "--step", "1", "--effort", "best",
                                 "--threads", "1")
            while process.poll() is None:
                write()
        err = process.communicate()[1].decode()
        self.assertEqual(process.returncode, BUSY, err)
        self.assertEqual(self.facts("list")["sets"], [])


class Scarce(ProgramTest):
    """With as little as a user may have."""

    def with_limit(self, kind, limit, *arguments, user=None):
        def restrict():
            default_signals()
            resource.setrlimit(kind, (limit, limit))
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
        process = subprocess.run([PROGRAM, *map(str, arguments)], env=self.environment(), cwd=self.work,
                                 preexec_fn=restrict, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
        return process.returncode, process.stderr.decode()

    def test_open_files_are_enough_for_many_ranks_and_threads(self):
        for rank in range(512):
            for variable in "abcd":
                self.write(f"saved/{rank}/{variable}.dat", os.urandom(2000))
        code, err = self.with_limit(resource.RLIMIT_NOFILE, 256, "save", self.work / "saved", "--job", "job", "--step", "1",
                                    "--group-size", "4", "--threads", "16")
        self.assertEqual(code, SUCCESS, err)
        code, err = self.with_limit(resource.RLIMIT_NOFILE, 256, "restore", "job@1", self.work / "back", "--threads", "16")
        self.assertEqual(code, SUCCESS, err)
        self.assertEqual(snapshot(self.work / "back"), snapshot(self.work / "saved"))

    def test_threads_that_are_refused_are_no_end(self):
        if os.geteuid() != 0:
            self.skipTest("only an administrator can become another user, who has no process")
        self.write("saved/file", os.urandom(8 << 20))
        self.work.chmod(0o755)
        user = 59_999
        for folder, _, files in os.walk(self.store):
            os.chown(folder, user, user)
            for name in files:
                os.chown(os.path.join(folder, name), user, user)
        saved = 0
        for limit in range(1, 16):
            code, err = self.with_limit(resource.RLIMIT_NPROC, limit, "save", self.work / "saved", "--job", "job", "--step",
                                        limit, user=user)
            self.assertIn(code, (SUCCESS, FAILURE), f"{limit}: {err}")
            self.assertNotIn("bug", err)
            saved += code == SUCCESS
        self.assertGreater(saved, 0)
        self.assert_whole()


class Damage(ProgramTest):
    """Flips bytes in stored data: nothing wrong is ever given out, and what is affected is named."""

    def setUp(self):
        super().setUp()
        self.good = self.work / "good"
        self.write("good/x.cpu0000", os.urandom(300_000))
        self.write("good/x.cpu0001", os.urandom(300_000))
        self.varve("save", self.good, "--job", "job", "--step", "1", "--codec", "store", "--group-size", "1")
        self.varve("save", SAMPLE / "DD0006")

    def arenas(self):
        return sorted((self.store / "arenas").glob("*.arena"), key=lambda path: path.stat().st_size)

    @staticmethod
    def flip(path, offset):
        contents = bytearray(path.read_bytes())
        contents[offset] ^= 0x40
        path.write_bytes(contents)

    def damage_one_rank(self):
        rank_data = (self.good / "x.cpu0001").read_bytes()
        for arena in self.arenas():
            at = arena.read_bytes().find(rank_data[100_000:100_100])
            if at >= 0:
                return self.flip(arena, at)
        self.fail("the data are in no arena")

    def test_is_found_by_a_deep_verify_which_names_the_files(self):
        self.damage_one_rank()
        code, out, _ = self.run_program("verify", "--deep", "--json")
        facts = json.loads(out)
        self.assertEqual((code, facts["whole"]), (DAMAGED, False))
        self.assertEqual(set(facts["damages"][0]), {"what", "affected_sets", "affected_files", "disposable"})
        self.assertEqual([damage["affected_files"] for damage in facts["damages"]], [["job@1:x.cpu0001"]])
        _, out, _ = self.run_program("verify", "--deep")
        self.assertIn("affects job@1", out.decode())

    def test_never_comes_out_of_restore_or_cat(self):
        self.damage_one_rank()
        self.fails(DAMAGED, "restore", "job@1", self.work / "back")
        self.assertFalse((self.work / "back").exists())
        code, out, _ = self.run_program("cat", "job@1:x.cpu0001")
        self.assertEqual(code, DAMAGED)
        self.assertTrue((self.good / "x.cpu0001").read_bytes().startswith(out))

    def test_costs_only_what_it_hit(self):
        self.damage_one_rank()
        code, out, err = self.run_program("restore", "job@1", self.work / "back", "--keep-going", "--json")
        self.assertEqual((code, json.loads(out)["lost_files"]), (DAMAGED, ["x.cpu0001"]))
        self.assertTrue(all("warning" in json.loads(line) for line in err.splitlines()))
        self.assertEqual(os.listdir(self.work / "back"), ["x.cpu0000"])
        self.assertEqual((self.work / "back" / "x.cpu0000").read_bytes(), (self.good / "x.cpu0000").read_bytes())
        self.varve("restore", "job@1", self.work / "one", "--rank", "0")
        self.assert_restores("implosion@6", SAMPLE / "DD0006")

    def test_carries_nothing_that_is_saved_after_it_was_found(self):
        for find in (("verify", "--deep"), ("restore", "job@1", self.work / "back"), ("cat", "job@1:x.cpu0001")):
            with self.subTest(find=find[0]):
                self.varve("save", self.good, "--job", "job", "--step", "7", "--codec", "store")
                self.damage_one_rank()
                self.assertEqual(self.run_program(*find)[0], DAMAGED)
                self.assertTrue(os.listdir(self.store / "condemned"))
                for step in (1, 7):
                    self.varve("drop", f"job@{step}")
                self.varve("save", self.good, "--job", "job", "--step", "1", "--codec", "store", "--group-size", "1")
                self.assert_restores("job@1", self.good)
                self.varve("prune")
                self.assertEqual(self.run_program("verify", "--deep")[0], 0)
                self.assert_restores("job@1", self.good)

    def test_of_a_part_of_a_set_s_tree_costs_what_that_lists(self):
        self.write("good/x.cpu0002", os.urandom(1000))
        self.varve("save", self.good, "--job", "job", "--step", "2", "--codec", "store", "--group-size", "1")
        # Of its last rank alone, whose tree lies with it.
        for arena in self.arenas():
            if (self.good / "x.cpu0002").read_bytes() in arena.read_bytes():
                os.remove(arena)
        self.assertIn("--keep-going", self.fails(DAMAGED, "restore", "job@2", self.work / "back"))
        self.assertFalse((self.work / "back").exists())
        code, out, _ = self.run_program("restore", "job@2", self.work / "back", "--keep-going", "--json")
        facts = json.loads(out)
        self.assertEqual((code, facts["lost_leaf_count"], facts["file_count"]), (DAMAGED, 1, 2))
        for name in ("x.cpu0000", "x.cpu0001"):
            whole = (self.good / name).read_bytes()
            self.assertEqual((self.work / "back" / name).read_bytes(), whole)
            self.assertEqual(self.run_program("cat", f"job@2:{name}")[:2], (0, whole))
        self.fails(DAMAGED, "cat", "job@2:x.cpu0002")
        code, out, _ = self.run_program("restore", "job@2", self.work / "one", "--keep-going", "--rank", "1")
        self.assertEqual((code, os.listdir(self.work / "one")), (DAMAGED, ["x.cpu0001"]))
        self.assertRegex(out.decode(), r"lost: 1 part of the set's list of files")
        code, out, _ = self.run_program("find", "x.cpu0001", "--job", "job", "--json")
        self.assertEqual((code, [file["set"] for file in json.loads(out)["files"]]), (DAMAGED, ["job@1", "job@2"]))

    def test_anywhere_never_gives_wrong_bytes(self):
        wanted = snapshot(SAMPLE / "DD0006")
        for arena in self.arenas():
            whole = arena.read_bytes()
            for part in range(12):
                self.flip(arena, (len(whole) - 1) * part // 11)
                code, _, err = self.run_program("restore", "implosion@6", self.work / "back")
                if code == 0:
                    self.assertEqual(snapshot(self.work / "back"), wanted)
                    os.system(f"rm -r '{self.work}/back'")
                else:
                    self.assertEqual(code, DAMAGED, err)
                    self.assertFalse((self.work / "back").exists())
                arena.write_bytes(whole)
        self.assert_whole()

    def test_of_a_record_leaves_the_other_sets(self):
        record = self.store / "sets" / "job" / "1.set"
        self.flip(record, record.stat().st_size // 2)
        code, out, err = self.run_program("list")
        self.assertEqual(code, DAMAGED)
        self.assertIn("implosion@6", out.decode())
        self.assertIn("job@1", err)
        self.assertEqual(self.run_program("verify")[0], DAMAGED)
        self.assert_restores("implosion@6", SAMPLE / "DD0006")
        self.varve("drop", "job@1")
        self.assert_whole()

    def test_of_a_missing_arena_is_named(self):
        os.remove(self.arenas()[-1])
        self.assertEqual(self.run_program("verify")[0], DAMAGED)
        self.fails(DAMAGED, "restore", "job@1", self.work / "back")
        # One of the two files is not of that arena.
        codes = [self.run_program("cat", f"job@1:x.cpu000{rank}")[0] for rank in range(2)]
        self.assertEqual(sorted(codes), [0, DAMAGED])
        for arguments in (("show", "job@1"), ("diff", "job@1", "implosion@6"),
                          ("push", "job@1", "--to", self.another_store())):
            with self.subTest(arguments=arguments):
                self.assertIn("hint:", self.fails(DAMAGED, *arguments))

    def another_store(self):
        self.varve("init", self.work / "other")
        return self.work / "other"

    def test_of_a_missing_arena_is_told_beside_what_the_store_saves(self):
        self.assertEqual(self.facts("stat")["damaged_sets"], [])
        os.remove(self.arenas()[-1])
        code, out, err = self.run_program("stat", "--json")
        self.assertEqual((code, json.loads(out)["damaged_sets"]), (DAMAGED, ["job@1"]))
        self.assertEqual(json.loads(err)["warning"]["code"], "corrupt")
        code, out, err = self.run_program("stat")
        self.assertEqual(code, DAMAGED)
        self.assertRegex(out.decode(), r"after compression +[0-9.]+ KiB +-\n")
        self.assertIn("1 set is not whole, beginning with job@1", err)

    def test_of_the_index_harms_nobody(self):
        for run in (self.store / "index").iterdir():
            self.flip(run, run.stat().st_size // 2)
        code, out, _ = self.run_program("verify", "--deep", "--json")
        self.assertEqual(code, 0)
        self.assertTrue(all(damage["disposable"] for damage in json.loads(out)["damages"]))
        self.varve("save", SAMPLE / "DD0006", "--job", "again")
        self.assert_whole()

    def test_of_the_header_is_said(self):
        self.flip(self.store / "varve.store", 20)
        self.fails(DAMAGED, "list")

    def test_of_a_header_that_is_lost_is_told_from_no_store(self):
        header = self.store / "varve.store"
        kept = header.read_bytes()
        header.unlink()
        for command in (("list",), ("save", self.good), ("rebalance",)):
            err = self.fails(DAMAGED, *command)
            self.assertIn("header is lost", err)
            self.assertIn("varve repair", err)
            self.assertNotIn("varve init", err)
        self.assertIn("header anew", self.varve("repair"))
        self.assertEqual(header.read_bytes(), kept)
        self.flip(header, 20)
        self.assertIn("varve repair", self.fails(DAMAGED, "list"))
        self.varve("repair")
        self.assertEqual(header.read_bytes(), kept)
        self.assert_whole()

    def test_of_a_tree_is_not_helped_by_going_on(self):
        for arena in self.arenas():
            os.remove(arena)
        self.assertIn("--keep-going", self.fails(DAMAGED, "restore", "job@1", self.work / "back"))
        err = self.fails(DAMAGED, "restore", "job@1", self.work / "back", "--keep-going")
        self.assertNotIn("--keep-going", err)
        self.assertIn("varve repair", err)


class Messages(ProgramTest):
    """What is written for people, and for what collects logs."""

    def said(self, *arguments, **changes):
        code, out, err = self.run_program(*arguments, environment=self.environment(**changes))
        return code, out if isinstance(out, str) else out.decode(), err if isinstance(err, str) else err.decode()

    def test_as_logfmt_and_as_json(self):
        code, _, err = self.said("show", "none@1", "--log", "logfmt")
        self.assertEqual(code, NOT_FOUND)
        self.assertRegex(err, r'^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ level=error msg="no such set" subject=none@1 code=not_found hint=".*"\n$')
        _, _, err = self.said("show", "none@1", VARVE_LOG="json")
        line = json.loads(err)
        self.assertEqual((line["level"], line["message"], line["code"]), ("error", "no such set", "not_found"))
        self.assertIn("time", line)
        code, _, err = self.said("show", "none@1", "--log", "xml")
        self.assertEqual(code, USAGE)
        self.assertIn("text, logfmt or json", err)

    def test_quiet_and_verbose(self):
        (self.work / "empty").mkdir()
        _, _, err = self.said("save", self.work / "empty", "--job", "run", "--step", "1")
        self.assertIn("warning", err)
        _, _, err = self.said("save", self.work / "empty", "--job", "run", "--step", "2", "-q")
        self.assertEqual(err, "")
        _, _, err = self.said("-q", "save", self.work / "empty", "--job", "run", "--step", "3")
        self.assertEqual(err, "")
        code, _, err = self.said("--log", "logfmt", "--store", self.store, "-v", "show", "none@1")
        self.assertEqual(code, NOT_FOUND)
        self.assertIn("level=error", err)
        _, _, err = self.said("verify", "-v")
        self.assertIn("varve: verifying\n", err)
        self.assertRegex(err, r"varve: verify has taken .* m?s\n$")

    def test_priorities_in_the_journal(self):
        with open(self.work / "journal", "w+b") as journal:
            status = os.fstat(journal.fileno())
            process = self.start("show", "none@1", stderr=journal,
                                 environment=self.environment(JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}"))
            process.communicate()
            journal.seek(0)
            self.assertRegex(journal.read().decode(), r"^<3>varve: no such set: none@1\n<3>  hint: ")


if __name__ == "__main__":
    unittest.main()
