#include "redundancy/node_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/agreement.h"
#include "comm/communicators.h"

namespace varve {

namespace {
/// A block of parity comes with its checksum.
constexpr uint64_t kRequestBytesMax = kParityBlockBytes + 4;
/// What all ranks together give to one collective call is about so much, and what one gives at least.
constexpr uint64_t kCallBytes = 16_MiB, kPieceBytesMin = 16_KiB;
constexpr uint8_t kCodeMax = static_cast<uint8_t>(StatusCode::internal);
}  // namespace

/// A block on its way, for the collective calls of one wave.
struct CommunicatorExchange::Transfer {
  Request request;
  uint32_t to = 0;
  size_t index = 0;  ///< among the requests of `to`
  bool none = true;  ///< this server has none in the wave
};

CommunicatorExchange::CommunicatorExchange(Communicator& ranks, std::vector<uint32_t> rank_of_member, MemberReader* own)
    : ranks_(ranks), rank_of_member_(std::move(rank_of_member)), own_(own), block_(kRequestBytesMax) {}

Status CommunicatorExchange::prepare() {
  if (!ranks_.concurrent() || sender_) return {};
  sender_.emplace(1);
  if (sender_->thread_count() > 0) return {};
  return Status::resource_limit("the system refuses a thread that sends what other nodes ask for");
}

Status CommunicatorExchange::check_requests(std::span<const BlockRequest> requests,
                                            std::span<const MutableByteSpan> into) const {
  if (requests.size() != into.size() || requests.size() > kRequestsMax) {
    return Status::internal("too many blocks are asked for at once");
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].member >= rank_of_member_.size()) return Status::internal("a block of no member is asked for");
    if (requests[i].bytes != into[i].size() || requests[i].bytes > kRequestBytesMax) {
      return Status::internal("a block is asked for that is none");
    }
  }
  return {};
}

Status CommunicatorExchange::fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) {
  // Who asks for what it may not still takes part.
  const Status allowed = check_requests(requests, into);
  if (!allowed.ok()) {
    requests = {};
    into = {};
  }
  VARVE_ASSIGN(const Round round, tell(requests, false));
  const Status status = exchange(round, into);
  return allowed.ok() ? status : allowed;
}

Status CommunicatorExchange::finish() {
  while (true) {
    VARVE_ASSIGN(const Round round, tell({}, true));
    if (round.all_done) return {};
    VARVE_TRY(exchange(round, {}));
  }
}

// What a rank tells: done u8, count varint, then of each request: rank varint, kind u8, offset varint, bytes varint.

Result<CommunicatorExchange::Round> CommunicatorExchange::tell(std::span<const BlockRequest> requests, bool done) {
  ByteVector told;
  ByteWriter out(told);
  out.u8(done ? 1 : 0);
  out.varint(requests.size());
  for (const BlockRequest& request : requests) {
    out.varint(rank_of_member_[request.member]);
    out.u8(static_cast<uint8_t>(request.kind));
    out.varint(request.offset);
    out.varint(request.bytes);
  }
  VARVE_ASSIGN(const std::vector<ByteVector> all, ranks_.all_gather(told));
  Round round;
  round.all_done = true;
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    bool rank_done = false;
    std::optional<std::vector<Request>> asked = decode(all[rank], ranks_.rank_count(), rank_done);
    if (rank == ranks_.rank() && (!asked || asked->size() != requests.size())) {
      return Status::internal("what this rank asks for is not what it told");
    }
    round.requests.push_back(asked ? std::move(*asked) : std::vector<Request>());
    round.all_done = round.all_done && rank_done;
  }
  return round;
}

std::optional<std::vector<CommunicatorExchange::Request>> CommunicatorExchange::decode(ByteSpan told,
                                                                                       uint32_t rank_count,
                                                                                       bool& done) {
  ByteReader in(told);
  const Result<uint8_t> is_done = in.u8();
  done = is_done.ok() && *is_done == 1;
  const Result<uint64_t> count = in.count(4);
  if (!is_done.ok() || *is_done > 1 || !count.ok() || *count > kRequestsMax) return std::nullopt;
  std::vector<Request> requests;
  for (uint64_t i = 0; i < *count; ++i) {
    const Result<uint64_t> server = in.varint();
    const Result<uint8_t> kind = in.u8();
    const Result<uint64_t> offset = in.varint();
    const Result<uint64_t> bytes = in.varint();
    if (!server.ok() || !kind.ok() || !offset.ok() || !bytes.ok()) return std::nullopt;
    if (*server >= rank_count || *kind > 1 || *bytes > kRequestBytesMax) return std::nullopt;
    requests.push_back({static_cast<uint32_t>(*server), static_cast<BlockRequest::Kind>(*kind), *offset, *bytes});
  }
  if (!in.at_end()) return std::nullopt;
  return requests;
}

