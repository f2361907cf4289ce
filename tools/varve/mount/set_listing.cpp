#include "mount/set_listing.h"

#include <algorithm>
#include <unordered_map>

#include "core/step_text.h"
#include "format/set_record.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
constexpr std::string_view kTemporaryEnd = ".tmp";
}  // namespace

std::optional<StepName> parse_step_name(std::string_view name, bool among_times) {
  if (!check_job_name(name).ok()) return std::nullopt;
  StepName parsed;
  parsed.temporary = name.ends_with(kTemporaryEnd);
  const std::string_view base = parsed.temporary ? name.substr(0, name.size() - kTemporaryEnd.size()) : name;
  const std::optional<uint64_t> step = step_of_name(base, among_times);
  if (!step) return std::nullopt;
  parsed.step = *step;
  parsed.canonical = step_text(*step) == name;
  return parsed;
}

/// Puts the files of leaves into a listing.
class ListingMaker {
 public:
  ListingMaker() { listing_->entries_.emplace_back(); }

  Status add(const LeafLink& link, const Leaf& leaf) {
    const auto ordinal = static_cast<uint32_t>(listing_->leaves_.size());
    listing_->leaves_.push_back(link);
    for (uint32_t file = 0; file < leaf.files.size(); ++file) {
      if (listing_->entries_.size() >= UINT32_MAX / 2) return Status::resource_limit("the set has too many files");
      add(leaf.files[file], ordinal, file);
    }
    return {};
  }

  std::shared_ptr<SetListing> finish() && {
    std::vector<SetListing::Entry>& entries = listing_->entries_;
    for (SetListing::Entry& entry : entries) {
      std::sort(entry.children.begin(), entry.children.end(),
                [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; });
      entry.children.shrink_to_fit();
    }
    return std::move(listing_);
  }

 private:
  void add(const TreeFile& file, uint32_t leaf, uint32_t ordinal) {
    SetListing::Entry& entry = listing_->entries_[place(file.path)];
    entry.type = file.type;
    entry.mode = file.mode;
    entry.modified_s = file.modified_s;
    entry.modified_ns = file.modified_ns;
    entry.bytes = file.bytes;
    entry.link_target = file.link_target;
    entry.leaf = leaf;
    entry.file = ordinal;
  }

  /// Where the entry of that path is, made with the folders above it if it is new: not every set lists its folders.
  uint32_t place(const std::string& path) {
    if (path.empty()) return SetListing::kTop;
    if (auto found = places_.find(path); found != places_.end()) return found->second;
    const size_t slash = path.rfind('/');
    const uint32_t parent = slash == std::string::npos ? SetListing::kTop : place(path.substr(0, slash));
    const auto ordinal = static_cast<uint32_t>(listing_->entries_.size());
    SetListing::Entry& entry = listing_->entries_.emplace_back();
    entry.name = slash == std::string::npos ? path : path.substr(slash + 1);
    entry.parent = parent;
    listing_->entries_[parent].children.push_back(ordinal);
    places_.emplace(path, ordinal);
    return ordinal;
  }

  std::shared_ptr<SetListing> listing_ = std::make_shared<SetListing>();
  std::unordered_map<std::string, uint32_t> places_;
};

Result<std::shared_ptr<SetListing>> SetListing::read(const Store& store, const SetRecord& record) {
  ListingMaker maker;
  for (const GroupRecord& group : record.groups) {
    VARVE_ASSIGN(Root root, read_root(store, group.root, group.hint));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(const Leaf leaf, read_leaf(store, link));
      VARVE_TRY(maker.add(link, leaf));
    }
  }
  return std::move(maker).finish();
}

std::optional<uint32_t> SetListing::find(uint32_t folder, std::string_view name) const {
  const std::vector<uint32_t>& children = entries_[folder].children;
  const auto found =
      std::lower_bound(children.begin(), children.end(), name,
                       [this](uint32_t child, std::string_view wanted) { return entries_[child].name < wanted; });
  return found != children.end() && entries_[*found].name == name ? std::optional(*found) : std::nullopt;
}

std::optional<uint32_t> SetListing::find_path(std::string_view path) const {
  uint32_t at = kTop;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::optional<uint32_t> next = find(at, path.substr(0, slash));
    if (!next) return std::nullopt;
    at = *next;
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return at;
}

std::string SetListing::path(uint32_t ordinal) const {
  if (ordinal == kTop) return {};
  const std::string above = path(entries_[ordinal].parent);
  return above.empty() ? entries_[ordinal].name : above + "/" + entries_[ordinal].name;
}

uint64_t SetListing::memory_bytes() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_)
    sum += sizeof entry + entry.name.size() + entry.link_target.size() + entry.children.size() * sizeof(uint32_t);
  return sum;
}

}  // namespace varve
