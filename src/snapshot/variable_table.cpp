#include "snapshot/variable_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "layout/layout.h"

namespace varve {

uint64_t StridedRegion::bytes() const {
  uint64_t product = row_bytes;
  for (const RowStep& step : steps) product *= step.count;
  return product;
}

std::optional<uint64_t> StridedRegion::extent_bytes() const {
  uint64_t dense = row_bytes;
  uint64_t end = first_byte;
  if (__builtin_add_overflow(end, row_bytes, &end)) return std::nullopt;
  bool empty = row_bytes == 0;
  for (const RowStep& step : steps) {
    if (__builtin_mul_overflow(dense, step.count, &dense)) return std::nullopt;
    empty = empty || step.count == 0;
    uint64_t reach = 0;
    if (step.count > 1 && (__builtin_mul_overflow(step.count - 1, step.stride_bytes, &reach) ||
                           __builtin_add_overflow(end, reach, &end))) {
      return std::nullopt;
    }
  }
  return empty ? 0 : end;
}

uint64_t StridedRegion::locate(uint64_t dense_offset, uint64_t& run_bytes) const {
  const uint64_t in_row = dense_offset % row_bytes;
  uint64_t row = dense_offset / row_bytes;
  run_bytes = row_bytes - in_row;
  uint64_t at = first_byte + in_row;
  for (auto step_at = steps.rbegin(); step_at != steps.rend(); ++step_at) {
    const RowStep& step = *step_at;
    at += (row % step.count) * step.stride_bytes;
    row /= step.count;
  }
  return at;
}

StridedRegion saved_region(const ArrayShape& shape, uint64_t element_bytes) {
  StridedRegion region{.first_byte = 0, .row_bytes = element_bytes, .steps = {}};
  uint64_t stride = element_bytes;
  std::vector<RowStep> fastest_first;
  for (size_t d = shape.cells.size(); d-- > 0;) {
    const uint64_t low = shape.ghosts_low.empty() ? 0 : shape.ghosts_low[d];
    const uint64_t high = shape.ghosts_high.empty() ? 0 : shape.ghosts_high[d];
    const uint64_t saved = shape.cells[d] - low - high;
    region.first_byte += low * stride;
    if (fastest_first.empty() && stride == region.row_bytes) {
      region.row_bytes *= saved;  // all faster dimensions are saved whole: rows follow each other
    } else if (saved != 1) {
      fastest_first.push_back({saved, stride});
    }
    stride *= shape.cells[d];
  }
  region.steps.assign(fastest_first.rbegin(), fastest_first.rend());
  return region;
}

namespace {

/// Calls visit(place from the base, dense offset, bytes) for each run of bytes [dense_offset, end).
template <class Visit>
void for_each_run(const StridedRegion& region, uint64_t dense_offset, uint64_t end, const Visit& visit) {
  while (dense_offset < end) {
    uint64_t run_bytes = 0;
    uint64_t at = region.locate(dense_offset, run_bytes);
    // Rows of the fastest step are found by adding: the division of locate() costs more than a short row's copy.
    uint64_t rows = 1, stride_bytes = 0;
    if (!region.dense()) {
      const RowStep& step = region.steps.back();
      rows = step.count - dense_offset / region.row_bytes % step.count;
      stride_bytes = step.stride_bytes;
    }
    for (; rows > 0 && dense_offset < end; --rows) {
      const uint64_t bytes = std::min(run_bytes, end - dense_offset);
      visit(at, dense_offset, bytes);
      dense_offset += bytes;
      at += stride_bytes - (region.row_bytes - run_bytes);  // to the beginning of the next row
      run_bytes = region.row_bytes;
    }
  }
}

}  // namespace

void gather(const std::byte* base, const StridedRegion& region, uint64_t dense_offset, MutableByteSpan into) {
  const uint64_t begin = dense_offset;
  for_each_run(region, dense_offset, begin + into.size(), [&](uint64_t at, uint64_t dense, uint64_t bytes) {
    std::memcpy(into.data() + (dense - begin), base + at, bytes);
  });
}

void scatter(std::byte* base, const StridedRegion& region, uint64_t dense_offset, ByteSpan from) {
  const uint64_t begin = dense_offset;
  for_each_run(region, dense_offset, begin + from.size(), [&](uint64_t at, uint64_t dense, uint64_t bytes) {
    std::memcpy(base + at, from.data() + (dense - begin), bytes);
  });
}

/// One protected variable: `image` is what the table says of it, without its place.
struct VariableTable::Entry {
  ImageVariable image;
  VariableMemory memory;
  std::function<ByteSpan()> vector_bytes;
  std::function<MutableByteSpan(uint64_t)> vector_resize;
  std::function<Status(ByteVector&)> object_save;
  std::function<Status(ByteSpan)> object_load;
  ByteVector object;              ///< what the last save callback gave, or what was loaded
  MutableByteSpan vector_loaded;  ///< where the resize callback has had it loaded

