// The full product of data sets, schemes, chains and chunkers.

#include <gtest/gtest.h>

#include <cstdlib>

#include "codec/codec.h"
#include "sets/round_trip.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

using test::TempFolder;

/// Every codec on its own, every filter before an entropy coder, and every policy.
std::vector<std::string> all_chains() {
  std::vector<std::string> chains = {"fast", "balanced", "best", "paper", "store", "fpc+zstd", "fpzip+gzip"};
  for (const Codec* codec : all_codecs()) {
    chains.emplace_back(codec->name());
    const bool filter = codec->number() >= CodecNumber::shuffle && codec->number() < CodecNumber::fpc;
    for (const char* coder : {"zstd", "lz4", "lorenzo+shuffle+zstd", "lorenzo+magnitudes", "delta+bitshuffle+gzip"}) {
      if (filter && CodecChain::parse(coder).ok()) chains.push_back(std::string(codec->name()) + "+" + coder);
    }
  }
  std::erase_if(chains, [](const std::string& chain) { return !CodecPolicy::parse(chain).ok(); });
  return chains;
}

const std::vector<std::string> kChunkers = {"fixed:8192", "fixed:65536", "gear:8192", "rabin:8192", "gear:1024"};

struct EveryProgram : testing::TestWithParam<Scheme> {};

TEST_P(EveryProgram, ComesBackWithEveryChainAndChunker) {
  const auto programs = test::real_data();
  if (programs.empty()) GTEST_SKIP() << "VARVE_TEST_DATA is not set";
  for (const std::string& codec : all_chains()) {
    for (const std::string& chunker : kChunkers) {
      for (const auto& dumps : programs) ASSERT_TRUE(test::come_back(dumps, {GetParam(), codec, chunker}));
    }
  }
}

TEST_P(EveryProgram, OfTheZooComesBackWithEveryChainAndChunker) {
  const TempFolder folder;
  zoo::Options options;
  options.tiny_variables = 2'000;
  options.huge_file_bytes = 1_GiB;
  zoo::make_zoo(folder.path(), options);
  for (const std::string& codec : all_chains()) {
    for (const std::string& chunker : kChunkers)
      ASSERT_TRUE(test::come_back({folder.path()}, {GetParam(), codec, chunker}));
  }
}

TEST_P(EveryProgram, OfAHundredThousandVariablesComesBack) {
  const TempFolder folder;
  zoo::Options options;
  options.tiny_variables = 100'000;
  zoo::make_zoo(folder.path(), options);
  ASSERT_TRUE(test::come_back({folder.path()}, {GetParam(), "balanced", "fixed:8192"}));
}

/// Images of whole processes, which the data hold compressed.
TEST_P(EveryProgram, UnpackedFromItsImageComesBack) {
  const char* data = std::getenv("VARVE_TEST_DATA");
  if (data == nullptr || std::system("command -v zstd >/dev/null") != 0) GTEST_SKIP() << "no data, or no zstd";
  const TempFolder folder;
  const std::string unpack = "cd '" + std::string(data) + "' && find . -name '*.zst' | while read -r f; do mkdir -p '" +
                             folder.path() + "'/$(dirname \"$f\") && zstd -q -d --long=27 \"$f\" -o '" + folder.path() +
                             "'/\"${f%.zst}\"; done";
  ASSERT_EQ(std::system(unpack.c_str()), 0);
  for (const char* chunker : {"fixed:4096", "gear:8192"}) {
    ASSERT_TRUE(test::come_back({folder.path()}, {GetParam(), "balanced", chunker}));
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, EveryProgram, testing::ValuesIn(test::kSchemes),
                         [](const testing::TestParamInfo<Scheme>& scheme) {
                           std::string name(scheme_name(scheme.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace varve
