#include "level/node_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/guarded.h"
#include "level/reshaped_image.h"

namespace varve {

namespace {
/// What a rank asks for in one round at most: so much memory, and so many places.
constexpr uint64_t kAskedBytesMax = 8_MiB;
constexpr size_t kAskedExtentsMax = 1024;
/// What a rank reads for others in one round at most, unless a single request is for more.
constexpr uint64_t kServedBytesMax = 64_MiB;
constexpr size_t kServingThreads = 4;
/// Of messages between ranks that restart. The leaders of nodes have those from 1024 on.
constexpr uint32_t kPartsTag = 512;

/// The first failure of all ranks, the same on all. Collective.
Status first_failure(Communicator& ranks, const Status& mine) {
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(ranks, mine));
  return failures.empty() ? Status() : failures.front().what;
}

/// What the leader of a node says that its node has.
struct NodeTold {
  uint32_t node = 0;
  std::optional<SetOrigin> origin{};
  uint32_t rank_count = 0;
  uint64_t number = 0;                     ///< of the set; 0: not known
  std::map<uint32_t, ToldTable> tables{};  ///< by rank of the run that made it
};

ByteVector encode_told(const LevelWorld& world, const HeldParts* mine) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.le32(world.seat.own_node);
  if (mine == nullptr || !world.speaks_for_node()) return bytes;
  out.le32(mine->rank_count());
  out.le64(mine->number());
  out.u8(mine->origin() ? 1 : 0);
  if (mine->origin()) out.bytes(mine->origin()->run.bytes);
  for (const uint32_t rank : mine->ranks()) tell_table(out, rank, mine->table(rank));
  return bytes;
}

Result<NodeTold> decode_told(ByteSpan bytes) {
  ByteReader in(bytes);
  NodeTold told;
  VARVE_ASSIGN(told.node, in.le32());
  if (in.at_end()) return told;
  VARVE_ASSIGN(told.rank_count, in.le32());
  VARVE_ASSIGN(told.number, in.le64());
  VARVE_ASSIGN(const uint8_t has_origin, in.u8());
  if (has_origin == 1) {
    told.origin.emplace();
    told.origin->rank_count = told.rank_count;
    VARVE_ASSIGN(told.origin->run, UniqueId::read(in));
  }
  while (!in.at_end()) {
    VARVE_ASSIGN(ToldTable table, told_table(in));
    if (table.rank >= told.rank_count) return Status::corrupt("a node tells of a rank that there was not");
    told.tables[table.rank] = std::move(table);
  }
  return told;
}

/// What all nodes have of one run.
struct OfOneRun {
  std::optional<SetOrigin> origin{};
  uint32_t rank_count = 0;
  uint64_t number = 0;
  std::map<uint32_t, std::pair<uint32_t, const ToldTable*>> parts{};  ///< by rank: node, and table
  bool is_whole() const { return rank_count > 0 && parts.size() == rank_count; }
};

std::vector<OfOneRun> sort_by_run(const std::vector<NodeTold>& nodes) {
  std::vector<OfOneRun> runs;
  for (const NodeTold& node : nodes) {
    if (node.tables.empty()) continue;
    auto run = std::find_if(runs.begin(), runs.end(), [&](const OfOneRun& other) {
      return other.origin == node.origin && other.rank_count == node.rank_count;
    });
    if (run == runs.end()) run = runs.insert(run, {node.origin, node.rank_count, 0, {}});
    run->number = std::max(run->number, node.number);
    for (const auto& [rank, table] : node.tables) run->parts.emplace(rank, std::pair(node.node, &table));
  }
  return runs;
}

/// The one that the nodes have wholly, if it is not an older set than what is wanted.
Result<const OfOneRun*> choose_run(const std::vector<OfOneRun>& runs, uint64_t number) {
  if (runs.empty()) return Status::not_found("no node has any of it");
  const auto is_wanted = [number](const OfOneRun& run) {
    return run.is_whole() && (run.number == 0 || run.number >= number);
  };
  const auto wanted = std::find_if(runs.begin(), runs.end(), is_wanted);
  constexpr const char* kMixed = "what the nodes have of it was made by different runs";
  if (std::count_if(runs.begin(), runs.end(), is_wanted) > 1) return Status::corrupt(kMixed);
  if (wanted != runs.end()) return &*wanted;
  if (std::any_of(runs.begin(), runs.end(), [](const OfOneRun& run) { return run.is_whole(); }))
    return Status::not_found("what all nodes have of it is an older set, which a run has left behind");
  if (runs.size() > 1) return Status::not_found(kMixed);
  const OfOneRun& run = runs.front();
  uint32_t missing = 0;
  while (run.parts.contains(missing)) ++missing;
  return Status::not_found(
      fmt::format("it was made by {} ranks, and the nodes of this run have the parts of {}: that "
                  "of rank {} is missing",
                  run.rank_count, run.parts.size(), missing));
}
}  // namespace

