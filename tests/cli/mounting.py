"""What the tests of `varve mount` share: a mount that ends with the test, and comparing folders through it."""

import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from support import PROGRAM, SUCCESS, ProgramTest, default_signals, snapshot

HAS_FUSE = os.environ.get("VARVE_WITH_FUSE", "1") == "1"


def why_no_mount():
    """Why nothing can be mounted here; empty if it can."""
    if not HAS_FUSE:
        return "a build without FUSE"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be used: {error.strerror}"
    if os.geteuid() != 0 and not shutil.which("fusermount3"):
        return "fusermount3 is missing"
    return ""


def wait_for(condition, seconds=30):
    """Whether the condition came true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def without_bits(entries, bits):
    return {path: (entry[0], entry[1] & ~bits, *entry[2:]) if entry[0] == "file" else entry
            for path, entry in entries.items()}


def as_committed(entries):
    """A snapshot as it looks once its set is committed: files give nobody's rights."""
    return without_bits(entries, 0o6000)


@unittest.skipIf(why_no_mount(), why_no_mount())
class MountTest(ProgramTest):
    """Has a store, and mounts of it, which end with the test."""

    def setUp(self):
        super().setUp()
        self.point = self.work / "mount"
        self.point.mkdir()
        self.spool = self.work / "spool"
        self.log = self.work / "mount.log"
        self.mounts = []
        self.addCleanup(self.end_all)

    def environment(self, **changes):
        return super().environment(XDG_STATE_HOME=str(self.work / "state"), **changes)

    def end_all(self):
        # In the way of removing the folder, and what is below a mount must not be removed through it.
        for point, process in self.mounts:
            subprocess.run(["umount", "-l", point] if os.geteuid() == 0 else ["fusermount3", "-uz", point],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if process.poll() is None:
                process.kill()
            process.communicate()

    def mount(self, *options, point=None, store=None, spool=True):
        """Mounts the store; returns the process."""
        point = point or self.point
        where = ["--spool", self.spool] if spool else []
        process = subprocess.Popen([PROGRAM, "mount", store or self.store, point, "--foreground", "--log-file", self.log,
                                    *map(str, where), *map(str, options)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.work, env=self.environment(), preexec_fn=default_signals)
        self.mounts.append((point, process))
        line = process.stdout.readline().decode()
        self.assertIn(" is at ", line, process.stderr.read().decode() if not line else "")
        return process

    def unmount(self, process, point=None):
        self.varve("unmount", point or self.point)
        self.assertEqual(process.wait(timeout=30), SUCCESS, process.stderr.read())

    def kill(self, process):
        """As a crash of the mount; the folder is a dead mount then."""
        process.kill()
        process.wait(timeout=30)

    def log_text(self):
        return self.log.read_text() if self.log.exists() else ""

    def sets(self):
        return [f"{entry['job']}@{entry['step']}" for entry in self.facts("list")["sets"]]

    def is_open(self, folder):
        """Whether the folder is that of a set that is not committed."""
        return self.varve("seal", "--status", folder).split(": ", 1)[1].startswith(("open", "being sealed"))

    def seal(self, folder):
        """Renames STEP.tmp to STEP; returns the committed folder."""
        sealed = folder.with_suffix("")
        os.rename(folder, sealed)
        return sealed

    def temporary_folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.work))

    def assert_same_when_sealed(self, folder, expected=None):
        """The open set is `expected` (a snapshot), before and after it is sealed, and so is what is restored."""
        before = snapshot(folder)
        if expected is not None:
            self.assert_same(before, expected)
        sealed = self.seal(folder)
        self.assert_same(snapshot(sealed), as_committed(before))
        target = self.temporary_folder() / "target"
        self.varve("restore", f"{sealed.parent.name}@{sealed.name}", target)
        self.assert_same(snapshot(target), as_committed(before))
        return sealed

    def assert_same(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for path, entry in expected.items():
            if entry != found[path]:
                differing = [i for i, (a, b) in enumerate(zip(entry, found[path])) if a != b]
                self.fail(f"{path}: {entry[0]} differs in {differing}: "
                          f"{[str(entry[i])[:80] for i in differing]} {[str(found[path][i])[:80] for i in differing]}")

    def assert_errno(self, number, action, *arguments, **named):
        with self.assertRaises(OSError) as raised:
            action(*arguments, **named)
        self.assertEqual(raised.exception.errno, number, os.strerror(raised.exception.errno))
