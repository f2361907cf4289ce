#include "zoo/zoo.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "zoo/pattern.h"

namespace varve::zoo {
namespace {

namespace fs = std::filesystem;

void check(bool fine, const std::string& what) {
  if (!fine) throw std::system_error(errno, std::generic_category(), "zoo: " + what);
}

void make_sparse_file(const fs::path& path, uint64_t bytes) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(fd >= 0, path);
  std::vector<char> block = pattern(4096, 7);
  bool fine = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  for (uint64_t offset : {uint64_t{0}, bytes / 3, bytes / 2 + 1, bytes - block.size()}) {
    fine = fine && ::pwrite(fd, block.data(), block.size(), static_cast<off_t>(offset)) > 0;
  }
  ::close(fd);
  check(fine, path);
}

void set_times(const fs::path& path) {
  timespec times[2] = {{.tv_sec = 946'684'799, .tv_nsec = 123'456'789},
                       {.tv_sec = 946'684'800, .tv_nsec = 987'654'321}};
  check(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0, "set the times of " + path.string());
}

}  // namespace

std::vector<char> pattern(size_t bytes, uint32_t seed) {
  std::vector<char> data(bytes);
  uint32_t state = seed * 2'654'435'761U + 1;
  for (char& c : data) {
    state = state * 1'664'525U + 1'013'904'223U;
    c = static_cast<char>(state >> 24);
  }
  return data;
}

void write_file(const fs::path& path, const std::vector<char>& contents) {
  std::ofstream out(path, std::ios::binary);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  if (!out) throw std::runtime_error("zoo: cannot write " + path.string());
}

void make_raw_files(const fs::path& directory) {
  fs::create_directories(directory);
  write_file(directory / "fields.bin", pattern(512 + 4 * 8 * 8 + 1000 * 8 + 40, 1));
  std::string sidecar = R"({ "comment": "a header of 512 bytes, two fields, a tail",
  "variables": [ { "name": "/Fluid/Temperature", "type": "f32", "shape": [8, 8], "offset": 512 },
                 { "name": "/Fluid/Velocity", "type": "f64be", "shape": [1000] } ] })";
  write_file(directory / "fields.bin.varve-layout", {sidecar.begin(), sidecar.end()});
  write_file(directory / "undescribed.bin", pattern(100'000, 2));
}

void make_odd_tree(const fs::path& directory, const Options& options) {
  fs::create_directories(directory);
  write_file(directory / "empty", {});
  if (options.huge_file_bytes > 0) make_sparse_file(directory / "huge sparse", options.huge_file_bytes);
  write_file(directory / "two\nlines and a space", pattern(100, 3));
  write_file(directory /
                 "\xc3\xbc"
                 "nic\xc3\xb6"
                 "de \xe2\x9c\x93 \xf0\x9f\x8c\x8d",
             pattern(5000, 4));
  write_file(directory /
                 "not\xff"
                 "utf8",
             pattern(10, 5));
  write_file(directory / std::string(255, 'n'), pattern(1, 6));
  fs::path deep = directory / "nested" / "folders with \xc3\xbc" / std::string(200, 'd') / "empty";
  fs::create_directories(deep);
  write_file(deep.parent_path() / "file", pattern(70'000, 8));
  fs::create_symlink("empty", directory / "relative link");
  fs::create_symlink("nested/../empty", directory / "relative link with dots");
  fs::create_symlink("/dev/null", directory / "absolute link");
  fs::create_symlink("nowhere/at/all", directory / "dangling link");
  fs::create_symlink("nested", directory / "link to a folder");

  struct ModeCase {
    const char* name;
    mode_t mode;
  };
  for (const ModeCase& one :
       {ModeCase{"mode 0400", 0400}, {"mode 0755", 0755}, {"mode 0666", 0666}, {"mode 1755", 01755}}) {
    write_file(directory / one.name, pattern(300, one.mode));
    check(::chmod((directory / one.name).c_str(), one.mode) == 0, one.name);
  }
  fs::create_directory(directory / "folder 2770");
  check(::chmod((directory / "folder 2770").c_str(), 02770) == 0, "set a folder's mode");
  write_file(directory / "old", pattern(64, 9));
  set_times(directory / "old");
  set_times(directory / "dangling link");
  set_times(directory / "nested" / "folders with \xc3\xbc");
}

void make_zoo(const fs::path& directory, const Options& options) {
  make_hdf5_files(directory / "hdf5", options);
  make_netcdf_files(directory / "netcdf");
  make_elf_cores(directory / "elf");
  make_npy_files(directory / "npy");
  make_zip_files(directory / "zip");
  make_torch_stream_files(directory / "torch_stream");
  make_safetensors_files(directory / "safetensors");
  make_fortran_files(directory / "fortran");
  make_raw_files(directory / "raw");
  make_odd_tree(directory / "odd", options);
}

}  // namespace varve::zoo
