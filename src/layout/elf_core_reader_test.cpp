#include "layout/layout_reader.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "layout/test_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

TEST(ElfCoreReader, NamesSegmentsByPermissionsAndMappedFileInEveryWidthAndByteOrder) {
  TemporaryDirectory directory;
  zoo::make_elf_cores(directory.path());
  for (const auto& path : files_below(directory.path())) {
    Result<Layout> layout = read_here(built_in_readers(), path);
    ASSERT_TRUE(layout.ok()) << path << layout.status().to_string();
    EXPECT_TRUE(validate_layout(*layout, std::filesystem::file_size(path)).ok());
    EXPECT_EQ(layout->format, "elf");
    std::vector<std::string> names;
    for (const Variable& variable : layout->variables) names.push_back(variable.name);
    EXPECT_EQ(names, (std::vector<std::string>{"/segment/r-x/simulation+0x0", "/segment/rw-/anonymous-1",
                                               "/segment/rw-/libfoo.so+0x4000", "/segment/rw-/anonymous-2"}));
    EXPECT_EQ(layout->variables[1].extents, (std::vector<Extent>{{3 * 4096, 4 * 4096}}));
    EXPECT_EQ(layout->variables[1].type.name(), "BYTES");
  }
}

TEST(ElfCoreReader, TakesNoProgramForACoreDump) {
  EXPECT_EQ(read_here(built_in_readers(), "/proc/self/exe").status().code(), StatusCode::not_found);
}

TEST(ElfCoreReader, RefusesACoreDumpThatWasCutOff) {
  TemporaryDirectory directory;
  zoo::make_elf_cores(directory.path());
  std::string whole = read_text(directory.path() / "core64le");
  std::string_view head(whole.data(), 100);
  FileWindow file(as_bytes(head));
  EXPECT_EQ(read_elf_core_layout(file).status().code(), StatusCode::corrupt);
}

TEST(ElfCoreReader, ReadsADumpThatGdbMade) {
  if (std::getenv("VARVE_NIGHTLY") == nullptr) GTEST_SKIP() << "a nightly test";
  TemporaryDirectory directory;
  pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  std::string core = (directory.path() / "core").string();
  std::string command = "gcore -o " + core + " " + std::to_string(child) + " >/dev/null 2>&1";
  int failed = std::system(command.c_str());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (failed != 0) GTEST_SKIP() << "gcore is not there, or may not look at processes";
  std::string path = core + "." + std::to_string(child);
  Result<Layout> layout = read_here(built_in_readers(), path);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(validate_layout(*layout, std::filesystem::file_size(path)).ok());
  EXPECT_GT(layout->variables.size(), 5U);
  bool names_libc = false;
  for (const Variable& variable : layout->variables) names_libc |= variable.name.find("libc.so") != std::string::npos;
  EXPECT_TRUE(names_libc);
}

}  // namespace
}  // namespace varve
