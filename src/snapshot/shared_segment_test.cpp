#include "snapshot/shared_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/process_identity.h"
#include "snapshot/test_segments.h"

namespace varve {
namespace {

using Access = SharedSegment::Access;

TEST(SharedSegment, IsZeroedAndForItsUserAlone) {
  const test::SegmentFolder folder;
  const std::string path = folder.owner().slot_path(0);
  const Result<SharedSegment> segment = SharedSegment::create(path, 10'000);
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  EXPECT_EQ(segment->size(), 10'000U);
  const MutableByteSpan bytes = segment->bytes();
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_TRUE(segment->unlink().ok());
  EXPECT_TRUE(segment->unlink().ok()) << "a file that is gone is fine";
}

TEST(SharedSegment, LacksRoomWhenThereIsTooLittleMemoryAndNotWhenSomethingIsWrong) {
  for (const int failure : {ENOSPC, EDQUOT})
    EXPECT_TRUE(SharedSegment::lacks_room(Status::from_errno(failure, "make", "it"))) << failure;
  for (const int failure : {EIO, EACCES, ENOENT, EROFS, ELOOP, EMFILE})
    EXPECT_FALSE(SharedSegment::lacks_room(Status::from_errno(failure, "make", "it"))) << failure;
  const test::SegmentFolder folder;
  // More than there are addresses.
  const Status too_large =
      SharedSegment::create_sparse(folder.owner().slot_path(0), 4096, uint64_t{1} << 60, [](MutableByteSpan) {
      }).status();
  EXPECT_TRUE(SharedSegment::lacks_room(too_large)) << too_large.to_string();
}

TEST(SegmentFamily, HasItsMemoryWhereItMayHaveBeenOnce) {
  const test::SegmentFolder folder;
  SegmentFamily family = folder.family();
  std::string other = family.folder + "/varve-test-XXXXXX";
  ASSERT_NE(::mkdtemp(other.data()), nullptr);
  std::filesystem::create_directory_symlink(other, other + "/same");
  family.spill_folders = {"/proc", other, other + "/same", other + "/nowhere", family.folder + "/."};
  const auto folders = [](const std::vector<SegmentFamily>& places) {
    std::vector<std::string> names;
    for (const SegmentFamily& place : places) names.push_back(place.folder);
    return names;
  };
  if (is_memory_folder(family.folder)) {
    EXPECT_EQ(folders(family.memory_places()), (std::vector{family.folder, other}));
    EXPECT_EQ(folders(family.memory_places("/proc")), (std::vector<std::string>{family.folder, "/proc", other}));
    EXPECT_EQ(family.memory_places().back().spill_folders.size(), 4U) << "where its snapshots may be, too";
  }
  std::filesystem::remove_all(other);
}

TEST(SharedSegment, IsNeverTakenFromAnother) {
  const test::SegmentFolder folder;
  const std::string path = folder.owner().slot_path(0);
  const Result<SharedSegment> first = SharedSegment::create(path, 4096);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(SharedSegment::create(path, 4096).status().code(), StatusCode::already_exists);
  ASSERT_TRUE(first->unlink().ok());
}

TEST(SharedSegment, ShowsWhatAnotherMappingWroteAndFollowsItsGrowth) {
  const test::SegmentFolder folder;
  Result<SharedSegment> writer = SharedSegment::create(folder.owner().slot_path(0), 4096);
  ASSERT_TRUE(writer.ok());
  writer->data()[7] = std::byte{7};
  Result<SharedSegment> reader = SharedSegment::open(writer->path(), Access::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->data()[7], std::byte{7});
  ASSERT_TRUE(writer->grow(9'000'000).ok());
  EXPECT_EQ(writer->data()[7], std::byte{7});
  writer->data()[8'999'999] = std::byte{9};
  ASSERT_TRUE(reader->follow_growth().ok());
  EXPECT_EQ(reader->size(), 9'000'000U);
  EXPECT_EQ(reader->data()[8'999'999], std::byte{9});
  ASSERT_TRUE(writer->unlink().ok());
}

/// Of shared memory that counts as this process's.
uint64_t shared_bytes_here() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoull(line.substr(9)) << 10;
  }
  return 0;
}

TEST(SharedSegment, LosesNothingWhenItsPagesAreLeft) {
  constexpr uint64_t bytes = 16_MiB;
  const test::SegmentFolder folder;
  Result<SharedSegment> writer = SharedSegment::create(folder.owner().slot_path(0), bytes);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  Result<SharedSegment> reader = SharedSegment::open(writer->path(), Access::read_write);
  ASSERT_TRUE(reader.ok());
  const auto fill = [](SharedSegment& segment, std::byte with) { std::fill_n(segment.data(), segment.size(), with); };
  fill(*writer, std::byte{1});
  const auto holds = [](const SharedSegment& segment, std::byte what) {
    return std::all_of(segment.data(), segment.data() + segment.size(), [&](std::byte each) { return each == what; });
  };
  EXPECT_TRUE(holds(*reader, std::byte{1}));
  const uint64_t before = shared_bytes_here();
  reader->leave_pages();
  if (is_memory_folder(folder.owner().family.folder)) {
    EXPECT_LE(shared_bytes_here() + bytes / 2, before);
  }
  EXPECT_TRUE(holds(*writer, std::byte{1}));
  fill(*reader, std::byte{2});
  reader->leave_pages();
  EXPECT_TRUE(holds(*writer, std::byte{2})) << "what was written through it, too";
  EXPECT_TRUE(holds(*reader, std::byte{2}));
  EXPECT_TRUE(writer->unlink().ok());
}

TEST(SharedSegment, LeavesThePagesOfAPartAsFarAsItLiesThere) {
  constexpr uint64_t bytes = 16_MiB;
  const test::SegmentFolder folder;
  const Result<SharedSegment> segment = SharedSegment::create(folder.owner().slot_path(0), bytes);
  ASSERT_TRUE(segment.ok()) << segment.status().to_string();
  for (uint64_t at = 0; at < bytes; ++at) segment->data()[at] = static_cast<std::byte>(at);
  const auto is_whole = [&] {
    for (uint64_t at = 0; at < bytes; at += 509)
      if (segment->data()[at] != static_cast<std::byte>(at)) return false;
    return true;
  };
  // Four huge pages, of which alone anything is looked at; the part begins within the first one.
  const std::byte* const end = segment->data() + 12_MiB - reinterpret_cast<uintptr_t>(segment->data()) % 2_MiB;
  const ByteSpan part(end - 8_MiB + 5000, end);
  const auto look_at_part = [&] {
    segment->leave_pages();
    return std::count(end - 8_MiB, end, std::byte{1}) > 0 ? shared_bytes_here() : 0;
  };
  const auto expect_left = [&](uint64_t before) {
    if (is_memory_folder(folder.owner().family.folder)) {
      EXPECT_LE(shared_bytes_here() + 7_MiB, before);
      EXPECT_GE(shared_bytes_here() + 9_MiB, before);
    }
    EXPECT_TRUE(is_whole());
  };
  const uint64_t before = look_at_part();
  segment->leave_pages(part);
  expect_left(before);

  // The same in small parts, two of them out of turn.
  constexpr uint64_t small = 300'000;
  const uint64_t again = look_at_part();
  for (uint64_t i = 0; i * small < part.size(); ++i) {
    const uint64_t at = (i == 2 ? 3 : i == 3 ? 2 : i) * small;
    segment->leave_pages(part.subspan(at, std::min<uint64_t>(small, part.size() - at)));
  }
  expect_left(again);

  // What lies elsewhere stays as it is: of memory that is the program's own, it would be lost.
  ByteVector own(64_KiB, std::byte{7});
  segment->leave_pages(own);
  segment->leave_pages({});
  EXPECT_EQ(own, ByteVector(64_KiB, std::byte{7}));
  segment->leave_pages(ByteSpan(segment->data() + bytes - 3, 3));
  EXPECT_TRUE(is_whole());
  EXPECT_TRUE(segment->unlink().ok());
}

TEST(SharedSegment, ThatDoesNotFitIsAnErrorAtOnceAndLeavesNothing) {
  const test::SegmentFolder folder;
  const Result<SharedSegment> segment = SharedSegment::create(folder.owner().slot_path(0), 1ULL << 50);
  EXPECT_EQ(segment.status().code(), StatusCode::no_space);
  EXPECT_NE(segment.status().hint().find("shared_memory"), std::string_view::npos) << "what the user can do";
  EXPECT_EQ(folder.files(), std::vector<std::string>());
}

TEST(SharedSegment, IsNotReadThroughLinksNorFromWhatIsNoFile) {
  const test::SegmentFolder folder;
  const std::string link = folder.owner().slot_path(0), fifo = folder.owner().slot_path(1),
                    empty = folder.owner().control_path();
  ASSERT_EQ(::symlink("/etc/passwd", link.c_str()), 0);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(::close(::creat(empty.c_str(), 0600)), 0);
  EXPECT_EQ(SharedSegment::open(link, Access::read).status().code(), StatusCode::permission_denied);
  EXPECT_EQ(SharedSegment::open(fifo, Access::read).status().code(), StatusCode::permission_denied);
  EXPECT_EQ(SharedSegment::open(empty, Access::read).status().code(), StatusCode::corrupt);
  EXPECT_EQ(SharedSegment::open(folder.owner().grid_path(0), Access::read).status().code(), StatusCode::not_found);
  folder.clear();
}

TEST(SharedSegment, IsLockedAsLongAsItsCreatorLives) {
  const test::SegmentFolder folder;
  const std::string path = folder.owner().control_path();
  Result<SharedSegment> other = Status::not_found("not opened");
  {
    const Result<SharedSegment> segment = SharedSegment::create(path, 4096);
    ASSERT_TRUE(segment.ok());
    other = SharedSegment::open(path, Access::read);
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(other->creator_holds_lock());
    EXPECT_TRUE(other->creator_holds_lock());
  }
  EXPECT_FALSE(other->creator_holds_lock());
  ASSERT_TRUE(other->unlink().ok());
}

TEST(SegmentNames, ReadBackWhatTheySay) {
  const SegmentFamily family{.folder = "/memory", .user = 1000, .job_key = make_job_key("/store", "job")};
  const UniqueId run = *UniqueId::random();
  const SegmentOwner owner{family, run, 12};
  EXPECT_EQ(owner.grid_path(3), "/memory/varve-1000-" + family.job_key + "-" + run.hex() + "-12-grid-3");
  const std::string path = owner.grid_path(3);
  const std::optional<SegmentName> name = parse_segment_name(family, path.substr(path.rfind('/') + 1));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->run, run);
  EXPECT_EQ(name->rank, 12U);
  EXPECT_EQ(name->what, "grid-3");
  const std::string prefix = family.file_prefix() + run.hex();
  for (const std::string& other :
       {std::string("varve-1000"), prefix, prefix + "-", prefix + "-x-control", prefix + "-7", prefix + "-7-",
        prefix + "-99999999999-control", family.file_prefix() + "short-7-control"}) {
    EXPECT_FALSE(parse_segment_name(family, other)) << other;
  }
}

TEST(SegmentNames, DifferByStoreAndJob) {
  EXPECT_EQ(make_job_key("/store", "job").size(), 16U);
  EXPECT_EQ(make_job_key("/store", "job"), make_job_key("/store", "job"));
  EXPECT_NE(make_job_key("/store", "job"), make_job_key("/store", "job2"));
  EXPECT_NE(make_job_key("/store", "job"), make_job_key("/storej", "ob"));
}

TEST(ProcessIdentity, TellsTheLivingFromTheDead) {
  const Result<ProcessIdentity> own = ProcessIdentity::own();
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  EXPECT_EQ(liveness(*own), Liveness::alive);

  ProcessIdentity other = *own;
  other.start_ticks += 1;
  EXPECT_EQ(liveness(other), Liveness::dead) << "another process got its number";
  other = *own;
  other.boot = *UniqueId::random();
  EXPECT_EQ(liveness(other), Liveness::dead) << "the machine was started anew";
  other = *own;
  other.pid_namespace += 1;
  EXPECT_EQ(liveness(other), Liveness::unknown);

  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<ProcessIdentity> mine = ProcessIdentity::own();
    (void)!::write(channel[1], &*mine, sizeof(ProcessIdentity));
    ::pause();
  }
  ProcessIdentity process;
  ASSERT_EQ(::read(channel[0], &process, sizeof process), static_cast<ssize_t>(sizeof process));
  EXPECT_EQ(liveness(process), Liveness::alive);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(liveness(process), Liveness::dead) << "a zombie";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(liveness(process), Liveness::dead);
  ::close(channel[0]);
  ::close(channel[1]);
}

}  // namespace
}  // namespace varve
