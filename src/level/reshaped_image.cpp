#include "level/reshaped_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "core/bytes.h"
#include "core/thread_pool.h"

namespace varve {

namespace {
/// Cells that are not far from each other are read together with what is between them.
constexpr uint64_t kFetchBytes = 4_MiB;
/// Runs from here on are read right to their place.
constexpr uint64_t kLongRunBytes = 64_KiB;

std::string text_of(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

Status of_variable(const std::string& name, std::string message, Hint hint = {}) {
  return Status::invalid_argument(std::move(message), fmt::format("variable '{}'", name), std::move(hint));
}

/// Which cells of the whole array a rank has; the variable says where it lies.
CellBox global_box(const ImageVariable& variable) {
  CellBox box{variable.global_offset, variable.shape};
  if (box.offset.empty()) box.offset.resize(box.cells.size(), 0);
  return box;
}

const ImageVariable* find_variable(const ImageTable& table, const std::string& name) {
  const auto found =
      std::lower_bound(table.variables.begin(), table.variables.end(), name,
                       [](const ImageVariable& at, const std::string& wanted) { return at.name < wanted; });
  return found != table.variables.end() && found->name == name ? &*found : nullptr;
}

uint64_t elements_of(const ImageVariable& variable) { return variable.bytes / variable.type.bytes; }
}  // namespace

bool is_same_part(const RankWish& wish, uint32_t rank_count, const ImageTable& table) {
  if (rank_count != wish.rank_count) return false;
  return std::all_of(wish.variables.begin(), wish.variables.end(), [&](const WantedVariable& wanted) {
    const ImageVariable* const saved = find_variable(table, wanted.variable.name);
    // What does not fit at all is told of by who loads it.
    if (saved == nullptr || wanted.variable.global_shape.empty() || saved->global_shape.empty()) return true;
    return global_box(*saved) == global_box(wanted.variable);
  });
}

/// Finds where each variable comes from.
class ReshapedImage::Planner {
 public:
  Planner(const RankWish& wish, ReshapedImage& image) : wish_(wish), image_(image), parts_(*image.parts_) {}

  Status plan() {
    VARVE_TRY(check_nothing_is_lost());
    std::vector<ImageVariable> variables;
    for (const WantedVariable& wanted : wish_.variables) {
      variables.push_back(wanted.variable);
      VARVE_TRY(plan_variable(wanted, variables.size() - 1, variables.back()));
    }
    VARVE_ASSIGN(image_.table_, plan_image(std::move(variables)));
    std::stable_sort(image_.sources_.begin(), image_.sources_.end(),
                     [](const Source& a, const Source& b) { return a.rank < b.rank; });
    return {};
  }

 private:
  /// As where there are as many ranks as before: all that was saved is protected.
  Status check_nothing_is_lost() {
    std::vector<std::string> names;
    for (const WantedVariable& wanted : wish_.variables) names.push_back(wanted.variable.name);
    for (uint32_t rank = 0; rank < parts_.rank_count(); ++rank) {
      for (const ImageVariable& saved : parts_.table(rank).variables) {
        if (std::binary_search(names.begin(), names.end(), saved.name)) continue;
        return of_variable(saved.name, "it is in the checkpoint, but is not protected");
      }
    }
    return {};
  }

  Status plan_variable(const WantedVariable& wanted, size_t ordinal, ImageVariable& variable) {
    std::map<uint32_t, const ImageVariable*> saved;  // by rank
    for (uint32_t rank = 0; rank < parts_.rank_count(); ++rank) {
      const ImageVariable* const found = find_variable(parts_.table(rank), variable.name);
      if (found == nullptr) continue;
      if (found->type != variable.type) {
        return of_variable(variable.name, fmt::format("it is {} in the checkpoint, but protected as {}",
                                                      found->type.name(), variable.type.name()));
      }
      saved.emplace(rank, found);
    }
    if (saved.empty()) return of_variable(variable.name, "it is protected, but is not in the checkpoint");
    if (!variable.global_shape.empty()) return plan_cells(saved, ordinal, variable);
    if (parts_.rank_count() == wish_.rank_count) return plan_own(saved, ordinal, variable, wanted.any_size);
    if (wanted.redistribution == Redistribution::evenly) return plan_share(saved, ordinal, variable);
    // Of one rank alone it would be a guess.
    const bool may_be_common =
        parts_.rank_count() > 1 || variable.shape.empty() || wanted.redistribution == Redistribution::same;
    return may_be_common ? plan_common(saved, ordinal, variable, wanted.any_size)
                         : divided_how(variable.name, wanted.any_size);
  }

