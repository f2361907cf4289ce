#ifndef VARVE_VARVE_MPI_H
#define VARVE_VARVE_MPI_H

#include <mpi.h>

#include "varve/varve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a session of the ranks of an MPI communicator, any of them (link varve::mpi, or varve-mpi.pc). It is
 * duplicated, so that nothing of ours meets the program's messages. A session that is open in MPI_Finalize() is
 * finished there; close it before, or afterwards. `options` may be NULL. On failure *session is NULL. Collective. */
int varve_open_mpi(MPI_Comm ranks, const struct varve_options* options, varve_session** session);
/* The same with a communicator as Fortran has it: what bindings for it call. */
int varve_open_mpi_fortran(MPI_Fint ranks, const struct varve_options* options, varve_session** session);

#ifdef __cplusplus
}
#endif

#endif /* VARVE_VARVE_MPI_H */
