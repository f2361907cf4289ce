"""A mounted store: committed sets are read like files, and what programs write becomes sets."""

import errno
import fcntl
import json
import mmap
import os
import pathlib
import random
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import unittest

from mounting import MountTest, wait_for, as_committed
from support import (BUSY, EXISTS, FAILURE, NIGHTLY, NOT_FOUND, PROGRAM, SAMPLE, SUCCESS, USAGE, compressible_bytes,
                     default_signals, snapshot)

AS_ROOT = os.geteuid() == 0
MANY_FILES = 10_000


def write_file(path, contents=b"contents\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)
    return path


class CommittedSets(MountTest):
    def setUp(self):
        super().setUp()
        for step in (5, 6):
            self.varve("save", SAMPLE / f"DD000{step}")
        self.job = self.point / "implosion"

    def test_are_folders_of_read_only_files(self):
        self.mount()
        self.assertEqual(os.listdir(self.point), ["implosion"])
        self.assertEqual(sorted(os.listdir(self.job)), ["5", "6", "latest"])
        self.assertEqual(os.readlink(self.job / "latest"), "6")
        for step in (5, 6):
            self.assert_same(snapshot(self.job / str(step)), as_committed(snapshot(SAMPLE / f"DD000{step}")))
        self.assert_errno(errno.ENOENT, os.stat, self.job / "7")
        self.assert_errno(errno.ENOENT, os.stat, self.point / "nobody")

    def test_what_others_save_and_drop_is_seen(self):
        self.mount()
        self.varve("save", SAMPLE / "DD0007")
        self.assertEqual(os.readlink(self.job / "latest"), "7")
        self.varve("drop", "implosion@7")
        self.assertTrue(wait_for(lambda: not (self.job / "7").exists()))
        self.assertEqual(os.readlink(self.job / "latest"), "6")

    def test_any_part_is_read_by_several_at_once(self):
        contents = compressible_bytes(3_000_000, 1) + bytes(5_000_000) + random.Random(2).randbytes(3_000_000)
        write_file(self.work / "big" / "file", contents)
        self.varve("save", self.work / "big", "--job", "big", "--step", "1")
        self.mount("--memory", "16MiB")
        failures = []

        def read_parts(seed):
            draw = random.Random(seed)
            with open(self.point / "big" / "1" / "file", "rb") as file:
                for _ in range(100):
                    offset, count = draw.randrange(len(contents) + 100), draw.randrange(300_000)
                    if os.pread(file.fileno(), count, offset) != contents[offset:offset + count]:
                        failures.append((seed, offset, count))

        readers = [threading.Thread(target=read_parts, args=(seed,)) for seed in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertEqual(failures, [])
        with open(self.point / "big" / "1" / "file", "rb") as file:
            view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self.assertEqual(view[:], contents)
            view.close()
            hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
            self.assertTrue(3_000_000 <= hole < 3_100_000, hole)
            self.assertTrue(7_900_000 < os.lseek(file.fileno(), hole, os.SEEK_DATA) <= 8_000_000)

    def test_cannot_be_changed(self):
        self.mount()
        folder = self.job / "6"
        file = next(path for path in folder.iterdir() if path.stat().st_size > 0)
        for mode in ("ab", "r+b", "wb"):
            self.assert_errno(errno.EROFS, open, file, mode)
        self.assert_errno(errno.EROFS, os.truncate, file, 0)
        self.assert_errno(errno.EROFS, open, folder / "new", "wb")
        self.assert_errno(errno.EROFS, os.mkdir, folder / "new")
        self.assert_errno(errno.EROFS, os.symlink, "target", folder / "new")
        self.assert_errno(errno.EROFS, os.rename, file, folder / "new")
        self.assert_errno(errno.EROFS, os.chmod, file, 0o644)
        self.assert_errno(errno.EROFS, os.utime, file, (1, 1))
        self.assert_errno(errno.EROFS, os.rename, folder, self.job / "9")
        self.assert_errno(errno.ENOTEMPTY, os.rmdir, folder)
        self.assert_same(snapshot(folder), as_committed(snapshot(SAMPLE / "DD0006")))

    def test_go_when_their_folder_is_removed(self):
        mounted = self.mount()
        file = next(path for path in (self.job / "6").iterdir())
        os.remove(file)
        self.assertFalse(file.exists())
        self.assertEqual(self.sets(), ["implosion@5", "implosion@6"], "nothing goes before its folder")
        self.unmount(mounted)
        self.mount()
        self.assertTrue(file.exists(), "what was removed is only hidden until then")
        subprocess.run(["rm", "-r", self.job / "6"], check=True)
        self.assertEqual(self.sets(), ["implosion@5"])
        self.assertEqual(os.readlink(self.job / "latest"), "5")
        subprocess.run(["rm", "-r", self.job], check=True)
        self.assertEqual(self.sets(), [])
        self.assertEqual(os.listdir(self.point), [])

    def test_stay_if_nobody_may_remove_them(self):
        for option, number in (("--no-delete", errno.EPERM), ("--read-only", errno.EROFS)):
            mounted = self.mount(option)
            file = next(path for path in (self.job / "6").iterdir())
            expected = number if AS_ROOT or number == errno.EROFS else errno.EACCES
            self.assert_errno(expected, os.remove, file)
            self.assert_errno(number, os.rmdir, self.job / "6")
            self.unmount(mounted)
        self.assertEqual(self.sets(), ["implosion@5", "implosion@6"])

    def test_a_read_only_mount_needs_no_spool(self):
        self.mount("--read-only", spool=False)
        self.assert_errno(errno.EROFS, os.mkdir, self.point / "job")
        self.assert_errno(errno.EROFS, os.mkdir, self.job / "7")
        self.assertFalse((self.work / "state").exists())

    def test_damage_is_an_error_and_a_line_of_the_log(self):
        contents = random.Random(3).randbytes(400_000)
        write_file(self.work / "big" / "file", contents)
        self.varve("save", self.work / "big", "--job", "big", "--step", "1")
        arena = max((self.store / "arenas").glob("*.arena"), key=lambda path: path.stat().st_size)
        with open(arena, "r+b") as file:
            file.seek(200_000)
            byte = file.read(1)[0]
            file.seek(200_000)
            file.write(bytes([byte ^ 1]))
        self.mount()
        self.assert_errno(errno.EIO, (self.point / "big" / "1" / "file").read_bytes)
        self.assertIn("big@1:file", self.log_text())
        self.assert_same(snapshot(self.job / "6"), as_committed(snapshot(SAMPLE / "DD0006")))

    def test_are_read_from_a_server(self):
        server = subprocess.Popen([PROGRAM, "serve", "--listen", f"unix:{self.work}/socket", "--dir", self.store],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  preexec_fn=default_signals)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        server.stdout.readline()
        self.mount(store=f"unix:{self.work}/socket")
        self.assert_same(snapshot(self.job / "6"), as_committed(snapshot(SAMPLE / "DD0006")))
        subprocess.run(["cp", "-a", SAMPLE / "DD0007", self.job / "7.tmp"], check=True)
        self.assert_same_when_sealed(self.job / "7.tmp", snapshot(SAMPLE / "DD0007"))

    def test_is_logged_in_the_form_that_is_asked_for(self):
        process = subprocess.Popen([PROGRAM, "mount", self.store, self.point, "--foreground", "--log-file", self.log,
                                    "--spool", self.spool, "--log", "json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, cwd=self.work, env=self.environment(), preexec_fn=default_signals)
        self.mounts.append((self.point, process))
        self.assertEqual(json.loads(process.stderr.readline())["event"], "mounted")
        (self.job / "8.tmp").mkdir()
        write_file(self.job / "8.tmp" / "data")
        self.seal(self.job / "8.tmp")
        self.assertIn("sealed implosion@8", [json.loads(line)["message"] for line in self.log_text().splitlines()])

    def test_the_disk_is_the_stores(self):
        self.mount()
        mine, below = os.statvfs(self.point), os.statvfs(self.store)
        self.assertEqual((mine.f_bsize * mine.f_blocks), (below.f_bsize * below.f_blocks))


class Levels(MountTest):
    """What is sealed in a mount goes on to the levels behind the store that is mounted."""

    def setUp(self):
        super().setUp()
        self.near, self.far = self.work / "near", self.work / "far"
        self.levels = f"dir:{self.near} keep=2; dir:{self.far} every=2"

    def mount_levels(self):
        process = subprocess.Popen([PROGRAM, "mount", "--levels", self.levels, self.point, "--foreground", "--log-file",
                                    self.log, "--spool", self.spool],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.work, env=self.environment(), preexec_fn=default_signals)
        self.mounts.append((self.point, process))
        line = process.stdout.readline().decode()
        self.assertIn(" is at ", line, process.stderr.read().decode() if not line else "")
        return process

    def seal_step(self, step):
        folder = self.point / "run" / f"{step}.tmp"
        folder.mkdir(parents=True)
        write_file(folder / "state", bytes([step]) * 100_000)
        self.seal(folder)

    def steps(self, store):
        return [entry["step"] for entry in self.facts("list", "--store", store)["sets"]]

    def test_get_sets_as_they_say(self):
        process = self.mount_levels()
        for step in range(1, 6):
            self.seal_step(step)
        self.assertTrue(wait_for(lambda: self.steps(self.far) == [2, 4]), self.log_text())
        self.assertTrue(wait_for(lambda: self.steps(self.near) == [4, 5]), self.log_text())
        self.unmount(process)

    def test_keep_what_one_that_is_away_is_owed(self):
        process = self.mount_levels()
        self.unmount(process)
        hidden = self.work / "hidden"
        self.far.rename(hidden)
        write_file(self.far)  # nothing can be made here
        process = self.mount_levels()
        for step in range(1, 6):
            self.seal_step(step)
        self.assertTrue(wait_for(lambda: "still to be copied" in self.log_text()), self.log_text())
        self.assertTrue(wait_for(lambda: self.steps(self.near) == [2, 4, 5]), self.log_text())
        self.unmount(process)
        self.far.unlink()
        hidden.rename(self.far)
        process = self.mount_levels()
        self.assertTrue(wait_for(lambda: self.steps(self.far) == [2, 4]), self.log_text())
        self.assertTrue(wait_for(lambda: self.steps(self.near) == [4, 5]), self.log_text())
        self.unmount(process)

    def test_stand_in_place_of_a_store(self):
        self.fails(USAGE, "mount", self.store, self.point, "--levels", self.levels)
        self.fails(USAGE, "mount", self.store)


class OpenSets(MountTest):
    def setUp(self):
        super().setUp()
        self.job = self.point / "run"
        self.local = self.work / "local"
        self.local.mkdir()

    def both(self, action):
        """Does the same on the local disk and in an open set; returns what came of it there and here."""
        results = []
        for folder in (self.local, self.job / "1.tmp"):
            try:
                results.append(action(folder))
            except OSError as error:
                results.append(os.strerror(error.errno))
        return results

    def test_do_what_a_local_disk_does(self):
        """The matrix of operations: each on the local disk and through the mount, with the same outcome."""
        self.mount()
        (self.job / "1.tmp").mkdir(parents=True)

        def append(folder):
            with open(folder / "appended", "ab") as file:
                for i in range(100):
                    file.write(b"%d," % i)
                    file.flush()

        def overwrite(folder):
            with open(folder / "overwritten", "w+b") as file:
                file.write(bytes(range(256)) * 1000)
                file.seek(100_000)
                file.write(b"in the middle")
                file.seek(0)
                return file.read()[99_990:100_030]

        def truncate(folder):
            with open(folder / "truncated", "wb") as file:
                file.write(b"x" * 10_000)
                file.truncate(100)
                file.seek(5000)
                file.write(b"after a hole")
                file.truncate(9000)
            return os.stat(folder / "truncated").st_size

        def holes(folder):
            with open(folder / "sparse", "wb") as file:
                file.seek(10_000_000)
                file.write(b"end")
            with open(folder / "sparse", "rb") as file:
                found = [os.lseek(file.fileno(), 0, os.SEEK_DATA), os.lseek(file.fileno(), 0, os.SEEK_HOLE)]
            return found, os.stat(folder / "sparse").st_size

        def allocate(folder):
            with open(folder / "allocated", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 100_000)
                file.write(b"begin")
            return os.stat(folder / "allocated").st_size

        def map_memory(folder):
            with open(folder / "mapped", "w+b") as file:
                file.truncate(1_000_000)
                with mmap.mmap(file.fileno(), 0) as view:
                    view[500_000:500_005] = b"hello"
                    view[999_999:] = b"!"
                file.seek(500_000)
                return file.read(5)

        def open_unlinked(folder):
            with open(folder / "unlinked", "w+b") as file:
                file.write(b"still here")
                file.flush()
                os.remove(folder / "unlinked")
                os.fchmod(file.fileno(), 0o600)
                file.seek(0)
                return file.read(), os.fstat(file.fileno()).st_size, (folder / "unlinked").exists()

        def rename_over(folder):
            (folder / "old").write_bytes(b"old")
            (folder / "new").write_bytes(b"new")
            os.rename(folder / "new", folder / "old")
            return (folder / "old").read_bytes()

        def move_folders(folder):
            (folder / "a" / "b").mkdir(parents=True)
            (folder / "a" / "b" / "file").write_bytes(b"moved")
            (folder / "c").mkdir()
            os.rename(folder / "a" / "b", folder / "c" / "d")
            return (folder / "c" / "d" / "file").read_bytes(), os.listdir(folder / "a")

        def rename_while_open(folder):
            with open(folder / "before", "wb") as file:
                file.write(b"one ")
                file.flush()
                os.rename(folder / "before", folder / "after")
                file.write(b"two")
            return (folder / "after").read_bytes()

        def links(folder):
            os.symlink("c/d/file", folder / "link")
            os.symlink("x" * 2000, folder / "dangling")
            return os.readlink(folder / "link"), (folder / "link").read_bytes()

        def errors(folder):
            (folder / "full" / "file").parent.mkdir()
            (folder / "full" / "file").write_bytes(b"")
            outcomes = []
            for action in (lambda: os.rmdir(folder / "full"), lambda: os.mkdir(folder / "full"),
                           lambda: os.remove(folder / "full"), lambda: os.rmdir(folder / "full" / "file"),
                           lambda: os.remove(folder / "nobody"), lambda: os.rename(folder / "nobody", folder / "x"),
                           lambda: open(folder / "full" / "file" / "x", "wb"), lambda: open(folder / "full", "wb"),
                           lambda: os.mkdir(folder / ("n" * 256)), lambda: open(folder / ("n" * 256), "wb"),
                           lambda: os.rename(folder / "full", folder / "old"),
                           lambda: os.open(folder / "old", os.O_CREAT | os.O_EXCL),
                           lambda: os.readlink(folder / "old"), lambda: os.listdir(folder / "old")):
                try:
                    outcomes.append(repr(action()))
                except OSError as error:
                    outcomes.append(error.errno)
            return outcomes

        def modes_and_times(folder):
            (folder / "modes").write_bytes(b"x")
            os.chmod(folder / "modes", 0o4751)
            os.utime(folder / "modes", ns=(123456789, 987654321_123456789))
            os.utime(folder / "c", ns=(5, 7_000_000_001))
            return [(os.stat(folder / name).st_mode, os.stat(folder / name).st_mtime_ns) for name in ("modes", "c")]

        def written_without_permission(folder):
            descriptor = os.open(folder / "0444", os.O_CREAT | os.O_WRONLY, 0o444)
            os.write(descriptor, b"as tar does")
            os.close(descriptor)
            return os.stat(folder / "0444").st_mode

        def long_names(folder):
            (folder / ("n" * 255)).write_bytes(b"long")
            (folder / "\x01 \n\\'\"ü").write_bytes(b"odd")
            os.rename(folder / ("n" * 255), folder / ("m" * 255))
            return len(os.listdir(folder))

        def deep(folder):
            path = folder / "deep"
            for i in range(40):
                path = path / f"folder{i}"
            path.mkdir(parents=True)
            (path / "file").write_bytes(b"deep")
            return (path / "file").read_bytes()

        def synced(folder):
            with open(folder / "synced", "wb") as file:
                file.write(b"durable")
                file.flush()
                os.fsync(file.fileno())
                os.fdatasync(file.fileno())
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

        def locked(folder):
            with open(folder / "locked", "wb") as file:
                fcntl.lockf(file, fcntl.LOCK_EX)
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(b"locked")

        def random_writes(folder):
            draw = random.Random(7)
            with open(folder / "random", "w+b") as file:
                for _ in range(300):
                    file.seek(draw.randrange(2_000_000))
                    file.write(draw.randbytes(draw.randrange(1, 30_000)))
                    if draw.random() < 0.05:
                        file.truncate(draw.randrange(2_000_000))
                file.seek(0)
                return file.read()

        def empty(folder):
            (folder / "empty").write_bytes(b"")
            (folder / "empty").write_bytes(b"of no bytes, so it may be opened again")
            (folder / "none").write_bytes(b"")

        for action in (append, overwrite, truncate, holes, allocate, map_memory, open_unlinked, rename_over,
                       move_folders, rename_while_open, links, errors, modes_and_times, written_without_permission,
                       long_names, deep, synced, locked, random_writes, empty):
            with self.subTest(action.__name__):
                there, here = self.both(action)
                self.assertEqual(here, there)
        # Times are those of writing, but for what was set.
        subprocess.run(["cp", "-a", f"{self.job}/1.tmp/.", self.work / "copy"], check=True)
        found, expected = snapshot(self.job / "1.tmp"), snapshot(self.local)
        self.assertEqual({path: (entry[0], *entry[1:2], *entry[3:]) for path, entry in found.items()},
                         {path: (entry[0], *entry[1:2], *entry[3:]) for path, entry in expected.items()})
        self.assert_same_when_sealed(self.job / "1.tmp", snapshot(self.work / "copy"))

    def test_closed_files_can_be_written_until_their_set_is_sealed(self):
        self.mount()
        file = write_file(self.job / "1.tmp" / "file")
        with open(file, "ab") as again:
            again.write(b"more\n")
        self.assertEqual(file.read_bytes(), b"contents\nmore\n")
        os.truncate(file, 3)
        self.assertEqual(file.read_bytes(), b"con")
        sealed = self.seal(self.job / "1.tmp")
        # For a moment the kernel may remember the modes that the file had.
        with self.assertRaises(OSError) as refused:
            open(sealed / "file", "ab")
        self.assertIn(refused.exception.errno, (errno.EROFS, errno.EACCES))
        # A copy is as writable as the file was.
        subprocess.run(["cp", sealed / "file", self.work / "copy"], check=True)
        with open(self.work / "copy", "ab") as copy:
            copy.write(b"more")

    def test_several_processes_write_one_file(self):
        self.mount()
        path = write_file(self.job / "1.tmp" / "shared", b"")
        script = ("import os, sys\n"
                  "rank, count, block = int(sys.argv[2]), 4, 65536\n"
                  "file = os.open(sys.argv[1], os.O_RDWR)\n"
                  "print('open', flush=True)\n"
                  "sys.stdin.readline()\n"
                  "for i in range(rank, 64, count): os.pwrite(file, bytes([i]) * block, i * block)\n"
                  "os.fsync(file)\n")
        writers = [subprocess.Popen([sys.executable, "-c", script, path, str(rank)], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE) for rank in range(4)]
        for writer in writers:  # who comes when another one has closed it comes too late
            self.assertEqual(writer.stdout.readline(), b"open\n")
            writer.stdout.close()
        for writer in writers:
            writer.stdin.write(b"\n")
            writer.stdin.close()
        self.assertEqual([writer.wait() for writer in writers], [0] * 4)
        expected = b"".join(bytes([i]) * 65536 for i in range(64))
        self.assertEqual(path.read_bytes(), expected)
        sealed = self.seal(self.job / "1.tmp")
        self.assertEqual((sealed / "shared").read_bytes(), expected)

    def test_ten_thousand_files(self):
        self.mount()
        folder = self.job / "1.tmp"
        folder.mkdir(parents=True)
        for i in range(MANY_FILES):
            descriptor = os.open(folder / f"file{i:05}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
            os.write(descriptor, b"%d" % i)
            os.close(descriptor)
        self.assertEqual(len(os.listdir(folder)), MANY_FILES)
        sealed = self.seal(folder)
        names = os.listdir(sealed)
        self.assertEqual(sorted(names), [f"file{i:05}" for i in range(MANY_FILES)])
        for i in range(0, MANY_FILES, 37):
            self.assertEqual((sealed / f"file{i:05}").read_bytes(), b"%d" % i)
        subprocess.run(["rm", "-r", sealed], check=True)
        self.assertEqual(self.sets(), [])

    def test_readers_do_not_notice_the_seal(self):
        self.mount()
        folder = self.job / "1.tmp"
        contents = compressible_bytes(2_000_000, 5)
        file = write_file(folder / "sub" / "file", contents)
        number = os.stat(file).st_ino
        with open(file, "rb") as reader:
            self.assertEqual(reader.read(1000), contents[:1000])
            os.chdir(folder / "sub")
            self.addCleanup(os.chdir, "/")
            sealed = self.seal(folder)
            self.assertEqual(reader.read(), contents[1000:])
            self.assertEqual(os.fstat(reader.fileno()).st_ino, number)
        self.assertEqual(os.stat(sealed / "sub" / "file").st_ino, number)
        self.assertEqual(pathlib.Path("file").read_bytes(), contents)
        os.chdir("/")

    def test_names_in_the_wrong_place(self):
        self.mount()
        self.job.mkdir()
        self.assert_errno(errno.EPERM, open, self.point / "file", "wb")
        self.assert_errno(errno.EPERM, open, self.job / "file", "wb")
        self.assert_errno(errno.EPERM, os.symlink, "a", self.job / "link")
        self.assert_errno(errno.EINVAL, os.mkdir, self.point / "a@b")
        self.assert_errno(errno.EINVAL, os.mkdir, self.job / "nonumber")
        self.assert_errno(errno.ENAMETOOLONG, os.mkdir, self.point / ("n" * 101))
        self.assert_errno(errno.EPERM, os.rename, self.job, self.point / "other")
        self.assert_errno(errno.EEXIST, os.mkdir, self.job)
        (self.job / "1.tmp").mkdir()
        write_file(self.job / "1.tmp" / "file")
        self.assert_errno(errno.EXDEV, os.rename, self.job / "1.tmp" / "file", self.job / "file")
        self.assert_errno(errno.EPERM, os.link, self.job / "1.tmp" / "file", self.job / "1.tmp" / "again")
        self.assert_errno(errno.EPERM, os.mkfifo, self.job / "1.tmp" / "fifo")
        self.assert_errno(errno.EINVAL, os.rename, self.job / "1.tmp", self.job / "nonumber")
        self.assert_errno(errno.ENOTEMPTY, os.rmdir, self.job)
        os.remove(self.job / "1.tmp" / "file")
        os.rmdir(self.job / "1.tmp")
        os.rmdir(self.job)
        self.assertEqual(os.listdir(self.point), [])

    def test_open_sets_can_be_removed(self):
        self.mount()
        subprocess.run(["cp", "-a", SAMPLE / "DD0005", self.work / "copy"], check=True)
        self.job.mkdir()
        subprocess.run(["cp", "-a", SAMPLE / "DD0005", self.job / "5.tmp"], check=True)
        subprocess.run(["rm", "-r", self.job / "5.tmp"], check=True)
        self.assertEqual(os.listdir(self.job), [])
        self.assertTrue(wait_for(lambda: not any((self.spool / "trash").iterdir())))

    def test_mount_again_with_open_sets(self):
        mounted = self.mount("--seal-after", "0")
        self.job.mkdir()
        subprocess.run(["cp", "-a", SAMPLE / "DD0006", self.job / "6.tmp"], check=True)
        (self.point / "empty").mkdir()
        self.unmount(mounted)
        self.assertEqual(self.sets(), [])
        self.mount("--seal-after", "0")
        self.assertEqual(sorted(os.listdir(self.point)), ["empty", "run"])
        self.assert_same_when_sealed(self.job / "6.tmp", snapshot(SAMPLE / "DD0006"))

    def test_one_mount_for_a_spool(self):
        self.mount()
        other = self.work / "other"
        other.mkdir()
        said = self.fails(BUSY, "mount", self.store, other, "--spool", self.spool)
        self.assertIn("another mount has the spool", said)

    def test_may_be_renamed_while_they_are_open(self):
        self.mount()
        write_file(self.job / "1.tmp" / "file")
        os.rename(self.job / "1.tmp", self.job / "2.tmp")
        self.assertEqual(os.listdir(self.job), ["2.tmp"])
        write_file(self.job / "2.tmp" / "other")
        os.rename(self.job / "2.tmp", self.job / "dump0003")
        self.assertEqual(self.sets(), ["run@3"])
        self.assertTrue(wait_for((self.job / "dump0003").is_symlink), "once the kernel asks again")
        self.assertEqual(os.readlink(self.job / "dump0003"), "3")
        self.assertEqual((self.job / "dump0003" / "other").read_bytes(), b"contents\n")


class Sealing(MountTest):
    def setUp(self):
        super().setUp()
        self.job = self.point / "run"

    def test_a_rename_commits(self):
        self.mount()
        self.job.mkdir()
        subprocess.run(["cp", "-a", SAMPLE / "DD0006", self.job / "6.tmp"], check=True)
        self.assert_same_when_sealed(self.job / "6.tmp", snapshot(SAMPLE / "DD0006"))
        self.assertEqual(self.sets(), ["run@6"])
        self.assertEqual(sorted(os.listdir(self.job)), ["6", "latest"])
        self.assert_whole()
        facts = self.facts("show", "run@6")
        self.assertGreater(len(facts["files"][1]["variables"]) + len(facts["files"][2]["variables"]), 0,
                           "readers of formats have looked into the files")

    def test_the_command_commits(self):
        self.mount("--seal-after", "0")
        for name in ("5", "6.tmp", "DD0007"):
            self.job.mkdir(exist_ok=True)
            subprocess.run(["cp", "-a", SAMPLE / "DD0006", self.job / name], check=True)
            self.assertTrue(self.is_open(self.job / name))
            self.varve("seal", self.job / name)
        self.assertEqual(self.sets(), ["run@5", "run@6", "run@7"])
        self.assertEqual(sorted(os.listdir(self.job)), ["5", "6", "7", "latest"])
        self.assert_same(snapshot(self.job / "DD0007"), as_committed(snapshot(SAMPLE / "DD0006")))
        self.assertFalse(self.is_open(self.job / "7"))
        self.varve("seal", self.job / "7")
        self.assertIn("no mount", self.fails(USAGE, "seal", self.work))
        for asked in ((), ("--status",)):
            err = self.fails(USAGE, "seal", self.job, *asked)
            self.assertIn(f"not the folder of a set: {self.job}", err)
            self.assertIn("DIR/JOB/STEP", err)

    def test_quiet_sets_are_committed(self):
        self.mount("--seal-after", "1")
        write_file(self.job / "3" / "file")
        write_file(self.job / "4.tmp" / "file")
        (self.job / "5").mkdir()
        with open(write_file(self.job / "6" / "begun", b""), "wb") as still:
            still.write(b"at work")
            still.flush()
            self.assertTrue(wait_for(lambda: self.sets() == ["run@3"]))
            time.sleep(1.5)
            self.assertEqual(self.sets(), ["run@3"], "not what is temporary, empty, or being written")
        self.assertTrue(wait_for(lambda: self.sets() == ["run@3", "run@6"]))
        self.assertEqual(sorted(os.listdir(self.job)), ["3", "4.tmp", "5", "6", "latest"])

    def test_what_is_being_written_is_busy(self):
        self.mount()
        with open(write_file(self.job / "1.tmp" / "file", b""), "wb") as file:
            file.write(b"first")
            file.flush()
            self.assert_errno(errno.EBUSY, os.rename, self.job / "1.tmp", self.job / "1")
            self.assertIn("open for writing", self.fails(BUSY, "seal", self.job / "1.tmp"))
            file.write(b" second")
        os.rename(self.job / "1.tmp", self.job / "1")
        self.assertEqual((self.job / "1" / "file").read_bytes(), b"first second")

    def test_a_set_that_is_there_stays(self):
        self.mount()
        write_file(self.job / "1.tmp" / "file", b"first")
        self.seal(self.job / "1.tmp")
        self.assert_errno(errno.EEXIST, os.mkdir, self.job / "1")
        self.assert_errno(errno.EEXIST, os.mkdir, self.job / "step01")
        write_file(self.job / "1.tmp" / "file", b"second")
        self.assert_errno(errno.EEXIST, os.rename, self.job / "1.tmp", self.job / "1")
        self.assertIn("in the store already", self.fails(EXISTS, "seal", self.job / "1.tmp"))
        self.assertEqual((self.job / "1" / "file").read_bytes(), b"first")
        self.assertEqual((self.job / "1.tmp" / "file").read_bytes(), b"second")
        subprocess.run(["rm", "-r", self.job / "1"], check=True)
        self.seal(self.job / "1.tmp")
        self.assertEqual((self.job / "1" / "file").read_bytes(), b"second")

    def test_sets_share_what_they_have_in_common(self):
        self.mount("--codec", "store")
        contents = random.Random(1).randbytes(1_000_000)
        for step in (1, 2):
            write_file(self.job / f"{step}.tmp" / "file", contents)
            self.seal(self.job / f"{step}.tmp")
        records = self.facts("list")["sets"]
        self.assertEqual([record["new_bytes"] for record in records], [1_000_000, 0])
        self.assertEqual(records[0]["policy"], "store")

    @unittest.skipUnless(AS_ROOT, "only root can mount a small disk")
    def test_a_full_store_loses_nothing(self):
        small = self.work / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", small])
        self.store = small / "store"
        self.varve("init", self.store)
        self.mount("--codec", "store")
        draw = random.Random(3)
        first, second = draw.randbytes(2_000_000), draw.randbytes(6_000_000)
        write_file(self.job / "1.tmp" / "file", first)
        self.seal(self.job / "1.tmp")
        write_file(self.job / "2.tmp" / "file", second)
        self.assert_errno(errno.ENOSPC, os.rename, self.job / "2.tmp", self.job / "2")
        self.assertIn("space", self.fails(FAILURE, "seal", self.job / "2.tmp").lower())
        self.assertIn("not sealed", self.varve("seal", "--status", self.job / "2.tmp"))
        self.assertEqual((self.job / "2.tmp" / "file").read_bytes(), second)
        self.assertEqual((self.job / "1" / "file").read_bytes(), first)
        self.assert_whole()
        subprocess.run(["mount", "-o", "remount,size=40m", small], check=True)
        self.seal(self.job / "2.tmp")
        self.assertEqual((self.job / "2" / "file").read_bytes(), second)
        self.assert_whole()

    @unittest.skipUnless(AS_ROOT, "only root can mount a small disk")
    def test_a_full_spool_is_told_to_who_writes(self):
        self.spool = self.work / "small"
        self.spool.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", self.spool], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.spool])
        self.mount()
        self.assert_errno(errno.ENOSPC, write_file, self.job / "1.tmp" / "file", bytes(range(256)) * 40_000)
        subprocess.run(["rm", "-r", self.job / "1.tmp"], check=True)
        self.assertTrue(wait_for(lambda: not any((self.spool / "trash").iterdir())))
        write_file(self.job / "1.tmp" / "file", bytes(range(256)) * 4000)
        self.seal(self.job / "1.tmp")
        self.assertEqual(self.sets(), ["run@1"])


class TheProgram(MountTest):
    def test_goes_to_the_background_when_the_mount_is_ready(self):
        self.varve("save", SAMPLE / "DD0006")
        self.varve("mount", self.store, self.point, "--spool", self.spool)
        self.addCleanup(subprocess.run, ["umount", "-l", self.point], stderr=subprocess.DEVNULL)
        self.assertEqual(os.listdir(self.point), ["implosion"])
        self.assertIn("mounted there already", self.fails(BUSY, "mount", self.store, self.point))
        self.varve("unmount", self.point)
        self.assertEqual(os.listdir(self.point), [])
        self.fails(NOT_FOUND, "unmount", self.point)

    def test_says_at_once_what_is_wrong(self):
        self.assertIn("no store", self.fails(NOT_FOUND, "mount", self.work / "nowhere", self.point))
        self.fails(NOT_FOUND, "mount", self.store, self.work / "nowhere")
        self.assertIn("spool", self.fails(USAGE, "mount", self.store, self.point, "--spool", self.point / "spool"))
        self.unmount(self.mount())
        self.varve("init", self.work / "other")
        self.assertIn("another store", self.fails(USAGE, "mount", self.work / "other", self.point, "--spool", self.spool))
        self.assertIn("not empty", self.fails(USAGE, "mount", self.store, self.work))
        (self.store / "inside").mkdir()
        self.assertIn("own folder", self.fails(USAGE, "mount", self.store, self.store / "inside"))

    def test_leaves_a_foreign_folder_alone(self):
        self.write("foreign/file")
        os.chmod(self.work / "foreign", 0o751)
        said = self.fails(USAGE, "mount", self.store, self.point, "--spool", self.work / "foreign")
        self.assertIn("no spool", said)
        self.assertEqual(os.listdir(self.work / "foreign"), ["file"])
        self.assertEqual(stat.S_IMODE(os.stat(self.work / "foreign").st_mode), 0o751)

    def test_modes_are_those_of_whoever_writes_and_not_the_mounts(self):
        before = os.umask(0o077)
        mounted = self.mount()
        os.umask(0o002)
        write_file(self.point / "run" / "1.tmp" / "sub" / "file")
        os.umask(before)
        found = [stat.S_IMODE(os.stat(self.point / "run" / "1.tmp" / path).st_mode) for path in ("sub", "sub/file")]
        self.assertEqual(found, [0o775, 0o664])
        os.rename(self.point / "run" / "1.tmp", self.point / "run" / "1")
        self.unmount(mounted)
        self.assertEqual({stat.S_IMODE(path.stat().st_mode) & 0o077 for path in self.store.rglob("*.arena")}, {0})

    def test_an_empty_set_can_be_sealed(self):
        self.mount()
        (self.point / "run" / "1.tmp").mkdir(parents=True)
        os.rename(self.point / "run" / "1.tmp", self.point / "run" / "1")
        self.assertEqual(os.listdir(self.point / "run" / "1"), [])
        os.rmdir(self.point / "run" / "1")
        self.assertEqual(self.sets(), [])

    def test_the_usual_spool_is_in_the_state_folder(self):
        mounted = self.mount(spool=False)
        write_file(self.point / "run" / "1" / "file")
        self.unmount(mounted)
        self.assertEqual(len(list((self.work / "state" / "varve" / "spool").glob("*/jobs/run/*/files/file"))), 1)

    def test_a_signal_ends_it_in_good_order(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            mounted = self.mount()
            write_file(self.point / "run" / f"{number}" / "file")
            mounted.send_signal(number)
            self.assertEqual(mounted.wait(timeout=30), SUCCESS)
            self.assertEqual(os.listdir(self.point), [])
        self.mount()
        self.assertEqual(sorted(os.listdir(self.point / "run")), ["15", "2"])

    def test_a_dead_mount_is_replaced(self):
        self.kill(self.mount())
        self.assert_errno(errno.ENOTCONN, os.listdir, self.point)
        self.mount()
        self.assertEqual(os.listdir(self.point), [])
        self.kill(self.mounts[-1][1])
        self.varve("unmount", self.point)
        self.assertEqual(os.listdir(self.point), [])


if __name__ == "__main__":
    unittest.main()
