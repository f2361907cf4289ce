#include "sets/damage.h"

#include <algorithm>
#include <set>

#include "engine/inspect.h"
#include "store/verify.h"

namespace varve::test {

namespace {
constexpr const char* kSidecar = R"({ "variables": [ { "name": "/Density", "type": "f64", "shape": [200] },
                                                   { "name": "/Energy", "type": "f64", "shape": [200] } ] })";

void put(MemoryFileSystem& fs, const std::string& path, ByteSpan contents) {
  fs.remove(path).ignore("it need not be there");
  Result<std::unique_ptr<File>> file = fs.create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->write_at(0, contents).ok());
  // Only now the file system forgets the file that was there before: a power cut could have brought it back.
  ASSERT_TRUE(fs.sync_directory(parent_path(path)).ok());
}

void list_files(MemoryFileSystem& fs, const std::string& folder, std::set<std::string>& paths) {
  const Result<std::vector<DirectoryEntry>> entries = fs.list(folder);
  ASSERT_TRUE(entries.ok());
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(folder, entry.name);
    if (entry.is_directory) {
      list_files(fs, path, paths);
    } else {
      paths.insert(path);
    }
  }
}

/// Reads a file of a set through its variables and skeleton: all of it in order.
Result<ByteVector> read_all(const Store& store, const SetName& name, const std::string& path,
                            const std::string& variable) {
  ByteVector contents;
  VARVE_TRY(read_set_file(store, name, path, variable, [&](ByteSpan part) -> Status {
    contents.insert(contents.end(), part.begin(), part.end());
    return {};
  }));
  return contents;
}
}  // namespace

DamagedStore::DamagedStore(size_t field_bytes) {
  const auto store = make_store(fs_);
  const SetName names[] = {{"run", 1}, {"run", 2}, {"other", 1}};
  uint64_t seed = 0;
  for (const SetName& name : names) {
    const std::string folder = sources_ / name.to_string();
    ByteVector field = random_bytes(field_bytes, name.job == "run" ? 1 : 2);
    const ByteVector fresh = random_bytes(field_bytes / 4, 10 + ++seed);
    std::copy(fresh.begin(), fresh.end(), field.begin());
    write_file(folder + "/rank0.dat", field);
    write_file(folder + "/rank1.bin", smooth_field(400, seed));
    write_file(folder + "/rank1.bin.varve-layout", kSidecar);
    write_file(folder + "/notes", name.to_string());
    const Result<SaveReport> saved = save(*store, folder, name.job, name.step);
    EXPECT_TRUE(saved.ok()) << saved.status().to_string();
    snapshots_[name] = snapshot_of(folder);
  }
  std::set<std::string> paths;
  list_files(fs_, "/store", paths);
  for (const std::string& path : paths) {
    originals_[path] = read_file(fs_, path, 64_MiB).value();
    (path.ends_with(".run") || path.ends_with(".learned") ? disposable_ : vital_).push_back(path);
  }
}

std::vector<std::string> DamagedStore::arenas() const {
  std::vector<std::string> paths;
  for (const std::string& path : vital_) {
    if (path.ends_with(".arena")) paths.push_back(path);
  }
  return paths;
}

void DamagedStore::replace(const std::string& path, ByteSpan contents) { put(fs_, path, contents); }

void DamagedStore::remove(const std::string& path) { ASSERT_TRUE(fs_.remove(path).ok()); }

void DamagedStore::repair() {
  std::set<std::string> present;
  list_files(fs_, "/store", present);
  for (const std::string& path : present) {
    if (!originals_.contains(path)) remove(path);
  }
  for (const auto& [path, contents] : originals_) {
    if (read_file(fs_, path, 64_MiB).ok() && *read_file(fs_, path, 64_MiB) == contents) continue;
    put(fs_, path, contents);
  }
}

void DamagedStore::flip(const std::string& path, uint64_t bit) {
  ByteVector contents = originals_.at(path);
  contents[bit / 8] ^= std::byte{1} << (bit % 8);
  put(fs_, path, contents);
}

