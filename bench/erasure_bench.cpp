// How fast parity is made and lost data are rebuilt: bytes of data per second of one thread, beside a plain copy.
// Blocks are those of redundancy files; there are enough of them that none is in a cache. Arguments: data parts, parity
// parts.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>

#include "core/file_system.h"
#include "core/unique_id.h"
#include "hash/score.h"
#include "redundancy/erasure_code.h"
#include "redundancy/rebuild.h"

namespace varve {
namespace {

constexpr size_t kBytes = 256_MiB;

/// Stripe after stripe of blocks, data and parity of each.
class Stripes {
 public:
  explicit Stripes(uint32_t parts)
      : parts_(parts), bytes_(kBytes / (parts * kParityBlockBytes) * parts * kParityBlockBytes) {
    std::mt19937_64 random(1);
    for (size_t at = 0; at < bytes_.size(); at += 8) store_le<uint64_t>(bytes_.data() + at, random());
  }
  size_t count() const { return bytes_.size() / (parts_ * kParityBlockBytes); }
  MutableByteSpan block(size_t stripe, uint32_t part) {
    return MutableByteSpan(bytes_).subspan((stripe * parts_ + part) * kParityBlockBytes, kParityBlockBytes);
  }

 private:
  uint32_t parts_;
  ByteVector bytes_;
};

void set_data_bytes(benchmark::State& state, const ErasureCode& code, const Stripes& stripes) {
  const auto bytes = static_cast<int64_t>(stripes.count() * code.data_parts() * kParityBlockBytes);
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
}

void encode(benchmark::State& state) {
  const ErasureCode code =
      ErasureCode::create(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1))).value();
  Stripes stripes(code.parts());
  std::vector<ByteSpan> data(code.data_parts());
  std::vector<MutableByteSpan> parity(code.parity_parts());
  for (auto _ : state) {
    for (size_t stripe = 0; stripe < stripes.count(); ++stripe) {
      for (uint32_t part = 0; part < code.parts(); ++part) {
        if (part < code.data_parts()) {
          data[part] = stripes.block(stripe, part);
        } else {
          parity[part - code.data_parts()] = stripes.block(stripe, part);
        }
      }
      benchmark::DoNotOptimize(code.encode(data, parity).ok());
    }
  }
  set_data_bytes(state, code, stripes);
}

/// As many data parts as the code promises are lost.
void rebuild_parts(benchmark::State& state) {
  const ErasureCode code =
      ErasureCode::create(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1))).value();
  Stripes stripes(code.parts());
  std::vector<uint32_t> sources, targets;
  for (uint32_t part = 0; part < code.parts(); ++part) (part < code.parity_parts() ? targets : sources).push_back(part);
  const ErasureCode::Repair repair = code.repair(sources, targets).value();
  std::vector<ByteSpan> from(sources.size());
  std::vector<MutableByteSpan> to(targets.size());
  for (auto _ : state) {
    for (size_t stripe = 0; stripe < stripes.count(); ++stripe) {
      for (size_t i = 0; i < sources.size(); ++i) from[i] = stripes.block(stripe, sources[i]);
      for (size_t i = 0; i < targets.size(); ++i) to[i] = stripes.block(stripe, targets[i]);
      benchmark::DoNotOptimize(repair.apply(from, to).ok());
    }
  }
  set_data_bytes(state, code, stripes);
}

/// The limit: the same data, copied.
void copy(benchmark::State& state) {
  Stripes stripes(2);
  for (auto _ : state) {
    for (size_t stripe = 0; stripe < stripes.count(); ++stripe) {
      std::memcpy(stripes.block(stripe, 1).data(), stripes.block(stripe, 0).data(), kParityBlockBytes);
      benchmark::ClobberMemory();
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * stripes.count() * kParityBlockBytes));
}

constexpr uint64_t kNodeBytes = 32_MiB;
constexpr const char* kFileName = "data.arena";

