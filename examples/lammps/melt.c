/* LAMMPS as a library, with its restart files in the checkpoints of Varve: a Lennard-Jones melt that survives being
 * killed. LAMMPS writes and reads a file by its path, and varve_route_file() says which: it is in memory, and goes with
 * the checkpoint to wherever checkpoints go.
 *
 *   mpirun -n 4 melt [steps [steps between checkpoints]] */
#define LAMMPS_LIB_MPI
#include <lammps/library.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "varve/varve_mpi.h"

#define CHECK(call) (void)((call) && (fputs(varve_error_message(session), stderr), MPI_Abort(MPI_COMM_WORLD, 1), 0))

static const char* const kBeginning[] = {
    "lattice fcc 0.8442", "region box block 0 12 0 12 0 12", "create_box 1 box", "create_atoms 1 box",
    "mass 1 1.0",         "velocity all create 3.0 87287",
};
static const char* const kForces[] = {
    "pair_style lj/cut 2.5", "pair_coeff 1 1 1.0 1.0 2.5", "neighbor 0.3 bin", "fix 1 all nve", "thermo 1000000",
};

/* LAMMPS' first rank writes and reads the file, and all are told where it is. */
static void command_with_file(void* lammps, varve_session* session, int rank, uint64_t step, const char* command) {
  char path[4096] = "", line[4200];
  if (rank == 0) CHECK(varve_route_file(session, step, "melt.restart", path, sizeof path));
  MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
  snprintf(line, sizeof line, "%s %s", command, path);
  lammps_command(lammps, line);
}

static void run(uint64_t steps, uint64_t every) {
  char* arguments[] = {"melt", "-log", "none", "-screen", "none"};
  int rank = 0, restarted = 0;
  uint64_t step = 0;
  double energy = 0;
  varve_session* session = NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  void* const lammps = lammps_open(5, arguments, MPI_COMM_WORLD, NULL);
  CHECK(varve_open_mpi(MPI_COMM_WORLD, NULL, &session));
  CHECK(varve_restart_with_files(session, NULL, &step, &restarted));
  lammps_command(lammps, "units lj");
  if (restarted) {
    command_with_file(lammps, session, rank, step, "read_restart");
    if (rank == 0) printf("going on from step %llu\n", (unsigned long long)step);
  } else {
    for (size_t i = 0; i < sizeof kBeginning / sizeof *kBeginning; ++i) lammps_command(lammps, kBeginning[i]);
  }
  for (size_t i = 0; i < sizeof kForces / sizeof *kForces; ++i) lammps_command(lammps, kForces[i]);
  while (step < steps) {
    char line[64];
    snprintf(line, sizeof line, "run %llu", (unsigned long long)every);
    lammps_command(lammps, line);
    step += every;
    energy = lammps_get_thermo(lammps, "etotal"); /* as it is before other commands */
    command_with_file(lammps, session, rank, step, "write_restart");
    CHECK(varve_checkpoint(session, step, VARVE_LATER));
  }
  const double atoms = lammps_get_natoms(lammps);
  if (rank == 0) {
    printf("after %llu steps %.0f atoms have %.12g of energy each\n", (unsigned long long)step, atoms, energy);
  }
  CHECK(varve_close(session));
  lammps_close(lammps);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  run(argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, argc > 2 ? strtoull(argv[2], NULL, 10) : 100);
  MPI_Finalize();
  return 0;
}
