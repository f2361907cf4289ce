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
bool is_header(std::string_view name) {
  for (const std::string_view header : {"varve.store", "varve.spread"}) {
    if (!name.starts_with(header)) continue;
    const std::string_view rest = name.substr(header.size());
    return rest.empty() || (rest[0] == '.' && is_id_with(rest.substr(1), ".tmp"));
  }
  return false;
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

/// JOB.lease
bool is_lease(std::string_view name) { return take_suffix(name, ".lease") && is_job(name); }

bool is_in_folder(std::string_view folder, std::string_view name) {
  if (folder == "sets") return is_job(name);
  if (folder == "parts") return is_part(name);
  if (folder == "arenas") return is_id_with(name, ".arena") || is_id_with(name, ".part");
  if (folder == "writers" || folder == "condemned") return is_id(name);
  if (folder == "runs") return is_id_with(name, ".tmp") || is_id_with(name, ".stale") || is_lease(name);
  if (folder == "index") return is_id_with(name, ".run") || is_id_with(name, ".run.part") || is_id_with(name, ".part");
  return false;
}
}  // namespace

bool is_store_path(std::string_view path) {
  static constexpr std::array<std::string_view, 7> kFolders{"sets",      "parts", "arenas", "writers",
                                                            "condemned", "index", "runs"};
  const size_t slash = path.find('/');
  const std::string_view first = path.substr(0, slash);
  if (slash == std::string_view::npos) {
    return path.empty() || is_header(path) || std::find(kFolders.begin(), kFolders.end(), path) != kFolders.end();
  }
  const std::string_view rest = path.substr(slash + 1);
  const size_t second_slash = rest.find('/');
  if (second_slash == std::string_view::npos) return is_in_folder(first, rest);
  std::string_view record = rest.substr(second_slash + 1);
  return first == "sets" && is_job(rest.substr(0, second_slash)) && take_suffix(record, ".set") && is_number(record);
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
