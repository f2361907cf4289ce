#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace varve::peers {
namespace {

std::string trimmed(std::string_view text) {
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

void tell(std::string_view library, const std::string& what) {
  std::fprintf(stderr, "%.*s (varve): %s\n", static_cast<int>(library.size()), library.data(), what.c_str());
}

std::string level_place(std::string path) {
  for (const auto& [from, to] : {std::pair<char, const char*>{'%', "%25"}, {' ', "%20"}, {';', "%3B"}}) {
    for (size_t at = 0; (at = path.find(from, at)) != std::string::npos; at += 3) path.replace(at, 1, to);
  }
  return path;
}

bool write_plain_file(std::string_view library, const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  const std::string part = to + ".varve-part";
  std::error_code failure;
  const fs::path folder = fs::path(to).parent_path();
  if (!folder.empty()) fs::create_directories(folder, failure);
  fs::copy_file(from, part, fs::copy_options::overwrite_existing, failure);
  if (!failure) fs::rename(part, to, failure);
  if (failure) tell(library, "cannot write " + to + ": " + failure.message());
  return !failure;
}

std::vector<std::pair<std::string, std::string>> pairs_of(std::string_view line) {
  // Each '=' has its key before it, up to a blank, and its value up to the key of the next.
  std::vector<std::pair<std::string, std::string>> pairs;
  while (true) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) return pairs;
    const std::string key = trimmed(line.substr(0, equals));
    if (key.empty() || key.find(' ') != std::string::npos) return {};
    line.remove_prefix(equals + 1);
    const size_t next = line.find('=');
    size_t end = line.size();
    if (next != std::string_view::npos) {
      size_t before = next;  // blanks before it, then its key
      while (before > 0 && std::isspace(static_cast<unsigned char>(line[before - 1])) != 0) --before;
      while (before > 0 && std::isspace(static_cast<unsigned char>(line[before - 1])) == 0) --before;
      if (before == 0) return {};
      end = before;
    }
    pairs.emplace_back(key, trimmed(line.substr(0, end)));
    line.remove_prefix(end);
  }
}

bool Settings::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    line = trimmed(std::string_view(line).substr(0, line.find_first_of("#;")));
    if (line.empty() || line.front() == '[') continue;
    std::vector<std::pair<std::string, std::string>> pairs = pairs_of(line);
    if (pairs.empty()) {
      tell(library_, "a line of " + path + " says nothing: " + line);
    } else if (pairs.size() == 1) {
      values_.insert_or_assign(pairs.front().first, pairs.front().second);
    } else {
      lines_.push_back(std::move(pairs));
    }
  }
  return true;
}

const std::string* Settings::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::string Settings::text(const std::string& key, const std::string& otherwise) const {
  // Keys that begin with the prefix are said so in the environment, too.
  const std::string name = key.starts_with(prefix_) ? key : prefix_ + upper(key);
  if (const char* said = std::getenv(name.c_str()); said != nullptr) return said;
  const std::string* const value = find(key);
  return value != nullptr ? *value : otherwise;
}

double Settings::number(const std::string& key, double otherwise) const {
  const std::string said = text(key);
  if (said.empty()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(said.c_str(), &end);
  if (*end == '\0') return value;
  tell(library_, key + " is no number: " + said);
  return otherwise;
}

bool Settings::flag(const std::string& key, bool otherwise) const {
  const std::string said = upper(text(key));
  if (said.empty()) return otherwise;
  return said == "1" || said == "TRUE" || said == "YES" || said == "ON";
}

void Settings::tell_of_others(const std::vector<std::string_view>& known,
                              const std::map<std::string_view, std::string_view>& without_meaning) const {
  for (const auto& [key, value] : values_) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto why = without_meaning.find(key);
    tell(library_, why == without_meaning.end() ? "an unknown key is left out: " + key
                                                : key + " is left out: " + std::string(why->second));
  }
}

}  // namespace varve::peers
