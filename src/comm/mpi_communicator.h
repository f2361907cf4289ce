#pragma once

#include "varve/mpi.h"

namespace varve {

/// As make_mpi_communicator(), with messages in pieces of so many bytes. MPI counts elements with an int, so that
/// longer ones must be cut anyway; tests cut short ones. A multiple of 8, at most 2^30.
Result<std::unique_ptr<Communicator>> make_mpi_communicator_in_pieces(MPI_Comm ranks, uint64_t piece_bytes);

}  // namespace varve
