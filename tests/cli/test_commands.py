"""Each command does what the guide says, for people and as JSON."""

import os
import pty
import random
import re
import select
import struct
import subprocess
import unittest

from support import HAS_HDF5, PROGRAM, SAMPLE, SUCCESS, USAGE, ProgramTest, snapshot

RECORD_KEYS = {"name", "job", "step", "number", "created_s", "scheme", "policy", "chunker", "match", "rank_count", "file_count",
               "raw_bytes", "new_bytes", "stored_bytes", "group_count"}


class Help(ProgramTest):
    COMMANDS = ("init", "save", "restore", "list", "show", "diff", "stat", "cat", "verify", "drop", "prune", "push",
                "pull", "model")

    def all_commands(self):
        text = self.varve("help").split("\nCommands:\n")[1].split("\n\n")[0]
        return [command for command in re.findall(r"^  (\S+)", text, re.MULTILINE) if command != "help"]

    def test_names_all_commands_and_exit_codes(self):
        text = self.varve("help")
        self.assertEqual(text, self.varve("--help"))
        self.assertLess(set(self.COMMANDS), set(self.all_commands()))
        for word in ("Exit codes", "  75 ", "  126 ", "  127 ", "  130 "):
            self.assertIn(word, text)

    def test_of_each_command_shows_an_example(self):
        for command in self.all_commands():
            with self.subTest(command=command):
                text = self.varve("help", command)
                self.assertEqual(text, self.varve(command, "--help"))
                self.assertIn(f"  varve {command}", text.split("Examples:")[1])

    def test_calls_the_same_things_the_same(self):
        """An option that several commands have takes a value of the same name."""
        values = {}
        for command in self.all_commands():
            for option, value in re.findall(r"^  (--(?:job|rank|files|threads|memory)) (\S+)", self.varve("help", command),
                                            re.MULTILINE):
                values.setdefault(option, set()).add(value)
        self.assertEqual(values, {"--job": {"NAME"}, "--rank": {"N"}, "--files": {"GLOB"}, "--threads": {"N"},
                                  "--memory": {"SIZE"}})
        for command in ("restore", "show", "export", "pin", "unpin", "tag", "note", "push", "pull", "diff"):
            with self.subTest(command=command):
                self.assertIn("JOB@STEP or JOB@TAG, or JOB for its newest set",
                              " ".join(self.varve("help", command).split()))

    def test_depends_neither_on_the_terminal_nor_on_the_environment(self):
        for command in self.COMMANDS:
            text = self.varve("help", command)
            for environment in ({"COLUMNS": "200"}, {"COLUMNS": "40", "LANG": "de_DE", "VARVE_STORE": "elsewhere"}):
                outcome = self.run_program("help", command, environment=environment)
                self.assertEqual(outcome, (SUCCESS, text.encode(), ""))

    def test_names_the_places_of_a_store(self):
        for command in ("save", "push", "repair", "mount"):
            self.assertIn("s3://BUCKET/PREFIX", " ".join(self.varve("help", command).split()))

    def test_tells_the_version(self):
        self.assertRegex(self.varve("--version"), r"^varve \d+\.\d+\.\d+\n$")


class Init(ProgramTest):
    def test_makes_a_store_with_long_scores(self):
        facts = self.facts("init", self.work / "other")
        self.assertEqual(set(facts), {"path", "id", "algorithm", "score_bits"})
        self.assertEqual(facts["score_bits"], 256)

    def test_makes_a_store_with_short_scores_that_works(self):
        self.store = self.work / "short"
        self.assertEqual(self.facts("init", "--score-bits", "160")["score_bits"], 160)
        self.varve("save", SAMPLE / "DD0005")
        self.assert_restores("implosion@5", SAMPLE / "DD0005")

    def test_takes_the_store_from_option_or_environment(self):
        code, _, _ = self.run_program("list", "--store", self.store, environment={"PATH": os.environ["PATH"]})
        self.assertEqual(code, SUCCESS)
        code, _, _ = self.run_program("--store", self.store, "list", environment={"PATH": os.environ["PATH"]})
        self.assertEqual(code, SUCCESS)


class WithThreeSets(ProgramTest):
    def setUp(self):
        super().setUp()
        self.reports = [self.facts("save", SAMPLE / f"DD000{step}") for step in (5, 6, 7)]