Result<std::unique_ptr<CheckpointParts>> NodeParts::gather(const LevelWorld& world, std::unique_ptr<HeldParts> mine,
                                                           uint64_t number) {
  std::unique_ptr<NodeParts> parts;
  const Result<ByteVector> told = run_guarded([&] {
    parts.reset(new NodeParts(world, std::move(mine)));
    return encode_told(world, parts->mine_.get());
  });
  std::array<uint64_t, 2> fine = {told.ok() ? uint64_t{1} : uint64_t{0}, world.ranks.concurrent() ? uint64_t{1} : 0};
  VARVE_TRY(world.ranks.all_min(fine));
  if (fine[0] == 0)
    return told.ok() ? Status::resource_limit("a rank lacks memory to tell what it has") : told.status();
  parts->has_messages_ = fine[1] == 1;
  VARVE_ASSIGN(std::vector<Told> all, gather_told(world.ranks, *told));
  const Status taken = run_guarded([&]() -> Status {
    std::vector<NodeTold> nodes;
    std::vector<std::vector<uint32_t>> ranks_of(world.seat.nodes.size());
    for (Told& of_rank : all) {
      VARVE_ASSIGN(NodeTold of_node, decode_told(of_rank.bytes));
      ranks_of.at(of_node.node).push_back(of_rank.rank);
      if (!of_node.tables.empty()) nodes.push_back(std::move(of_node));
      of_rank.bytes = {};
    }
    const std::vector<OfOneRun> runs = sort_by_run(nodes);
    VARVE_ASSIGN(const OfOneRun* const run, choose_run(runs, number));
    parts->origin_ = run->origin;
    std::vector<size_t> shared_out(ranks_of.size());
    for (const auto& [rank, held] : run->parts) {
      const auto& [node, table] = held;
      const std::vector<uint32_t>& readers = ranks_of[node];
      VARVE_TRY(parts->tables_.add(*table));
      parts->parts_.push_back(
          {table->image_bytes, node == world.seat.own_node, readers[shared_out[node]++ % readers.size()]});
    }
    return {};
  });
  VARVE_TRY(first_failure(world.ranks, taken));
  return std::unique_ptr<CheckpointParts>(std::move(parts));
}

// What a rank wants

/// In pieces of which each goes into a round.
void NodeParts::add_requests(const PartLoad& load, std::deque<Request>& requests) const {
  Request* request = nullptr;
  for (Extent extent : load.wanted) {
    while (extent.bytes > 0) {
      if (request == nullptr || request->bytes == kAskedBytesMax || request->wanted.size() == kAskedExtentsMax)
        request = &requests.emplace_back(Request{load.rank, {}, load.target, 0});
      const uint64_t bytes = std::min(extent.bytes, kAskedBytesMax - request->bytes);
      request->wanted.push_back({extent.offset, bytes});
      request->bytes += bytes;
      extent.offset += bytes;
      extent.bytes -= bytes;
    }
  }
}

namespace {
class MemoryTarget final : public ImageTarget {
 public:
  explicit MemoryTarget(const PartRead& read) : read_(read) {}
  void put(uint64_t offset, ByteSpan bytes) override {
    std::memcpy(read_.into.data() + (offset - read_.offset), bytes.data(), bytes.size());
  }

 private:
  const PartRead& read_;
};
}  // namespace

Status NodeParts::read(std::span<const PartRead> reads) {
  std::deque<MemoryTarget> targets;
  std::deque<Request> requests;
  std::vector<PartRead> here;
  for (const PartRead& read : reads) {
    if (parts_[read.rank].is_here) {
      here.push_back(read);
    } else {
      add_requests({read.rank, {{read.offset, read.into.size()}}, &targets.emplace_back(read)}, requests);
    }
  }
  if (!requests.empty()) VARVE_TRY(fetch(std::move(requests)));
  return here.empty() ? Status() : mine_->read(here);
}

