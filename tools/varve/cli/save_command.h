#pragma once

#include "cli/arguments.h"
#include "engine/save.h"
#include "runtime/settings.h"

namespace varve::cli {

/// --rank-regex, as RankGrouping::rank_regex.
void declare_rank_regex(Arguments& arguments, std::string& into, const std::string& help);

/// That so many ranks were doubted (count_doubted_ranks()), for people.
std::string doubt_of_ranks(uint64_t count);

/// The options that say how a set is stored, for all commands that save sets.
class SaveArguments {
 public:
  /// How ranks are found, and what lies together.
  void declare_grouping(Arguments& arguments);
  /// How it is made smaller.
  void declare_shrinking(Arguments& arguments);
  /// What runs are told counts where the command line says nothing. Once it is parsed.
  void fill_from(const Settings& run);
  /// What was said, once the command line is parsed; `several` processes may save together.
  Result<SaveOptions> take(bool several) const;

  SaveOptions options;

 private:
  uint32_t group_size_ = 0;  ///< not given
  bool effort_given_ = false, codec_given_ = false, scheme_given_ = false;
};

}  // namespace varve::cli
