#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

namespace varve::peers {

/// On how many nodes the ranks are, as Varve counts them. Collective.
int count_nodes(MPI_Comm ranks);

/// How the nodes can protect each other, as a level: `type` is SCR's word for it ("SINGLE", "PARTNER", "XOR", "RS"),
/// and `group` how many nodes belong together at most. Empty: they cannot; `told`: if that is for want of threads, the
/// user is told so, with the name of the library that he knows.
std::string redundancy_of(const std::string& type, int group, int nodes, std::string_view library, bool told);

}  // namespace varve::peers
