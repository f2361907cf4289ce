#include "codec/chooser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "codec/candidates.h"
#include "codec/found_numbers.h"
#include "codec/kept_encoders.h"
#include "codec/learned.h"
#include "codec/numbers.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Pack;
using test::Random;

const std::vector<std::string> kPolicies = {"fast", "balanced", "best", "paper", "lorenzo+shuffle+zstd:1", "store"};

void expect_round_trip(Encoder& encoder, const Pack& pack) {
  const Result<EncodedBytes> encoded = encoder.encode(pack.raw, pack.shape);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  ASSERT_LE(encoded->recipe.size() + encoded->body.size(), pack.raw.size() + 1);
  ByteVector decoded(pack.raw.size());
  const Status status = decode_chain(encoded->recipe, encoded->body, decoded);
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(decoded, pack.raw);
}

/// A flow's velocity in a box of 45 × 45 × 45 cells: waves of all lengths, the shorter the weaker.
Pack velocity_pack(double slope) {
  const ElementType type{ElementKind::floating, ByteOrder::big, 4};
  constexpr uint64_t edge = 45, cells = edge * edge * edge;
  Pack pack{.shape = {type, {test::run_of(cells, {edge, edge, edge})}}, .raw = ByteVector(cells * 4)};
  Random random(3);
  std::uniform_real_distribution<double> uniform(0, 6.28);
  std::vector<std::array<double, 5>> waves;
  for (int length = 1; length <= 20; ++length) {
    for (int i = 0; i < 3; ++i) {
      waves.push_back({std::cos(uniform(random)) * length / 7, std::cos(uniform(random)) * length / 7,
                       std::cos(uniform(random)) * length / 7, uniform(random), std::pow(length, -slope)});
    }
  }
  for (uint64_t i = 0; i < cells; ++i) {
    double value = 0;
    for (const auto& [x, y, z, phase, height] : waves) {
      const auto at = [&](uint64_t stride) { return static_cast<double>(i / stride % edge); };
      value += height * std::sin(x * at(1) + y * at(edge) + z * at(edge * edge) + phase);
    }
    test::put_number(pack.raw.data() + i * 4, type, value);
  }
  return pack;
}

/// Fields of 50 × 50 floats that become less smooth with `noise`.
Pack field_pack(double noise) {
  const ElementType type{ElementKind::floating, ByteOrder::big, 4};
  Pack pack{.shape = {type, std::vector<Run>(64, test::run_of(2500, {50, 50}))}, .raw = ByteVector(64 * 2500 * 4)};
  Random random(1);
  std::normal_distribution<double> normal(0, noise);
  for (size_t i = 0; i < 64 * 2500; ++i) {
    const double x = static_cast<double>(i % 50) / 50, y = static_cast<double>(i / 50) / 50;
    test::put_number(pack.raw.data() + i * 4, type, 2 + std::sin(3 * x) * std::cos(y) + normal(random));
  }
  return pack;
}

size_t encoded_bytes(std::string_view policy, const Pack& pack) {
  const EncodedBytes encoded = *make_encoder(*CodecPolicy::parse(policy))->encode(pack.raw, pack.shape);
  return encoded.recipe.size() + encoded.body.size();
}

TEST(Chooser, EveryPolicyReturnsWhatItTookForAllTypes) {
  Random random(2);
  for (const std::string& name : kPolicies) {
    SCOPED_TRACE(name);
    for (const ElementType& type : test::element_types()) {
      const std::unique_ptr<Encoder> encoder = make_encoder(*CodecPolicy::parse(name));
      for (int repeat = 0; repeat < 10; ++repeat) expect_round_trip(*encoder, test::random_pack(type, random));
    }
  }
}

TEST(Chooser, PolicyNamesCanBeParsedAgain) {
  for (const std::string& name : kPolicies) EXPECT_EQ(CodecPolicy::parse(name)->name(), name);
  EXPECT_FALSE(CodecPolicy::parse("smallest").ok());
}

