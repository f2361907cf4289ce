#include "level/stored_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/quantity.h"
#include "core/thread_pool.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
constexpr std::string_view kRun = "run ", kRanks = "\nranks ", kPrefix = "origin-", kSuffix = ".varve";
constexpr size_t kRunDigits = 32;
}  // namespace

std::string SetOrigin::text() const { return fmt::format("{}{}{}{}\n", kRun, run.hex(), kRanks, rank_count); }

Result<SetOrigin> SetOrigin::parse(std::string_view text) {
  const size_t ranks = kRun.size() + kRunDigits;
  SetOrigin origin;
  if (text.starts_with(kRun) && text.size() > ranks && text.substr(ranks).starts_with(kRanks) && text.ends_with('\n')) {
    const std::string_view count = text.substr(ranks + kRanks.size());
    const Result<UniqueId> run = UniqueId::parse(text.substr(kRun.size(), kRunDigits));
    const Result<uint64_t> rank_count = parse_number(count.substr(0, count.size() - 1), UINT32_MAX);
    if (run.ok() && rank_count.ok()) origin = {*run, static_cast<uint32_t>(*rank_count)};
  }
  if (origin.text() != text) return Status::corrupt("what says of which run a set is makes no sense");
  return origin;
}

std::string SetOrigin::file_name(uint32_t first_rank) { return fmt::format("{}{:06}{}", kPrefix, first_rank, kSuffix); }

bool SetOrigin::is_file_name(std::string_view path) { return path.starts_with(kPrefix) && path.ends_with(kSuffix); }

/// What the image needs of a pack.
struct StoredImage::PackUse {
  struct Range {
    Extent in_pack;
    size_t stream = 0;
    uint64_t stream_offset = 0;
  };
  uint32_t pack = 0;
  std::vector<Range> ranges;
};

Status StoredImage::open(const SetRecord& record, uint32_t rank, uint32_t group) {
  const Status found = find(record, rank, group);
  if (found.code() == StatusCode::invalid_argument && origin_ != SetOrigin{}) {
    return Status::not_found(fmt::format("rank {} was on another node when the set was made", rank),
                             record.name.to_string());
  }
  VARVE_TRY(found);
  const Status table = read_table();
  if (!table.ok()) verify(1, 0).ignore("it only tells where the damage is");
  return table;
}

Result<std::map<uint32_t, std::unique_ptr<StoredImage>>> StoredImage::open_present(const Store& store, Clock& clock,
                                                                                   const SetRecord& record,
                                                                                   bool of_node) {
  StoredImage looking(store, clock);
  if (of_node) VARVE_TRY(looking.find_origin(record, 0));
  const uint64_t rank_count = of_node ? looking.origin_.rank_count : record.rank_count;
  std::map<uint32_t, std::unique_ptr<StoredImage>> found;
  for (const GroupRecord& group : record.groups) {
    VARVE_ASSIGN(const Root root, looking.read_root(group));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(Leaf leaf, looking.read_leaf(link));
      const std::vector<TreeFile> files = std::exchange(leaf.files, {});
      for (const TreeFile& file : files) {
        const std::optional<uint32_t> rank = rank_of_image(file.path);
        if (!rank || *rank >= rank_count || file.type != FileType::regular) continue;
        auto& image = found[*rank] = std::make_unique<StoredImage>(store, clock);
        image->leaf_ = leaf;
        image->leaf_.files.push_back(file);
        image->origin_ = looking.origin_;
        VARVE_TRY(image->read_table());
      }
    }
  }
  return found;
}

Result<std::vector<std::unique_ptr<StoredImage>>> StoredImage::open_all(const Store& store, Clock& clock,
                                                                        const SetRecord& record, bool of_node) {
  VARVE_ASSIGN(auto found, open_present(store, clock, record, of_node));
  uint64_t rank_count = record.rank_count;
  if (of_node) rank_count = found.empty() ? 0 : found.begin()->second->origin().rank_count;
  if (found.size() == rank_count && rank_count > 0) {
    std::vector<std::unique_ptr<StoredImage>> images;
    for (auto& [rank, image] : found) images.push_back(std::move(image));
    return images;
  }
  if (of_node) {
    return Status::invalid_argument(
        fmt::format("the set was made by {} ranks, and this node's store has {} of them", rank_count, found.size()),
        record.name.to_string(), "start as many ranks as before, or from a store that all nodes share");
  }
  return Status::invalid_argument(
      fmt::format("the set has {} of {} ranks: it was not made by a session", found.size(), rank_count),
      record.name.to_string(), {Remedy::take_another_job, record.name.to_string()});
}

