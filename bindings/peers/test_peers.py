"""Programs of VELOC and SCR: each function tried once, and runs that die before any of their calls."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).parents[2]
LAUNCHER = os.environ["VARVE_LAUNCHER"].split()
PROGRAM_PATH = os.pathsep.join([str(pathlib.Path(os.environ["VARVE_PROGRAM"]).parent), os.environ["PATH"]])
#: MPICH's ranks wait at work: eight of them on two processors take minutes.
RUN_SECONDS_MAX = 400
#: So many of the calls of a run are chosen to die before.
DEATHS = int(os.environ.get("VARVE_TEST_DEATHS", "6"))
NIGHTLY = os.environ.get("VARVE_NIGHTLY") == "1"
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

    def begin_anew(self):
        for entry in self.work.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for folder in ("memory", "scratch", "persistent"):
            (self.work / folder).mkdir()

    def sets_in(self, folder):
        return sorted({path.stem for path in (self.work / folder).rglob("*.set")}, key=int)

    @staticmethod
    def told(out):
        return re.findall(r"(?:VELOC|SCR) \(varve\): .*", out)

    def check_told(self, out, wanted):
        """Each of these, and nothing else."""
        told = self.told(out)
        for one in wanted:
            self.assertEqual(sum(one in line for line in told), 1, (one, out))
        self.assertEqual(len(told), len(wanted), out)

    def check_table(self, library):
        """docs/PEERS.md has no key that is not tested here."""
        section = (ROOT / "docs" / "PEERS.md").read_text().split(f"\n## {library}\n")[1].split("\n## ")[0]
        keys = [key for line in section.splitlines() if line.startswith("| `")
                for key in re.findall(r"`(\w+)=?`", line.split("|")[1])]
        self.assertGreater(len(keys), 10)
        tests = pathlib.Path(__file__).read_text()
        for key in keys:
            self.assertIn(key, tests)

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
            deaths = [(chance.randrange(1, calls + 1), chance.choice(losses)) for _ in range(DEATHS)]
            if NIGHTLY:
                deaths = [(at, lost) for at in range(1, calls + 1) for lost in losses]
            for at, lost in deaths:
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

    def run_with(self, lines, ranks=2, **more):
        """A new run whose configuration has these lines, too."""
        self.begin_anew()
        arguments = self.arguments("run")
        settings = self.work / "veloc.cfg"
        settings.write_text(settings.read_text() + "\n".join(lines) + "\n")
        launcher = [*LAUNCHER, str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launcher, *arguments], check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX, cwd=self.work,
                              env=self.environment(**more))
        return done.returncode, done.stdout

    def test_each_key_does_what_the_table_says(self):
        self.check_table("VELOC")
        everything = ["10", "20", "30", "40", "50", "60"]
        plain = self.work / "particles.dat"
        for lines, environment, is_so in (
            ([], {}, lambda: self.sets_in("persistent") == everything and not plain.exists()),
            ([f"scratch = {self.work}/other"], {}, lambda: (self.work / "other" / "varve").exists()),
            ([f"persistent = {self.work}/other"], {}, lambda: self.sets_in("other") == everything),
            ([], {"VELOC_PERSISTENT": f"{self.work}/other"}, lambda: self.sets_in("other") == everything),
            (["max_versions = 2"], {}, lambda: self.sets_in("persistent") == ["50", "60"]),
            (["scratch_versions = 3"], {}, lambda: self.sets_in("scratch") == ["40", "50", "60"]),
            (["persistent_interval = -1"], {},
             lambda: self.sets_in("persistent") == [] and self.sets_in("scratch") == everything),
            (["persistent_interval = 0", "ec_interval = -1"], {}, lambda: self.sets_in("persistent") == everything),
            ([f"levels = memory; dir:{self.work}/other"], {}, lambda: self.sets_in("other") == everything),
        ):
            with self.subTest(lines=lines, environment=environment):
                code, out = self.run_with(lines, **environment)
                self.assertEqual((code, self.told(out)), (0, []), out)
                self.assertTrue(is_so(), out)

    def test_files_are_plain_ones_too_where_that_is_said(self):
        code, out = self.run_with(["plain_files = yes"], ranks=1)
        self.assertEqual(code, 0, out)
        self.assertEqual((self.work / "particles.dat").read_text(), "rank 0 at 60")

    def test_synchronous_checkpoints_are_in_the_store_when_they_return(self):
        code, out = self.run_with([], ranks=1)
        self.assertEqual(code, 0, out)
        calls = int(re.search(r"calls (\d+)", out)[1])
        # The last two are VELOC_Mem_clear() and VELOC_Finalize().
        self.assertNotEqual(self.run_with(["mode = sync"], ranks=1, TEST_DIES_AT=str(calls - 1))[0], 0)
        self.assertIn("60", self.sets_in("scratch"))

    def test_what_has_no_effect_is_told_once_by_name(self):
        left_out = ["meta", "chksum", "max_parallelism", "threaded", "aggregated", "axl_type", "failure_domain",
                    "watchdog_interval", "log_prefix"]
        for lines, told in (
            ([f"{key} = 1" for key in left_out], [f"{key} is left out" for key in left_out]),
            (["nonsense = 1", "Mode = sync"], ["unknown key is left out: nonsense", "unknown key is left out: Mode"]),
            (["what is this"], ["says nothing: what is this"]),
            (["mode = foo"], ["mode is none of async, sync: foo; async is taken"]),
            (["max_versions = many", "scratch_versions = 2 of them"], ["max_versions is no number: many",
                                                                       "scratch_versions is no number: 2 of them"]),
            (["persistent_interval = often", "ec_interval = 1e99"], ["persistent_interval is no number",
                                                                     "ec_interval is no number"]),
            (["persistent_interval = 100", "ec_interval = 30"], ["persistent_interval is taken for 0",
                                                                 "ec_interval is taken for 0"]),
            (["plain_files = maybe"], ["plain_files is neither 1 nor 0: maybe"]),
        ):
            with self.subTest(lines=lines):
                code, out = self.run_with(lines)
                self.assertEqual(code, 0, out)
                self.check_told(out, told)

    def test_what_cannot_be_read_is_told_once(self):
        self.arguments = lambda what: [os.environ["VARVE_VELOC_TEST"], "nowhere", str(self.work / "told"), what]
        code, out = self.run_it(3, "run")
        self.assertNotEqual(code, 0)
        self.check_told(out, ["cannot read the configuration nowhere"])
        del self.arguments
        # On one rank alone: the others do not wait for it.
        plain = self.arguments("run")
        second = 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then exec "$0" gone "$2" "$3"; fi; exec "$0" "$@"'
        self.arguments = lambda _what: ["sh", "-c", second, *plain]
        code, out = self.run_it(3, "run")
        self.assertNotEqual(code, 0)
        self.check_told(out, ["cannot read the configuration gone"])
        del self.arguments
        code, out = self.run_with(["scratch ="], ranks=3)
        self.assertNotEqual(code, 0)
        self.check_told(out, ["scratch and persistent are wanted in"])


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
                # What the program sets comes before that.
                (self.work / "persistent" / ".scrconf").write_text("SCR_CHECKPOINT_INTERVAL=1\n")
                self.run_well(ranks, "once", SCR_CACHE_SIZE="10", SCR_FLUSH="1")

    def test_runs_that_die_go_on(self):
        self.check_deaths([(), ("memory",)])

    def test_what_is_restarted_from_memory_alone_is_saved_as_it_was(self):
        # Dies after its first checkpoint, which is not in the cache then; the next run saves it as it restarts.
        slowly = {"SCR_FLUSH_ASYNC": "1", "VARVE_WRITE_BYTES_PER_SECOND": "100"}
        self.assertNotEqual(self.run_it(1, "run", TEST_DIES_AT="7", **slowly)[0], 0)
        self.assertEqual((self.work / "told").read_text(), "1")
        self.assertIn("from 1 calls", self.run_well(1, "run", SCR_CACHE_SIZE="10"))
        self.lose("memory")
        (self.work / "told").unlink()
        self.assertIn("from 1 calls", self.run_well(1, "run", SCR_CACHE_SIZE="10", SCR_CURRENT="ckpt.1"))

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

    def run_with(self, lines, ranks=2, without=(), **more):
        """A new run whose configuration has these lines, in the prefix."""
        self.begin_anew()
        (self.work / "persistent" / ".scrconf").write_text("\n".join(lines) + "\n")
        return self.go_on(ranks, without, **more)

    def go_on(self, ranks=2, without=(), **more):
        environment = {key: value for key, value in self.environment(**more).items() if key not in without}
        done = subprocess.run([*LAUNCHER, str(ranks), *self.arguments("run")], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX,
                              cwd=self.work / "persistent", env=environment)
        return done.returncode, done.stdout

    def test_each_parameter_does_what_the_table_says(self):
        self.check_table("SCR")
        each = [str(step) for step in range(1, 7)]
        kept = "SCR_CACHE_SIZE=10"
        for lines, without, environment, is_so in (
            ([kept, "SCR_FLUSH=1"], (), {}, lambda: self.sets_in("scratch") == self.sets_in("persistent") == each),
            # The folder that the program is in is the prefix where nothing else is said.
            ([kept, "SCR_FLUSH=1"], ("SCR_PREFIX",), {}, lambda: self.sets_in("persistent") == each),
            ([f"SCR_PREFIX={self.work}/other", "SCR_FLUSH=1"], ("SCR_PREFIX",), {},
             lambda: self.sets_in("other") == each),
            ([f"SCR_CACHE_BASE={self.work}/other", kept], ("SCR_CACHE_BASE",), {},
             lambda: self.sets_in("other") == each),
            (["SCR_CACHE_SIZE=2"], (), {}, lambda: self.sets_in("scratch") == ["5", "6"]),
            (["SCR_CACHE_SIZE=2"], (), {"SCR_CACHE_SIZE": "3"}, lambda: self.sets_in("scratch") == ["4", "5", "6"]),
            (["SCR_FLUSH=2"], (), {}, lambda: self.sets_in("persistent") == ["2", "4", "6"]),
            ([], (), {}, lambda: self.sets_in("persistent") == ["6"]),
            (["SCR_FLUSH=0"], (), {}, lambda: self.sets_in("persistent") == []),
            ([kept, "SCR_FLUSH_ASYNC=1"], ("SCR_FLUSH_ASYNC",), {}, lambda: self.sets_in("scratch") == each),
            ([kept, "SCR_CHECKPOINT_INTERVAL=2"], (), {}, lambda: len(self.sets_in("scratch")) == 3),
            ([kept, "SCR_CHECKPOINT_SECONDS=1000"], (), {}, lambda: len(self.sets_in("scratch")) == 0),
            ([kept, "SCR_CHECKPOINT_SECONDS=1e-9"], (), {}, lambda: len(self.sets_in("scratch")) == 6),
            ([kept, "SCR_CHECKPOINT_OVERHEAD=1e-9"], (), {}, lambda: len(self.sets_in("scratch")) == 1),
            ([kept, "SCR_CHECKPOINT_OVERHEAD=100"], (), {}, lambda: len(self.sets_in("scratch")) == 6),
            (["SCR_JOB_NAME=mine"], (), {},
             lambda: any("/mine" in str(path) for path in (self.work / "scratch").rglob("*.set"))),
            (["SCR_COPY_TYPE=SINGLE", "SCR_SET_SIZE=3", kept], (), {}, lambda: self.sets_in("scratch") == each),
            (["SCR_HALT_SECONDS=60"], (), {"SCR_END_TIME": str(int(time.time()) + 10000)},
             lambda: self.sets_in("persistent") == ["6"]),
        ):
            with self.subTest(lines=lines, without=without, environment=environment):
                code, out = self.run_with(lines, without=without, **environment)
                self.assertEqual((code, self.told(out)), (0, []), out)
                self.assertTrue(is_so(), out)

    def test_programs_are_to_exit_before_their_time_is_over(self):
        for name in ("SCR_END_TIME", "SLURM_JOB_END_TIME"):
            with self.subTest(name=name):
                code, out = self.run_with(["SCR_HALT_SECONDS=60"], **{name: str(int(time.time()) + 30)})
                self.assertNotEqual(code, 0)
                self.assertIn("not so: !stop", out)

    def test_what_a_run_goes_on_from_can_be_said(self):
        code, out = self.run_with(["SCR_CACHE_SIZE=10"])
        self.assertEqual(code, 0, out)
        for environment, begin in (({}, 6), ({"SCR_CURRENT": "ckpt.3"}, 3), ({"SCR_FETCH": "0"}, 0)):
            with self.subTest(environment=environment):
                (self.work / "told").unlink(missing_ok=True)
                code, out = self.go_on(**environment)
                self.assertEqual(code, 0, out)
                self.assertIn(f"from {begin} calls", out)

    def test_what_has_no_effect_is_told_once_by_name(self):
        left_out = ["SCR_CACHE_BYPASS", "SCR_DEBUG", "SCR_CRC_ON_FLUSH", "SCR_CRC_ON_COPY", "SCR_CRC_ON_DELETE",
                    "SCR_FLUSH_WIDTH", "SCR_FETCH_WIDTH", "SCR_MPI_BUF_SIZE", "SCR_FILE_BUF_SIZE", "SCR_DISTRIBUTE",
                    "SCR_GROUP", "SCR_CNTL_BASE", "SCR_CACHE_PURGE", "SCR_SET_FAILURES", "SCR_PREFIX_SIZE",
                    "SCR_PREFIX_PURGE", "SCR_FLUSH_TYPE", "SCR_FLUSH_POSTSTAGE", "SCR_FETCH_BYPASS", "SCR_HALT_EXIT",
                    "SCR_HALT_ENABLED", "SCR_JOB_ID"]
        numbers = ["SCR_CACHE_SIZE", "SCR_SET_SIZE", "SCR_FLUSH", "SCR_CHECKPOINT_INTERVAL", "SCR_CHECKPOINT_SECONDS",
                   "SCR_CHECKPOINT_OVERHEAD", "SCR_HALT_SECONDS"]
        store, described = f"STORE={self.work}/scratch", "SCR_COPY_TYPE=FILE"
        for lines, environment, told in (
            ([f"{key}=1" for key in left_out], {}, [f"{key} is left out" for key in left_out]),
            ([], {"SCR_DEBUG": "1"}, ["SCR_DEBUG is left out"]),
            ([f"{key}=x" for key in numbers], {}, [f"{key} is no number: x" for key in numbers]),
            (["SCR_FETCH=2", "SCR_FLUSH_ASYNC=2"], {"SCR_FLUSH_ASYNC": "perhaps"},
             ["SCR_FETCH is neither 1 nor 0: 2", "SCR_FLUSH_ASYNC is neither 1 nor 0: perhaps"]),
            (["SCR_NONSENSE=1", "what is this"], {}, ["unknown key is left out: SCR_NONSENSE", "says nothing: what"]),
            (["SCR_FLUSH=1 SCR_FETCH=0"], {}, ["a line of several keys is left out: that of SCR_FLUSH"]),
            (["SCR_COPY_TYPE=TRIPLE"], {}, ["SCR_COPY_TYPE is none of XOR, SINGLE, PARTNER, RS, FILE: TRIPLE; XOR is"]),
            (["CKPT=0 TYPE=SINGLE", "CKPT=1 INTERVAL=2"], {}, ["lines CKPT= are left out: SCR_COPY_TYPE is not FILE"]),
            ([described, "CKPT=0 ENABLED=0"], {}, ["SCR_COPY_TYPE=FILE is taken for XOR: there is no line CKPT="]),
            (["GROUPS=a POWER=1", "GROUPS=b POWER=2"], {}, ["GROUPS is left out: a failure group is a node"]),
            ([f"{store} COUNT=some GROUP=RACK MKDIR=0 ENABLED=0 SIZE=7"], {},
             ["COUNT of STORE=", "GROUP of STORE=", "MKDIR of STORE=", "ENABLED of STORE=",
              "unknown key is left out: SIZE of STORE="]),
            ([f"{store} COUNT=2 GROUP=NODE MKDIR=1 ENABLED=1"], {}, []),
            ([described, f"CKPT=0 STORE={self.work}/scratch TYPE=TRIPLE INTERVAL=x SET_SIZE=x ENABLED=x GROUP=RACK "
              "BYPASS=1 OUTPUT=1 SET_FAILURES=3 COLOUR=red"], {},
             ["TYPE of CKPT=0 is none of XOR, SINGLE, PARTNER, RS: TRIPLE", "INTERVAL of CKPT=0 is no number",
              "SET_SIZE of CKPT=0 is no number", "ENABLED of CKPT=0 is neither", "GROUP of CKPT=0 is none of NODE",
              "BYPASS of CKPT=0", "OUTPUT of CKPT=0", "SET_FAILURES of CKPT=0", "left out: COLOUR of CKPT=0"]),
        ):
            with self.subTest(lines=lines, environment=environment):
                code, out = self.run_with(lines, **environment)
                self.assertEqual(code, 0, out)
                self.check_told(out, told)

    def test_a_configuration_that_is_not_there_is_told_once(self):
        code, out = self.run_with([], SCR_CONF_FILE="nowhere")
        self.assertEqual(code, 0, out)
        self.check_told(out, ["cannot read the configuration nowhere"])

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

    def test_tidying_up_does_not_go_back(self):
        self.run_well(2, "run", SCR_FLUSH="1")
        self.run_well(2, "tidy6", SCR_FLUSH="10")
        self.lose("scratch", "memory")
        self.run_well(2, "tidy8", SCR_FLUSH="10")

    def test_jobs_of_one_prefix_drop_datasets_of_their_own(self):
        (self.work / "persistent" / ".scr").mkdir()
        (self.work / "persistent" / ".scr" / "varve.dropped.other").write_text("6\n")
        self.run_well(2, "run", SCR_FLUSH="1", SCR_JOB_NAME="mine")
        (self.work / "told").unlink()
        self.assertIn("from 6 calls", self.run_well(2, "run", SCR_JOB_NAME="mine"))
        (self.work / "persistent" / ".scr" / "varve.dropped.mine").write_text("what is this?\n")
        code, out = self.run_it(2, "run", SCR_JOB_NAME="mine")
        self.assertNotEqual(code, 0)
        self.assertIn("cannot read", out)

    def script(self, name, *arguments, **more):
        done = subprocess.run([str(pathlib.Path(__file__).parent / name), *arguments], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX, cwd=self.work,
                              env=self.environment(PATH=PROGRAM_PATH, **more))
        return done.returncode, done.stdout

    def test_a_program_stops_as_long_as_scr_halt_wants_it(self):
        prefix = str(self.work / "persistent")
        self.assertEqual(self.script("scr_halt", "--list"), (0, f"{prefix} is not to halt\n"))
        self.assertEqual(self.script("scr_halt", prefix, SCR_PREFIX="elsewhere"), (0, ""))
        self.assertEqual(self.script("scr_halt", "--list"), (0, f"{prefix} is to halt\n"))
        code, out = self.run_it(2, "run")
        self.assertNotEqual(code, 0)
        self.assertIn("not so: !stop", out)
        self.assertEqual(self.script("scr_halt", "--unset"), (0, ""))
        self.run_well(2, "run")
        self.assertEqual(self.script("scr_halt", "--nonsense")[0], 2)

    def test_scr_index_lists_datasets_by_the_names_to_restart_from(self):
        self.assertNotEqual(self.script("scr_index", "--list")[0], 0)  # there is no store
        self.run_well(2, "run", SCR_FLUSH="1", SCR_JOB_NAME="mine")
        (self.work / "persistent" / ".scr").mkdir()
        (self.work / "persistent" / ".scr" / "varve.dropped.mine").write_text("2\n")
        (self.work / "persistent" / ".scr" / "varve.dropped").write_text("3\n")  # another job's
        code, out = self.script("scr_index", "--list", SCR_JOB_NAME="mine")
        self.assertEqual(code, 0, out)
        listed = [line.split() for line in out.splitlines()]
        self.assertEqual([line[:2] for line in listed],
                         [["name", "set"], *[[f"ckpt.{step}", f"mine@{step}"] for step in range(1, 7)]])
        self.assertEqual([line[1] for line in listed if line[-1] == "dropped"], ["mine@2"])
        name = listed[3][0]
        (self.work / "told").unlink()
        self.assertIn("from 3 calls", self.run_well(2, "run", SCR_CURRENT=name, SCR_JOB_NAME="mine"))
        prefix = str(self.work / "persistent")
        self.assertEqual(self.script("scr_index", "-l", "-p", prefix, SCR_JOB_NAME="mine", SCR_PREFIX="elsewhere")[0], 0)
        self.assertEqual(self.script("scr_index")[0], 2)
        self.assertEqual(self.script("scr_index", "--build")[0], 2)


del Peer

if __name__ == "__main__":
    unittest.main()
