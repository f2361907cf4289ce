#include "level/restart_points.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "format/image.h"
#include "level/checkpoint_parts.h"

namespace varve {

Result<std::vector<RestartPoint>> list_restart_points(const Levels& levels) {
  VARVE_ASSIGN(const std::vector<RestartCandidate> found, find_candidates(levels));
  // Who asks whether there is anything begins anew if there is not.
  if (found.empty()) VARVE_TRY(check_all_were_reached(levels));
  std::vector<RestartPoint> points;
  for (const RestartCandidate& candidate : found) {
    RestartPoint& point = points.emplace_back();
    point.step = candidate.step;
    point.rank_count = candidate.rank_count;
    point.place = candidate.memory_run ? "memory" : levels.at(candidate.level).name();
    if (candidate.made_s)
      point.made_at = std::chrono::system_clock::time_point(std::chrono::seconds(*candidate.made_s));
  }
  return points;
}

namespace {
/// What each rank of the run that made it had protected.
using Tables = std::map<uint32_t, ImageTable>;

ByteVector encode_tables(const Tables& tables) {
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const auto& [rank, table] : tables) tell_table(out, rank, table);
  return bytes;
}

Status add_tables(ByteSpan told, Tables& tables) {
  ByteReader in(told);
  while (!in.at_end()) {
    VARVE_ASSIGN(const ToldTable of_rank, told_table(in));
    VARVE_ASSIGN(ImageTable table, decode_image_header(of_rank.header, of_rank.image_bytes));
    tables.emplace(of_rank.rank, std::move(table));
  }
  return {};
}

/// All that the ranks can tell of a candidate together. Collective.
Result<Tables> gather_tables(const Levels& levels, const RestartCandidate& candidate) {
  Communicator& ranks = levels.world().ranks;
  const Result<Tables> mine = run_guarded([&] { return levels.at(candidate.level).tables(candidate); });
  VARVE_TRY(agree(ranks, mine.status()));
  VARVE_ASSIGN(const std::vector<Told> told, gather_told(ranks, encode_tables(*mine)));
  Tables tables;
  for (const Told& of_rank : told) VARVE_TRY(add_tables(of_rank.bytes, tables));
  if (tables.empty() || (candidate.rank_count != 0 && tables.size() != candidate.rank_count))
    return Status::not_found("not all ranks' parts of it are there", candidate.to_string());
  return tables;
}

std::vector<SavedVariable> variables_of(const Tables& tables) {
  std::map<std::string, SavedVariable> by_name;
  for (const auto& [rank, table] : tables) {
    for (const ImageVariable& saved : table.variables) {
      SavedVariable& variable = by_name[saved.name];
      variable.name = saved.name;
      variable.type = saved.type;
      if (variable.global_cells.empty()) variable.global_cells = saved.global_shape;
      variable.bytes += saved.bytes;
      variable.parts.push_back({rank, saved.shape, saved.global_offset});
    }
  }
  std::vector<SavedVariable> variables;
  for (auto& [name, variable] : by_name) variables.push_back(std::move(variable));
  return variables;
}
}  // namespace

Result<std::vector<SavedVariable>> list_saved_variables(const Levels& levels, uint64_t step) {
  VARVE_ASSIGN(const std::vector<RestartCandidate> found, find_candidates(levels));
  Status first;
  for (const RestartCandidate& candidate : found) {
    if (candidate.step != step) continue;
    const Result<Tables> tables = gather_tables(levels, candidate);
    if (tables.ok()) return variables_of(*tables);
    if (first.ok()) first = tables.status().with_context(candidate.to_string());
  }
  VARVE_TRY(first);
  return Status::not_found("there is no checkpoint of this step", SetName{levels.world().job, step}.to_string());
}

}  // namespace varve