  using Saved = std::map<uint32_t, const ImageVariable*>;

  Status plan_cells(const Saved& saved, size_t ordinal, const ImageVariable& variable) {
    const CellBox wanted = global_box(variable);
    std::vector<CellBox> missing;
    if (!wanted.empty()) missing.push_back(wanted);
    for (const auto& [rank, part] : saved) {
      if (part->global_shape.empty()) {
        return of_variable(variable.name,
                           fmt::format("rank {} has not said, when it saved it, where its part lies in "
                                       "the whole",
                                       rank),
                           "start as many ranks as before, and save it once with ArrayShape::global_cells");
      }
      const CellBox has = global_box(*part);
      if (part->global_shape != variable.global_shape || !lies_in(has, variable.global_shape)) {
        return of_variable(variable.name, fmt::format("as a whole it is {} in the checkpoint, but protected as {}",
                                                      text_of(part->global_shape), text_of(variable.global_shape)));
      }
      std::vector<CellBox> still_missing;
      for (const CellBox& box : missing) {
        if (const std::optional<CellBox> common = overlap(box, has))
          image_.sources_.push_back({rank, *common, has, part->offset, wanted, ordinal});
        for (CellBox& rest : without(box, has)) still_missing.push_back(std::move(rest));
      }
      missing = std::move(still_missing);
    }
    if (missing.empty()) return {};
    return of_variable(variable.name, fmt::format("no rank has saved its cells from ({}) on",
                                                  fmt::join(missing.front().offset, ", ")));
  }

  /// As many ranks as before: what the same rank had.
  Status plan_own(const Saved& saved, size_t ordinal, ImageVariable& variable, bool any_size) {
    const auto own = saved.find(wish_.rank);
    if (own == saved.end()) return of_variable(variable.name, "it is protected, but is not in the checkpoint");
    return plan_whole(own->first, *own->second, ordinal, variable, any_size);
  }

  Status plan_whole(uint32_t rank, const ImageVariable& saved, size_t ordinal, ImageVariable& variable, bool any_size) {
    if (any_size ? saved.shape.size() != 1 : saved.shape != variable.shape) {
      return of_variable(variable.name, fmt::format("it has the shape {} in the checkpoint, but is protected as {}",
                                                    text_of(saved.shape), text_of(variable.shape)));
    }
    variable.shape = saved.shape;
    variable.bytes = saved.bytes;
    add_elements(rank, saved, ordinal, {{0}, {elements_of(saved)}}, {{0}, {elements_of(saved)}},
                 {{0}, {elements_of(saved)}});
    return {};
  }

  void add_elements(uint32_t rank, const ImageVariable& saved, size_t ordinal, const CellBox& has,
                    const CellBox& wanted, const CellBox& part) {
    if (!part.empty()) image_.sources_.push_back({rank, part, has, saved.offset, wanted, ordinal});
  }

  /// Of all ranks' elements, one after another, as many as come to this rank.
  Status plan_share(const Saved& saved, size_t ordinal, ImageVariable& variable) {
    uint64_t total = 0;
    for (const auto& [rank, part] : saved) total += elements_of(*part);
    const uint64_t each = total / wish_.rank_count, more = total % wish_.rank_count;
    const uint64_t begin = each * wish_.rank + std::min<uint64_t>(wish_.rank, more);
    const CellBox wanted{{begin}, {each + (wish_.rank < more ? 1 : 0)}};
    variable.shape = wanted.cells;
    variable.bytes = wanted.cells.front() * variable.type.bytes;
    uint64_t at = 0;
    for (const auto& [rank, part] : saved) {
      const CellBox has{{at}, {elements_of(*part)}};
      if (const std::optional<CellBox> common = overlap(has, wanted))
        add_elements(rank, *part, ordinal, has, wanted, *common);
      at += has.cells.front();
    }
    return {};
  }

  /// What all ranks have alike.
  Status plan_common(const Saved& saved, size_t ordinal, ImageVariable& variable, bool any_size) {
    const ImageVariable& first = *saved.begin()->second;
    for (const auto& [rank, part] : saved) {
      if (part->shape != first.shape) return divided_how(variable.name, any_size);
    }
    if (saved.size() != parts_.rank_count()) return divided_how(variable.name, any_size);
    VARVE_TRY(plan_whole(0, first, ordinal, variable, any_size));
    for (const auto& [rank, part] : saved) VARVE_TRY(compare(first, rank, *part, any_size));
    return {};
  }

