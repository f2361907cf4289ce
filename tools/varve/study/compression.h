#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/work_meter.h"
#include "engine/pack_builder.h"
#include "engine/save.h"
#include "engine/source.h"
#include "study/estimate.h"
#include "study/part_source.h"

namespace varve {

/// Calls `work` and adds the processor time that it takes, with that of the threads it starts, to `seconds`.
template <class Work>
auto metered(double& seconds, Work&& work) {
  struct Adder {
    double& into;
    WorkMeter meter;
    ~Adder() { into += meter.processor_seconds(); }
  } adder{seconds, {}};
  const WorkMeter::Scope scope(&adder.meter);
  return std::forward<Work>(work)();
}

/// Spreads the bits of a number evenly (the output function of splitmix64).
constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

/// All bytes of a group, laid down in packs as a save with these options does, but without leaving out what is equal.
/// They are held in memory.
struct LaidOutGroup {
  std::vector<PendingPack> packs;
  uint64_t raw_bytes = 0;
  double read_seconds = 0;   ///< of reading, wall time
  double order_seconds = 0;  ///< of finding variables and laying them into packs, processor time
};
Result<LaidOutGroup> lay_out(Source& source, const SaveOptions& options, ProgressSink& progress);

/// How packs are encoded: a name for people, and the encoder that serves one class.
struct Method {
  std::string name;
  std::function<std::unique_ptr<Encoder>()> make_encoder;
};
/// From what CodecPolicy::parse() takes, or one of two more: "by-type" (mcrEngine's codecs by type alone: FPC for
/// doubles, fpzip for singles, else lz4 or what there is for it) and "by-type+gzip:6".
Result<Method> find_method(const std::string& name);

/// What became of a pack.
struct PackOutcome {
  std::string class_key;
  uint64_t raw_bytes = 0, stored_bytes = 0;
  double encode_seconds = 0, decode_seconds = 0;  ///< processor time
};
/// Encodes all packs, and decodes them again. Stored bytes are those of body, recipe and a table of one chunk.
/// internal: what was decoded differs.
Result<std::vector<PackOutcome>> try_method(const std::vector<PendingPack>& packs, const Method& method,
                                            size_t thread_count);

/// What one order of chunks and one codec make of the data, without deduplication.
struct CompressionPoint {
  Scheme scheme = Scheme::agnostic;
  std::string method;        ///< as find_method() takes it
  int passes = 1;            ///< 2: gzip works on what another codec left; 0: what Varve finds by trials
  uint32_t group_size = 0;   ///< ranks that are laid together
  uint64_t block_bytes = 0;  ///< of the block schemes
  std::string set;
  uint64_t raw_bytes = 0;                                           ///< of the set
  Estimate stored_bytes;                                            ///< of these
  double encode_bytes_per_second = 0, decode_bytes_per_second = 0;  ///< raw bytes, one processor
  double order_bytes_per_second = 0;                                ///< of laying the data into packs
  Estimate ratio() const;
};

/// Improvement of the compression ratio over agnostic with gzip (mcrEngine, table IV).
struct Improvement {
  Scheme scheme = Scheme::aware;
  std::string method;
  double best = 0, worst = 0;  ///< fractions
  uint32_t best_group_size = 0, worst_group_size = 0;
};

struct Compression {
  std::string set;                        ///< on which all but `series` was tried
  uint32_t rank_count = 0;                ///< of it
  double sampled_share = 1;               ///< of its bytes
  std::vector<CompressionPoint> methods;  ///< every scheme × method (figure 6)
  std::vector<CompressionPoint> groups;   ///< against the group's size (figure 7)
  std::vector<CompressionPoint> blocks;   ///< against the block's size (figure 8)
  std::vector<CompressionPoint> series;   ///< one set after another (figure 9)
  std::vector<Improvement> improvements;
};

inline constexpr const char* kBaselineMethod = "gzip:6";

struct CompressionOptions {
  uint64_t sample_bytes = 32_MiB;  ///< of raw bytes, for each trial
  uint32_t group_size = 32;
  uint32_t thread_count = 0;
};

/// Tries all of it; stopped by `progress`, it returns what it has. Progress is in raw bytes of all trials.
Result<Compression> study_compression(const StudySeries& series, const CompressionOptions& options,
                                      ProgressSink& progress);

}  // namespace varve
