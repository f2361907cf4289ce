"""Programs of VELOC and SCR: each function tried once, and runs that die before any of their calls."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import unittest

LAUNCHER = os.environ["VARVE_LAUNCHER"].split()
RUN_SECONDS_MAX = 120
#: So many of the calls of a run are chosen to die before.
DEATHS = int(os.environ.get("VARVE_TEST_DEATHS", "6"))
SEED = int(os.environ.get("VARVE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


class Peer(unittest.TestCase):
    program: str

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-peers-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        for folder in ("memory", "scratch", "persistent"):
            (self.work / folder).mkdir()

    def environment(self, **more):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("VARVE_", "SCR_", "VELOC_"))}
        return {**kept, "VARVE_SHARED_MEMORY": str(self.work / "memory"), **more}

    def arguments(self, what):
        raise NotImplementedError

    def run_it(self, ranks, what, **more):
        done = subprocess.run([*LAUNCHER, str(ranks), *self.arguments(what)], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX, cwd=self.work,
                              env=self.environment(**more))
        return done.returncode, done.stdout

    def run_well(self, ranks, what, **more):
        code, out = self.run_it(ranks, what, **more)
        self.assertEqual(code, 0, out)
        return out

    def lose(self, *folders):
        for folder in folders:
            shutil.rmtree(self.work / folder)
            (self.work / folder).mkdir()

    @contextlib.contextmanager
    def on_nodes(self, count):
        """Ranks say on which node they are; each node has a folder of its own."""
        plain = self.arguments
        node = ["sh", "-c", f'VARVE_NODE=n$((${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} % {count})) exec "$0" "$@"']
        self.arguments = lambda what: [*node, *plain(what)]
        try:
            yield
        finally:
            self.arguments = plain

    def lose_node(self, name):
        lost = list((self.work / "scratch").rglob(f"node-{name}"))
        self.assertEqual(len(lost), 1)
        shutil.rmtree(lost[0])

    def check_once(self):
        for ranks in (1, 4, 8):
            with self.subTest(ranks=ranks):
                self.lose("memory", "scratch", "persistent")
                self.run_well(ranks, "once")

    def check_leaving(self):
        """A program that ends without a word does so quietly, and the next one goes on from what it kept."""
        for _ in range(2):
            done = subprocess.run(self.arguments("leave"), check=False, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX, cwd=self.work,
                                  env=self.environment())
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(done.stdout, "")
        self.assertTrue((self.work / "told").exists())
        self.run_well(1, "run")

    def check_deaths(self, losses):
        """Runs that die go on until one ends; what was told to be kept comes back, whatever is lost in between."""
        chance = random.Random(SEED)
        for ranks in (1, 3):
            self.lose("memory", "scratch", "persistent")
            (self.work / "told").unlink(missing_ok=True)
            calls = int(re.search(r"calls (\d+)", self.run_well(ranks, "run"))[1])
            for _ in range(DEATHS):
                at, lost = chance.randrange(1, calls + 1), chance.choice(losses)
                with self.subTest(seed=SEED, ranks=ranks, dies_at=at, lost=lost):
                    self.lose("memory", "scratch", "persistent")
                    (self.work / "told").unlink(missing_ok=True)
                    code, out = self.run_it(ranks, "run", TEST_DIES_AT=str(at))
                    self.assertNotEqual(code, 0, out)
                    self.assertNotIn("not so", out)
                    self.lose(*lost)
                    self.run_well(ranks, "run")


class Veloc(Peer):
    def arguments(self, what):
        settings = self.work / "veloc.cfg"
        settings.write_text(f"scratch = {self.work}/scratch\npersistent = {self.work}/persistent\nmode = async\n")
        return [os.environ["VARVE_VELOC_TEST"], str(settings), str(self.work / "told"), what]

    def test_each_function_does_what_it_says(self):
        self.check_once()

    def test_runs_that_die_go_on(self):
        self.check_deaths([(), ("memory",)])

    def test_programs_that_just_end_do_so_quietly(self):
        self.check_leaving()

    def test_runs_go_on_without_the_node_s_own_folder(self):
        # wait() waits for the node's folder; the newest version may not be farther yet.
        self.run_well(3, "run")
        self.lose("memory", "scratch")
        (self.work / "told").write_text("60")
        self.run_well(3, "run")

    def test_what_a_lost_node_had_comes_from_the_others(self):
        for nodes, kept in ((2, True), (3, True), (3, False)):
            with self.subTest(nodes=nodes, kept=kept), self.on_nodes(nodes):
                self.lose("memory", "scratch", "persistent")
                (self.work / "told").unlink(missing_ok=True)
                more = {"VELOC_PERSISTENT_INTERVAL": "-1", "VELOC_EC_INTERVAL": "60" if kept else "-1"}
                self.run_well(2 * nodes, "run", **more)
                self.lose("memory")
                self.lose_node("n1")
                code, out = self.run_it(2 * nodes, "run", **more)
                if kept:
                    self.assertEqual(code, 0, out)
                else:  # it had it alone
                    self.assertIn("not so", out)

    def test_cleaning_up_takes_what_lies_on_the_nodes(self):
        with self.on_nodes(2):
            self.run_well(4, "once-on-nodes", VELOC_PERSISTENT_INTERVAL="-1")
        self.lose("memory", "scratch", "persistent")
        self.run_well(2, "once")
        sets = list((self.work / "scratch").rglob("sets/*/*"))
        self.assertNotEqual(sets, [])  # of other names
        self.assertFalse([one for one in sets if "/one" in str(one)], sets)
        self.assertTrue([one for one in (self.work / "persistent").rglob("sets/*/*") if "/one" in str(one)])

    def test_cleaning_up_does_not_touch_what_the_environment_names(self):
        code, out = self.run_it(1, "once", VARVE_LEVELS=f"memory; dir:{self.work}/elsewhere")
        self.assertNotEqual(code, 0)
        self.assertIn("not so: CALL(VELOC_Cleanup", out)
        self.assertIn("nothing is removed", out)
        self.assertTrue(list((self.work / "elsewhere").rglob("sets/*/*")))

    def test_the_environment_comes_before_the_configuration(self):
        self.run_well(1, "run", VELOC_LEVELS=f"memory; dir:{self.work}/elsewhere")
        self.assertTrue((self.work / "elsewhere" / "varve.store").exists())
        self.assertEqual(list((self.work / "persistent").iterdir()), [])

    def test_levels_of_the_configuration_are_read_whole(self):
        more = f"[levels]\nlevels = memory; dir:{self.work}/elsewhere every=2  # and no more\n"
        arguments = self.arguments("run")
        settings = self.work / "veloc.cfg"
        settings.write_text(settings.read_text() + more)
        plain = self.arguments
        self.arguments = lambda _what: arguments
        try:
            self.run_well(2, "run")
        finally:
            self.arguments = plain
        self.assertTrue((self.work / "elsewhere" / "varve.store").exists())
        self.assertEqual(list((self.work / "persistent").iterdir()), [])

    def test_what_other_ranks_wrote_is_no_version_of_these(self):
        self.run_well(2, "run")
        (self.work / "told").unlink()
        out = self.run_well(3, "run")
        self.assertEqual(out.count("field@60 was written by 2 ranks"), 1, out)
        (self.work / "told").write_text("60")
        self.run_well(3, "run")

    def test_unknown_keys_are_told_once_by_name(self):
        self.arguments("run")
        (self.work / "veloc.cfg").write_text((self.work / "veloc.cfg").read_text() + "chksum = true\nnonsense = 1\n")
        done = subprocess.run([*LAUNCHER, "2", os.environ["VARVE_VELOC_TEST"], str(self.work / "veloc.cfg"),
                               str(self.work / "told"), "run"], check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("nonsense"), 1, done.stdout)
        self.assertEqual(done.stdout.count("chksum"), 1, done.stdout)


class Scr(Peer):
    def arguments(self, what):
        return [os.environ["VARVE_SCR_TEST"], str(self.work / "told"), what]

    def environment(self, **more):
        where = {"SCR_PREFIX": str(self.work / "persistent"), "SCR_CACHE_BASE": str(self.work / "scratch")}
        return super().environment(**{**where, "SCR_FLUSH_ASYNC": "0", **more})

    def test_each_function_does_what_it_says(self):
        for ranks in (1, 4, 8):
            with self.subTest(ranks=ranks):
                self.lose("memory", "scratch", "persistent")
                self.run_well(ranks, "once", SCR_CACHE_SIZE="10", SCR_FLUSH="1")

    def test_runs_that_die_go_on(self):
        self.check_deaths([(), ("memory",)])

    def test_programs_that_just_end_do_so_quietly(self):
        self.check_leaving()

    def test_what_a_lost_node_had_comes_from_the_others(self):
        for ranks, nodes, scheme in ((4, 2, "PARTNER"), (6, 3, "XOR"), (4, 4, "RS"), (4, 2, "SINGLE")):
            with self.subTest(ranks=ranks, nodes=nodes, scheme=scheme), self.on_nodes(nodes):
                self.lose("memory", "scratch", "persistent")
                (self.work / "told").unlink(missing_ok=True)
                more = {"SCR_COPY_TYPE": scheme, "SCR_FLUSH": "0"}
                self.run_well(ranks, "run", **more)
                told = int((self.work / "told").read_text())
                self.lose("memory")
                self.lose_node("n1")
                code, out = self.run_it(ranks, "run", **more)
                if scheme == "SINGLE":  # it had it alone
                    self.assertIn("not so: step >= kept", out)
                    continue
                self.assertEqual(code, 0, out)
                self.assertNotIn("left out", out)
                self.assertEqual(int((self.work / "told").read_text()), told)

    def test_each_line_of_the_configuration_counts(self):
        (self.work / "persistent" / ".scrconf").write_text(
            f"SCR_COPY_TYPE=FILE\n"
            f"STORE={self.work}/scratch COUNT=4\nSTORE={self.work}/global GROUP=WORLD COUNT=2\n"
            f"CKPT=0 INTERVAL=1 STORE={self.work}/scratch TYPE=SINGLE\n"
            f"CKPT=1 INTERVAL=2 STORE={self.work}/scratch TYPE=XOR SET_SIZE=3\n"
            f"CKPT=2 INTERVAL=3 STORE={self.work}/global TYPE=SINGLE\n"
            f"CKPT=3 INTERVAL=4 STORE={self.work}/scratch TYPE=PARTNER\n"
            f"CKPT=4 INTERVAL=5 STORE={self.work}/scratch TYPE=PARTNER ENABLED=0\n")
        with self.on_nodes(3):
            out = self.run_well(3, "run", SCR_FLUSH="0")
            self.assertEqual(re.findall(r"CKPT=\d is left out", out), ["CKPT=3 is left out"])
            records = sorted(path.stem for path in (self.work / "global").rglob("*.set"))
            self.assertEqual(records, ["3", "6"])
            # Of the nodes' own, each second one is protected, so that the loss of a node loses no more than the last.
            self.lose("memory")
            shutil.rmtree(self.work / "global")
            self.lose_node("n1")
            self.run_well(3, "run", SCR_FLUSH="0")

    def test_what_other_ranks_wrote_is_not_restarted_from(self):
        self.run_well(2, "run")
        (self.work / "told").unlink()
        out = self.run_well(3, "run")
        self.assertEqual(out.count("written by 2 ranks"), 1, out)
        self.assertNotIn("redistribute", out)
        (self.work / "told").write_text("6")
        self.run_well(3, "run")

    def test_configuration_files_say_what_the_environment_does_not(self):
        (self.work / "persistent" / ".scrconf").write_text(
            "# a comment; with more\nSCR_FLUSH = 1  # each\nSCR_CACHE_BASE=$TEST_WORK/${TEST_NODE}/cache\n")
        environment = {"TEST_WORK": str(self.work), "TEST_NODE": "n7"}
        plain = self.environment
        self.environment = lambda **more: {key: value for key, value in plain(**more).items() if key != "SCR_CACHE_BASE"}
        try:
            out = self.run_well(2, "run", **environment)
        finally:
            self.environment = plain
        self.assertNotIn("left out", out)
        self.assertTrue(list((self.work / "n7" / "cache").glob("varve-scr-*")))

    def test_names_count_from_where_the_program_is(self):
        # Below the prefix, and from the prefix elsewhere; it may be said with symbolic links, and not from the root.
        inside = self.work / "persistent" / "below"
        inside.mkdir()
        (self.work / "link").symlink_to("persistent")
        for prefix, where, found in ((str(self.work / "persistent"), inside, "below/"), ("..", inside, "below/"),
                                     (str(self.work / "link"), inside, "below/"), ("persistent/", self.work, "")):
            with self.subTest(prefix=prefix, where=where):
                done = subprocess.run([*LAUNCHER, "2", *self.arguments("once")], check=False, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX,
                                      cwd=where, env=self.environment(SCR_PREFIX=prefix, TEST_BELOW=found,
                                                                      SCR_CACHE_SIZE="10", SCR_FLUSH="1"))
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertTrue((self.work / "persistent" / found / "plots" / "picture.1").exists())
                for folder in ("memory", "scratch", "persistent"):
                    for entry in (self.work / folder).iterdir():
                        if entry != inside:
                            shutil.rmtree(entry)
                for entry in inside.iterdir():
                    shutil.rmtree(entry)

    def test_programs_in_fortran_go_on(self):
        programs = os.environ.get("VARVE_SCR_FORTRAN_TESTS", "").split()
        if not programs:
            self.skipTest("built without Fortran")
        plain = self.arguments
        for program in programs:
            with self.subTest(program=program):
                self.lose("memory", "scratch", "persistent")
                self.arguments = lambda _what, program=program: [program]
                try:
                    for begin in (0, 4, 8):
                        self.assertIn(f"from {begin} to {begin + 4}\n", self.run_well(2, "run"))
                        self.lose("memory")
                finally:
                    self.arguments = plain
                name = "free.0012/rank_1.dat"  # an output is a plain file, too
                self.assertEqual((self.work / "persistent" / name).exists(), "free" in program)

    def test_halt_and_intervals_are_obeyed(self):
        (self.work / "persistent" / ".scr").mkdir()
        (self.work / "persistent" / ".scr" / "halt").touch()
        code, out = self.run_it(2, "run")
        self.assertNotEqual(code, 0)
        self.assertIn("not so: !stop", out)


del Peer

if __name__ == "__main__":
    unittest.main()