/// A set has one run's parts only, so any group's origin will do.
Status StoredImage::find_origin(const SetRecord& record, uint32_t group) {
  for (size_t i = 0; i < record.groups.size(); ++i) {
    const GroupRecord& candidate = record.groups[(group + i) % record.groups.size()];
    VARVE_ASSIGN(const Root root, read_root(candidate));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(const std::optional<SetOrigin> origin, origin_in(link));
      if (!origin) continue;
      origin_ = *origin;
      return {};
    }
  }
  return Status::invalid_argument("the set does not say of which run it is: it was not made by a session",
                                  record.name.to_string(), {Remedy::take_another_job, record.name.to_string()});
}

Result<std::optional<SetOrigin>> StoredImage::origin_in(const LeafLink& link) {
  VARVE_ASSIGN(const Leaf leaf, read_leaf(link));
  const auto file = std::find_if(leaf.files.begin(), leaf.files.end(), [](const TreeFile& candidate) {
    return candidate.type == FileType::regular && SetOrigin::is_file_name(candidate.path);
  });
  if (file == leaf.files.end()) return std::optional<SetOrigin>();
  if (file->bytes > SetOrigin::kBytesMax || file->streams.size() != 1) {
    return Status::corrupt("what says of which run a set is makes no sense", file->path);
  }
  ByteVector text(file->bytes);
  StreamReader reader(store_);
  VARVE_TRY(reads_([&] { return reader.read(leaf, file->streams.front(), 0, text); }));
  VARVE_ASSIGN(const SetOrigin origin, SetOrigin::parse(as_text(text)));
  return std::optional(origin);
}

Status StoredImage::find(const SetRecord& record, uint32_t rank, uint32_t group) {
  const std::string path = image_file_name(rank);
  for (size_t i = 0; i < record.groups.size(); ++i) {
    const GroupRecord& candidate = record.groups[(group + i) % record.groups.size()];
    VARVE_ASSIGN(const Root root, read_root(candidate));
    for (const LeafLink& link : root.leaves) {
      VARVE_ASSIGN(leaf_, read_leaf(link));
      const auto found =
          std::find_if(leaf_.files.begin(), leaf_.files.end(), [&](const TreeFile& file) { return file.path == path; });
      if (found == leaf_.files.end()) continue;
      if (found->type != FileType::regular) return Status::corrupt("a rank's image is no file", path);
      TreeFile file = std::move(*found);
      leaf_.files.clear();
      leaf_.files.push_back(std::move(file));
      return {};
    }
  }
  // No damage that an older set would mend, and nothing that a run may replace.
  return Status::invalid_argument(fmt::format("the set has nothing of rank {}: it was not made by a session", rank),
                                  record.name.to_string(), {Remedy::take_another_job, record.name.to_string()});
}

Status StoredImage::read_table() {
  const TreeFile& file = leaf_.files.front();
  pieces_of_stream_.resize(file.streams.size());
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Extent& extent : stream_extents(file, stream)) {
      pieces_of_stream_[stream].push_back({extent.offset, extent.bytes, stream, at});
      pieces_.push_back(pieces_of_stream_[stream].back());
      at += extent.bytes;
    }
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  if (file.bytes < kImagePrefixBytes) return Status::corrupt("a rank's image is too short", file.path);
  ByteVector header(kImagePrefixBytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(const uint64_t header_bytes, image_header_bytes(header, file.bytes));
  header.resize(header_bytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(image_, decode_image_header(header, file.bytes));
  return {};
}

Status StoredImage::read(uint64_t offset, MutableByteSpan into) {
  const TreeFile& file = leaf_.files.front();
  if (offset > file.bytes || into.size() > file.bytes - offset) {
    return Status::corrupt("bytes past the end of an image were asked for", file.path);
  }
  if (kept_.size() > 0) {
    std::copy_n(kept_.data() + offset, into.size(), into.begin());
    return {};
  }
  auto after = [](uint64_t at, const Piece& piece) { return at < piece.offset; };
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset, after);
  while (!into.empty()) {
    // Streams cover the file, so there is a piece at every offset.
    const Piece& here = *std::prev(piece);
    const uint64_t skip = offset - here.offset;
    const size_t bytes = std::min<uint64_t>(into.size(), here.bytes - skip);
    VARVE_TRY(reads_(
        [&] { return streams_.read(leaf_, file.streams[here.stream], here.stream_offset + skip, into.first(bytes)); }));
    into = into.subspan(bytes);
    offset += bytes;
    ++piece;
  }
  return {};
}

