"""Programs that know nothing of Varve write into a mount, and get what they would get on a local disk."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from mounting import MountTest, wait_for, as_committed
from support import SAMPLE, default_signals, snapshot

# The interpreter that Debian's packages of Python modules are for.
DEBIAN_PYTHON = "/usr/bin/python3"
RANKS = 2

LAMMPS = """
units lj
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
label again
variable i loop ${count}
run 20
variable s equal step
shell mkdir ${folder}/$s.tmp
run 0
write_restart ${folder}/$s.tmp/restart.%
run 0
shell mv ${folder}/$s.tmp ${folder}/$s
next i
jump SELF again
"""
LAMMPS_AGAIN = """
read_restart ${from}/restart.%
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run 40
write_data ${into} nocoeff
"""

H5PY = """
import sys, h5py, numpy
with h5py.File(sys.argv[1], "w", libver=sys.argv[2]) as file:
    data = file.create_dataset("grid", (10, 64, 64), maxshape=(None, 64, 64), chunks=(4, 32, 32), dtype="f8", track_times=False)
    for step in range(1, 6):
        data.resize(10 * step, axis=0)
        data[10 * (step - 1):] = numpy.sin(numpy.arange(10 * 4096).reshape(10, 64, 64) * 0.001 * step)
        file.flush()
    packed = file.create_dataset("packed", (50, 100), chunks=(10, 10), compression="gzip", dtype="i4", track_times=False)
    packed[...] = numpy.arange(5000).reshape(50, 100)
    for i in range(50): file.create_dataset(f"small/{i}", data=numpy.full(7, i), track_times=False)
    for i in range(0, 50, 2): del file[f"small/{i}"]
with h5py.File(sys.argv[1], "r") as file:
    assert file["grid"].shape == (50, 64, 64)
    print(float(file["grid"][...].sum()), int(file["packed"][...].sum()), len(file["small"]))
"""

# Writes at random places and reads back before it closes the file, as fsx does.
RANDOM_WRITER = """
import mmap, os, random, sys
draw, model = random.Random(11), bytearray()
with open(sys.argv[1], "w+b", buffering=0) as file:
    for turn in range(1500):
        action, at, data = draw.randrange(10), draw.randrange(1_000_000), draw.randbytes(draw.randrange(1, 60_000))
        if action < 5:
            os.pwrite(file.fileno(), data, at)
            model.extend(bytes(max(0, at + len(data) - len(model))))
            model[at:at + len(data)] = data
        elif action < 6:
            file.truncate(at)
            model = model[:at] + bytes(max(0, at - len(model)))
        elif action < 7 and len(model) > 100_000:
            with mmap.mmap(file.fileno(), len(model)) as view:
                place = draw.randrange(len(model) - len(data)) if len(model) > len(data) else 0
                data = data[:len(model) - place]
                view[place:place + len(data)] = data
                model[place:place + len(data)] = data
        elif action < 8:
            os.fdatasync(file.fileno())
        else:
            assert os.pread(file.fileno(), len(data), at) == model[at:at + len(data)], turn
    assert os.pread(file.fileno(), 2_000_000, 0) == model
"""


def needs(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def descendants(process):
    """The numbers of the processes that a process has started, and of those that these have."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == process:
                found += [int(stat.parent.name), *descendants(int(stat.parent.name))]
        except (OSError, ValueError):
            pass
    return found


