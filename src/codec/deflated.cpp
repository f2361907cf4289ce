#include "codec/deflated.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "codec/guess.h"
#include "codec/inflater.h"
#include "codec/kernels.h"
#include "codec/opened.h"

namespace varve {

namespace {

/// Shorter streams are left alone.
constexpr size_t kOpenedBytesMin = 256;
/// A stream that zlib cannot make again is found out on so much of it.
constexpr size_t kTriedBytes = 64_KiB;
/// Beyond the blocks that a made stream has right, so much of the content has a say in them.
constexpr size_t kLookedAhead = 1024;
/// Contents that are taken for planes must be predicted so much better once they are none.
constexpr double kPlanesAdvantage = 0.9, kPlanesCostMax = 0.92;
/// Every other plane of longer elements looks as good as both together: shorter ones must be better.
constexpr double kSmallerElements = 0.95;
constexpr size_t kPlanesSampleBytes = 64_KiB, kPlanesPlaces = 8;

/// Where a stream may begin, and what its program said of its level.
struct Beginning {
  size_t header = 0;  ///< where it was found
  size_t body = 0;
  uint8_t level = 6;  ///< the likeliest
  bool bare = false;  ///< without a header: one may begin here all the same
};

/// Goes from one to the next.
class BeginningFinder {
 public:
  explicit BeginningFinder(ByteSpan raw) : raw_(raw) {}

  /// A layout takes a zip's members for variables: their streams begin without a header, or right behind the one
  /// before.
  void try_bare(size_t at) { bare_ = at; }

  std::optional<Beginning> next(size_t from) {
    if (const std::optional<size_t> at = std::exchange(bare_, std::nullopt); at && *at >= from && *at < raw_.size())
      return Beginning{.header = *at, .body = *at, .bare = true};
    for (;;) {
      if (zlib_ < from || !started_) zlib_ = find_zlib(from);
      if (gzip_ < from || !started_) gzip_ = find(from, "\x1f\x8b\x08");
      if (zip_ < from || !started_) zip_ = find(from, "PK\3\4");
      started_ = true;
      const size_t at = std::min({zlib_, gzip_, zip_});
      if (at == raw_.size()) return std::nullopt;
      const std::optional<Beginning> found = at == zlib_ ? zlib_at(at) : at == gzip_ ? gzip_at(at) : zip_at(at);
      if (found && found->body < raw_.size()) return found;
      from = at + 1;
    }
  }

 private:
  uint32_t byte(size_t at) const { return static_cast<uint32_t>(raw_[at]); }

  size_t find(size_t from, std::string_view magic) const {
    const size_t at = as_text(raw_).find(magic, from);
    return at == std::string_view::npos ? raw_.size() : at;
  }
  /// RFC 1950, with the window of 32 KiB and no dictionary: the four values of the second byte are one for each class
  /// of levels.
  size_t find_zlib(size_t from) const {
    while (from + 1 < raw_.size()) {
      const void* const found = std::memchr(raw_.data() + from, 0x78, raw_.size() - 1 - from);
      if (found == nullptr) break;
      from = static_cast<size_t>(static_cast<const std::byte*>(found) - raw_.data());
      const uint32_t flags = byte(from + 1);
      if (flags == 0x9c || flags == 0x5e || flags == 0xda || flags == 0x01) return from;
      ++from;
    }
    return raw_.size();
  }
  std::optional<Beginning> zlib_at(size_t at) const {
    const uint32_t flags = byte(at + 1);
    const uint8_t level = flags == 0x01 ? 1 : flags == 0x5e ? 4 : flags == 0xda ? 9 : 6;
    return Beginning{at, at + 2, level};
  }
  /// RFC 1952.
  std::optional<Beginning> gzip_at(size_t at) const {
    if (raw_.size() - at < 18) return std::nullopt;
    const uint32_t flags = byte(at + 3), extra = byte(at + 8);
    if (flags > 31) return std::nullopt;
    size_t body = at + 10;
    if ((flags & 4) != 0) {
      if (raw_.size() - body < 2) return std::nullopt;
      body += 2 + load_le<uint16_t>(raw_.data() + body);
    }
    for (const uint32_t name : {flags & 8, flags & 16}) {
      if (name == 0) continue;
      if (body >= raw_.size()) return std::nullopt;
      body = find(body, std::string_view("\0", 1)) + 1;
    }
    if ((flags & 2) != 0) body += 2;
    const uint8_t level = extra == 2 ? 9 : extra == 4 ? 1 : 6;
    return Beginning{at, body, level};
  }
  /// A local header of a zip, with method 8.
  std::optional<Beginning> zip_at(size_t at) const {
    if (raw_.size() - at < 30 || load_le<uint16_t>(raw_.data() + at + 8) != 8) return std::nullopt;
    const size_t names = size_t{load_le<uint16_t>(raw_.data() + at + 26)} + load_le<uint16_t>(raw_.data() + at + 28);
    const uint32_t flags = byte(at + 6) >> 1 & 3;
    const uint8_t level = flags == 1 ? 9 : flags == 3 ? 1 : 6;
    return Beginning{at, at + 30 + names, level};
  }