  uint64_t array_bytes = 0;          ///< of the whole array, ghost cells included; only such can be lent
  std::optional<LentGrid> lent;      ///< for the next checkpoint
  bool own_memory_is_stale = false;  ///< it was lent before
  bool is_undefined = false;         ///< a load began to write it, and did not end well, or was rejected
  bool is_loaded = false;            ///< by the last load
  Redistribution redistribution = Redistribution::none;
  std::shared_ptr<const OwnerRule> owners;
  DimensionOrder order = DimensionOrder::slowest_first;

  /// What a variable of several boxes has beside the first.
  struct Box {
    ImageVariable image;
    VariableMemory memory;
  };
  std::vector<Box> more;
  bool has_boxes = false;

  bool is_array() const { return !vector_bytes && !object_save && !has_boxes && !image.shape.empty(); }
  bool any_size() const { return vector_bytes || object_save; }
  /// Looks where it is now and how large: VariableTable::refresh().
  Status refresh(bool as_loaded);
  /// Of a vector or an object: memory for as many bytes as were saved.
  Result<MutableByteSpan> resize(const ImageVariable& saved);
  Status check_fits(std::span<const ImageVariable> saved) const;
};

void VariableTable::EntryDeleter::operator()(Entry* entry) const { delete entry; }

namespace {

constexpr const char* kOnlyVectors = "only a vector's elements can be divided";

Status name_mistake(std::string_view name, std::string message) {
  return Status::invalid_argument(std::move(message), fmt::format("variable '{}'", name));
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

bool fits_dimensions(const std::vector<uint64_t>& values, size_t dimensions) {
  return values.empty() || values.size() == dimensions;
}

Status check_ghosts(std::string_view name, const ArrayShape& shape, std::vector<uint64_t>& saved) {
  saved.clear();
  for (size_t d = 0; d < shape.cells.size(); ++d) {
    const uint64_t low = shape.ghosts_low.empty() ? 0 : shape.ghosts_low[d];
    const uint64_t high = shape.ghosts_high.empty() ? 0 : shape.ghosts_high[d];
    if (low > shape.cells[d] || high > shape.cells[d] - low) {
      return name_mistake(
          name, fmt::format("dimension {} has {} cells, but {} + {} ghost cells", d, shape.cells[d], low, high));
    }
    saved.push_back(shape.cells[d] - low - high);
  }
  return {};
}

Status check_global(std::string_view name, const ArrayShape& shape, const std::vector<uint64_t>& saved) {
  if (shape.global_cells.empty()) {
    return shape.global_offset.empty() ? Status() : name_mistake(name, "it has a global offset, but no global shape");
  }
  for (size_t d = 0; d < saved.size(); ++d) {
    const uint64_t offset = shape.global_offset.empty() ? 0 : shape.global_offset[d];
    if (saved[d] > shape.global_cells[d] || offset > shape.global_cells[d] - saved[d]) {
      return name_mistake(name, fmt::format("dimension {}: {} cells from {} on do not lie in {} global cells", d,
                                            saved[d], offset, shape.global_cells[d]));
    }
  }
  return {};
}

/// The same with the slowest dimension first.
ArrayShape slowest_first(ArrayShape shape) {
  if (shape.order == DimensionOrder::slowest_first) return shape;
  for (auto* values : {&shape.cells, &shape.ghosts_low, &shape.ghosts_high, &shape.global_cells, &shape.global_offset})
    std::reverse(values->begin(), values->end());
  shape.order = DimensionOrder::slowest_first;
  return shape;
}

/// Checks a shape whose `cells` are set; gives the saved cells.
Status check_shape(std::string_view name, const ArrayShape& shape, uint64_t count, std::vector<uint64_t>& saved) {
  const size_t dimensions = shape.cells.size();
  if (dimensions > kDimensionsMax) return name_mistake(name, fmt::format("it has {} dimensions", dimensions));
  if (array_bytes(shape.cells, 1) != count) {
    return name_mistake(name, fmt::format("its shape {} does not fit its {} elements", shape_text(shape.cells), count));
  }
  for (const auto* values : {&shape.ghosts_low, &shape.ghosts_high, &shape.global_cells, &shape.global_offset}) {
    if (!fits_dimensions(*values, dimensions)) {
      return name_mistake(name,
                          fmt::format("it has {} dimensions, but {} numbers for them", dimensions, values->size()));
    }
  }
  VARVE_TRY(check_ghosts(name, shape, saved));
  return check_global(name, shape, saved);
}

/// Runs a callback of the program: what it throws stops here.
template <class Call>
Status guarded(std::string_view name, const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Status::resource_limit("no memory is left", fmt::format("variable '{}'", name));
  } catch (const std::exception& failure) {
    return name_mistake(name, fmt::format("its callback threw: {}", failure.what()));
  } catch (...) {
    return name_mistake(name, "its callback threw");
  }
}

}  // namespace

Status VariableTable::Entry::refresh(bool as_loaded) {
  const bool takes_loaded = as_loaded && is_loaded;
  if (vector_bytes) {
    ByteSpan bytes;
    VARVE_TRY(guarded(image.name, [&] {
      bytes = vector_bytes();
      return Status();
    }));
    if (bytes.size() % image.type.bytes != 0) return name_mistake(image.name, "its bytes are no whole elements");
    const bool is_where_loaded =
        bytes.size() == vector_loaded.size() && (bytes.empty() || bytes.data() == vector_loaded.data());
    if (takes_loaded && !is_where_loaded)
      return name_mistake(image.name, "its callback gives something else than what was loaded");
    // What is saved is only read; load() takes its address from the resize callback.
    memory.base = const_cast<std::byte*>(bytes.data());
    image.bytes = memory.region.row_bytes = bytes.size();
    image.shape[0] = bytes.size() / image.type.bytes;
  } else if (object_save) {
    if (!takes_loaded) {
      object.clear();
      VARVE_TRY(guarded(image.name, [&] { return object_save(object); }));
    }
    memory.base = object.data();
    image.bytes = image.shape[0] = memory.region.row_bytes = object.size();
  } else if (own_memory_is_stale && !lent) {
    return Status::invalid_argument("it was lent before, but not for this checkpoint",
                                    fmt::format("variable '{}'", image.name),
                                    "lend the grid with its present content, or protect it anew");
  }
  return {};
}

Result<MutableByteSpan> VariableTable::Entry::resize(const ImageVariable& saved) {
  MutableByteSpan into;
  VARVE_TRY(guarded(image.name, [&] {
    if (object_load) {
      object.resize(saved.bytes);
      into = object;
    } else {
      into = vector_loaded = vector_resize(saved.bytes / saved.type.bytes);
    }
    return Status();
  }));
  if (into.size() != saved.bytes) return name_mistake(image.name, "its resize callback gave another size");
  return into;
}

/// An image on its way into what is protected.
class VariableTable::Loading final : public ImageTarget {
 public:
  /// `boxes`: what the image has of it.
  Status add(Entry& entry, std::span<const ImageVariable> boxes) {
    entry.is_undefined = true;
    entry.own_memory_is_stale = false;
    entries_.push_back(&entry);
    if (entry.any_size()) {
      VARVE_ASSIGN(const MutableByteSpan into, entry.resize(boxes.front()));
      places_.push_back({boxes.front().offset, boxes.front().bytes, into.data(), dense_region(into.size())});
      return {};
    }
    for (size_t i = 0; i < boxes.size(); ++i) {
      const VariableMemory& memory = i == 0 ? entry.memory : entry.more[i - 1].memory;
      places_.push_back({boxes[i].offset, boxes[i].bytes, memory.base, memory.region});
    }
    return {};
  }

