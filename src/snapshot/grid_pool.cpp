#include "snapshot/grid_pool.h"

#include <fmt/format.h>

namespace varve {

Status GridPool::add(std::string_view name, uint64_t bytes, Use use) {
  Grid grid{.name = std::string(name), .memory = {}, .bytes = bytes, .use = use, .fill_number = 0};
  VARVE_ASSIGN(grid.memory, SharedSegment::create_where_room(owner_.places_of(owner_.grid_path(size())), bytes));
  grids_.push_back(std::move(grid));
  return {};
}

Result<std::byte*> GridPool::make(std::string_view name, uint64_t bytes) {
  const std::string subject = fmt::format("grid '{}'", name);
  if (bytes == 0) return Status::invalid_argument("a grid of no size", subject);
  uint32_t made = 0;
  for (const Grid& grid : grids_) {
    if (grid.name != name) continue;
    ++made;
    if (grid.bytes != bytes) {
      return Status::invalid_argument(
          fmt::format("the other grids of this name have {} bytes, not {}", grid.bytes, bytes), subject);
    }
  }
  VARVE_TRY(add(name, bytes, Use::program));
  std::byte* const memory = grids_.back().memory.data();
  if (made == 1) VARVE_TRY(make_spares(name));
  return memory;
}

Status GridPool::make_spares(std::string_view name) {
  uint64_t bytes = 0;
  uint32_t spares = 0;
  for (const Grid& grid : grids_) {
    if (grid.name != name) continue;
    bytes = grid.bytes;
    if (grid.use != Use::program) ++spares;
  }
  for (; spares < spares_; ++spares) VARVE_TRY(add(name, bytes, Use::spare));
  return {};
}

std::optional<uint32_t> GridPool::find(std::string_view name, const std::byte* data) const {
  for (uint32_t i = 0; i < size(); ++i) {
    if (grids_[i].name == name && grids_[i].memory.data() == data) return i;
  }
  return std::nullopt;
}

Status GridPool::unlink() const {
  Status first;
  for (const Grid& grid : grids_) {
    const Status status = grid.memory.unlink();
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace varve
