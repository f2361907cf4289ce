#include "redundancy/parity_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/memory_file_system.h"

namespace varve {
namespace {

/// Members with one file each of these lengths; sums are made up.
ProtectedGroup group_of(std::string_view scheme, const std::vector<uint64_t>& bytes) {
  ProtectedGroup group{"job@7", Redundancy::parse(scheme).value(), ScoreAlgorithm::sha256, {}};
  for (size_t i = 0; i < bytes.size(); ++i) {
    ProtectedMember member{"node" + std::to_string(i), {{"a.arena", bytes[i], {}}, {"b.set", 0, {}}}, {}};
    member.files[0].sum.bytes[3] = static_cast<std::byte>(i);
    for (uint64_t sum = 0; sum < block_sum_count(bytes[i], group.redundancy.data_parts); ++sum) {
      member.block_sums.push_back(static_cast<uint32_t>(1000 * i + sum));
    }
    group.members.push_back(std::move(member));
  }
  return group;
}

struct ParityFile : testing::Test {
  static constexpr const char* kPath = "/redundancy.parity";
  ParityGroup group = ParityGroup::create(group_of("rs:2+2", {3'000'000, 5, 0, 1'100'000, 40'000})).value();

  /// Writes the file of a member with blocks that are drawn from `seed`.
  Status write(FileSystem& fs, uint32_t position, uint64_t seed = 1) {
    VARVE_ASSIGN(ParityFileWriter writer, ParityFileWriter::create(fs, kPath, group, position));
    std::mt19937_64 random(seed);
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t stripe = group.geometry().stripe_of_parity(position, row);
      for (uint64_t block = 0; block < parity_blocks(group.geometry().stripe_bytes(stripe)); ++block) {
        ByteVector bytes(group.geometry().block_bytes(stripe, block));
        for (std::byte& each : bytes) each = static_cast<std::byte>(random());
        VARVE_TRY(writer.append(bytes));
      }
    }
    return writer.finish();
  }
  static ByteVector contents(FileSystem& fs) { return read_file(fs, kPath, 64_MiB).value(); }
  static std::unique_ptr<MemoryFileSystem> holding(ByteSpan bytes) {
    auto fs = std::make_unique<MemoryFileSystem>();
    EXPECT_TRUE(fs->create(kPath).value()->write_at(0, bytes).ok());
    return fs;
  }
  static Result<ParityHeader> header_of(ByteSpan bytes) {
    const auto fs = holding(bytes);
    return read_parity_header(*fs->open_read(kPath).value(), kPath);
  }
};

TEST_F(ParityFile, IsReadBack) {
  for (uint32_t position = 0; position < group.members(); ++position) {
    MemoryFileSystem fs;
    ASSERT_TRUE(write(fs, position).ok());
    EXPECT_EQ(contents(fs).size(), group.parity_file_bytes(position));
    const Result<ParityHeader> header = header_of(contents(fs));
    ASSERT_TRUE(header.ok()) << header.status().to_string();
    EXPECT_EQ(header->position, position);
    EXPECT_EQ(header->group.group(), group.group());
    const Status whole = verify_parity_file(fs, kPath, group, position);
    EXPECT_TRUE(whole.ok()) << whole.to_string();
    EXPECT_EQ(verify_parity_file(fs, kPath, group, (position + 1) % 5).code(), StatusCode::corrupt);
  }
}

TEST_F(ParityFile, IsNotFinishedBeforeItsLastBlock) {
  MemoryFileSystem fs;
  Result<ParityFileWriter> writer = ParityFileWriter::create(fs, kPath, group, 1);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->finish().code(), StatusCode::internal);
  EXPECT_EQ(writer->append(ByteVector(3)).code(), StatusCode::internal);
}

TEST_F(ParityFile, OfAnotherGroupIsNotTaken) {
  MemoryFileSystem fs;
  ASSERT_TRUE(write(fs, 0).ok());
  ProtectedGroup other = group.group();
  other.label = "job@8";
  EXPECT_EQ(verify_parity_file(fs, kPath, ParityGroup::create(other).value(), 0).code(), StatusCode::corrupt);
  other = group.group();
  other.members[4].files[0].sum.bytes[0] = std::byte{1};
  EXPECT_EQ(verify_parity_file(fs, kPath, ParityGroup::create(other).value(), 0).code(), StatusCode::corrupt);
}

TEST_F(ParityFile, NoticesEveryDamage) {
  MemoryFileSystem fs;
  ASSERT_TRUE(write(fs, 2).ok());
  const ByteVector good = contents(fs);
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    ByteVector bad = good;
    // The header in most rounds, as most of its bytes mean something else each.
    const size_t range = round % 3 == 0 ? bad.size() : std::min<size_t>(bad.size(), group.header_bytes());
    bad[random() % range] ^= static_cast<std::byte>(1u << random() % 8);
    EXPECT_FALSE(verify_parity_file(*holding(bad), kPath, group, 2).ok()) << "round " << round;
  }
  for (size_t bytes : {size_t{0}, size_t{5}, size_t{16}, size_t{40}, good.size() - 1}) {
    EXPECT_EQ(verify_parity_file(*holding(ByteSpan(good).first(bytes)), kPath, group, 2).code(), StatusCode::corrupt);
  }
  ByteVector longer = good;
  longer.push_back({});
  EXPECT_EQ(verify_parity_file(*holding(longer), kPath, group, 2).code(), StatusCode::corrupt);
}

TEST_F(ParityFile, NoticesBlocksThatChangedPlaces) {
  const ParityGroup even = ParityGroup::create(group_of("partner", {2_MiB, 2_MiB})).value();
  const ByteVector block(kParityBlockBytes, std::byte{9});
  ByteVector record(4);
  store_le<uint32_t>(record.data(), even.record_sum(0, even.record_offset(0, 0, 0), block));
  record.insert(record.end(), block.begin(), block.end());
  EXPECT_TRUE(open_parity_record(even, 0, even.record_offset(0, 0, 0), record).ok());
  EXPECT_FALSE(open_parity_record(even, 0, even.record_offset(0, 0, 1), record).ok());
  EXPECT_FALSE(open_parity_record(even, 1, even.record_offset(0, 0, 0), record).ok());
  EXPECT_FALSE(open_parity_record(even, 0, 0, ByteSpan(record).first(4)).ok());
  EXPECT_FALSE(open_parity_record(even, 0, 0, ByteSpan(record).first(2)).ok());
}

TEST_F(ParityFile, OfAnotherVersionIsUnsupported) {
  MemoryFileSystem fs;
  ASSERT_TRUE(write(fs, 0).ok());
  ByteVector bytes = contents(fs);
  bytes[8] = std::byte{2};
  EXPECT_EQ(header_of(bytes).status().code(), StatusCode::unsupported);
}

/// A file with a header around any description, and a right checksum.
ByteVector with_description(ByteSpan description, uint16_t position = 0) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.bytes(as_bytes("VARVEPAR"));
  out.le16(1);
  out.le16(position);
  out.le32(static_cast<uint32_t>(description.size()));
  out.bytes(description);
  out.le32(crc32c(bytes));
  return bytes;
}

TEST_F(ParityFile, WithAHostileHeaderIsRefused) {
  ByteVector enormous = with_description(group.description());
  store_le<uint32_t>(enormous.data() + 12, UINT32_MAX);
  EXPECT_EQ(header_of(enormous).status().code(), StatusCode::corrupt);
  EXPECT_EQ(header_of(with_description(group.description(), 5)).status().code(), StatusCode::corrupt);

  const auto hostile = [](auto&& fill) {
    ByteVector description;
    ByteWriter out(description);
    fill(out);
    return header_of(with_description(description)).status().code();
  };
  const auto begin = [](ByteWriter& out, std::string_view scheme = "partner") {
    out.text("job@7");
    out.text(scheme);
    out.u8(2);
  };
  const auto member = [](ByteWriter& out, std::string_view node, std::string_view file, uint64_t bytes) {
    out.text(node);
    out.varint(1);
    out.text(file);
    out.varint(bytes);
    out.bytes(ByteVector(32));
  };
  EXPECT_EQ(hostile([](ByteWriter&) {}), StatusCode::corrupt);
  EXPECT_EQ(hostile([&](ByteWriter& out) { begin(out, "raid"); }), StatusCode::corrupt);
  // A scheme that this group is too small for, counts that nothing backs, lengths that would fill all memory.
  EXPECT_EQ(hostile([&](ByteWriter& out) { begin(out, "rs:4+2"), out.varint(0); }), StatusCode::corrupt);
  EXPECT_EQ(hostile([&](ByteWriter& out) { begin(out), out.varint(UINT64_MAX); }), StatusCode::corrupt);
  EXPECT_EQ(hostile([&](ByteWriter& out) {
              begin(out), out.varint(2), out.text("a"), out.varint(uint64_t{1} << 60), out.bytes(ByteVector(64));
            }),
            StatusCode::corrupt);
  for (uint64_t bytes : {uint64_t{1} << 50, uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_EQ(hostile([&](ByteWriter& out) { begin(out), out.varint(2), member(out, "a", "f", bytes); }),
              StatusCode::corrupt);
  }
  for (std::string_view name : {"", ".", "..", "../f", "/f", "redundancy.parity", "f.rebuilding"}) {
    EXPECT_EQ(hostile([&](ByteWriter& out) {
                begin(out), out.varint(2), member(out, "a", name, 0), member(out, "b", "f", 0);
              }),
              StatusCode::corrupt)
        << name;
  }
  EXPECT_EQ(
      hostile([&](ByteWriter& out) { begin(out), out.varint(2), member(out, "a", "f", 0), member(out, "a", "f", 0); }),
      StatusCode::corrupt);
  EXPECT_EQ(hostile([&](ByteWriter& out) {
              begin(out), out.varint(2), member(out, "a", "f", 0), member(out, "b", "f", 0), out.u8(0);
            }),
            StatusCode::corrupt);
}

TEST_F(ParityFile, WithAMutatedDescriptionIsRefusedOrMakesSense) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    ByteVector description = group.description();
    for (uint64_t change = random() % 4; change < 4; ++change) {
      description[random() % description.size()] = static_cast<std::byte>(random());
    }
    const Result<ParityGroup> mutated = ParityGroup::decode(description);
    EXPECT_TRUE(!mutated.ok() || mutated->description() == description);
  }
}