def has_h5py():
    return os.path.exists(DEBIAN_PYTHON) and subprocess.run(
        [DEBIAN_PYTHON, "-c", "import h5py"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Programs(MountTest):
    def setUp(self):
        super().setUp()
        self.mounted = self.mount("--seal-after", "0")
        self.job = self.point / "run"
        self.job.mkdir()
        self.local = self.work / "local"
        self.local.mkdir()
        self.set = self.job / "1.tmp"
        self.set.mkdir()

    def run_in(self, folder, *command, **named):
        named.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([str(word) for word in command], cwd=folder, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, preexec_fn=default_signals, timeout=200, **named)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout

    def both(self, *command, times=False):
        """Runs a command in a local folder and in an open set, with the same result, then seals the set."""
        outputs = [self.run_in(folder, *command) for folder in (self.local, self.set)]
        self.assertEqual(outputs[1], outputs[0])
        self.compare(times)

    def both_in_one_second(self, *command):
        """both(), of a command that notes the time in what it writes: again, if the second has passed in between."""
        for _ in range(20):
            time.sleep(1 - time.time() % 1)
            began = int(time.time())
            outputs = [self.run_in(folder, *command) for folder in (self.local, self.set)]
            if int(time.time()) == began:
                self.assertEqual(outputs[1], outputs[0])
                return self.compare()
            for folder in (self.local, self.set):
                for path in folder.iterdir():
                    path.unlink()
        self.skipTest("the machine is too busy")

    def compare(self, times=False):
        found, expected = snapshot(self.set), snapshot(self.local)
        if not times:
            found, expected = ({path: entry if entry[0] == "symlink" else (*entry[:2], *entry[3:])
                                for path, entry in entries.items()} for entries in (found, expected))
        self.assert_same(found, expected)
        return self.assert_same_when_sealed(self.set)

    def an_hdf5_file(self):
        return next(path for path in sorted((SAMPLE / "DD0006").iterdir())
                    if path.read_bytes()[:8] == b"\x89HDF\r\n\x1a\n" and path.stat().st_size > 10_000)

    @needs("h5repack", "h5copy")
    def test_hdf5_tools(self):
        source = self.an_hdf5_file()
        self.both_in_one_second(
            "sh", "-ec", f"h5repack -f GZIP=1 -l CHUNK=8x8x8 {source} packed.h5; h5repack {source} plain.h5; "
            f"for name in $(h5ls {source} | cut -d' ' -f1 | head -3); do "
            f"h5copy -i {source} -o copied_$name.h5 -s /$name -d /of_$name; done; h5ls -r packed.h5")

    @needs("nccopy", "ncgen")
    def test_netcdf_tools(self):
        (self.work / "text.cdl").write_text("netcdf a { dimensions: t = UNLIMITED; x = 50; variables: double v(t, x); "
                                            "int n(t); data: n = 1, 2, 3, 4; }")
        self.both("sh", "-ec", f"ncgen -b -o classic.nc {self.work}/text.cdl; nccopy -k 2 classic.nc wide.nc; "
                  "nccopy -k 1 wide.nc back.nc; cmp classic.nc back.nc && ncdump back.nc")

    @unittest.skipUnless(has_h5py(), "h5py is not installed")
    def test_h5py_with_chunks_and_resizing(self):
        # The newest format notes the time in what it writes, so that no two files of it are alike.
        said = [self.run_in(folder, DEBIAN_PYTHON, "-c", H5PY, "new.h5", "latest") for folder in (self.work, self.set)]
        self.assertEqual(said[0], said[1])
        self.assertEqual(os.path.getsize(self.work / "new.h5"), os.path.getsize(self.set / "new.h5"))
        os.remove(self.set / "new.h5")
        self.both(DEBIAN_PYTHON, "-c", H5PY, "old.h5", "earliest")

    @needs("dd")
    def test_dd(self):
        self.both("sh", "-ec", f"dd if={self.an_hdf5_file()} of=a bs=777 conv=fsync; dd if=a of=b bs=64k oflag=direct || "
                  "dd if=a of=b bs=64k; dd if=/dev/zero of=c bs=1M count=1 seek=20; "
                  "dd if=a of=d bs=1000 count=20 oflag=append conv=notrunc; dd if=a bs=1000 skip=3 count=7 2>/dev/null")

    def a_tree(self):
        """A copy of the sample with links, folders, odd modes and times."""
        tree = self.work / "tree"
        shutil.copytree(SAMPLE / "DD0006", tree / "a" / "b", copy_function=shutil.copy2)
        (tree / "empty").mkdir()
        (tree / "empty" / "file").write_bytes(b"")
        (tree / "secret").write_bytes(b"secret")
        (tree / "secret").chmod(0o400)
        os.symlink("a/b", tree / "link")
        os.symlink("nowhere", tree / "dangling")
        with open(tree / "sparse", "wb") as file:
            file.seek(5_000_000)
            file.write(b"end")
        for i, path in enumerate(sorted(tree.rglob("*"), reverse=True)):
            os.utime(path, ns=(i, 1_000_000_000 * (1_000_000 + i) + i), follow_symlinks=False)
        return tree

    def test_cp(self):
        self.both("cp", "-a", f"{self.a_tree()}/.", ".", times=True)

    @needs("rsync")
    def test_rsync(self):
        tree = self.a_tree()
        self.both("sh", "-ec", f"rsync -a {tree}/ .; touch -d 2001-01-01 secret; rsync -a --checksum {tree}/ .; "
                  f"rsync -a --delete --exclude empty {tree}/ .", times=True)

    @needs("tar")
    def test_tar(self):
        tree = self.a_tree()
        self.run_in(tree, "tar", "cf", self.work / "tree.tar", ".")
        self.both("tar", "xpf", self.work / "tree.tar", times=True)
        self.run_in(self.job / "1", "tar", "cf", self.work / "again.tar", ".")
        (self.work / "again").mkdir()
        self.run_in(self.work / "again", "tar", "xpf", self.work / "again.tar")
        self.assert_same(snapshot(self.work / "again"), as_committed(snapshot(self.local)))

    @needs("gcore")
    def test_gcore(self):
        process = subprocess.Popen([sys.executable, "-c", "x = list(range(300000)); print(flush=True); input()"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        process.stdout.readline()
        for folder in (self.local, self.set):
            self.run_in(folder, "gcore", "-o", "core", process.pid)
        there, here = ((folder / f"core.{process.pid}").read_bytes() for folder in (self.local, self.set))
        self.assertEqual(len(here), len(there))
        # Some clock of the process goes on between two dumps, wherever they are written.
        self.assertLess(sum(a != b for a, b in zip(there, here)), 100)
        self.assert_same_when_sealed(self.set)

    @needs("fio")
    def test_fio_verifies_what_it_wrote(self):
        self.unmount(self.mounted)
        self.mount("--seal-after", "0")  # it lays its files out, closes them, and then begins
        for engine in ("psync", "mmap", "libaio"):
            self.run_in(self.set, "fio", "--name=job", f"--ioengine={engine}", "--rw=randwrite", "--bsrange=4k-64k",
                        "--size=8m", "--numjobs=2", "--verify=crc32c", "--do_verify=1", "--fsync=50", "--fallocate=posix",
                        f"--filename_format={engine}.$jobnum", "--randseed=5", "--verify_state_save=0", "--group_reporting")
        self.assert_same_when_sealed(self.set)

    def test_random_writes_that_are_verified(self):
        self.both(sys.executable, "-c", RANDOM_WRITER, "file")

    # LAMMPS, over MPI

    def lammps(self, script, **variables):
        (self.work / "in.lammps").write_text(script)
        words = [word for name, value in variables.items() for word in ("-var", name, str(value))]
        return ["mpirun", "--oversubscribe", "-n", str(RANKS), "lmp", "-in", self.work / "in.lammps", "-log", "none",
                "-screen", "none", *words]

    def mpi_environment(self):
        return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}

    @needs("lmp", "mpirun")
    def test_lammps_writes_restart_files(self):
        for folder in (self.local, self.job):
            self.run_in(self.work, *self.lammps(LAMMPS, folder=folder, count=4), env=self.mpi_environment())
        self.assertEqual(self.sets(), [f"run@{step}" for step in (20, 40, 60, 80)])
        for step in (20, 40, 60, 80):
            found, expected = snapshot(self.job / str(step)), snapshot(self.local / str(step))
            self.assertEqual({path: entry[3] for path, entry in found.items()},
                             {path: entry[3] for path, entry in expected.items()})

    @needs("lmp", "mpirun")
    def test_lammps_is_killed_and_goes_on_from_the_latest(self):
        process = subprocess.Popen([str(word) for word in self.lammps(LAMMPS, folder=self.job, count=100000)],
                                   cwd=self.work, env=self.mpi_environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True)
        self.assertTrue(wait_for(lambda: len(self.sets()) >= 3, 60))
        for number in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):  # who starts them may have taken note first
                os.kill(number, signal.SIGKILL)
        process.wait()
        time.sleep(0.5)  # a seal that is under way goes on
        latest = os.readlink(self.job / "latest")
        self.assertIn(f"run@{latest}", self.sets())
        self.varve("restore", f"run@{latest}", self.work / "copy")
        for name, source in (("through", self.job / "latest"), ("copied", self.work / "copy")):
            self.run_in(self.work, *self.lammps(LAMMPS_AGAIN, **{"from": source, "into": self.work / name}),
                        env=self.mpi_environment())
        self.assertEqual((self.work / "through").read_bytes(), (self.work / "copied").read_bytes())
        self.assertIn(b"atoms", (self.work / "through").read_bytes())


if __name__ == "__main__":
    unittest.main()