  void put(uint64_t offset, ByteSpan bytes) override {
    for (size_t i = first_at(offset); i < places_.size() && !bytes.empty(); ++i) {
      const Place& place = places_[i];
      const uint64_t nobodys = place.offset > offset ? std::min<uint64_t>(place.offset - offset, bytes.size()) : 0;
      offset += nobodys;
      bytes = bytes.subspan(nobodys);
      const uint64_t here = std::min<uint64_t>(bytes.size(), place.offset + place.bytes - offset);
      if (here > 0) scatter(place.base, place.region, offset - place.offset, bytes.first(here));
      offset += here;
      bytes = bytes.subspan(here);
    }
  }

  MutableByteSpan memory(uint64_t offset, uint64_t bytes) override {
    const size_t i = first_at(offset);
    if (i == places_.size() || !places_[i].region.dense()) return {};
    const Place& place = places_[i];
    if (offset < place.offset || bytes > place.offset + place.bytes - offset) return {};
    return {place.base + place.region.first_byte + (offset - place.offset), static_cast<size_t>(bytes)};
  }

  Status finish() const {
    for (Entry* const entry : entries_) {
      if (!entry->object_load) continue;
      VARVE_TRY(guarded(entry->image.name, [&] {
                  return entry->object_load(entry->object);
                }).with_context(fmt::format("while '{}' was loaded", entry->image.name)));
    }
    for (Entry* const entry : entries_) {
      entry->is_undefined = false;
      entry->is_loaded = true;
    }
    return {};
  }

