#include "golden/golden.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "codec/deflater.h"

namespace varve::test {

namespace {
constexpr int64_t kGoldenTime = 1'717'750'000;

/// A field of float64 without any function that could differ from machine to machine.
ByteVector field(size_t count, uint64_t seed) {
  ByteVector bytes(8 * count);
  for (size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    store_le<double>(bytes.data() + 8 * i, static_cast<double>(seed) + x * x / 1024 + x / 8);
  }
  return bytes;
}

/// Sets modes and times, of what is below first.
void stamp(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.rbegin(), paths.rend());
  for (size_t i = 0; i < paths.size(); ++i) {
    struct stat status {};
    bool fine = ::lstat(paths[i].c_str(), &status) == 0;
    if (!S_ISLNK(status.st_mode)) fine = fine && ::chmod(paths[i].c_str(), S_ISDIR(status.st_mode) ? 0750 : 0640) == 0;
    const timespec when{kGoldenTime + static_cast<int64_t>(i), 123'456'789};
    const timespec times[2] = {when, when};
    fine = fine && ::utimensat(AT_FDCWD, paths[i].c_str(), times, AT_SYMLINK_NOFOLLOW) == 0;
    EXPECT_TRUE(fine) << paths[i];
  }
}

constexpr const char* kSidecar =
    R"({ "variables": [ { "name": "/Fluid/Density", "type": "f64", "shape": [8, 12], "offset": 24 },
    { "name": "/Fluid/Energy", "type": "f64be", "shape": [96] }, { "name": "/Fluid/Zero", "type": "i32", "shape": [64] } ] })";

constexpr const char* kSidecarWithSmall =
    R"({ "variables": [ { "name": "/time", "type": "f64", "shape": [], "offset": 0 }, { "name": "/cycle", "type": "i32be", "shape": [2] },
    { "name": "/Fluid/Density", "type": "f64", "shape": [8, 12], "offset": 24 } ] })";

