#pragma once

#include <optional>
#include <vector>

#include "codec/candidates.h"
#include "core/sync.h"

namespace varve {

/// What bytes of unknown meaning were found to be, and what then made them small: likely so for the next ones, in the
/// same class and in those that are saved with it, of which each may have but one pack. Thread-safe.
class FoundNumbers {
 public:
  /// The last ones, the newest last.
  std::vector<NumberGuess> guesses() const;
  void add(const NumberGuess& guess);

  /// What was chosen for bytes that were taken for these numbers; none, if it is time to choose again.
  std::optional<Candidate> choice_for(const NumberGuess& guess);
  void choose(const NumberGuess& guess, const Candidate& candidate);

  /// What was chosen serves for some sets.
  void begin_set();

  /// As Encoder's.
  void write_learned(ByteWriter& w) const;
  Status read_learned(ByteReader& reader);

 private:
  struct Choice {
    NumberGuess of;
    Candidate candidate;
    unsigned packs_left = 0, sets_left = 0;
  };
  mutable Mutex mutex_;
  std::vector<NumberGuess> guesses_ VARVE_GUARDED_BY(mutex_);
  std::vector<Choice> choices_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
