#include "layout/decoding_service.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "core/cell_box.h"
#include "layout/test_files.h"

namespace varve {
namespace {

/// An array whose cells are bytes of the file, one after the other; its name says what else is to happen.
class ObedientFile final : public EncodedFile {
 public:
  explicit ObedientFile(ReadAt read) : read_(std::move(read)) {}
  Status check(const Variable& array) override {
    if (array.name == "/unknown") return Status::unsupported("no such filter");
    return {};
  }
  Status read(const WantedBox& wanted, MutableByteSpan into) override {
    const std::string& name = wanted.array.name;
    if (name == "/crash") ::raise(SIGSEGV);
    if (name == "/exit") ::_exit(3);
    if (name == "/hang") ::pause();
    if (name == "/spin") {
      for (volatile uint64_t turns = 0;;) turns = turns + 1;
    }
    if (name == "/read without end") {
      std::byte one{};
      for (;;) VARVE_TRY(read_(0, {&one, 1}).status());
    }
    if (name == "/throw") throw std::runtime_error("thrown");
    if (name == "/eat") {
      std::vector<std::string> eaten;
      for (;;) eaten.push_back(std::string(64_MiB, 'x'));
    }
    if (name == "/babble") babble();
    VARVE_ASSIGN(const uint64_t got, read_(wanted.box.offset[0], into));
    return got == into.size() ? Status() : Status::corrupt("the file is too short");
  }

 private:
  /// Writes nonsense to wherever it can.
  static void babble() {
    const std::string nonsense(1000, '\x7f');
    for (int fd = 3; fd < 16; ++fd) {
      if (::write(fd, nonsense.data(), nonsense.size()) < 0) continue;
    }
  }
  ReadAt read_;
};

class ObedientDecoder final : public LayoutReader {
 public:
  std::string_view name() const override { return "obedient"; }
  bool recognises(const ReadAt&, ByteSpan, uint64_t) const override { return false; }
  Result<Layout> read(int, uint64_t) const override { return Status::unsupported("no layouts"); }
  Result<std::unique_ptr<EncodedFile>> open_encoded(ReadAt read, uint64_t file_bytes) const override {
    if (file_bytes == 0) return Status::corrupt("not a file");
    return Result<std::unique_ptr<EncodedFile>>(std::make_unique<ObedientFile>(std::move(read)));
  }
};

struct DecodingServiceTest : testing::Test {
  DecodingServiceTest() {
    for (size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>(i * 7 + i / 251);
    start(std::chrono::milliseconds(500));
  }
  void start(std::chrono::milliseconds timeout) {
    service.emplace(std::make_unique<ObedientDecoder>(), ReaderLimits{.timeout = timeout, .memory_bytes = 512_MiB});
  }
  EncodedSource source(const std::string& file) {
    return {.identity = &file,
            .read = [&file, this](uint64_t offset, MutableByteSpan wanted) -> Result<uint64_t> {
              ++reads;
              if (damaged) return Status::corrupt("a damaged pack");
              const ByteSpan bytes = as_bytes(file).subspan(std::min<size_t>(offset, file.size()));
              const size_t count = std::min(bytes.size(), wanted.size());
              std::copy_n(bytes.begin(), count, wanted.begin());
              return count;
            },
            .bytes = file.size()};
  }
  Status read(const std::string& name, uint64_t offset = 10, uint64_t bytes = 100) {
    Variable array;
    array.name = name;
    array.shape = {contents.size()};
    into.assign(bytes, std::byte{0});
    return service->read(source(contents), {array, {{offset}, {bytes}}}, into);
  }
  bool read_well(uint64_t offset = 10, uint64_t bytes = 100) {
    return read("/obeyed", offset, bytes).ok() && as_text(into) == contents.substr(offset, bytes);
  }
  bool fails(const std::string& name, StatusCode code, const std::string& words) {
    const Status status = read(name);
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.to_string().find(words), std::string::npos) << status.to_string();
    return !status.ok();
  }

