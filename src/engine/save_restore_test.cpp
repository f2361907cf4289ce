#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "core/memory_file_system.h"
#include "engine/restore_target.h"
#include "sets/saving.h"
#include "sets/stopping_progress.h"

namespace varve {
namespace {

using test::TempFolder;

struct SaveRestore : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  TempFolder place;
  std::string source = place / "run/dump0007";

  void save_sample(const SetName& name = {"run", 7}) {
    for (int rank = 0; rank < 3; ++rank) {
      test::write_file(source + "/data/rank" + std::to_string(rank) + ".bin",
                       test::random_bytes(20'000, static_cast<uint64_t>(rank)));
    }
    test::write_file(source + "/notes.txt", "notes");
    const Result<SaveReport> saved = test::save(*store, source, name.job, name.step);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }
  Result<RestoreReport> restore(const std::string& folder, RestoreOptions options = {}) {
    options.sync = false;
    return restore_set(*store, {"run", 7}, folder, options);
  }
  Result<SetName> name_for(const std::string& folder, SaveOptions options = {}) {
    std::filesystem::create_directories(place / folder);
    return choose_set_name(*store, place / folder, options);
  }
};

TEST_F(SaveRestore, StoresAFileAnewWhoseContentsAreInTooManyPieces) {
  constexpr size_t block = 8_KiB;
  ByteVector bytes = test::random_bytes(64 * block, 1);
  for (std::byte& byte : bytes) byte &= std::byte{0x7f};  // noise would be cut into fewer chunks
  test::write_file(source + "/file", bytes);
  ASSERT_TRUE(test::save(*store, source, "run", 6).ok());
  for (size_t at = 0; at < 40 * block; at += 2 * block) bytes[at] ^= std::byte{1};
  test::write_file(source + "/file", bytes);
  struct Warnings final : ProgressSink {
    void phase(std::string_view) override {}
    void total(uint64_t) override {}
    void advance(uint64_t) override {}
    bool cancelled() const override { return false; }
    void warning(const Status& what) override { subjects.emplace_back(what.subject()); }
    std::vector<std::string> subjects;
  } warnings;
  SaveOptions options = test::save_options("run", 7);
  options.tree.references_max = 8;
  const Result<SaveReport> saved = save_folder(*store, source, options, test::layout_service(), warnings);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_LE(saved->known_bytes, 8 * block);
  EXPECT_GT(saved->known_bytes, 0u);
  EXPECT_EQ(warnings.subjects, std::vector<std::string>{"file"});
  EXPECT_TRUE(test::restores_as(*store, {"run", 7}, test::snapshot_of(source)));
}

TEST_F(SaveRestore, SavesNothingOfAFolderThatASetIsLeaving) {
  test::write_file(source + "/data", "what is left");
  const std::string note = removal_note_name({"run", 7});
  test::write_file(source + "/" + note, "");
  SaveOptions options = test::save_options("other", 7);
  const auto saved = [&](const std::string& folder) {
    return save_folder(*store, folder, options, test::layout_service()).status().code();
  };
  EXPECT_EQ(saved(source), StatusCode::busy);
  EXPECT_EQ(saved(place / "run"), StatusCode::busy);
  options.choice.include = {"data"};
  EXPECT_EQ(saved(source), StatusCode::busy);
  EXPECT_FALSE(Catalog(*store).has({"other", 7}).value());
  options.choice = {.include = {}, .exclude = {note}};
  EXPECT_EQ(saved(source), StatusCode::ok);
  std::filesystem::remove(source + "/" + note);
  options = test::save_options("other", 8);
  EXPECT_EQ(saved(source), StatusCode::ok);
}

TEST_F(SaveRestore, SavesNothingOfAFolderInWhichARestoreWasStopped) {
  save_sample();
  const std::string target = place / "target", note = target + "/" + std::string(kRestoringNote);
  {
    // Two files of the set are at their places when its process ends.
    const auto stopped = RestoreTarget::open(target, false);
    ASSERT_TRUE(stopped.ok());
    ASSERT_TRUE((*stopped)->begin_publishing("run@7", "", true, null_progress()).ok());
    test::write_file(target + "/one", "of two");
  }
  const auto saved = [&] {
    return save_folder(*store, target, test::save_options("other", 7), test::layout_service()).status();
  };
  EXPECT_EQ(saved().code(), StatusCode::busy);
  EXPECT_EQ(saved().subject(), kRestoringNote);
  // Neither a part of that set nor another set makes it whole.
  RestoreOptions options;
  options.overwrite = true;
  options.filter.globs = {"*.txt"};
  ASSERT_TRUE(restore(target, options).ok());
  EXPECT_EQ(saved().code(), StatusCode::busy);
  ASSERT_TRUE(test::save(*store, source, "run", 8).ok());
  options.filter.globs.clear();
  ASSERT_TRUE(restore_set(*store, {"run", 8}, target, options).ok());
  EXPECT_EQ(saved().code(), StatusCode::busy);
  ASSERT_TRUE(restore(target, options).ok());
  EXPECT_FALSE(std::filesystem::exists(note));
  EXPECT_EQ(saved().code(), StatusCode::ok);
}

TEST_F(SaveRestore, GoesOnAfterOneThatWasStoppedBeforeItHadGivenAnyFileItsName) {
  save_sample();
  const std::string target = place / "target";
  test::write_file(target + "/" + std::string(kRestoringNote), "");
  ASSERT_TRUE(restore(target).ok());
  EXPECT_EQ(test::snapshot_of(target), test::snapshot_of(source));
}

/// Does something once, when the first bytes have gone through.
struct Meddler final : ProgressSink {
  void total(uint64_t) override {}
  void advance(uint64_t) override {
    if (!std::exchange(done, true)) meddle();
  }
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return false; }
  std::function<void()> meddle;
  bool done = false;
};

TEST_F(SaveRestore, LeavesNoNoteWhereItCouldGiveNoFileItsName) {
  save_sample();
  const std::string target = place / "target";
  // It has looked at the folder already when another one puts the same set there.
  Meddler other;
  other.meddle = [&] { EXPECT_TRUE(restore(target).ok()); };
  RestoreOptions options;
  options.thread_count = 1;
  EXPECT_EQ(restore_set(*store, {"run", 7}, target, options, other).status().code(), StatusCode::already_exists);
  EXPECT_TRUE(other.done);
  EXPECT_EQ(test::snapshot_of(target), test::snapshot_of(source));
}

TEST_F(SaveRestore, PutsFilesIntoAFolderAfterAnotherRestoreHasDoneSo) {
  save_sample();
  const std::string target = place / "target";
  Result<std::unique_ptr<RestoreTarget>> first = RestoreTarget::open(target, false);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->begin_publishing("run@7", "", false, null_progress()).ok());
  std::atomic<bool> done = false;
  Thread second = start_thread([&] {
                    EXPECT_TRUE(restore(target).ok());
                    done = true;
                  }).value();
  // The first has staged nothing.
  const auto has_staged = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(target)) {
      std::error_code gone;
      if (is_restore_staging(entry.path().filename().string()) && !std::filesystem::is_empty(entry.path(), gone))
        return true;
    }
    return false;
  };
  for (int tries = 0; tries < 1000 && !has_staged(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(has_staged());
  EXPECT_FALSE(std::filesystem::exists(target + "/notes.txt")) << "the first is at it";
  EXPECT_FALSE(done);
  ASSERT_TRUE((*first)->end_publishing(false).ok());
  second.join();
  first->reset();
  EXPECT_EQ(test::snapshot_of(target), test::snapshot_of(source));
}

TEST_F(SaveRestore, CanBeStoppedWhileItWaitsForAnotherRestoreIntoTheFolder) {
  test::PhaseProgress progress([](std::string_view phase) { return phase.starts_with("waiting for another restore"); });
  save_sample();
  const std::string target = place / "target";
  const auto other = RestoreTarget::open(target, false).value();
  ASSERT_TRUE(other->begin_publishing("run@7", "", false, null_progress()).ok());
  const Status stopped = restore_set(*store, {"run", 7}, target, {}, progress).status();
  EXPECT_EQ(stopped.code(), StatusCode::cancelled) << stopped.to_string();
  ASSERT_TRUE(other->end_publishing(false).ok());
  EXPECT_TRUE(restore(target).ok());
}

/// Does something once a restore waits for another one, of which `other` has the note; then lets it go on.
test::PhaseProgress while_it_waits(std::unique_ptr<RestoreTarget>& other, std::function<void()> then) {
  return test::PhaseProgress([&other, then = std::move(then)](std::string_view phase) {
    if (!phase.starts_with("waiting for another restore")) return false;
    then();
    EXPECT_TRUE(other->end_publishing(false).ok());
    other.reset();
    return false;
  });
}

TEST_F(SaveRestore, SetsNoModeThroughALinkThatComesMeanwhile) {
  save_sample();
  std::filesystem::permissions(source + "/data", std::filesystem::perms{0777});
  ASSERT_TRUE(test::save(*store, source, "run", 8).ok());
  const std::string target = place / "target", outside = place / "outside";
  std::filesystem::create_directory(outside);
  std::filesystem::permissions(outside, std::filesystem::perms{0700});
  std::unique_ptr<RestoreTarget> other = RestoreTarget::open(target, false).value();
  ASSERT_TRUE(other->begin_publishing("run@8", "", false, null_progress()).ok());
  test::PhaseProgress progress =
      while_it_waits(other, [&] { std::filesystem::create_directory_symlink(outside, target + "/data"); });
  EXPECT_FALSE(restore_set(*store, {"run", 8}, target, {}, progress).ok());
  EXPECT_EQ(std::filesystem::status(outside).permissions(), std::filesystem::perms{0700});
  EXPECT_TRUE(std::filesystem::is_empty(outside));
}

TEST_F(SaveRestore, ChangesNothingOfWhatAnotherRestoreWasFasterWith) {
  save_sample();
  std::filesystem::permissions(source + "/data", std::filesystem::perms{0500});
  ASSERT_TRUE(test::save(*store, source, "run", 8).ok());
  for (const bool is_new : {false, true}) {
    SCOPED_TRACE(is_new);
    const std::string target = place / (is_new ? "new" : "there");
    if (!is_new) std::filesystem::create_directory(target);
    std::unique_ptr<RestoreTarget> other = RestoreTarget::open(target, false).value();
    ASSERT_TRUE(other->begin_publishing("run@8", "", false, null_progress()).ok());
    test::PhaseProgress progress = while_it_waits(other, [&] {
      test::write_file(target + "/data/rank0.bin", "as the other one has it");
      std::filesystem::permissions(target + "/data", std::filesystem::perms{0500});
    });
    EXPECT_EQ(restore_set(*store, {"run", 8}, target, {}, progress).status().code(), StatusCode::already_exists);
    EXPECT_EQ(std::filesystem::status(target + "/data").permissions(), std::filesystem::perms{0500});
    EXPECT_FALSE(std::filesystem::exists(target + "/notes.txt"));
    std::filesystem::permissions(target + "/data", std::filesystem::perms{0700});
  }
  std::filesystem::permissions(source + "/data", std::filesystem::perms{0700});
}

TEST_F(SaveRestore, SavesNothingBelowAFolderIntoWhichARestoreWasStopped) {
  save_sample();
  const std::string note = place / "run/" + std::string(kRestoringNote);
  std::filesystem::create_directories(place / "run/below0001");
  const auto saved = [&](const std::string& name) {
    test::write_file(place / "run/below0001/" + name, name);
    return test::save(*store, place / "run/below0001", "below", 1).status();
  };
  const auto a_minute = std::chrono::minutes(1);
  test::write_file(note, "");
  ASSERT_TRUE(saved("made by a program since").code() != StatusCode::ok) << "of the same second: who knows";
  std::filesystem::last_write_time(note, std::filesystem::last_write_time(note) - a_minute);
  EXPECT_TRUE(saved("made by a program since").ok());
  std::filesystem::last_write_time(place / "run/below0001/made by a program since",
                                   std::filesystem::last_write_time(note) - a_minute);
  const Status refused = test::save(*store, place / "run/below0001", "below", 2).status();
  EXPECT_EQ(refused.code(), StatusCode::busy);
  EXPECT_EQ(refused.subject(), std::filesystem::canonical(note).string());
}

TEST_F(SaveRestore, NamesASetAfterItsFolder) {
  EXPECT_EQ(name_for("enzo/DD0007").value(), (SetName{"enzo", 7}));
  EXPECT_EQ(name_for("lulesh/dump00300").value(), (SetName{"lulesh", 300}));
  EXPECT_EQ(name_for("enzo/RD0003.tar").value(), (SetName{"enzo", 3}));
  EXPECT_EQ(name_for("results").value(), (SetName{"results", 0}));
  EXPECT_EQ(name_for("results/").value().job, name_for("results").value().job);
}

TEST_F(SaveRestore, NumbersASetAfterTheNewestIfTheFolderDoesNot) {
  save_sample({"results", 41});
  EXPECT_EQ(name_for("results").value(), (SetName{"results", 42}));
}

TEST_F(SaveRestore, NamesASetAfterATime) {
  EXPECT_EQ(name_for("case/0.02").value().to_string(), "case@0.02");
  EXPECT_EQ(name_for("case/1e-05").value().to_string(), "case@1e-05");
  // Beside times, a number is one; so it comes after those that are smaller.
  EXPECT_LT(name_for("case/0.2").value(), name_for("case/1").value());
  EXPECT_EQ(name_for("case/1").value().to_string(), "case@1.0");
  EXPECT_EQ(name_for("counts/1").value(), (SetName{"counts", 1}));
  // So it is in a job that has times, whatever is beside the folder.
  save_sample({"other", *step_of_time(0.5)});
  EXPECT_EQ(name_for("other/1").value().step, *step_of_time(1));
  SaveOptions options;
  options.job = "other";
  EXPECT_EQ(name_for("results", options).status().remedy(), Remedy::name_the_step);
}

TEST_F(SaveRestore, FindsATimeWhereACountIsAskedForThatIsNotThere) {
  save_sample({"run", 1});
  save_sample({"run", *step_of_time(1)});
  save_sample({"run", *step_of_time(2)});
  const Catalog catalog(*store);
  EXPECT_EQ(catalog.resolve("run@1").value().step, 1u);
  EXPECT_EQ(catalog.resolve("run@1.0").value().step, *step_of_time(1));
  EXPECT_EQ(catalog.resolve("run@2").value().step, *step_of_time(2));
  EXPECT_EQ(catalog.resolve("run").value().to_string(), "run@2.0");
  EXPECT_EQ(catalog.resolve("run@0.5").status().code(), StatusCode::not_found);
  EXPECT_EQ(catalog.resolve("run@x!").status().code(), StatusCode::invalid_argument);
  ASSERT_TRUE(catalog.remove({"run", *step_of_time(1)}).ok());
  EXPECT_EQ(catalog.resolve("run@1.0").status().code(), StatusCode::not_found) << "a count is no time";
}

TEST_F(SaveRestore, TakesNoStepFromTheExtensionOfAFile) {
  for (const char* name : {"wave.h5", "base.sql.bz2", "state.cpt"}) {
    test::write_file(place / ("p/" + std::string(name)), "x");
    EXPECT_EQ(choose_set_name(*store, place / ("p/" + std::string(name)), {}).value(), (SetName{name, 0}));
  }
  test::write_file(place / "p/restart.100", "x");
  EXPECT_EQ(choose_set_name(*store, place / "p/restart.100", {}).value(), (SetName{"p", 100}));
  test::write_file(place / "p/state_20.cpt", "x");
  EXPECT_EQ(choose_set_name(*store, place / "p/state_20.cpt", {}).value(), (SetName{"p", 20}));
}

TEST_F(SaveRestore, SavesOneFile) {
  test::write_file(place / "md/state.cpt", "state");
  test::write_file(place / "md/md.log", "log");
  SaveOptions options = test::save_options("md", 1);
  ASSERT_TRUE(save_folder(*store, place / "md/state.cpt", options, test::layout_service()).ok());
  std::filesystem::create_symlink(place / "md/state.cpt", place / "link");
  options.step = 2;
  const Result<SaveReport> through_link = save_folder(*store, place / "link", options, test::layout_service());
  ASSERT_TRUE(through_link.ok()) << through_link.status().to_string();
  EXPECT_EQ(through_link->record.file_count, 1u);
  for (const uint64_t step : {1, 2}) {
    const std::string restored = place / ("restored" + std::to_string(step));
    RestoreOptions restoring;
    restoring.sync = false;
    ASSERT_TRUE(restore_set(*store, {"md", step}, restored, restoring).ok());
    EXPECT_EQ(std::filesystem::file_size(restored + "/state.cpt"), 5u);
    EXPECT_FALSE(std::filesystem::exists(restored + "/md.log"));
  }
  EXPECT_EQ(save_folder(*store, "/dev/null", test::save_options("md", 3), test::layout_service()).status().code(),
            StatusCode::invalid_argument);
}

TEST_F(SaveRestore, NamesASetAsItIsTold) {
  SaveOptions options;
  options.job = "mine";
  EXPECT_EQ(name_for("enzo/DD0007", options).value(), (SetName{"mine", 7}));
  options.step = 3;
  EXPECT_EQ(name_for("enzo/DD0007", options).value(), (SetName{"mine", 3}));
  options.job = "../x";
  EXPECT_EQ(name_for("enzo/DD0007", options).status().code(), StatusCode::invalid_argument);
}

TEST_F(SaveRestore, RefusesOptionsThatMakeNoSense) {
  save_sample();
  auto code_with = [&](const std::function<void(SaveOptions&)>& change) {
    SaveOptions options = test::save_options("run", 8);
    change(options);
    return save_folder(*store, source, options, test::layout_service()).status().code();
  };
  EXPECT_EQ(code_with([](SaveOptions& o) { o.ranks.group_size = 0; }), StatusCode::invalid_argument);
  EXPECT_EQ(code_with([](SaveOptions& o) { o.pack_bytes = 1; }), StatusCode::invalid_argument);
  EXPECT_EQ(code_with([](SaveOptions& o) { o.pack_bytes = 1_GiB; }), StatusCode::invalid_argument);
  EXPECT_EQ(code_with([](SaveOptions& o) { o.ranks.rank_regex = "("; }), StatusCode::invalid_argument);
  EXPECT_EQ(code_with([](SaveOptions& o) { o.chunker.bytes_average = 7; }), StatusCode::invalid_argument);
  EXPECT_EQ(code_with([](SaveOptions& o) { o.step = 7; }), StatusCode::already_exists);
  EXPECT_EQ(
      save_folder(*store, place / "nothing", test::save_options("run", 9), test::layout_service()).status().code(),
      StatusCode::not_found);
  EXPECT_EQ(Catalog(*store).sets().value().size(), 1u);
}

TEST_F(SaveRestore, SavesTheSameFolderAgainForNextToNothing) {
  save_sample();
  const Result<SaveReport> again = test::save(*store, source, "run", 8);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->record.new_bytes, 0u);
  EXPECT_EQ(again->known_bytes + again->pattern_bytes, again->record.raw_bytes);
  EXPECT_LT(again->record.stored_bytes(), 2000u);
}