TEST(Chooser, MoreEffortNeverCostsMuchSpace) {
  for (double noise : {1e-7, 1e-5, 1e-3}) {
    const Pack pack = field_pack(noise);
    EXPECT_LE(static_cast<double>(encoded_bytes("best", pack)),
              1.005 * static_cast<double>(encoded_bytes("balanced", pack)))
        << noise;
    EXPECT_LE(static_cast<double>(encoded_bytes("balanced", pack)),
              1.03 * static_cast<double>(encoded_bytes("fast", pack)))
        << noise;
    EXPECT_LT(encoded_bytes("fast", pack), encoded_bytes("gzip:6", pack)) << noise;
  }
}

TEST(Chooser, BestIsNoLargerThanACoderThatASampleIsTooShortFor) {
  for (const double slope : {1.0, 2.0, 3.0}) {
    const Pack pack = velocity_pack(slope);
    EXPECT_LE(encoded_bytes("best", pack), encoded_bytes("fpzip", pack)) << slope;
  }
}

TEST(Chooser, AConstantPackCostsAlmostNothing) {
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  Pack pack{.shape = {type, {test::run_of(1 << 17)}}, .raw = {}};
  for (int i = 0; i < 1 << 17; ++i) {
    pack.raw.resize(pack.raw.size() + 8);
    test::put_number(pack.raw.data() + pack.raw.size() - 8, type, 1.0 / 3);
  }
  for (std::string_view policy : {"fast", "balanced", "best"}) EXPECT_LT(encoded_bytes(policy, pack), 24u) << policy;
}

TEST(Chooser, StoresNoise) {
  Random random(3);
  const Pack pack{.shape = {{}, {test::run_of(1 << 20)}}, .raw = test::random_bytes(1 << 20, random)};
  for (std::string_view policy : {"fast", "balanced", "best"}) {
    const EncodedBytes encoded = *make_encoder(*CodecPolicy::parse(policy))->encode(pack.raw, pack.shape);
    EXPECT_TRUE(recipe_is_store(encoded.recipe)) << policy;
  }
}

