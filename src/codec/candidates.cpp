#include "codec/candidates.h"

#include <algorithm>
#include <array>

#include "codec/number_shape.h"

namespace varve {
namespace {

CodecChain::Stage stage(CodecNumber number, int level = 0) {
  const Result<const Codec*> codec = find_codec(number);
  return {codec.ok() ? *codec : nullptr, level};
}

CodecChain chain(std::vector<CodecChain::Stage> stages) {
  std::erase_if(stages, [](const CodecChain::Stage& each) { return each.codec == nullptr; });
  return CodecChain(std::move(stages));
}

CodecChain filtered(std::vector<CodecChain::Stage> filters, int zstd_level = 1) {
  filters.push_back(stage(CodecNumber::zstd, zstd_level));
  return chain(std::move(filters));
}

/// Fields and particles of 2 to 8 bytes. Which wins depends on smoothness: measured in docs/codecs-results.md.
std::vector<CodecChain> number_chains(const ElementType& type, Effort effort) {
  const auto lorenzo = [](int level) { return stage(CodecNumber::lorenzo, level); };
  const CodecChain::Stage shuffle = stage(CodecNumber::shuffle);
  const CodecChain::Stage bitshuffle = stage(CodecNumber::bitshuffle);
  std::vector<CodecChain> chains = {filtered({lorenzo(0), shuffle}), filtered({shuffle}),
                                    filtered({lorenzo(0), bitshuffle}), filtered({})};
  const bool floating = type.kind == ElementKind::floating;
  if (effort == Effort::best) {
    chains.push_back(filtered({lorenzo(1), shuffle}));
    chains.push_back(filtered({lorenzo(4), shuffle}));
    chains.push_back(filtered({bitshuffle}));
    if (floating && type.bytes >= 4) chains.push_back(chain({stage(CodecNumber::fpzip)}));
    if (floating && type.bytes == 8) chains.push_back(filtered({stage(CodecNumber::fpc)}));
  }
  if (floating) chains.push_back(filtered({stage(CodecNumber::delta), shuffle}));
  return chains;
}

std::vector<CodecChain> opaque_chains(ByteSpan raw, const ElementType& type, Effort effort) {
  const auto filter = [](CodecNumber number, size_t bytes) { return stage(number, static_cast<int>(bytes)); };
  std::vector<CodecChain> chains = {filtered({}), filtered({}, 3)};
  if (type.kind == ElementKind::text) return chains;
  for (size_t bytes : {size_t{4}, size_t{8}}) chains.push_back(filtered({filter(CodecNumber::shuffle, bytes)}));
  chains.push_back(filtered({filter(CodecNumber::delta, 8)}, 3));
  const size_t record_bytes = type.bytes > 1 && type.bytes <= 512 ? type.bytes : find_record_bytes(raw);
  if (record_bytes > 1 && record_bytes != 4 && record_bytes != 8) {
    const CodecChain::Stage shuffle = filter(CodecNumber::shuffle, record_bytes);
    chains.push_back(filtered({shuffle}));
    chains.push_back(filtered({filter(CodecNumber::delta, record_bytes), shuffle}));
  }
  if (effort == Effort::best) {
    chains.push_back(filtered({filter(CodecNumber::delta, 8), filter(CodecNumber::shuffle, 8)}));
    chains.push_back(filtered({filter(CodecNumber::delta, 4), filter(CodecNumber::shuffle, 4)}));
  }
  return chains;
}

/// Appends the part of `raw` that begins at `begin` to `sample`, with the runs that it cuts.
void add_piece(PackSample& sample, ByteSpan raw, const PackShape& shape, uint64_t begin, uint64_t elements) {
  const uint64_t bytes = shape.type.bytes;
  uint64_t run_begin = 0;
  const uint64_t end = begin + elements;
  for (const Run& run : shape.runs) {
    const uint64_t run_end = run_begin + run.elements;
    const uint64_t from = std::max(begin, run_begin);
    const uint64_t to = std::min(end, run_end);
    if (from < to) sample.shape.runs.push_back({to - from, run.dims, run.whole && to - from == run.elements});
    if (run_end >= end) break;
    run_begin = run_end;
  }
  const ByteSpan piece = raw.subspan(begin * bytes, elements * bytes);
  sample.bytes.insert(sample.bytes.end(), piece.begin(), piece.end());
}

}  // namespace

std::vector<CodecChain> candidate_chains(ByteSpan raw, const PackShape& shape, Effort effort) {
  if (is_machine_number(shape.type) && shape.type.bytes > 1) return number_chains(shape.type, effort);
  if (shape.type.numeric() && shape.type.bytes == 1) return {filtered({}), filtered({stage(CodecNumber::lorenzo)})};
  return opaque_chains(raw, shape.type, effort);
}

const CodecChain& default_chain(const ElementType& type) {
  static const CodecChain numbers = filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::shuffle)});
  static const CodecChain bytes = filtered({});
  return is_machine_number(type) && type.bytes > 1 ? numbers : bytes;
}