  std::string contents = std::string(80'000'000, ' ');
  std::optional<DecodingService> service;
  ByteVector into;
  int reads = 0;
  bool damaged = false;
};

TEST_F(DecodingServiceTest, GivesCellsOfAnySizeAndAsksForTheBytesThatItNeeds) {
  EXPECT_TRUE(read_well());
  EXPECT_EQ(reads, 1);
  EXPECT_TRUE(read_well(0, 0));
  EXPECT_TRUE(read_well(1, 79'999'999)) << "in parts";
  const std::string other = "another file";
  Variable array;
  array.name = "/a";
  array.shape = {other.size()};
  into.assign(7, std::byte{0});
  ASSERT_TRUE(service->read(source(other), {array, {{5}, {7}}}, into).ok());
  EXPECT_EQ(as_text(into), "er file");
  EXPECT_TRUE(read_well());
}

TEST_F(DecodingServiceTest, SaysWhatTheLibrarySays) {
  Variable array;
  array.name = "/unknown";
  array.shape = {5};
  const Status unknown = service->check(source(contents), array);
  EXPECT_EQ(unknown.code(), StatusCode::unsupported);
  EXPECT_EQ(unknown.message(), "no such filter");
  array.name = "/a";
  EXPECT_TRUE(service->check(source(contents), array).ok());
  const std::string empty;
  EXPECT_EQ(service->check(source(empty), array).message(), "not a file");
  EXPECT_TRUE(read_well());
}

TEST_F(DecodingServiceTest, LosesOnlyTheArrayOnWhichTheLibraryFails) {
  EXPECT_TRUE(fails("/crash", StatusCode::corrupt, "the obedient reader crashed (signal 11)"));
  EXPECT_TRUE(read_well());
  EXPECT_TRUE(fails("/exit", StatusCode::corrupt, "crashed (exit code 3)"));
  EXPECT_TRUE(fails("/hang", StatusCode::resource_limit, "took longer than 0.5 s"));
  EXPECT_TRUE(fails("/spin", StatusCode::resource_limit, "took longer than 0.5 s"));
  EXPECT_TRUE(fails("/throw", StatusCode::corrupt, "thrown"));
  EXPECT_TRUE(fails("/babble", StatusCode::corrupt, "makes no sense"));
  EXPECT_TRUE(read_well());
  EXPECT_TRUE(fails("/read without end", StatusCode::resource_limit, "took longer than 0.5 s"));
  EXPECT_TRUE(read_well());
}

TEST_F(DecodingServiceTest, EndsALibraryThatEatsMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not return from a failed allocation";
#endif
  // To eat so much takes long on a busy machine.
  start(std::chrono::minutes(1));
  EXPECT_TRUE(fails("/eat", StatusCode::resource_limit, "not enough memory"));
  EXPECT_TRUE(read_well());
}

TEST_F(DecodingServiceTest, SaysWhyTheFileCannotBeReadAndReadsItAnewAfterwards) {
  damaged = true;
  EXPECT_TRUE(fails("/obeyed", StatusCode::corrupt, "a damaged pack"));
  damaged = false;
  EXPECT_TRUE(read_well());
}

TEST_F(DecodingServiceTest, LeavesNoProcessBehind) {
  {
    DecodingService other(std::make_unique<ObedientDecoder>());
    Variable array;
    array.name = "/a";
    array.shape = {5};
    EXPECT_TRUE(other.check(source(contents), array).ok());
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(DecodingServiceTest, IsNotSharedWithForkedProcesses) {
  ASSERT_TRUE(read_well());
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      bool well = true;
      for (int turn = 0; turn < 50; ++turn) well = read_well(static_cast<uint64_t>(1000 * child + turn), 5000) && well;
      ::_exit(well ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (int turn = 0; turn < 50; ++turn) EXPECT_TRUE(read_well(static_cast<uint64_t>(turn), 6000));
  for (const pid_t pid : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(DecodingServiceTest, EndsThoughAForkedProcessHasItsSockets) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  pid_t pid = -1;
  {
    DecodingService other(std::make_unique<ObedientDecoder>());
    Variable array;
    array.name = "/a";
    array.shape = {5};
    EXPECT_TRUE(other.check(source(contents), array).ok());
    pid = ::fork();
    if (pid == 0) {  // it lives until the service has ended
      ::close(ends[1]);
      char one = 0;
      ::_exit(::read(ends[0], &one, 1) == 0 ? 0 : 1);
    }
  }
  ::close(ends[0]);
  ::close(ends[1]);
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST_F(DecodingServiceTest, SaysWhatIsMissingWhereThereIsNoLibrary) {
  DecodingService none(nullptr);
  Variable array;
  array.name = "/a";
  array.shape = {5};
  const Status status = none.check(source(contents), array);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.to_string().find("no HDF5 library"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace varve
