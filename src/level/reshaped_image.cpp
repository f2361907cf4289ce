#include "level/reshaped_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
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

/// What a rank has of a variable: one, or several boxes; or nothing.
using SavedBoxes = std::span<const ImageVariable>;

SavedBoxes find_variable(const ImageTable& table, const std::string& name) {
  const auto begin =
      std::lower_bound(table.variables.begin(), table.variables.end(), name,
                       [](const ImageVariable& at, const std::string& wanted) { return at.name < wanted; });
  const auto end =
      std::find_if(begin, table.variables.end(), [&](const ImageVariable& other) { return other.name != name; });
  return {begin, end};
}

constexpr const char* kMayChange = "variables_may_change = true lets a program go on that protects others than before";

uint64_t elements_of(const ImageVariable& variable) { return variable.bytes / variable.type.bytes; }
}  // namespace

bool is_same_part(const RankWish& wish, uint32_t rank_count, const ImageTable& table) {
  if (rank_count != wish.rank_count) return false;
  for (size_t i = 0, box = 0; i < wish.variables.size(); ++i) {
    const ImageVariable& wanted = wish.variables[i].variable;
    box = i > 0 && wish.variables[i - 1].variable.name == wanted.name ? box + 1 : 0;
    const SavedBoxes saved = find_variable(table, wanted.name);
    // What does not fit at all is told of by who loads it.
    if (saved.empty() || wanted.global_shape.empty() || saved.front().global_shape.empty()) continue;
    if (box >= saved.size() || global_box(saved[box]) != global_box(wanted)) return false;
    const bool last = i + 1 == wish.variables.size() || wish.variables[i + 1].variable.name != wanted.name;
    if (last && box + 1 != saved.size()) return false;
  }
  return true;
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
      VARVE_ASSIGN(const bool comes_back, plan_variable(wanted, variables.size() - 1, variables.back()));
      if (!comes_back) variables.pop_back();
    }
    VARVE_ASSIGN(image_.table_, plan_image(std::move(variables)));
    std::stable_sort(image_.sources_.begin(), image_.sources_.end(),
                     [](const Source& a, const Source& b) { return a.rank < b.rank; });
    return {};
  }

 private:
  /// As where there are as many ranks as before: all that was saved is protected, or may be left out.
  Status check_nothing_is_lost() {
    std::vector<std::string> names;
    for (const WantedVariable& wanted : wish_.variables) names.push_back(wanted.variable.name);
    std::set<std::string> told;
    for (uint32_t rank = 0; rank < parts_.rank_count(); ++rank) {
      for (const ImageVariable& saved : parts_.table(rank).variables) {
        if (std::binary_search(names.begin(), names.end(), saved.name) || !told.insert(saved.name).second) continue;
        const std::string what = "it is in the checkpoint, but is not protected";
        if (!wish_.variables_may_change) return of_variable(saved.name, what, kMayChange);
        image_.left_out_.push_back(of_variable(saved.name, what + ": it is left out"));
      }
    }
    return {};
  }

  using Saved = std::map<uint32_t, SavedBoxes>;  // by rank

  /// False: nothing of it comes back.
  Result<bool> plan_variable(const WantedVariable& wanted, size_t ordinal, ImageVariable& variable) {
    const bool other_ranks = parts_.rank_count() != wish_.rank_count;
    if (other_ranks && wanted.redistribution == Redistribution::ignore && !wanted.owners) return false;
    VARVE_ASSIGN(const Saved saved, find_saved(variable));
    if (saved.empty()) {
      const bool may_be = wish_.variables_may_change || wanted.redistribution == Redistribution::ignore;
      return may_be ? Result<bool>(false)
                    : of_variable(variable.name, "it is protected, but is not in the checkpoint", kMayChange);
    }
    VARVE_TRY(plan_saved(saved, wanted, ordinal, variable));
    return true;
  }

  Result<Saved> find_saved(const ImageVariable& variable) {
    Saved saved;
    for (uint32_t rank = 0; rank < parts_.rank_count(); ++rank) {
      const SavedBoxes found = find_variable(parts_.table(rank), variable.name);
      if (found.empty()) continue;
      if (found.front().type != variable.type) {
        return of_variable(variable.name, fmt::format("it is {} in the checkpoint, but protected as {}",
                                                      found.front().type.name(), variable.type.name()));
      }
      if (found.size() > 1 && variable.global_shape.empty()) {
        return of_variable(variable.name, "it has several boxes in the checkpoint, and nothing says now of what whole",
                           "protect it with Session::protect_boxes(), or with ArrayShape::global_cells");
      }
      saved.emplace(rank, found);
    }
    return saved;
  }

  Status plan_saved(const Saved& saved, const WantedVariable& wanted, size_t ordinal, ImageVariable& variable) {
    if (!variable.global_shape.empty()) return plan_cells(saved, ordinal, variable);
    if (parts_.rank_count() == wish_.rank_count) return plan_own(saved, ordinal, variable, wanted.any_size);
    if (wanted.owners) return plan_owned(*wanted.owners, saved, ordinal, variable);
    if (wanted.redistribution == Redistribution::evenly) return plan_share(saved, ordinal, variable);
    // Of one rank alone it would be a guess.
    const bool may_be_common =
        parts_.rank_count() > 1 || variable.shape.empty() || wanted.redistribution == Redistribution::same;
    return may_be_common ? plan_common(saved, ordinal, variable, wanted.any_size)
                         : divided_how(variable.name, wanted.any_size);
  }

  Status plan_cells(const Saved& saved, size_t ordinal, const ImageVariable& variable) {
    const CellBox wanted = global_box(variable);
    std::vector<CellBox> missing;
    if (!wanted.empty()) missing.push_back(wanted);
    for (const auto& [rank, boxes] : saved) {
      for (const ImageVariable& part : boxes) VARVE_TRY(take_cells(rank, part, wanted, ordinal, variable, missing));
    }
    if (missing.empty()) return {};
    return of_variable(variable.name, fmt::format("no rank has saved its cells from ({}) on",
                                                  fmt::join(missing.front().offset, ", ")));
  }

  /// Of what is missing, what one box has.
  Status take_cells(uint32_t rank, const ImageVariable& part, const CellBox& wanted, size_t ordinal,
                    const ImageVariable& variable, std::vector<CellBox>& missing) {
    if (part.global_shape.empty()) {
      return of_variable(variable.name,
                         fmt::format("rank {} has not said, when it saved it, where its part lies in "
                                     "the whole",
                                     rank),
                         "start as many ranks as before, and save it once with ArrayShape::global_cells");
    }
    const CellBox has = global_box(part);
    if (part.global_shape != variable.global_shape || !lies_in(has, variable.global_shape)) {
      return of_variable(variable.name, fmt::format("as a whole it is {} in the checkpoint, but protected as {}",
                                                    text_of(part.global_shape), text_of(variable.global_shape)));
    }
    std::vector<CellBox> still_missing;
    for (const CellBox& box : missing) {
      if (const std::optional<CellBox> common = overlap(box, has))
        image_.sources_.push_back({rank, *common, has, part.offset, wanted, ordinal, {}});
      for (CellBox& rest : without(box, has)) still_missing.push_back(std::move(rest));
    }
    missing = std::move(still_missing);
    return {};
  }

  /// As many ranks as before: what the same rank had.
  Status plan_own(const Saved& saved, size_t ordinal, ImageVariable& variable, bool any_size) {
    const auto own = saved.find(wish_.rank);
    if (own == saved.end()) return of_variable(variable.name, "it is protected, but is not in the checkpoint");
    return plan_whole(own->first, own->second.front(), ordinal, variable, any_size);
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
    if (!part.empty()) image_.sources_.push_back({rank, part, has, saved.offset, wanted, ordinal, {}});
  }

  /// Of all ranks' elements, one after another, as many as come to this rank.
  Status plan_share(const Saved& saved, size_t ordinal, ImageVariable& variable) {
    uint64_t total = 0;
    for (const auto& [rank, part] : saved) total += elements_of(part.front());
    const uint64_t each = total / wish_.rank_count, more = total % wish_.rank_count;
    const uint64_t begin = each * wish_.rank + std::min<uint64_t>(wish_.rank, more);
    const CellBox wanted{{begin}, {each + (wish_.rank < more ? 1 : 0)}};
    variable.shape = wanted.cells;
    variable.bytes = wanted.cells.front() * variable.type.bytes;
    uint64_t at = 0;
    for (const auto& [rank, part] : saved) {
      const CellBox has{{at}, {elements_of(part.front())}};
      if (const std::optional<CellBox> common = overlap(has, wanted))
        add_elements(rank, part.front(), ordinal, has, wanted, *common);
      at += has.cells.front();
    }
    return {};
  }

  /// Of all ranks' elements, those that are this rank's, as those of the key vector say.
  Status plan_owned(const OwnerRule& rule, const Saved& saved, size_t ordinal, ImageVariable& variable) {
    if (!owned_.contains(rule.key)) VARVE_TRY(find_owned(rule));
    const Owned& owned = owned_.at(rule.key);
    uint64_t total = 0;
    for (const auto& [rank, elements] : owned) {
      const auto part = saved.find(rank);
      const uint64_t count = part == saved.end() ? 0 : elements_of(part->second.front());
      if (count != elements->saved) {
        return of_variable(variable.name, fmt::format("rank {} has saved {} elements of it, and {} of '{}', with which "
                                                      "it is to be divided",
                                                      rank, count, elements->saved, rule.key));
      }
      for (const CellRun& run : elements->runs) total += run.cells;
    }
    variable.shape = {total};
    variable.bytes = total * variable.type.bytes;
    for (const auto& [rank, elements] : owned) {
      if (elements->runs.empty()) continue;
      const CellBox all{{0}, {elements->saved}};
      image_.sources_.push_back({rank, all, all, saved.at(rank).front().offset, {{0}, {total}}, ordinal, elements});
    }
    return {};
  }

  using Owned = std::map<uint32_t, std::shared_ptr<const OwnedElements>>;  // by rank

  Status find_owned(const OwnerRule& rule) {
    const auto key = std::find_if(wish_.variables.begin(), wish_.variables.end(),
                                  [&](const WantedVariable& wanted) { return wanted.variable.name == rule.key; });
    if (key == wish_.variables.end())
      return of_variable(rule.key, "others are to be divided like it, and it is not protected");
    VARVE_ASSIGN(const Saved saved, find_saved(key->variable));
    OwnerSearch search(rule, wish_.variables, wish_.boxes, wish_.rank_count);
    Owned& owned = owned_[rule.key];
    uint64_t next = 0;  // here
    for (const auto& [rank, boxes] : saved) {
      auto elements = std::make_shared<OwnedElements>();
      VARVE_TRY(find_owned_of(rank, boxes.front(), search, next, *elements));
      owned.emplace(rank, std::move(elements));
    }
    return {};
  }

  Status find_owned_of(uint32_t rank, const ImageVariable& part, OwnerSearch& search, uint64_t& next,
                       OwnedElements& owned) {
    const uint64_t element = part.type.bytes;
    ByteVector window(std::min(part.bytes, std::max(kFetchBytes / element, uint64_t{1}) * element));
    for (uint64_t done = 0; done < part.bytes; done += window.size()) {
      const MutableByteSpan bytes = MutableByteSpan(window).first(std::min<uint64_t>(window.size(), part.bytes - done));
      VARVE_TRY(parts_.read(rank, part.offset + done, bytes));
      VARVE_TRY(search.find(bytes, element, [&](uint32_t owner) {
        const uint64_t at = owned.saved++;
        if (owner != wish_.rank) return;
        if (owned.runs.empty() || owned.runs.back().from + owned.runs.back().cells != at)
          owned.runs.push_back({at, next, 0});
        ++owned.runs.back().cells;
        ++next;
      }));
    }
    return {};
  }

  /// What all ranks have alike.
  Status plan_common(const Saved& saved, size_t ordinal, ImageVariable& variable, bool any_size) {
    const ImageVariable& first = saved.begin()->second.front();
    for (const auto& [rank, part] : saved) {
      if (part.front().shape != first.shape) return divided_how(variable.name, any_size);
    }
    if (saved.size() != parts_.rank_count()) return divided_how(variable.name, any_size);
    VARVE_TRY(plan_whole(0, first, ordinal, variable, any_size));
    for (const auto& [rank, part] : saved) VARVE_TRY(compare(first, rank, part.front(), any_size));
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
                   "as before; Session::redistribute() can also say that nothing of it comes back");
  }

  const RankWish& wish_;
  ReshapedImage& image_;
  CheckpointParts& parts_;
  std::map<std::string, Owned> owned_;  // by key
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
  const auto fetch_run = [&](const CellRun& run) -> Status {
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
  };
  if (!source.owned) return for_each_cell_run(source.part, source.from, source.to, fetch_run);
  for (const CellRun& run : source.owned->runs) VARVE_TRY(fetch_run(run));
  return {};
}

Status ReshapedImage::read(uint64_t offset, MutableByteSpan into) {
  if (image_.size() == 0 && !into.empty()) return Status::internal("nothing was checked before it was read");
  if (offset > image_.size() || into.size() > image_.size() - offset)
    return Status::corrupt("bytes past the end of an image were asked for");
  std::copy_n(image_.data() + offset, into.size(), into.begin());
  return {};
}

}  // namespace varve
