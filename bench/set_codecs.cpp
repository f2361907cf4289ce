// Codecs on the numbers of a checkpoint set, beside what else compresses arrays: set_codecs FOLDER [--benchmark_...].
// The packs are those of a save: each variable of all files, in the order of their names, in pieces of up to 1 MiB;
// what is constant is left out. bytes_per_second is of raw bytes and processor time. blosc where it is installed.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "codec/chooser.h"
#include "core/loaded_library.h"
#include "layout/layout_reader.h"

namespace varve {
namespace {

struct Pack {
  PackShape shape;
  ByteVector raw;
};
/// Of one variable.
using Packs = std::vector<Pack>;

ByteVector read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const ByteSpan bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// "/Grid00000012/Density" is the variable "Density" of many grids.
std::string name_in_all(const std::string& name) { return name.substr(name.rfind('/') + 1); }

void add_array(Packs& packs, const Variable& variable, ByteSpan bytes) {
  const uint64_t elements = bytes.size() / variable.type.bytes;
  std::vector<uint64_t> dims(variable.shape.rbegin(), variable.shape.rend());
  std::erase(dims, uint64_t{1});
  if (packs.empty() || packs.back().raw.size() + bytes.size() > 1_MiB)
    packs.push_back({.shape = {variable.type, {}}, .raw = {}});
  packs.back().shape.runs.push_back({elements, dims, !dims.empty()});
  packs.back().raw.insert(packs.back().raw.end(), bytes.begin(), bytes.end());
}

/// Numbers alone, and no constants: what codecs for numbers are for.
std::map<std::string, Packs> packs_of_set(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const LayoutReaders readers = built_in_readers();
  std::map<std::string, Packs> classes;
  for (const std::filesystem::path& path : files) {
    const ByteVector file = read_whole(path);
    const ReadAt read = [&file](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
      const uint64_t bytes = std::min<uint64_t>(into.size(), file.size() - std::min<uint64_t>(offset, file.size()));
      if (bytes > 0) std::copy_n(file.begin() + static_cast<ptrdiff_t>(offset), bytes, into.begin());
      return bytes;
    };
    const std::optional<Layout> layout = read_layout_safely(readers, read, file.size());
    if (!layout) continue;
    for (const Variable& variable : layout->variables) {
      if (variable.encoded || variable.type.kind != ElementKind::floating || variable.extents.size() != 1) continue;
      const Extent extent = variable.extents.front();
      const ByteSpan bytes = ByteSpan(file).subspan(extent.offset, extent.bytes);
      const bool constant = std::equal(bytes.begin() + variable.type.bytes, bytes.end(), bytes.begin());
      if (extent.bytes >= 4096 && !constant) add_array(classes[name_in_all(variable.name)], variable, bytes);
    }
  }
  return classes;
}

/// The library's function, as its header (blosc.h, 1.21) declares it.
struct Blosc : LoadedLibrary {
  explicit Blosc(const LoadedLibrary& library) : LoadedLibrary(library) {}
  int (*compress)(int level, int shuffle, size_t type_bytes, size_t bytes, const void* from, void* to, size_t to_bytes,
                  const char* compressor, size_t block_bytes, int threads) = find("blosc_compress_ctx");
  int (*decompress)(const void* from, void* to, size_t to_bytes, int threads) = find("blosc_decompress_ctx");
};
const Result<Blosc>& blosc() {
  static const auto library = LoadedLibrary::load<Blosc>("libblosc.so.1", "blosc", "Debian: libblosc1");
  return library;
}

/// Something that makes packs smaller, with all that it remembers from one pack of a variable to the next.
class Compressor {
 public:
  explicit Compressor(const std::string& name) {
    if (name.starts_with("blosc-")) {
      coder_ = name.substr(6);
    } else {
      encoder_ = make_encoder(*CodecPolicy::parse(name));
    }
  }
  size_t compress(const Pack& pack, EncodedBytes& into) {
    if (encoder_) {
      into = *encoder_->encode(pack.raw, pack.shape);
      return into.recipe.size() + into.body.size();
    }
    into.body.resize(pack.raw.size() + 16);
    const int bytes =
        (*blosc()).compress(5, /*shuffle=*/coder_ == "lz4" ? 2 : 1, pack.shape.type.bytes, pack.raw.size(),
                            pack.raw.data(), into.body.data(), into.body.size(), coder_.c_str(), 0, 1);
    into.body.resize(static_cast<size_t>(std::max(bytes, 0)));
    return into.body.size();
  }
  bool decompress(const EncodedBytes& from, ByteVector& raw) const {
    if (encoder_) return decode_chain(from.recipe, from.body, raw).ok();
    return (*blosc()).decompress(from.body.data(), raw.data(), raw.size(), 1) == static_cast<int>(raw.size());
  }

 private:
  std::unique_ptr<Encoder> encoder_;
  std::string coder_;  ///< of blosc
};

void run(benchmark::State& state, const std::map<std::string, Packs>& classes, const std::string& name, bool decode) {
  size_t raw_bytes = 0, stored_bytes = 0;
  std::vector<std::pair<Compressor, std::vector<std::pair<const Pack*, EncodedBytes>>>> all;
  for (const auto& [variable, packs] : classes) {
    auto& [compressor, encoded] = all.emplace_back(Compressor(name), 0);
    for (const Pack& pack : packs) {
      encoded.emplace_back(&pack, EncodedBytes{});
      stored_bytes += compressor.compress(pack, encoded.back().second);
      raw_bytes += pack.raw.size();
      ByteVector back(pack.raw.size());
      if (!compressor.decompress(encoded.back().second, back) || back != pack.raw)
        return state.SkipWithError("a pack does not come back");
    }
  }
  for (auto _ : state) {
    for (auto& [compressor, encoded] : all) {
      for (auto& [pack, bytes] : encoded) {
        if (!decode) {
          EncodedBytes into;
          benchmark::DoNotOptimize(compressor.compress(*pack, into));
        } else {
          ByteVector back(pack->raw.size());
          benchmark::DoNotOptimize(compressor.decompress(bytes, back));
        }
      }
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * raw_bytes));
  state.counters["ratio"] = static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes);
}

}  // namespace
}  // namespace varve

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER [--benchmark_...]\n", argv[0]);
    return 2;
  }
  if (!std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "%s is no folder: name that of a checkpoint set\n", argv[1]);
    return 2;
  }
#ifdef __GLIBC__
  // As a save does: else first touches of each result's memory would count, by how malloc happens to give it back.
  ::mallopt(M_MMAP_THRESHOLD, 8 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 64 << 20);
#endif
  const auto classes = varve::packs_of_set(argv[1]);
  if (classes.empty()) {
    std::fprintf(stderr, "%s has no file of a known format with arrays of floating-point numbers\n", argv[1]);
    return 2;
  }
  std::vector<std::string> names = {
      "fast",   "balanced", "best", "lorenzo+magnitudes", "lorenzo+shuffle+zstd:1", "gzip:6", "zstd:3",
      "lzma:6", "lz4",      "fpzip"};
  if (varve::blosc().ok()) names.insert(names.end(), {"blosc-zstd", "blosc-lz4"});
  for (const std::string& name : names) {
    for (const bool decode : {false, true}) {
      benchmark::RegisterBenchmark(((decode ? "decode/" : "encode/") + name).c_str(), [&, name, decode](auto& state) {
        varve::run(state, classes, name, decode);
      })->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
