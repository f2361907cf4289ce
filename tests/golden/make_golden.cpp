// Makes the golden stores: make_golden FOLDER. To be run by hand, and only for a new version of the format.

#include <cstdio>

#include "core/memory_file_system.h"
#include "golden/golden.h"
#include "store/prune.h"

namespace varve {
namespace {

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

void make_store(const std::string& path, const test::GoldenStore& golden) {
  std::filesystem::create_directories(path);
  FileSystem& fs = posix_file_system();
  check(Store::create(fs, path, {.algorithm = golden.algorithm, .score_bytes = golden.score_bytes}));
  const auto store = test::open_store(fs, path);
  for (const test::GoldenSet& set : test::golden_sets()) {
    if (set.name == test::kThinnedSet) save(*store, test::kDroppedSet, set.way);
    save(*store, set.name, set.way);
  }
  check(Catalog(*store).remove(test::kDroppedSet));
  PruneOptions options;
  options.live_share_min = 0.9;
  const Result<PruneReport> pruned = prune_store(*store, options);
  check(pruned.status());
  // Nothing but what cannot be made again belongs in the repository.
  for (const char* folder : {"index", "writers", "condemned"}) std::filesystem::remove_all(path + "/" + folder);
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
