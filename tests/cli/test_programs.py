"""Programs that nobody changed run beside a watcher with one option, are lost, and go on from what it has saved.

Each test needs its program (Debian has them all), and is skipped without it."""

import os
import pathlib
import shutil
import subprocess
import time
import unittest

from support import SUCCESS
from test_watch import WatchTest

OPENFOAM = pathlib.Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity")
LAMMPS = next((name for name in ("lmp", "lammps") if shutil.which(name)), None)

WATER = """#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spc.itp"
[ system ]
water
[ molecules ]
"""
DYNAMICS = """integrator = md
dt = 0.002
nsteps = 100000
cutoff-scheme = Verlet
coulombtype = reaction-field
rcoulomb = 0.7
rvdw = 0.7
tcoupl = v-rescale
tc-grps = system
tau-t = 0.1
ref-t = 300
gen-vel = yes
constraints = h-bonds
"""
MELT = """units lj
atom_style atomic
{begin}
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
restart 50 melt.*.restart
run {steps}
write_data end.data
"""
MELT_BEGIN = """lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom"""
SILICON = """&control
 calculation='scf', prefix='si', outdir='./out', pseudo_dir='.', restart_mode='{mode}'
/
&system
 ibrav=2, celldm(1)=10.26, nat=2, ntyp=1, ecutwfc=16
/
&electrons
 conv_thr=1e-6
/
ATOMIC_SPECIES
Si 28.0855 Si.upf
ATOMIC_POSITIONS crystal
Si 0.00 0.00 0.00
Si 0.25 0.25 0.25
K_POINTS automatic
2 2 2 1 1 1
"""