 private:
  struct Place {
    uint64_t offset = 0, bytes = 0;  ///< in the image
    std::byte* base = nullptr;
    StridedRegion region;
  };
  /// The first place that does not end before `offset`.
  size_t first_at(uint64_t offset) const {
    const auto found = std::upper_bound(places_.begin(), places_.end(), offset, [](uint64_t at, const Place& place) {
      return at < place.offset + place.bytes;
    });
    return static_cast<size_t>(found - places_.begin());
  }

  std::vector<Entry*> entries_;
  std::vector<Place> places_;  ///< in the order of the image
};

void VariableTable::LoadingDeleter::operator()(Loading* loading) const { delete loading; }

Status VariableTable::put(std::string_view name, EntryPointer entry) {
  VARVE_TRY(check_variable_name(name));
  if (!element_type_is_possible(entry->image.type)) return name_mistake(name, "its elements have an impossible type");
  const auto before = entries_.find(name);
  if (before != entries_.end()) {
    const Entry& old = *before->second;
    if (static_cast<bool>(old.object_save) != static_cast<bool>(entry->object_save)) {
      return name_mistake(name, "it is protected already, of another kind");
    }
    if (old.image.type != entry->image.type) {
      return name_mistake(
          name, fmt::format("it is protected already, as {}, not {}", old.image.type.name(), entry->image.type.name()));
    }
    if (old.lent) return name_mistake(name, "it has been lent for the next checkpoint");
    entry->redistribution = old.redistribution;
    entry->owners = old.owners;
  }
  entry->image.name = name;
  for (Entry::Box& box : entry->more) box.image.name = name;
  changed_ = true;
  entries_.insert_or_assign(std::string(name), std::move(entry));
  return {};
}

namespace {
Status describe_array(std::string_view name, ElementType type, void* data, uint64_t count, const ArrayShape& shape,
                      ImageVariable& image, VariableMemory& memory, uint64_t& array_bytes_found) {
  if (data == nullptr && count > 0) return name_mistake(name, "it has no memory");
  ArrayShape whole = slowest_first(shape);
  if (whole.cells.empty()) whole.cells = {count};
  VARVE_TRY(check_shape(name, whole, count, image.shape));
  const std::optional<uint64_t> bytes = array_bytes(whole.cells, type.bytes);
  if (!bytes) return name_mistake(name, "it is larger than memory can be");
  image.type = type;
  image.global_shape = whole.global_cells;
  image.global_offset = whole.global_offset;
  array_bytes_found = *bytes;
  memory.base = static_cast<std::byte*>(data);
  memory.region = saved_region(whole, type.bytes);
  image.bytes = memory.region.bytes();
  return {};
}
}  // namespace

Status VariableTable::protect_array(std::string_view name, ElementType type, void* data, uint64_t count,
                                    const ArrayShape& shape) {
  EntryPointer entry(new Entry);
  VARVE_TRY(describe_array(name, type, data, count, shape, entry->image, entry->memory, entry->array_bytes));
  entry->order = shape.order;
  return put(name, std::move(entry));
}

Status VariableTable::protect_boxes(std::string_view name, ElementType type, const std::vector<uint64_t>& global_cells,
                                    const std::vector<ArrayBox<std::byte>>& boxes, DimensionOrder order) {
  if (global_cells.empty()) return name_mistake(name, "nothing says of what whole its boxes are");
  if (!element_type_is_possible(type)) return name_mistake(name, "its elements have an impossible type");
  EntryPointer entry(new Entry);
  entry->has_boxes = true;
  entry->order = order;
  entry->more.resize(boxes.empty() ? 0 : boxes.size() - 1);
  for (size_t i = 0; i < std::max<size_t>(boxes.size(), 1); ++i) {
    // A rank without any has one without cells.
    ArrayBox<std::byte> box;
    box.shape = {std::vector<uint64_t>(global_cells.size(), 0), {}, {}, {}, {}, order};
    if (!boxes.empty()) box = boxes[i];
    if (box.shape.order != order) return name_mistake(name, "its boxes name the dimensions in different orders");
    if (box.shape.global_cells.empty()) box.shape.global_cells = global_cells;
    if (box.shape.global_cells != global_cells) return name_mistake(name, "its boxes are not of one whole");
    ImageVariable& image = i == 0 ? entry->image : entry->more[i - 1].image;
    VariableMemory& memory = i == 0 ? entry->memory : entry->more[i - 1].memory;
    VARVE_TRY(describe_array(name, type, box.data.data(), box.data.size() / type.bytes, box.shape, image, memory,
                             entry->array_bytes));
  }
  return put(name, std::move(entry));
}

Status VariableTable::protect_scalar(std::string_view name, ElementType type, void* data) {
  if (data == nullptr) return name_mistake(name, "it has no memory");
  EntryPointer entry(new Entry);
  entry->image.type = type;
  entry->image.bytes = type.bytes;
  entry->memory.base = static_cast<std::byte*>(data);
  entry->memory.region = dense_region(type.bytes);
  return put(name, std::move(entry));
}

Status VariableTable::protect_vector(std::string_view name, ElementType type, std::function<ByteSpan()> bytes,
                                     std::function<MutableByteSpan(uint64_t count)> resize) {
  if (!bytes || !resize) return name_mistake(name, "it lacks a callback");
  EntryPointer entry(new Entry);
  entry->image.type = type;
  entry->image.shape = {0};
  entry->vector_bytes = std::move(bytes);
  entry->vector_resize = std::move(resize);
  return put(name, std::move(entry));
}

Status VariableTable::protect_object(std::string_view name, std::function<Status(ByteVector&)> save,
                                     std::function<Status(ByteSpan)> load) {
  if (!save || !load) return name_mistake(name, "it lacks a callback");
  EntryPointer entry(new Entry);
  entry->image.shape = {0};
  entry->object_save = std::move(save);
  entry->object_load = std::move(load);
  return put(name, std::move(entry));
}

Status VariableTable::unprotect(std::string_view name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return Status::not_found("it is not protected", fmt::format("variable '{}'", name));
  if (found->second->lent) return name_mistake(name, "it has been lent for the next checkpoint");
  entries_.erase(found);
  changed_ = true;
  return {};
}

Status VariableTable::redistribute(std::string_view name, Redistribution how) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return Status::not_found("it is not protected", fmt::format("variable '{}'", name));
  if (how == Redistribution::evenly && !found->second->vector_bytes) return name_mistake(name, kOnlyVectors);
  found->second->redistribution = how;
  found->second->owners.reset();
  return {};
}

