#include "level/job_memory.h"

#include <unistd.h>

namespace varve {

SegmentFamily job_memory(const std::string& shared_memory, const std::string& job, const LevelSpec& nearest,
                         const std::string& path, const std::string& node) {
  // A node's own store has the same name on all nodes, and other paths.
  const bool by_name = nearest.is_of_node() || nearest.is_on_servers();
  const std::string of_node = node.empty() ? std::string() : "\n" + node;
  return {shared_memory, static_cast<uint32_t>(::getuid()),
          make_job_key((by_name ? nearest.name() : path) + of_node, job)};
}

}  // namespace varve