Status CommunicatorExchange::exchange(const Round& round, std::span<const MutableByteSpan> into) {
  return ranks_.concurrent() ? exchange_by_messages(round, into) : exchange_collectively(round, into);
}

Status CommunicatorExchange::read_block(const Request& request) {
  if (own_ == nullptr) return Status::invalid_argument("a block is asked of a rank that has none");
  const auto into = MutableByteSpan(block_).first(request.bytes);
  return request.kind == BlockRequest::Kind::stream ? own_->read_stream(request.offset, into)
                                                    : own_->read_parity_file(request.offset, into);
}

Status CommunicatorExchange::not_served(uint32_t server, StatusCode code) const {
  const auto member = std::find(rank_of_member_.begin(), rank_of_member_.end(), server) - rank_of_member_.begin();
  return {code, fmt::format("another node cannot read what it was asked for ({})", status_code_name(code)),
          fmt::format("position {}", member)};
}

// By messages: a byte that is the status code, then the block if that is OK. In turn d all send to the rank that is d
// before them and receive from the one that is d behind: nobody waits for a message of a later turn, and none is sent
// to by all at once.

Status CommunicatorExchange::exchange_by_messages(const Round& round, std::span<const MutableByteSpan> into) {
  VARVE_TRY(prepare());
  auto serving = sender_->submit([&] { serve_by_messages(round); });
  const std::vector<Request>& wanted = round.requests[ranks_.rank()];
  Status status;
  for (uint32_t turn = 0; turn < ranks_.rank_count(); ++turn) {
    const uint32_t server = (ranks_.rank() + turn) % ranks_.rank_count();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].server != server) continue;
      const Status received = receive_from(server, into[i]);
      if (status.ok()) status = received;
    }
  }
  const Status served = serving.wait();
  return status.ok() ? served : status;
}

void CommunicatorExchange::serve_by_messages(const Round& round) {
  const uint32_t count = ranks_.rank_count();
  for (uint32_t turn = 0; turn < count; ++turn) {
    const uint32_t to = (ranks_.rank() + count - turn) % count;
    for (const Request& request : round.requests[to]) {
      if (request.server != ranks_.rank()) continue;
      const Status read = read_block(request);
      const std::array<std::byte, 1> code = {static_cast<std::byte>(read.code())};
      Status sent = ranks_.send(to, kTag, code);
      if (sent.ok() && read.ok()) sent = ranks_.send(to, kTag, ByteSpan(block_).first(request.bytes));
      sent.ignore("who cannot be reached has ended, which the next round shows");
    }
  }
}

Status CommunicatorExchange::receive_from(uint32_t server, MutableByteSpan into) {
  std::array<std::byte, 1> code;
  VARVE_TRY(ranks_.receive(server, kTag, code));
  const auto value = static_cast<uint8_t>(code[0]);
  if (value > kCodeMax) return Status::corrupt("another node answers with garbage");
  if (value != 0) return not_served(server, static_cast<StatusCode>(value));
  return ranks_.receive(server, kTag, into);
}

// By collective calls: in a wave each rank serves one block at most; it goes round in pieces, of which the first begins
// with the status code.

Status CommunicatorExchange::exchange_collectively(const Round& round, std::span<const MutableByteSpan> into) {
  std::vector<std::vector<Transfer>> of_server(ranks_.rank_count());
  size_t waves = 0;
  for (uint32_t to = 0; to < round.requests.size(); ++to) {
    for (size_t i = 0; i < round.requests[to].size(); ++i) {
      std::vector<Transfer>& transfers = of_server[round.requests[to][i].server];
      transfers.push_back({round.requests[to][i], to, i, false});
      waves = std::max(waves, transfers.size());
    }
  }
  Status status;
  for (size_t number = 0; number < waves; ++number) {
    std::vector<Transfer> wave(ranks_.rank_count());
    for (uint32_t server = 0; server < wave.size(); ++server) {
      if (number < of_server[server].size()) wave[server] = of_server[server][number];
    }
    const Status done = exchange_wave(wave, into);
    if (status.ok()) status = done;
  }
  return status;
}