TEST(ParityGroup, RefusesWhatMakesNoSense) {
  const ProtectedGroup good = group_of("xor:3", {10, 20, 30});
  ASSERT_TRUE(ParityGroup::create(good).ok());
  const auto refused = [&](auto&& change) {
    ProtectedGroup group = good;
    change(group);
    return !ParityGroup::create(std::move(group)).ok();
  };
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.label.clear(); }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.redundancy.data_parts = 0; }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.redundancy.parity_parts = 2; }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.algorithm = static_cast<ScoreAlgorithm>(9); }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members.pop_back(); }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members[0].block_sums.pop_back(); }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members[1].files[0].name = "z"; }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members[1].files[1].name = "a.arena"; }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members[1].files[1].bytes = UINT64_MAX; }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members[1].node = group.members[2].node; }));
  EXPECT_TRUE(refused([](ProtectedGroup& group) { group.members[1].node.clear(); }));
}

TEST(ProtectedMember, IsSentAndReceived) {
  const ProtectedMember member = group_of("rs:2+1", {3'000'000, 0, 0}).members[0];
  const ByteVector bytes = encode_member(member);
  EXPECT_EQ(decode_member(bytes, 2).value(), member);
  EXPECT_EQ(decode_member(bytes, 0).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(decode_member(bytes, 50).status().code(), StatusCode::corrupt);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_member(ByteSpan(bytes).first(length), 2).status().code(), StatusCode::corrupt);
  }
}

}  // namespace
}  // namespace varve