  const ByteSpan raw_;
  bool started_ = false;
  std::optional<size_t> bare_ = 0;
  size_t zlib_ = 0, gzip_ = 0, zip_ = 0;  ///< the next of each
};

/// Where to look on if there is no stream.
size_t after_header(const Beginning& beginning) { return beginning.header + (beginning.bare ? 0 : 1); }

Deflater& thread_deflater() {
  thread_local Deflater deflater;
  return deflater;
}

/// What is likely of the settings, the likeliest first.
std::vector<DeflateSettings> likely_settings(const Beginning& beginning, const Inflated& found,
                                             const std::optional<DeflateSettings>& last) {
  std::vector<uint8_t> memory_levels;
  if (!found.one_block) {
    for (uint8_t memory_level = 9; memory_level >= 1; --memory_level) {
      const uint32_t symbols = deflate_block_symbols(memory_level);
      // What is stored as it is has hardly any matches: about as many symbols as bytes.
      const bool fits = found.first_block_symbols > 0
                            ? symbols == found.first_block_symbols
                            : symbols <= found.first_block_bytes && found.first_block_bytes <= 2 * size_t{symbols};
      if (fits) memory_levels.push_back(memory_level);
    }
  } else {
    if (last) memory_levels.push_back(last->memory_level);
    for (const uint8_t memory_level : {uint8_t{8}, uint8_t{9}}) {
      if (!last || last->memory_level != memory_level) memory_levels.push_back(memory_level);
    }
    std::erase_if(memory_levels,
                  [&](uint8_t level) { return deflate_block_symbols(level) < found.first_block_symbols; });
  }
  std::vector<uint8_t> levels;
  if (last) levels.push_back(last->level);
  for (const uint8_t level : {beginning.level, uint8_t{6}, uint8_t{9}, uint8_t{1}, uint8_t{4}, uint8_t{5}, uint8_t{7},
                              uint8_t{3}, uint8_t{2}, uint8_t{8}}) {
    if (std::find(levels.begin(), levels.end(), level) == levels.end()) levels.push_back(level);
  }
  std::vector<DeflateSettings> settings;
  for (const uint8_t memory_level : memory_levels) {
    for (const uint8_t level : levels) settings.push_back({level, memory_level});
  }
  return settings;
}

/// Undoes HDF5's shuffle of some elements, of several places: each plane counts as much as another then, also where
/// elements are taken for longer or shorter ones than they are.
ByteVector unshuffled_sample(ByteSpan content, size_t element_bytes) {
  const size_t elements = content.size() / element_bytes;
  const size_t sampled = std::min(elements, kPlanesSampleBytes / element_bytes) / kPlanesPlaces;
  const size_t gap = (elements - sampled) / (kPlanesPlaces - 1);
  ByteVector sample(kPlanesPlaces * sampled * element_bytes);
  for (size_t plane = 0; plane < element_bytes; ++plane) {
    std::byte* to = sample.data() + plane;
    for (size_t place = 0; place < kPlanesPlaces; ++place) {
      const std::byte* const from = content.data() + plane * elements + place * gap;
      for (size_t i = 0; i < sampled; ++i, to += element_bytes) *to = from[i];
    }
  }
  return sample;
}

double least_cost(ByteSpan raw, std::initializer_list<uint32_t> sizes) {
  double least = 1;
  for (const uint32_t bytes : sizes) {
    for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
      for (const ElementKind kind : {ElementKind::floating, ElementKind::signed_integer}) {
        if (kind == ElementKind::floating && bytes == 2) continue;
        least = std::min(least, cost_as(raw, {.type = {kind, order, bytes}, .dims = {}}));
      }
    }
  }
  return least;
}

/// 1: its content is not in planes.
uint32_t planes_of(ByteSpan content) {
  if (content.size() < 4_KiB) return 1;
  const size_t sampled = std::min(content.size(), kPlanesSampleBytes);
  const double straight = least_cost(content.subspan((content.size() - sampled) / 2 / 8 * 8, sampled), {2, 4, 8});
  double least = std::min(kPlanesCostMax, kPlanesAdvantage * straight);
  uint32_t best = 1;
  for (const uint32_t bytes : {8U, 4U, 2U}) {
    const double cost = least_cost(unshuffled_sample(content, bytes), {bytes});
    if (cost >= (best > 1 ? kSmallerElements * least : least)) continue;
    least = cost;
    best = bytes;
  }
  return best;
}

class StreamInflater {
 public:
  explicit StreamInflater(ByteSpan raw) : raw_(raw), room_(opened_bytes_max(raw.size()) - raw.size()), futile_(raw) {}

