"""Programs that nobody changed run beside a watcher with one option, are lost, and go on from what it has saved.

One writes into a mounted store instead.

Each test needs its program (Debian has them all), and is skipped without it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from mounting import MountTest, wait_for
from support import SUCCESS
from test_mount_programs import DEBIAN_PYTHON, descendants
from test_watch import WatchTest

OPENFOAM = pathlib.Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity")
FOAM = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
TWO_RANKS = ("mpirun", "--oversubscribe", "-n", "2")
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
TRAINING = """
import glob, sys, torch
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
begin = max((int(name[6:-3]) for name in glob.glob("model-*.pt")), default=0)
if begin:
    state = torch.load(f"model-{begin}.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
for step in range(begin + 1, int(sys.argv[1]) + 1):
    x = torch.randn(128, 64)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True)).backward()
    optimizer.step()
    if step % 200 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "random": torch.get_rng_state()}, f"model-{step}.pt")
with open("end", "wb") as file:
    for tensor in model.state_dict().values():
        file.write(tensor.numpy().tobytes())
"""
WAVES = """
import glob, sys
import meep as mp
guide = mp.Block(mp.Vector3(mp.inf, 1), material=mp.Medium(epsilon=12))
disk = mp.Cylinder(1, center=mp.Vector3(1, 2), material=mp.Medium(epsilon=9))
source = mp.Source(mp.ContinuousSource(frequency=0.15), component=mp.Ez, center=mp.Vector3(-3, 1))
simulation = mp.Simulation(cell_size=mp.Vector3(14, 10), boundary_layers=[mp.PML(1)], resolution=20,
                           sources=[source], geometry=[guide, disk])
begin = max((int(name[1:]) for name in glob.glob("t*")), default=0)
if begin:
    simulation.load(f"t{begin}", load_structure=False)
for time in range(begin + 40, int(sys.argv[1]) + 1, 40):
    simulation.run(until=40)
    simulation.dump(f"t{time}", dump_structure=False)
simulation.get_array(mp.Ez).tofile("end")
"""
# This one and HEAT_SERIES write one file again and again; they sleep for as long as larger ones would compute.
WATER_MOLECULE = """
import os, time
from ase.build import molecule
from gpaw import GPAW, PW
if os.path.exists("water.gpw"):
    calculator = GPAW("water.gpw", txt="again.txt")
    atoms = calculator.get_atoms()
else:
    atoms = molecule("H2O", vacuum=4)
    calculator = GPAW(mode=PW(400), convergence={"density": 1e-7}, txt="first.txt")
    atoms.calc = calculator
calculator.attach(calculator.write, 8, "water.gpw", mode="all")
calculator.attach(time.sleep, 8, 1)
print(atoms.get_potential_energy())
"""
HEAT = """
import glob, sys, time
from dolfin import *
set_log_level(LogLevel.ERROR)
mesh = UnitSquareMesh(48, 48)
space = FunctionSpace(mesh, "P", 1)
now, trial, test = Function(space), TrialFunction(space), TestFunction(space)
now.interpolate(Expression("exp(-50*(pow(x[0]-0.3,2)+pow(x[1]-0.6,2)))", degree=2))
{begin}
heat = now*test*dx
matrix = assemble(trial*test*dx + Constant(1e-5)*dot(grad(trial), grad(test))*dx)
boundary = DirichletBC(space, 0, "on_boundary")
boundary.apply(matrix)
solver = PETScKrylovSolver("cg", "jacobi")
solver.parameters["relative_tolerance"] = 1e-12
for step in range(begin + 1, int(sys.argv[1]) + 1):
    right = assemble(heat)
    boundary.apply(right)
    solver.solve(matrix, now.vector(), right)
    if step % 250 == 0:
        {write}
{end}
"""
HEAT_FILES = HEAT.format(begin="""
begin = max((int(name[5:-3]) for name in glob.glob("heat-*.h5")), default=0)
if begin:
    with HDF5File(mesh.mpi_comm(), f"heat-{begin}.h5", "r") as file: file.read(now, "u")
""", write='with HDF5File(mesh.mpi_comm(), f"heat-{step}.h5", "w") as file: file.write(now, "u")', end="""
energy = assemble(now*now*dx)
if MPI.rank(mesh.mpi_comm()) == 0:
    print(energy)
""")
HEAT_SERIES = HEAT.format(begin="""
series = TimeSeries(mesh.mpi_comm(), "heat")
begin = round(max(series.vector_times(), default=0))
if begin:
    series.retrieve(now.vector(), begin)
