"""Whatever a mount was doing when it was killed: the next one has all that was written."""

import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

from mounting import MountTest, wait_for
from support import NIGHTLY, SAMPLE, compressible_bytes, default_signals, snapshot

KILLS = 50 if NIGHTLY else 5

# Writes sets until the mount dies; says what it has done, each line when the call has returned.
WRITER = """
import os, random, sys
job, seed = sys.argv[1], int(sys.argv[2])
draw = random.Random(seed)
def say(*words): print(*words, flush=True)
try:
    for step in range(1000 * seed, 1000 * seed + 1000):
        folder = f"{job}/{step}.tmp"
        os.mkdir(folder)
        say("made", step)
        for name in range(draw.randrange(1, 6)):
            contents = draw.randbytes(draw.randrange(300_000))
            with open(f"{folder}/{name}", "wb") as file:
                say("opened", step, name)
                for at in range(0, len(contents), 50_000):
                    file.write(contents[at:at + 50_000])
                    file.flush()
                if draw.random() < 0.3: os.fsync(file.fileno())
            say("closed", step, name, len(contents))
        os.rename(folder, f"{job}/{step}")
        say("sealed", step)
except OSError as error:
    say("failed", error.errno)
"""


# Writes half of a file, and leaves it open.
HALF_WRITER = """
import os, sys, threading, time
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
os.write(descriptor, b"the first half")
for _ in range(int(sys.argv[2])):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("written", flush=True)
os._exit(int(sys.stdin.read()))
"""


def without_core():
    default_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def contents_of(seed):
    """What the writer with that seed puts into its files, by step: lists of contents."""
    draw = random.Random(seed)
    for step in range(1000 * seed, 1000 * seed + 1000):
        files = []
        for _ in range(draw.randrange(1, 6)):
            files.append(draw.randbytes(draw.randrange(300_000)))
            draw.random()
        yield step, files