Status VariableTable::redistribute(std::string_view key, ElementOwners owners,
                                   const std::vector<std::string>& together) {
  if (static_cast<bool>(owners.owner) == static_cast<bool>(owners.cell) || owners.array.empty() == bool(owners.cell))
    return name_mistake(key, "either its elements' owners are to be named, or their cells in an array");
  auto rule = std::make_shared<OwnerRule>();
  rule->key = key;
  rule->owners = std::move(owners);
  std::vector<std::string> names = together;
  names.emplace_back(key);
  for (const std::string& name : names) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return Status::not_found("it is not protected", fmt::format("variable '{}'", name));
    if (!found->second->vector_bytes) return name_mistake(name, kOnlyVectors);
    const uint64_t element_bytes = found->second->image.type.bytes;
    if (name == key && rule->owners.element_bytes > 0 && rule->owners.element_bytes != element_bytes) {
      return name_mistake(name, fmt::format("its elements have {} bytes, and the function takes some of {}",
                                            element_bytes, rule->owners.element_bytes));
    }
  }
  for (const std::string& name : names) entries_.find(name)->second->owners = rule;
  return {};
}

Status VariableTable::check_lend(std::string_view name, const LentGrid& grid) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return name_mistake(name, "it is not protected, so that no grid can be lent for it");
  const Entry& entry = *found->second;
  if (!entry.is_array()) return name_mistake(name, "only for an array a grid can be lent");
  if (entry.array_bytes != grid.bytes) {
    return name_mistake(
        name, fmt::format("the lent grid has {} bytes, the protected array {}", grid.bytes, entry.array_bytes));
  }
  return {};
}

