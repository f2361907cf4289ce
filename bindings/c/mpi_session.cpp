#include "session_handle.h"
#include "varve/mpi.h"
#include "varve/varve_mpi.h"

extern "C" {

int varve_open_mpi(MPI_Comm ranks, const struct varve_options* options, varve_session** session) {
  return varve::c_binding::open_session([ranks] { return varve::make_mpi_communicator(ranks); }, options, session);
}

int varve_open_mpi_fortran(MPI_Fint ranks, const struct varve_options* options, varve_session** session) {
  return varve_open_mpi(MPI_Comm_f2c(ranks), options, session);
}

}  // extern "C"
