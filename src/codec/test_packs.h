#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codec/codec.h"

namespace varve::test {

using Random = std::mt19937_64;

/// A pack as the pipeline makes them.
struct Pack {
  PackShape shape;
  ByteVector raw;
};

inline constexpr ElementType kDoubles{ElementKind::floating, ByteOrder::little, 8};

inline void append(ByteVector& bytes, ByteSpan more) { bytes.insert(bytes.end(), more.begin(), more.end()); }

inline std::vector<ElementType> element_types() {
  std::vector<ElementType> types = {
      {}, {ElementKind::text, ByteOrder::little, 80}, {ElementKind::opaque, ByteOrder::little, 12}};
  for (ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
    for (uint32_t bytes : {2u, 4u, 8u, 16u}) types.push_back({ElementKind::floating, order, bytes});
    for (uint32_t bytes : {1u, 2u, 4u, 8u}) {
      const ByteOrder number_order = bytes == 1 ? ByteOrder::little : order;
      types.push_back({ElementKind::signed_integer, number_order, bytes});
      types.push_back({ElementKind::unsigned_integer, number_order, bytes});
    }
  }
  return types;
}

/// A run that is the whole array, if it says its dimensions.
inline Run run_of(uint64_t elements, std::vector<uint64_t> dims = {}) { return {elements, dims, !dims.empty()}; }

inline uint64_t run_elements(const std::vector<Run>& runs) {
  uint64_t elements = 0;
  for (const Run& run : runs) elements += run.elements;
  return elements;
}

/// Runs of every sort: whole arrays of one to four dimensions, repeated ones, parts, also of huge ones, single
/// elements, unknown extents.
inline std::vector<Run> random_runs(Random& random) {
  std::vector<Run> runs;
  for (uint64_t left = random() % 6; left > 0; --left) {
    Run run;
    run.elements = 1;
    for (uint64_t dimensions = random() % 5; dimensions > 0; --dimensions) {
      run.dims.push_back(2 + random() % 9);
      run.elements *= run.dims.back();
    }
    run.whole = !run.dims.empty();
    if (random() % 3 == 0) {
      run.elements = 1 + random() % 700;
      run.whole = false;
      // Of an array that is larger than any pack.
      constexpr uint64_t large[] = {kPackBytesMax - 1, kPackBytesMax, kPackBytesMax + 1, 140'000'000,
                                    uint64_t{1} << 60};
      if (!run.dims.empty() && random() % 2 == 0) run.dims[random() % run.dims.size()] = large[random() % 5];
    }
    runs.insert(runs.end(), 1 + random() % 4, run);
  }
  return runs;
}

inline void put_number(std::byte* to, const ElementType& type, double value) {
  uint64_t bits = static_cast<uint64_t>(std::llround(value * 1000));
  if (type.kind == ElementKind::floating && type.bytes == 4) bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type.kind == ElementKind::floating && type.bytes == 8) bits = std::bit_cast<uint64_t>(value);
  for (uint32_t i = 0; i < std::min(type.bytes, 8u); ++i) {
    to[type.order == ByteOrder::big ? type.bytes - 1 - i : i] = static_cast<std::byte>(bits >> (8 * i));
  }
}

/// A smooth field with some noise, of either sign.
inline ByteVector smooth_bytes(const ElementType& type, uint64_t elements, Random& random) {
  ByteVector raw(elements * type.bytes);
  std::normal_distribution<double> noise(0, 1e-4);
  const double phase = static_cast<double>(random() % 100);
  for (uint64_t i = 0; i < elements; ++i) {
    put_number(raw.data() + i * type.bytes, type, std::sin(phase + static_cast<double>(i) * 0.01) + noise(random));
  }
  return raw;
}

inline ByteVector random_bytes(size_t bytes, Random& random) {
  ByteVector raw(bytes);
  for (std::byte& byte : raw) byte = static_cast<std::byte>(random());
  return raw;
}