  Status compare(const ImageVariable& first, uint32_t rank, const ImageVariable& other, bool any_size) {
    if (rank == 0) return {};
    ByteVector window(std::min(first.bytes, kLongRunBytes)), of_other(window.size());
    for (uint64_t at = 0; at < first.bytes; at += window.size()) {
      const uint64_t bytes = std::min<uint64_t>(window.size(), first.bytes - at);
      VARVE_TRY(parts_.read(0, first.offset + at, MutableByteSpan(window).first(bytes)));
      VARVE_TRY(parts_.read(rank, other.offset + at, MutableByteSpan(of_other).first(bytes)));
      if (std::memcmp(window.data(), of_other.data(), bytes) != 0) return divided_how(first.name, any_size);
    }
    return {};
  }

  Status divided_how(const std::string& name, bool any_size) const {
    return of_variable(
        name,
        fmt::format("the checkpoint is of {} ranks, this run has {}, and nothing says what of it is whose",
                    parts_.rank_count(), wish_.rank_count),
        any_size ? "call Session::redistribute() for it, or start as many ranks as before"
                 : "protect it with ArrayShape::global_cells and global_offset, or start as many ranks "
                   "as before");
  }

  const RankWish& wish_;
  ReshapedImage& image_;
  CheckpointParts& parts_;
};

Result<std::unique_ptr<RankImage>> ReshapedImage::plan(const RankWish& wish, std::unique_ptr<CheckpointParts> parts,
                                                       size_t threads) {
  std::unique_ptr<ReshapedImage> image(new ReshapedImage(std::move(parts), threads));
  const Status planned = Planner(wish, *image).plan();
  image->parts_->note_faults();
  VARVE_TRY(planned);
  return std::unique_ptr<RankImage>(std::move(image));
}

Status ReshapedImage::check() {
  image_ = Buffer(table_.image_bytes);
  // What one rank has is read by one thread: its packs are decoded once.
  std::vector<std::pair<size_t, size_t>> of_rank;
  for (size_t begin = 0; begin < sources_.size();) {
    size_t end = begin;
    while (end < sources_.size() && sources_[end].rank == sources_[begin].rank) ++end;
    of_rank.emplace_back(begin, end);
    begin = end;
  }
  const Status fetched = parallel_for(of_rank.size(), threads_, [&](size_t i) -> Status {
    for (size_t source = of_rank[i].first; source < of_rank[i].second; ++source) VARVE_TRY(fetch(sources_[source]));
    return {};
  });
  parts_->note_faults();
  if (!fetched.ok()) image_ = Buffer();
  return fetched;
}

Status ReshapedImage::fetch(const Source& source) {
  const ImageVariable& variable = table_.variables[source.variable];
  const uint64_t element = variable.type.bytes;
  std::byte* const into = image_.data() + variable.offset;
  ByteVector near;  // of the rank's image, from `near_at` on
  uint64_t near_at = 0;
  std::vector<uint64_t> last = source.part.offset;
  for (size_t d = 0; d < last.size(); ++d) last[d] += source.part.cells[d] - 1;
  const uint64_t part_end = source.from_offset + (cell_ordinal(source.from, last) + 1) * element;
  return for_each_cell_run(source.part, source.from, source.to, [&](const CellRun& run) -> Status {
    const uint64_t at = source.from_offset + run.from * element, bytes = run.cells * element;
    const MutableByteSpan target(into + run.to * element, bytes);
    if (bytes >= kLongRunBytes) return parts_->read(source.rank, at, target);
    if (at < near_at || at + bytes > near_at + near.size()) {
      near.resize(std::min(kFetchBytes, part_end - at));
      near_at = at;
      VARVE_TRY(parts_->read(source.rank, at, near));
    }
    std::memcpy(target.data(), near.data() + (at - near_at), bytes);
    return {};
  });
}

Status ReshapedImage::read(uint64_t offset, MutableByteSpan into) {
  if (image_.size() == 0 && !into.empty()) return Status::internal("nothing was checked before it was read");
  if (offset > image_.size() || into.size() > image_.size() - offset)
    return Status::corrupt("bytes past the end of an image were asked for");
  std::copy_n(image_.data() + offset, into.size(), into.begin());
  return {};
}

}  // namespace varve