  Inflation run() {
    BeginningFinder finder(raw_);
    size_t from = 0;
    while (!futile_.enough()) {
      const std::optional<Beginning> beginning = finder.next(from);
      if (!beginning) break;
      const size_t end = take(*beginning);
      if (end > 0) finder.try_bare(end);
      from = std::max(after_header(*beginning), end);
    }
    if (inflation_.table.streams.empty()) return {};
    rest_.insert(rest_.end(), raw_.begin() + static_cast<ptrdiff_t>(end_), raw_.end());
    inflation_.bytes.insert(inflation_.bytes.end(), rest_.begin(), rest_.end());
    return std::move(inflation_);
  }

 private:
  /// Returns where its stream ends; 0: it is none.
  size_t take(const Beginning& beginning) {
    const ByteSpan body = raw_.subspan(beginning.body);
    content_.clear();
    Inflated found = inflate(body, room_, content_);
    if (found.end == Inflated::End::damaged) {
      futile_.wasted(content_.size());
      return 0;
    }
    const bool whole = found.end == Inflated::End::whole;
    const ByteSpan stream = whole ? body.first(found.in_bytes) : body;
    if (stream.size() < kOpenedBytesMin || found.blocks == 0) {
      futile_.wasted(content_.size());
      return 0;
    }
    const std::optional<DeflatedStream> made = find_settings(beginning, found, stream);
    if (!made) {
      futile_.failed(content_.size());
      return whole ? beginning.body + stream.size() : 0;
    }
    futile_.succeeded();
    last_ = made->settings;
    add(*made, beginning.body);
    return beginning.body + (whole ? stream.size() : made->made_bytes);
  }

  std::optional<DeflatedStream> find_settings(const Beginning& beginning, const Inflated& found, ByteSpan stream) {
    Deflater& deflater = thread_deflater();
    const bool whole = found.end == Inflated::End::whole;
    Deflater::Agreement best;
    DeflatedStream made;
    for (const DeflateSettings& settings : likely_settings(beginning, found, last_)) {
      const Deflater::Agreement agreement = deflater.compare(content_, settings, stream);
      if (agreement.bytes > best.bytes) {
        best = agreement;
        made.settings = settings;
      }
      if (whole && agreement.whole && agreement.bytes == stream.size()) {
        made.made_bytes = stream.size();
        made.content_bytes = content_.size();
        return made;
      }
      // What is cut agrees up to the block that is cut, which has at most so many bytes.
      const size_t block_bytes_max = 4 * size_t{deflate_block_symbols(settings.memory_level)};
      if (!whole && agreement.content_bytes > 0 && agreement.bytes + block_bytes_max >= stream.size()) break;
    }
    if (best.content_bytes == 0 || best.bytes < std::min(kTriedBytes, stream.size() / 2)) return std::nullopt;
    // What of the content only says how the rest goes on is not needed.
    made.content_bytes = std::min(content_.size(), best.content_bytes + kLookedAhead);
    content_.resize(made.content_bytes);
    made.made_bytes = deflater.compare(content_, made.settings, stream.first(best.bytes)).bytes;
    return made.made_bytes < kOpenedBytesMin ? std::nullopt : std::optional(made);
  }

  void add(DeflatedStream stream, size_t body) {
    stream.element_bytes = planes_of(content_);
    stream.gap_bytes = body - end_;
    rest_.insert(rest_.end(), raw_.begin() + static_cast<ptrdiff_t>(end_), raw_.begin() + static_cast<ptrdiff_t>(body));
    end_ = body + stream.made_bytes;
    room_ -= stream.content_bytes;
    ByteVector& bytes = inflation_.bytes;
    if (stream.element_bytes > 1) {
      const size_t at = bytes.size();
      bytes.resize(at + content_.size());
      kernels::unshuffle(stream.element_bytes, content_, MutableByteSpan(bytes).subspan(at));
    } else {
      bytes.insert(bytes.end(), content_.begin(), content_.end());
    }
    inflation_.table.streams.push_back(stream);
  }

  const ByteSpan raw_;
  size_t room_;     ///< for contents that are still to come
  size_t end_ = 0;  ///< of the last stream
  FutileOpenings futile_;
  std::optional<DeflateSettings> last_;
  ByteVector content_, rest_;
  Inflation inflation_;
};

}  // namespace