TEST_F(SaveRestore, MakesAGroupOfSoManyRanks) {
  SaveOptions options = test::save_options("run", 7);
  options.ranks.group_size = 2;
  for (int rank = 0; rank < 5; ++rank) test::write_file(source + "/rank" + std::to_string(rank), std::to_string(rank));
  const Result<SaveReport> saved = save_folder(*store, source, options, test::layout_service());
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->record.rank_count, 5u);
  EXPECT_EQ(saved->record.groups.size(), 3u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 7}, test::snapshot_of(source)));
}

TEST_F(SaveRestore, StopsOnRequestAndLeavesNothing) {
  test::write_file(source + "/large", test::random_bytes(8_MiB, 1));
  test::StoppingProgress soon(1_MiB + 1);
  EXPECT_EQ(save_folder(*store, source, test::save_options("run", 7), test::layout_service(), soon).status().code(),
            StatusCode::cancelled);
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  EXPECT_TRUE(fs.list(store->arenas_path()).value().empty());
  EXPECT_TRUE(fs.list(store->writers_path()).value().empty());
  ASSERT_TRUE(test::save(*store, source, "run", 7).ok());
  test::StoppingProgress at_once(1);
  RestoreOptions one_by_one;
  one_by_one.thread_count = 1;
  const Result<RestoreReport> restored = restore_set(*store, {"run", 7}, place / "target", one_by_one, at_once);
  EXPECT_EQ(restored.status().code(), StatusCode::cancelled);
  EXPECT_FALSE(std::filesystem::exists(place / "target"));
}