class Save(WithThreeSets):
    def test_reports_the_record_and_what_became_of_the_bytes(self):
        for report in self.reports:
            self.assertEqual(set(report), {"record", "variable_count", "pattern_bytes", "known_bytes", "copied_to",
                                           "seconds", "doubted_ranks"})
            record = report["record"]
            self.assertEqual(set(record), RECORD_KEYS)
            self.assertEqual(record["raw_bytes"], record["new_bytes"] + report["known_bytes"] + report["pattern_bytes"])
            self.assertLess(record["stored_bytes"], record["raw_bytes"] / 2)
        self.assertEqual([report["record"]["name"] for report in self.reports],
                         ["implosion@5", "implosion@6", "implosion@7"])

    def test_takes_the_name_that_is_given(self):
        self.assertEqual(self.facts("save", SAMPLE / "DD0005", "--job", "j", "--step", 3)["record"]["name"], "j@3")

    def test_counts_steps_where_the_folder_has_no_number(self):
        self.write("plain/a")
        names = [self.facts("save", self.work / "plain")["record"]["name"] for _ in range(2)]
        self.assertEqual(names, ["plain@0", "plain@1"])

    def test_stores_nothing_twice(self):
        again = self.facts("save", SAMPLE / "DD0007", "--job", "again")
        self.assertEqual(again["record"]["new_bytes"], 0)

    def test_takes_every_scheme_codec_and_chunker(self):
        choices = [("--scheme", name) for name in ("agnostic", "agnostic-block", "aware", "aware-block")]
        choices += [("--effort", name) for name in ("fast", "balanced", "best")]
        choices += [("--codec", name) for name in ("store", "zstd", "gzip", "lorenzo+shuffle+zstd:1")]
        choices += [("--codec", "paper")]
        choices += [("--match", name) for name in ("exact", "digits", "Grid[0-9]+")]
        choices += [("--chunker", name) for name in ("fixed:4096", "gear:4096", "rabin:1024,4096,16384")]
        choices += [("--block-bytes", "16KiB"), ("--memory", "64M"), ("--threads", "1"), ("--group-size", "3"),
                    ("--rank-regex", r"cpu(\d+)")]
        for step, (option, value) in enumerate(choices):
            store = self.work / "options"
            subprocess.run([PROGRAM, "init", store], check=True, stdout=subprocess.DEVNULL)
            self.store = store
            self.varve("save", SAMPLE / "DD0006", "--job", "options", "--step", step, option, value)
            self.assert_restores(f"options@{step}", SAMPLE / "DD0006")
            subprocess.run(["rm", "-r", store], check=True)

    def test_makes_one_arena_for_each_group(self):
        report = self.facts("save", SAMPLE / "DD0006", "--job", "grouped", "--group-size", "5")
        self.assertEqual(report["record"]["rank_count"], 16)
        self.assertEqual(report["record"]["group_count"], 4)

    def test_knows_plain_numbers_by_description(self):
        self.write("numbers/dump.bin", bytes(range(256)) * 32)
        self.varve("save", self.work / "numbers", "--job", "raw", "--step", "1", "--raw", "f64:16,64")
        (variable,) = self.facts("show", "raw@1")["files"][0]["variables"]
        self.assertEqual((variable["type"], variable["shape"]), ("F64LE", [16, 64]))
        self.assert_restores("raw@1", self.work / "numbers")

    def test_prints_one_short_paragraph(self):
        self.assertRegex(self.varve("save", SAMPLE / "DD0005", "--job", "text"),
                         r"^saved text@5: 19 files, 16 ranks, [\d.]+ MiB → [\d.]+ KiB stored \([\d.]+x\), [\d.]+ s\n  .*\n$")