Status NodeParts::load(std::span<const PartLoad> loads, size_t thread_count) {
  std::vector<PartLoad> here;
  const Status fetched = run_guarded([&] {
    std::deque<Request> requests;
    for (const PartLoad& load : loads) {
      if (parts_[load.rank].is_here) {
        here.push_back(load);
      } else {
        add_requests(load, requests);
      }
    }
    // Ranks do not all begin with the same part.
    std::rotate(requests.begin(),
                requests.begin() + static_cast<ptrdiff_t>(requests.size() * ranks_.rank() / ranks_.rank_count()),
                requests.end());
    return fetch(std::move(requests));
  });
  serve();
  VARVE_TRY(fetched);
  VARVE_TRY(broken_);
  return here.empty() ? Status() : mine_->load(here, thread_count);
}

Status NodeParts::fetch(std::deque<Request> requests) {
  while (!requests.empty()) VARVE_TRY(take_part(requests, true).status());
  return {};
}

void NodeParts::serve() {
  std::deque<Request> none;
  for (Result<bool> more = true; more.ok() && *more;) more = take_part(none, false);
}

// A round

/// What is asked for in one round, and the part that this rank has in it.
class NodeParts::Round {
 public:
  Round(NodeParts& parts, std::deque<Request>& requests) : parts_(parts), requests_(requests) {}

  /// What this rank asks for: the first of its requests.
  ByteVector ask(bool wants_more) const {
    ByteVector asked;
    ByteWriter out(asked);
    out.u8(wants_more ? 1 : 0);
    uint64_t bytes = 0;
    size_t extents = 0;
    for (const Request& request : requests_) {
      bytes += request.bytes;
      extents += request.wanted.size();
      if (bytes > kAskedBytesMax || extents > kAskedExtentsMax) break;
      out.varint(request.part);
      out.varint(request.wanted.size());
      for (const Extent& extent : request.wanted) {
        out.varint(extent.offset);
        out.varint(extent.bytes);
      }
    }
    return asked;
  }

  /// Sees what comes to whom, the same on all ranks, and reads what others get from this one.
  Status prepare(const std::vector<ByteVector>& asked) {
    asked_.resize(asked.size());
    for (uint32_t rank = 0; rank < asked.size(); ++rank) VARVE_TRY(decode(asked[rank], asked_[rank]));
    choose();
    for (Transfer& transfer : transfers_) {
      if (parts_.ranks_.rank() == transfer.from || parts_.ranks_.rank() == transfer.to)
        transfer.bytes.resize(transfer.size);
    }
    return read_for_others();
  }
  bool anyone_wants_more() const { return wants_more_; }

  /// Each message in turn, the same order on all ranks: the first that is left has both its ranks.
  Status exchange() {
    const uint32_t self = parts_.ranks_.rank();
    for (Transfer& transfer : transfers_) {
      if (!parts_.has_messages_) {
        VARVE_ASSIGN(ByteVector bytes, parts_.ranks_.broadcast(transfer.bytes, transfer.from));
        if (transfer.to == self) transfer.bytes = std::move(bytes);
      } else if (transfer.from == self) {
        VARVE_TRY(parts_.ranks_.send(transfer.to, kPartsTag, transfer.bytes));
      } else if (transfer.to == self) {
        VARVE_TRY(parts_.ranks_.receive(transfer.from, kPartsTag, transfer.bytes));
      }
    }
    return {};
  }

  /// Puts what has come where it belongs; what was not this rank's turn stays wanted.
  void take() {
    const std::vector<bool>& granted = granted_[parts_.ranks_.rank()];
    std::map<uint32_t, uint64_t> taken;  // bytes, of who sent them
    std::deque<Request> left;
    for (size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      if (i >= granted.size() || !granted[i]) {
        left.push_back(std::move(request));
        continue;
      }
      const uint32_t from = parts_.parts_[request.part].reader;
      const auto transfer = std::find_if(transfers_.begin(), transfers_.end(), [&](const Transfer& each) {
        return each.from == from && each.to == parts_.ranks_.rank();
      });
      uint64_t& at = taken[from];
      for (const Extent& extent : request.wanted) {
        request.target->put(extent.offset, ByteSpan(transfer->bytes).subspan(at, extent.bytes));
        at += extent.bytes;
      }
    }
    requests_ = std::move(left);
  }

