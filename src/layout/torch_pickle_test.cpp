#include "layout/torch_pickle.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "zoo/array_files.h"

namespace varve {
namespace {

using zoo::PickleWriter;

std::map<std::string, TorchStorage> read(const std::string& pickle) {
  return read_torch_pickle(as_bytes(pickle), ByteOrder::little);
}

PickleWriter& add_tensor(PickleWriter& pickle, std::string_view key) {
  return pickle.tensor("FloatStorage", key, 6, 0, {2, 3}, {3, 1});
}

TEST(TorchPickle, NamesStoragesByThePathOfTheirFirstTensor) {
  PickleWriter pickle;
  pickle.raw("}(").text("list").raw("](");
  add_tensor(pickle, "a");
  add_tensor(pickle, "b").raw("e");
  pickle.text("pair");
  add_tensor(pickle, "c");
  add_tensor(pickle, "a").raw("\x86");
  pickle.number(300).raw("}").text("inner");
  add_tensor(pickle, "d").raw("su");
  const auto storages = read(pickle.end());
  ASSERT_EQ(storages.size(), 4U);
  EXPECT_EQ(storages.at("a").name, "/list/0");
  EXPECT_EQ(storages.at("b").name, "/list/1");
  EXPECT_EQ(storages.at("c").name, "/pair/0");
  EXPECT_EQ(storages.at("d").name, "/300/inner");
  EXPECT_EQ(storages.at("a").type->type.name(), "F32LE");
  EXPECT_EQ(storages.at("a").shape, (std::vector<uint64_t>{2, 3}));
}

TEST(TorchPickle, LooksIntoObjectsAndParameters) {
  PickleWriter pickle;
  pickle.global("my_code", "Model").raw(")\x81}(").text("weight").global("torch._utils", "_rebuild_parameter").raw("(");
  add_tensor(pickle, "0").raw("\x88").global("collections", "OrderedDict").raw(")RtR").raw("ub");
  const auto storages = read(pickle.end());
  EXPECT_EQ(storages.at("0").name, "/weight");
}

TEST(TorchPickle, KnowsTheTypeThatTheNewestTensorsSay) {
  PickleWriter pickle;
  pickle.raw("}").text("w").global("torch._utils", "_rebuild_tensor_v3").raw("((").text("storage");
  pickle.global("torch.storage", "UntypedStorage").text("0").text("cpu").number(24).raw("tQ").number(0);
  pickle.numbers({2, 3}).numbers({3, 1}).raw("\x89").global("collections", "OrderedDict").raw(")R");
  pickle.global("torch", "float32").raw("tRs");
  const auto storages = read(pickle.end());
  EXPECT_EQ(storages.at("0").type->type.name(), "F32LE");
  EXPECT_EQ(storages.at("0").shape, (std::vector<uint64_t>{2, 3}));
}

TEST(TorchPickle, GivesNoShapeToTensorsThatDoNotLieRowByRow) {
  PickleWriter pickle;
  pickle.raw("](").tensor("FloatStorage", "0", 6, 0, {2, 3}, {1, 2}).tensor("FloatStorage", "1", 9, 3, {2, 3}, {3, 1});
  pickle.tensor("FloatStorage", "2", 6, 0, {2, 1, 3}, {3, 77, 1}).raw("e");
  const auto storages = read(pickle.end());
  EXPECT_FALSE(storages.at("0").shape);
  EXPECT_FALSE(storages.at("1").shape);
  EXPECT_EQ(storages.at("2").shape, (std::vector<uint64_t>{2, 1, 3})) << "the step along a single one says nothing";
}

TEST(TorchPickle, HasTypesButNoNamesWhereItIsNotUnderstood) {
  PickleWriter pickle;
  pickle.raw("}").text("w");
  const auto storages = read(add_tensor(pickle, "0").raw("s\xfe").end());
  EXPECT_EQ(storages.at("0").type->type.name(), "F32LE");
  EXPECT_EQ(storages.at("0").name, "");
}

TEST(TorchPickle, MayHoldItself) {
  PickleWriter pickle;
  // A list that is its own part, in a dictionary that is a part of it.
  pickle
      .raw(
          "]q\x01h\x01"
          "a}q\x02")
      .text("back")
      .raw("h\x01s")
      .text("w");
  add_tensor(pickle, "0").raw("sa");
  const auto storages = read(pickle.end());
  EXPECT_EQ(storages.at("0").name, "/1/w");
}

TEST(TorchPickle, IsDoneSoonHoweverOftenPartsAreShared) {
  PickleWriter pickle;
  // Each tuple holds the one before twice: 2 to the 60 paths.
  pickle.raw(")");
  for (int i = 0; i < 60; ++i) pickle.raw("2\x86");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(read(pickle.end()).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(TorchPickle, MayBeAsDeepAndAsLongAsItLikes) {
  EXPECT_TRUE(read("\x80\x02" + std::string(3'000'000, ']') + ".").empty());
  EXPECT_TRUE(read("\x80\x02" + std::string(3'000'000, '(') + ".").empty());
  std::string deep = "\x80\x02]";
  for (int i = 0; i < 200'000; ++i) deep += "\x85";
  EXPECT_TRUE(read(deep + ".").empty());
}

TEST(TorchPickle, IsNeverTakenAtItsWord) {
  for (const std::string& pickle :
       {std::string("\x80\x02X\xff\xff\xff\xff", 7), std::string("\x80\x02h\x05."), std::string("\x80\x02u."),
        std::string("\x80\x02s."), std::string("\x80\x02(R."), std::string("\x80\x02t."), std::string("\x80\x02Q."),
        std::string("\x80\x02"), std::string("."), std::string(),
        std::string("\x80\x02"
                    "cos\nsystem\nX\1\0\0\0a\x85R.",
                    23)}) {
    EXPECT_TRUE(read(pickle).empty());
  }
  PickleWriter long_key;
  EXPECT_TRUE(read(add_tensor(long_key.raw("]"), std::string(5000, 'k')).raw("a").end()).empty());
}

TEST(TorchPickle, SurvivesAnyBitsThatChange) {
  PickleWriter pickle;
  pickle.raw("}(").text("a").raw("](");
  add_tensor(pickle, "0");
  add_tensor(pickle, "1").raw("e").text("b").raw("}").number(1);
  const std::string whole = add_tensor(pickle, "2").raw("su").end();
  ASSERT_EQ(read(whole).at("2").name, "/b/1");
  const uint32_t seed = 1;
  std::mt19937 random(seed);
  for (size_t size = 0; size < whole.size(); ++size) read(whole.substr(0, size));
  for (size_t i = 0; i < 20'000; ++i) {
    std::string variant = whole;
    for (size_t flips = 1 + random() % 4; flips > 0; --flips)
      variant[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    read(variant);
  }
}

}  // namespace
}  // namespace varve
