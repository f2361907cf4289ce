#include "service/store_names.h"

#include <algorithm>
#include <array>

namespace varve {

namespace {
constexpr size_t kIdDigits = 32;
constexpr size_t kNameBytesMax = 100;  // of a job
constexpr size_t kNumberDigitsMax = 20;

bool is_id(std::string_view text) {
  return text.size() == kIdDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kNumberDigitsMax && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_job(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && text[0] != '.' && text[0] != '-' &&
         std::none_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x20 || byte == 0x7f || c == '/' || c == '@';
         });
}

/// Takes `suffix` off the end of `text`, if it is there.
bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

/// ID.SUFFIX
bool is_id_with(std::string_view text, std::string_view suffix) { return take_suffix(text, suffix) && is_id(text); }

/// varve.store, varve.spread, or one of them that is being written
StoreName header_name_of(std::string_view name) {
  struct Header {
    std::string_view name;
    StoreName whole, draft;
  };
  static constexpr std::array<Header, 2> kHeaders{{{"varve.store", StoreName::header, StoreName::header_draft},
                                                   {"varve.spread", StoreName::spread, StoreName::spread_draft}}};
  for (const Header& header : kHeaders) {
    if (!name.starts_with(header.name)) continue;
    const std::string_view rest = name.substr(header.name.size());
    if (rest.empty()) return header.whole;
    if (rest[0] == '.' && is_id_with(rest.substr(1), ".tmp")) return header.draft;
  }
  return StoreName::none;
}

/// JOB@STEP.RUN.K-of-N.part, or .failed
bool is_part(std::string_view name) {
  if (!take_suffix(name, ".part") && !take_suffix(name, ".failed")) return false;
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos || !is_job(name.substr(0, at))) return false;
  name.remove_prefix(at + 1);
  const size_t first = name.find('.');
  const size_t second = name.find('.', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  const std::string_view of = name.substr(second + 1);
  const size_t middle = of.find("-of-");
  return middle != std::string_view::npos && is_number(name.substr(0, first)) &&
         is_id(name.substr(first + 1, second - first - 1)) && is_number(of.substr(0, middle)) &&
         is_number(of.substr(middle + 4));
}

StoreName name_in_folder(std::string_view folder, std::string_view name) {
  const auto if_so = [](bool is, StoreName what) { return is ? what : StoreName::none; };
  if (folder == "sets") return if_so(is_job(name), StoreName::job_folder);
  if (folder == "parts") {
    return if_so(is_part(name), name.ends_with(".failed") ? StoreName::part_failure : StoreName::part);
  }
  if (folder == "writers") return if_so(is_id(name), StoreName::lease);
  if (folder == "condemned") return if_so(is_id(name), StoreName::mark);
  if (folder == "arenas") {
    if (is_id_with(name, ".arena")) return StoreName::arena;
    return if_so(is_id_with(name, ".part"), StoreName::arena_draft);
  }
  if (folder == "runs") {
    std::string_view job = name;
    const bool is_lease = take_suffix(job, ".lease") && is_job(job);
    return if_so(is_lease || is_id_with(name, ".tmp") || is_id_with(name, ".stale"), StoreName::run_file);
  }
  if (folder != "index") return StoreName::none;
  if (is_id_with(name, ".run")) return StoreName::index_run;
  return if_so(is_id_with(name, ".run.part") || is_id_with(name, ".part"), StoreName::index_draft);
}
}  // namespace

StoreName store_name_of(std::string_view path) {
  static constexpr std::array<std::string_view, 7> kFolders{"sets",      "parts", "arenas", "writers",
                                                            "condemned", "index", "runs"};
  if (path.empty()) return StoreName::root;
  const size_t slash = path.find('/');
  const std::string_view first = path.substr(0, slash);
  if (slash == std::string_view::npos) {
    const bool is_folder = std::find(kFolders.begin(), kFolders.end(), path) != kFolders.end();
    return is_folder ? StoreName::folder : header_name_of(path);
  }
  const std::string_view rest = path.substr(slash + 1);
  const size_t second_slash = rest.find('/');
  if (second_slash == std::string_view::npos) return name_in_folder(first, rest);
  std::string_view record = rest.substr(second_slash + 1);
  const bool is_record =
      first == "sets" && is_job(rest.substr(0, second_slash)) && take_suffix(record, ".set") && is_number(record);
  return is_record ? StoreName::record : StoreName::none;
}

std::string record_of_part(std::string_view path) {
  path.remove_prefix(path.find('/') + 1);
  const size_t at = path.rfind('@');
  const size_t end = path.find('.', at);
  return "sets/" + std::string(path.substr(0, at)) + "/" + std::string(path.substr(at + 1, end - at - 1)) + ".set";
}

bool is_store_path(std::string_view path) { return store_name_of(path) != StoreName::none; }

bool is_draft(StoreName name) {
  return name == StoreName::lease || name == StoreName::arena_draft || name == StoreName::index_draft ||
         name == StoreName::header_draft || name == StoreName::spread_draft;
}

bool is_plain_path(std::string_view path) {
  if (path.empty()) return true;
  if (path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace varve
