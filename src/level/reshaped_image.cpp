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
/// What two ranks have is compared in pieces of so many bytes.
constexpr uint64_t kCompareBytes = 64_KiB;

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
    std::vector<uint32_t> ranks;
    std::vector<CellBox> boxes;
    for (const auto& [rank, part] : saved) {
      if (part->global_shape.empty()) {
        return of_variable(variable.name,
                           fmt::format("rank {} has not said, when it saved it, where its part lies in "
                                       "the whole",
                                       rank),
                           "start as many ranks as before, and save it once with ArrayShape::global_cells");
      }
      ranks.push_back(rank);
      boxes.push_back(global_box(*part));
      if (part->global_shape != variable.global_shape || !lies_in(boxes.back(), variable.global_shape)) {
        return of_variable(variable.name, fmt::format("as a whole it is {} in the checkpoint, but protected as {}",
                                                      text_of(part->global_shape), text_of(variable.global_shape)));
      }
    }
    VARVE_ASSIGN(CellShares found, share_cells(wanted, boxes));
    for (CellShare& share : found.shares) {
      const uint32_t rank = ranks[share.box];
      image_.sources_.push_back(
          {rank, std::move(share.cells), boxes[share.box], saved.at(rank)->offset, wanted, ordinal});
    }
    if (found.missing.empty()) return {};
    return of_variable(variable.name, fmt::format("no rank has saved its cells from ({}) on",
                                                  fmt::join(found.missing.front().offset, ", ")));
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
    ByteVector window(std::min(first.bytes, kCompareBytes)), of_other(window.size());
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

/// Takes bytes of an old rank's image, and puts what is wanted of them where it belongs in the new one.
class ReshapedImage::FromRank final : public ImageTarget {
 public:
  /// `sources`: those of the rank.
  FromRank(const ImageTable& table, std::span<const Source> sources, ImageTarget& target)
      : table_(table), sources_(sources), target_(target) {}

  /// Where the wanted cells are in the rank's image, about: from the first to the last of each variable.
  std::vector<Extent> wanted() const {
    std::vector<Extent> extents;
    for (const Source& source : sources_) {
      const uint64_t element = element_bytes(source);
      std::vector<uint64_t> last = source.part.offset;
      for (size_t d = 0; d < last.size(); ++d) last[d] += source.part.cells[d] - 1;
      const uint64_t begin = source.from_offset + cell_ordinal(source.from, source.part.offset) * element;
      const uint64_t end = source.from_offset + (cell_ordinal(source.from, last) + 1) * element;
      extents.push_back({begin, end - begin});
    }
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    std::vector<Extent> apart;
    for (const Extent& extent : extents) {
      if (apart.empty() || apart.back().offset + apart.back().bytes < extent.offset) {
        apart.push_back(extent);
      } else {
        Extent& before = apart.back();
        before.bytes = std::max(before.offset + before.bytes, extent.offset + extent.bytes) - before.offset;
      }
    }
    return apart;
  }

  void put(uint64_t offset, ByteSpan bytes) override {
    for (const Source& source : sources_) {
      const uint64_t element = element_bytes(source), of_variable = source.from.cell_count() * element;
      const uint64_t begin = std::max(offset, source.from_offset);
      const uint64_t end = std::min(offset + bytes.size(), source.from_offset + of_variable);
      if (begin >= end) continue;
      put_cells(source, element, begin - source.from_offset, bytes.subspan(begin - offset, end - begin));
    }
  }

 private:
  uint64_t element_bytes(const Source& source) const { return table_.variables[source.variable].type.bytes; }

  /// `bytes` of what the rank has of the variable, from byte `begin` of it on.
  void put_cells(const Source& source, uint64_t element, uint64_t begin, ByteSpan bytes) {
    const uint64_t end = begin + bytes.size();
    const std::optional<CellBox> near =
        overlap(source.part, cells_around(source.from, begin / element, (end - 1) / element));
    if (!near) return;
    const uint64_t to = table_.variables[source.variable].offset;
    for_each_cell_run(*near, source.from, source.to, [&](const CellRun& run) {
      const uint64_t run_begin = std::max(begin, run.from * element);
      const uint64_t run_end = std::min(end, (run.from + run.cells) * element);
      if (run_begin < run_end) {
        target_.put(to + run.to * element + (run_begin - run.from * element),
                    bytes.subspan(run_begin - begin, run_end - run_begin));
      }
      return Status();
    }).ignore("what is visited cannot fail");
  }

  /// A box with all cells of `box` from one ordinal to another, and not many more.
  static CellBox cells_around(const CellBox& box, uint64_t first, uint64_t last) {
    CellBox around = box;
    uint64_t stride = box.cell_count();
    for (size_t d = 0; d < box.cells.size(); ++d) {
      stride /= box.cells[d];
      const uint64_t from = first / stride, to = last / stride;
      around.offset[d] = box.offset[d] + from;
      around.cells[d] = to - from + 1;
      if (from != to) break;
      first -= from * stride;
      last -= to * stride;
    }
    return around;
  }

  const ImageTable& table_;
  const std::span<const Source> sources_;
  ImageTarget& target_;
};

Status ReshapedImage::load(ImageTarget& target) {
  // What one rank has is read by one thread: its packs are decoded once.
  std::vector<std::span<const Source>> of_rank;
  for (size_t begin = 0; begin < sources_.size();) {
    size_t end = begin;
    while (end < sources_.size() && sources_[end].rank == sources_[begin].rank) ++end;
    of_rank.push_back(std::span(sources_).subspan(begin, end - begin));
    begin = end;
  }
  const Status loaded = parallel_for(of_rank.size(), threads_, [&](size_t i) -> Status {
    FromRank from(table_, of_rank[i], target);
    return parts_->load(of_rank[i].front().rank, from.wanted(), from);
  });
  parts_->note_faults();
  return loaded;
}

}  // namespace varve
