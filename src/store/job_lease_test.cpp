#include "store/job_lease.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <vector>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "store/prune.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

/// Touches a file whenever somebody waits: a run that lives.
class TouchingClock final : public Clock {
 public:
  TouchingClock(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  double seconds() const override { return seconds_; }
  void sleep(double seconds) override {
    seconds_ += seconds;
    EXPECT_TRUE(fs_.touch(path_).ok());
  }

 private:
  FileSystem& fs_;
  const std::string path_;
  double seconds_ = 0;
};

struct ALeaseOfAJob : testing::Test {
  ALeaseOfAJob() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }
  JobLease::Terms terms() {
    JobLease::Terms terms;
    terms.job = "job";
    terms.run = UniqueId::random().value();
    terms.notice = [this](const Status& what) { notices.push_back(what); };
    return terms;
  }
  Result<std::unique_ptr<JobLease>> acquire() { return JobLease::acquire(*store, terms(), clock); }
  /// What a run on another machine that was killed has left.
  void leave_lease_of_another_machine(const UniqueId& run = UniqueId::random().value()) {
    ASSERT_TRUE(fs.create_directory("/s/runs").ok());
    const std::string text = "varve run 1\nrun " + run.hex() + "\nhost far\nboot " + UniqueId::random().value().hex() +
                             "\npid_namespace 7\nstart_ticks 3\nprocess 4711\nstarted 1700000000\n";
    fs.remove(kPath).ignore("it may not be there");
    const auto file = fs.create(kPath);
    ASSERT_TRUE(file.ok() && (*file)->write_at(0, as_bytes(text)).ok());
  }

  static constexpr const char* kPath = "/s/runs/job.lease";
  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
  ManualClock clock;
  std::vector<Status> notices;
};

class FullFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions) override {
    return Status(StatusCode::no_space, "no space left", path);
  }
};

TEST_F(ALeaseOfAJob, OfARunThatLivesIsSeenThoughTheStoreIsFull) {
  FullFileSystem full(fs);
  const auto full_store = Store::open(full, "/s").value();
  {
    auto first = acquire();
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_EQ(JobLease::acquire(*full_store, terms(), clock).status().code(), StatusCode::busy);
  }
  EXPECT_EQ(JobLease::acquire(*full_store, terms(), clock).status().code(), StatusCode::no_space);
}

TEST_F(ALeaseOfAJob, IsForOneRunAtATimeAndGivenFreeAtItsEnd) {
  auto first = acquire();
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const Status refused = acquire().status();
  EXPECT_EQ(refused.code(), StatusCode::busy);
  EXPECT_NE(refused.message().find("process " + std::to_string(::getpid()) + " on "), std::string::npos)
      << refused.to_string();
  EXPECT_EQ(refused.remedy(), Remedy::take_job_over);
  JobLease::Terms other = terms();
  other.job = "another";
  EXPECT_TRUE(JobLease::acquire(*store, other, clock).ok());
  EXPECT_TRUE((*first)->check().ok());
  EXPECT_TRUE((*first)->release().ok());
  EXPECT_TRUE(acquire().ok());
  EXPECT_TRUE(fs.list("/s/runs").value().empty());
  EXPECT_TRUE(notices.empty());
  EXPECT_EQ(clock.seconds(), 0);
}

TEST_F(ALeaseOfAJob, OfAnotherMachineIsTakenOnceItIsSilent) {
  leave_lease_of_another_machine();
  EXPECT_TRUE(acquire().ok());
  EXPECT_GE(clock.seconds(), kRunSilenceSeconds);
  EXPECT_LE(clock.seconds(), kRunSilenceSeconds + 1);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].to_string().find("process 4711 on far, started 2023-11-14 22:13:20 UTC"), std::string::npos)
      << notices[0].to_string();
}

TEST_F(ALeaseOfAJob, IsTakenThoughOneReadOfADeadRunsFails) {
  for (uint64_t operation = 0; operation < 5; ++operation) {
    leave_lease_of_another_machine();
    FaultyFileSystem faulty(fs, {{.kind = FaultKind::failed_read, .at_operation = operation}});
    const auto faulty_store = Store::open(faulty, "/s");
    if (!faulty_store.ok()) continue;
    auto lease = JobLease::acquire(**faulty_store, terms(), clock);
    EXPECT_TRUE(lease.ok()) << operation << ": " << lease.status().to_string();
  }
}

