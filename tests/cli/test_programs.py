"""Programs that nobody changed run beside a watcher with one option, are lost, and go on from what it has saved; what they
have written is saved by hand as well.

Each test needs its program (Debian has them all), and is skipped without it."""

import os
import shutil
import time
import unittest

import programs
from support import snapshot
from test_watch import WatchTest


class Programs(programs.Calls, WatchTest):
    def saved(self, job, count):
        """Waits until the store has so many sets of a job; returns their names."""
        for _ in range(600):
            names = [record["name"] for record in self.facts("list")["sets"] if record["job"] == job]
            if len(names) >= count:
                return names
            time.sleep(0.1)
        self.fail(f"only {names} of {count} sets came")

    def save_by_hand(self, folder):
        """Saves what lies there with one command, without an option but the job's name, and looks at what comes back."""
        self.varve("save", folder, "--job", "by-hand")
        back = self.work / "by-hand"
        self.varve("restore", "by-hand", back)
        self.assertEqual(snapshot(back), snapshot(folder))
        shutil.rmtree(back)

    def lose(self, watcher, count, *command):
        """Once the store has so many sets, the program, the watcher and the folder are lost. Returns the newest step."""
        process = self.begin(*command, folder=self.run_folder)
        self.saved("run", count)
        watcher.kill()
        watcher.wait()
        self.kill_all(process)
        self.save_by_hand(self.run_folder)
        shutil.rmtree(self.run_folder)
        return int(self.saved("run", count)[-1].split("@")[1])

    @programs.needs_openfoam
    def test_openfoam(self):
        case = self.cavity()
        watcher = self.watch("--quiet", "1", "--pattern", "openfoam", folder=case)
        self.call(*programs.TWO_RANKS, "icoFoam", "-parallel", folder=case, environment=programs.FOAM)
        names = self.saved("cavity", 3)
        self.assertEqual(names, ["cavity@0.0", "cavity@0.1", "cavity@0.2"])
        self.end(watcher)
        self.save_by_hand(case)
        ended = {path: (case / path).read_bytes() for path in ("processor0/0.2/U", "processor1/0.2/p")}
        for processor in (0, 1):
            for lost in ("0.1", "0.2"):
                shutil.rmtree(case / f"processor{processor}" / lost)
        self.varve("restore", "cavity@0.1", case, "--overwrite")
        self.control(case, "startTime;", "latestTime;")
        self.call(*programs.TWO_RANKS, "icoFoam", "-parallel", folder=case, environment=programs.FOAM)
        for path, contents in ended.items():
            self.assertEqual((case / path).read_bytes(), contents, path)

    @programs.needs_gromacs
    def test_gromacs(self):
        simulate, run = self.water(self.work / "prepared"), self.run_folder
        watcher = self.watch("--quiet", "0.5", "--pattern", "gromacs")
        self.call(*simulate, "-nsteps", "200", folder=run)
        (name,) = self.saved("run", 1)[-1:]
        time.sleep(2)
        self.end(watcher)
        self.save_by_hand(run)
        shutil.rmtree(run)
        self.varve("restore", "run", run)
        self.assertIn("state.cpt", os.listdir(run), name)
        self.call(*simulate, "-cpi", "state.cpt", "-noappend", "-nsteps", "100", folder=run)
        self.assertTrue(list(run.glob("confout.part*.gro")))

    @programs.needs_lammps
    def test_lammps(self):
        run = self.run_folder
        (run / "in.melt").write_text(programs.MELT.format(begin=programs.MELT_BEGIN, steps=150))
        watcher = self.watch("--quiet", "0.5", "--pattern", "lammps")
        self.call(programs.LAMMPS, "-in", "in.melt", folder=run)
        self.assertEqual(self.saved("run", 3), ["run@50", "run@100", "run@150"])
        self.end(watcher)
        self.save_by_hand(run)
        ended = (run / "end.data").read_text()
        for lost in run.glob("melt.*"):
            lost.unlink()
        self.varve("restore", "run@100", run, "--overwrite")
        (run / "in.melt").write_text(programs.MELT.format(begin="read_restart melt.100.restart", steps=50))
        self.call(programs.LAMMPS, "-in", "in.melt", folder=run)
        before, after = (self.places(text) for text in (ended, (run / "end.data").read_text()))
        self.assertEqual(len(before), 2048)
        self.assertEqual(before.keys(), after.keys())
        # The order of atoms is another one, and so are last digits.
        self.assertLess(max(abs(a - b) for atom in before for a, b in zip(before[atom], after[atom])), 1e-6)

    @staticmethod
    def places(text):
        lines = text.split("Atoms", 1)[1].split("Velocities")[0].splitlines()[1:]
        return {int(line.split()[0]): tuple(map(float, line.split()[2:5])) for line in lines if line.strip()}

    @programs.needs_quantum_espresso
    def test_quantum_espresso(self):
        run = self.work / "si"
        first, again = (self.silicon(run, mode, "scf", mode) for mode in ("from_scratch", "restart"))
        (run / "out").mkdir()
        watcher = self.watch("--quiet", "1", "--pattern", "qe", "--job", "si", folder=run / "out")
        (energy,) = self.energies(self.call(*first, folder=run))
        self.saved("si", 1)
        time.sleep(3)
        self.end(watcher)
        self.save_by_hand(run / "out")
        shutil.rmtree(run / "out")
        self.varve("restore", "si", run / "out")
        self.assertTrue((run / "out" / "si.save" / "charge-density.dat").exists())
        self.assertAlmostEqual(self.energies(self.call(*again, folder=run))[-1], energy, places=4)

    @programs.needs_pytorch
    def test_pytorch(self):
        train, run = self.write_program(programs.TRAINING_FILES), self.run_folder
        watcher = self.watch("--quiet", "0.5", "--pattern", "model-{step}.pt")
        step = self.lose(watcher, 3, *train, 10**9)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), [f"model-{step}.pt"])
        self.call(*train, step + 400, folder=run)
        _, whole = self.uninterrupted(*train, step + 400)
        self.assertEqual((run / "end").read_bytes(), (whole / "end").read_bytes())

    @programs.needs_meep
    def test_meep(self):
        simulate, run = self.write_program(programs.WAVES_FILES), self.run_folder
        watcher = self.watch("--quiet", "1")
        step = self.lose(watcher, 3, *simulate, 10**9)
        self.varve("restore", "run", run / f"t{step}")
        self.call(*simulate, step + 80, folder=run)
        self.assertEqual(set(os.listdir(run)), {f"t{step}", f"t{step + 40}", f"t{step + 80}", "end"})
        _, whole = self.uninterrupted(*simulate, step + 80)
        self.assertEqual((run / "end").read_bytes(), (whole / "end").read_bytes())

    @programs.needs_gpaw
    def test_gpaw(self):
        calculate, run = self.write_program(programs.WATER_MOLECULE), self.run_folder
        watcher = self.watch("--quiet", "0.3", "--pattern", "water.gpw")
        self.lose(watcher, 2, *calculate)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), ["water.gpw"])
        energy = float(self.call(*calculate, folder=run))
        self.assertAlmostEqual(energy, float(self.uninterrupted(*calculate)[0]), places=6)

    @programs.needs_dolfin
    def test_dolfin_writes_files(self):
        """Two ranks write a file each time."""
        solve, run = (*programs.TWO_RANKS, *self.write_program(programs.HEAT_FILES)), self.run_folder
        self.compile(*solve)
        watcher = self.watch("--quiet", "0.5", "--pattern", "heat-{step}.h5")
        step = self.lose(watcher, 3, *solve, 10**9)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), [f"heat-{step}.h5"])
        energy = float(self.call(*solve, step + 500, folder=run))
        # Which rank has which part is another one in each run, and so are last digits.
        self.assertAlmostEqual(energy / float(self.uninterrupted(*solve, step + 500)[0]), 1, places=9)

    @programs.needs_dolfin
    def test_dolfin_appends_to_a_series(self):
        solve, run = self.write_program(programs.HEAT_SERIES), self.run_folder
        self.compile(*solve)
        watcher = self.watch("--quiet", "0.3", "--pattern", "heat.h5")
        self.lose(watcher, 3, *solve, 10**9)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), ["heat.h5"])
        step = int(self.call(*solve, 0, folder=run))
        self.assertGreater(step, 0)
        self.call(*solve, step + 500, folder=run)
        _, whole = self.uninterrupted(*solve, step + 500)
        self.assertEqual((run / "end").read_bytes(), (whole / "end").read_bytes())


if __name__ == "__main__":
    unittest.main()