class AfterAKill(MountTest):
    def setUp(self):
        super().setUp()
        self.job = self.point / "run"

    def test_all_that_was_written_is_there(self):
        """Kills the mount at random moments while a program writes sets into it."""
        seed = random.randrange(1_000_000)
        print(f"seed {seed}", file=sys.stderr)
        draw = random.Random(seed)
        mounted = self.mount("--seal-after", "0")
        self.job.mkdir()
        for number in range(1, KILLS + 1):
            writer = subprocess.Popen([sys.executable, "-c", WRITER, self.job, str(number)], stdout=subprocess.PIPE)
            time.sleep(draw.uniform(0.05, 0.6))
            self.kill(mounted)
            said = [line.split() for line in writer.communicate(timeout=60)[0].decode().splitlines()]
            mounted = self.mount("--seal-after", "0")
            self.check_what_was_said(number, said)
        self.assert_whole()

    def check_what_was_said(self, number, said):
        made = [int(words[1]) for words in said if words[0] == "made"]
        sealed = {int(words[1]) for words in said if words[0] == "sealed"}
        closed = [(int(words[1]), words[2], int(words[3])) for words in said if words[0] == "closed"]
        committed = {int(name.split("@")[1]) for name in self.sets()}
        self.assertLessEqual(sealed, committed)
        expected = {step: files for step, files in zip(made, (files for _, files in contents_of(number)))}
        for step, files in expected.items():
            name = str(step) if step in committed else f"{step}.tmp"
            folder = self.job / name
            self.assertTrue(folder.is_dir(), f"{folder}: {os.listdir(self.job)}")
            if step in committed:
                self.assertEqual(sorted(os.listdir(folder)), [str(i) for i in range(len(files))])
                self.assertFalse((self.job / f"{step}.tmp").exists(), "it has left the spool")
                for i, contents in enumerate(files):
                    self.assertEqual((folder / str(i)).read_bytes(), contents)
            for closed_step, file, size in closed:
                if closed_step == step:
                    self.assertEqual((folder / file).read_bytes(), files[int(file)], f"{folder}/{file}")
                    self.assertEqual(len(files[int(file)]), size)
            # What was being written is there up to where it came.
            for found in folder.iterdir():
                self.assertTrue(files[int(found.name)].startswith(found.read_bytes()), found)

    def test_a_killed_seal_begins_anew(self):
        """The mount is killed while a set is sealed."""
        contents = {f"file{i}": compressible_bytes(3_000_000, i) for i in range(3)}
        for step, pause in enumerate((0.0, 0.02, 0.05, 0.1, 0.2, 0.3)):
            mounted = self.mount("--effort", "best", "--seal-after", "0")
            self.job.mkdir(exist_ok=True)
            folder = self.job / f"{step}.tmp"
            folder.mkdir()
            for name, data in contents.items():
                (folder / name).write_bytes(data)
            renaming = threading.Thread(target=self.rename_quietly, args=(folder, self.job / str(step)))
            renaming.start()
            time.sleep(pause)
            self.kill(mounted)
            renaming.join()
            mounted = self.mount("--effort", "fast", "--seal-after", "0")
            if not (self.job / str(step)).exists():
                os.rename(folder, self.job / str(step))
            self.assertFalse(folder.exists())
            for name, data in contents.items():
                self.assertEqual((self.job / str(step) / name).read_bytes(), data)
            self.unmount(mounted)
        self.assert_whole()

    @staticmethod
    def rename_quietly(old, new):
        try:
            os.rename(old, new)
        except OSError:
            pass

    def test_what_was_not_finished_is_not_sealed_by_itself(self):
        mounted = self.mount("--seal-after", "0.2")
        for step in (1, 2):
            (self.job / str(step)).mkdir(parents=True)
        (self.job / "1" / "file").write_bytes(b"whole")
        with open(self.job / "2" / "file", "wb") as file:
            file.write(b"the first half")
            file.flush()
            self.kill(mounted)
            self.assertRaises(OSError, file.write, b"." * 1_000_000)
            try:
                file.close()
            except OSError:
                pass
        mounted = self.mount("--seal-after", "0.2")
        self.assertTrue(wait_for(lambda: "run@1" in self.sets()))
        time.sleep(1.5)
        self.assertEqual(self.sets(), ["run@1"])
        self.assertIn("unfinished", self.varve("seal", "--status", self.job / "2"))
        self.assertIn("run/2 is open still, and not finished", self.log_text())
        self.unmount(mounted)
        self.mount("--seal-after", "0.2")
        time.sleep(1)
        self.assertEqual(self.sets(), ["run@1"], "also not after one more mount")
        with open(self.job / "2" / "file", "ab") as file:
            file.write(b", and the second")
        self.varve("seal", self.job / "2")
        self.assertEqual((self.job / "2" / "file").read_bytes(), b"the first half, and the second")

    def test_what_a_killed_program_has_not_closed_is_not_sealed_by_itself(self):
        mounted = self.mount("--seal-after", "0.2")
        for step, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)):
            for threads in (0, 4):
                folder = self.job / str(10 * step + threads)
                folder.mkdir(parents=True)
                writer = self.write_half(folder, threads)
                writer.send_signal(number)
                self.assertEqual(writer.wait(timeout=30), -number)
                self.assertTrue(wait_for(lambda: "unfinished" in self.varve("seal", "--status", folder)), folder)
                said = f"run/{folder.name} is not finished: a program was killed"
                self.assertTrue(wait_for(lambda said=said: said in self.log_text()), said)
        time.sleep(1.5)
        self.assertEqual(self.sets(), [])
        self.unmount(mounted)
        self.mount("--seal-after", "0.2")
        time.sleep(1.5)
        self.assertEqual(self.sets(), [], "also not by the next mount")
        with open(self.job / "0" / "file", "ab") as file:
            file.write(b", and the second")
        self.varve("seal", self.job / "0")
        self.assertEqual((self.job / "0" / "file").read_bytes(), b"the first half, and the second")

    def test_what_a_program_leaves_to_the_kernel_to_close_is_sealed_by_itself(self):
        self.mount("--seal-after", "0.2")
        for step, status in enumerate((0, 3)):
            for threads in (0, 4):
                folder = self.job / str(10 * step + threads)
                folder.mkdir(parents=True)
                writer = self.write_half(folder, threads)
                writer.communicate(str(status).encode(), timeout=30)
                self.assertEqual(writer.returncode, status)
                self.assertTrue(wait_for(lambda: f"run@{folder.name}" in self.sets()), folder)

    def write_half(self, folder, threads):
        """A process with half a file written; it ends with the status that it is told, and closes nothing."""
        writer = subprocess.Popen([sys.executable, "-c", HALF_WRITER, folder / "file", str(threads)], cwd="/",
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=without_core)
        self.addCleanup(writer.communicate)
        self.addCleanup(writer.kill)
        self.assertEqual(writer.stdout.readline(), b"written\n")
        return writer

    def test_sets_of_another_run_of_the_machine_are_not_sealed_by_themselves(self):
        mounted = self.mount("--seal-after", "0")
        (self.job / "1").mkdir(parents=True)
        (self.job / "1" / "file").write_bytes(b"written before the power cut")
        self.unmount(mounted)
        record = next(self.spool.glob("jobs/run/*/set"))
        raw = record.read_bytes()
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip().encode()
        self.assertIn(boot, raw)
        raw = raw.replace(boot, boot[::-1])[:-4]
        record.write_bytes(raw + crc32c(raw).to_bytes(4, "little"))
        self.mount("--seal-after", "0.1")
        time.sleep(1.2)
        self.assertEqual(self.sets(), [])
        os.rename(self.job / "1", self.job / "2")
        self.assertEqual(self.sets(), ["run@2"])


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    unittest.main()
