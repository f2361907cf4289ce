#pragma once

#include <string>
#include <vector>

#include "sets/saving.h"

namespace varve::test {

/// One way to save: "aware/lorenzo+shuffle+zstd/fixed:8192".
struct Way {
  Scheme scheme = Scheme::aware;
  std::string codec = "balanced";
  std::string chunker = "fixed:8192";
  std::string name() const;
};

/// All combinations.
std::vector<Way> every_way(const std::vector<std::string>& codecs, const std::vector<std::string>& chunkers);

inline const std::vector<Scheme> kSchemes = {Scheme::agnostic, Scheme::agnostic_block, Scheme::aware,
                                             Scheme::aware_block};

/// save_options() that save in this way.
SaveOptions options_of(const Way& way, const std::string& job, uint64_t step);

/// Saves the folders as consecutive steps of one job into a new store in memory, restores each and compares it with its
/// folder, and verifies every byte of the store.
testing::AssertionResult come_back(const std::vector<std::string>& folders, const Way& way);

/// The folders of the real data that the environment variable VARVE_TEST_DATA names, one list of consecutive dumps for
/// each program; empty if it is unset.
std::vector<std::vector<std::string>> real_data();

}  // namespace varve::test
