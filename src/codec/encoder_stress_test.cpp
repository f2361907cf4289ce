#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "codec/chooser.h"
#include "codec/kept_encoders.h"
#include "codec/test_mixes.h"

// What an encoder chose is decoded, whatever it was given, and whatever it had before. Nightly (VARVE_NIGHTLY=1) with
// many more and larger packs; VARVE_NIGHTLY=2, 3 and so on: with others.

namespace varve {
namespace {

using test::MixMaker;
using test::Pack;

uint64_t night() {
  const char* const nightly = std::getenv("VARVE_NIGHTLY");
  return nightly == nullptr ? 0 : std::strtoull(nightly, nullptr, 10);
}

/// Some that are always the same, and many more at night.
void for_each_seed(uint64_t few, uint64_t many, const std::function<void(uint64_t seed)>& test) {
  const uint64_t first = night() == 0 ? 1 : night() * 1'000'000;
  for (uint64_t seed = first; seed < first + (night() == 0 ? few : many) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test(seed);
  }
}

uint64_t large_bytes() { return night() == 0 ? 300_KiB : 3_MiB; }
/// Most packs are small: there are more of them then.
uint64_t bytes_max(MixMaker& maker) { return maker.one_in(8) ? large_bytes() : maker.one_in(3) ? 5'000 : 60'000; }

std::string described(const Pack& pack) {
  return pack.shape.type.name() + " " + std::to_string(pack.raw.size()) + " bytes, " +
         std::to_string(pack.shape.runs.size()) + " runs, " + std::to_string(pack.shape.parts.size()) + " parts";
}

void expect_decoded(const EncodedBytes& encoded, const Pack& pack) {
  const std::string name = *recipe_name(encoded.recipe);
  // Storing costs the recipe's one byte, and nothing may cost more.
  ASSERT_LE(encoded.recipe.size() + encoded.body.size(), pack.raw.size() + 1) << name;
  ByteVector decoded(pack.raw.size(), std::byte{0xa5});
  const Status status = decode_chain(encoded.recipe, encoded.body, decoded);
  ASSERT_TRUE(status.ok()) << name << ": " << status.to_string();
  ASSERT_TRUE(decoded == pack.raw) << name;
}

void expect_comes_back(Encoder& encoder, const Pack& pack, bool elsewhere = false) {
  SCOPED_TRACE(described(pack));
  const Result<EncodedBytes> encoded = encoder.encode(pack.raw, pack.shape);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  if (!elsewhere) return expect_decoded(*encoded, pack);
  // By a thread that has nothing of what the encoder left behind.
  std::thread([&] { expect_decoded(*encoded, pack); }).join();
}

CodecPolicy policy_of(std::string_view name) { return CodecPolicy::parse(name).value(); }

/// What these have learned, which somebody may have changed meanwhile.
std::unique_ptr<KeptEncoders> of_another_process(const KeptEncoders& before, MixMaker& maker) {
  ByteVector learned = before.learned();
  if (maker.one_in(3)) {
    for (uint64_t changes = 1 + maker.below(3); changes > 0; --changes)
      learned[maker.below(learned.size())] = static_cast<std::byte>(maker.below(256));
  }
  auto kept = std::make_unique<KeptEncoders>();
  kept->learn(learned).ignore("it may have been changed");
  return kept;
}

// The same encoder has packs of all kinds, in several sets, so that it keeps choices that do not fit.
TEST(EncoderStress, EveryEffortGivesBackAnyMixAfterAnyOther) {
  for_each_seed(16, 500, [](uint64_t seed) {
    MixMaker maker(seed);
    constexpr const char* efforts[] = {"balanced", "best", "balanced", "fast"};
    CodecPolicy policy = policy_of(efforts[seed % 4]);
    policy.opens_compressed = !maker.one_in(4);
    SCOPED_TRACE(policy.name());
    auto kept = std::make_unique<KeptEncoders>();
    // Packs that follow each other are often alike.
    std::optional<Pack> last;
    for (int number = 0; number < 24 && !testing::Test::HasFailure(); ++number) {
      SCOPED_TRACE("pack " + std::to_string(number));
      if (number > 0 && maker.one_in(4)) {
        if (maker.one_in(2)) kept = of_another_process(*kept, maker);
        kept->begin_set();
      }
      const std::string key = "class" + std::to_string(maker.below(3));
      if (!last || !maker.one_in(4)) {
        last = maker.pack(bytes_max(maker));
      } else if (!last->raw.empty()) {
        for (uint64_t changes = 1 + maker.below(20); changes > 0; --changes)
          last->raw[maker.below(last->raw.size())] = static_cast<std::byte>(maker.below(256));
      }
      expect_comes_back(*kept->of(policy, key, PackContents::variables), *last, maker.one_in(6));
    }
  });
}

// Contents of several kinds in one stage, each of which is encoded by itself.
TEST(EncoderStress, WhatProgramsDeflatedComesBack) {
  for_each_seed(12, 300, [](uint64_t seed) {
    MixMaker maker(seed);
    const char* const effort = seed % 3 == 0 ? "best" : "balanced";
    SCOPED_TRACE(effort);
    const std::unique_ptr<Encoder> encoder = make_encoder(policy_of(effort));
    for (int number = 0; number < 2; ++number) {
      SCOPED_TRACE("pack " + std::to_string(number));
      expect_comes_back(*encoder, maker.streams_pack(night() == 0 ? 700'000 : 20'000 + maker.any_size(3_MiB)));
    }
  });
}

TEST(EncoderStress, EveryChainGivesBackAnyMix) {
  std::vector<std::string> chains = test::chain_names();
  chains.insert(chains.end(),
                {"across+shuffle+zstd", "across+bitshuffle+zstd", "across+planes", "across+magnitudes", "sections",
                 "inflate+across+lorenzo+shuffle+zstd", "inflate+columns+lzma:1", "columns+inflate+zstd",
                 "constant+inflate+sections", "blosc+sections", "rotate:65536+delta:65536+planes", "paper"});
  for_each_seed(6, 100, [&](uint64_t seed) {
    MixMaker maker(seed);
    for (const std::string& chain : chains) {
      if (testing::Test::HasFailure()) return;
      SCOPED_TRACE(chain);
      const PackContents contents = maker.one_in(2) ? PackContents::variables : PackContents::skeletons;
      expect_comes_back(*make_encoder(policy_of(chain), contents), maker.pack(bytes_max(maker) / 4));
    }
  });
}

// What one had is kept for the other.
TEST(EncoderStress, ThreadsThatShareAnEncoderGetBackWhatTheyGave) {
  for_each_seed(2, 100, [](uint64_t seed) {
    for (const char* effort : {"fast", "balanced", "best"}) {
      SCOPED_TRACE(effort);
      const std::unique_ptr<Encoder> encoder = make_encoder(policy_of(effort));
      std::vector<std::thread> threads;
      for (uint64_t thread = 0; thread < 3; ++thread) {
        threads.emplace_back([&, thread] {
          SCOPED_TRACE("seed " + std::to_string(seed) + ", thread " + std::to_string(thread));
          MixMaker maker(10 * seed + thread);
          for (int number = 0; number < 8 && !testing::Test::HasFailure(); ++number)
            expect_comes_back(*encoder, maker.pack(bytes_max(maker) / 4));
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  });
}

// Of more than 2 MiB, packs are encoded in another way.
TEST(EncoderStress, WidePacksComeBack) {
  for_each_seed(1, 6, [](uint64_t seed) {
    for (const char* effort : {"fast", "balanced", "best"}) {
      MixMaker maker(seed);
      SCOPED_TRACE(effort);
      const uint64_t bytes = night() == 0 ? 2_MiB + 1 + maker.below(100) : 2_MiB + maker.any_size(30_MiB);
      const std::unique_ptr<Encoder> encoder = make_encoder(policy_of(effort));
      for (int number = 0; number < (night() == 0 ? 1 : 3); ++number)
        expect_comes_back(*encoder, maker.large_pack(bytes));
    }
  });
}

TEST(EncoderStress, TheLargestPackComesBack) {
  if (night() == 0) GTEST_SKIP() << "a nightly test";
  for_each_seed(0, 2, [](uint64_t seed) {
    for (const char* policy : {"fast", "balanced", "best", "inflate+sections", "columns+zstd", "fpc+gzip", "gzip:1"}) {
      SCOPED_TRACE(policy);
      MixMaker maker(seed);
      expect_comes_back(*make_encoder(policy_of(policy)), maker.large_pack(kPackBytesMax - maker.below(2) * 8));
    }
  });
}

}  // namespace
}  // namespace varve
