#include "comm/mpi_program.h"

#include <mpi.h>

#include <cstdlib>

#include "varve/mpi.h"

namespace varve {

Result<std::unique_ptr<MpiProgram>> MpiProgram::start() {
  int provided = MPI_THREAD_SINGLE;
  // Our threads make no call of MPI.
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    return Status::internal("MPI does not start");
  }
  std::unique_ptr<MpiProgram> program(new MpiProgram);
  VARVE_ASSIGN(program->ranks_, make_mpi_communicator(MPI_COMM_WORLD));
  if (provided < MPI_THREAD_FUNNELED) {
    return Status(StatusCode::unsupported, "this MPI library allows no threads in a program");
  }
  return program;
}

MpiProgram::~MpiProgram() {
  ranks_.reset();
  MPI_Finalize();
}

void MpiProgram::give_up(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::abort();
}

}  // namespace varve