class Restore(WithThreeSets):
    def test_brings_back_each_set(self):
        for step in (5, 6, 7):
            self.assert_restores(f"implosion@{step}", SAMPLE / f"DD000{step}")

    def test_takes_the_newest_where_no_step_is_named(self):
        facts = self.facts("restore", "implosion", self.work / "back")
        self.assertEqual(set(facts), {"set", "file_count", "raw_bytes", "read_bytes", "lost_files", "lost_leaf_count",
                                      "unnamed_file_count", "seconds"})
        self.assertEqual((facts["set"], facts["lost_files"]), ("implosion@7", []))

    def test_brings_back_one_rank(self):
        self.varve("restore", "implosion@6", self.work / "back", "--rank", "3")
        self.assertEqual(os.listdir(self.work / "back"), ["XX1000.cpu0003"])

    def test_brings_back_what_globs_match(self):
        self.varve("restore", "implosion@6", self.work / "back", "--files", "*.cpu000[12]", "--files", "*.boundary")
        self.assertEqual(sorted(os.listdir(self.work / "back")), ["XX1000.boundary", "XX1000.cpu0001", "XX1000.cpu0002"])

    def test_a_pattern_that_matches_nothing_beside_others_is_told(self):
        restore = ("restore", "implosion@6", self.work / "back", "--overwrite")
        show = ("show", "implosion@6")
        for command in (restore, show):
            for more, said in ((("--files", "*.typo", "--files", "*.cpu0001", "--files", "no/*"),
                                ["nothing in the set: *.typo", "nothing in the set: no/*"]),
                               (("--files", "*.boundary", "--files", "*.cpu000[3]", "--rank", "3"),
                                ["nothing of this rank: *.boundary"]),
                               (("--files", "*.cpu000[12]", "--files", "*.boundary"), [])):
                with self.subTest(command=command[0], more=more):
                    code, _, err = self.run_program(*command, *more)
                    self.assertEqual(code, SUCCESS)
                    self.assertEqual(err.splitlines(), ["varve: warning: the pattern matches " + one for one in said])
        self.assertEqual(sorted(os.listdir(self.work / "back")),
                         ["XX1000.boundary", "XX1000.cpu0001", "XX1000.cpu0002", "XX1000.cpu0003"])
        self.assertNotIn("warning", self.fails(3, *restore, "--files", "*.typo"))

    def test_a_pattern_with_an_open_bracket_is_refused(self):
        for glob in ("[", "x[]", "*.cpu000[12"):
            for command in (("restore", "implosion@6", self.work / "back", "--files"), ("show", "implosion@6", "--files"), ("find",)):
                with self.subTest(command=command[0], glob=glob):
                    self.assertIn("is not closed: " + glob, self.fails(USAGE, *command, glob))
        self.assertFalse((self.work / "back").exists())
        self.fails(3, "find", r"\[")

    def test_replaces_files_only_when_told_to(self):
        old = self.write("back/XX1000", b"precious")
        self.assertIn("there already", self.fails(5, "restore", "implosion@6", self.work / "back"))
        self.assertEqual(old.read_bytes(), b"precious")
        self.assertEqual(os.listdir(self.work / "back"), ["XX1000"])
        self.varve("restore", "implosion@6", self.work / "back", "--overwrite", "--no-sync")
        self.assertEqual(snapshot(self.work / "back"), snapshot(SAMPLE / "DD0006"))


