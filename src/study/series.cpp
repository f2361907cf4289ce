#include "study/series.h"

#include <algorithm>
#include <filesystem>

namespace varve {

namespace {
namespace fs = std::filesystem;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

/// Takes the digits at the front of `text`, without leading zeros.
std::string_view take_number(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  while (number.size() > 1 && number.front() == '0') number.remove_prefix(1);
  return number;
}

std::string name_of(const fs::path& path) {
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  return plain.filename().string();
}

/// The folders in a folder that holds no files; empty if it holds any.
Result<std::vector<std::string>> folders_of_series(const std::string& folder) {
  std::vector<std::string> folders;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (!entries->is_directory(error)) return std::vector<std::string>();
    folders.push_back(entries->path().filename().string());
  }
  if (error) return Status::from_errno(error.value(), "list", folder);
  std::sort(folders.begin(), folders.end(), natural_less);
  return folders;
}

Status add_places(const std::string& path, std::vector<SetPlace>& places) {
  std::error_code error;
  const fs::path full = fs::canonical(path, error);
  if (error) return Status::from_errno(error.value(), "look at", path);
  if (fs::is_regular_file(full, error)) {
    places.push_back({name_of(full), full.parent_path().string(), name_of(full)});
    return {};
  }
  if (!fs::is_directory(full, error)) return Status::invalid_argument("neither a folder nor a file", path);
  VARVE_ASSIGN(const std::vector<std::string> folders, folders_of_series(full.string()));
  if (folders.empty()) places.push_back({name_of(full), full.string(), {}});
  for (const std::string& folder : folders) places.push_back({folder, (full / folder).string(), {}});
  return {};
}
}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view number_a = take_number(a), number_b = take_number(b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

Result<std::vector<SetPlace>> find_series(const std::vector<std::string>& paths) {
  std::vector<SetPlace> places;
  for (const std::string& path : paths) VARVE_TRY(add_places(path, places));
  if (places.empty()) return Status::invalid_argument("nothing to study is named");
  return places;
}

}  // namespace varve