TEST_F(ALeaseOfAJob, OfADeadRunIsNoTakeoverFromARunThatCouldNotTakeIt) {
  const UniqueId own = UniqueId::random().value(), other = UniqueId::random().value();
  int64_t now_s = 1000;
  fs.set_clock([&now_s] { return now_s * 1'000'000'000; });
  leave_lease_of_another_machine(other);
  EXPECT_EQ(check_job_untaken(*store, "job", own).code(), StatusCode::busy) << "it may live";
  EXPECT_TRUE(check_job_untaken(*store, "job", other).ok());
  now_s += 2 * static_cast<int64_t>(kRunSilenceSeconds);
  EXPECT_TRUE(check_job_untaken(*store, "job", own).ok());
  EXPECT_EQ(check_job_lease(*store, "job", own).code(), StatusCode::busy);
}

TEST_F(ALeaseOfAJob, ANoteOfWhereAJobHasBegunIsWholeOrNone) {
  const std::vector<JobBeginning> runs{{UniqueId::random().value()}, {UniqueId::random().value(), 117'708'614'154'802}};
  EXPECT_TRUE(read_beginnings(*store, "job").empty());
  ASSERT_TRUE(write_beginnings(*store, "job", {runs[0]}).ok());
  ASSERT_TRUE(write_beginnings(*store, "job", runs).ok());
  EXPECT_EQ(read_beginnings(*store, "job"), runs);
  EXPECT_TRUE(read_beginnings(*store, "other").empty());
  ASSERT_TRUE(write_beginnings(*store, "job", std::vector<JobBeginning>(100 + 50, runs[1])).ok());
  EXPECT_EQ(read_beginnings(*store, "job").size(), 100u);
  const std::string line = "run " + runs[0].run.hex() + "\n", start = line.substr(0, line.size() - 1);
  ASSERT_TRUE(write_file_durably(fs, "/s/runs/job.begun", as_bytes("varve begun 1\n" + line)).ok());
  EXPECT_EQ(read_beginnings(*store, "job"), std::vector<JobBeginning>{runs[0]}) << "as earlier versions wrote it";
  for (const std::string& text :
       {std::string(), "varve begun 2\n" + line, "varve begun 1\n" + line + "run 12\n", "varve begun 1\n" + start,
        "varve begun 1\n" + start + " first\n", "varve begun 1\n" + start + " first x\n",
        "varve begun 1\n" + start + " first 1 2\n", "varve begun 1\n" + start + " second 1\n"}) {
    ASSERT_TRUE(write_file_durably(fs, "/s/runs/job.begun", as_bytes(text)).ok());
    EXPECT_TRUE(read_beginnings(*store, "job").empty()) << text;
  }
}

TEST_F(ALeaseOfAJob, OfAnotherMachineThatShowsThatItLivesIsRefusedSoon) {
  leave_lease_of_another_machine();
  TouchingClock living(fs, kPath);
  const Status refused = JobLease::acquire(*store, terms(), living).status();
  EXPECT_EQ(refused.code(), StatusCode::busy);
  EXPECT_NE(refused.message().find("process 4711 on far"), std::string::npos) << refused.to_string();
  EXPECT_LE(living.seconds(), 2);
  EXPECT_EQ(fs.list("/s/runs").value().size(), 1u) << "nothing is left of who was refused";
}

TEST_F(ALeaseOfAJob, ThatMakesNoSenseIsTakenOnceItIsSilent) {
  ASSERT_TRUE(fs.create_directory("/s/runs").ok());
  ASSERT_TRUE(fs.create(kPath).ok());
  EXPECT_TRUE(acquire().ok());
}

TEST_F(ALeaseOfAJob, IsTakenOverAtOnceByWhoKnowsBetterAndItsRunFindsOut) {
  const JobLease::Terms of_first = terms();
  auto first = JobLease::acquire(*store, of_first, clock).value();
  JobLease::Terms ruthless = terms();
  ruthless.take_over = true;
  auto second = JobLease::acquire(*store, ruthless, clock);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(clock.seconds(), 0);
  EXPECT_EQ(check_job_lease(*store, "job", of_first.run).code(), StatusCode::busy);
  EXPECT_TRUE(check_job_lease(*store, "job", ruthless.run).ok());
  // The first one was paused for long.
  clock.advance(100);
  const Status lost = first->check();
  EXPECT_EQ(lost.code(), StatusCode::busy);
  EXPECT_NE(lost.message().find("taken this job over"), std::string::npos) << lost.to_string();
  first.reset();
  EXPECT_TRUE((*second)->check().ok()) << "what it does at its end does the second no harm";
  EXPECT_EQ(check_job_lease(*store, "job", of_first.run).code(), StatusCode::busy);
}

TEST_F(ALeaseOfAJob, IsLostForARunThatComesBackWhenItsSuccessorsHaveEnded) {
  auto first = acquire().value();
  JobLease::Terms ruthless = terms();
  ruthless.take_over = true;
  ASSERT_TRUE(JobLease::acquire(*store, ruthless, clock).ok());
  EXPECT_FALSE(living_lease_holder(*store, "job", {}).value()) << "the second one has ended";
  ASSERT_TRUE(acquire().ok());
  EXPECT_EQ(clock.seconds(), 0);
  clock.advance(100);
  EXPECT_EQ(first->check().code(), StatusCode::busy);
  const JobLease::Terms of_last = terms();
  EXPECT_TRUE(JobLease::acquire(*store, of_last, clock).ok());
}

TEST_F(ALeaseOfAJob, OfADeadRunIsNobodysWhereTheStoreIsTooFullForANewOne) {
  FullFileSystem full(fs);
  const auto full_store = Store::open(full, "/s").value();
  JobLease::Terms own = terms();
  const UniqueId dead = UniqueId::random().value();
  leave_lease_of_another_machine(dead);
  EXPECT_EQ(JobLease::acquire(*full_store, own, clock).status().code(), StatusCode::no_space);
  EXPECT_EQ(check_job_lease(*store, "job", own.run).code(), StatusCode::busy) << "it may live, and come back";
  own.ended = {dead};
  EXPECT_EQ(JobLease::acquire(*full_store, own, clock).status().code(), StatusCode::no_space);
  EXPECT_TRUE(check_job_lease(*store, "job", own.run).ok()) << "it saves once there is room";
}

TEST_F(ALeaseOfAJob, OfADeadRunIsNobodysAlsoWhenTheClockWasSetBack) {
  int64_t seconds = 1'700'000'000;
  fs.set_clock([&seconds] { return seconds * 1'000'000'000; });
  leave_lease_of_another_machine();
  const auto is_held = [&] { return living_lease_holder(*store, "job", {}).value().has_value(); };
  EXPECT_TRUE(is_held());
  seconds -= 300;
  EXPECT_TRUE(is_held()) << "its machine's clock may be ahead";
  seconds -= 3600;
  EXPECT_FALSE(is_held());
  ASSERT_TRUE(fs.touch(kPath).ok());
  EXPECT_TRUE(is_held());
}

TEST_F(ALeaseOfAJob, ThatARunOfThisProcessCouldNotGiveBackIsTakenAtOnce) {
  // So many operations take a lease; the next one would give it back.
  const uint64_t taking = [&] {
    FaultyFileSystem counting(fs);
    const auto store_again = Store::open(counting, "/s").value();
    const auto lease = JobLease::acquire(*store_again, terms(), clock);
    EXPECT_TRUE(lease.ok()) << lease.status().to_string();
    return counting.operation_count().mutating;
  }();
  FaultyFileSystem faulty(fs, {{.kind = FaultKind::crash, .at_operation = taking}});
  const auto bad = Store::open(faulty, "/s").value();
  ASSERT_TRUE(JobLease::acquire(*bad, terms(), clock).ok());
  ASSERT_TRUE(fs.stat(kPath).ok()) << faulty.trace();
  EXPECT_TRUE(acquire().ok());
  EXPECT_EQ(clock.seconds(), 0);
}

TEST_F(ALeaseOfAJob, MayEndInADestructorOfTheProgramsStatics) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static std::unique_ptr<JobLease> outlives_what_is_made_later;
        outlives_what_is_made_later = acquire().value();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ALeaseOfAJob, IsMadeAnewIfSomebodyHasRemovedIt) {
  auto lease = acquire().value();
  ASSERT_TRUE(fs.remove(kPath).ok());
  clock.advance(100);
  EXPECT_TRUE(lease->check().ok());
  EXPECT_TRUE(fs.stat(kPath).ok());
}

TEST_F(ALeaseOfAJob, IsTakenByOneOfManyThatComeAtOnce) {
  for (int round = 0; round < 20; ++round) {
    leave_lease_of_another_machine();
    std::atomic<int> got{0};
    std::vector<std::unique_ptr<JobLease>> leases(6);
    std::vector<std::thread> threads;
    for (auto& lease : leases) {
      threads.emplace_back([&] {
        ManualClock own;
        JobLease::Terms silent = terms();
        silent.notice = {};
        auto taken = JobLease::acquire(*store, silent, own);
        if (!taken.ok()) {
          EXPECT_EQ(taken.status().code(), StatusCode::busy) << taken.status().to_string();
          return;
        }
        ++got;
        lease = std::move(*taken);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(got, 1);
  }
}

TEST_F(ALeaseOfAJob, MeansNothingToThoseWhoReadPruneAndVerify) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, test::numbers_between(1, 100)).ok());
  auto lease = acquire().value();
  PruneOptions options;
  options.wait_seconds = 0;
  options.keep.last = 1;
  ASSERT_TRUE(prune_store(*store, options).ok());
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
  EXPECT_EQ(Catalog(*store).jobs().value(), std::vector<std::string>{"job"});
  clock.advance(100);
  EXPECT_TRUE(lease->check().ok());
}

TEST_F(ALeaseOfAJob, CanBeTakenAfterWhateverOperationOfATakingFailedOrWasTheLast) {
  // Each look at a silent lease is some operations more, and no others: a few of them will do.
  const auto impatient = [this] {
    JobLease::Terms impatient_terms = terms();
    impatient_terms.silence_seconds = 3;
    return impatient_terms;
  };
  FaultyFileSystem counting(fs);
  leave_lease_of_another_machine();
  {
    const auto counted = Store::open(counting, "/s").value();
    ASSERT_TRUE(JobLease::acquire(*counted, impatient(), clock).ok());
  }
  const auto count = counting.operation_count();
  ASSERT_GT(count.mutating, 5u);
  for (const FaultKind kind : {FaultKind::crash, FaultKind::io_error, FaultKind::no_space, FaultKind::failed_read}) {
    const uint64_t last = kind == FaultKind::failed_read ? count.reading : count.mutating;
    for (uint64_t operation = 0; operation < last; ++operation) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << " at " << operation);
      leave_lease_of_another_machine();
      FaultyFileSystem faulty(fs, {{.kind = kind, .at_operation = operation}});
      const auto opened = Store::open(faulty, "/s");
      if (opened.ok()) {
        const auto lease = JobLease::acquire(**opened, impatient(), clock);
        EXPECT_TRUE(lease.ok() || lease.status().code() != StatusCode::busy) << lease.status().to_string();
      }
      EXPECT_TRUE(JobLease::acquire(*store, impatient(), clock).ok());
    }
  }
}

// By the file system's own time, and by processes

struct ALeaseInAFolder : testing::Test {
  ALeaseInAFolder() {
    char name[] = "/tmp/varve_lease_XXXXXX";
    folder = ::mkdtemp(name);
    EXPECT_TRUE(Store::create(posix_file_system(), folder + "/s").ok());
    store = Store::open(posix_file_system(), folder + "/s").value();
  }
  ~ALeaseInAFolder() override { std::filesystem::remove_all(folder); }
  JobLease::Terms terms() {
    JobLease::Terms terms;
    terms.job = "job";
    terms.run = UniqueId::random().value();
    return terms;
  }
  std::string lease_path() const { return folder + "/s/runs/job.lease"; }

  std::string folder;
  std::unique_ptr<Store> store;
  ManualClock clock;
};

TEST_F(ALeaseInAFolder, OfAProcessOfThisMachineThatIsGoneIsTakenAtOnce) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lease = JobLease::acquire(*store, terms(), clock);
    ::_exit(lease.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(std::filesystem::exists(lease_path()));
  EXPECT_TRUE(JobLease::acquire(*store, terms(), clock).ok());
  EXPECT_EQ(clock.seconds(), 0);
}

TEST_F(ALeaseInAFolder, ThatWasNotTouchedForLongByTheFoldersTimeIsTakenAtOnce) {
  auto stopped = JobLease::acquire(*store, terms(), clock).value();
  timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
  ASSERT_EQ(::utimensat(AT_FDCWD, lease_path().c_str(), times, 0), 0);
  struct stat info {};
  ASSERT_EQ(::stat(lease_path().c_str(), &info), 0);
  times[0] = times[1] = {info.st_mtim.tv_sec - 60, 0};
  ASSERT_EQ(::utimensat(AT_FDCWD, lease_path().c_str(), times, 0), 0);
  auto next = JobLease::acquire(*store, terms(), clock);
  EXPECT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_EQ(clock.seconds(), 0);
  clock.advance(60);
  EXPECT_EQ(stopped->check().code(), StatusCode::busy);
}

TEST_F(ALeaseOfAJob, IsTakenAtOnceFromARunThatIsKnownToBeOver) {
  const JobLease::Terms first = terms();
  const auto before = JobLease::acquire(*store, first, clock);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(acquire().status().code(), StatusCode::busy) << "it lives, as far as anybody can tell";
  JobLease::Terms next = terms();
  next.ended = {UniqueId::random().value(), first.run};
  const auto after = JobLease::acquire(*store, next, clock);
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_TRUE((*before)->release().ok());
  EXPECT_TRUE((*after)->check().ok()) << "what is not its own any more is not the old one's to remove";
  EXPECT_EQ(acquire().status().code(), StatusCode::busy);
}

}  // namespace
}  // namespace varve