""", write="series.store(now.vector(), step); time.sleep(1)", end="""
now.vector().get_local().tofile("end")
print(begin)
""")


def has(module):
    """Whether Debian's interpreter has it."""
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return os.path.exists(DEBIAN_PYTHON) and subprocess.run([DEBIAN_PYTHON, "-c", find, module]).returncode == 0


class Calls:
    """Runs programs."""

    ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def call(self, *command, folder, **options):
        environment = {**os.environ, **self.ENVIRONMENT, **options.pop("environment", {})}
        done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, check=False, **options)
        self.assertEqual(done.returncode, SUCCESS, (done.stdout + done.stderr)[-2000:].decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def begin(self, *command, folder, environment=None):
        process = subprocess.Popen(list(map(str, command)), cwd=folder, stdin=subprocess.DEVNULL,
                                   env={**os.environ, **self.ENVIRONMENT, **(environment or {})},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.kill_all, process)
        return process

    @staticmethod
    def kill_all(process):
        """As when its node is lost."""
        if process.poll() is None:
            numbers = (process.pid, *descendants(process.pid))
            for number in numbers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()
            wait_for(lambda: not any(os.path.exists(f"/proc/{number}/exe") for number in numbers))

    def cavity(self):
        """A case of OpenFOAM for two ranks."""
        case = self.work / "cavity"
        shutil.copytree(OPENFOAM, case)
        for packed in case.rglob("*.gz"):
            subprocess.run(["gunzip", packed], check=True)
        self.control(case, "endTime         0.5", "endTime         0.2")
        self.control(case, "writeFormat     ascii", "writeFormat     binary")
        (case / "system" / "decomposeParDict").write_text(
            "FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\n"
            "numberOfSubdomains 2;\nmethod simple;\nsimpleCoeffs { n (2 1 1); delta 0.001; }\n")
        for step in ("blockMesh", "decomposePar"):
            self.call(step, folder=case, environment=FOAM)
        return case

    @staticmethod
    def control(case, old, new):
        path = case / "system" / "controlDict"
        path.write_text(path.read_text().replace(old, new))


class Programs(Calls, WatchTest):
    def saved(self, job, count):
        """Waits until the store has so many sets of a job; returns their names."""
        for _ in range(600):
            names = [record["name"] for record in self.facts("list")["sets"] if record["job"] == job]
            if len(names) >= count:
                return names
            time.sleep(0.1)
        self.fail(f"only {names} of {count} sets came")

    def write_program(self, text):
        return DEBIAN_PYTHON, self.write("program.py", text.encode())

    def lose(self, watcher, count, *command):
        """Once the store has so many sets, the program, the watcher and the folder are lost. Returns the newest step."""
        process = self.begin(*command, folder=self.run_folder)
        self.saved("run", count)
        watcher.kill()
        watcher.wait()
        self.kill_all(process)
        shutil.rmtree(self.run_folder)
        return int(self.saved("run", count)[-1].split("@")[1])

    def uninterrupted(self, *command):
        """What the program prints, and what it leaves as its end."""
        folder = self.work / "uninterrupted"
        folder.mkdir()
        said = self.call(*command, folder=folder)
        return said, (folder / "end").read_bytes() if (folder / "end").exists() else None

    @unittest.skipUnless(shutil.which("icoFoam") and OPENFOAM.is_dir(), "no OpenFOAM")
    def test_openfoam(self):
        case = self.cavity()
        watcher = self.watch("--quiet", "1", "--pattern", "openfoam", folder=case)
        self.call(*TWO_RANKS, "icoFoam", "-parallel", folder=case, environment=FOAM)
        names = self.saved("cavity", 3)
        self.assertEqual(names, ["cavity@0.0", "cavity@0.1", "cavity@0.2"])
        self.end(watcher)
        ended = {path: (case / path).read_bytes() for path in ("processor0/0.2/U", "processor1/0.2/p")}
        for processor in (0, 1):
            for lost in ("0.1", "0.2"):
                shutil.rmtree(case / f"processor{processor}" / lost)
        self.varve("restore", "cavity@0.1", case, "--overwrite")
        self.control(case, "startTime;", "latestTime;")
        self.call(*TWO_RANKS, "icoFoam", "-parallel", folder=case, environment=FOAM)
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

    @unittest.skipUnless(has("torch"), "no PyTorch")
    def test_pytorch(self):
        train, run = self.write_program(TRAINING), self.run_folder
        watcher = self.watch("--quiet", "0.5", "--pattern", "model-{step}.pt")
        step = self.lose(watcher, 3, *train, 10**9)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), [f"model-{step}.pt"])
        self.call(*train, step + 400, folder=run)
        _, end = self.uninterrupted(*train, step + 400)
        self.assertEqual((run / "end").read_bytes(), end)

    @unittest.skipUnless(has("meep"), "no Meep")
    def test_meep(self):
        simulate, run = self.write_program(WAVES), self.run_folder
        watcher = self.watch("--quiet", "1")
        step = self.lose(watcher, 3, *simulate, 10**9)
        self.varve("restore", "run", run / f"t{step}")
        self.call(*simulate, step + 80, folder=run)
        self.assertEqual(set(os.listdir(run)), {f"t{step}", f"t{step + 40}", f"t{step + 80}", "end"})
        _, end = self.uninterrupted(*simulate, step + 80)
        self.assertEqual((run / "end").read_bytes(), end)

    @unittest.skipUnless(has("gpaw"), "no GPAW")
    def test_gpaw(self):
        calculate, run = self.write_program(WATER_MOLECULE), self.run_folder
        watcher = self.watch("--quiet", "0.3", "--pattern", "water.gpw")
        self.lose(watcher, 2, *calculate)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), ["water.gpw"])
        energy = float(self.call(*calculate, folder=run))
        self.assertAlmostEqual(energy, float(self.uninterrupted(*calculate)[0]), places=6)

    @unittest.skipUnless(has("dolfin"), "no dolfin")
    def test_dolfin_writes_files(self):
        """Two ranks write a file each time."""
        solve, run = (*TWO_RANKS, *self.write_program(HEAT_FILES)), self.run_folder
        self.compile(*solve)
        watcher = self.watch("--quiet", "0.5", "--pattern", "heat-{step}.h5")
        step = self.lose(watcher, 3, *solve, 10**9)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), [f"heat-{step}.h5"])
        energy = float(self.call(*solve, step + 500, folder=run))
        # Which rank has which part is another one in each run, and so are last digits.
        self.assertAlmostEqual(energy / float(self.uninterrupted(*solve, step + 500)[0]), 1, places=9)

    @unittest.skipUnless(has("dolfin"), "no dolfin")
    def test_dolfin_appends_to_a_series(self):
        solve, run = self.write_program(HEAT_SERIES), self.run_folder
        self.compile(*solve)
        watcher = self.watch("--quiet", "0.3", "--pattern", "heat.h5")
        self.lose(watcher, 3, *solve, 10**9)
        self.varve("restore", "run", run)
        self.assertEqual(os.listdir(run), ["heat.h5"])
        step = int(self.call(*solve, 0, folder=run))
        self.assertGreater(step, 0)
        self.call(*solve, step + 500, folder=run)
        _, end = self.uninterrupted(*solve, step + 500)
        self.assertEqual((run / "end").read_bytes(), end)

    def compile(self, *solve):
        """dolfin compiles what it needs when it is first called."""
        cache = {"DIJITSO_CACHE_DIR": str(self.work / "compiled")}
        self.ENVIRONMENT = {**self.ENVIRONMENT, **cache}
        self.call(*solve, 1, folder=self.work)


