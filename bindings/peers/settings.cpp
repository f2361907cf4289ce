#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace varve::peers {
namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string_view without_comment(std::string_view line, Dialect dialect) {
  if (dialect == Dialect::scr) return line.substr(0, line.find('#'));
  const bool has_levels = trimmed(line.substr(0, line.find('='))) == "levels";
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins = line[i] == '#' || (line[i] == ';' && !has_levels);
    if (begins && (i == 0 || is_blank(line[i - 1]))) return line.substr(0, i);
  }
  return line;
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

Pairs pairs_of(std::string_view line) {
  // Each key has its '=' behind it, blanks or the line's start before it, and a value up to the next key.
  Pairs pairs;
  size_t begin = 0;  // of the last value
  for (size_t equals = line.find('='); equals != std::string_view::npos; equals = line.find('=', equals + 1)) {
    size_t end = equals;
    while (end > begin && is_blank(line[end - 1])) --end;
    size_t key = end;
    while (key > begin && is_of_name(line[key - 1])) --key;
    const bool is_key = key < end && (key == 0 || is_blank(line[key - 1]));
    if (!is_key && pairs.empty()) return {};
    if (!is_key) continue;  // it belongs to the value
    if (!pairs.empty()) {
      pairs.back().second = trimmed(line.substr(begin, key - begin));
    } else if (!trimmed(line.substr(0, key)).empty()) {
      return {};
    }
    pairs.emplace_back(line.substr(key, end - key), "");
    begin = equals + 1;
  }
  if (!pairs.empty()) pairs.back().second = trimmed(line.substr(begin));
  return pairs;
}

std::string with_environment(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const size_t dollar = std::min(text.find('$'), text.size());
    all += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    const bool braces = text.starts_with("${");
    const size_t begin = braces ? 2 : 1;
    size_t end = begin;
    while (end < text.size() && is_of_name(text[end])) ++end;
    const bool is_whole = end > begin && (!braces || (end < text.size() && text[end] == '}'));
    if (is_whole) {
      const char* const value = std::getenv(std::string(text.substr(begin, end - begin)).c_str());
      if (value != nullptr) all += value;
      text.remove_prefix(end + (braces ? 1 : 0));
    } else {
      all += text.front();
      text.remove_prefix(1);
    }
  }
  return all;
}

bool Settings::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    line = trimmed(without_comment(line, dialect_));
    if (line.empty() || (dialect_ == Dialect::ini && line.front() == '[')) continue;
    Pairs pairs = pairs_of(line);
    if (dialect_ == Dialect::ini && pairs.size() > 1)
      pairs = {{pairs.front().first, trimmed(line.substr(line.find('=') + 1))}};
    if (pairs.empty()) {
      tell(library_, "a line of " + path + " says nothing: " + line);
    } else {
      take(std::move(pairs));
    }
  }
  return true;
}

void Settings::take(Pairs pairs) {
  if (dialect_ == Dialect::scr) {
    for (auto& [key, value] : pairs) value = with_environment(value);
  }
  if (pairs.size() == 1) {
    values_.insert_or_assign(pairs.front().first, pairs.front().second);
    return;
  }
  std::erase_if(lines_, [&pairs](const Pairs& line) { return line.front() == pairs.front(); });
  lines_.push_back(std::move(pairs));
}

std::optional<std::string> Settings::configure(std::string_view line) {
  Pairs pairs = pairs_of(line);
  if (pairs.empty()) return line.find('=') == std::string_view::npos ? ask({}, trimmed(line)) : std::nullopt;
  // What stands alone behind a descriptor is asked for.
  const std::string_view parent = pairs.front().first;
  auto& [key, value] = pairs.back();
  const size_t blank = value.find_first_of(" \t");
  if ((parent == "STORE" || parent == "CKPT" || parent == "GROUPS") && blank != std::string::npos) {
    const std::string asked = trimmed(std::string_view(value).substr(blank));
    value.resize(blank);
    return ask(pairs, asked);
  }
  if (pairs.size() == 1 && value.empty()) {
    values_.erase(key);
    std::erase_if(lines_, [&key = key](const Pairs& one) { return one.front().first == key; });
  } else {
    take(std::move(pairs));
  }
  return std::nullopt;
}

std::optional<std::string> Settings::ask(const Pairs& parent, const std::string& key) const {
  if (key.empty()) return std::nullopt;
  if (parent.empty()) {
    if (key.starts_with(prefix_)) {
      const std::string value = text(key);
      return value.empty() ? std::nullopt : std::optional(value);
    }
    if (const std::string* const value = find(key); value != nullptr) return *value;
  }
  // The newest one first.
  for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
    if (parent.empty() ? line->front().first != key : line->front() != parent.front()) continue;
    if (parent.empty()) return line->front().second;
    for (const auto& [one, value] : *line) {
      if (one == key) return value;
    }
  }
  return std::nullopt;
}

const std::string* Settings::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::string Settings::text(const std::string& key, const std::string& otherwise) const {
  // Keys that begin with the prefix are said so in the environment, too.
  const std::string name = key.starts_with(prefix_) ? key : prefix_ + upper(key);
  if (const char* said = std::getenv(name.c_str()); said != nullptr)
    return dialect_ == Dialect::scr ? with_environment(said) : said;
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
