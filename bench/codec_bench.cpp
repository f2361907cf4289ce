// Speed of every codec, and of the chains that the chooser uses, on 1 MiB packs of smooth fields with noise; and of
// efforts on many packs of fields of one to three dimensions.
// bytes_per_second is of raw bytes.
#include <benchmark/benchmark.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "codec/chooser.h"

namespace varve {
namespace {

struct Pack {
  PackShape shape;
  ByteVector raw;
};

/// 2-D fields of 64 × 64: three waves, and noise in the last digits.
Pack field_pack(const ElementType& type) {
  const uint64_t elements = 1_MiB / type.bytes;
  Pack pack{.shape = {type, std::vector<Run>(elements / 4096, Run{4096, {64, 64}, true})}, .raw = ByteVector(1_MiB)};
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 1e-5);
  for (uint64_t i = 0; i < elements; ++i) {
    const double x = static_cast<double>(i % 64) / 64, y = static_cast<double>(i / 64) / 64;
    const double value = 2 + std::sin(5 * x) * std::cos(3 * y) + 0.3 * std::sin(11 * x * y) + noise(random);
    if (type.bytes == 4) {
      store_le(pack.raw.data() + i * 4, std::bit_cast<uint32_t>(static_cast<float>(value)));
    } else {
      store_le(pack.raw.data() + i * 8, std::bit_cast<uint64_t>(value));
    }
  }
  return pack;
}

/// Packs of whole fields of three waves, and noise in the last digits, so many that they are not in the cache.
std::vector<Pack> field_packs(const ElementType& type, const std::vector<uint64_t>& dims) {
  constexpr size_t pack_count = 64;
  const uint64_t elements = 1_MiB / type.bytes;
  uint64_t field_elements = 1;
  for (const uint64_t dim : dims) field_elements *= dim;
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 1e-5);
  std::vector<Pack> packs;
  for (size_t pack = 0; pack < pack_count; ++pack) {
    packs.push_back({.shape = {type, std::vector<Run>(elements / field_elements, Run{field_elements, dims, true})},
                     .raw = ByteVector(1_MiB)});
    for (uint64_t i = 0; i < elements; ++i) {
      std::array<double, 3> at{};
      uint64_t rest = i;
      for (size_t dim = 0; dim < dims.size(); ++dim, rest /= dims[dim - 1])
        at[dim] = static_cast<double>(rest % dims[dim]) / static_cast<double>(dims[dim]);
      const double value = 2 + std::sin(5 * at[0] + static_cast<double>(pack)) * std::cos(3 * at[1]) * std::cos(at[2]) +
                           0.3 * std::sin(11 * at[0] * at[1]) + noise(random);
      if (type.bytes == 4) {
        store_le(packs.back().raw.data() + i * 4, std::bit_cast<uint32_t>(static_cast<float>(value)));
      } else {
        store_le(packs.back().raw.data() + i * 8, std::bit_cast<uint64_t>(value));
      }
    }
  }
  return packs;
}

/// As a run does it: one encoder for all packs of a class, which has made its choice.
void encode_fields(benchmark::State& state, const std::string& policy, const ElementType& type,
                   const std::vector<uint64_t>& dims) {
  const std::vector<Pack> packs = field_packs(type, dims);
  const std::unique_ptr<Encoder> encoder = make_encoder(*CodecPolicy::parse(policy));
  size_t at = 0, raw_bytes = 0, stored_bytes = 0;
  for (auto _ : state) {
    const Pack& pack = packs[at++ % packs.size()];
    const Result<EncodedBytes> encoded = encoder->encode(pack.raw, pack.shape);
    if (!encoded.ok()) return state.SkipWithError(encoded.status().to_string().c_str());
    raw_bytes += pack.raw.size();
    stored_bytes += encoded->recipe.size() + encoded->body.size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(raw_bytes));
  state.counters["ratio"] = static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes);
}

void decode_fields(benchmark::State& state, const std::string& policy, const ElementType& type,
                   const std::vector<uint64_t>& dims) {
  const std::vector<Pack> packs = field_packs(type, dims);
  const std::unique_ptr<Encoder> encoder = make_encoder(*CodecPolicy::parse(policy));
  std::vector<EncodedBytes> encoded;
  for (const Pack& pack : packs) {
    Result<EncodedBytes> result = encoder->encode(pack.raw, pack.shape);
    if (!result.ok()) return state.SkipWithError(result.status().to_string().c_str());
    encoded.push_back(std::move(*result));
  }
  ByteVector raw(packs.front().raw.size());
  size_t at = 0;
  for (auto _ : state) {
    const EncodedBytes& pack = encoded[at++ % encoded.size()];
    const Status status = decode_chain(pack.recipe, pack.body, raw);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
    benchmark::DoNotOptimize(raw.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * raw.size()));
}

