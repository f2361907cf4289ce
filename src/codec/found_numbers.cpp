#include "codec/found_numbers.h"

#include <algorithm>

namespace varve {

namespace {
/// So many are remembered.
constexpr size_t kKindsKept = 8;
/// What was chosen once serves so many packs, as a file has several variables, and so many sets.
constexpr unsigned kPacksPerChoice = 4, kSetsPerChoice = 4;

/// Puts `newest` in the place of the one that `is_same`, behind the others, of which there are not many.
template <class T, class IsSame>
void keep_newest(std::vector<T>& all, T newest, const IsSame& is_same) {
  std::erase_if(all, is_same);
  if (all.size() == kKindsKept) all.erase(all.begin());
  all.push_back(std::move(newest));
}
}  // namespace

std::vector<NumberGuess> FoundNumbers::guesses() const {
  const MutexLock lock(mutex_);
  return guesses_;
}

void FoundNumbers::add(const NumberGuess& guess) {
  const MutexLock lock(mutex_);
  keep_newest(guesses_, guess, [&](const NumberGuess& other) { return other == guess; });
}

std::optional<Candidate> FoundNumbers::choice_for(const NumberGuess& guess) {
  const MutexLock lock(mutex_);
  const auto choice =
      std::find_if(choices_.begin(), choices_.end(), [&](const Choice& each) { return each.of == guess; });
  if (choice == choices_.end() || choice->packs_left == 0) return std::nullopt;
  --choice->packs_left;
  return choice->candidate;
}

void FoundNumbers::choose(const NumberGuess& guess, const Candidate& candidate) {
  const MutexLock lock(mutex_);
  keep_newest(choices_, Choice{guess, candidate, kPacksPerChoice - 1, kSetsPerChoice},
              [&](const Choice& other) { return other.of == guess; });
}

void FoundNumbers::begin_set() {
  const MutexLock lock(mutex_);
  std::erase_if(choices_, [](Choice& each) { return --each.sets_left == 0; });
}

}  // namespace varve
