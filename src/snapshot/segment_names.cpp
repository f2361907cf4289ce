#include "snapshot/segment_names.h"

#include <fmt/format.h>

#include <charconv>

#include "hash/score.h"

namespace varve {
namespace {

constexpr size_t kRunDigits = 32;

/// Not the best algorithm of this build, but the same in every build: jobs of two builds must meet, too.
Score hash_of(ByteSpan bytes) {
  const Result<ScoreFunction> sha256 = ScoreFunction::create(ScoreAlgorithm::sha256, 32);
  return (*sha256)(bytes);
}

}  // namespace

std::string make_job_key(std::string_view canonical_store_path, std::string_view job) {
  ByteVector text;
  ByteWriter out(text);
  out.text(canonical_store_path);
  out.text(job);
  constexpr size_t kKeyBytes = 8;
  return hash_of(text).hex(kKeyBytes);
}

std::string SegmentFamily::file_prefix() const { return fmt::format("varve-{}-{}-", user, job_key); }

std::string SegmentOwner::path(std::string_view what) const {
  return fmt::format("{}/{}{}-{}-{}", family.folder, family.file_prefix(), run.hex(), rank, what);
}

std::string SegmentOwner::slot_path(uint32_t slot) const { return path(fmt::format("slot{}", slot)); }

std::string SegmentOwner::grid_path(uint32_t grid) const { return path(fmt::format("grid-{}", grid)); }

std::vector<std::string> SegmentOwner::places_of(const std::string& path) const {
  std::vector<std::string> places = {path};
  for (const std::string& folder : family.spill_folders) places.push_back(folder + path.substr(path.rfind('/')));
  return places;
}

std::optional<SegmentName> parse_segment_name(const SegmentFamily& family, std::string_view file_name) {
  const std::string prefix = family.file_prefix();
  if (!file_name.starts_with(prefix)) return std::nullopt;
  file_name.remove_prefix(prefix.size());
  if (file_name.size() <= kRunDigits || file_name[kRunDigits] != '-') return std::nullopt;
  const Result<UniqueId> run = UniqueId::parse(file_name.substr(0, kRunDigits));
  if (!run.ok()) return std::nullopt;
  file_name.remove_prefix(kRunDigits + 1);

  SegmentName name;
  name.run = *run;
  const auto [end, failure] = std::from_chars(file_name.data(), file_name.data() + file_name.size(), name.rank);
  const auto digits = static_cast<size_t>(end - file_name.data());
  if (failure != std::errc() || digits + 1 >= file_name.size() || file_name[digits] != '-') return std::nullopt;
  name.what = file_name.substr(digits + 1);
  return name;
}

}  // namespace varve
