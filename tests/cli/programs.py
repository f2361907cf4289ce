"""What the tests with programs that nobody changed share: what these compute, and calling and losing them."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from mounting import wait_for
from support import SUCCESS
from test_mount_programs import DEBIAN_PYTHON, descendants

OPENFOAM = pathlib.Path("/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity")
FOAM = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
TWO_RANKS = ("mpirun", "--oversubscribe", "-n", "2")
LAMMPS = next((name for name in ("lmp", "lammps") if shutil.which(name)), None)
POTENTIAL = pathlib.Path("/usr/share/doc/quantum-espresso/examples/EPW/sic/pp/Si.pz-vbc.UPF.gz")

WATER = """#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spc.itp"
[ system ]
water
[ molecules ]
"""
DYNAMICS = """integrator = md
dt = 0.002
nsteps = 8000
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
 calculation='{calculation}', prefix='si', outdir='./out', pseudo_dir='.', restart_mode='{mode}', nstep={steps}
/
&system
 ibrav=2, celldm(1)=10.26, nat=2, ntyp=1, ecutwfc=16
/
&electrons
 conv_thr=1e-8
/
&ions
/
ATOMIC_SPECIES
Si 28.0855 Si.upf
ATOMIC_POSITIONS crystal
Si 0.00 0.00 0.00
Si 0.26 0.25 0.25
K_POINTS automatic
2 2 2 1 1 1
"""
# How a script finds the state to go on from where each is a set of a mount.
BEGIN_WITH_LATEST = 'begin = int(os.readlink("latest")) if os.path.islink("latest") else 0'
TRAINING = """
import glob, os, sys, torch
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
{begin}
if begin:
    state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
for step in range(begin + 1, int(sys.argv[1]) + 1):
    x = torch.randn(128, 64)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True)).backward()
    optimizer.step()
    if step % 200 == 0:
        state = dict(model=model.state_dict(), optimizer=optimizer.state_dict(), random=torch.get_rng_state())
        {write}
{end}
"""
TRAINING_FILES = TRAINING.format(begin="""
begin = max((int(name[6:-3]) for name in glob.glob("model-*.pt")), default=0)
file = f"model-{begin}.pt"
""", write='torch.save(state, f"model-{step}.pt")', end="""
with open("end", "wb") as file:
    for tensor in model.state_dict().values():
        file.write(tensor.numpy().tobytes())
""")
TRAINING_SETS = TRAINING.format(begin=BEGIN_WITH_LATEST + """
file = "latest/model.pt"
""", write="""
        os.makedirs(f"{step}.tmp", exist_ok=True)
        torch.save(state, f"{step}.tmp/model.pt")
        os.rename(f"{step}.tmp", f"{step}")
""", end="")
WAVES = """
import glob, os, sys
import meep as mp
guide = mp.Block(mp.Vector3(mp.inf, 1), material=mp.Medium(epsilon=12))
disk = mp.Cylinder(1, center=mp.Vector3(1, 2), material=mp.Medium(epsilon=9))
source = mp.Source(mp.ContinuousSource(frequency=0.15), component=mp.Ez, center=mp.Vector3(-3, 1))
simulation = mp.Simulation(cell_size=mp.Vector3(14, 10), boundary_layers=[mp.PML(1)], resolution=20,
                           sources=[source], geometry=[guide, disk])
{begin}
if begin:
    simulation.load(folder, load_structure=False)
for time in range(begin + 40, int(sys.argv[1]) + 1, 40):
    simulation.run(until=40)
    {write}
{end}
"""
WAVES_FILES = WAVES.format(begin="""
begin = max((int(name[1:]) for name in glob.glob("t*")), default=0)
folder = f"t{begin}"
""", write='simulation.dump(f"t{time}", dump_structure=False)', end='simulation.get_array(mp.Ez).tofile("end")')
WAVES_SETS = WAVES.format(begin=BEGIN_WITH_LATEST + """
folder = "latest"
""", write="""
    simulation.dump(f"{time}.tmp", dump_structure=False)
    os.rename(f"{time}.tmp", f"{time}")
""", end="")
# This one and HEAT_SERIES write one file again and again; they sleep for as long as larger ones would compute.
WATER_MOLECULE = """
import os, time
from ase.build import molecule
from gpaw import GPAW, PW
if os.path.exists("water.gpw"):
    calculator = GPAW("water.gpw", txt="again.txt")
    atoms = calculator.get_atoms()
else:
    atoms = molecule("H2O", vacuum=3)
    calculator = GPAW(mode=PW(300), convergence={"density": 1e-7}, txt="first.txt")
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


needs_openfoam = unittest.skipUnless(shutil.which("icoFoam") and OPENFOAM.is_dir(), "no OpenFOAM")
needs_gromacs = unittest.skipUnless(shutil.which("gmx"), "no GROMACS")
needs_lammps = unittest.skipUnless(LAMMPS, "no LAMMPS")
needs_quantum_espresso = unittest.skipUnless(shutil.which("pw.x") and POTENTIAL.exists(), "no Quantum ESPRESSO")
needs_pytorch = unittest.skipUnless(has("torch"), "no PyTorch")
needs_meep = unittest.skipUnless(has("meep"), "no Meep")
needs_gpaw = unittest.skipUnless(has("gpaw"), "no GPAW")
needs_dolfin = unittest.skipUnless(has("dolfin"), "no dolfin")


class Calls:
    """Runs programs, for a ProgramTest."""

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

    def water(self, folder):
        """What GROMACS computes, prepared in a new folder; returns the command that does."""
        folder.mkdir()
        (folder / "topol.top").write_text(WATER)
        (folder / "md.mdp").write_text(DYNAMICS)
        self.call("gmx", "-quiet", "solvate", "-cs", "spc216.gro", "-box", "1.86206", "1.86206", "1.86206",
                  "-o", "conf.gro", "-p", "topol.top", folder=folder)
        if "SOL" not in (folder / "topol.top").read_text():
            atoms = int((folder / "conf.gro").read_text().splitlines()[1])
            (folder / "topol.top").write_text(WATER + f"SOL {atoms // 3}\n")
        self.call("gmx", "-quiet", "grompp", "-f", "md.mdp", "-c", "conf.gro", "-p", "topol.top",
                  "-o", "run.tpr", "-maxwarn", "5", folder=folder)
        return "gmx", "-quiet", "mdrun", "-s", folder / "run.tpr", "-ntmpi", "1", "-ntomp", "1"

    def silicon(self, folder, name, calculation, mode, steps=1):
        """Writes an input of Quantum ESPRESSO, and the potential beside it; returns the command that computes it there."""
        folder.mkdir(exist_ok=True)
        with open(folder / "Si.upf", "wb") as file:
            subprocess.run(["zcat", POTENTIAL], stdout=file, check=True)
        (folder / name).write_text(SILICON.format(calculation=calculation, mode=mode, steps=steps))
        return "pw.x", "-in", name

    @staticmethod
    def energies(said):
        return [float(line.split()[-2]) for line in said.splitlines() if line.startswith("!")]

    def write_program(self, text, name="program.py"):
        return DEBIAN_PYTHON, self.write(name, text.encode())

    def uninterrupted(self, *command):
        """What the program prints, and the folder with what it leaves."""
        folder = self.work / "uninterrupted"
        folder.mkdir()
        return self.call(*command, folder=folder), folder

    def compile(self, *solve):
        """dolfin compiles what it needs when it is first called."""
        cache = {"DIJITSO_CACHE_DIR": str(self.work / "compiled")}
        self.ENVIRONMENT = {**self.ENVIRONMENT, **cache}
        self.call(*solve, 1, folder=self.work)