uint64_t DeflatedTable::content_bytes() const {
  uint64_t bytes = 0;
  for (const DeflatedStream& stream : streams) bytes += stream.content_bytes;
  return bytes;
}
uint64_t DeflatedTable::made_bytes() const {
  uint64_t bytes = 0;
  for (const DeflatedStream& stream : streams) bytes += stream.made_bytes;
  return bytes;
}

// FORMAT.md, "inflate".
void write_deflated_table(ByteWriter& out, const DeflatedTable& table) {
  out.varint(table.streams.size());
  const DeflatedStream* last = nullptr;
  for (const DeflatedStream& stream : table.streams) {
    const bool like_last = last != nullptr && last->content_bytes == stream.content_bytes &&
                           last->settings == stream.settings && last->element_bytes == stream.element_bytes;
    out.varint(stream.gap_bytes);
    out.varint(2 * stream.made_bytes + (like_last ? 1 : 0));
    last = &stream;
    if (like_last) continue;
    out.varint(stream.content_bytes);
    out.u8(static_cast<uint8_t>(16 * stream.settings.level + stream.settings.memory_level));
    out.u8(static_cast<uint8_t>(stream.element_bytes));
  }
}

Result<DeflatedTable> read_deflated_table(ByteReader& in, uint64_t bytes_max) {
  DeflatedTable table;
  VARVE_ASSIGN(const uint64_t count, in.count(/*bytes_each_min=*/2));
  uint64_t bytes = 0, content_bytes = 0;
  DeflatedStream stream;
  stream.element_bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(stream.gap_bytes, in.varint());
    VARVE_ASSIGN(const uint64_t made, in.varint());
    stream.made_bytes = made / 2;
    if (made % 2 == 0) {
      VARVE_ASSIGN(stream.content_bytes, in.varint());
      VARVE_ASSIGN(const uint8_t settings, in.u8());
      VARVE_ASSIGN(const uint8_t element_bytes, in.u8());
      stream.settings = {static_cast<uint8_t>(settings / 16), static_cast<uint8_t>(settings % 16)};
      stream.element_bytes = element_bytes;
    }
    if (!stream.settings.valid() || stream.element_bytes == 0) return Status::corrupt("bad parameters");
    // Each for itself first: their sums cannot overflow then.
    if (std::max({stream.gap_bytes, stream.made_bytes, stream.content_bytes}) > bytes_max)
      return Status::corrupt("a deflated stream is too long");
    if (stream.made_bytes < kDeflatedBytesMin) return Status::corrupt("a deflated stream is too short");
    bytes += stream.gap_bytes + stream.made_bytes;
    content_bytes += stream.content_bytes;
    if (bytes > bytes_max || content_bytes > bytes_max) return Status::corrupt("deflated streams are too long");
    table.streams.push_back(stream);
  }
  return table;
}

Inflation inflate_streams(ByteSpan raw) { return StreamInflater(raw).run(); }

Opened open_deflated(ByteSpan raw) {
  Inflation inflation = inflate_streams(raw);
  Opened opened{.params = {}, .bytes = {}, .sections = {}, .made_bytes = inflation.table.made_bytes()};
  ByteWriter params(opened.params);
  write_deflated_table(params, inflation.table);
  if (opened.made_bytes == 0) return opened;
  OpenedSections sections;
  for (const DeflatedStream& stream : inflation.table.streams) sections.add(stream.content_bytes, stream.element_bytes);
  opened.sections = sections.end(inflation.bytes.size() - inflation.table.content_bytes());
  opened.bytes = std::move(inflation.bytes);
  return opened;
}

bool ends_in_deflated(ByteSpan raw) {
  if (!may_be_compressed(raw)) return false;
  BeginningFinder finder(raw);
  ByteVector content;
  bool after_whole = false;
  FutileOpenings futile(raw);
  for (size_t from = 0; !futile.enough();) {
    const std::optional<Beginning> beginning = finder.next(from);
    if (!beginning) return false;
    content.clear();
    const ByteSpan body = raw.subspan(beginning->body);
    const Inflated found = inflate(body, opened_bytes_max(raw.size()), content);
    // Nonsense may look like the front of a first block.
    if (found.end == Inflated::End::cut && (found.blocks > 0 || after_whole)) return true;
    const bool whole = found.end == Inflated::End::whole;
    // Also what is whole: very little may be very much.
    futile.wasted(content.size());
    after_whole = after_whole || (whole && found.in_bytes >= kOpenedBytesMin);
    from = whole ? beginning->body + found.in_bytes : after_header(*beginning);
    if (whole) finder.try_bare(from);
  }
  return false;
}

}  // namespace varve
