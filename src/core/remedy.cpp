#include <fmt/format.h>

#include "varve/status.h"

namespace varve {

namespace {
struct Words {
  const char* name;
  const char* text;  ///< {}: the argument
};

/// All that the library says of remedies. Programs that have commands and options of their own say it in those.
Words words_of(Remedy remedy) {
  switch (remedy) {
    case Remedy::none: return {"none", ""};
    case Remedy::save_again: return {"save_again", "save again"};
    case Remedy::name_the_job: return {"name_the_job", "choose a name for the job"};
    case Remedy::name_the_step: return {"name_the_step", "choose the step"};
    case Remedy::choose_another_step: return {"choose_another_step", "choose another step, or drop the set {} first"};
    case Remedy::list_sets: return {"list_sets", "see which sets the store has"};
    case Remedy::list_files: return {"list_files", "see which files the set {} has"};
    case Remedy::list_variables: return {"list_variables", "see which variables the files of {} have"};
    case Remedy::drop_set: return {"drop_set", "the other sets are not affected; drop the set {}"};
    case Remedy::drop_set_in_one_store:
      return {"drop_set_in_one_store", "drop the set {} in one of the stores, or keep both apart"};
    case Remedy::try_again_or_drop_sets:
      return {"try_again_or_drop_sets", "try again; to start anew, drop the sets of the job"};
    case Remedy::verify_or_drop_sets:
      return {"verify_or_drop_sets",
              "verify the store to learn what is damaged; to start anew, drop the sets of the job"};
    case Remedy::verify: return {"verify", "verify the store to learn what is damaged"};
    case Remedy::replace_arena:
      return {"replace_arena", "put the arena back from a copy of the store, or repair the store from another one"};
    case Remedy::verify_and_replace_arena:
      return {
          "verify_and_replace_arena",
          "verify the store to learn which sets need it; put the arena back from a copy of the store, or repair the "
          "store from another one"};
    case Remedy::rebuild_header: return {"rebuild_header", "repair the store: its arenas say what was in the header"};
    case Remedy::keep_going:
      return {"keep_going",
              "nothing was written; verify the store deeply to learn what is affected, or restore what is whole"};
    case Remedy::repair_from_another_store:
      return {"repair_from_another_store",
              "nothing was written; verify the store deeply to learn what is affected, and repair it from another one"};
    case Remedy::take_another_job:
      return {"take_another_job", "take another job name; the files of {} can be restored without a session"};
    case Remedy::overwrite: return {"overwrite", "restore into another folder, or allow that files are overwritten"};
    case Remedy::lay_more_ranks_together: return {"lay_more_ranks_together", "lay more ranks together in a group"};
    case Remedy::make_chunks_larger: return {"make_chunks_larger", "larger chunks make fewer pieces"};
    case Remedy::create_store: return {"create_store", "create a store there first"};
    case Remedy::create_store_with_score_bits:
      return {"create_store_with_score_bits", "make the target with scores of {} bits"};
    case Remedy::rebalance: return {"rebalance", "name it alone, or rebalance it over the others first"};
    case Remedy::free_space:
      return {"free_space", "free some space (prune the store, or remove other files) and try again"};
    case Remedy::free_space_or_raise_quota:
      return {"free_space_or_raise_quota", "free some space (prune the store), or have the quota raised"};
    case Remedy::use_less_memory: return {"use_less_memory", "let it use less memory, or run it where there is more"};
    case Remedy::make_key: return {"make_key", "make a new key of random bytes in {}"};
    case Remedy::name_key_file: return {"name_key_file", "name the file that has the key (key_file)"};
    case Remedy::share_key_file: return {"share_key_file", "give both the same key file"};
    case Remedy::try_again_or_allow_connections:
      return {"try_again_or_allow_connections", "try again, or let the server take more connections"};
    case Remedy::take_job_over:
      return {"take_job_over",
              "wait for its end, or give this run another job name; if that run is known to be gone, take the job over "
              "(take_over, VARVE_TAKE_OVER=true)"};
  }
  return {"none", ""};
}
}  // namespace

std::string_view remedy_name(Remedy remedy) { return words_of(remedy).name; }

Hint::Hint(Remedy what, std::string about)
    : remedy(what), argument(std::move(about)), text(fmt::format(fmt::runtime(words_of(what).text), argument)) {}

}  // namespace varve