/// Smooth, random (with NaNs, infinities and denormals among the floats) or constant bytes of a random shape.
inline Pack random_pack(const ElementType& type, Random& random) {
  Pack pack{.shape = {.type = type, .runs = random_runs(random)}, .raw = {}};
  const uint64_t elements = run_elements(pack.shape.runs);
  switch (random() % 3) {
    case 0: pack.raw = smooth_bytes(type, elements, random); break;
    case 1: pack.raw = random_bytes(elements * type.bytes, random); break;
    default: pack.raw.assign(elements * type.bytes, static_cast<std::byte>(random()));
  }
  return pack;
}

/// Floating-point numbers of every kind (NaN, infinities, denormals, zeros of both signs), among ordinary ones.
template <class Float>
Pack pack_of_all_kinds() {
  using Limits = std::numeric_limits<Float>;
  Pack pack;
  const auto add = [&pack](Float value) {
    pack.raw.resize(pack.raw.size() + sizeof value);
    std::memcpy(pack.raw.data() + pack.raw.size() - sizeof value, &value, sizeof value);
  };
  for (int repeat = 0; repeat < 40; ++repeat) {
    for (const Float value :
         {Float{1}, Float{-1.5}, Float{3.25}, Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
          Limits::infinity(), -Limits::infinity(), Limits::denorm_min(), -Limits::denorm_min(), Limits::min(),
          Limits::max(), Limits::lowest(), Float{0}, -Float{0}})
      add(value);
    for (int i = 0; i < 50; ++i) add(static_cast<Float>(i));
  }
  const uint64_t elements = pack.raw.size() / sizeof(Float);
  pack.shape = {{ElementKind::floating, ByteOrder::little, sizeof(Float)}, {run_of(elements)}};
  return pack;
}

/// All of the chain is used, and every bit comes back.
inline void expect_comes_back_by(const std::string& chain, const Pack& pack) {
  const EncodedBytes encoded = encode_chain(*CodecChain::parse(chain), pack.raw, pack.shape).value();
  EXPECT_EQ(*recipe_name(encoded.recipe), chain);
  ByteVector decoded(pack.raw.size());
  ASSERT_TRUE(decode_chain(encoded.recipe, encoded.body, decoded).ok());
  EXPECT_EQ(decoded, pack.raw);
}

/// The chains that the chooser and the papers use, and some that make little sense but must work.
inline std::vector<std::string> chain_names() {
  std::vector<std::string> names = {"store",
                                    "zstd",
                                    "zstd:-3",
                                    "zstd:19",
                                    "gzip",
                                    "gzip:1",
                                    "lzma",
                                    "lzma:2",
                                    "constant",
                                    "shuffle+zstd",
                                    "bitshuffle+zstd",
                                    "delta+zstd",
                                    "delta:8+zstd:3",
                                    "fpc",
                                    "fpc:25+gzip",
                                    "fpzip",
                                    "fpzip+gzip",
                                    "shuffle:88+zstd:9",
                                    "delta:88+shuffle:88+zstd",
                                    "lorenzo+zstd",
                                    "lorenzo+planes",
                                    "delta+planes+zstd",
                                    "planes",
                                    "lorenzo+magnitudes",
                                    "lorenzo:4+magnitudes",
                                    "signlast+planes",
                                    "signlast:1+magnitudes",
                                    "delta+magnitudes+zstd",
                                    "magnitudes",
                                    "lorenzo:1+shuffle+zstd",
                                    "lorenzo:4+shuffle+zstd",
                                    "lorenzo+bitshuffle+zstd",
                                    "lorenzo+shuffle+lzma:2",
                                    "rotate:3+lorenzo+shuffle+zstd",
                                    "columns+zstd",
                                    "columns+columns+lzma:2",
                                    "inflate+zstd",
                                    "inflate+sections",
                                    "inflate+inflate+rotate:3+zstd",
                                    "blosc+zstd",
                                    "blosc+sections",
                                    "inflate+blosc+zstd",
                                    "zstd+lorenzo+shuffle",
                                    "fpc+fpc+fpzip+shuffle",
                                    "constant+zstd+gzip+lzma"};
  if (find_codec("lz4").ok()) names.insert(names.end(), {"lz4", "lz4:9", "lz4+gzip", "lorenzo+shuffle+lz4"});
  return names;
}

}  // namespace varve::test
