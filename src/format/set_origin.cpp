#include "format/set_origin.h"

#include <fmt/format.h>

#include "core/quantity.h"

namespace varve {

namespace {
constexpr std::string_view kRun = "run ", kRanks = "\nranks ", kPrefix = "origin-", kSuffix = ".varve";
constexpr size_t kRunDigits = 32;
}  // namespace

std::string SetOrigin::text() const { return fmt::format("{}{}{}{}\n", kRun, run.hex(), kRanks, rank_count); }

Result<SetOrigin> SetOrigin::parse(std::string_view text) {
  const size_t ranks = kRun.size() + kRunDigits;
  SetOrigin origin;
  if (text.starts_with(kRun) && text.size() > ranks && text.substr(ranks).starts_with(kRanks) && text.ends_with('\n')) {
    const std::string_view count = text.substr(ranks + kRanks.size());
    const Result<UniqueId> run = UniqueId::parse(text.substr(kRun.size(), kRunDigits));
    const Result<uint64_t> rank_count = parse_number(count.substr(0, count.size() - 1), UINT32_MAX);
    if (run.ok() && rank_count.ok()) origin = {*run, static_cast<uint32_t>(*rank_count)};
  }
  if (origin.text() != text) return Status::corrupt("what says of which run a set is makes no sense");
  return origin;
}

std::string SetOrigin::file_name(uint32_t first_rank) { return fmt::format("{}{:06}{}", kPrefix, first_rank, kSuffix); }

bool SetOrigin::is_file_name(std::string_view path) { return path.starts_with(kPrefix) && path.ends_with(kSuffix); }

}  // namespace varve
