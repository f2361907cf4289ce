#pragma once

#include <mpi.h>

#include "varve/communicator.h"

namespace varve {

/// The ranks of an MPI communicator, any of them (built if VARVE_WITH_MPI; link varve::mpi). It is duplicated, so that
/// nothing of ours meets the program's messages; MPI must be initialised. MPI_Finalize() ends it: a session that is
/// open then is finished first, as by its end, and calls fail from then on. Collective.
Result<std::unique_ptr<Communicator>> make_mpi_communicator(MPI_Comm ranks);

}  // namespace varve