std::vector<StoredImage::PackUse> StoredImage::pack_uses() const {
  const TreeFile& file = leaf_.files.front();
  std::map<uint32_t, size_t> place_of;
  std::vector<PackUse> uses;
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Reference& reference : file.streams[stream]) {
      if (reference.pack != Reference::kPattern) {
        const auto [place, added] = place_of.emplace(reference.pack, uses.size());
        if (added) uses.push_back({reference.pack, {}});
        uses[place->second].ranges.push_back({{reference.offset, reference.bytes}, stream, at});
      }
      at += reference.bytes;
    }
  }
  return uses;
}

void StoredImage::keep(size_t stream, uint64_t stream_offset, ByteSpan bytes) {
  const std::vector<Piece>& pieces = pieces_of_stream_[stream];
  auto after = [](uint64_t at, const Piece& piece) { return at < piece.stream_offset; };
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), stream_offset, after);
  while (!bytes.empty()) {
    const Piece& here = *std::prev(piece);
    const uint64_t skip = stream_offset - here.stream_offset;
    const size_t part = std::min<uint64_t>(bytes.size(), here.bytes - skip);
    std::copy_n(bytes.begin(), part, kept_.data() + here.offset + skip);
    bytes = bytes.subspan(part);
    stream_offset += part;
    ++piece;
  }
}

Status StoredImage::check_pack(const PackUse& use) {
  std::vector<Extent> extents;
  for (const PackUse::Range& range : use.ranges) extents.push_back(range.in_pack);
  VARVE_ASSIGN(Pack pack, reads_([&] { return varve::read_pack(store_, leaf_.packs[use.pack], extents); }));
  for (const PackUse::Range& range : use.ranges) {
    VARVE_ASSIGN(const ByteSpan bytes, pack.range(range.in_pack.offset, range.in_pack.bytes));
    if (kept_.size() > 0) keep(range.stream, range.stream_offset, bytes);
  }
  return {};
}

Result<Root> StoredImage::read_root(const GroupRecord& group) {
  Result<Root> root = reads_([&] { return varve::read_root(store_, group.root, group.hint); });
  if (!root.ok()) note_faults(faults_of_node(store_, group.root, group.hint));
  return root;
}

Result<Leaf> StoredImage::read_leaf(const LeafLink& link) {
  Result<Leaf> leaf = reads_([&] { return varve::read_leaf(store_, link); });
  if (!leaf.ok()) note_faults(faults_of_node(store_, link.score, link.hint));
  return leaf;
}

void StoredImage::note_faults(const CopyFaults& faults) {
  const MutexLock lock(mutex_);
  faults_.damaged.insert(faults.damaged.begin(), faults.damaged.end());
  faults_.unreadable.insert(faults.unreadable.begin(), faults.unreadable.end());
}

void StoredImage::keep_patterns() {
  const TreeFile& file = leaf_.files.front();
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    uint64_t at = 0;
    for (const Reference& reference : file.streams[stream]) {
      if (reference.pack == Reference::kPattern) {
        ByteVector pattern(reference.bytes);
        fill_pattern(reference.offset, 0, pattern);
        keep(stream, at, pattern);
      }
      at += reference.bytes;
    }
  }
}

Status StoredImage::verify(size_t thread_count, uint64_t kept_bytes_max) {
  const TreeFile& file = leaf_.files.front();
  if (file.bytes <= kept_bytes_max) kept_ = Buffer(file.bytes);
  const std::vector<PackUse> uses = pack_uses();
  const Status finished = parallel_for(uses.size(), thread_count, [&](size_t i) -> Status {
    const Status checked = check_pack(uses[i]);
    if (checked.ok()) return {};
    note_faults(faults_of_pack(store_, leaf_.packs[uses[i].pack]));
    const MutexLock lock(mutex_);
    // An image of which some cannot be read may be whole tomorrow, but not one of which some is damaged.
    if (first_failure_.ok() || checked.code() == StatusCode::corrupt) first_failure_ = checked;
    return {};
  });
  const Status outcome = finished.ok() ? first_failure_ : finished;
  if (!outcome.ok()) {
    kept_ = Buffer();
  } else if (kept_.size() > 0) {
    keep_patterns();
  }
  return outcome;
}

}  // namespace varve