Status VariableTable::lend(std::string_view name, const LentGrid& grid) {
  VARVE_TRY(check_lend(name, grid));
  entries_.find(name)->second->lent = grid;
  return {};
}

std::optional<uint32_t> VariableTable::lent_grid(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end() || !found->second->lent) return std::nullopt;
  return found->second->lent->grid;
}

std::vector<uint32_t> VariableTable::take_lent() {
  std::vector<uint32_t> taken;
  for (const auto& [name, entry] : entries_) {
    if (!entry->lent) continue;
    taken.push_back(entry->lent->grid);
    entry->lent.reset();
    entry->own_memory_is_stale = true;
  }
  return taken;
}

Status VariableTable::refresh() {
  for (const auto& [name, entry] : entries_) {
    const uint64_t bytes_before = entry->image.bytes;
    VARVE_TRY(entry->refresh(as_loaded_));
    if (entry->image.bytes != bytes_before) changed_ = true;
  }
  const uint64_t number_before = image_number_;
  if (changed_) {
    std::vector<ImageVariable> variables;
    variables.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) {
      variables.push_back(entry->image);
      for (const Entry::Box& box : entry->more) variables.push_back(box.image);
    }
    VARVE_ASSIGN(image_, plan_image(std::move(variables)));
    image_header_ = encode_image_header(image_);
    ++image_number_;
    changed_ = false;
  }

  memory_.resize(image_.variables.size());
  size_t at = 0;
  bool places_changed = false;
  for (const auto& [name, entry] : entries_) {
    VariableMemory& memory = memory_[at++];
    const std::optional<uint32_t> lent = entry->lent ? std::optional(entry->lent->grid) : std::nullopt;
    places_changed = places_changed || memory.lent_grid != lent;
    memory = entry->memory;  // steps keep their capacity
    memory.lent_grid = lent;
    if (entry->lent) memory.base = entry->lent->data;
    for (const Entry::Box& box : entry->more) memory_[at++] = box.memory;
  }
  if (places_changed && image_number_ == number_before) ++image_number_;
  return {};
}

Status VariableTable::check_own_memory() const {
  for (const auto& [name, entry] : entries_) {
    if (!entry->lent && !entry->own_memory_is_stale) continue;
    return Status::invalid_argument("it was lent, so that nothing says where it is to come back",
                                    fmt::format("variable '{}'", name),
                                    entry->lent ? "make the checkpoint for which it was lent, or end the session"
                                                : "protect anew the grid that lend() returned");
  }
  return {};
}

Status VariableTable::check_overruled() const {
  for (const auto& [name, how] : overruled_) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) continue;
    const Entry& entry = *found->second;
    // What belongs to it goes by its owners, too.
    if (entry.owners)
      return name_mistake(name, "the program divides it by the owners of its elements: option redistribution");
    if (how == Redistribution::evenly && !entry.vector_bytes)
      return name_mistake(name, fmt::format("{}: option redistribution", kOnlyVectors));
  }
  return {};
}

std::map<std::string, bool> VariableTable::overruled() const {
  std::map<std::string, bool> names;
  for (const auto& [name, how] : overruled_) names.emplace(name, entries_.contains(name));
  return names;
}

Redistribution VariableTable::redistribution_of(const std::string& name, const Entry& entry) const {
  const auto said = overruled_.find(name);
  return said == overruled_.end() ? entry.redistribution : said->second;
}

std::vector<WantedVariable> VariableTable::wanted() const {
  std::vector<WantedVariable> all;
  for (const auto& [name, entry] : entries_) {
    const Redistribution how = redistribution_of(name, *entry);
    all.push_back({entry->image, entry->any_size(), how, entry->owners, entry->order});
    for (const Entry::Box& box : entry->more) all.push_back({box.image, false, how, {}, entry->order});
  }
  return all;
}