Status CommunicatorExchange::exchange_wave(const std::vector<Transfer>& wave, std::span<const MutableByteSpan> into) {
  const uint64_t piece_bytes = std::clamp(kCallBytes / wave.size(), kPieceBytesMin, kRequestBytesMax);
  uint64_t longest = 0;
  for (const Transfer& transfer : wave) {
    if (!transfer.none) longest = std::max(longest, transfer.request.bytes);
  }
  const Transfer& own = wave[ranks_.rank()];
  const Status read = own.none ? Status() : read_block(own.request);
  std::vector<bool> refused(wave.size(), false);
  Status status;
  uint64_t at = 0;
  do {
    ByteVector piece;
    if (!own.none && at == 0) piece.push_back(static_cast<std::byte>(read.code()));
    const auto part_of = [&](const Transfer& transfer) {
      const uint64_t begin = std::min(at, transfer.request.bytes);
      return std::pair(begin, std::min(piece_bytes, transfer.request.bytes - begin));
    };
    if (!own.none && read.ok()) {
      const auto [begin, bytes] = part_of(own);
      const ByteSpan part = ByteSpan(block_).subspan(begin, bytes);
      piece.insert(piece.end(), part.begin(), part.end());
    }
    VARVE_ASSIGN(const std::vector<ByteVector> all, ranks_.all_gather(piece));
    for (uint32_t server = 0; server < wave.size(); ++server) {
      if (wave[server].none || wave[server].to != ranks_.rank() || refused[server]) continue;
      ByteSpan given = all[server];
      Status taken;
      if (at == 0) {
        const uint8_t code = given.empty() ? kCodeMax : static_cast<uint8_t>(given[0]);
        if (code != 0) taken = not_served(server, static_cast<StatusCode>(std::min(code, kCodeMax)));
        given = given.subspan(given.empty() ? 0 : 1);
      }
      const auto [begin, bytes] = part_of(wave[server]);
      if (taken.ok() && given.size() != bytes) taken = Status::corrupt("another node answers with garbage");
      refused[server] = !taken.ok();
      if (taken.ok())
        std::copy(given.begin(), given.end(), into[wave[server].index].begin() + static_cast<ptrdiff_t>(begin));
      if (status.ok()) status = taken;
    }
    at += piece_bytes;
  } while (at < longest);
  return status;
}

FolderExchange::FolderExchange(const ParityGroup& group, const std::vector<Place>& places) {
  for (uint32_t position = 0; position < places.size(); ++position) {
    readers_.emplace_back(*places[position].fs, places[position].folder, group.member(position).files);
  }
}

Status FolderExchange::fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const BlockRequest& request = requests[i];
    if (request.member >= readers_.size()) return Status::internal("a block of no member is asked for");
    MemberReader& reader = readers_[request.member];
    VARVE_TRY(request.kind == BlockRequest::Kind::stream ? reader.read_stream(request.offset, into[i])
                                                         : reader.read_parity_file(request.offset, into[i]));
  }
  return {};
}

Result<std::unique_ptr<LeaderGroup>> LeaderGroup::create(Communicator& leaders, std::vector<uint32_t> members) {
  std::unique_ptr<LeaderGroup> group(new LeaderGroup(leaders, std::move(members)));
  if (!group->is_member()) return group;
  const auto own = std::find(group->members_.begin(), group->members_.end(), leaders.rank());
  if (own == group->members_.end()) return Status::internal("a node is in a failure group without being a member");
  group->position_ = static_cast<uint32_t>(own - group->members_.begin());
  if (leaders.concurrent()) {
    VARVE_ASSIGN(group->own_, make_subset_communicator(leaders, group->members_, 0));
  }
  return group;
}

Result<std::vector<ByteVector>> LeaderGroup::gather(ByteSpan mine) {
  if (own_ != nullptr) return own_->all_gather(mine);
  std::vector<ByteVector> gathered(members_.size());
  // One after another, so that no rank has to hold what concerns other groups.
  for (uint32_t rank = 0; rank < leaders_.rank_count(); ++rank) {
    VARVE_ASSIGN(ByteVector given, leaders_.broadcast(rank == leaders_.rank() ? mine : ByteSpan(), rank));
    const auto member = std::find(members_.begin(), members_.end(), rank);
    if (member != members_.end()) gathered[static_cast<size_t>(member - members_.begin())] = std::move(given);
  }
  return gathered;
}

std::unique_ptr<CommunicatorExchange> LeaderGroup::make_exchange(MemberReader* own) {
  if (own_ == nullptr) return std::make_unique<CommunicatorExchange>(leaders_, members_, own);
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < own_->rank_count(); ++rank) ranks.push_back(rank);
  return std::make_unique<CommunicatorExchange>(*own_, std::move(ranks), own);
}

Status agree_among_nodes(Communicator& leaders, const std::string& node, const Status& mine) {
  const std::string context = node.empty() ? std::string() : "node " + node;
  const Status named = mine.ok() || context.empty() ? mine : mine.with_context(context);
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(leaders, named));
  return failures.empty() ? Status() : failures.front().what;
}

}  // namespace varve
