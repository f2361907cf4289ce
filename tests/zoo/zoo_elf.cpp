#include <cstring>
#include <string>

#include "zoo/pattern.h"
#include "zoo/zoo.h"

namespace varve::zoo {
namespace {

/// Writes the fields of an ELF file of either width and byte order.
class ElfWriter {
 public:
  ElfWriter(bool wide, bool big_endian) : wide_(wide), big_endian_(big_endian) {}

  void integer(uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) {
      unsigned shift = 8 * (big_endian_ ? bytes - 1 - i : i);
      out.push_back(static_cast<char>(value >> shift));
    }
  }
  void half(uint64_t value) { integer(value, 2); }
  void word32(uint64_t value) { integer(value, 4); }
  void word(uint64_t value) { integer(value, wide_ ? 8 : 4); }
  void text(const std::string& value) {
    for (char c : value) out.push_back(c);
  }
  void pad_to(size_t size) { out.resize(size, '\0'); }
  void pad_to_multiple(size_t of) { pad_to((out.size() + of - 1) / of * of); }

  void file_header(unsigned segments) {
    text(
        "\x7f"
        "ELF");
    for (char c : {wide_ ? 2 : 1, big_endian_ ? 2 : 1, 1}) out.push_back(c);
    pad_to(16);
    half(4);  // ET_CORE
    half(62);
    word32(1);
    word(0);
    word(wide_ ? 64 : 52);  // program headers come next
    word(0);
    word32(0);
    half(wide_ ? 64 : 52);
    half(wide_ ? 56 : 32);
    half(segments);
    half(0);
    half(0);
    half(0);
  }

  void segment(uint64_t type, uint64_t flags, uint64_t offset, uint64_t address, uint64_t bytes) {
    word32(type);
    if (wide_) word32(flags);
    word(offset);
    word(address);
    word(0);
    word(bytes);
    word(bytes);
    if (!wide_) word32(flags);
    word(4096);
  }

  void note(const std::string& name, uint64_t type, const std::vector<char>& content) {
    word32(name.size() + 1);
    word32(content.size());
    word32(type);
    text(name);
    out.push_back('\0');
    pad_to_multiple(4);
    out.insert(out.end(), content.begin(), content.end());
    pad_to_multiple(4);
  }

  std::vector<char> out;

 private:
  bool wide_;
  bool big_endian_;
};

void make_core(const std::filesystem::path& path, bool wide, bool big_endian) {
  constexpr uint64_t kPage = 4096, kText = 0x400000, kHeap = 0x600000, kLibrary = 0x700000, kStack = 0x7f0000;
  ElfWriter mapped(wide, big_endian);
  mapped.word(2);
  mapped.word(kPage);
  for (uint64_t value : {kText, kText + 2 * kPage, uint64_t{0}, kLibrary, kLibrary + 2 * kPage, uint64_t{3}}) {
    mapped.word(value);
  }
  mapped.text(std::string("/usr/bin/simulation\0/usr/lib/libfoo.so\0", 39));
  ElfWriter notes(wide, big_endian);
  notes.note("CORE", 1, std::vector<char>(336, 'r'));  // NT_PRSTATUS
  notes.note("CORE", 0x46494c45, mapped.out);          // NT_FILE

  constexpr uint64_t kRead = 4, kWrite = 2, kExecute = 1;
  ElfWriter core(wide, big_endian);
  core.file_header(6);
  core.segment(4, 0, 512, 0, notes.out.size());
  core.segment(1, kRead | kExecute, 1 * kPage, kText, 2 * kPage);
  core.segment(1, kRead | kWrite, 3 * kPage, kHeap, 4 * kPage);
  core.segment(1, kRead | kWrite, 7 * kPage, kLibrary + kPage, kPage);
  core.segment(1, kRead, 0, kLibrary + 8 * kPage, 0);  // not dumped
  core.segment(1, kRead | kWrite, 8 * kPage, kStack, 2 * kPage);
  core.pad_to(512);
  core.out.insert(core.out.end(), notes.out.begin(), notes.out.end());
  core.pad_to(kPage);
  std::vector<char> memory = pattern(9 * kPage, 11);
  std::memset(memory.data() + 4 * kPage, 0, kPage);
  core.out.insert(core.out.end(), memory.begin(), memory.end());
  write_file(path, core.out);
}

}  // namespace

void make_elf_cores(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  make_core(directory / "core64le", true, false);
  make_core(directory / "core64be", true, true);
  make_core(directory / "core32le", false, false);
  make_core(directory / "core32be", false, true);
}

}  // namespace varve::zoo
