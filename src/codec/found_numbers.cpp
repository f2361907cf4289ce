#include "codec/found_numbers.h"

#include <algorithm>

#include "codec/learned.h"

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

void FoundNumbers::write_learned(ByteWriter& w) const {
  const MutexLock lock(mutex_);
  w.varint(guesses_.size());
  for (const NumberGuess& guess : guesses_) write_guess(w, guess);
  w.varint(choices_.size());
  for (const Choice& choice : choices_) {
    write_guess(w, choice.of);
    write_candidate(w, choice.candidate);
    w.varint(choice.packs_left);
    w.varint(choice.sets_left);
  }
}

Status FoundNumbers::read_learned(ByteReader& reader) {
  VARVE_ASSIGN(const unsigned guesses, read_at_most(reader, kKindsKept));
  for (unsigned i = 0; i < guesses; ++i) {
    VARVE_ASSIGN(const NumberGuess guess, read_guess(reader));
    add(guess);
  }
  VARVE_ASSIGN(const unsigned choices, read_at_most(reader, kKindsKept));
  for (unsigned i = 0; i < choices; ++i) {
    Choice choice;
    VARVE_ASSIGN(choice.of, read_guess(reader));
    VARVE_ASSIGN(choice.candidate, read_candidate(reader));
    VARVE_ASSIGN(choice.packs_left, read_at_most(reader, kPacksPerChoice));
    VARVE_ASSIGN(choice.sets_left, read_at_most(reader, kSetsPerChoice));
    if (choice.sets_left == 0) return Status::corrupt("a choice that has ended");
    const MutexLock lock(mutex_);
    keep_newest(choices_, choice, [&](const Choice& other) { return other.of == choice.of; });
  }
  return {};
}

void FoundNumbers::begin_set() {
  const MutexLock lock(mutex_);
  std::erase_if(choices_, [](Choice& each) { return --each.sets_left == 0; });
}

}  // namespace varve