class Look(WithThreeSets):
    def test_list_has_a_row_for_each_set(self):
        lines = self.varve("list").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["set", "implosion@5", "implosion@6", "implosion@7"])
        self.assertEqual([line.split()[1] for line in lines], ["made", "1", "2", "3"])
        sets = self.facts("list")["sets"]
        self.assertEqual(set(sets[0]), RECORD_KEYS | {"pinned", "tags", "has_note"})
        self.assertEqual(self.facts("list", "implosion")["sets"], sets)

    def test_sets_are_numbered_as_they_were_made(self):
        """Whatever their steps: a run that has gone back makes lower ones again."""
        self.varve("drop", "implosion@6")
        self.varve("save", SAMPLE / "DD0006")
        numbers = {one["name"]: one["number"] for one in self.facts("list")["sets"]}
        self.assertEqual(numbers, {"implosion@5": 1, "implosion@6": 4, "implosion@7": 3})
        self.assertEqual(self.facts("show", "implosion@6")["record"]["number"], 4)
        self.assertIn("implosion@6: 19 files,", self.varve("show", "implosion@6"))

    def test_times_have_their_zone(self):
        environment = self.environment(TZ="ABC-5")
        for arguments, count in ((("list",), 3), (("show", "implosion@6"), 1 + 19), (("find", "XX1000"), 3)):
            with self.subTest(arguments=arguments):
                code, out, _ = self.run_program(*arguments, environment=environment)
                self.assertEqual(code, SUCCESS)
                self.assertEqual(len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ABC\b", out.decode())), count)
                self.assertEqual(len(re.findall(r"\d\d:\d\d:\d\d", out.decode())), count)

    @unittest.skipUnless(HAS_HDF5, "built without HDF5")
    def test_show_accounts_for_every_byte(self):
        facts = self.facts("show", "implosion@6")
        self.assertEqual(set(facts), {"record", "pinned", "tags", "note", "pattern_bytes", "own_bytes", "shared_bytes", "shared_with", "files"})
        self.assertEqual(facts["own_bytes"] + facts["shared_bytes"] + facts["pattern_bytes"], facts["record"]["raw_bytes"])
        self.assertEqual(facts["shared_with"], {"implosion@5": facts["shared_bytes"]})
        file = next(file for file in facts["files"] if file["path"] == "XX1000.cpu0003")
        self.assertEqual(set(file), {"path", "type", "rank", "bytes", "modified_s", "format", "skeleton_bytes",
                                     "unnamed_variable_count", "variables"})
        self.assertEqual((file["rank"], file["format"]), (3, "hdf5"))
        density = next(variable for variable in file["variables"] if variable["name"].endswith("/Density"))
        self.assertEqual(set(density), {"name", "type", "shape", "class_key", "bytes", "encoded"})
        self.assertEqual((density["type"], density["shape"]), ("F32BE", [50, 50]))
        self.assertEqual(sum(variable["bytes"] for variable in file["variables"]) + file["skeleton_bytes"], file["bytes"])

    def test_show_names_the_earlier_sets_that_have_the_same_bytes(self):
        for step in range(1, 9):
            self.varve("save", SAMPLE / "DD0006", "--job", "again", "--step", step)
        facts = self.facts("show", "again@3")
        self.assertEqual(facts["own_bytes"], 0)
        self.assertLess({"again@1", "again@2"}, set(facts["shared_with"]))
        self.assertEqual(set(facts["shared_with"].values()) & {facts["shared_bytes"]}, {facts["shared_bytes"]})
        self.assertNotIn("again@4", facts["shared_with"])
        self.assertIn(" more (--json has all)", self.varve("show", "again@8"))
        self.varve("drop", "again@1", "implosion@5", "implosion@6", "implosion@7")
        facts = self.facts("show", "again@2")
        self.assertEqual((facts["shared_bytes"], facts["shared_with"]), (0, {}))
        facts = self.facts("show", "again@3")
        self.assertEqual((facts["own_bytes"], facts["shared_with"]), (0, {"again@2": facts["shared_bytes"]}))

    @unittest.skipUnless(HAS_HDF5, "built without HDF5")
    def test_show_narrows_to_files_and_lists_their_variables(self):
        text = self.varve("show", "implosion@6", "--rank", "3")
        self.assertIn("/Grid00000004/Density", text)
        self.assertNotIn("cpu0004", text)
        self.assertIn("/Grid#/Density_F32BE_Array2D", self.varve("show", "implosion@6"))

    @unittest.skipUnless(HAS_HDF5, "built without HDF5")
    def test_diff_tells_which_variables_changed_and_by_how_much(self):
        facts = self.facts("diff", "implosion@5", "implosion@6")
        self.assertEqual(set(facts), {"a", "b", "bytes", "changed_bytes", "same_count", "changes"})
        self.assertGreater(facts["changed_bytes"], 0)
        for change in facts["changes"]:
            self.assertEqual(set(change), {"file", "variable", "whole_file", "kind", "bytes", "old_bytes", "changed_bytes",
                                           "difference_max", "difference_rms", "first_changed"})
        density = [change for change in facts["changes"] if change["variable"].endswith("/Density")]
        self.assertTrue(all(change["difference_max"] > 0 for change in density))
        self.assertIn("/Density", self.varve("diff", "implosion@5", "implosion@6"))

    def test_diff_of_a_set_with_itself_is_empty(self):
        facts = self.facts("diff", "implosion@5", "implosion@5")
        self.assertEqual((facts["changes"], facts["changed_bytes"]), ([], 0))

    def test_diff_of_sets_of_different_schemes_compares_bytes(self):
        for step, scheme in enumerate(("agnostic", "aware"), start=1):
            self.varve("save", SAMPLE / "DD0006", "--job", "again", "--step", step, "--scheme", scheme)
        facts = self.facts("diff", "again@1", "again@2")
        self.assertEqual((facts["changes"], facts["changed_bytes"]), ([], 0))
        facts = self.facts("diff", "implosion@7", "again@1")
        self.assertTrue(0 < facts["changed_bytes"] <= facts["bytes"])

    def test_diff_gives_shares_of_what_there_was(self):
        one, two = struct.pack("<1000d", *range(1000)), struct.pack("<10d", *range(10))
        for step, contents in enumerate((one, two, b""), start=1):
            self.write("saved/x.bin", contents)
            self.varve("save", self.work / "saved", "--job", "job", "--step", step, "--raw", "f64")
        shrunk = self.varve("diff", "job@1", "job@2")
        self.assertIn("7.81 KiB → 80 B   99.0 %", shrunk)
        self.assertIn("7.73 KiB of 7.81 KiB differ (99.0 %)", shrunk)
        self.assertRegex(self.varve("diff", "job@1", "job@3"), r"\(whole file\) +changed +7.81 KiB → 0 B +100.0 %")

    def test_diff_says_what_is_not_finite(self):
        for step, value in enumerate((1.0, float("nan")), start=1):
            self.write("saved/x.bin", struct.pack("<1000d", *[value] * 1000))
            self.varve("save", self.work / "saved", "--job", "job", "--step", step, "--raw", "f64")
        self.assertRegex(self.varve("diff", "job@1", "job@2"), r"100.0 % +not finite +not finite")
        change = self.facts("diff", "job@1", "job@2")["changes"][0]
        self.assertEqual((change["difference_max"], change["difference_rms"]), (None, None))

    def test_stat_shrinks_at_each_stage(self):
        facts = self.facts("stat")
        self.assertEqual(set(facts), {"set_count", "arena_count", "raw_bytes", "distinct_bytes", "packed_bytes",
                                      "metadata_bytes", "index_bytes", "stored_bytes", "classes", "chains", "damaged_sets"})
        self.assertGreater(facts["raw_bytes"], facts["distinct_bytes"])
        self.assertGreater(facts["distinct_bytes"], facts["packed_bytes"])
        self.assertEqual(facts["stored_bytes"], facts["packed_bytes"] + facts["metadata_bytes"])
        for shares in (facts["classes"], facts["chains"]):
            self.assertEqual(sum(share["raw_bytes"] for share in shares.values()), facts["distinct_bytes"])
            self.assertEqual(sum(share["stored_bytes"] for share in shares.values()), facts["packed_bytes"])
        self.assertIn("after deduplication", self.varve("stat"))

    def test_cat_gives_a_file(self):
        code, out, _ = self.run_program("cat", "implosion@6:XX1000.cpu0003")
        self.assertEqual((code, out), (SUCCESS, (SAMPLE / "DD0006" / "XX1000.cpu0003").read_bytes()))
        _, out, _ = self.run_program("cat", "implosion:XX1000")
        self.assertEqual(out, (SAMPLE / "DD0007" / "XX1000").read_bytes())

    @unittest.skipUnless(HAS_HDF5, "built without HDF5")
    def test_cat_gives_a_variable(self):
        code, out, _ = self.run_program("cat", "implosion@6:XX1000.cpu0003", "--variable", "/Grid00000004/Density")
        self.assertEqual((code, len(out)), (SUCCESS, 50 * 50 * 4))
        self.assertIn(out, (SAMPLE / "DD0006" / "XX1000.cpu0003").read_bytes())

    def test_cat_finds_jobs_and_files_with_colons(self):
        for job, name in (("a", "b:file"), ("a:b", "file"), ("c:d", "file"), ("c:d", "x:y@2:z")):
            self.write(f"saved-{job}/{name}", f"{name} of {job}".encode())
        for job in ("a", "a:b", "c:d"):
            self.varve("save", self.work / f"saved-{job}", "--job", job, "--step", 1)
        self.assertEqual(self.varve("cat", "a:b@1:file"), "file of a:b")
        self.assertEqual(self.varve("cat", "a@1:b:file"), "b:file of a")
        self.assertEqual(self.varve("cat", "c:d:file"), "file of c:d")
        self.assertEqual(self.varve("cat", "c:d:x:y@2:z"), "x:y@2:z of c:d")
        self.assertIn("JOB@STEP:FILE", self.fails(2, "cat", "a:b:file"))
        self.fails(3, "cat", "a:b@2:file")
        self.fails(3, "cat", "e:f:file")

    def test_cat_says_how_several_files_go_out(self):
        for code, arguments in ((2, ("cat", "implosion@6:XX1000", "implosion@6:XX1000.boundary")),
                                (2, ("cat", "implosion@6:XX1000", "--tar")), (2, ("cat", "implosion@6"))):
            with self.subTest(arguments=arguments):
                self.assertIn("`varve restore SET --tar", self.fails(code, *arguments))
        self.assertIn("`varve restore implosion@6 --tar --files '*.cpu000?'`", self.fails(3, "cat", "implosion@6:*.cpu000?"))

    def test_cat_shows_a_bar_unless_the_bytes_go_to_a_terminal(self):
        self.write("saved/large", random.Random(1).randbytes(40 << 20))
        self.varve("save", self.work / "saved", "--job", "large", "--step", 1, "--codec", "store")
        ours, terminal = pty.openpty()
        self.addCleanup(os.close, ours)
        process = self.start("cat", "large@1:large", stderr=terminal, environment=self.environment(TERM="xterm"))
        os.close(terminal)
        shown = b""
        while b"reading" not in shown:  # it waits for the reader of the pipe
            self.assertTrue(select.select([ours], [], [], 60)[0], shown)
            shown += os.read(ours, 65536)
        self.assertEqual(len(process.stdout.read()), 40 << 20)
        self.assertEqual(process.wait(timeout=60), SUCCESS)
        process.stdout.close()

    def test_verify_counts_what_it_checked(self):
        for deep in ((), ("--deep",)):
            facts = self.facts("verify", *deep)
            self.assertEqual(set(facts), {"whole", "set_count", "arena_count", "pack_count", "checked_bytes", "sampled_count", "damages"})
            self.assertEqual((facts["whole"], facts["set_count"], facts["damages"]), (True, 3, []))
        self.assertIn("no damage", self.varve("verify"))


class Retention(WithThreeSets):
    def names(self):
        return [record["name"] for record in self.facts("list")["sets"]]

    def test_drop_removes_what_is_named_and_nothing_else(self):
        self.assertEqual(self.facts("drop", "implosion@5", "implosion@7"), {"dropped": ["implosion@5", "implosion@7"]})
        self.assertEqual(self.names(), ["implosion@6"])
        self.assert_restores("implosion@6", SAMPLE / "DD0006")

    def test_drop_removes_nothing_if_one_name_is_wrong(self):
        self.fails(3, "drop", "implosion@5", "implosion@8")
        self.assertEqual(len(self.names()), 3)

    def test_prune_keeps_by_the_rule_and_gives_back_space(self):
        for step in range(8, 12):
            self.varve("save", SAMPLE / "DD0005", "--job", "other", "--step", step)
        would = self.facts("prune", "--keep-last", "1", "--keep-every", "5", "--dry-run")
        self.assertEqual(len(self.names()), 7)
        facts = self.facts("prune", "--keep-last", "1", "--keep-every", "5")
        self.assertEqual(set(facts), {"dropped", "dry_run", "removed_arenas", "rewritten_packs", "leftover_files",
                                      "waiting_arenas", "bytes_before", "bytes_after"})
        self.assertEqual(facts["dropped"], would["dropped"])
        self.assertEqual({key for key in would if would[key] is None}, set(facts) - {"dropped", "dry_run"}, "not known")
        self.assertEqual(self.names(), ["implosion@5", "implosion@7", "other@10", "other@11"])
        self.assertLess(facts["bytes_after"], facts["bytes_before"])
        self.assert_restores("implosion@7", SAMPLE / "DD0007")
        self.assert_restores("other@10", SAMPLE / "DD0005")
        self.assert_whole()

    def test_prune_of_one_job_leaves_the_others(self):
        self.varve("save", SAMPLE / "DD0005", "--job", "other", "--step", "1")
        self.varve("save", SAMPLE / "DD0006", "--job", "other", "--step", "2")
        self.assertEqual(self.facts("prune", "--job", "other", "--keep-last", "1")["dropped"], ["other@1"])
        self.assertEqual(len(self.names()), 4)

    def test_prune_without_a_rule_drops_no_set(self):
        self.assertEqual(self.facts("prune")["dropped"], [])
        self.assertEqual(len(self.names()), 3)

    def test_prune_never_drops_the_newest_set_of_a_job(self):
        self.assertEqual(self.facts("prune", "--keep-every", "5")["dropped"], ["implosion@6"])
        self.assertEqual(self.names(), ["implosion@5", "implosion@7"])

    def test_prune_rewrites_what_the_share_says(self):
        self.varve("drop", "implosion@5", "implosion@6")
        before = self.facts("prune", "--rewrite-below", "0")["bytes_after"]
        for share in ("100%", "1", "0.5"):
            facts = self.facts("prune", "--rewrite-below", share)
            self.assertLessEqual(facts["bytes_after"], before)
        self.assert_restores("implosion@7", SAMPLE / "DD0007")
        self.assert_whole()

    def test_an_emptied_store_takes_hardly_any_space(self):
        self.varve("drop", "implosion@5", "implosion@6", "implosion@7")
        self.assertEqual(self.facts("prune")["bytes_after"], 0)
        self.assertIn("no sets", self.varve("list"))


class Model(ProgramTest):
    PAPER = ("--memory-bandwidth", "40GB/s", "--io-bandwidth", "3GB/s")

    def test_agrees_with_the_papers_own_number(self):
        """Shahzad et al., section VI: n=2, S=6.25 GB, B_M=40 GB/s, m=7 give 2.2 s."""
        (node,) = self.facts("model", "--size", "6.25GB", *self.PAPER, "--checkpoints", 2, "--m", 7)["nodes"]
        self.assertAlmostEqual(node["asynchronous_seconds"], 2.1875)
        self.assertAlmostEqual(node["synchronous_seconds"], 2 * 6.25 / 3)
        self.assertIn("2.19 s", self.varve("model", "--size", "6.25GB", *self.PAPER, "--checkpoints", 2))

    def test_counts_in_either_kind_of_unit(self):
        binary = self.facts("model", "--size", "6.25G", "--memory-bandwidth", "40G", "--io-bandwidth", "3G")["nodes"][0]
        decimal = self.facts("model", "--size", "6.25GB", *self.PAPER)["nodes"][0]
        self.assertAlmostEqual(binary["asynchronous_seconds"], decimal["asynchronous_seconds"])
        self.assertEqual(binary["checkpoint_bytes"], int(6.25 * 2**30))

    def test_scales_sizes_but_not_the_file_system(self):
        facts = self.facts("model", "--size", "4GB", *self.PAPER, "--checkpoints", 4, "--runtime", "1h", "--nodes", "1,2,128")
        one, two, many = facts["nodes"]
        self.assertEqual([node["node_count"] for node in facts["nodes"]], [1, 2, 128])
        self.assertAlmostEqual(two["synchronous_seconds"], 2 * one["synchronous_seconds"])
        self.assertAlmostEqual(many["synchronous_seconds"], 4 * 128 * 4 / 3)
        self.assertAlmostEqual(many["asynchronous_seconds"], one["asynchronous_seconds"])
        self.assertEqual(many["asynchronous_checkpoints_max"], 21)
        self.assertAlmostEqual(many["synchronous_share"], 4 * 128 * 4 / 3 / 3600)

    def test_makes_intervals_shorter_where_failures_are_more_frequent(self):
        facts = self.facts("model", "--size", "4GB", *self.PAPER, "--nodes", "1,100", "--node-mtbf", "100d")
        one, many = facts["nodes"]
        self.assertAlmostEqual(many["mean_time_between_failures"], 86400)
        self.assertLess(many["asynchronous_interval_seconds"], one["asynchronous_interval_seconds"])
        self.assertGreaterEqual(many["asynchronous_interval_seconds"], many["write_seconds"])
        self.assertLess(many["asynchronous_waste"], many["synchronous_waste"])

    def test_says_where_checkpoints_would_wait_for_one_another(self):
        arguments = ("model", "--size", "4GB", *self.PAPER, "--checkpoints", 30, "--nodes", "1,64,128")
        self.assertTrue(self.varve(*arguments).endswith("on 128 nodes, asynchronous checkpoints would have to wait for one another\n"))

    def test_needs_no_store(self):
        code, _, err = self.run_program("model", "--size", "1G", "--memory-bandwidth", "1G", "--io-bandwidth", "1G",
                                        environment={"PATH": os.environ["PATH"]})
        self.assertEqual((code, err), (SUCCESS, ""))


if __name__ == "__main__":
    unittest.main()