Status VariableTable::Entry::check_fits(std::span<const ImageVariable> saved) const {
  if (saved.front().type != image.type) {
    return name_mistake(image.name, fmt::format("it is {} in the checkpoint, but protected as {}",
                                                saved.front().type.name(), image.type.name()));
  }
  if (saved.size() != 1 + more.size()) {
    return name_mistake(image.name, fmt::format("it has {} boxes in the checkpoint, but is protected with {}",
                                                saved.size(), 1 + more.size()));
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    const std::vector<uint64_t>& own = i == 0 ? image.shape : more[i - 1].image.shape;
    if (any_size() ? saved[i].shape.size() == 1 : own == saved[i].shape) continue;
    return name_mistake(image.name, fmt::format("it has the shape {} in the checkpoint, but is protected as {}",
                                                shape_text(saved[i].shape), shape_text(own)));
  }
  return {};
}

Result<VariableTable::Match> VariableTable::match(const ImageTable& image, const std::set<std::string>& ignored) const {
  Match match;
  const auto may_miss = [&](bool allowed, const std::string& name, std::string what, std::string_view then) -> Status {
    const Status mistake =
        Status::invalid_argument(std::move(what), fmt::format("variable '{}'", name),
                                 "variables_may_change = true lets a program go on that protects others than before");
    if (allowed) match.changes.push_back(name_mistake(name, fmt::format("{}{}", mistake.message(), then)));
    return allowed ? Status() : mistake;
  };
  auto entry = entries_.begin();
  for (size_t begin = 0; begin < image.variables.size() || entry != entries_.end();) {
    const std::string* const saved = begin < image.variables.size() ? &image.variables[begin].name : nullptr;
    if (saved == nullptr || (entry != entries_.end() && entry->first < *saved)) {
      if (entry->second->is_undefined) {
        return name_mistake(
            entry->first,
            "it is not in the checkpoint, and what it held went when a newer one was loaded that turned "
            "out to be damaged, or was rejected: protect it anew with what it is to hold");
      }
      if (!ignored.contains(entry->first)) {
        const bool may_be_missing = redistribution_of(entry->first, *entry->second) == Redistribution::ignore;
        VARVE_TRY(may_miss(may_change_ || may_be_missing, entry->first, "it is protected, but is not in the checkpoint",
                           ": it keeps what it holds"));
      }
      ++entry;
      continue;
    }
    size_t end = begin + 1;
    while (end < image.variables.size() && image.variables[end].name == *saved) ++end;
    const std::span<const ImageVariable> boxes = std::span(image.variables).subspan(begin, end - begin);
    begin = end;
    if (entry == entries_.end() || entry->first != *saved) {
      VARVE_TRY(may_miss(may_change_, *saved, "it is in the checkpoint, but is not protected", ": it is left out"));
      continue;
    }
    VARVE_TRY(entry->second->check_fits(boxes));
    match.pairs.push_back({entry->second.get(), boxes});
    ++entry;
  }
  return match;
}

Status VariableTable::check_loadable(const ImageTable& image) const { return match(image).status(); }

std::vector<Status> VariableTable::changes(const ImageTable& image, const std::set<std::string>& ignored) const {
  Result<Match> matched = match(image, ignored);
  return matched.ok() ? std::move(matched->changes) : std::vector<Status>();
}

bool VariableTable::leaves_out(const ImageTable& image) const {
  return std::any_of(image.variables.begin(), image.variables.end(),
                     [this](const ImageVariable& saved) { return !entries_.contains(saved.name); });
}

Result<ImageTarget*> VariableTable::begin_load(const ImageTable& image) {
  VARVE_ASSIGN(const Match matched, match(image));
  loading_.reset(new Loading);
  for (const auto& [name, entry] : entries_) entry->is_loaded = false;
  for (const Match::Pair& pair : matched.pairs) {
    VARVE_TRY(loading_->add(*pair.entry, pair.saved)
                  .with_context(fmt::format("while '{}' was loaded", pair.entry->image.name)));
  }
  return loading_.get();
}

void VariableTable::note_rejected() {
  for (const auto& [name, entry] : entries_) entry->is_undefined = entry->is_undefined || entry->is_loaded;
}

void VariableTable::note_begun_anew() {
  for (const auto& [name, entry] : entries_) entry->is_undefined = entry->is_loaded = false;
}

Status VariableTable::finish_load() {
  if (!loading_) return Status::internal("nothing is being loaded");
  const Status finished = loading_->finish();
  loading_.reset();
  return finished;
}

}  // namespace varve