class InAMount(Calls, MountTest):
    @unittest.skipUnless(shutil.which("icoFoam") and OPENFOAM.is_dir(), "no OpenFOAM")
    def test_openfoam(self):
        solve = (*TWO_RANKS, "icoFoam", "-parallel")
        case, job, back = self.cavity(), self.point / "cavity", self.work / "back"
        mounted = self.mount()
        job.mkdir()
        shutil.copytree(case, job / "0.1.tmp")
        self.control(job / "0.1.tmp", "endTime         0.2", "endTime         0.1")
        self.call(*solve, folder=job / "0.1.tmp", environment=FOAM)
        self.seal(job / "0.1.tmp")
        self.go_on(job, "1000")
        solver = self.begin(*solve, folder=job / "0.2.tmp", environment=FOAM)
        self.assertTrue(wait_for((job / "0.2.tmp" / "processor1" / "0.3").exists))
        self.kill(mounted)
        self.kill_all(solver)
        self.mount()
        self.assertEqual(self.sets(), ["cavity@0.1"])
        shutil.rmtree(job / "0.2.tmp")
        self.go_on(job, "0.2")
        self.call(*solve, folder=job / "0.2.tmp", environment=FOAM)
        self.seal(job / "0.2.tmp")
        self.varve("restore", "cavity", back)
        self.call(*solve, folder=case, environment=FOAM)
        for path in ("processor0/0.2/U", "processor1/0.2/p", "processor0/0.1/phi"):
            self.assertEqual((back / path).read_bytes(), (case / path).read_bytes(), path)

    def go_on(self, job, end):
        """The next case begins where the latest has ended."""
        shutil.copytree(job / "latest", job / "0.2.tmp")
        self.control(job / "0.2.tmp", "startTime;", "latestTime;")
        self.control(job / "0.2.tmp", "endTime         0.1", f"endTime         {end}")


if __name__ == "__main__":
    unittest.main()
