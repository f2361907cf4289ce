"""What is saved comes back: any names, types, modes and times, in any nesting."""

import array
import math
import os
import pathlib
import stat
import subprocess
import unittest

from support import PROGRAM, SUCCESS, ProgramTest, snapshot

NANOSECONDS = 1_000_000_000


class RoundTrip(ProgramTest):
    def setUp(self):
        super().setUp()
        self.folder = self.work / "saved"
        self.folder.mkdir()

    def comes_back(self, name="set@1"):
        job, step = name.split("@")
        self.varve("save", self.folder, "--job", job, "--step", step)
        self.assert_restores(name, self.folder)
        self.assert_whole()

    def test_of_nested_and_empty_folders(self):
        self.write("saved/a/b/c/d/file")
        (self.folder / "empty" / "emptier").mkdir(parents=True)
        self.comes_back()

    def test_of_an_empty_folder(self):
        code, _, err = self.run_program("save", self.folder, "--job", "set", "--step", "1")
        self.assertEqual(code, SUCCESS)
        self.assertIn("the folder is empty", err)
        self.assert_restores("set@1", self.folder)
        self.assert_whole()

    def test_of_empty_files(self):
        self.write("saved/empty", b"")
        self.write("saved/one", b"1")
        self.comes_back()

    def test_of_symbolic_links_wherever_they_point(self):
        self.write("saved/file")
        for name, target in (("to_file", "file"), ("dangling", "nowhere/at all"), ("absolute", "/etc/passwd"),
                             ("up", "../../.."), ("itself", "itself")):
            os.symlink(target, self.folder / name)
        self.comes_back()

    def test_of_links_without_touching_what_they_point_to(self):
        outside = self.write("outside/file", b"untouched")
        os.symlink(outside, self.folder / "link")
        self.varve("save", self.folder, "--job", "set", "--step", "1")
        self.varve("restore", "set@1", self.work / "back")
        self.varve("restore", "set@1", self.work / "back", "--overwrite")
        self.assertEqual(outside.read_bytes(), b"untouched")
        self.assertEqual(os.readlink(self.work / "back" / "link"), str(outside))

    def test_of_modes(self):
        for mode in (0o400, 0o644, 0o755, 0o600, 0o1755, 0o000):
            os.chmod(self.write(f"saved/file{mode:o}"), mode)
        for mode in (0o700, 0o755, 0o1777, 0o2775):
            (self.folder / f"folder{mode:o}").mkdir()
            os.chmod(self.folder / f"folder{mode:o}", mode)
        self.comes_back()

    def test_gives_nobody_the_rights_of_who_restores(self):
        for mode in (0o4755, 0o2755, 0o6711):
            os.chmod(self.write(f"saved/file{mode:o}"), mode)
        self.varve("save", self.folder, "--job", "set", "--step", "1")
        self.varve("restore", "set@1", self.work / "back")
        for mode in (0o4755, 0o2755, 0o6711):
            self.assertEqual(stat.S_IMODE(os.stat(self.work / f"back/file{mode:o}").st_mode), mode & ~0o6000)

    def test_of_an_array_that_is_larger_than_any_pack(self):
        numbers = array.array("d", (math.sin(i / 1000) for i in range(100_000)))
        with open(self.folder / "large", "wb") as file:
            file.write(numbers.tobytes())
            file.truncate(8 * 73_400_320)
        for effort in ("fast", "balanced", "best"):
            self.varve("save", self.folder, "--job", effort, "--step", "1", "--raw", "f64:73400320", "--effort", effort)
            self.varve("verify", "--deep")
            self.varve("restore", f"{effort}@1", self.work / effort)
            with open(self.work / effort / "large", "rb") as file:
                self.assertEqual(file.read(len(numbers) * 8), numbers.tobytes())

    def test_of_a_folder_that_may_not_be_written(self):
        self.write("saved/closed/file")
        os.chmod(self.folder / "closed", 0o555)
        self.comes_back()

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_over_an_older_set_with_a_folder_that_may_not_be_written(self):
        os.chmod(self.work, 0o777)

        def varve(*arguments):
            """As a user who is not root, to whom modes mean something; who cannot start the program has no test."""
            try:
                return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.work, capture_output=True, text=True,
                                      env=self.environment(VARVE_STORE=str(self.work / "own")), user=65534, group=65534,
                                      extra_groups=[], timeout=60)
            except PermissionError:
                return self.skipTest("the program is where only its owner can start it")

        self.assertEqual(varve("init", "own").returncode, 0)
        for step in (1, 2):
            self.write("saved/a", b"%d" % step)
            self.write("saved/d/f", b"%d" % step)
            os.chmod(self.work / "saved/d", 0o555)
            self.assertEqual(varve("save", "saved", "--job", "job", "--step", step).returncode, 0)
        self.assertEqual(varve("restore", "job@1", "back").returncode, 0)
        again = varve("restore", "job@2", "back", "--overwrite")
        self.assertEqual((again.returncode, again.stderr), (0, ""))
        self.assertEqual(((self.work / "back/a").read_bytes(), (self.work / "back/d/f").read_bytes()), (b"2", b"2"))
        self.assertEqual(os.stat(self.work / "back/d").st_mode & 0o777, 0o555)
        # A folder that only root could make writable: nothing is begun.
        os.chmod(self.work / "back", 0o555)
        os.chown(self.work / "back", 0, 0)
        self.assertNotEqual(varve("restore", "job@1", "back", "--overwrite").returncode, 0)
        self.assertEqual((self.work / "back/a").read_bytes(), b"2")
        os.chmod(self.work / "back", 0o777)
        os.chown(self.work / "back/d", 0, 0)
        refused = varve("restore", "job@1", "back", "--overwrite")
        self.assertIn("belongs to another user", refused.stderr)
        self.assertEqual((self.work / "back/a").read_bytes(), b"2")

    def test_of_times_to_the_nanosecond(self):
        times = (0, 1, 123_456_789, -1 * NANOSECONDS, 1_700_000_000 * NANOSECONDS + 999_999_999, 5_000_000_000 * NANOSECONDS)
        for number, time in enumerate(times):
            os.utime(self.write(f"saved/folder{number}/file{number}"), ns=(time, time))
            os.utime(self.folder / f"folder{number}", ns=(time, time))
        self.comes_back()

    def test_of_sparse_files_which_stay_sparse(self):
        with open(self.folder / "sparse", "wb") as file:
            file.write(b"begin")
            file.seek(64 << 20)
            file.write(b"middle")
            file.truncate(200 << 20)
        stored = self.facts("save", self.folder, "--job", "set", "--step", "1")["record"]["stored_bytes"]
        self.assertLess(stored, 64 << 10)
        self.varve("restore", "set@1", self.work / "back")
        self.assertEqual(snapshot(self.work / "back"), snapshot(self.folder))
        self.assertLess((self.work / "back" / "sparse").stat().st_blocks * 512, 8 << 20)

    def test_of_any_name(self):
        names = ["größe", "日本語", "with space", " leading", "new\nline", "tab\t", "\x1b[31mred", "-dash", "--help", "*", "?",
                 "[a]", "quote\"'", "back\\slash", "a@3:b", "x" * 255, ".hidden", "~", "$HOME", "%s%n"]
        for name in names:
            self.write(self.folder / name, name.encode())
        self.comes_back()
        code, out, _ = self.run_program("cat", "set@1:a@3:b")
        self.assertEqual((code, out), (0, b"a@3:b"))

    def test_of_names_that_are_not_utf_8(self):
        folder = os.fsencode(self.folder)
        for name in (b"\xff\xfe", b"latin1-\xe9", b"\xc0\xaf"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(name)
        self.comes_back()
        self.facts("show", "set@1")

    def test_of_names_without_tricks_on_the_terminal(self):
        self.write(self.folder / "evil\x1b]0;owned\x07\n", b"1")
        self.varve("save", self.folder, "--job", "set", "--step", "1")
        for command in (("show", "set@1"), ("diff", "set@1", "set@1")):
            self.assertFalse(set(self.varve(*command)) & (set(map(chr, range(32))) - {"\n"}))
        self.assertIn(r'"evil\x1b]0;owned\x07\n"', self.varve("show", "set@1"))
        self.assertNotIn("\x1b", self.fails(3, "cat", "set@1:\x1b[2J"))

    def test_of_long_paths(self):
        deep = self.folder.joinpath(*["d" * 100] * 30)
        deep.mkdir(parents=True)
        (deep / "file").write_bytes(b"deep")
        self.comes_back()

    def test_of_many_small_files(self):
        for number in range(2000):
            self.write(f"saved/{number % 20}/file{number}", str(number).encode() * 10)
        self.comes_back()

    def test_of_hdf5_files_that_are_broken(self):
        for number, length in enumerate((8, 9, 100, 2000)):
            self.write(f"saved/broken{number}.h5", b"\x89HDF\r\n\x1a\n" + os.urandom(length))
        code, _, err = self.run_program("save", self.folder, "--job", "set", "--step", "1")
        self.assertEqual(code, 0, err)
        self.assert_restores("set@1", self.folder)

    def test_leaves_out_fifos_and_says_so(self):
        os.mkfifo(self.folder / "fifo")
        self.write("saved/file")
        code, _, err = self.run_program("save", self.folder, "--job", "set", "--step", "1")
        self.assertEqual(code, 0)
        self.assertIn("varve: warning:", err)
        self.assertIn("fifo", err)
        os.remove(self.folder / "fifo")
        self.varve("restore", "set@1", self.work / "back", "--files", "file")


class Outside(ProgramTest):
    """Whatever lies in the target folder, nothing outside it is written."""

    def setUp(self):
        super().setUp()
        self.write("saved/sub/file", b"new")
        self.write("saved/top", b"new")
        self.varve("save", self.work / "saved", "--job", "set", "--step", "1")
        self.outside = self.work / "outside"
        self.write("outside/file", b"old")
        self.write("outside/top", b"old")
        self.target = self.work / "target"
        self.target.mkdir()

    def assert_outside_untouched(self):
        self.assertEqual(sorted(os.listdir(self.outside)), ["file", "top"])
        for name in ("file", "top"):
            self.assertEqual((self.outside / name).read_bytes(), b"old")

    def test_is_not_reached_through_a_link_to_a_folder(self):
        for target in (self.outside, pathlib.Path("../outside")):
            os.symlink(target, self.target / "sub")
            for options in ((), ("--overwrite",), ("--overwrite", "--keep-going")):
                self.run_program("restore", "set@1", self.target, *options)
                self.assert_outside_untouched()
            if os.path.islink(self.target / "sub"):
                os.remove(self.target / "sub")
            else:
                break

    def test_is_not_reached_through_a_link_to_a_file(self):
        os.symlink(self.outside / "top", self.target / "top")
        for options in ((), ("--overwrite",)):
            self.run_program("restore", "set@1", self.target, *options)
            self.assert_outside_untouched()

    def test_is_reached_if_the_user_names_a_link_as_the_target(self):
        (self.work / "real").mkdir()
        os.symlink(self.work / "real", self.work / "named")
        self.varve("restore", "set@1", self.work / "named")
        self.assertEqual(snapshot(self.work / "real"), snapshot(self.work / "saved"))


if __name__ == "__main__":
    unittest.main()
