#include "sets/saving.h"

#include "store/verify.h"

namespace varve::test {

LayoutService& layout_service() {
  static const std::unique_ptr<LayoutService> service = [] {
    LayoutServiceOptions options;
    options.worker_count = 2;
    return LayoutService::start(std::move(options)).value();
  }();
  return *service;
}

SaveOptions save_options(const std::string& job, uint64_t step) {
  SaveOptions options;
  options.job = job;
  options.step = step;
  options.thread_count = 1;
  options.memory_bytes = 32_MiB;
  options.direct_io = false;
  return options;
}

Result<SaveReport> save(const Store& store, const std::string& folder, const std::string& job, uint64_t step) {
  return save_folder(store, folder, save_options(job, step), layout_service());
}

std::unique_ptr<Store> make_store(FileSystem& fs, const std::string& path) {
  const Status created = Store::create(fs, path);
  EXPECT_TRUE(created.ok()) << created.to_string();
  return open_store(fs, path);
}

std::unique_ptr<Store> open_store(FileSystem& fs, const std::string& path) {
  Result<std::unique_ptr<Store>> store = Store::open(fs, path);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(*store) : nullptr;
}

namespace {
/// The first few differences of two snapshots.
std::string differences(const Snapshot& saved, const Snapshot& restored) {
  std::string text;
  size_t shown = 0;
  auto note = [&](const std::string& path, const std::string& was, const std::string& is) {
    if (++shown <= 5) text += path + "\n  saved:    " + was + "\n  restored: " + is + "\n";
  };
  for (const auto& [path, was] : saved) {
    auto found = restored.find(path);
    const std::string is = found == restored.end() ? "nothing" : found->second;
    if (is != was) note(path, was, is);
  }
  for (const auto& [path, is] : restored) {
    if (!saved.contains(path)) note(path, "nothing", is);
  }
  return text;
}
}  // namespace

void rewrite(FileSystem& fs, const std::string& path, const std::function<void(ByteVector&)>& change) {
  ByteVector raw = read_file(fs, path, 64_MiB).value();
  change(raw);
  ASSERT_TRUE(fs.remove(path).ok());
  const auto file = fs.create(path).value();
  ASSERT_TRUE(file->write_at(0, raw).ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(fs.sync_directory(parent_path(path)).ok());
}

testing::AssertionResult restores_as(const Store& store, const SetName& name, const Snapshot& saved,
                                     const RestoreOptions& options) {
  const TempFolder folder;
  Result<RestoreReport> report = restore_set(store, name, folder.path(), options);
  if (!report.ok()) return testing::AssertionFailure() << report.status().to_string();
  const Snapshot restored = snapshot_of(folder.path());
  if (restored == saved) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name.to_string() << " differs:\n" << differences(saved, restored);
}

testing::AssertionResult is_whole(const Store& store) {
  Result<VerifyReport> report = verify_store(store, true);
  if (!report.ok()) return testing::AssertionFailure() << report.status().to_string();
  if (report->whole()) return testing::AssertionSuccess();
  testing::AssertionResult failure = testing::AssertionFailure();
  for (const Damage& damage : report->damages) failure << damage.what.to_string() << "\n";
  return failure;
}

}  // namespace varve::test
