"""What the tests of the program share: running it, making folders to save, and comparing folders."""

import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("VARVE_PROGRAM", "varve")
NIGHTLY = os.environ.get("VARVE_NIGHTLY") == "1"
HAS_TOML = os.environ.get("VARVE_WITH_TOML", "1") == "1"
HAS_HDF5 = os.environ.get("VARVE_WITH_HDF5", "1") == "1"
SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "sample" / "implosion"

SUCCESS, FAILURE, USAGE, NOT_FOUND, DAMAGED, EXISTS, BUSY, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130


def default_signals():
    """A test may be started where signals are ignored, which children would inherit."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def snapshot(folder):
    """All that a restore must bring back, by path: type, mode, time and contents."""
    found = {}
    for parent, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(parent, name)
            status = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(folder))
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("symlink", os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[key] = ("folder", stat.S_IMODE(status.st_mode), status.st_mtime_ns)
            else:
                with open(path, "rb") as file:
                    found[key] = ("file", stat.S_IMODE(status.st_mode), status.st_mtime_ns, file.read())
    return found


def compressible_bytes(count, seed):
    """Bytes of four bits of entropy each: a thorough codec is busy with them for a while."""
    sixteen_values = bytes(range(16)) * 16
    return random.Random(seed).randbytes(count).translate(sixteen_values)


class ProgramTest(unittest.TestCase):
    """Gives each test a folder of its own and a store in it."""

    maxDiff = 2000

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="varve-cli-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.store = self.work / "store"
        self.varve("init", self.store)

    def environment(self, **changes):
        environment = {key: value for key, value in os.environ.items() if key != "VARVE_STORE"}
        return {**environment, "VARVE_STORE": str(self.store), **changes}

    def start(self, *arguments, environment=None, stderr=subprocess.PIPE, stdout=subprocess.PIPE):
        return subprocess.Popen([PROGRAM, *map(self.encode, arguments)], stdin=subprocess.DEVNULL, stdout=stdout,
                                stderr=stderr, env=environment or self.environment(), cwd=self.work,
                                preexec_fn=default_signals)

    @staticmethod
    def encode(argument):
        return argument if isinstance(argument, bytes) else os.fsencode(str(argument))

    def run_program(self, *arguments, environment=None):
        """Returns (exit code, standard output, standard error), the last as text."""
        process = self.start(*arguments, environment=environment)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err.decode(errors="replace")

    def varve(self, *arguments):
        """Runs the program, which must succeed and say nothing on standard error; returns what it printed."""
        code, out, err = self.run_program(*arguments)
        self.assertEqual((code, err), (SUCCESS, ""), f"varve {arguments}: {out!r}")
        return out.decode()

    def facts(self, *arguments):
        """The same with --json; returns the one object that it printed."""
        out = self.varve(*arguments, "--json")
        self.assertEqual(out.count("\n"), 1, out)
        return json.loads(out)

    def fails(self, expected_code, *arguments):
        """Runs the program, which must end with this code; returns its standard error."""
        code, out, err = self.run_program(*arguments)
        self.assertEqual(code, expected_code, f"varve {arguments}: {out!r} {err}")
        return err

    def write(self, path, contents=b"contents\n"):
        path = pathlib.Path(path) if os.path.isabs(path) else self.work / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
        return path

    def assert_restores(self, name, folder):
        """The set comes back exactly as the folder is."""
        target = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "target"
        self.varve("restore", name, target)
        self.assertEqual(snapshot(target), snapshot(folder), name)
        shutil.rmtree(target)

    def assert_whole(self):
        self.assertTrue(self.facts("verify", "--deep")["whole"])
