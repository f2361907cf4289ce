// Makes the golden stores: make_golden FOLDER. Those that are there get the sets that they lack, and what they have
// stays: to be run by hand, when the format can express something new.

#include <cstdio>

#include "core/memory_file_system.h"
#include "golden/golden.h"
#include "store/prune.h"

namespace varve {
namespace {

constexpr const char* kFoldersNotKept[] = {"index", "writers", "condemned", "parts"};

void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "make_golden: %s\n", status.to_string().c_str());
  std::exit(1);
}

void save(const Store& store, const SetName& name, const test::Way& way) {
  const test::TempFolder folder;
  test::make_golden_folder(folder.path(), name);
  SaveOptions options = test::options_of(way, name.job, name.step);
  options.thread_count = 1;
  check(save_folder(store, folder.path(), options, test::layout_service()).status());
}

/// Of the one that two sets shared.
void make_thinned_pack(const Store& store) {
  check(Catalog(store).remove(test::kDroppedSet));
  PruneOptions options;
  options.live_share_min = 0.9;
  check(prune_store(store, options).status());
}

void make_store(const std::string& path, const test::GoldenStore& golden) {
  FileSystem& fs = posix_file_system();
  const bool is_new = std::filesystem::create_directories(path);
  if (is_new) check(Store::create(fs, path, {.algorithm = golden.algorithm, .score_bytes = golden.score_bytes}));
  // Version control keeps no empty folders.
  for (const char* folder : kFoldersNotKept) std::filesystem::create_directories(path + "/" + folder);
  const auto store = test::open_store(fs, path);
  for (const test::GoldenSet& set : test::golden_sets()) {
    if (Catalog(*store).has(set.name).value()) continue;
    if (set.name == test::kThinnedSet) save(*store, test::kDroppedSet, set.way);
    save(*store, set.name, set.way);
  }
  if (is_new) make_thinned_pack(*store);
  // Nothing but what cannot be made again belongs in the repository.
  for (const char* folder : kFoldersNotKept) std::filesystem::remove_all(path + "/" + folder);
}

}  // namespace
}  // namespace varve

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_golden FOLDER\n");
    return 2;
  }
  for (const auto& golden : varve::test::golden_stores())
    varve::make_store(std::string(argv[1]) + "/" + golden.folder, golden);
  return 0;
}
