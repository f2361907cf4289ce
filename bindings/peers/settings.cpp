#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

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

/// Whether a line that begins with this key belongs together: a descriptor of SCR.
bool begins_line(std::string_view key) { return key == "STORE" || key == "CKPT" || key == "GROUPS"; }

std::optional<double> number_in(const std::string& text) {
  constexpr double kMost = 1e15;  // of what is counted here
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number = end != text.c_str() && *end == '\0' && std::fabs(value) <= kMost;
  return is_number ? std::optional(value) : std::nullopt;
}

std::optional<bool> flag_in(const std::string& text) {
  const std::string said = upper(text);
  if (said == "1" || said == "TRUE" || said == "YES" || said == "ON") return true;
  if (said == "0" || said == "FALSE" || said == "NO" || said == "OFF") return false;
  return std::nullopt;
}

std::vector<std::string> words_of(const Key& key) {
  std::istringstream words{std::string(key.about)};
  return {std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
}
std::optional<std::string> word_in(const Key& key, const std::string& text) {
  for (const std::string& word : words_of(key)) {
    if (upper(word) == upper(text)) return word;
  }
  return std::nullopt;
}

/// Why what is said of a key has no effect, where it has none; `where`: what the user calls it.
std::optional<std::string> complaint(const Key* key, const std::string& where, const std::string& value) {
  if (key == nullptr) return "an unknown key is left out: " + where;
  switch (key->kind) {
    case Key::text: return std::nullopt;
    case Key::number: return number_in(value) ? std::nullopt : std::optional(where + " is no number: " + value);
    case Key::flag: return flag_in(value) ? std::nullopt : std::optional(where + " is neither 1 nor 0: " + value);
    case Key::word: {
      if (word_in(*key, value)) return std::nullopt;
      const std::vector<std::string> words = words_of(*key);
      std::string listed;
      for (const std::string& word : words) listed += (listed.empty() ? "" : ", ") + word;
      return where + " is none of " + listed + ": " + value + "; " + words.front() + " is taken";
    }
    case Key::left_out: return where + " is left out: " + std::string(key->about);
  }
  return std::nullopt;
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
  read_ = {};
  senseless_.clear();
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    line = trimmed(without_comment(line, dialect_));
    if (line.empty() || (dialect_ == Dialect::ini && line.front() == '[')) continue;
    Pairs pairs = pairs_of(line);
    if (dialect_ == Dialect::ini && pairs.size() > 1)
      pairs = {{pairs.front().first, trimmed(line.substr(line.find('=') + 1))}};
    if (pairs.empty()) {
      senseless_.push_back("a line of " + path + " says nothing: " + line);
    } else {
      take(std::move(pairs), read_);
    }
  }
  return true;
}

void Settings::take(Pairs pairs, Layer& layer) const {
  if (dialect_ == Dialect::scr) {
    for (auto& [key, value] : pairs) value = with_environment(value);
  }
  if (pairs.size() == 1 && !begins_line(pairs.front().first)) {
    layer.values.insert_or_assign(pairs.front().first, pairs.front().second);
    return;
  }
  std::erase_if(layer.lines, [&pairs](const Pairs& line) { return line.front() == pairs.front(); });
  layer.lines.push_back(std::move(pairs));
}

std::vector<Pairs> Settings::lines() const {
  std::vector<Pairs> all = read_.lines;
  for (const Pairs& own : set_.lines) {
    std::erase_if(all, [&own](const Pairs& line) { return line.front() == own.front(); });
    all.push_back(own);
  }
  return all;
}

std::optional<std::string> Settings::configure(std::string_view line) {
  Pairs pairs = pairs_of(line);
  if (pairs.empty()) return line.find('=') == std::string_view::npos ? ask({}, trimmed(line)) : std::nullopt;
  // What stands alone behind a descriptor is asked for.
  auto& [key, value] = pairs.back();
  const size_t blank = value.find_first_of(" \t");
  if (begins_line(pairs.front().first) && blank != std::string::npos) {
    const std::string asked = trimmed(std::string_view(value).substr(blank));
    value.resize(blank);
    return ask(pairs, asked);
  }
  if (pairs.size() == 1 && value.empty()) {
    set_.values.erase(key);
    std::erase_if(set_.lines, [&key = key](const Pairs& one) { return one.front().first == key; });
  } else {
    take(std::move(pairs), set_);
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
  const std::vector<Pairs> all = lines();
  for (auto line = all.rbegin(); line != all.rend(); ++line) {
    if (parent.empty() ? line->front().first != key : line->front() != parent.front()) continue;
    if (parent.empty()) return line->front().second;
    for (const auto& [one, value] : *line) {
      if (one == key) return value;
    }
  }
  return std::nullopt;
}

const std::string* Settings::find(const std::string& key) const {
  for (const Layer* layer : {&set_, &read_}) {
    const auto found = layer->values.find(key);
    if (found != layer->values.end()) return &found->second;
  }
  return nullptr;
}

const Key* Settings::key_called(const std::string& name) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&name](const Key& key) { return key.name == name; });
  return found == keys_.end() ? nullptr : &*found;
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
  return number_in(text(key)).value_or(otherwise);
}
bool Settings::flag(const std::string& key, bool otherwise) const { return flag_in(text(key)).value_or(otherwise); }
std::string Settings::word(const std::string& key) const {
  const Key* const known = key_called(key);
  return known == nullptr ? std::string() : word_in(*known, text(key)).value_or(words_of(*known).front());
}

std::string Settings::text(const Pairs& line, std::string_view key, const std::string& otherwise) {
  for (const auto& [one, value] : line) {
    if (one == key) return value;
  }
  return otherwise;
}
double Settings::number(const Pairs& line, std::string_view key, double otherwise) {
  return number_in(text(line, key)).value_or(otherwise);
}
bool Settings::flag(const Pairs& line, std::string_view key, bool otherwise) {
  return flag_in(text(line, key)).value_or(otherwise);
}
std::string Settings::word(const Pairs& line, std::string_view key) const {
  const Key* const known = key_called(line.front().first + " " + std::string(key));
  return known == nullptr ? std::string() : word_in(*known, text(line, key)).value_or(words_of(*known).front());
}

std::vector<std::string> Settings::without_effect() const {
  std::vector<std::string> all = senseless_;
  const auto add = [&all](std::optional<std::string> what) {
    if (what && std::find(all.begin(), all.end(), *what) == all.end()) all.push_back(std::move(*what));
  };
  for (const Layer* layer : {&set_, &read_}) {
    for (const auto& [name, value] : layer->values) {
      if (key_called(name) == nullptr) add(complaint(nullptr, name, value));
    }
  }
  // Also what the environment says.
  for (const Key& key : keys_) {
    const std::string name(key.name), value = text(name);
    if (!value.empty()) add(complaint(&key, name, value));
  }
  for (const Pairs& line : lines()) {
    const std::string& head = line.front().first;
    if (const Key* const whole = key_called(head); whole != nullptr && whole->kind == Key::left_out) {
      add(complaint(whole, head, line.front().second));
      continue;
    }
    if (!begins_line(head)) add("a line of several keys is left out: that of " + head);
    for (size_t i = 1; i < line.size() && begins_line(head); ++i) {
      const auto& [name, value] = line[i];
      add(complaint(key_called(head + " " + name), name + " of " + head + "=" + line.front().second, value));
    }
  }
  return all;
}

}  // namespace varve::peers
