#include "chunk/chunker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <string_view>

#include "chunk/chunker_kinds.h"

namespace varve {

namespace {

constexpr const char* kChunkerHint =
    "write fixed:SIZE, gear:AVERAGE or rabin:AVERAGE, or give gear and rabin MIN,AVERAGE,MAX";

std::string_view kind_name(ChunkerKind kind) {
  switch (kind) {
    case ChunkerKind::fixed: return "fixed";
    case ChunkerKind::gear: return "gear";
    case ChunkerKind::rabin: return "rabin";
  }
  return "unknown";
}

ChunkBounds with_defaults(const ChunkerOptions& options) {
  const uint64_t average = options.bytes_average;
  const auto min = static_cast<uint32_t>(std::max<uint64_t>(average / 4, kChunkBytesMin));
  const auto max = static_cast<uint32_t>(std::min<uint64_t>(average * 8, kChunkBytesMax));
  return {.min = options.bytes_min != 0 ? options.bytes_min : min,
          .average = options.bytes_average,
          .max = options.bytes_max != 0 ? options.bytes_max : max};
}

Status check(const ChunkerOptions& options) {
  const std::string name = chunker_name(options);
  if (options.bytes_average < kChunkBytesMin || options.bytes_average > kChunkBytesMax) {
    return Status::invalid_argument(
        fmt::format("a chunk size must lie between {} and {} bytes", kChunkBytesMin, kChunkBytesMax), name);
  }
  if (options.kind == ChunkerKind::fixed) {
    if (options.bytes_min == 0 && options.bytes_max == 0) return {};
    return Status::invalid_argument("fixed chunks have one size, no smallest and largest", name, kChunkerHint);
  }
  if (!std::has_single_bit(options.bytes_average)) {
    return Status::invalid_argument("the average size of content-defined chunks must be a power of two", name);
  }
  const ChunkBounds bounds = with_defaults(options);
  if (bounds.min < kChunkBytesMin || bounds.max > kChunkBytesMax) {
    return Status::invalid_argument(
        fmt::format("chunk sizes must lie between {} and {} bytes", kChunkBytesMin, kChunkBytesMax), name);
  }
  if (bounds.min > bounds.average || bounds.average > bounds.max) {
    return Status::invalid_argument("the smallest, average and largest chunk size must come in this order", name);
  }
  return {};
}

bool parse_number(std::string_view text, uint32_t& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number != 0;
}

/// One to three numbers between commas; returns how many, 0 if it is anything else.
size_t parse_numbers(std::string_view text, std::array<uint32_t, 3>& numbers) {
  for (size_t count = 0; count < numbers.size(); ++count) {
    const size_t comma = text.find(',');
    if (!parse_number(text.substr(0, comma), numbers[count])) return 0;
    if (comma == std::string_view::npos) return count + 1;
    text.remove_prefix(comma + 1);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Chunker>> make_chunker(const ChunkerOptions& options) {
  VARVE_TRY(check(options));
  switch (options.kind) {
    case ChunkerKind::fixed: return make_fixed_chunker(options.bytes_average);
    case ChunkerKind::gear: return make_gear_chunker(with_defaults(options));
    case ChunkerKind::rabin: return make_rabin_chunker(with_defaults(options));
  }
  return Status::invalid_argument("unknown kind of chunker", std::to_string(static_cast<unsigned>(options.kind)));
}

Result<ChunkerOptions> parse_chunker(std::string_view text) {
  const Status bad = Status::invalid_argument("not a chunker", std::string(text), kChunkerHint);
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  ChunkerOptions options;
  if (kind == "fixed") {
    options.kind = ChunkerKind::fixed;
  } else if (kind == "gear") {
    options.kind = ChunkerKind::gear;
  } else if (kind == "rabin") {
    options.kind = ChunkerKind::rabin;
  } else {
    return bad;
  }
  if (colon != std::string_view::npos) {
    std::array<uint32_t, 3> numbers{};
    const size_t count = parse_numbers(text.substr(colon + 1), numbers);
    if (count == 1) {
      options.bytes_average = numbers[0];
    } else if (count == 3) {
      options.bytes_min = numbers[0];
      options.bytes_average = numbers[1];
      options.bytes_max = numbers[2];
    } else {
      return bad;
    }
  }
  VARVE_TRY(check(options));
  return options;
}

std::string chunker_name(const ChunkerOptions& options) {
  if (options.bytes_min == 0 && options.bytes_max == 0) {
    return fmt::format("{}:{}", kind_name(options.kind), options.bytes_average);
  }
  const ChunkBounds bounds = with_defaults(options);
  return fmt::format("{}:{},{},{}", kind_name(options.kind), bounds.min, bounds.average, bounds.max);
}

}  // namespace varve
