#include "engine/scheme.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <tuple>

#include "core/bytes.h"
#include "core/file_system.h"

namespace varve {

Result<Scheme> parse_scheme(std::string_view name) {
  for (Scheme scheme : {Scheme::agnostic, Scheme::agnostic_block, Scheme::aware, Scheme::aware_block}) {
    if (name == scheme_name(scheme)) return scheme;
  }
  return Status::invalid_argument("unknown scheme", std::string(name),
                                  "choose agnostic, agnostic-block, aware or aware-block");
}

std::string_view scheme_name(Scheme scheme) {
  switch (scheme) {
    case Scheme::agnostic: return "agnostic";
    case Scheme::agnostic_block: return "agnostic-block";
    case Scheme::aware: return "aware";
    case Scheme::aware_block: return "aware-block";
  }
  return "aware";
}

namespace {
/// With so much of a class of a bundle, or such a part of a turn if that is less, a turn ends with what a rank has: who
/// reads one rank alone does not read many others.
constexpr uint64_t kTurnOfARankMin = 32_KiB, kTurnOfARankShare = 4;
}  // namespace

WorkOrder::WorkOrder(const std::vector<Stream>& streams, Scheme scheme, uint64_t block_bytes, uint64_t pack_bytes,
                     uint64_t chunk_bytes)
    : streams_(streams),
      blocks_(takes_blocks(scheme)),
      by_class_(scheme == Scheme::aware || scheme == Scheme::aware_block),
      block_bytes_(block_bytes),
      pack_bytes_(pack_bytes),
      chunk_bytes_(chunk_bytes),
      order_(streams.size()) {
  std::iota(order_.begin(), order_.end(), 0u);
  // Bundles first, each with its classes one after another.
  auto key = [&](uint32_t i) {
    const Stream& s = streams_[i];
    const bool bundled = by_class_ && s.bundle.number > 0;
    return std::tuple(bundled ? s.bundle.number : UINT32_MAX, bundled ? s.bundle.position : 0u,
                      by_class_ ? s.laid_class() : 0u, by_class_ ? s.class_id : 0u, s.rank, s.file, s.position);
  };
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  class_end_ = active_end_ = class_end(0);
}

size_t WorkOrder::class_end(size_t from) const {
  size_t end = from;
  while (end < order_.size() &&
         (!by_class_ || streams_[order_[end]].laid_class() == streams_[order_[from]].laid_class()))
    ++end;
  return end;
}

std::optional<WorkItem> WorkOrder::next() { return blocks_ ? next_block() : next_whole(); }

void WorkOrder::begin_bundle() {
  const uint32_t number = streams_[order_[at_]].bundle.number;
  while (at_ < order_.size() && streams_[order_[at_]].bundle.number == number) {
    const size_t end = class_end(at_);
    turns_.push_back({.at = at_, .end = end, .offset = 0});
    at_ = end;
  }
  turn_ = 0;
  turn_bytes_ = turn_bytes_left_ = bundle_pack_bytes(pack_bytes_, turns_.size()) / turns_.size();
  much_of_a_rank_ = std::min(turn_bytes_ / kTurnOfARankShare, kTurnOfARankMin);
}

std::optional<WorkItem> WorkOrder::next_of_bundle() {
  // All classes have streams of the same lengths: when the last one has ended, so have all.
  while (!turns_.empty()) {
    Turn& turn = turns_[turn_];
    if (turn_bytes_left_ > 0 && turn.at < turn.end) {
      const Stream& stream = streams_[order_[turn.at]];
      const uint64_t left = stream.bytes - turn.offset;
      const uint64_t whole_chunks = (turn_bytes_left_ + chunk_bytes_ - 1) / chunk_bytes_ * chunk_bytes_;
      // A short rest goes with what is before it.
      const uint64_t taken = left < whole_chunks + much_of_a_rank_ ? left : whole_chunks;
      turn_bytes_left_ -= std::min(turn_bytes_left_, taken);
      const WorkItem item{order_[turn.at], turn.offset, turn.offset + taken};
      turn.offset += taken;
      if (taken == left) {
        ++turn.at;
        turn.offset = 0;
        const bool ends_rank = turn.at < turn.end && streams_[order_[turn.at]].rank != stream.rank;
        if (ends_rank && turn_bytes_ - turn_bytes_left_ >= much_of_a_rank_) turn_bytes_left_ = 0;
      }
      if (taken > 0) return item;
      continue;
    }
    turn_bytes_left_ = turn_bytes_;
    if (++turn_ < turns_.size()) continue;
    turn_ = 0;
    if (turn.at == turn.end) turns_.clear();
  }
  return std::nullopt;
}

std::optional<WorkItem> WorkOrder::next_whole() {
  if (const std::optional<WorkItem> item = next_of_bundle()) return item;
  while (at_ < order_.size()) {
    if (streams_[order_[at_]].bundle.number > 0 && by_class_) {
      begin_bundle();
      if (const std::optional<WorkItem> item = next_of_bundle()) return item;
      continue;
    }
    const uint32_t stream = order_[at_++];
    if (streams_[stream].bytes > 0) return WorkItem{stream, 0, streams_[stream].bytes};
  }
  return std::nullopt;
}

std::optional<WorkItem> WorkOrder::next_block() {
  while (class_begin_ < order_.size()) {
    while (at_ < active_end_) {
      const uint32_t stream = order_[at_++];
      const uint64_t begin = block_ * block_bytes_, bytes = streams_[stream].bytes;
      if (begin >= bytes) continue;
      found_in_round_ = true;
      return WorkItem{stream, begin, std::min(begin + block_bytes_, bytes)};
    }
    if (found_in_round_) {
      ++block_;
      // A class of one long stream and many short ones should not cost their product.
      auto has_more = [&](uint32_t i) { return streams_[i].bytes > block_ * block_bytes_; };
      const auto begin = order_.begin();
      const auto end = std::stable_partition(begin + static_cast<ptrdiff_t>(class_begin_),
                                             begin + static_cast<ptrdiff_t>(active_end_), has_more);
      active_end_ = static_cast<size_t>(end - begin);
    } else {
      class_begin_ = class_end_;
      class_end_ = active_end_ = class_end(class_begin_);
      block_ = 0;
    }
    found_in_round_ = false;
    at_ = class_begin_;
  }
  return std::nullopt;
}

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

/// So many ranks, and more, are not believed on the strength of numbers alone.
constexpr size_t kManyRanks = 1000;
/// What most of so many ranks have at least, such as some hundred atoms: one that computes on less waits for the others
/// most of the time.
constexpr uint64_t kBytesOfManyMin = 16_KiB;

/// Whether numbers may be those of ranks where no word says so: of some of a run's, as a node may have few of them.
/// Very many are all of a run's.
bool look_like_ranks(const std::vector<std::vector<Number>>& numbers, size_t field, uint64_t said_count) {
  constexpr int64_t ranks_max = 1 << 20, apart_max = 1024, many_apart_max = 2;
  std::set<int64_t> values;
  for (const std::vector<Number>& of_file : numbers) values.insert(of_file[field].value);
  const int64_t apart = values.size() < kManyRanks || values.size() <= said_count ? apart_max : many_apart_max;
  return *values.begin() >= 0 && *values.rbegin() < ranks_max &&
         *values.rbegin() - *values.begin() < apart * static_cast<int64_t>(values.size());
}

/// Of the numbers that differ between files whose paths are alike but for them: the one after the clearest word for a
/// rank, or, if they look like ranks, the last one. A file that stands alone has a rank only with such a word, and so
/// has a chunk of an array, whose numbers are places in that. Returns whether a word says so.
bool assign_family(const std::vector<SourceFile*>& family, bool chunks, uint64_t said_count) {
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
  if (clearest == kNoWord && chosen && (chunks || !look_like_ranks(numbers, *chosen, said_count))) return false;
  if (!chosen) return false;
  for (size_t i = 0; i < family.size(); ++i) family[i]->rank = numbers[i][*chosen].value;
  return clearest < kNoWord;
}

using Family = std::vector<SourceFile*>;
std::set<int64_t> ranks_in(const Family& family) {
  std::set<int64_t> ranks;
  for (const SourceFile* file : family) {
    if (file->rank >= 0) ranks.insert(file->rank);
  }
  return ranks;
}

/// Takes the ranks that only numbers tell away again where they are very many, most with little data: frames of a film
/// or records of a data set, rather. Unless they are those that words tell, too. Returns how many those were.
uint64_t drop_doubtful_ranks(const std::vector<Family>& by_numbers, const std::vector<Family>& by_words,
                             uint64_t said_count) {
  std::map<int64_t, uint64_t> bytes_of;  // what a rank has in all files: small ones may lie beside large ones
  std::set<int64_t> said, doubted;
  for (const std::vector<Family>* families : {&by_numbers, &by_words}) {
    for (const Family& family : *families) {
      for (const SourceFile* file : family) bytes_of[file->rank] += file->bytes;
    }
  }
  for (const Family& family : by_words) said.merge(ranks_in(family));
  for (const Family& family : by_numbers) {
    const std::set<int64_t> ranks = ranks_in(family);
    if (ranks.size() < kManyRanks || ranks.size() <= said_count) continue;
    if (std::includes(said.begin(), said.end(), ranks.begin(), ranks.end())) continue;
    const auto little =
        std::count_if(ranks.begin(), ranks.end(), [&](int64_t rank) { return bytes_of.at(rank) < kBytesOfManyMin; });
    if (2 * static_cast<size_t>(little) < ranks.size()) continue;
    for (SourceFile* file : family) file->rank = -1;
    doubted.insert(ranks.begin(), ranks.end());
  }
  return doubted.size();
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

namespace {
/// "#confout.gro.1#", "notes.~2~": what a program has put aside under numbers of its own.
bool is_backup(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.ends_with('~') || (name.size() > 1 && name.front() == '#' && name.back() == '#');
}

/// The folders of Zarr's arrays, whose files are called by their places in the array.
class ArrayFolders {
 public:
  explicit ArrayFolders(const std::vector<SourceFile>& files) {
    for (const SourceFile& file : files) {
      const std::string name = base_name(file.path);
      if (name == ".zarray" || name == "zarr.json") folders_.insert(above(file.path));
    }
  }
  bool have(std::string path) const {
    while (!folders_.empty() && !path.empty()) {
      path = above(path);
      if (folders_.contains(path)) return true;
    }
    return false;
  }

 private:
  static std::string above(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash);
  }

  std::set<std::string> folders_;
};
}  // namespace

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

namespace {
/// Returns how many ranks were doubted.
uint64_t guess_ranks(std::vector<SourceFile>& files, uint64_t said_count) {
  std::map<std::string, Family> families;
  for (SourceFile& file : files) {
    if (file.type == FileType::regular && !is_backup(file.path)) families[path_family(file.path)].push_back(&file);
  }
  const ArrayFolders arrays(files);
  std::vector<Family> by_numbers, by_words;
  for (auto& [name, family] : families) {
    const bool said = assign_family(family, arrays.have(family.front()->path), said_count);
    (said ? by_words : by_numbers).push_back(std::move(family));
  }
  return drop_doubtful_ranks(by_numbers, by_words, said_count);
}
}  // namespace

Status assign_ranks(std::vector<SourceFile>& files, const std::string& regex, uint64_t said_count) {
  if (!regex.empty()) return assign_by_regex(files, regex);
  guess_ranks(files, said_count);
  return {};
}

bool names_rank(std::string_view name) {
  const std::vector<Number> numbers = numbers_in(name);
  return !numbers.empty() && rank_word_before(name, numbers.back()) < kNoWord;
}

uint64_t count_doubted_ranks(const std::vector<SourceFile>& files) {
  const auto without = std::count_if(files.begin(), files.end(), [](const SourceFile& file) {
    return file.type == FileType::regular && file.rank < 0;
  });
  if (static_cast<size_t>(without) < kManyRanks) return 0;
  std::vector<SourceFile> again = files;
  return guess_ranks(again, 0);
}

}  // namespace varve
