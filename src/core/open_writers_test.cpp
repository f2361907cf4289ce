#include "core/open_writers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "core/process.h"

namespace varve {
namespace {

struct File : testing::Test {
  File() {
    char name[] = "/tmp/varve-writers-XXXXXX";
    file.reset(::mkstemp(name));
    path = name;
    EXPECT_EQ(::ftruncate(file.get(), 4096), 0);
  }
  ~File() override { ::unlink(path.c_str()); }
  std::string path;
  UniqueFd file;
};
using AFile = File;

TEST_F(AFile, IsBeingWrittenUntilItsLastWriterHasClosedIt) {
  const Result<bool> written = is_being_written(path);
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  if (!*written) GTEST_SKIP() << "no leases on this file system";
  UniqueFd second(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  file.reset();
  EXPECT_TRUE(is_being_written(path).value());
  second.reset();
  EXPECT_FALSE(is_being_written(path).value());
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(is_being_written(path).value());
}

TEST_F(AFile, IsBeingWrittenWhileItIsMapped) {
  if (!is_being_written(path).value()) GTEST_SKIP() << "no leases on this file system";
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  file.reset();
  EXPECT_TRUE(is_being_written(path).value());
  ::munmap(mapped, 4096);
  EXPECT_FALSE(is_being_written(path).value());
}

TEST_F(AFile, NotesWritesThroughAMappingOnceItIsAskedTo) {
  auto* const mapped = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  const auto was_noted = [this] {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mtim.tv_sec != 0;
  };
  const timespec long_ago[2] = {};
  auto write_and_forget = [&] {
    mapped[0] = 1;
    EXPECT_EQ(::futimens(file.get(), long_ago), 0);
  };
  write_and_forget();
  ASSERT_EQ(::msync(mapped, 4096, MS_SYNC), 0);
  mapped[0] = 2;
  if (!was_noted()) GTEST_SKIP() << "this file system never notes writes through mappings";
  write_and_forget();
  mapped[0] = 3;
  ASSERT_FALSE(was_noted()) << "the page is dirty";
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(have_writes_noticed(reader.get(), path).value()) << "a call may be writing to it";
  EXPECT_FALSE(was_noted());
  mapped[0] = 4;
  EXPECT_TRUE(was_noted());
  ::munmap(mapped, 4096);
  file.reset();
  EXPECT_TRUE(have_writes_noticed(reader.get(), path).value());
}

TEST(AFileSystemWithoutADisk, MayMissWritesThroughMappings) {
  const UniqueFd processes(::open("/proc", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(times_may_miss_writes(processes.get()));
  const UniqueFd memory(::memfd_create("varve-writers", MFD_CLOEXEC));
  EXPECT_TRUE(times_may_miss_writes(memory.get()));
}

TEST(AMissingFile, IsNotFound) {
  EXPECT_EQ(is_being_written("/tmp/varve-there-is-none").status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace varve
