#include "serve/request_handler.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>

#include "serve/served_folder.h"
#include "serve/test_requests.h"
#include "sets/saving.h"

namespace varve {
namespace {

std::string lease_of(uint8_t writer) { return "writers/" + id_of(writer).hex(); }

/// Files of which nothing is done but what concerns their names. A rename of lease_of(1) takes until it is told to end.
class NamesOfFiles final : public ServedFiles {
 public:
  void wait_for_rename() { renaming_.get_future().wait(); }
  void end_rename() { end_.set_value(); }
  std::function<void(const std::string&)> before_stat;

  Result<ServedFile> create(const std::string& path, bool) override {
    const AtWork at_work(*this, {path});
    return ServedFile();
  }
  Result<ServedFile> open_again(const std::string& path, bool, const FileIdentity&) override {
    const AtWork at_work(*this, {path});
    return ServedFile();
  }
  Status rename(const std::string& from, const std::string& to, bool) override {
    const AtWork at_work(*this, {from, to});
    if (from != lease_of(1)) return {};
    renaming_.set_value();
    end_.get_future().wait();
    return {};
  }
  Status remove(const std::string& path) override {
    const AtWork at_work(*this, {path});
    return {};
  }
  Result<FoundFile> stat(const std::string& path) override {
    if (before_stat) before_stat(path);
    return FoundFile();
  }

  Result<ServedFile> open_read(const std::string&) override { return none(); }
  Status create_directory(const std::string&) override { return none(); }
  Status remove_directory(const std::string&) override { return none(); }
  Status sync_directory(const std::string&) override { return none(); }
  Status touch(const std::string&) override { return none(); }
  Result<uint64_t> free_bytes(const std::string&) override { return none(); }
  Result<std::vector<DirectoryEntry>> list(const std::string&) override { return none(); }
  Result<bool> is_same(const std::string&, const FileIdentity&) override { return none(); }

 private:
  static Status none() { return Status::unsupported("not in this test"); }
  /// That nobody else is at work with the same names.
  class AtWork {
   public:
    AtWork(NamesOfFiles& files, std::set<std::string> paths) : files_(files), paths_(std::move(paths)) {
      const MutexLock lock(files_.mutex_);
      for (const std::string& path : paths_) EXPECT_TRUE(files_.at_work_.insert(path).second) << path;
    }
    ~AtWork() {
      const MutexLock lock(files_.mutex_);
      for (const std::string& path : paths_) files_.at_work_.erase(path);
    }
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

   private:
    NamesOfFiles& files_;
    const std::set<std::string> paths_;
  };

  std::promise<void> renaming_, end_;
  Mutex mutex_;
  std::set<std::string> at_work_ VARVE_GUARDED_BY(mutex_);
};

/// Of whom a rename to sets/run/1.set takes its time.
class Requests : public testing::TestWithParam<Rights> {
 protected:
  template <class Message>
  Outcome ask(Message message, const UniqueId& token = UniqueId::random().value()) {
    RequestHandler handler(
        store_, share_, [] { return Status(); }, [] {});
    DataBuffer buffer;
    handler.handle({.message = HelloRequest{id_of(100)}}, {}, buffer);
    message.token = token;
    return outcome_of<Message>(handler.handle({.message = message}, {}, buffer));
  }
  Outcome resume(const std::string& path) {
    RequestHandler handler(
        store_, share_, [] { return Status(); }, [] {});
    DataBuffer buffer;
    handler.handle({.message = HelloRequest{id_of(100)}}, {}, buffer);
    return outcome_of<ResumeRequest>(handler.handle({.message = ResumeRequest{.path = path}}, {}, buffer));
  }
  std::future<Outcome> begin_rename() {
    EXPECT_EQ(ask(CreateRequest{.path = lease_of(1)}), Outcome::done);
    auto renamed = std::async(std::launch::async,
                              [this] { return ask(RenameRequest{.path = lease_of(1), .to = "sets/run/1.set"}); });
    files_.wait_for_rename();
    return renamed;
  }

  template <class Message>
  static Outcome outcome_of(const RequestHandler::Answer& answer) {
    return decode_fields<ReplyTo<Message>>(answer.fields).value().outcome;
  }

