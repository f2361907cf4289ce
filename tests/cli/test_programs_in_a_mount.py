"""Programs that nobody changed write into a mount, which is killed, and go on from the latest that is sealed there.

LAMMPS is among the programs of test_mount_programs.py. Each test needs its program (Debian has them all), and is skipped
without it."""

import contextlib
import os
import pathlib
import shutil
import signal
import time
import unittest

import programs
from mounting import MountTest, wait_for

SECONDS_MAX = 120  # for what a program needs some seconds for on a machine that has nothing else to do


class InAMount(programs.Calls, MountTest):
    def setUp(self):
        super().setUp()
        self.mounted = self.mount()
        self.job, self.back = self.point / "run", self.work / "back"
        self.job.mkdir()

    def open_set(self, step):
        folder = self.job / f"{step}.tmp"
        folder.mkdir()
        return folder

    def go_on(self, step):
        """An open set that begins with what the latest has."""
        return shutil.copytree(self.job / "latest", self.job / f"{step}.tmp")

    def lose(self, process):
        """The mount is killed, and what computes there, and the store is mounted again; returns the sets."""
        self.kill(self.mounted)
        self.kill_all(process)
        self.mounted = self.mount()
        return self.sets()

    def lose_while(self, computes, *command, folder, environment=None):
        """The mount is killed while the program computes in an open set, which is given up."""
        process, before = self.begin(*command, folder=folder, environment=environment), self.sets()
        self.assertTrue(wait_for(computes, SECONDS_MAX), os.listdir(folder))
        self.assertIsNone(process.poll())
        self.assertEqual(self.lose(process), before)
        shutil.rmtree(folder)

    # A set of each stretch of a run: the program's files lie in an open set, and the next begins with a copy of the latest.

    @programs.needs_openfoam
    def test_openfoam(self):
        solve, foam = (*programs.TWO_RANKS, "icoFoam", "-parallel"), programs.FOAM
        case = self.cavity()
        first = shutil.copytree(case, self.job / "0.1.tmp")
        self.control(first, "endTime         0.2", "endTime         0.1")
        self.call(*solve, folder=first, environment=foam)
        self.seal(first)
        second = self.go_on("0.2")
        self.until(second, "1000")
        self.lose_while((second / "processor1" / "0.3").exists, *solve, folder=second, environment=foam)
        self.until(self.go_on("0.2"), "0.2")
        self.call(*solve, folder=second, environment=foam)
        self.seal(second)
        self.varve("restore", "run", self.back)
        self.call(*solve, folder=case, environment=foam)
        for path in ("processor0/0.2/U", "processor1/0.2/p", "processor0/0.1/phi"):
            self.assertEqual((self.back / path).read_bytes(), (case / path).read_bytes(), path)

    def until(self, case, end):
        """A case goes on where it has ended."""
        self.control(case, "startTime;", "latestTime;")
        self.control(case, "endTime         0.1", f"endTime         {end}")

    @programs.needs_gromacs
    def test_gromacs(self):
        """It goes on in the very set in which it was killed, and appends to what is there; a copy of that goes on, too."""
        simulate = (*self.water(self.work / "prepared"), "-reprod", "-cpi", "state.cpt")
        first = self.open_set(1)
        process = self.begin(*simulate, "-cpt", "0.005", folder=first)
        self.assertTrue(wait_for((first / "state.cpt").exists, SECONDS_MAX))
        self.assertIsNone(process.poll())
        self.assertEqual(self.lose(process), [])
        self.call(*simulate, folder=first)
        self.seal(first)
        second = self.go_on(2)
        self.call(*simulate, "-nsteps", "500", folder=second)
        self.seal(second)
        self.assertEqual(self.sets(), ["run@1", "run@2"])
        self.varve("restore", "run@2", self.back)
        self.assertEqual((self.back / "md.log").read_text().count("Restarting from checkpoint, appending"), 2)
        _, whole = self.uninterrupted(*simulate, "-nsteps", "8500")
        self.assertEqual((self.back / "confout.gro").read_bytes(), (whole / "confout.gro").read_bytes())
        for folder in (self.back, whole):
            self.call(*simulate, "-nsteps", "500", folder=folder)
        self.assertEqual((self.back / "confout.gro").read_bytes(), (whole / "confout.gro").read_bytes())

    @programs.needs_quantum_espresso
    def test_quantum_espresso(self):
        """Dynamics, which go on where the files of the last steps end."""
        first = self.open_set(10)
        energies = self.energies(self.call(*self.silicon(first, "first", "md", "from_scratch", 10), folder=first))
        self.seal(first)
        second = self.go_on(20)
        computed = (second / "out" / "si.md").read_bytes()
        again = self.silicon(second, "again", "md", "restart", 10**6)
        self.lose_while(lambda: (second / "out" / "si.md").read_bytes() not in (b"", computed), *again, folder=second)
        self.go_on(20)
        energies += self.energies(self.call(*self.silicon(second, "again", "md", "restart", 10), folder=second))
        self.seal(second)
        self.varve("restore", "run@20", self.back)
        energies += self.energies(self.call(*again, folder=self.back))
        whole = self.work / "whole"
        expected = self.energies(self.call(*self.silicon(whole, "first", "md", "from_scratch", 30), folder=whole))
        self.assertEqual(len(energies), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(energies, expected)), 1e-6)

    @programs.needs_gpaw
    def test_gpaw(self):
        calculate = self.write_program(programs.WATER_MOLECULE)
        first = self.open_set(1)
        process = self.begin(*calculate, folder=first)
        self.assertTrue(wait_for(lambda: (first / "water.gpw").exists() and not self.opened(process, "water.gpw"), SECONDS_MAX))
        self.kill_all(process)
        self.seal(first)
        second = self.go_on(2)
        self.lose_while((second / "again.txt").exists, *calculate, folder=second)
        energy = float(self.call(*calculate, folder=self.go_on(2)))
        self.assert_same_when_sealed(second)
        self.assertAlmostEqual(energy, float(self.uninterrupted(*calculate)[0]), places=6)

    @programs.needs_dolfin
    def test_dolfin(self):
        """Two ranks write each file."""
        alone = self.write_program(programs.HEAT_FILES)
        solve = (*programs.TWO_RANKS, *alone)
        self.compile(*alone)
        first = self.open_set(250)
        self.call(*solve, 250, folder=first)
        self.seal(first)
        second = self.go_on(500)
        self.lose_while((second / "heat-500.h5").exists, *solve, 10**9, folder=second)
        self.call(*solve, 500, folder=self.go_on(500))
        self.seal(second)
        self.varve("restore", "run@500", self.back)
        self.assertEqual(sorted(os.listdir(self.back)), ["heat-250.h5", "heat-500.h5"])
        energy = float(self.call(*solve, 750, folder=self.back))
        # Which rank has which part is another one in each run, and so are last digits.
        self.assertAlmostEqual(energy / float(self.uninterrupted(*solve, 750)[0]), 1, places=9)

    # A set of each state: the program makes one, and renames it when it is whole.

    @programs.needs_meep
    def test_meep(self):
        simulate, step = self.write_program(programs.WAVES_SETS), lambda: int(os.readlink(self.job / "latest"))
        process = self.begin(*simulate, 10**9, folder=self.job)
        self.assertTrue(wait_for(lambda: len(self.sets()) >= 3, SECONDS_MAX))
        before, after = self.sets(), self.lose(process)
        self.assertEqual(after[:len(before)], before)
        end = step() + 40
        self.call(*simulate, end, folder=self.job)
        self.assertEqual(self.sets(), [*after, f"run@{end}"])
        self.varve("restore", f"run@{end}", self.back / f"t{end}")
        simulate = self.write_program(programs.WAVES_FILES)
        self.call(*simulate, end + 40, folder=self.back)
        _, whole = self.uninterrupted(*simulate, end + 40)
        self.assertEqual((self.back / "end").read_bytes(), (whole / "end").read_bytes())

    @programs.needs_pytorch
    def test_pytorch(self):
        """The mount and the program are killed when half of a state is written, and of that nothing is sealed."""
        train = self.write_program(programs.TRAINING_SETS)
        process = self.begin(*train, 10**9, folder=self.job)
        self.assertTrue(wait_for((self.job / "200").exists, SECONDS_MAX))
        half = self.stop_while_it_saves(process, os.path.getsize(self.job / "200" / "model.pt"))
        before = self.sets()
        self.assertEqual(self.lose(process), before)
        step = int(os.readlink(self.job / "latest"))
        self.assertEqual((before[-1], half.parent), (f"run@{step}", self.job / f"{step + 200}.tmp"))
        self.assertTrue(self.is_open(half.parent))
        self.call(*train, step + 400, folder=self.job)
        self.assertEqual(self.sets(), [*before, f"run@{step + 200}", f"run@{step + 400}"])
        _, whole = self.uninterrupted(*train, step + 400)
        for name in self.sets():
            self.varve("restore", name, self.back / name)
            expected = whole / name.split("@")[1] / "model.pt"
            self.assertEqual((self.back / name / "model.pt").read_bytes(), expected.read_bytes(), name)

    def stop_while_it_saves(self, process, whole_bytes):
        """Stops a process when a part of a file that it writes is there; returns the file."""
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until:
            if self.opened(process, "model.pt"):
                process.send_signal(signal.SIGSTOP)
                self.assertTrue(wait_for(lambda: self.state(process) in "TZ"))
                for path in self.opened(process, "model.pt"):
                    if 0 < path.stat().st_size < whole_bytes:
                        return path
                process.send_signal(signal.SIGCONT)
        self.fail("it was never seen to save")

    @staticmethod
    def state(process):
        return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    @staticmethod
    def opened(process, name):
        """The files of a name that a process has open."""
        found = []
        with contextlib.suppress(OSError):
            for link in os.scandir(f"/proc/{process.pid}/fd"):
                with contextlib.suppress(OSError):
                    found.append(pathlib.Path(os.readlink(link.path)))
        return [path for path in found if path.name == name]


if __name__ == "__main__":
    unittest.main()