constexpr ElementType kFloat{ElementKind::floating, ByteOrder::little, 4};
constexpr ElementType kDouble{ElementKind::floating, ByteOrder::little, 8};

void encode_pack(benchmark::State& state, const std::string& policy, const ElementType& type) {
  const Pack pack = field_pack(type);
  const Result<CodecPolicy> parsed = CodecPolicy::parse(policy);
  if (!parsed.ok()) return state.SkipWithError(parsed.status().to_string().c_str());
  size_t stored_bytes = 0;
  for (auto _ : state) {  // each with an encoder of its own: the cost of a class's first pack
    const std::unique_ptr<Encoder> encoder = make_encoder(*parsed);
    const Result<EncodedBytes> encoded = encoder->encode(pack.raw, pack.shape);
    if (!encoded.ok()) return state.SkipWithError(encoded.status().to_string().c_str());
    stored_bytes = encoded->recipe.size() + encoded->body.size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * pack.raw.size()));
  state.counters["ratio"] = static_cast<double>(pack.raw.size()) / static_cast<double>(stored_bytes);
}

void decode_pack(benchmark::State& state, const std::string& policy, const ElementType& type) {
  const Pack pack = field_pack(type);
  const Result<CodecPolicy> parsed = CodecPolicy::parse(policy);
  if (!parsed.ok()) return state.SkipWithError(parsed.status().to_string().c_str());
  const Result<EncodedBytes> encoded = make_encoder(*parsed)->encode(pack.raw, pack.shape);
  if (!encoded.ok()) return state.SkipWithError(encoded.status().to_string().c_str());
  ByteVector raw(pack.raw.size());
  for (auto _ : state) {
    const Status status = decode_chain(encoded->recipe, encoded->body, raw);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
    benchmark::DoNotOptimize(raw.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * pack.raw.size()));
}

/// One codec alone: the chain runner would store what a filter does not shrink.
void encode_alone(benchmark::State& state, const Codec* codec, const ElementType& type) {
  const Pack pack = field_pack(type);
  ByteVector params, out;
  for (auto _ : state) {
    params.clear();
    out.clear();
    const Status status = codec->encode(pack.raw, pack.shape, 0, params, out);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * pack.raw.size()));
}

void decode_alone(benchmark::State& state, const Codec* codec, const ElementType& type) {
  const Pack pack = field_pack(type);
  ByteVector params, encoded, raw(pack.raw.size());
  Status status = codec->encode(pack.raw, pack.shape, 0, params, encoded);
  for (auto _ : state) {
    if (status.ok()) status = codec->decode(encoded, params, raw);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
    benchmark::DoNotOptimize(raw.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * pack.raw.size()));
}

void register_all() {
  for (const ElementType& type : {kFloat, kDouble}) {
    for (const Codec* codec : all_codecs()) {
      if (!codec->applies_to({type, {}})) continue;
      const std::string name = std::string(codec->name()) + "/" + type.name();
      benchmark::RegisterBenchmark(("encode/" + name).c_str(), encode_alone, codec, type);
      benchmark::RegisterBenchmark(("decode/" + name).c_str(), decode_alone, codec, type);
    }
    for (const char* policy : {"fast", "balanced", "best", "paper", "lorenzo+shuffle+zstd:1", "lorenzo+magnitudes",
                               "lorenzo+bitshuffle+zstd:1", "lorenzo+shuffle+lz4", "shuffle+zstd:1", "gzip:6"}) {
      const std::string name = std::string(policy) + "/" + type.name();
      benchmark::RegisterBenchmark(("encode-packs/" + name).c_str(), encode_pack, std::string(policy), type);
      benchmark::RegisterBenchmark(("decode-packs/" + name).c_str(), decode_pack, std::string(policy), type);
    }
    const std::array<std::pair<const char*, std::vector<uint64_t>>, 3> shapes = {
        {{"1-D", {4096}}, {"2-D", {256, 256}}, {"3-D", {32, 32, 32}}}};
    for (const char* policy : {"fast", "balanced"}) {
      for (const auto& [shape, dims] : shapes) {
        const std::string name = std::string(policy) + "/" + type.name() + "/" + shape;
        benchmark::RegisterBenchmark(("encode-fields/" + name).c_str(), encode_fields, std::string(policy), type, dims);
        benchmark::RegisterBenchmark(("decode-fields/" + name).c_str(), decode_fields, std::string(policy), type, dims);
      }
    }
  }
}

}  // namespace
}  // namespace varve

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  varve::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
