#include "level/job_sets.h"

#include <algorithm>

#include "comm/agreement.h"
#include "core/bytes.h"
#include "level/patient_reads.h"
#include "store/catalog.h"

namespace varve {

void JobSets::note_begin(uint64_t step) {
  std::lock_guard lock(mutex_);
  told_.push_back({step, Part::on_its_way});
  if (told_.size() > kTold) told_.pop_front();
}

void JobSets::note_own(uint64_t step, bool saved) {
  std::lock_guard lock(mutex_);
  for (Told& told : told_) {
    if (told.step == step) told.own = saved ? Part::saved : Part::failed;
  }
}

void JobSets::note_complete(uint64_t step) {
  std::lock_guard lock(mutex_);
  complete_.insert(step);
}

void JobSets::note_incomplete(uint64_t step) {
  std::lock_guard lock(mutex_);
  complete_.erase(step);
}

std::vector<uint64_t> JobSets::tell(bool leads_group) const {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> parts(kTold, static_cast<uint64_t>(Part::saved));
  if (!leads_group) return parts;
  for (size_t i = 0; i < told_.size(); ++i) parts[i] = static_cast<uint64_t>(told_[i].own);
  return parts;
}

JobSets::News JobSets::learn(std::span<const uint64_t> told) {
  std::lock_guard lock(mutex_);
  News news;
  for (size_t i = 0; i < std::min(told.size(), told_.size()); ++i) {
    const uint64_t step = told_[i].step;
    if (told[i] == static_cast<uint64_t>(Part::saved) && complete_.insert(step).second) news.complete.push_back(step);
    if (told[i] == static_cast<uint64_t>(Part::failed) && never_complete_.insert(step).second)
      news.failed.push_back(step);
  }
  return news;
}

bool JobSets::is_complete(uint64_t step) const {
  std::lock_guard lock(mutex_);
  return complete_.contains(step);
}

bool JobSets::is_never_complete(uint64_t step) const {
  std::lock_guard lock(mutex_);
  return never_complete_.contains(step);
}

std::optional<uint64_t> JobSets::newest_complete() const {
  std::lock_guard lock(mutex_);
  return complete_.empty() ? std::nullopt : std::optional(*complete_.rbegin());
}

namespace {
/// What the nodes have of a step together.
struct OnNodes {
  std::set<UniqueId> runs;
  uint64_t nodes = 0, ranks = 0, run_ranks = 0;
};

/// Of each set that can be read.
Result<ByteVector> describe(const Store& store, Clock& clock, const std::string& job) {
  PatientReads reads(store, clock);
  VARVE_ASSIGN(const std::vector<uint64_t> steps, reads([&] { return Catalog(store).steps(job); }));
  ByteVector told;
  ByteWriter out(told);
  for (const uint64_t step : steps) {
    const Result<SetRecord> record = reads([&] { return Catalog(store).read({job, step}); });
    if (!record.ok()) continue;
    out.varint(step);
    out.bytes(record->run.bytes);
    out.varint(record->rank_count);
    out.varint(record->run_ranks);
  }
  return told;
}

Status add(ByteSpan told, std::map<uint64_t, OnNodes>& sets) {
  ByteReader in(told);
  while (!in.at_end()) {
    VARVE_ASSIGN(const uint64_t step, in.varint());
    OnNodes& set = sets[step];
    UniqueId run;
    VARVE_ASSIGN(const ByteSpan id, in.bytes(run.bytes.size()));
    std::copy(id.begin(), id.end(), run.bytes.begin());
    set.runs.insert(run);
    ++set.nodes;
    VARVE_ASSIGN(const uint64_t ranks, in.varint());
    set.ranks += ranks;
    VARVE_ASSIGN(set.run_ranks, in.varint());
  }
  return {};
}
}  // namespace

Result<std::vector<uint64_t>> agree_on_complete_sets(Communicator& ranks, const Store* own, Clock& clock,
                                                     const std::string& job, size_t node_count) {
  Result<ByteVector> mine = ByteVector();
  if (own != nullptr) mine = describe(*own, clock, job);
  VARVE_TRY(agree(ranks, mine.status()));
  VARVE_ASSIGN(const std::vector<ByteVector> all, ranks.all_gather(*mine));
  std::map<uint64_t, OnNodes> sets;
  for (const ByteVector& told : all) VARVE_TRY(add(told, sets));
  std::vector<uint64_t> complete;
  for (const auto& [step, set] : sets) {
    const bool of_one_run = set.runs.size() == 1 && *set.runs.begin() != UniqueId();
    if (of_one_run && set.nodes == node_count && set.ranks == set.run_ranks) complete.push_back(step);
  }
  return complete;
}

}  // namespace varve