  NamesOfFiles files_;
  ServedStore store_{files_, id_of(7)};
  KeyShare share_{GetParam(), {.files = 100}};
};

INSTANTIATE_TEST_SUITE_P(OfAnyRights, Requests, testing::Values(Rights::all, Rights::append),
                         [](const auto& rights) { return std::string(name_of(rights.param)); });

TEST_P(Requests, AboutOtherNamesDoNotWaitForOneThatTakesLong) {
  auto renamed = begin_rename();
  auto others = std::async(std::launch::async, [this] {
    for (const uint8_t writer : {uint8_t{2}, uint8_t{3}})
      EXPECT_EQ(ask(CreateRequest{.path = lease_of(writer)}), Outcome::done);
    EXPECT_EQ(resume(lease_of(2)), Outcome::done);
    EXPECT_EQ(ask(RenameRequest{.path = lease_of(2), .to = "sets/run/2.set"}), Outcome::done);
    EXPECT_EQ(ask(RemoveRequest{.path = lease_of(3)}), Outcome::done);
  });
  EXPECT_EQ(others.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  files_.end_rename();
  others.get();
  EXPECT_EQ(renamed.get(), Outcome::done);
}

TEST_P(Requests, AboutTheSameNamesAreCarriedOutOneAfterAnother) {
  auto renamed = begin_rename();
  EXPECT_EQ(ask(CreateRequest{.path = lease_of(2)}), Outcome::done);
  std::vector<std::future<Outcome>> others;
  const auto begin = [&](auto act) { others.push_back(std::async(std::launch::async, act)); };
  begin([&] { return resume(lease_of(1)); });
  begin([&] { return ask(RemoveRequest{.path = lease_of(1)}); });
  begin([&] { return ask(CreateRequest{.path = lease_of(1)}); });
  begin([&] { return ask(RenameRequest{.path = lease_of(2), .to = "sets/run/1.set"}); });
  for (auto& other : others) EXPECT_EQ(other.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  files_.end_rename();
  for (auto& other : others) other.wait();
  EXPECT_EQ(renamed.get(), Outcome::done);
}

TEST_P(Requests, ToWriteAFileWaitWhileItIsLookedAtWhetherItMayGetItsName) {
  const std::string run = "index/" + id_of(2).hex() + ".run";
  ASSERT_EQ(ask(CreateRequest{.path = run + ".part"}), Outcome::done);
  std::future<Outcome> resumed;
  files_.before_stat = [&](const std::string&) {
    if (resumed.valid()) return;
    resumed = std::async(std::launch::async, [&] { return resume(run + ".part"); });
    EXPECT_EQ(resumed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  };
  EXPECT_EQ(ask(RenameRequest{.path = run + ".part", .to = run}), Outcome::done);
  ASSERT_TRUE(resumed.valid());
  resumed.wait();
}

TEST_P(Requests, OpenNoMoreFilesThanTheKeyMayHaveWhereverTheyLie) {
  KeyShare share(GetParam(), {.files = 2});
  RequestHandler handler(
      store_, share, [] { return Status(); }, [] {});
  DataBuffer buffer;
  handler.handle({.message = HelloRequest{id_of(100)}}, {}, buffer);
  for (const uint8_t writer : {uint8_t{2}, uint8_t{3}, uint8_t{4}}) {
    const CreateRequest create{.token = id_of(writer), .path = lease_of(writer)};
    const Outcome made = outcome_of<CreateRequest>(handler.handle({.message = create}, {}, buffer));
    EXPECT_EQ(made, writer < 4 ? Outcome::done : Outcome::failed);
  }
}

TEST_P(Requests, WithTheTokenOfAPushAreRefusedAsLongAsThatIsAtWork) {
  NextLevel::Done end_push;
  store_.transfer = [&](TransferDirection, const SetTransfer&, NextLevel::Done done) {
    end_push = std::move(done);
    return Status();
  };
  RequestHandler handler(
      store_, share_, [] { return Status(); }, [] {});
  DataBuffer buffer;
  handler.handle({.message = HelloRequest{id_of(100)}}, {}, buffer);
  EXPECT_TRUE(handler.handle({.message = PushRequest{.token = id_of(1)}}, {}, buffer).waits);
  auto other = std::async(std::launch::async, [this] { return ask(CreateRequest{.path = lease_of(2)}, id_of(1)); });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_TRUE(handler.go_on().waits);
  end_push(TransferNumbers());
  EXPECT_EQ(other.get(), Outcome::failed);
  EXPECT_FALSE(handler.go_on().waits);
}

/// For the calling thread all file systems are from now on as NFS is: they know no rename that replaces nothing. And no
/// name can be removed. False: this kernel does not do that.
bool lose_renames_and_removals() {
  constexpr auto answer = [](int error) { return SECCOMP_RET_ERRNO | static_cast<unsigned>(error); };
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, answer(EINVAL)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlinkat, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, answer(EIO)),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(rules), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(AServedFolder, HasRenamedWhatHasItsNameThoughTheOldOneCannotBeRemoved) {
  const test::TempFolder folder;
  const auto files = ServedFolder::open(folder / "served", is_plain_path).value();
  for (const char* name : {"lease", "other"}) ASSERT_TRUE(files->create(name, false).ok());
  bool limited = false;
  Status renamed, refused;
  std::thread([&] {
    limited = lose_renames_and_removals();
    renamed = files->rename("lease", "set", false);
    refused = files->rename("other", "set", false);
  }).join();
  if (!limited) GTEST_SKIP() << "no seccomp";
  EXPECT_TRUE(renamed.ok()) << renamed.to_string();
  EXPECT_TRUE(files->stat("lease").ok()) << "or the test shows nothing";
  EXPECT_EQ(files->stat("set")->identity, files->stat("lease")->identity);
  EXPECT_EQ(refused.code(), StatusCode::already_exists);
}

}  // namespace
}  // namespace varve