 private:
  struct Transfer {
    uint32_t from = 0, to = 0;
    uint64_t size = 0;
    ByteVector bytes{};  ///< of the two ranks alone
  };

  Status decode(ByteSpan bytes, std::vector<Request>& requests) {
    ByteReader in(bytes);
    VARVE_ASSIGN(const uint8_t wants_more, in.u8());
    wants_more_ = wants_more_ || wants_more == 1;
    while (!in.at_end()) {
      Request& request = requests.emplace_back();
      VARVE_ASSIGN(const uint64_t part, in.varint());
      VARVE_ASSIGN(const uint64_t count, in.count(2));
      if (part >= parts_.parts_.size()) return Status::corrupt("a rank asks for a part that there is not");
      request.part = static_cast<uint32_t>(part);
      request.wanted.resize(count);
      uint64_t end = 0;
      for (Extent& extent : request.wanted) {
        VARVE_ASSIGN(extent.offset, in.varint());
        VARVE_ASSIGN(extent.bytes, in.varint());
        const uint64_t image_bytes = parts_.parts_[part].image_bytes;
        if (extent.offset < end || extent.offset > image_bytes || extent.bytes > image_bytes - extent.offset)
          return Status::corrupt("a rank asks for bytes that a part does not have");
        end = extent.offset + extent.bytes;
        request.bytes += extent.bytes;
      }
      if (request.bytes > kAskedBytesMax) return Status::corrupt("a rank asks for too much at once");
    }
    return {};
  }

  /// Another rank is first in each round, so that each gets what it wants.
  void choose() {
    const auto count = static_cast<uint32_t>(asked_.size());
    std::map<uint32_t, uint64_t> served;                        // bytes, by who reads them
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> between;  // bytes, by from and to
    granted_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t to = (i + parts_.rounds_) % count;
      for (const Request& request : asked_[to]) {
        const uint32_t from = parts_.parts_[request.part].reader;
        const bool grant = served[from] == 0 || served[from] + request.bytes <= kServedBytesMax;
        granted_[to].push_back(grant);
        if (!grant) continue;
        served[from] += request.bytes;
        between[{from, to}] += request.bytes;
      }
    }
    for (const auto& [ranks, bytes] : between) transfers_.push_back({ranks.first, ranks.second, bytes});
    // In turns, so that many messages can be on their way at a time.
    std::sort(transfers_.begin(), transfers_.end(), [count](const Transfer& a, const Transfer& b) {
      return std::tuple((a.to + count - a.from) % count, a.from) < std::tuple((b.to + count - b.from) % count, b.from);
    });
  }

  /// Bytes of one part, for all who get some of them.
  class Answers final : public ImageTarget {
   public:
    void add(const std::vector<Extent>& wanted, MutableByteSpan into) {
      for (const Extent& extent : wanted) {
        answers_.push_back({extent, into.data()});
        into = into.subspan(extent.bytes);
      }
    }
    /// What any of them gets; after the last add().
    std::vector<Extent> wanted() {
      std::sort(answers_.begin(), answers_.end(),
                [](const Answer& a, const Answer& b) { return a.extent.offset < b.extent.offset; });
      std::vector<Extent> all;
      for (const Answer& answer : answers_) {
        longest_ = std::max(longest_, answer.extent.bytes);
        const uint64_t end = answer.extent.offset + answer.extent.bytes;
        if (all.empty() || all.back().offset + all.back().bytes < answer.extent.offset) {
          all.push_back(answer.extent);
        } else {
          all.back().bytes = std::max(all.back().offset + all.back().bytes, end) - all.back().offset;
        }
      }
      return all;
    }
    void put(uint64_t offset, ByteSpan bytes) override {
      const uint64_t end = offset + bytes.size();
      const auto before = [](const Answer& answer, uint64_t at) { return answer.extent.offset < at; };
      // None that begins earlier reaches so far.
      auto answer = std::lower_bound(answers_.begin(), answers_.end(), offset - std::min(offset, longest_), before);
      for (; answer != answers_.end() && answer->extent.offset < end; ++answer) {
        const uint64_t begin = std::max(offset, answer->extent.offset);
        const uint64_t last = std::min(end, answer->extent.offset + answer->extent.bytes);
        if (begin < last) {
          std::memcpy(answer->into + (begin - answer->extent.offset), bytes.data() + (begin - offset), last - begin);
        }
      }
    }

   private:
    struct Answer {
      Extent extent;
      std::byte* into = nullptr;
    };
    std::vector<Answer> answers_;  ///< by where they begin
    uint64_t longest_ = 0;
  };

  Status read_for_others() {
    const uint32_t self = parts_.ranks_.rank();
    std::map<uint32_t, Answers> answers;  // by part
    for (Transfer& transfer : transfers_) {
      if (transfer.from != self) continue;
      MutableByteSpan rest = transfer.bytes;
      for (size_t i = 0; i < asked_[transfer.to].size(); ++i) {
        const Request& request = asked_[transfer.to][i];
        if (!granted_[transfer.to][i] || parts_.parts_[request.part].reader != self) continue;
        answers[request.part].add(request.wanted, rest.first(request.bytes));
        rest = rest.subspan(request.bytes);
      }
    }
    std::vector<PartLoad> loads;
    for (auto& [part, answer] : answers) loads.push_back({part, answer.wanted(), &answer});
    return loads.empty() ? Status() : parts_.mine_->load(loads, kServingThreads);
  }

  NodeParts& parts_;
  std::deque<Request>& requests_;
  std::vector<std::vector<Request>> asked_;  ///< by rank
  std::vector<std::vector<bool>> granted_;   ///< likewise
  std::vector<Transfer> transfers_;
  bool wants_more_ = false;
};

