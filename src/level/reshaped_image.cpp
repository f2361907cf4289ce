#include "level/reshaped_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "core/box_search.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "hash/score.h"

namespace varve {

namespace {
/// Elements whose owners are asked for are read in pieces of so many bytes.
constexpr uint64_t kFetchBytes = 4_MiB;
/// What ranks have is compared in pieces of so many bytes, less if that comes to more for all of them.
constexpr uint64_t kCompareBytes = 1_MiB, kCompareBytesMin = 4_KiB, kCompareBytesOfAll = 64_MiB;
/// So many numbers may be parameters, such as the same spacing along each dimension; more are data.
constexpr uint64_t kParametersMax = 16;
/// What is wanted is read with what lies between, if that is not more.
constexpr uint64_t kGapBytes = 4_KiB;

std::string text_of(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

Status of_variable(const std::string& name, std::string message, Hint hint = {}) {
  return Status::invalid_argument(std::move(message), fmt::format("variable '{}'", name), std::move(hint));
}

/// share_cells() of many boxes, of which `search` finds those that matter.
Result<CellShares> share_found(const CellBox& wanted, const std::vector<CellBox>& boxes, const BoxSearch& search) {
  const std::vector<size_t> across = search.all_across(wanted);
  std::vector<CellBox> found;
  for (const size_t i : across) found.push_back(boxes[i]);
  VARVE_ASSIGN(CellShares shares, share_cells(wanted, found));
  for (CellShare& share : shares.shares) share.box = across[share.box];
  return shares;
}

/// Which cells of the whole array a rank has; the variable says where it lies.
CellBox global_box(const ImageVariable& variable) {
  CellBox box{variable.global_offset, variable.shape};
  if (box.offset.empty()) box.offset.resize(box.cells.size(), 0);
  return box;
}

/// A box with the cells of both, and those between. Nothing is in a box of other dimensions.
CellBox box_around(const CellBox& a, const CellBox& b) {
  if (a.cells.size() != b.cells.size() || a.empty()) return b;
  if (b.empty()) return a;
  CellBox both = a;
  for (size_t d = 0; d < both.cells.size(); ++d) {
    const uint64_t end = std::max(a.offset[d] + a.cells[d], b.offset[d] + b.cells[d]);
    both.offset[d] = std::min(a.offset[d], b.offset[d]);
    both.cells[d] = end - both.offset[d];
  }
  return both;
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
  if (rank_count != wish.rank_count || wish.divided_anew) return false;
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
    VARVE_TRY(look_at_parts());
    std::vector<ImageVariable> variables;
    for (const WantedVariable& wanted : wish_.variables) {
      variables.push_back(wanted.variable);
      VARVE_ASSIGN(const bool comes_back, plan_variable(wanted, variables.size() - 1, variables.back()));
      if (!comes_back) variables.pop_back();
    }
    VARVE_ASSIGN(image_.table_, plan_image(std::move(variables)));
    std::stable_sort(image_.sources_.begin(), image_.sources_.end(), [](const Source& a, const Source& b) {
      return std::pair(a.rank, a.from_offset) < std::pair(b.rank, b.from_offset);
    });
    for (const Source& source : image_.sources_) VARVE_TRY(parts_.will_load(source.rank));
    return {};
  }

 private:
  /// Of a variable that is wanted, what ranks have saved.
  struct Saved {
    struct Part {
      uint32_t rank = 0;
      std::shared_ptr<const ImageVariable> variable;  ///< with where it is in the rank's image
    };

    /// As it is wanted, or one box of it.
    const ImageVariable* wanted = nullptr;
    CellBox near;  ///< of what lies in a whole: a box around all that is wanted
    bool is_there = false;
    /// In the order of ranks, as they are alike for many. Of what lies in a whole, only boxes that have cells of
    /// `near`.
    std::vector<Part> parts;
    Status misfit;     ///< the first part that is of another type, or in boxes
    Status misplaced;  ///< the first part that does not say where in the whole it lies, or lies elsewhere

    /// Null: the rank has none of it.
    const ImageVariable* of(uint32_t rank) const {
      const auto found = std::lower_bound(parts.begin(), parts.end(), rank, [](const Part& part, uint32_t wanted_rank) {
        return part.rank < wanted_rank;
      });
      return found != parts.end() && found->rank == rank ? found->variable.get() : nullptr;
    }
  };

  /// Each rank's table once, as there may be very many: of what is in it, what this rank may need is kept. All that was
  /// saved is protected, or may be left out, as where there are as many ranks as before.
  Status look_at_parts() {
    for (const WantedVariable& wanted : wish_.variables) {
      const ImageVariable& variable = wanted.variable;
      const auto [saved, is_new] = saved_.try_emplace(variable.name);
      if (is_new) saved->second.wanted = &variable;
      if (variable.global_shape.empty()) continue;
      saved->second.near = is_new ? global_box(variable) : box_around(saved->second.near, global_box(variable));
    }
    std::set<std::string> told;
    for (uint32_t rank = 0; rank < parts_.rank_count(); ++rank) {
      const ImageTable table = parts_.table(rank);
      if (rank == wish_.rank && parts_.rank_count() == wish_.rank_count)
        image_.is_divided_anew_ = !is_same_part(wish_, wish_.rank_count, table);
      for (auto first = table.variables.begin(); first != table.variables.end();) {
        const auto end = std::find_if(first, table.variables.end(),
                                      [&](const ImageVariable& other) { return other.name != first->name; });
        const auto wanted = saved_.find(first->name);
        if (wanted != saved_.end()) {
          note_saved(rank, {first, end}, wanted->second);
        } else if (told.insert(first->name).second) {
          const std::string what = "it is in the checkpoint, but is not protected";
          if (!wish_.variables_may_change) return of_variable(first->name, what, kMayChange);
          image_.left_out_.push_back(of_variable(first->name, what + ": it is left out"));
        }
        first = end;
      }
    }
    return {};
  }

  static void note_saved(uint32_t rank, SavedBoxes boxes, Saved& saved) {
    saved.is_there = true;
    const ImageVariable& wanted = *saved.wanted;
    if (!saved.misfit.ok()) return;
    if (boxes.front().type != wanted.type) {
      saved.misfit = of_variable(wanted.name, fmt::format("it is {} in the checkpoint, but protected as {}",
                                                          boxes.front().type.name(), wanted.type.name()));
      return;
    }
    if (boxes.size() > 1 && wanted.global_shape.empty()) {
      saved.misfit =
          of_variable(wanted.name, "it has several boxes in the checkpoint, and nothing says now of what whole",
                      "protect it with Session::protect_boxes(), or with ArrayShape::global_cells");
      return;
    }
    for (const ImageVariable& part : boxes) {
      if (!wanted.global_shape.empty()) {
        if (saved.misplaced.ok()) saved.misplaced = check_place(rank, part, wanted);
        if (!saved.misplaced.ok() || !have_common_cells(saved.near, global_box(part))) continue;
      }
      const bool is_alike = !saved.parts.empty() && *saved.parts.back().variable == part;
      saved.parts.push_back(
          {rank, is_alike ? saved.parts.back().variable : std::make_shared<const ImageVariable>(part)});
    }
  }

  /// Whether what a rank has saved lies in the same whole.
  static Status check_place(uint32_t rank, const ImageVariable& part, const ImageVariable& wanted) {
    if (part.global_shape.empty()) {
      return of_variable(wanted.name,
                         fmt::format("rank {} has not said, when it saved it, where its part lies in "
                                     "the whole",
                                     rank),
                         "start as many ranks as before, and save it once with ArrayShape::global_cells");
    }
    if (part.global_shape == wanted.global_shape && lies_in(global_box(part), wanted.global_shape)) return {};
    return of_variable(wanted.name, fmt::format("as a whole it is {} in the checkpoint, but protected as {}",
                                                text_of(part.global_shape), text_of(wanted.global_shape)));
  }

  /// False: nothing of it comes back.
  Result<bool> plan_variable(const WantedVariable& wanted, size_t ordinal, ImageVariable& variable) {
    const bool other_ranks = parts_.rank_count() != wish_.rank_count;
    const Saved& saved = saved_.at(variable.name);
    VARVE_TRY(saved.misfit);
    if (other_ranks && wanted.redistribution == Redistribution::ignore && !wanted.owners) {
      if (saved.is_there) image_.ignored_.insert(variable.name);
      return false;
    }
    if (!saved.is_there) {
      const bool may_be = wish_.variables_may_change || wanted.redistribution == Redistribution::ignore;
      return may_be ? Result<bool>(false)
                    : of_variable(variable.name, "it is protected, but is not in the checkpoint", kMayChange);
    }
    VARVE_TRY(plan_saved(saved, wanted, ordinal, variable));
    return true;
  }

  Status plan_saved(const Saved& saved, const WantedVariable& wanted, size_t ordinal, ImageVariable& variable) {
    if (!variable.global_shape.empty()) return plan_cells(saved, ordinal, variable);
    const bool own = parts_.rank_count() == wish_.rank_count && !(wish_.divided_anew && wanted.owners);
    if (own) return plan_own(saved, ordinal, variable, wanted.any_size);
    if (wanted.owners) return plan_owned(*wanted.owners, saved, ordinal, variable);
    if (wanted.redistribution == Redistribution::evenly) return plan_share(saved, ordinal, variable);
    // Of one rank alone it would be a guess.
    const bool may_be_common =
        parts_.rank_count() > 1 || variable.shape.empty() || wanted.redistribution == Redistribution::same;
    return may_be_common ? plan_common(saved, ordinal, variable, wanted) : divided_how(variable.name, wanted.any_size);
  }

  /// Of an array, the boxes that may be needed of all ranks.
  struct SavedArray {
    struct Part {
      uint32_t rank;
      uint64_t offset;
    };
    std::string name;
    std::vector<Part> parts;
    std::vector<CellBox> boxes;
    std::unique_ptr<BoxSearch> search{};
  };

  Status plan_cells(const Saved& saved, size_t ordinal, const ImageVariable& variable) {
    VARVE_TRY(saved.misplaced);
    const CellBox wanted = global_box(variable);
    // The boxes of a variable come one after the other.
    if (array_.name != variable.name) {
      array_ = {variable.name, {}, {}};
      for (const Saved::Part& part : saved.parts) {
        array_.boxes.push_back(global_box(*part.variable));
        array_.parts.push_back({part.rank, part.variable->offset});
      }
      array_.search = std::make_unique<BoxSearch>(array_.boxes, wanted.cells.size());
    }
    VARVE_ASSIGN(CellShares found, share_found(wanted, array_.boxes, *array_.search));
    for (CellShare& share : found.shares) {
      const SavedArray::Part& part = array_.parts[share.box];
      image_.sources_.push_back(
          {part.rank, std::move(share.cells), array_.boxes[share.box], part.offset, wanted, ordinal, {}});
    }
    if (found.missing.empty()) return {};
    return of_variable(variable.name, fmt::format("no rank has saved its cells from ({}) on",
                                                  fmt::join(found.missing.front().offset, ", ")));
  }

  /// As many ranks as before: what the same rank had.
  Status plan_own(const Saved& saved, size_t ordinal, ImageVariable& variable, bool any_size) {
    const ImageVariable* const own = saved.of(wish_.rank);
    if (own == nullptr) return of_variable(variable.name, "it is protected, but is not in the checkpoint");
    return plan_whole(wish_.rank, *own, ordinal, variable, any_size);
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
    for (const Saved::Part& part : saved.parts) total += elements_of(*part.variable);
    const uint64_t each = total / wish_.rank_count, more = total % wish_.rank_count;
    const uint64_t begin = each * wish_.rank + std::min<uint64_t>(wish_.rank, more);
    const CellBox wanted{{begin}, {each + (wish_.rank < more ? 1 : 0)}};
    variable.shape = wanted.cells;
    variable.bytes = wanted.cells.front() * variable.type.bytes;
    image_.divided_[variable.name] = {.taken = wanted.cells.front(), .saved = total};
    uint64_t at = 0;
    for (const Saved::Part& part : saved.parts) {
      const CellBox has{{at}, {elements_of(*part.variable)}};
      if (const std::optional<CellBox> common = overlap(has, wanted))
        add_elements(part.rank, *part.variable, ordinal, has, wanted, *common);
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
      const ImageVariable* const part = saved.of(rank);
      const uint64_t count = part == nullptr ? 0 : elements_of(*part);
      if (count != elements->saved) {
        return of_variable(variable.name, fmt::format("rank {} has saved {} elements of it, and {} of '{}', with which "
                                                      "it is to be divided",
                                                      rank, count, elements->saved, rule.key));
      }
      for (const CellRun& run : elements->runs) total += run.cells;
    }
    for (const Saved::Part& part : saved.parts) {
      if (owned.contains(part.rank) || elements_of(*part.variable) == 0) continue;
      return of_variable(variable.name, fmt::format("rank {} has saved {} elements of it, and nothing of '{}', with "
                                                    "which it is to be divided",
                                                    part.rank, elements_of(*part.variable), rule.key));
    }
    variable.shape = {total};
    variable.bytes = total * variable.type.bytes;
    DividedElements& divided = image_.divided_[variable.name];
    divided.taken = total;
    for (const auto& [rank, elements] : owned) divided.saved += elements->saved;
    divided.owners = owners_of_[rule.key];
    for (const auto& [rank, elements] : owned) {
      if (elements->runs.empty()) continue;
      const CellBox all{{0}, {elements->saved}};
      image_.sources_.push_back({rank, all, all, saved.of(rank)->offset, {{0}, {total}}, ordinal, elements});
    }
    return {};
  }

  using Owned = std::map<uint32_t, std::shared_ptr<const OwnedElements>>;  // by rank

  Status find_owned(const OwnerRule& rule) {
    const auto key = std::find_if(wish_.variables.begin(), wish_.variables.end(),
                                  [&](const WantedVariable& wanted) { return wanted.variable.name == rule.key; });
    if (key == wish_.variables.end())
      return of_variable(rule.key, "others are to be divided like it, and it is not protected");
    const Saved& saved = saved_.at(key->variable.name);
    VARVE_TRY(saved.misfit);
    OwnerSearch search(rule, wish_.variables, wish_.boxes, wish_.rank_count);
    Owned& owned = owned_[rule.key];
    uint64_t next = 0;  // here
    for (const Saved::Part& part : saved.parts) {
      auto elements = std::make_shared<OwnedElements>();
      VARVE_TRY(find_owned_of(part.rank, *part.variable, search, next, owners_of_[rule.key], *elements));
      owned.emplace(part.rank, std::move(elements));
    }
    return {};
  }

  Status find_owned_of(uint32_t rank, const ImageVariable& part, OwnerSearch& search, uint64_t& next, uint64_t& owners,
                       OwnedElements& owned) {
    const uint64_t element = part.type.bytes;
    ByteVector window(std::min(part.bytes, std::max(kFetchBytes / element, uint64_t{1}) * element));
    for (uint64_t done = 0; done < part.bytes; done += window.size()) {
      const MutableByteSpan bytes = MutableByteSpan(window).first(std::min<uint64_t>(window.size(), part.bytes - done));
      const PartRead read{rank, part.offset + done, bytes};
      VARVE_TRY(parts_.read({&read, 1}));
      VARVE_TRY(search.find(bytes, element, [&](uint32_t owner) {
        const uint64_t at = owned.saved++;
        owners = (std::rotl(owners, 5) ^ owner) * 0x9e3779b97f4a7c15;
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
  Status plan_common(const Saved& saved, size_t ordinal, ImageVariable& variable, const WantedVariable& wanted) {
    const ImageVariable& first = *saved.parts.front().variable;
    for (uint32_t rank = 0; rank < parts_.rank_count(); ++rank) {
      const ImageVariable* const part = saved.of(rank);
      if (part == nullptr) return differs(wanted, fmt::format("rank {} has saved nothing of it", rank));
      if (part->shape != first.shape) {
        return differs(wanted, fmt::format("rank {} has saved it as {}, and rank 0 as {}", rank, text_of(part->shape),
                                           text_of(first.shape)));
      }
    }
    VARVE_TRY(plan_whole(0, first, ordinal, variable, wanted.any_size));
    if (wanted.redistribution != Redistribution::same && elements_of(first) > kParametersMax) {
      VARVE_ASSIGN(const bool constant, is_constant(first));
      if (constant) return divided_how(variable.name, wanted.any_size);
    }
    return compare(saved, wanted);
  }

  /// Whether what rank 0 has of it is one value throughout.
  Result<bool> is_constant(const ImageVariable& first) {
    const uint64_t element = first.type.bytes;
    ByteVector value(element), window;
    for (uint64_t at = 0; at < first.bytes; at += window.size()) {
      const uint64_t most = at == 0 ? kCompareBytesMin : kCompareBytes;
      window.resize(std::min(std::max(most / element, uint64_t{1}) * element, first.bytes - at));
      const PartRead read{0, first.offset + at, window};
      VARVE_TRY(parts_.read({&read, 1}));
      if (at == 0) std::copy_n(window.begin(), element, value.begin());
      const bool goes_on = std::equal(value.begin(), value.end(), window.begin()) &&
                           std::memcmp(window.data(), window.data() + element, window.size() - element) == 0;
      if (!goes_on) return false;
    }
    return true;
  }

  /// Of one length, which is the same on all ranks. If all of this run's come here, each compares what some of those
  /// had with what the first one had: those that are at hand here, or others for each variable.
  Status compare(const Saved& saved, const WantedVariable& wanted) {
    const ImageVariable& first = *saved.parts.front().variable;
    const uint64_t share = (uint64_t{wish_.rank} + crc32c(as_bytes(first.name))) % wish_.rank_count;
    std::vector<std::pair<uint32_t, uint64_t>> places;  // of the ranks' images
    for (const Saved::Part& part : saved.parts) {
      const bool is_own = parts_.is_at_hand(part.rank).value_or(part.rank % wish_.rank_count == share);
      if (!places.empty() && wish_.all_alike && !is_own) continue;
      places.emplace_back(part.rank, part.variable->offset);
    }
    if (places.size() < 2) return {};
    const uint64_t each = std::clamp(kCompareBytesOfAll / places.size(), kCompareBytesMin, kCompareBytes);
    const uint64_t piece = std::min(first.bytes, each);
    ByteVector windows(piece * places.size());
    for (uint64_t at = 0; at < first.bytes; at += piece) {
      const uint64_t bytes = std::min(piece, first.bytes - at);
      std::vector<PartRead> reads;
      for (const auto& [rank, offset] : places)
        reads.push_back({rank, offset + at, MutableByteSpan(windows).subspan(reads.size() * piece, bytes)});
      VARVE_TRY(parts_.read(reads));
      for (const PartRead& read : reads) {
        if (std::memcmp(windows.data(), read.into.data(), bytes) != 0)
          return differs(wanted, fmt::format("ranks 0 and {} have saved different values", read.rank));
      }
    }
    return {};
  }

  /// It is not the same on all ranks.
  Status differs(const WantedVariable& wanted, const std::string& how) const {
    if (wanted.redistribution != Redistribution::same) return divided_how(wanted.variable.name, wanted.any_size);
    return of_variable(
        wanted.variable.name, "all ranks are to have the same of it, and " + how,
        "divide it otherwise (Session::redistribute(), option redistribution), or start as many ranks as before");
  }

  Status divided_how(const std::string& name, bool any_size) const {
    return of_variable(
        name,
        fmt::format("the checkpoint is of {} ranks, this run has {}, and nothing says what of it is whose",
                    parts_.rank_count(), wish_.rank_count),
        any_size
            ? "call Session::redistribute() for it, name it in the option redistribution, or start as many ranks as "
              "before"
            : "protect it with ArrayShape::global_cells and global_offset, or start as many ranks as before; "
              "Session::redistribute(), or the option redistribution, can also say that nothing of it comes back");
  }

  const RankWish& wish_;
  ReshapedImage& image_;
  CheckpointParts& parts_;
  std::map<std::string, Saved> saved_;
  std::map<std::string, Owned> owned_;         // by key
  std::map<std::string, uint64_t> owners_of_;  // DividedElements::owners, by key
  SavedArray array_;                           // the last one
};

RankRange ReshapedImage::share(size_t ordinal, size_t of) const {
  const uint64_t all = parts_->rank_count();
  return {static_cast<uint32_t>(all * ordinal / of), static_cast<uint32_t>(all * (ordinal + 1) / of)};
}

std::map<std::string, CellBox> ReshapedImage::boxes_around(const RankRange& share) const {
  std::map<std::string, CellBox> around;
  for (uint32_t rank = share.first; rank < share.end; ++rank) {
    const ImageTable table = parts_->table(rank);
    for (const ImageVariable& saved : table.variables) {
      if (saved.global_shape.empty()) continue;
      CellBox& box = around[saved.name];
      box = box_around(box, global_box(saved));
    }
  }
  return around;
}

Result<std::vector<Status>> ReshapedImage::unwanted(const RankBoxes& wanted, const RankRange& share) const {
  std::map<std::string, std::vector<CellBox>> boxes_of;
  for (const auto& [name, of_ranks] : wanted) {
    std::vector<CellBox>& boxes = boxes_of[name];
    for (const RankBox& each : of_ranks) boxes.push_back(each.box);
  }
  std::vector<Status> found;
  std::set<std::string> told;
  std::map<std::string, BoxSearch> searches;
  for (uint32_t rank = share.first; rank < share.end; ++rank) {
    const ImageTable table = parts_->table(rank);
    for (const ImageVariable& saved : table.variables) {
      const auto boxes = boxes_of.find(saved.name);
      if (saved.global_shape.empty() || boxes == boxes_of.end() || told.contains(saved.name)) continue;
      if (ignored_.contains(saved.name)) continue;
      const auto is_other = [&](const CellBox& box) { return box.cells.size() != saved.shape.size(); };
      if (std::any_of(boxes->second.begin(), boxes->second.end(), is_other)) continue;  // who wants that is refused
      const BoxSearch& search = searches.try_emplace(saved.name, boxes->second, saved.shape.size()).first->second;
      VARVE_ASSIGN(const CellShares shares, share_found(global_box(saved), boxes->second, search));
      if (shares.missing.empty()) continue;
      told.insert(saved.name);
      found.push_back(of_variable(
          saved.name, fmt::format("its cells from ({}) on are in the checkpoint, but no rank protects them: they are "
                                  "left out",
                                  fmt::join(shares.missing.front().offset, ", "))));
    }
  }
  return found;
}

Result<std::unique_ptr<RankImage>> ReshapedImage::plan(const RankWish& wish, std::unique_ptr<CheckpointParts> parts,
                                                       size_t threads) {
  std::unique_ptr<ReshapedImage> image(new ReshapedImage(std::move(parts), threads));
  const Status planned = run_guarded([&] { return Planner(wish, *image).plan(); });
  image->parts_->serve();
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

  /// Where the wanted cells are in the rank's image, with what is near to them.
  std::vector<Extent> wanted() const {
    std::vector<Extent> extents;
    for (const Source& source : sources_) {
      const uint64_t element = element_bytes(source);
      const auto add_run = [&](const CellRun& run) {
        add(extents, {source.from_offset + run.from * element, run.cells * element});
        return Status();
      };
      if (source.owned) {
        for (const CellRun& run : source.owned->runs) add_run(run).ignore("it cannot fail");
      } else {
        for_each_cell_run(source.part, source.from, source.to, add_run).ignore("what is visited cannot fail");
      }
    }
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    std::vector<Extent> apart;
    for (const Extent& extent : extents) add(apart, extent);
    return apart;
  }

  /// The same, as cells.
  std::vector<PartBox> boxes() const {
    std::vector<PartBox> boxes;
    for (const Source& source : sources_) {
      PartBox& box = boxes.emplace_back(source.from_offset, source.part);
      for (size_t d = 0; d < box.cells.offset.size(); ++d) box.cells.offset[d] -= source.from.offset[d];
      if (!source.owned) continue;
      const CellRun &first = source.owned->runs.front(), &last = source.owned->runs.back();
      box.cells = {{first.from}, {last.from + last.cells - first.from}};
    }
    return boxes;
  }

  void put(uint64_t offset, ByteSpan bytes) override {
    // What they are taken from follow each other in the image, or are the same.
    auto source = std::partition_point(sources_.begin(), sources_.end(),
                                       [&](const Source& before) { return end_of(before) <= offset; });
    for (; source != sources_.end() && source->from_offset < offset + bytes.size(); ++source) {
      const uint64_t begin = std::max(offset, source->from_offset);
      const uint64_t end = std::min(offset + bytes.size(), end_of(*source));
      if (begin >= end) continue;
      put_cells(*source, element_bytes(*source), begin - source->from_offset,
                bytes.subspan(begin - offset, end - begin));
    }
  }

 private:
  /// After those that begin before it.
  static void add(std::vector<Extent>& extents, const Extent& extent) {
    const bool is_near = !extents.empty() && extents.back().offset <= extent.offset &&
                         extent.offset <= extents.back().offset + extents.back().bytes + kGapBytes;
    if (!is_near) return extents.push_back(extent);
    const uint64_t end = std::max(extents.back().offset + extents.back().bytes, extent.offset + extent.bytes);
    extents.back().bytes = end - extents.back().offset;
  }
  uint64_t element_bytes(const Source& source) const { return table_.variables[source.variable].type.bytes; }
  /// Of what the rank has of the variable, in its image.
  uint64_t end_of(const Source& source) const {
    return source.from_offset + source.from.cell_count() * element_bytes(source);
  }

  /// `bytes` of what the rank has of the variable, from byte `begin` of it on.
  void put_cells(const Source& source, uint64_t element, uint64_t begin, ByteSpan bytes) {
    const uint64_t end = begin + bytes.size();
    const uint64_t to = table_.variables[source.variable].offset;
    const auto put_run = [&](const CellRun& run) {
      const uint64_t run_begin = std::max(begin, run.from * element);
      const uint64_t run_end = std::min(end, (run.from + run.cells) * element);
      if (run_begin < run_end) {
        target_.put(to + run.to * element + (run_begin - run.from * element),
                    bytes.subspan(run_begin - begin, run_end - run_begin));
      }
      return Status();
    };
    if (source.owned) {
      const std::vector<CellRun>& runs = source.owned->runs;
      const auto after = [&](uint64_t at, const CellRun& run) { return at < run.from + run.cells; };
      for (auto run = std::upper_bound(runs.begin(), runs.end(), begin / element, after);
           run != runs.end() && run->from * element < end; ++run) {
        put_run(*run).ignore("what is visited cannot fail");
      }
      return;
    }
    const std::optional<CellBox> near =
        overlap(source.part, cells_around(source.from, begin / element, (end - 1) / element));
    if (near) for_each_cell_run(*near, source.from, source.to, put_run).ignore("what is visited cannot fail");
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
  std::deque<FromRank> from;
  std::vector<PartLoad> loads;
  const Status planned = run_guarded([&] {
    for (size_t begin = 0; begin < sources_.size();) {
      size_t end = begin;
      while (end < sources_.size() && sources_[end].rank == sources_[begin].rank) ++end;
      FromRank& rank = from.emplace_back(table_, std::span(sources_).subspan(begin, end - begin), target);
      loads.push_back({sources_[begin].rank, rank.wanted(), &rank, rank.boxes()});
      begin = end;
    }
  });
  // Others may count on this rank to read for them.
  if (!planned.ok()) loads.clear();
  const Status loaded = parts_->load(loads, threads_);
  parts_->note_faults();
  return planned.ok() ? loaded : planned;
}

}  // namespace varve
