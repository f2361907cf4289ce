#include "cli/remedies.h"

#include <fmt/format.h>

namespace varve::cli {

namespace {
/// In commands and options, {}: the argument; null where there are none for it.
const char* words_of(Remedy remedy) {
  switch (remedy) {
    case Remedy::none:
    case Remedy::save_again:
    case Remedy::take_job_over: return nullptr;
    case Remedy::name_the_job: return "name the job with --job";
    case Remedy::name_the_step: return "name the step with --step";
    case Remedy::choose_another_step: return "choose another step with --step, or `varve drop {}` first";
    case Remedy::list_sets: return "`varve list` shows the sets of the store";
    case Remedy::list_files: return "`varve show {}` lists its files";
    case Remedy::list_variables: return "`varve show --variables {}` lists its variables";
    case Remedy::drop_set: return "the other sets are not affected; `varve drop {}` removes this one";
    case Remedy::drop_set_in_one_store: return "`varve drop {}` in one of the stores, or keep both apart";
    case Remedy::try_again_or_drop_sets: return "try again; to start anew, `varve drop` the sets";
    case Remedy::verify_or_drop_sets:
      return "`varve verify` tells what is damaged; `varve drop` the sets to start anew";
    case Remedy::verify: return "`varve verify` says what is damaged";
    case Remedy::replace_arena:
      return "put the arena back from a copy of the store, or take what is lacking from another one with `varve "
             "repair`";
    case Remedy::verify_and_replace_arena:
      return "`varve verify` says which sets need it; put the arena back from a copy of the store, or take what is "
             "lacking from another one with `varve repair`";
    case Remedy::rebuild_header: return "run `varve repair`: the arenas say what was in it";
    case Remedy::keep_going:
      return "nothing was written; `varve verify --deep` tells what is affected, --keep-going restores what is whole";
    case Remedy::repair_from_another_store:
      return "nothing was written; `varve verify --deep` tells what is affected, `varve repair --from STORE` brings it "
             "back from another store";
    case Remedy::take_another_job: return "take another job name; `varve restore {}` gives its files";
    case Remedy::overwrite: return "restore into another folder, or give --overwrite";
    case Remedy::lay_more_ranks_together: return "lay more ranks together (--group-size)";
    case Remedy::make_chunks_larger: return "larger chunks (--chunker fixed:64KiB) make fewer pieces";
    case Remedy::create_store: return "create one with `varve init {}`";
    case Remedy::create_store_with_score_bits: return "make the target with `varve init --score-bits {}`";
    case Remedy::rebalance: return "name it alone, or spread it over the others with `varve rebalance`";
    case Remedy::free_space: return "free some space (`varve prune`, or other files) and run it again";
    case Remedy::free_space_or_raise_quota: return "free some space (`varve prune`), or have the quota raised";
    case Remedy::use_less_memory: return "lower --memory, or run it where there is more";
    case Remedy::make_key: return "make one with `varve serve --new-key {}`";
    case Remedy::name_key_file: return "give --key-file FILE, or `export VARVE_KEY_FILE=FILE`";
    case Remedy::share_key_file: return "give both the same --key-file";
    case Remedy::try_again_or_allow_connections: return "try again, or start it with more --connections";
  }
  return nullptr;
}
}  // namespace

std::string hint_of(const Status& failure) {
  const char* words = words_of(failure.remedy());
  return words != nullptr ? fmt::format(fmt::runtime(words), failure.remedy_argument()) : std::string(failure.hint());
}

std::string in_one_line(const Status& failure) {
  return failure.ok()
             ? failure.to_string()
             : Status(failure.code(), std::string(failure.message()), std::string(failure.subject()), hint_of(failure))
                   .to_string();
}

}  // namespace varve::cli