class Programs(WatchTest):
    def call(self, *command, folder, **options):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **options.pop("environment", {})}
        done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, check=False, **options)
        self.assertEqual(done.returncode, SUCCESS, (done.stdout + done.stderr)[-2000:].decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def saved(self, job, count):
        """Waits until the store has so many sets of a job; returns their names."""
        for _ in range(600):
            names = [record["name"] for record in self.facts("list")["sets"] if record["job"] == job]
            if len(names) >= count:
                return names
            time.sleep(0.1)
        self.fail(f"only {names} of {count} sets came")

    @unittest.skipUnless(shutil.which("icoFoam") and OPENFOAM.is_dir(), "no OpenFOAM")
    def test_openfoam(self):
        case = self.work / "cavity"
        shutil.copytree(OPENFOAM, case)
        for packed in case.rglob("*.gz"):
            subprocess.run(["gunzip", packed], check=True)
        control = case / "system" / "controlDict"
        text = control.read_text().replace("endTime         0.5", "endTime         0.2")
        control.write_text(text.replace("writeFormat     ascii", "writeFormat     binary"))
        (case / "system" / "decomposeParDict").write_text(
            "FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\n"
            "numberOfSubdomains 2;\nmethod simple;\nsimpleCoeffs { n (2 1 1); delta 0.001; }\n")
        foam = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
        for step in ("blockMesh", "decomposePar"):
            self.call(step, folder=case, environment=foam)
        watcher = self.watch("--quiet", "1", "--pattern", "openfoam", folder=case)
        solver = ("mpirun", "--oversubscribe", "-n", "2", "icoFoam", "-parallel")
        self.call(*solver, folder=case, environment=foam)
        names = self.saved("cavity", 3)
        self.assertEqual(names, ["cavity@0.0", "cavity@0.1", "cavity@0.2"])
        self.end(watcher)
        ended = {path: (case / path).read_bytes() for path in ("processor0/0.2/U", "processor1/0.2/p")}
        for processor in (0, 1):
            for lost in ("0.1", "0.2"):
                shutil.rmtree(case / f"processor{processor}" / lost)
        self.varve("restore", "cavity@0.1", case, "--overwrite")
        control.write_text(control.read_text().replace("startTime;", "latestTime;"))
        self.call(*solver, folder=case, environment=foam)
        for path, contents in ended.items():
            self.assertEqual((case / path).read_bytes(), contents, path)

    @unittest.skipUnless(shutil.which("gmx"), "no GROMACS")
    def test_gromacs(self):
        place, run = self.work / "prepared", self.run_folder
        place.mkdir()
        (place / "topol.top").write_text(WATER)
        (place / "md.mdp").write_text(DYNAMICS)
        self.call("gmx", "-quiet", "solvate", "-cs", "spc216.gro", "-box", "1.86206", "1.86206", "1.86206", "-o", "conf.gro", "-p", "topol.top",
                  folder=place)
        if "SOL" not in (place / "topol.top").read_text():
            atoms = int((place / "conf.gro").read_text().splitlines()[1])
            (place / "topol.top").write_text(WATER + f"SOL {atoms // 3}\n")
        self.call("gmx", "-quiet", "grompp", "-f", "md.mdp", "-c", "conf.gro", "-p", "topol.top", "-o", "run.tpr", "-maxwarn", "5",
                  folder=place)
        watcher = self.watch("--quiet", "0.5", "--pattern", "gromacs")
        simulate = ("gmx", "-quiet", "mdrun", "-s", place / "run.tpr", "-ntmpi", "1", "-ntomp", "1")
        self.call(*simulate, "-nsteps", "200", folder=run)
        (name,) = self.saved("run", 1)[-1:]
        time.sleep(2)
        self.end(watcher)
        shutil.rmtree(run)
        self.varve("restore", "run", run)
        self.assertIn("state.cpt", os.listdir(run), name)
        self.call(*simulate, "-cpi", "state.cpt", "-noappend", "-nsteps", "100", folder=run)
        self.assertTrue(list(run.glob("confout.part*.gro")))

    @unittest.skipUnless(LAMMPS, "no LAMMPS")
    def test_lammps(self):
        run = self.run_folder
        (run / "in.melt").write_text(MELT.format(begin=MELT_BEGIN, steps=150))
        watcher = self.watch("--quiet", "0.5", "--pattern", "lammps")
        self.call(LAMMPS, "-in", "in.melt", folder=run)
        self.assertEqual(self.saved("run", 3), ["run@50", "run@100", "run@150"])
        self.end(watcher)
        ended = (run / "end.data").read_text()
        for lost in run.glob("melt.*"):
            lost.unlink()
        self.varve("restore", "run@100", run, "--overwrite")
        (run / "in.melt").write_text(MELT.format(begin="read_restart melt.100.restart", steps=50))
        self.call(LAMMPS, "-in", "in.melt", folder=run)
        before, after = (self.places(text) for text in (ended, (run / "end.data").read_text()))
        self.assertEqual(len(before), 2048)
        self.assertEqual(before.keys(), after.keys())
        # The order of atoms is another one, and so are last digits.
        self.assertLess(max(abs(a - b) for atom in before for a, b in zip(before[atom], after[atom])), 1e-6)

    @staticmethod
    def places(text):
        lines = text.split("Atoms", 1)[1].split("Velocities")[0].splitlines()[1:]
        return {int(line.split()[0]): tuple(map(float, line.split()[2:5])) for line in lines if line.strip()}

    @unittest.skipUnless(shutil.which("pw.x"), "no Quantum ESPRESSO")
    def test_quantum_espresso(self):
        potential = pathlib.Path("/usr/share/doc/quantum-espresso/examples/EPW/sic/pp/Si.pz-vbc.UPF.gz")
        if not potential.exists():
            self.skipTest("no pseudopotential")
        run = self.work / "si"
        run.mkdir()
        with open(run / "Si.upf", "wb") as file:
            subprocess.run(["zcat", potential], stdout=file, check=True)
        (run / "first").write_text(SILICON.format(mode="from_scratch"))
        (run / "again").write_text(SILICON.format(mode="restart"))
        (run / "out").mkdir()
        watcher = self.watch("--quiet", "1", "--pattern", "qe", "--job", "si", folder=run / "out")
        energy = self.energy(self.call("pw.x", "-in", "first", folder=run))
        self.saved("si", 1)
        time.sleep(3)
        self.end(watcher)
        shutil.rmtree(run / "out")
        self.varve("restore", "si", run / "out")
        self.assertTrue((run / "out" / "si.save" / "charge-density.dat").exists())
        said = self.call("pw.x", "-in", "again", folder=run)
        self.assertAlmostEqual(self.energy(said), energy, places=4)

    @staticmethod
    def energy(said):
        return float([line for line in said.splitlines() if line.startswith("!")][-1].split()[-2])


if __name__ == "__main__":
    unittest.main()