testing::AssertionResult DamagedStore::flip_is_reported(const std::string& path, uint64_t bit) {
  flip(path, bit);
  bool reported = true;
  if (Result<std::unique_ptr<Store>> store = Store::open(fs_, "/store"); store.ok()) {
    const Result<VerifyReport> report = verify_store(**store, true);
    reported = report.ok() && !report->whole();
  }
  put(fs_, path, originals_.at(path));
  if (reported) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "bit " << bit << " of " << path << " is not missed";
}

testing::AssertionResult DamagedStore::flip_is_contained(const std::string& path, uint64_t bit) {
  flip(path, bit);
  testing::AssertionResult contained = is_contained();
  put(fs_, path, originals_.at(path));
  return contained << " (bit " << bit << " of " << path << ")";
}

testing::AssertionResult DamagedStore::is_contained(bool must_report) {
  Result<std::unique_ptr<Store>> store = Store::open(fs_, "/store");
  if (!store.ok()) {
    // Then nothing can be read wrongly either. The message names the file.
    if (store.status().to_string().find("varve.store") != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "unclear: " << store.status().to_string();
  }
  const Result<VerifyReport> report = verify_store(**store, true);
  if (!report.ok()) return testing::AssertionFailure() << report.status().to_string();
  if (must_report && report->whole()) return testing::AssertionFailure() << "verify reports nothing";
  std::set<std::string> affected;
  std::vector<std::string> files;
  for (const Damage& damage : report->damages) {
    if (damage.what.subject().empty()) return testing::AssertionFailure() << "no place: " << damage.what.to_string();
    affected.insert(damage.affected_sets.begin(), damage.affected_sets.end());
    files.insert(files.end(), damage.affected_files.begin(), damage.affected_files.end());
  }
  for (const auto& [name, snapshot] : snapshots_) {
    testing::AssertionResult checked = check_set(**store, name, affected.contains(name.to_string()), files);
    if (!checked) return checked;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult DamagedStore::check_set(const Store& store, const SetName& name, bool affected,
                                                 const std::vector<std::string>& affected_files) const {
  RestoreOptions options;
  options.sync = false;
  options.thread_count = 1;
  const TempFolder target;
  const Result<RestoreReport> restored = restore_set(store, name, target / "here", options);
  if (restored.ok() == affected) {
    return testing::AssertionFailure() << name.to_string() << (affected ? " is" : " is not")
                                       << " affected, but: " << restored.status().to_string();
  }
  if (!restored.ok()) {
    if (std::filesystem::exists(target / "here")) return testing::AssertionFailure() << "a failed restore left files";
    if (restored.status().message().empty() || restored.status().subject().empty()) {
      return testing::AssertionFailure() << "unclear: " << restored.status().to_string();
    }
  } else if (snapshot_of(target / "here") != snapshots_.at(name)) {
    return testing::AssertionFailure() << "WRONG BYTES in " << name.to_string();
  }
  const bool all_lost =
      std::find(affected_files.begin(), affected_files.end(), name.to_string() + ":*") != affected_files.end();
  for (const char* file : {"rank0.dat", "rank1.bin"}) {
    const bool lost =
        std::find(affected_files.begin(), affected_files.end(), name.to_string() + ":" + file) != affected_files.end();
    const std::string source = sources_ / (name.to_string() + "/" + file);
    const Result<ByteVector> contents = read_all(store, name, file, "");
    if (contents.ok() && *contents != read_file(posix_file_system(), source, 64_MiB).value()) {
      return testing::AssertionFailure() << "WRONG BYTES in " << name.to_string() << ":" << file;
    }
    if (contents.ok() == (lost || all_lost)) {
      return testing::AssertionFailure() << name.to_string() << ":" << file << (contents.ok() ? " can" : " cannot")
                                         << " be read: " << contents.status().to_string();
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace varve::test