void make_field_files(const std::string& folder, uint64_t seed, const char* sidecar) {
  for (uint64_t rank = 0; rank < 2; ++rank) {
    ByteVector bytes = random_bytes(24, seed);
    const ByteVector density = field(96, 10 * seed + rank);
    ByteVector energy = field(96, 1000 + 10 * seed + rank);
    for (size_t i = 0; i < energy.size(); i += 8) std::reverse(&energy[i], &energy[i] + 8);
    bytes.insert(bytes.end(), density.begin(), density.end());
    bytes.insert(bytes.end(), energy.begin(), energy.end());
    bytes.resize(bytes.size() + 256);
    const ByteVector tail = random_bytes(9, seed + rank);
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    const std::string path = folder + "/rank" + std::to_string(rank) + ".bin";
    write_file(path, bytes);
    write_file(path + ".varve-layout", sidecar);
  }
}
/// As gzip writes them, at level 6: a field, and noise of four bits.
void make_deflated_file(const std::string& path) {
  ByteVector noise = random_bytes(80'000, 8);
  for (std::byte& byte : noise) byte &= std::byte{15};
  ByteVector file;
  for (const ByteVector& content : {field(12'000, 3), noise}) {
    const ByteSpan header = as_bytes(std::string_view("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10));
    file.insert(file.end(), header.begin(), header.end());
    ByteVector made(content.size() + 1024);
    made.resize(Deflater().make(content, {.level = 6}, made));
    file.insert(file.end(), made.begin(), made.end());
    file.resize(file.size() + 8);  // checksum and length, which nobody looks at
  }
  write_file(path, file);
}

constexpr const char* kBundleSidecar =
    R"({ "variables": [ { "name": "/Gas/Density", "type": "f64", "shape": [2048] },
    { "name": "/Gas/HI", "type": "f64", "shape": [2048] }, { "name": "/Gas/HeI", "type": "f64", "shape": [2048] },
    { "name": "/Gas/Shifted", "type": "f64", "shape": [2048] } ] })";

/// A density that nothing predicts, two shares of it, and what is larger than it by so many of its last places. Among
/// them are denormals, NaN, infinities and zeros.
void make_bundle_files(const std::string& folder) {
  constexpr size_t cells = 2048;
  constexpr uint64_t specials[] = {0x7ff400000000beef, 0xfff8000000000001, 0x7ff0000000000000,
                                   0xfff0000000000000, 0x8000000000000000, 0};
  for (uint64_t rank = 0; rank < 2; ++rank) {
    const ByteVector noise = random_bytes(2 * cells, 20 + rank);
    ByteVector bytes(4 * 8 * cells);
    for (size_t i = 0; i < cells; ++i) {
      const double scale = i % 128 < 4 ? 1e-310 : 1;
      const double density = scale * (1 + load_le<uint16_t>(noise.data() + 2 * i) / 65536.0);
      const double values[] = {density, 0.76 * density, 0.24 * density, density + scale / (1 << 20)};
      for (size_t variable = 0; variable < std::size(values); ++variable) {
        std::byte* const at = bytes.data() + 8 * (variable * cells + i);
        store_le<double>(at, values[variable]);
        // As bits: what arithmetic makes of NaN differs from machine to machine.
        if (i % 128 == 64) store_le<uint64_t>(at, specials[i / 128 % std::size(specials)]);
      }
    }
    const std::string path = folder + "/rank" + std::to_string(rank) + ".bin";
    write_file(path, bytes);
    write_file(path + ".varve-layout", kBundleSidecar);
  }
}

/// Frames of c-blosc: the example of FORMAT.md, with matches; doubles, whose planes were kept as they are or have one
/// long match; and what was not compressed.
void make_frames_file(const std::string& path) {
  ByteVector file;
  ByteWriter out(file);
  const auto header = [&](int flags, int element_bytes, uint32_t content, uint32_t block, uint32_t bytes) {
    for (const int byte : {2, 1, flags, element_bytes}) out.u8(static_cast<uint8_t>(byte));
    for (const uint32_t value : {content, block, bytes}) out.le32(value);
  };
  const auto text = [&](std::string_view bytes) { out.bytes(as_bytes(bytes)); };
  text("> ");
  header(0x20, 1, 36, 36, 55);
  out.le32(20);
  out.le32(31);
  text(
      std::string_view("\xc2one fish two\x09\0\x32red\x09\0\x90"
                       "blue fish",
                       31));

  // Of each block, bytes 0 to 3 of its numbers are noise, and the others are the same in all of them.
  constexpr uint32_t blocks = 8, elements = 256, block_bytes = 8 * elements, same_bytes = 11;
  constexpr uint32_t in_block = 8 * 4 + 4 * elements + 4 * same_bytes;
  header(0x21, 8, blocks * block_bytes, block_bytes, 16 + 4 * blocks + blocks * in_block);
  for (uint32_t block = 0; block < blocks; ++block) out.le32(16 + 4 * blocks + block * in_block);
  const ByteVector noise = random_bytes(elements, 30);
  for (uint32_t block = 0; block < blocks; ++block) {
    for (int plane = 0; plane < 8; ++plane) {
      out.le32(plane < 4 ? elements : same_bytes);
      if (plane < 4) {
        out.bytes(noise);
        continue;
      }
      // A literal, a match of the 250 that follow, and the last five as literals.
      const std::string same(5, static_cast<char>('0' + plane));
      text("\x1f" + same.substr(0, 1) + std::string("\x01\0\xe7\x50", 4) + same);
    }
  }
  header(0x22, 4, 4000, 4000, 4016);
  out.bytes(field(500, 31));
  text("behind");
  write_file(path, file);
}

void make_text_file(const std::string& path) {
  std::string text;
  for (uint64_t line = 0; line < 300; ++line)
    text +=
        std::to_string(line) + " 1 " + std::to_string(line * line % 977) + "." + std::to_string(100 + line % 7) + "\n";
  write_file(path, text);
}
}  // namespace

std::vector<GoldenStore> golden_stores() {
  return {{"store_blake3", ScoreAlgorithm::blake3, 32}, {"store_sha256", ScoreAlgorithm::sha256, 20}};
}

std::vector<GoldenSet> golden_sets() {
  const std::vector<std::string> codecs = {"lorenzo+shuffle+zstd:1",
                                           "lorenzo+bitshuffle+zstd:1",
                                           "delta+shuffle+zstd",
                                           "shuffle+lz4",
                                           "fpc+zstd",
                                           "fpzip",
                                           "gzip",
                                           "lzma",
                                           "store",
                                           "paper",
                                           "best",
                                           "constant",
                                           "lorenzo+planes",
                                           "rotate:8+shuffle+zstd",
                                           "lorenzo+magnitudes",
                                           "signlast+planes"};
  const std::vector<std::string> chunkers = {"fixed:8192", "gear:256", "rabin:512", "fixed:100"};
  std::vector<GoldenSet> sets;
  for (size_t i = 0; i < codecs.size(); ++i) {
    // Mostly `aware`, since only that gives chains something to work on.
    const Scheme scheme = i % 3 == 0 ? Scheme::aware_block
                          : i == 7   ? Scheme::agnostic
                          : i == 8   ? Scheme::agnostic_block
                                     : Scheme::aware;
    sets.push_back({{"chains", i + 1}, {scheme, codecs[i], chunkers[i % chunkers.size()]}});
  }
  sets.push_back({kDeflatedSet, {Scheme::aware, "balanced", "fixed:8192"}});
  sets.push_back({kFramesSet, {Scheme::aware, "blosc+shuffle:8+zstd", "fixed:8192"}});
  sets.push_back({kTextSet, {Scheme::aware, "columns+zstd", "fixed:8192"}});
  sets.push_back({kTimeSet, {Scheme::aware, "zstd", "fixed:8192"}});
  sets.push_back({kSmallVariablesSet, {Scheme::aware, "zstd", "fixed:8192"}});
  sets.push_back({kBundleSet, {Scheme::aware, "across+magnitudes", "fixed:8192"}});
  sets.push_back({kThinnedSet, {Scheme::agnostic, "shuffle+zstd", "fixed:64"}});
  std::sort(sets.begin(), sets.end(), [](const GoldenSet& a, const GoldenSet& b) { return a.name < b.name; });
  return sets;
}

void make_golden_folder(const std::string& folder, const SetName& name) {
  std::filesystem::create_directories(folder);
  if (name == kDeflatedSet) {
    make_deflated_file(folder + "/fields.gz");
  } else if (name == kFramesSet) {
    make_frames_file(folder + "/0.0");
  } else if (name == kTextSet) {
    make_text_file(folder + "/atoms.dump");
  } else if (name == kBundleSet) {
    make_bundle_files(folder);
  } else if (name == kTimeSet) {
    make_field_files(folder, 2, kSidecar);
  } else if (name.job == kThinnedSet.job) {
    ByteVector bytes = random_bytes(2048, 5);
    // The second has every other chunk of the first.
    if (name == kThinnedSet) {
      for (size_t at = 64; at < bytes.size(); at += 128)
        std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), 64, std::byte{7});
    }
    write_file(folder + "/noise", bytes);
  } else {
    make_field_files(folder, name.step, name == kSmallVariablesSet ? kSidecarWithSmall : kSidecar);
  }
  if (name == SetName{"chains", 1}) {
    write_file(folder + "/notes/empty", "");
    std::filesystem::create_directories(folder + "/folder/inside");
    std::filesystem::create_symlink("../rank0.bin", folder + "/notes/link");
    std::filesystem::create_symlink("/nowhere", folder + "/dangling");
  }
  stamp(folder);
}

}  // namespace varve::test
