#include "aggregate/rank_order.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <regex>

namespace varve {

namespace {
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

struct Number {
  size_t begin = 0;
  int64_t value = -1;  ///< -1 if it has too many digits to be a rank
};

std::vector<Number> numbers_in(std::string_view path) {
  std::vector<Number> numbers;
  for (size_t i = 0; i < path.size();) {
    if (!is_digit(path[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < path.size() && is_digit(path[end])) ++end;
    Number number{i, -1};
    if (end - i <= 12) std::from_chars(path.data() + i, path.data() + end, number.value);
    numbers.push_back(number);
    i = end;
  }
  return numbers;
}

/// How clearly the word before a number of a path says that it is a rank: the smaller, the clearer; kNoWord: there is
/// no such word.
constexpr size_t kNoWord = 10;
size_t rank_word_before(std::string_view path, const Number& number) {
  static constexpr std::array<std::string_view, kNoWord> words = {"rank", "cpu", "proc", "processor", "process",
                                                                  "pe",   "mpi", "task", "p",         "node"};
  size_t end = number.begin;
  while (end > 0 && (path[end - 1] == '_' || path[end - 1] == '-' || path[end - 1] == '.')) --end;
  size_t begin = end;
  while (begin > 0 && std::isalpha(static_cast<unsigned char>(path[begin - 1])) != 0) --begin;
  std::string word(path.substr(begin, end - begin));
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return static_cast<size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

/// Of the numbers that differ between files whose paths are alike but for them: the one after the clearest word for a
/// rank, or the last one. A file that stands alone has a rank only with such a word.
void assign_family(const std::vector<SourceFile*>& family) {
  std::vector<std::vector<Number>> numbers;
  numbers.reserve(family.size());
  for (const SourceFile* file : family) numbers.push_back(numbers_in(file->path));
  std::optional<size_t> chosen;
  size_t clearest = kNoWord;
  for (size_t field = 0; field < numbers[0].size(); ++field) {
    const bool varies = std::any_of(numbers.begin(), numbers.end(), [&](const std::vector<Number>& n) {
      return n[field].value != numbers[0][field].value;
    });
    if (!varies && family.size() > 1) continue;
    const size_t word = rank_word_before(family[0]->path, numbers[0][field]);
    if (word < clearest || (clearest == kNoWord && family.size() > 1)) chosen = field;
    clearest = std::min(clearest, word);
  }
  if (!chosen) return;
  for (size_t i = 0; i < family.size(); ++i) family[i]->rank = numbers[i][*chosen].value;
}

Result<std::regex> parse_regex(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    return Status::invalid_argument(std::string("not a regular expression: ") + error.what(), pattern);
  }
}

Status assign_by_regex(std::vector<SourceFile>& files, const std::string& pattern) {
  VARVE_ASSIGN(const std::regex expression, parse_regex(pattern));
  try {
    for (SourceFile& file : files) {
      std::smatch match;
      if (file.type != FileType::regular || !std::regex_search(file.path, match, expression)) continue;
      const std::string text = match.size() > 1 ? match[1].str() : match[0].str();
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), file.rank);
      if (error != std::errc() || end != text.data() + text.size() || file.rank < 0) {
        return Status::invalid_argument("the rank expression does not give a number for a file", file.path,
                                        "put the digits into the first pair of parentheses: 'cpu([0-9]+)'");
      }
    }
  } catch (const std::regex_error& error) {
    return Status::invalid_argument(std::string("too much for a regular expression: ") + error.what(), pattern);
  }
  return {};
}
}  // namespace

Status check_rank_regex(const std::string& regex) { return parse_regex(regex).status(); }

std::string path_family(std::string_view path) {
  std::string family;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!is_digit(path[i])) {
      family.push_back(path[i]);
    } else if (i == 0 || !is_digit(path[i - 1])) {
      family.push_back('#');
    }
  }
  return family;
}

Status assign_ranks(std::vector<SourceFile>& files, const std::string& regex) {
  if (!regex.empty()) return assign_by_regex(files, regex);
  std::map<std::string, std::vector<SourceFile*>> families;
  for (SourceFile& file : files) {
    if (file.type == FileType::regular) families[path_family(file.path)].push_back(&file);
  }
  for (auto& [family, members] : families) assign_family(members);
  return {};
}

}  // namespace varve
