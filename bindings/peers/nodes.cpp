#include "nodes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <vector>

#include "settings.h"

namespace varve::peers {

int count_nodes(MPI_Comm ranks) {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0, count = 1;
  MPI_Get_processor_name(name, &length);
  if (const char* said = std::getenv("VARVE_NODE"); said != nullptr) std::snprintf(name, sizeof name, "%s", said);
  MPI_Comm_size(ranks, &count);
  std::vector<char> all(sizeof name * static_cast<size_t>(count));
  MPI_Allgather(name, sizeof name, MPI_CHAR, all.data(), sizeof name, MPI_CHAR, ranks);
  std::set<std::string> different;
  for (int rank = 0; rank < count; ++rank) different.insert(all.data() + sizeof name * static_cast<size_t>(rank));
  return static_cast<int>(different.size());
}

std::string redundancy_of(const std::string& type, int group, int nodes, std::string_view library, bool told) {
  if (type == "SINGLE" || nodes < 2) return "";
  int threads = MPI_THREAD_SINGLE;
  MPI_Query_thread(&threads);
  if (threads != MPI_THREAD_MULTIPLE) {
    if (told) {
      tell(library,
           "nodes do not protect each other: that takes MPI_THREAD_MULTIPLE. Where the program calls MPI_Init(), Open "
           "MPI gives it with OMPI_MPI_THREAD_LEVEL=3 in the environment, and MPICH with "
           "MPIR_CVAR_DEFAULT_THREAD_LEVEL=MPI_THREAD_MULTIPLE");
    }
    return "";
  }
  if (type == "PARTNER" || nodes == 2) return "partner";
  const int size = std::clamp(group, 3, nodes);
  if (type == "RS") return "rs:" + std::to_string(std::max(1, size - 2)) + "+" + std::to_string(size > 2 ? 2 : 1);
  return "xor:" + std::to_string(size);
}

}  // namespace varve::peers