/// A failure group with one file of kNodeBytes on each node.
class Group {
 public:
  explicit Group(const char* scheme) : folder_("/dev/shm/erasure_bench-" + UniqueId::random().value().hex()) {
    ProtectedGroup description{
        "bench@1", Redundancy::parse(scheme).value(), ScoreFunction::preferred().algorithm(), {}};
    ByteVector bytes(kNodeBytes);
    for (size_t at = 0; at < bytes.size(); at += 8) store_le<uint64_t>(bytes.data() + at, at * 0x9e3779b97f4a7c15);
    note(fs().create_directory(folder_));
    for (uint32_t position = 0; position < description.redundancy.nodes_min(); ++position) {
      places_.push_back({&fs(), join_path(folder_, std::to_string(position))});
      note(fs().create_directory(folder(position)));
      note(write_file_durably(fs(), join_path(folder(position), kFileName), bytes));
      description.members.push_back(describe(position, description.redundancy));
    }
    group_ = std::make_unique<ParityGroup>(ParityGroup::create(std::move(description)).value());
  }
  ~Group() {
    for (const FolderExchange::Place& place : places_) {
      for (const std::string_view name : {std::string_view(kFileName), kParityFileName}) {
        fs().remove(join_path(place.folder, name)).ignore("it need not be there");
      }
      fs().remove_directory(place.folder).ignore("a leftover of a benchmark");
    }
    fs().remove_directory(folder_).ignore("a leftover of a benchmark");
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  static FileSystem& fs() { return posix_file_system(); }
  const ParityGroup& group() const { return *group_; }
  const std::string& folder(uint32_t position) const { return places_[position].folder; }
  ProtectedMember describe(uint32_t position, const Redundancy& redundancy) const {
    return describe_member(fs(), folder(position), std::to_string(position), {kFileName}, redundancy).value();
  }
  void protect(uint32_t position) {
    FolderExchange exchange(*group_, places_);
    note(make_parity(fs(), folder(position), *group_, position, exchange));
  }
  void rebuild_first(const RebuildPlan& plan) {
    FolderExchange exchange(*group_, places_);
    note(rebuild(fs(), folder(0), plan, 0, exchange));
  }
  /// What went wrong ends the measurement.
  void report(benchmark::State& state) const {
    if (!status_.ok()) state.SkipWithError(status_.to_string().c_str());
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kNodeBytes));
  }

 private:
  void note(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  std::string folder_;
  std::vector<FolderExchange::Place> places_;
  std::unique_ptr<ParityGroup> group_;
  Status status_;
};

/// All that one node does to protect its data once it has hashed them: reads, checks, codes and writes.
void make_parity_of_a_node(benchmark::State& state, const char* scheme) {
  Group nodes(scheme);
  for (auto _ : state) nodes.protect(0);
  nodes.report(state);
}

/// All that a node does that has lost everything: its file and its parity.
void rebuild_a_node(benchmark::State& state, const char* scheme) {
  Group nodes(scheme);
  std::vector<MemberSurvey> surveys;
  for (uint32_t position = 0; position < nodes.group().members(); ++position) {
    nodes.protect(position);
    surveys.push_back(position == 0 ? MemberSurvey::all_lost(nodes.group(), position)
                                    : MemberSurvey::all_whole(nodes.group(), position));
  }
  const RebuildPlan plan = RebuildPlan::create(nodes.group(), std::move(surveys)).value();
  for (auto _ : state) nodes.rebuild_first(plan);
  nodes.report(state);
}

/// The hashing before.
void describe_a_node(benchmark::State& state) {
  const Group nodes("xor:5");
  for (auto _ : state) benchmark::DoNotOptimize(nodes.describe(0, nodes.group().group().redundancy));
  nodes.report(state);
}

void codes(benchmark::internal::Benchmark* bench) { bench->Args({4, 1})->Args({4, 2})->Args({8, 3}); }

BENCHMARK(copy);
BENCHMARK(encode)->Apply(codes);
BENCHMARK(rebuild_parts)->Apply(codes);
BENCHMARK(describe_a_node);
BENCHMARK_CAPTURE(make_parity_of_a_node, partner, "partner");
BENCHMARK_CAPTURE(make_parity_of_a_node, xor_5, "xor:5");
BENCHMARK_CAPTURE(make_parity_of_a_node, rs_4_2, "rs:4+2");
BENCHMARK_CAPTURE(rebuild_a_node, partner, "partner");
BENCHMARK_CAPTURE(rebuild_a_node, xor_5, "xor:5");
BENCHMARK_CAPTURE(rebuild_a_node, rs_4_2, "rs:4+2");

}  // namespace
}  // namespace varve

BENCHMARK_MAIN();