TEST_F(SaveRestore, RefusesAFolderThatChangesWhileItIsSaved) {
  using std::filesystem::remove_all;
  const std::vector<std::function<void()>> changes = {
      [&] { std::filesystem::resize_file(source + "/large", 1_MiB); },
      [&] { std::filesystem::remove(source + "/large"); },
      [&] { std::filesystem::remove(source + "/zzz/last"); },
      [&] { std::filesystem::rename(source + "/zzz", source + "/moved"); },
      [&] { remove_all(source + "/zzz/last"), std::filesystem::create_directory(source + "/zzz/last"); },
      [&] { remove_all(source + "/zzz"), test::write_file(source + "/zzz", "a file"); },
      [&] { test::write_file(source + "/zzz/added", "new"); },
      [&] { test::write_file(source + "/added", "new"); },
      [&] { remove_all(source); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    remove_all(source);
    test::write_file(source + "/large", test::random_bytes(4_MiB, 1));
    test::write_file(source + "/zzz/last", test::random_bytes(1_MiB, 2));
    Meddler meddler;
    meddler.meddle = changes[i];
    const Result<SaveReport> saved =
        save_folder(*store, source, test::save_options("run", 7), test::layout_service(), meddler);
    EXPECT_EQ(saved.status().code(), StatusCode::busy) << saved.status().to_string();
    EXPECT_TRUE(Catalog(*store).sets().value().empty());
  }
}

TEST_F(SaveRestore, LeavesOutWhatAKilledRestoreHasLeft) {
  const std::string left = "/.varve-restore-0123456789abcdef0123456789abcdef";
  test::write_file(source + left + "/0", "staged");
  save_sample();
  EXPECT_FALSE(std::filesystem::exists(place / "target"));
  ASSERT_TRUE(restore(place / "target").ok());
  EXPECT_FALSE(std::filesystem::exists(place / "target" + left));
}

TEST_F(SaveRestore, TakesAwayWhatAKilledOneHasLeftButNotWhatARunningOneHas) {
  save_sample();
  const std::string target = place / "target";
  const std::string left = target + "/.varve-restore-0123456789abcdef0123456789abcdef";
  const std::string mine = target + "/.varve-restore-mine";
  test::write_file(left + "/0", "staged");
  test::write_file(mine + "/0", "another program's");
  const Result<std::unique_ptr<RestoreTarget>> running = RestoreTarget::open(target, false);
  ASSERT_TRUE(running.ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  ASSERT_TRUE((*running)->stage(7, 100, false).ok());
  ASSERT_TRUE(restore(target).ok());
  EXPECT_TRUE(std::filesystem::exists(mine + "/0"));
  TreeFile file;
  file.path = "kept";
  file.mode = 0600;
  ASSERT_TRUE((*running)->finish(7, file, false).ok());
  EXPECT_TRUE((*running)->publish(7, file).ok());
}

TEST_F(SaveRestore, GivesFoldersTheirModesThoughOnlyFilesInThemAreAskedFor) {
  test::write_file(source + "/data/inner/file", "x");
  std::filesystem::permissions(source + "/data", std::filesystem::perms{0710});
  std::filesystem::permissions(source + "/data/inner", std::filesystem::perms{0700});
  save_sample();
  RestoreOptions options;
  options.filter.globs = {"data/inner/file"};
  const Result<RestoreReport> restored = restore(place / "a", options);
  ASSERT_TRUE(restored.ok()) << restored.status().to_string();
  EXPECT_EQ(restored->file_count, 1u);
  EXPECT_EQ(std::filesystem::status(place / "a/data").permissions(), std::filesystem::perms{0710});
  EXPECT_EQ(std::filesystem::status(place / "a/data/inner").permissions(), std::filesystem::perms{0700});
}

TEST_F(SaveRestore, RestoresOnlyTheFilesThatAreAskedFor) {
  save_sample();
  RestoreOptions options;
  options.filter.globs = {"*.txt"};
  ASSERT_TRUE(restore(place / "a", options).ok());
  EXPECT_EQ(test::snapshot_of(place / "a").size(), 1u);
  options.filter.globs = {"data/rank[01].bin"};
  ASSERT_EQ(restore(place / "b", options).value().file_count, 2u);
  options.filter.globs.clear();
  options.filter.rank = 2;
  ASSERT_EQ(restore(place / "c", options).value().file_count, 1u);
  EXPECT_TRUE(std::filesystem::exists(place / "c/data/rank2.bin"));
  options.filter.rank = 99;
  EXPECT_EQ(restore(place / "d", options).status().code(), StatusCode::not_found);
  EXPECT_EQ(restore_set(*store, {"run", 8}, place / "e", {}).status().code(), StatusCode::not_found);
}

TEST_F(SaveRestore, DoesNotTouchFilesThatAreThereUnlessToldTo) {
  save_sample();
  test::write_file(place / "target/notes.txt", "precious");
  test::write_file(place / "target/other", "stays");
  const test::Snapshot before = test::snapshot_of(place / "target");
  EXPECT_EQ(restore(place / "target").status().code(), StatusCode::already_exists);
  EXPECT_EQ(test::snapshot_of(place / "target"), before);
  RestoreOptions options;
  options.overwrite = true;
  ASSERT_TRUE(restore(place / "target", options).ok());
  test::Snapshot after = test::snapshot_of(place / "target");
  EXPECT_EQ(after.at("other"), before.at("other"));
  after.erase("other");
  test::Snapshot saved = test::snapshot_of(source);
  after.erase("data"), saved.erase("data");
  EXPECT_EQ(after, saved);
}

TEST_F(SaveRestore, NeverReplacesAFolderByAFileOrTheOtherWayRound) {
  save_sample();
  RestoreOptions options;
  options.overwrite = true;
  std::filesystem::create_directories(place / "a/notes.txt");
  EXPECT_EQ(restore(place / "a", options).status().code(), StatusCode::already_exists);
  test::write_file(place / "b/data", "a file");
  EXPECT_FALSE(restore(place / "b", options).ok());
  EXPECT_EQ(test::snapshot_of(place / "b").size(), 1u);
}

TEST_F(SaveRestore, WritesThroughNoLinkInTheTarget) {
  save_sample();
  std::filesystem::create_directory(place / "outside");
  test::write_file(place / "outside.txt", "precious");
  RestoreOptions options;
  options.overwrite = true;
  std::filesystem::create_directory(place / "a");
  std::filesystem::create_directory_symlink(place / "outside", place / "a/data");
  EXPECT_FALSE(restore(place / "a", options).ok());
  EXPECT_TRUE(std::filesystem::is_empty(place / "outside"));
  std::filesystem::create_directory(place / "b");
  std::filesystem::create_symlink(place / "outside.txt", place / "b/notes.txt");
  ASSERT_TRUE(restore(place / "b", options).ok());
  EXPECT_FALSE(std::filesystem::is_symlink(place / "b/notes.txt"));
  EXPECT_EQ(as_text(read_file(posix_file_system(), place / "outside.txt", 100).value()), "precious");
}

TEST_F(SaveRestore, LeavesNothingBehindInTheTarget) {
  save_sample();
  ASSERT_TRUE(restore(place / "deep/er/target").ok());
  for (const auto& entry : std::filesystem::directory_iterator(place / "deep/er/target")) {
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
  }
}

TEST_F(SaveRestore, OntoAFullDiskSaysSoAndLeavesNoFile) {
  test::write_file(source + "/large", test::random_bytes(8_MiB, 1));
  test::write_file(source + "/small", "x");
  ASSERT_TRUE(test::save(*store, source, "run", 7).ok());
  std::filesystem::create_directory(place / "disk");
  if (::mount("none", (place / "disk").c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "may not mount a file system";
  for (bool in_place : {false, true}) {
    const Result<RestoreReport> restored = restore(place / (in_place ? "disk" : "disk/target"));
    EXPECT_EQ(restored.status().code(), StatusCode::no_space) << restored.status().to_string();
    EXPECT_TRUE(std::filesystem::is_empty(place / "disk"));
  }
  // Many small files rather than a large one.
  const std::string many = place / "run/many0008";
  for (int i = 0; i < 200; ++i)
    test::write_file(many + "/f" + std::to_string(i), test::random_bytes(40'000, static_cast<uint64_t>(i)));
  ASSERT_TRUE(test::save(*store, many, "run", 8).ok());
  EXPECT_EQ(restore_set(*store, {"run", 8}, place / "disk", {}).status().code(), StatusCode::no_space);
  EXPECT_TRUE(std::filesystem::is_empty(place / "disk"));
  EXPECT_EQ(::umount((place / "disk").c_str()), 0);
}

TEST_F(SaveRestore, RefusesFilesThatNoSetCanHold) {
  std::filesystem::create_directory(place / "disk");
  if (::mount("none", (place / "disk").c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "may not mount a file system";
  const std::string folder = place / "disk/run0001";
  test::write_file(folder + "/f", "x");
  for (const uint64_t bytes : {kTreeFileBytesMax + 1, kTreeFileBytesMax}) {
    ASSERT_EQ(::truncate((folder + "/f").c_str(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(test::save(*store, folder, "run", 1).status().code(), StatusCode::resource_limit);
    test::write_file(folder + "/g", "together they have more");
  }
  EXPECT_EQ(::umount((place / "disk").c_str()), 0);
}

TEST_F(SaveRestore, GoesOnWithWhatIsWholeIfTold) {
  save_sample();
  // Its own arena for a second set whose one file shares nothing.
  const std::string path = store->arena_path(store->list_arenas().value().at(0));
  ByteVector raw = read_file(fs, path, 1_MiB).value();
  raw[3000] ^= std::byte{1};
  ASSERT_TRUE(fs.remove(path).ok());
  ASSERT_TRUE(fs.create(path).value()->write_at(0, raw).ok());
  store->drop_arena_cache();
  EXPECT_EQ(restore(place / "a").status().code(), StatusCode::corrupt);
  EXPECT_FALSE(std::filesystem::exists(place / "a"));
  RestoreOptions options;
  options.keep_going = true;
  const Result<RestoreReport> partly = restore(place / "b", options);
  ASSERT_TRUE(partly.ok()) << partly.status().to_string();
  EXPECT_FALSE(partly->lost_files.empty());
  for (const std::string& lost : partly->lost_files) EXPECT_FALSE(std::filesystem::exists(place / ("b/" + lost)));
  const test::Snapshot saved = test::snapshot_of(source);
  for (const auto& [name, what] : test::snapshot_of(place / "b")) EXPECT_EQ(what, saved.at(name)) << name;
}

TEST_F(SaveRestore, ConcurrentSavesOfOneSetLeaveExactlyOne) {
  test::write_file(source + "/f", test::random_bytes(100'000, 1));
  test::layout_service();
  std::atomic<int> saved{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto mine = test::open_store(fs);
      const Status status = test::save(*mine, source, "run", 7).status();
      saved += status.ok() ? 1 : 0;
      refused += status.code() == StatusCode::already_exists ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(saved, 1);
  EXPECT_EQ(refused, 2);
  EXPECT_TRUE(test::restores_as(*store, {"run", 7}, test::snapshot_of(source)));
  EXPECT_TRUE(test::is_whole(*store));
}

}  // namespace
}  // namespace varve