CodecChain with_coder(const CodecChain& chain_before, CodecNumber coder, int level) {
  std::vector<CodecChain::Stage> stages = chain_before.stages();
  if (!stages.empty()) stages.pop_back();
  stages.push_back(stage(coder, level));
  return chain(std::move(stages));
}

size_t find_record_bytes(ByteSpan raw) {
  constexpr size_t record_bytes_max = 512;
  constexpr size_t positions_max = 4096;
  constexpr double better_by = 1.02;  // a multiple of the period agrees as often, and is no better
  if (raw.size() < 8 * record_bytes_max) return 0;
  const size_t step = std::max<size_t>((raw.size() - record_bytes_max) / positions_max, 1) | 1;
  std::vector<size_t> positions;  // of bytes that are not zero: zeros agree with anything
  for (size_t at = record_bytes_max; at < raw.size(); at += step) {
    if (raw[at] != std::byte{0}) positions.push_back(at);
  }
  if (positions.size() < positions_max / 16) return 0;
  // matches[i] is of the period record_bytes_max - 4 * i. All periods of one position are looked at together: their
  // bytes are neighbours, and the first of every four.
  std::array<uint32_t, record_bytes_max / 4> matches{};
  for (size_t at : positions) {
    const auto value = static_cast<uint32_t>(raw[at]);
    const std::byte* before = raw.data() + at - record_bytes_max;
    for (size_t i = 0; i < matches.size(); ++i) matches[i] += (load_le<uint32_t>(before + 4 * i) & 0xff) == value;
  }
  size_t best_bytes = 0;
  double best_matches = static_cast<double>(positions.size()) / 64;
  for (size_t bytes = 4; bytes <= record_bytes_max; bytes += 4) {
    const double found = matches[(record_bytes_max - bytes) / 4];
    if (found > best_matches * better_by) {
      best_matches = found;
      best_bytes = bytes;
    }
  }
  return best_bytes;
}

PackSample sample_of(ByteSpan raw, const PackShape& shape, size_t sample_bytes) {
  constexpr uint64_t piece_count = 3;
  PackSample sample{.bytes = {}, .shape = {.type = shape.type, .runs = {}}};
  const uint64_t elements = raw.size() / shape.type.bytes;
  const uint64_t piece_elements = sample_bytes / piece_count / shape.type.bytes;
  if (piece_elements == 0 || piece_elements * piece_count >= elements) {
    return {.bytes = ByteVector(raw.begin(), raw.end()), .shape = shape};
  }
  sample.bytes.reserve(sample_bytes);
  const uint64_t gap = (elements - piece_count * piece_elements) / (piece_count + 1);
  for (uint64_t piece = 0; piece < piece_count; ++piece) {
    add_piece(sample, raw, shape, gap + piece * (piece_elements + gap), piece_elements);
  }
  return sample;
}

}  // namespace varve
