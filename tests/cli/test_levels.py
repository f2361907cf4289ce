"""One contract for all kinds of levels: what works on a folder works on servers, on several, and between any two; what is
damaged on one level comes back from each of the others."""

import json
import os
import shutil
import subprocess
import time
import unittest

from serving import HAS_TLS, KINDS, LevelsTest
from support import DAMAGED, EXISTS, FAILURE, HAS_TOML, NOT_FOUND, PROGRAM, SAMPLE, SUCCESS, USAGE, default_signals



class EveryKindOfLevel(LevelsTest):
    def test_does_all_that_a_store_does(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                self.use(self.make_level(kind), self.key)
                self.varve("save", SAMPLE / "DD0005")
                self.varve("save", SAMPLE / "DD0006")
                self.assertEqual(self.facts("save", SAMPLE / "DD0006", "--job", "again")["record"]["new_bytes"], 0)
                self.assert_restores("implosion@5", SAMPLE / "DD0005")
                self.varve("drop", "implosion@5")
                self.varve("prune")
                self.assert_whole()
                self.assert_restores("again@6", SAMPLE / "DD0006")
                self.varve("drop", "implosion@6", "again@6")
                self.varve("prune")
                self.assertEqual(self.facts("stat")["stored_bytes"] if "stored_bytes" in self.facts("stat") else 0, 0)

    def test_gives_and_takes_sets(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                level = self.make_level(kind)
                self.use(self.store, self.key)
                if not self.facts("list")["sets"]:
                    self.varve("save", SAMPLE / "DD0006")
                self.varve("push", "implosion@6", "--to", level)
                self.assertIn("already", self.varve("push", "implosion@6", "--to", level))
                other = self.work / f"from_{kind}"
                self.varve("init", other)
                self.varve("pull", "implosion@6", "--from", level, "--to", other)
                self.use(other, self.key)
                self.assert_restores("implosion@6", SAMPLE / "DD0006")

    def test_is_repaired_from_every_other_kind(self):
        for damaged in KINDS:
            for source in KINDS:
                if source == damaged and source != "folder":
                    continue
                with self.subTest(damaged=damaged, source=source):
                    here = self.make_level(damaged, f"{damaged}-repaired-from-{source}")
                    there = self.make_level(source, f"{source}-repairing-{damaged}")
                    self.use(here, self.key)
                    self.varve("save", SAMPLE / "DD0006")
                    self.varve("push", "implosion@6", "--to", there)
                    self.damage(here)
                    self.fails(DAMAGED, "verify", "--deep")
                    self.fails(DAMAGED, "repair")
                    repaired = self.facts("repair", "--from", there)
                    self.assertTrue(repaired["whole"], repaired)
                    self.assertEqual(repaired["mended_sets"], ["implosion@6"])
                    self.assert_whole()
                    self.assert_restores("implosion@6", SAMPLE / "DD0006")
                    self.stop_all()
                    self.servers.clear()

    def test_is_mended_in_part_if_nobody_has_the_rest(self):
        here, there = self.make_level("folder", "here"), self.work / "there"
        self.use(here)
        newest = []
        for step in range(3):
            self.write(f"state/{step}", os.urandom(100_000))
            known = self.arenas(here)
            self.varve("save", self.work / "state", "--job", "run", "--step", step)
            newest += [arena.name for arena in self.arenas(here) if arena not in known]
        self.assertEqual(len(newest), 3, "each save has one new file")
        shutil.copytree(here, there)
        for arena in [*self.arenas(here), there / "arenas" / newest[1]]:
            raw = bytearray(arena.read_bytes())
            raw[50_000] ^= 1
            arena.write_bytes(raw)
        code, out, said = self.run_program("repair", "--from", there)
        self.assertEqual(code, DAMAGED)
        self.assertIn("1 set mended, 1 in part; 1 damage left, 1 of which affects a set", out.decode())
        self.assertIn("run@2 cannot be mended completely", said)
        code, out, _ = self.run_program("repair", "--from", there, "--json")
        self.assertEqual((code, json.loads(out)["mended"], json.loads(out)["partly_mended_sets"]), (DAMAGED, [], []))

    def test_fails_cleanly_without_one_of_its_servers(self):
        for kind in ("unix", "two_unix", *(["three_tcp"] if HAS_TLS else [])):
            with self.subTest(kind=kind):
                first = len(self.servers)
                self.use(self.make_level(kind), self.key)
                self.varve("save", SAMPLE / "DD0005")
                self.servers[-1].kill()
                self.servers[-1].wait()
                for command in (["save", SAMPLE / "DD0006"], ["restore", "implosion@5", self.work / "out"]):
                    code, _, said = self.run_program(*command)
                    self.assertNotEqual(code, SUCCESS)
                    self.assertIn("server", said)
                self.assertFalse((self.work / "out" / "DD0005").exists())
                for server in self.servers[first:]:
                    server.kill()


class MakingAStoreOnSeveralServers(LevelsTest):
    def test_refuses_a_server_that_is_named_twice_and_writes_nothing(self):
        folder = self.work / "place"
        _, address = self.serve("--place", listen=f"unix:{folder}.socket", folder=folder)
        alias = self.work / "alias.socket"
        alias.symlink_to(f"{folder}.socket")
        path = address.removeprefix("unix:")
        for twice in (f"unix:{path},{path}", f"unix:{path},{alias}"):
            said = self.fails(USAGE, "init", twice)
            self.assertIn("two of these servers are the same", said)
        self.assertEqual(list(folder.iterdir()), [])
        self.varve("init", f"unix:{path}")


class DamageOnOneOfSeveralServers(LevelsTest):
    def test_is_told_of_the_server_where_it_is(self):
        location = self.make_level("two_unix")
        self.use(location)
        self.varve("save", SAMPLE / "DD0006", "--codec", "store", "--scheme", "agnostic", "--chunker", "fixed:4096")
        first, second = self.folders[location]
        damaged, = (second / "arenas").glob("*.arena")
        raw = bytearray(damaged.read_bytes())
        raw[len(raw) // 3] ^= 1
        damaged.write_bytes(raw)
        other = self.work / "other"
        self.varve("init", other)
        for command in (["verify", "--deep"], ["restore", "implosion@6", self.work / "out"], ["push", "implosion@6", "--to", other]):
            _, out, said = self.run_program(*command)
            said += out.decode()
            self.assertIn(f"unix:{second}.socket/arenas/{damaged.name}", said, command)
            self.assertNotIn(f"unix:{first}.socket/arenas", said, command)


class IndexOfSeveralServers(LevelsTest):
    def test_is_made_anew_where_it_was_lost(self):
        for kind in ("two_unix", *(["three_tcp"] if HAS_TLS else [])):
            with self.subTest(kind=kind):
                location = self.make_level(kind)
                self.use(location, self.key)
                self.varve("save", SAMPLE / "DD0006")
                for number, folder in enumerate(self.folders[location]):
                    self.assertTrue(list((folder / "index").glob("*.run")), "each has its share")
                    shutil.rmtree(folder / "index")
                    again = self.facts("save", SAMPLE / "DD0006", "--job", f"again{number}")
                    self.assertEqual(again["record"]["new_bytes"], 0)
                    self.assertTrue(list((folder / "index").glob("*.run")))
                self.assert_whole()


class Rebalancing(LevelsTest):
    def test_spreads_a_store_over_new_servers(self):
        location = self.make_level("unix")
        self.use(location, self.key)
        for step in (5, 6, 7):
            self.varve("save", SAMPLE / f"DD000{step}")
        folder = self.work / "added"
        _, address = self.serve("--place", listen=f"unix:{folder}.socket", folder=folder)
        both = f"{location},{address.removeprefix('unix:')}"
        self.use(both, self.key)
        self.assertIn("place", self.fails(USAGE, "list"))
        report = self.facts("rebalance")
        self.assertEqual(report["arenas"], 3)
        self.assertEqual(len(report["bytes_of_places"]), 2)
        self.folders[both] = [*self.folders[location], folder]
        self.assertEqual(len(self.arenas(both)), 3)
        self.assertEqual(len(list((folder / "arenas").glob("*.arena"))), report["moved_arenas"])
        self.assertGreater(report["moved_arenas"], 0)
        sizes = [[arena.stat().st_size for arena in (place / "arenas").glob("*.arena")] for place in self.folders[both]]
        self.assertEqual(report["bytes_of_places"], [sum(arenas) for arenas in sizes])
        self.assertLessEqual(abs(sum(sizes[0]) - sum(sizes[1])), min(sizes[0] if sum(sizes[0]) > sum(sizes[1]) else sizes[1]))
        self.assertEqual(self.facts("rebalance")["moved_arenas"], 0)
        for step in (5, 6, 7):
            self.assert_restores(f"implosion@{step}", SAMPLE / f"DD000{step}")
        self.assert_whole()
        self.assertTrue(list((folder / "index").glob("*.run")), "the new server knows its share at once")
        self.assertEqual(self.facts("save", SAMPLE / "DD0006", "--job", "again")["record"]["new_bytes"], 0)
        self.varve("save", SAMPLE / "DD0006", "--job", "spread", "--codec", "store", "--scheme", "agnostic", "--chunker", "fixed:4096")
        self.assertGreater(len(list((folder / "arenas").glob("*.arena"))), report["moved_arenas"], "both get some")
        self.use(location, self.key)
        self.assertIn("2 places", self.fails(USAGE, "list"))


class SavingToLevels(LevelsTest):
    def levels(self, near, far):
        return f"local:{near} keep=2; dir:{far} every=3"

    def test_goes_where_the_command_line_says_whatever_else_says(self):
        asked, other, folder = self.work / "asked", self.work / "other", self.work / "run"
        levels = f"dir:{asked}"
        shutil.copytree(SAMPLE / "DD0007", folder / "DD0007")
        self.environment = lambda **changes: {**os.environ, "VARVE_STORE": str(other), "VARVE_LEVELS": f"dir:{other}", **changes}
        for step, said in enumerate((None, *((f'levels = ["dir:{other}"]', f'store = "{other}"') if HAS_TOML else ()))):
            if said:
                self.write("varve.toml", said.encode())
            self.varve("save", SAMPLE / "DD0005", "--job", "run", "--step", step, "--levels", levels)
            self.assertIn(f"run@{step}", self.varve("list", "--store", asked))
            self.assertEqual([level["level"] for level in self.facts("levels", "--levels", levels)["levels"]], [levels])
            self.varve("watch", folder, "--job", f"watched{step}", "--levels", levels, "--quiet", "0", "--once")
            self.assertIn(f"watched{step}@7", self.varve("list", "--store", asked))
            self.assertFalse(other.exists())

    def test_copies_as_often_as_it_says_and_keeps_what_it_says(self):
        near, far = self.work / "near", self.work / "far"
        self.environment = lambda **changes: {name: value for name, value in os.environ.items() if not name.startswith("VARVE_STORE")}
        folder = self.work / "state"
        copied = []
        for step in range(1, 8):
            self.write(folder / "state.bin", os.urandom(200_000))
            saved = self.facts("save", folder, "--job", "run", "--step", step, "--levels", self.levels(near, far))
            copied.append([entry["level"] for entry in saved["copied_to"]])
        self.assertEqual([bool(levels) for levels in copied], [False, False, True, False, False, True, False])
        near_sets = [entry["name"] for entry in self.facts("list", "--store", near)["sets"]]
        far_sets = [entry["name"] for entry in self.facts("list", "--store", far)["sets"]]
        self.assertEqual(far_sets, ["run@3", "run@6"])
        self.assertEqual(near_sets, ["run@6", "run@7"])
        shown = self.facts("levels", "--levels", self.levels(near, far))["levels"]
        self.assertEqual([level["jobs"][0]["behind"] for level in shown], [0, 1])
        self.assertEqual(shown[1]["jobs"][0]["newest"], 6)
        self.assertGreater(shown[0]["free_bytes"], 0)
        self.assertIn("1 set behind", self.varve("levels", "--levels", self.levels(near, far)))

    @unittest.skipUnless(HAS_TLS, "a build without TLS")
    def test_takes_the_key_of_a_server_among_them_from_an_option(self):
        server = self.make_level("tcp")
        near = self.work / "near"
        self.environment = lambda **changes: {name: value for name, value in os.environ.items() if not name.startswith("VARVE_")}
        levels = f"local:{near} keep=1; {server}"
        self.fails(USAGE, "save", SAMPLE / "DD0005", "--levels", levels)
        for name in ("DD0005", "DD0006"):
            saved = self.facts("save", SAMPLE / name, "--levels", levels, "--key-file", self.key)
            self.assertEqual([entry["level"] for entry in saved["copied_to"]], [server])
        shown = self.facts("levels", "--levels", levels, "--key-file", self.key)["levels"]
        self.assertEqual([level["jobs"][0]["sets"] for level in shown], [1, 2])
        free = shutil.disk_usage(self.work).free
        for level in shown:
            self.assertAlmostEqual(level["free_bytes"], free, delta=free / 2, msg="the server is on the same disk")
        other = self.work / "another"
        self.varve("serve", "--new-key", other)
        self.fails(FAILURE, "save", SAMPLE / "DD0007", "--levels", levels, "--key-file", other)
        self.assertIn("implosion@7", self.varve("list", "--store", near), "what is behind is not in the way of the nearest")

    def test_says_so_if_a_level_makes_no_sense_or_is_not_there(self):
        self.fails(USAGE, "save", SAMPLE / "DD0005", "--levels", "floppy:/a")
        self.fails(FAILURE, "levels", "--levels", f"unix:{self.work}/nobody")
        for arguments in (("levels", "--store", self.store), ("--store", self.store, "levels")):
            shown = self.facts(*arguments)["levels"]
            self.assertEqual([level["level"] for level in shown], ["memory", f"dir:{self.store}"])
        self.fails(FAILURE, "save", SAMPLE / "DD0005", "--levels", f"unix:{self.work}/nobody; dir:{self.work}/far")

    def test_says_so_if_a_drain_cannot_see_which_jobs_a_level_has(self):
        self.write("saved/file")
        self.varve("save", self.work / "saved", "--job", "job", "--step", "1")
        memory = self.work / "memory"
        memory.mkdir()
        drain = ("drain", "--shared-memory", memory, "--levels", f"dir:{self.store}; dir:{self.work}/far")
        sets = self.store / "sets"
        sets.rename(self.work / "away")
        sets.symlink_to("sets")
        self.assertIn("sets", self.fails(FAILURE, *drain))
        sets.unlink()
        (self.work / "away").rename(sets)
        self.varve(*drain)
        self.varve("show", "job@1", "--store", self.work / "far")

    def test_counts_sets_as_they_come_whatever_their_steps_are(self):
        near, far, seldom = (self.work / name for name in ("near", "far", "seldom"))
        levels = f"dir:{near} keep=2; dir:{far} keep=1; dir:{seldom} every=2"
        folder = self.work / "state"
        copied = []
        for step in (9, 10, 3, 4, 5):
            self.write(folder / "state.bin", os.urandom(50_000))
            saved = self.facts("save", folder, "--job", "run", "--step", step, "--levels", levels)
            copied.append([entry["level"] for entry in saved["copied_to"]])
            behind = [level["jobs"][0]["behind"] for level in self.facts("levels", "--levels", levels)["levels"]]
            self.assertEqual(behind, [0, 0, len(copied) % 2])
        self.assertEqual([f"dir:{far}" in to for to in copied], [True] * 5)
        self.assertEqual([f"dir:{seldom}" in to for to in copied], [False, True, False, True, False])
        names = lambda store: [entry["name"] for entry in self.facts("list", "--store", store)["sets"]]
        self.assertEqual(names(near), [f"run@{step}" for step in (4, 5, 9, 10)], "later steps neither count nor go")
        self.assertEqual(names(far), ["run@5", "run@10"])
        self.assertEqual(names(seldom), ["run@4", "run@10"])
        other = self.work / "other"
        self.write(folder / "state.bin", os.urandom(50_000))
        said = self.fails(EXISTS, "save", folder, "--job", "run", "--step", 4, "--levels", f"dir:{other}; dir:{seldom}")
        self.assertIn(f"still to be copied to dir:{seldom}", said)

    def test_takes_each_word_of_the_nearest_level_as_a_running_program_does(self):
        near, folder = self.work / "near", self.work / "run"
        self.write(folder / "out1" / "state.bin", os.urandom(300_000))
        slow = f"dir:{near} bandwidth=0.5MB/s"
        self.assertGreater(self.facts("save", folder / "out1", "--job", "a", "--step", 1, "--levels", slow)["seconds"], 0.5)
        self.write(folder / "out1" / "state.bin", os.urandom(300_000))
        begin = time.monotonic()
        self.varve("watch", folder, "--job", "b", "--levels", slow, "--quiet", "0", "--once")
        self.assertGreater(time.monotonic() - begin, 0.5)
        seldom = f"memory; dir:{near} every=3; dir:{self.work}/far every=2"
        for command in (["save", folder / "out1", "--job", "c"], ["watch", folder, "--once"]):
            self.assertIn("every= of the nearest level", self.fails(USAGE, *command, "--levels", seldom))
        self.assertFalse((self.work / "far").exists())
        self.assertEqual(len(self.facts("list", "--store", near)["sets"]), 2)
        self.fails(NOT_FOUND, "levels", "--levels", seldom)

    def test_saves_and_shows_what_can_be_reached_while_a_level_is_away(self):
        near, far, away = self.work / "near", self.work / "far", self.work / "away"
        levels = f"dir:{near}; unix:{away}.socket; dir:{far}"
        code, out, said = self.run_program("save", SAMPLE / "DD0005", "--levels", levels)
        self.assertEqual(code, FAILURE)
        self.assertIn(f"1 set is in dir:{near}, and still to be copied to unix:{away}.socket", said)
        self.assertIn(f"copied to dir:{far}", out.decode())
        for store in (near, far):
            self.assertIn("implosion@5", self.varve("list", "--store", store))
        code, out, said = self.run_program("levels", "--levels", levels, "--json")
        self.assertEqual((code, said), (FAILURE, ""))
        shown = json.loads(out)["levels"]
        self.assertEqual([level["level"] for level in shown], levels.split("; "))
        self.assertEqual(["error" in level for level in shown], [False, True, False])
        self.assertEqual(shown[1]["error"]["code"], "io_error")
        self.assertEqual(shown[2]["jobs"], [{"job": "implosion", "sets": 1, "behind": 0, "newest": 5}])
        self.assertIn("cannot be reached: ", self.run_program("levels", "--levels", levels)[1].decode())
        turned = f"unix:{away}.socket; dir:{far}"
        code, out, _ = self.run_program("levels", "--levels", turned, "--json")
        self.assertEqual(json.loads(out)["levels"][1]["jobs"], [{"job": "implosion", "sets": 1, "behind": None, "newest": 5}])
        self.assertIn("1 set, newest 5\n", self.run_program("levels", "--levels", turned)[1].decode())
        self.serve("--place", listen=f"unix:{away}.socket", folder=away)
        code, out, said = self.run_program("save", SAMPLE / "DD0006", "--levels", levels, "--json")
        self.assertEqual(code, SUCCESS, said)
        self.assertIn("there was no store, so one was made", said)
        saved = json.loads(out)
        socket, folder = levels.split("; ")[1:]
        self.assertEqual([(entry["level"], entry["set"]) for entry in saved["copied_to"]],
                         [(socket, "implosion@5"), (socket, "implosion@6"), (folder, "implosion@6")])

    def test_keeps_what_a_level_that_is_away_is_owed_until_it_is_there(self):
        near, far, away = self.work / "near", self.work / "far", self.work / "away"
        levels = f"local:{near} keep=1; dir:{far}/store"
        folder = self.work / "state"
        names = lambda store: [entry["name"] for entry in self.facts("list", "--store", store)["sets"]]
        save = lambda step: self.run_program("save", folder, "--job", "run", "--step", step, "--levels", levels)
        far.mkdir()
        self.write(folder / "state.bin", os.urandom(50_000))
        self.assertEqual(save(1)[0], SUCCESS)
        far.rename(away)
        for step in (2, 3):
            self.write(folder / "state.bin", os.urandom(50_000))
            code, _, said = save(step)
            self.assertEqual(code, NOT_FOUND)
            self.assertIn("still to be copied to", said)
        self.assertEqual(names(near), ["run@1", "run@2", "run@3"])
        self.assertEqual(self.run_program("push", "--backlog", "--levels", levels)[0], NOT_FOUND)
        away.rename(far)
        copied = self.facts("push", "--backlog", "--levels", levels)["copied"]
        self.assertEqual([entry["set"] for entry in copied], ["run@2", "run@3"], "oldest first")
        self.assertEqual((names(near), names(far / "store")), (["run@3"], ["run@1", "run@2", "run@3"]))
        self.assertIn("all levels have", self.varve("push", "--backlog", "run", "--levels", levels))
        self.fails(USAGE, "push", "--backlog", "--to", far, "--levels", levels)

    def test_gives_up_what_waits_only_where_that_is_said(self):
        near, far = self.work / "near", self.work / "far"
        levels = f"local:{near} keep=1; dir:{far}/store backlog=2"
        folder = self.work / "state"
        for step in range(1, 5):
            self.write(folder / "state.bin", os.urandom(50_000))
            code, _, said = self.run_program("save", folder, "--job", "run", "--step", step, "--levels", levels)
            self.assertEqual((code, f"run@{step - 2}" in said), (NOT_FOUND, step > 2))
        names = [entry["name"] for entry in self.facts("list", "--store", near)["sets"]]
        self.assertEqual(names, ["run@3", "run@4"])
        self.fails(USAGE, "save", folder, "--levels", f"local:{near} backlog=2; dir:{far}")


class Repairing(LevelsTest):
    def test_goes_on_without_a_store_that_is_away(self):
        here, there = self.make_level("folder", "here"), self.make_level("folder", "there")
        self.use(here, self.key)
        self.varve("save", SAMPLE / "DD0006")
        self.varve("push", "implosion@6", "--to", there)
        self.damage(here)
        for away in (f"unix:{self.work}/nobody", self.work / "nowhere"):
            code, _, said = self.run_program("repair", "--from", away)
            self.assertIn(code, (FAILURE, NOT_FOUND))
            self.fails(DAMAGED, "verify", "--deep")
        code, out, said = self.run_program("repair", "--from", f"unix:{self.work}/nobody", "--from", there)
        self.assertEqual(code, SUCCESS, said)
        self.assertIn("warning: nothing is taken from a store", said)
        self.assertIn("no damage is left", out.decode())
        self.assert_whole()
        self.assert_restores("implosion@6", SAMPLE / "DD0006")


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip"), "needs root and iproute2")
@unittest.skipUnless(HAS_TLS, "a build without TLS")
class TwoMachines(LevelsTest):
    """A server and a client in network namespaces of their own, with addresses of their own."""

    client_space = None

    def ip(self, *arguments):
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"no network namespaces here: {done.stderr.strip()}")

    def setUp(self):
        super().setUp()
        names = [f"varve{os.getpid()}{end}" for end in "ab"]
        for name in names:
            self.ip("netns", "add", name)
            self.addCleanup(subprocess.run, ["ip", "netns", "delete", name], check=False)
        links = [f"v{os.getpid()}{end}" for end in "ab"]
        self.ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for name, link, address in zip(names, links, ("10.73.0.1/24", "10.73.0.2/24")):
            self.ip("link", "set", link, "netns", name)
            self.ip("-n", name, "address", "add", address, "dev", link)
            self.ip("-n", name, "link", "set", link, "up")
        self.server_space, self.client_space = names

    def start(self, *arguments, **options):
        """The program runs in the client's namespace."""
        if not self.client_space:
            return super().start(*arguments, **options)
        command = ["ip", "netns", "exec", self.client_space, PROGRAM, *map(self.encode, arguments)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=options.get("environment") or self.environment(), cwd=self.work, preexec_fn=default_signals)

    def test_save_and_restore_over_a_network(self):
        server = subprocess.Popen(["ip", "netns", "exec", self.server_space, PROGRAM, "serve", "--listen", "tcp://10.73.0.1:7070",
                                   "--dir", str(self.work / "served"), "--key-file", str(self.key)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=default_signals)
        self.servers.append(server)
        self.assertIn(b"serving", server.stdout.readline())
        self.use("tcp://10.73.0.1:7070", self.key)
        self.varve("save", SAMPLE / "DD0005")
        self.varve("save", SAMPLE / "DD0006")
        self.assert_restores("implosion@6", SAMPLE / "DD0006")
        self.assert_whole()


if __name__ == "__main__":
    unittest.main()