Result<bool> NodeParts::take_part(std::deque<Request>& requests, bool wants_more) {
  VARVE_TRY(broken_);
  Round round(*this, requests);
  const auto take_part = [&]() -> Status {
    const Result<ByteVector> asked = run_guarded([&] { return round.ask(wants_more); });
    // Nothing at all makes no sense to anybody.
    VARVE_ASSIGN(const std::vector<ByteVector> all, ranks_.all_gather(asked.ok() ? *asked : ByteVector()));
    VARVE_TRY(first_failure(ranks_, run_guarded([&] { return round.prepare(all); })));
    return round.exchange();
  };
  try {
    broken_ = take_part();
  } catch (...) {
    ranks_.revoke();  // the others are in the midst of the round
    broken_ = status_from_current_exception();
  }
  VARVE_TRY(broken_);
  ++rounds_;
  VARVE_TRY(run_guarded([&] { round.take(); }));
  return round.anyone_wants_more();
}

// A rank's image

namespace {
/// That of this rank or, if it has none, of another one.
Status own_or_first(const std::vector<RankFailure>& failures, uint32_t rank) {
  const auto own = std::find_if(failures.begin(), failures.end(),
                                [rank](const RankFailure& failure) { return failure.rank == rank; });
  return own != failures.end() ? own->what : failures.front().what;
}
}  // namespace

Result<std::unique_ptr<RankImage>> image_over_nodes(const LevelWorld& world, const RankWish& wish,
                                                    Result<std::unique_ptr<RankImage>> own,
                                                    const std::function<Result<std::unique_ptr<HeldParts>>()>& open,
                                                    uint64_t number, size_t thread_count) {
  VARVE_ASSIGN(std::vector<RankFailure> failures, gather_failures(world.ranks, own.status()));
  std::array<uint64_t, 1> lacks = {own.ok() && *own == nullptr ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world.ranks.all_max(lacks));
  if (!failures.empty()) {
    return own.ok() && *own ? std::move(own) : own_or_first(failures, world.ranks.rank());
  }
  if (lacks[0] == 0) return own;
  own->reset();  // it has readers of its own
  Result<std::unique_ptr<HeldParts>> mine = run_guarded(open);
  VARVE_ASSIGN(failures, gather_failures(world.ranks, mine.status()));
  if (!failures.empty()) return own_or_first(failures, world.ranks.rank());
  VARVE_ASSIGN(std::unique_ptr<CheckpointParts> parts, NodeParts::gather(world, std::move(*mine), number));
  return ReshapedImage::plan(wish, std::move(parts), thread_count);
}

}  // namespace varve