TEST(Chooser, FindsRecordsInBytesOfUnknownLayout) {
  Random random(4);
  ByteVector raw;
  for (uint32_t i = 0; i < 10'000; ++i) {  // three doubles of their own magnitudes and an index
    const size_t at = raw.size();
    raw.resize(at + 28);
    for (size_t field = 0; field < 3; ++field) {
      const double magnitude = std::pow(1000.0, static_cast<double>(field));
      test::put_number(raw.data() + at + 8 * field, {ElementKind::floating, ByteOrder::little, 8},
                       magnitude * (1 + static_cast<double>(random() % 1000) / 1e5));
    }
    store_le(raw.data() + at + 24, i);
  }
  EXPECT_EQ(find_record_bytes(raw), 28u);
  EXPECT_EQ(find_record_bytes(test::random_bytes(100'000, random)), 0u);
  EXPECT_EQ(find_record_bytes(ByteVector(100'000)), 0u);
  EXPECT_EQ(find_record_bytes(ByteVector(10)), 0u);
}

TEST(Chooser, BytesThatRepeatEachOtherTakeTheFastestChainWithoutATrial) {
  Random random(7);
  const auto repeating = [](ByteSpan period) {
    Pack pack{.shape = {{}, {test::run_of(512 << 10)}}, .raw = {}};
    while (pack.raw.size() < 512 << 10) pack.raw.insert(pack.raw.end(), period.begin(), period.end());
    pack.raw.resize(512 << 10);
    return pack;
  };
  const Pack skeletons = repeating(test::random_bytes(1000, random));
  const EncodedBytes encoded = *make_encoder(*CodecPolicy::parse("balanced"))->encode(skeletons.raw, skeletons.shape);
  EXPECT_EQ(encoded.body, encode_chain(*CodecChain::parse("zstd:1"), skeletons.raw, skeletons.shape)->body);
  EXPECT_LT(size_of(encoded), skeletons.raw.size() / 256);
  expect_round_trip(*make_encoder(*CodecPolicy::parse("balanced")), skeletons);
  // What does not repeat as often is tried as before: numbers in it are found.
  Pack numbers{.shape = {{}, {test::run_of(512 << 10)}}, .raw = ByteVector(512 << 10)};
  for (uint32_t i = 0; i < numbers.raw.size() / 4; ++i) store_le(numbers.raw.data() + 4 * size_t{i}, 1'000'003 * i);
  EXPECT_NE(*recipe_name(make_encoder(*CodecPolicy::parse("balanced"))->encode(numbers.raw, numbers.shape)->recipe),
            "zstd");
}

TEST(Chooser, TextIsTextAtAllPlacesThatAreLookedAt) {
  ByteVector text(100'000, std::byte{'x'});
  for (size_t i = 0; i < text.size(); i += 7) text[i] = std::byte{'\n'};
  EXPECT_TRUE(seems_text(text));
  EXPECT_TRUE(seems_text({}));
  EXPECT_TRUE(seems_text(ByteSpan(text).first(3)));
  text[100'000 / 16 * 15 + 17] = std::byte{0};
  EXPECT_FALSE(seems_text(text));
  Random random(8);
  EXPECT_FALSE(seems_text(test::random_bytes(100'000, random)));
}

// Lines of one length, of which some columns hardly change.
TEST(Chooser, TextOfRecordsIsStillTriedAsRecords) {
  Random random(9);
  ByteVector raw;
  for (int line = 0; line < 5'000; ++line) {
    const std::string text = fmt::format("ATOM {:c}{:c} {:c} end\n", 'A' + static_cast<int>(random() % 26),
                                         'a' + static_cast<int>(random() % 26), 'A' + static_cast<int>(random() % 4));
    const ByteSpan bytes = as_bytes(text);
    raw.insert(raw.end(), bytes.begin(), bytes.end());
  }
  const size_t record = find_record_bytes(raw);
  ASSERT_GT(record, 8u);
  const PackShape shape{{}, {test::run_of(raw.size())}};
  const std::vector<CodecChain> chains = candidate_chains(raw, shape, Effort::balanced);
  EXPECT_TRUE(std::any_of(chains.begin(), chains.end(), [&](const CodecChain& chain) {
    return chain.name() == fmt::format("shuffle:{}+zstd:1", record);
  }));
  EXPECT_TRUE(std::none_of(chains.begin(), chains.end(),
                           [](const CodecChain& chain) { return chain.name() == "shuffle:8+zstd:1"; }));
}

TEST(Chooser, ASampleIsASmallerPackOfTheSameShape) {
  const Pack pack = field_pack(1e-5);
  const PackSample sample = sample_of(pack.raw, pack.shape, 60'000);
  EXPECT_EQ(sample.bytes.size(), 60'000u);
  EXPECT_EQ(test::run_elements(sample.shape.runs) * 4, sample.bytes.size());
  for (const varve::Run& run : sample.shape.runs) EXPECT_EQ(run.whole, run.elements == 2500);
  EXPECT_EQ(sample_of(pack.raw, pack.shape, pack.raw.size() * 2).bytes, pack.raw);
}

TEST(Chooser, ASampleOfNoiseIsMadeSmallerByNothing) {
  Random random(11);
  Pack pack = field_pack(1e-5);
  pack.raw = test::random_bytes(pack.raw.size(), random);
  const Trial trial = *try_candidates(pack.raw, pack.shape, Effort::balanced);
  ASSERT_LT(trial.sample_bytes, pack.raw.size());
  EXPECT_GE(trial.outcomes.front().bytes, trial.sample_bytes);
}

/// Arrays of which most are smooth, and few, where samples are taken, are noise without any relation in space.
Pack misleading_pack() {
  Pack pack = field_pack(1e-5);
  Random random(3);
  for (size_t array :
       {size_t{14}, size_t{15}, size_t{16}, size_t{31}, size_t{32}, size_t{47}, size_t{48}, size_t{49}}) {
    for (size_t i = array * 2500; i < (array + 1) * 2500; ++i) {
      const double levels = static_cast<double>(random() % 4);
      test::put_number(pack.raw.data() + i * 4, pack.shape.type, 1 + levels);
    }
  }
  return pack;
}

TEST(Chooser, BalancedIsNoLargerThanFastHoweverTheSampleMisleads) {
  const Pack pack = misleading_pack();
  EXPECT_LE(encoded_bytes("balanced", pack), encoded_bytes("fast", pack));
}

/// Doubles of one class, from a function of their place.
template <class Value>
Pack doubles_pack(Value value) {
  constexpr size_t elements = 1 << 16;
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  Pack pack{.shape = {type, {test::run_of(elements)}}, .raw = ByteVector(elements * 8)};
  for (size_t i = 0; i < elements; ++i) test::put_number(pack.raw.data() + 8 * i, type, value(i));
  return pack;
}

std::string fast_chain_of(const Pack& pack) {
  return *recipe_name(make_encoder(*CodecPolicy::parse("fast"))->encode(pack.raw, pack.shape)->recipe);
}

TEST(Chooser, FastTakesBitPlanesForFields) {
  EXPECT_EQ(fast_chain_of(field_pack(1e-5)), "lorenzo+planes");
  const Pack waves = doubles_pack([](size_t i) { return std::sin(static_cast<double>(i) / 100); });
  EXPECT_EQ(fast_chain_of(waves), "lorenzo+planes");
}

/// Floats that change little but for their signs.
Pack alternating_pack(ElementType type) {
  constexpr size_t elements = 1 << 16;
  Pack pack{.shape = {type, {test::run_of(elements)}}, .raw = ByteVector(elements * type.bytes)};
  Random random(11);
  for (size_t i = 0; i < elements; ++i) {
    const double size = 3 + std::sin(static_cast<double>(i) / 1000) + static_cast<double>(random() % 1000) * 1e-9;
    test::put_number(pack.raw.data() + i * type.bytes, type, random() % 2 == 0 ? size : -size);
  }
  return pack;
}

TEST(Chooser, FloatsWhoseSignsChangeHaveThemLast) {
  for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
    const Pack pack = alternating_pack({ElementKind::floating, order, 8});
    EXPECT_EQ(fast_chain_of(pack), "signlast+planes");
    EXPECT_LT(encoded_bytes("fast", pack), encoded_bytes("lorenzo+planes", pack) * 3 / 4);
    for (const char* thorough : {"balanced", "best"})
      EXPECT_LT(encoded_bytes(thorough, pack), encoded_bytes("fast", pack)) << thorough;
  }
}

TEST(Chooser, WhatDifferencesShrinkByFarIsTriedByNoOtherChain) {
  Random random(12);
  double last = 1e5;
  const Pack smooth = doubles_pack([&](size_t) { return last += static_cast<double>(random() % 1000) * 1e-6; });
  EXPECT_EQ(try_candidates(smooth.raw, smooth.shape, Effort::balanced, {})->outcomes.size(), 3u);
  EXPECT_GT(try_candidates(smooth.raw, smooth.shape, Effort::best, {})->outcomes.size(), 3u);
  const Pack alternating = alternating_pack({ElementKind::floating, ByteOrder::little, 8});
  EXPECT_GT(try_candidates(alternating.raw, alternating.shape, Effort::balanced, {})->outcomes.size(), 3u);
}

TEST(Chooser, FastTakesACoderThatSearchesWhereThatGainsMuch) {
  Random random(5);
  std::vector<double> few(40);
  for (double& each : few) each = static_cast<double>(random()) / 3;
  const Pack repeating = doubles_pack([&](size_t i) { return few[i % few.size()]; });
  EXPECT_TRUE(fast_chain_of(repeating).starts_with("lorenzo+shuffle+")) << fast_chain_of(repeating);
  EXPECT_LT(encoded_bytes("fast", repeating), repeating.raw.size() / 20);
  // Numbers of 24 bits in 64: the planes below are all alike, but not zero.
  const Pack singles =
      doubles_pack([&](size_t) { return static_cast<double>(static_cast<float>(random() % 1000003) / 7); });
  EXPECT_LT(encoded_bytes("fast", singles), encoded_bytes("lorenzo+planes", singles));
  EXPECT_LE(encoded_bytes("fast", singles), encoded_bytes("balanced", singles) * 3 / 2);
}

// One pack of the class in each set.
TEST(Chooser, WhatWasFoundForOneSetServesTheNextButNotForEver) {
  const Pack waves = doubles_pack([](size_t i) { return std::sin(static_cast<double>(i) / 100); });
  const Pack repeating = doubles_pack([](size_t i) { return 1 / static_cast<double>(1 + i % 40); });
  const CodecPolicy fast = *CodecPolicy::parse("fast");
  KeptEncoders kept;
  const auto chain_in_next_set = [&](const Pack& pack) {
    kept.begin_set();
    return *recipe_name(kept.of(fast, "class", PackContents::variables)->encode(pack.raw, pack.shape)->recipe);
  };
  const std::string of_waves = fast_chain_of(waves);
  ASSERT_NE(of_waves, fast_chain_of(repeating));
  for (int set = 0; set < 4; ++set) EXPECT_EQ(chain_in_next_set(set == 0 ? waves : repeating), of_waves) << set;
  EXPECT_EQ(chain_in_next_set(repeating), fast_chain_of(repeating));

  // Another class, and one that the last sets did not have, are looked at anew.
  EXPECT_NE(kept.of(fast, "other", PackContents::variables), kept.of(fast, "class", PackContents::variables));
  const std::weak_ptr<Encoder> encoder = kept.of(fast, "class", PackContents::variables);
  for (int set = 0; set < 2; ++set) kept.begin_set();
  EXPECT_FALSE(encoder.expired());
  kept.begin_set();
  EXPECT_TRUE(encoder.expired());
}

TEST(Chooser, WhatOneProcessHasLearnedServesTheNextForAsManySets) {
  const Pack waves = doubles_pack([](size_t i) { return std::sin(static_cast<double>(i) / 100); });
  const Pack repeating = doubles_pack([](size_t i) { return 1 / static_cast<double>(1 + i % 40); });
  const CodecPolicy fast = *CodecPolicy::parse("fast");
  ByteVector learned;
  // Each set is a process of its own.
  const auto chain_in_next_set = [&](const Pack& pack) {
    KeptEncoders kept;
    if (!learned.empty()) {
      EXPECT_TRUE(kept.learn(learned).ok());
    }
    kept.begin_set();
    const auto encoder = kept.of(fast, "class", PackContents::variables);
    const std::string chain = *recipe_name(encoder->encode(pack.raw, pack.shape)->recipe);
    if (!kept.wide_pack_bytes(fast, "class")) kept.note_wide_pack_bytes(fast, "class", pack.raw.size());
    learned = kept.learned();
    return chain;
  };
  const std::string of_waves = fast_chain_of(waves);
  for (int set = 0; set < 4; ++set) EXPECT_EQ(chain_in_next_set(set == 0 ? waves : repeating), of_waves) << set;
  EXPECT_EQ(chain_in_next_set(repeating), fast_chain_of(repeating));

  KeptEncoders other;
  ASSERT_TRUE(other.learn(learned).ok());
  other.begin_set();
  EXPECT_EQ(other.wide_pack_bytes(*CodecPolicy::parse("best"), "class"), std::nullopt) << "another effort";
  EXPECT_EQ(other.wide_pack_bytes(fast, "another"), std::nullopt);
  EXPECT_EQ(other.wide_pack_bytes(fast, "class"), std::optional<uint64_t>(waves.raw.size()));
}

// What it says is not trusted: that it comes back from any is what encoder_stress_test.cpp sees to.
TEST(Chooser, WhatWasLearnedIsReadInNoOtherForm) {
  const CodecPolicy balanced = *CodecPolicy::parse("balanced");
  KeptEncoders kept;
  kept.begin_set();
  const Pack waves = doubles_pack([](size_t i) { return std::sin(static_cast<double>(i) / 100); });
  Pack bytes = waves;
  bytes.shape = {{}, {{waves.raw.size(), {}, false}}};
  for (const auto& [key, pack] : {std::pair("numbers", waves), {"bytes", bytes}})
    ASSERT_TRUE(kept.of(balanced, key, PackContents::variables)->encode(pack.raw, pack.shape).ok());
  const ByteVector learned = kept.learned();
  EXPECT_TRUE(KeptEncoders().learn(learned).ok());
  for (size_t bytes_left = 0; bytes_left < learned.size(); ++bytes_left)
    EXPECT_FALSE(KeptEncoders().learn(ByteSpan(learned).first(bytes_left)).ok()) << bytes_left;
  ByteVector longer = learned;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(KeptEncoders().learn(longer).ok());
}

TEST(Chooser, WhatNoTrialChoosesIsNotLearned) {
  for (const char* chain : {"sections", "lorenzo+sections+zstd:1", "inflate+zstd", "blosc", "rotate:3+zstd"}) {
    ByteVector said;
    ByteWriter w(said);
    w.text(chain);
    w.u8(0);
    w.u8(0);
    ByteReader reader(said);
    EXPECT_FALSE(read_candidate(reader).ok()) << chain;
  }
  ByteVector said;
  ByteWriter w(said);
  write_candidate(w, {*CodecChain::parse("lorenzo+shuffle+zstd:1")});
  ByteReader reader(said);
  EXPECT_EQ(read_candidate(reader)->chain.name(), "lorenzo+shuffle+zstd:1");
}

TEST(Chooser, BytesOfFewValuesTakeLessThanByMatchesAlone) {
  // Domains of spins, as a lattice has: by gzip -6 and zstd -3 at least a bit each.
  Random random(11);
  constexpr size_t edge = 256;
  std::vector<int> spins(edge * edge);
  for (int& spin : spins) spin = random() % 2 == 0 ? 1 : -1;
  for (int sweep = 0; sweep < 20; ++sweep) {
    for (size_t i = 0; i < spins.size(); ++i) {
      const size_t at = random() % spins.size();
      const auto near = [&](size_t distance) { return spins[(at + distance) % spins.size()]; };
      const int sum = near(1) + near(spins.size() - 1) + near(edge) + near(spins.size() - edge);
      if (sum != 0 && random() % 16 != 0) spins[at] = sum > 0 ? 1 : -1;
    }
  }
  const ElementType i32{ElementKind::signed_integer, ByteOrder::little, 4};
  Pack numbers{.shape = {i32, {test::run_of(spins.size(), {edge, edge})}}, .raw = ByteVector(4 * spins.size())};
  ByteVector bytes;
  std::string text;
  for (size_t i = 0; i < spins.size(); ++i) {
    store_le(numbers.raw.data() + 4 * i, spins[i]);
    bytes.push_back(static_cast<std::byte>(spins[i]));
    text += std::to_string(spins[i]) + (i % edge == edge - 1 ? '\n' : ' ');
  }
  const auto unknown = [](ByteSpan raw) {
    return Pack{.shape = {{}, {{raw.size(), {}, false}}}, .raw = ByteVector(raw.begin(), raw.end())};
  };
  for (const Pack& pack : {numbers, unknown(numbers.raw), unknown(bytes), unknown(as_bytes(text))}) {
    const Pack plain = unknown(pack.raw);
    EXPECT_LE(encoded_bytes("balanced", pack),
              std::min(encoded_bytes("gzip:6", plain), encoded_bytes("zstd:3", plain)));
    expect_round_trip(*make_encoder(*CodecPolicy::parse("balanced")), pack);
    expect_round_trip(*make_encoder(*CodecPolicy::parse("best")), pack);
  }
}

TEST(Chooser, WhatNothingMadeSmallerIsLookedAtAgainInTheNextSet) {
  Random random(6);
  const Pack noise = doubles_pack([&](size_t) { return std::bit_cast<double>(random()); });
  const Pack waves = doubles_pack([](size_t i) { return std::sin(static_cast<double>(i) / 100); });
  for (std::string_view policy : {"fast", "balanced"}) {
    const std::unique_ptr<Encoder> encoder = make_encoder(*CodecPolicy::parse(policy));
    EXPECT_TRUE(recipe_is_store(encoder->encode(noise.raw, noise.shape)->recipe)) << policy;
    encoder->begin_set();
    EXPECT_EQ(size_of(*encoder->encode(waves.raw, waves.shape)), encoded_bytes(policy, waves)) << policy;
  }
}

TEST(FoundNumbers, ServeSomePacksAndSetsEach) {
  NumberGuess doubles, floats;
  doubles.type = *ElementType::parse("f64");
  floats.type = *ElementType::parse("f32");
  FoundNumbers found;
  EXPECT_FALSE(found.choice_for(doubles));
  found.choose(doubles, {*CodecChain::parse("shuffle:8+zstd:1"), doubles});
  EXPECT_FALSE(found.choice_for(floats));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(found.choice_for(doubles)->chain.name(), "shuffle:8+zstd:1") << i;
  EXPECT_FALSE(found.choice_for(doubles));

  found.choose(doubles, {*CodecChain::parse("zstd:1"), doubles});
  for (int i = 0; i < 3; ++i) found.begin_set();
  EXPECT_EQ(found.choice_for(doubles)->chain.name(), "zstd:1");
  found.begin_set();
  EXPECT_FALSE(found.choice_for(doubles));

  for (uint32_t phase = 0; phase < 20; ++phase) {
    doubles.phase = phase;
    found.add(doubles);
  }
  EXPECT_EQ(found.guesses().size(), 8U);
  EXPECT_EQ(found.guesses().back(), doubles);
  found.add(found.guesses().front());
  EXPECT_EQ(found.guesses().back().phase, 12U);
}

// The bytes of one file, then of others: that they are floats of some size is found once, and served for three more.
TEST(Chooser, ClassesLearnFromEachOtherThatBytesAreFloats) {
  const auto found = std::make_shared<FoundNumbers>();
  const CodecPolicy balanced = *CodecPolicy::parse("balanced");
  Random random(9);
  for (size_t i = 0; i < 4; ++i) {
    Pack pack = doubles_pack([&](size_t) {
      const double size = 1 + static_cast<double>(random() % 1'000'003) / 1'000'003;
      return random() % 2 == 0 ? size : -size;
    });
    pack.shape = {.type = {}, .runs = {{pack.raw.size(), {}, false}}};
    const EncodedBytes encoded = *make_encoder(balanced, PackContents::variables, found)->encode(pack.raw, pack.shape);
    EXPECT_EQ(*recipe_name(encoded.recipe), "signlast+magnitudes") << i;
    ASSERT_EQ(found->guesses().size(), 1U) << i;
  }
  EXPECT_FALSE(found->choice_for(found->guesses().front())) << "the last three have used it up";
}

// Each would choose another chain.
TEST(Chooser, PacksOfAClassAwaitItsFirstTrial) {
  Pack waves = doubles_pack([](size_t i) { return std::sin(static_cast<double>(i) / 100); });
  Pack repeating = doubles_pack([](size_t i) { return 1 / static_cast<double>(1 + i % 40); });
  for (Pack* const pack : {&waves, &repeating}) pack->shape.runs.front().dims = {256, 256};
  const CodecPolicy balanced = *CodecPolicy::parse("balanced");
  const auto name_of = [&](Encoder& encoder, const Pack& pack) {
    return *recipe_name(encoder.encode(pack.raw, pack.shape)->recipe);
  };
  ASSERT_NE(name_of(*make_encoder(balanced), waves), name_of(*make_encoder(balanced), repeating));
  for (int turn = 0; turn < 20; ++turn) {
    const std::unique_ptr<Encoder> encoder = make_encoder(balanced);
    std::array<std::string, 4> names;
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < names.size(); ++i)
        threads.emplace_back(
            [&, i] { names[i] = name_of(*encoder, (i + static_cast<size_t>(turn)) % 2 == 0 ? waves : repeating); });
    }
    for (const std::string& name : names) EXPECT_EQ(name, names.front()) << turn;
  }
}

TEST(Chooser, PaperLeavesSmallVariablesOutOfTheFirstPass) {
  const ByteVector raw(1000, std::byte{'x'});
  const PackShape shape{{}, {test::run_of(1000)}};
  const CodecPolicy paper = *CodecPolicy::parse("paper");
  EXPECT_EQ(*recipe_name(make_encoder(paper)->encode(raw, shape)->recipe), "lz4+gzip");
  EXPECT_EQ(*recipe_name(make_encoder(paper, PackContents::skeletons)->encode(raw, shape)->recipe), "gzip");
}

TEST(Chooser, OneEncoderServesSeveralThreads) {
  const std::unique_ptr<Encoder> encoder = make_encoder(*CodecPolicy::parse("balanced"));
  const Pack pack = field_pack(1e-5);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 10; ++repeat) expect_round_trip(*encoder, pack);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace varve
