// Redundancy among ranks that share nothing: each works on its own disk, at the same time, and gets the others' blocks
// in collective rounds.
#include "redundancy/node_exchange.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "redundancy/rebuild.h"
#include "redundancy/test_node_group.h"
#include "varve/communicator.h"

namespace varve {
namespace {

/// A round is two collective calls: what everybody wants, then what everybody has for the others. Simple, not fast.
class GatheringExchange final : public BlockExchange {
 public:
  GatheringExchange(Communicator& ranks, MemberReader& own) : ranks_(ranks), own_(own) {}

  Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) override {
    ByteVector wanted;
    ByteWriter out(wanted);
    out.varint(requests.size());
    for (const BlockRequest& request : requests) {
      out.le32(request.member);
      out.u8(static_cast<uint8_t>(request.kind));
      out.le64(request.offset);
      out.le64(request.bytes);
    }
    VARVE_ASSIGN(const auto all_wanted, ranks_.all_gather(wanted));
    std::vector<std::vector<BlockRequest>> all;
    for (const ByteVector& each : all_wanted) all.push_back(decode(each));
    VARVE_ASSIGN(const auto served, ranks_.all_gather(serve(all)));
    return take(all, served, into);
  }

 private:
  static std::vector<BlockRequest> decode(ByteSpan bytes) {
    ByteReader in(bytes);
    std::vector<BlockRequest> requests(in.varint().value());
    for (BlockRequest& request : requests) {
      request.member = in.le32().value();
      request.kind = static_cast<BlockRequest::Kind>(in.u8().value());
      request.offset = in.le64().value();
      request.bytes = in.le64().value();
    }
    return requests;
  }
  /// What all want of this member, one after another: whether it could be read, then the bytes.
  ByteVector serve(const std::vector<std::vector<BlockRequest>>& all) {
    ByteVector reply;
    for (const auto& requests : all) {
      for (const BlockRequest& request : requests) {
        if (request.member != ranks_.rank()) continue;
        ByteVector block(request.bytes);
        const Status status = request.kind == BlockRequest::Kind::stream ? own_.read_stream(request.offset, block)
                                                                         : own_.read_parity_file(request.offset, block);
        reply.push_back(std::byte{status.ok()});
        reply.insert(reply.end(), block.begin(), block.end());
      }
    }
    return reply;
  }
  Status take(const std::vector<std::vector<BlockRequest>>& all, const std::vector<ByteVector>& served,
              std::span<const MutableByteSpan> into) {
    std::vector<size_t> at(served.size());
    Status status;
    for (uint32_t rank = 0; rank < all.size(); ++rank) {
      for (size_t i = 0; i < all[rank].size(); ++i) {
        const BlockRequest& request = all[rank][i];
        const ByteSpan reply = ByteSpan(served[request.member]).subspan(at[request.member], 1 + request.bytes);
        at[request.member] += reply.size();
        if (rank != ranks_.rank()) continue;
        if (reply[0] == std::byte{0}) status = Status::io_error("another member cannot read a block");
        std::copy(reply.begin() + 1, reply.end(), into[i].begin());
      }
    }
    return status;
  }

  Communicator& ranks_;
  MemberReader& own_;
};

/// What each member does, at the same time as all others; returns how it ended for each.
std::vector<Status> on_all_members(
    test::NodeGroup& cluster, const ParityGroup& group,
    const std::function<Status(uint32_t position, FileSystem& fs, BlockExchange& exchange)>& act) {
  std::vector<Status> ended(cluster.members());
  std::vector<std::thread> threads;
  auto ranks = make_thread_communicators(cluster.members());
  for (uint32_t position = 0; position < cluster.members(); ++position) {
    threads.emplace_back([&, position] {
      MemberReader reader(cluster.fs(position), cluster.folder(), group.member(position).files);
      GatheringExchange exchange(*ranks[position], reader);
      ended[position] = act(position, cluster.fs(position), exchange);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

TEST(BlockExchange, CanBeCollective) {
  test::FileSizes sizes(6, {{"a.arena", 5000}, {"b.set", 100}});
  sizes[2]["a.arena"] = 6 * kParityBlockBytes + 17;
  sizes[4] = {};
  test::NodeGroup cluster("rs:3+2", sizes, 1);
  const ParityGroup group = cluster.describe().value();
  for (const Status& status : on_all_members(cluster, group, [&](uint32_t position, FileSystem&fs, auto&exchange) {
         return make_parity(fs, cluster.folder(), group, position, exchange);
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  const test::NodeGroup whole = cluster.copy();
  test::NodeGroup in_turns("rs:3+2", sizes, 1);
  ASSERT_TRUE(in_turns.protect().ok());
  EXPECT_TRUE(in_turns.same_files(whole));

  cluster.lose(2);
  cluster.lose(3);
  const test::NodeGroup::Rebuilding rebuilding = cluster.look().value();
  for (const Status& status : on_all_members(cluster, group, [&](uint32_t position, FileSystem&fs, auto&exchange) {
         return rebuild(fs, cluster.folder(), rebuilding.plan, position, exchange);
       })) {
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_TRUE(cluster.same_files(whole));
}

TEST(BlockExchange, GoesOnForTheOthersWhenAMemberFails) {
  test::NodeGroup cluster("xor:4", test::FileSizes(4, {{"a.arena", 4 * kParityBlockBytes}}), 2);
  test::NodeGroup whole = cluster.copy();
  ASSERT_TRUE(whole.protect().ok());
  const ParityGroup group = cluster.describe().value();
  const std::vector<Status> ended =
      on_all_members(cluster, group, [&](uint32_t position, FileSystem& fs, auto& exchange) {
        FaultyFileSystem full(fs, {{.kind = FaultKind::no_space, .at_operation = 1, .persistent = true}});
        FileSystem& own = position == 1 ? full : fs;
        return make_parity(own, cluster.folder(), group, position, exchange);
      });
  for (uint32_t position = 0; position < 4; ++position) {
    EXPECT_EQ(ended[position].code(), position == 1 ? StatusCode::no_space : StatusCode::ok);
    EXPECT_EQ(cluster.same_files_of(whole, position), position != 1);
  }
  EXPECT_EQ(cluster.file_names(1), std::vector<std::string>{"a.arena"});
}

}  // namespace
}  // namespace varve
