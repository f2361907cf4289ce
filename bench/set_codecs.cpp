// Codecs on the numbers of a checkpoint set, beside what else compresses arrays: set_codecs FOLDER [--benchmark_...].
// The packs are those of a save: each variable of all files, in the order of their names, in pieces of up to 1 MiB;
// what is constant is left out. bytes_per_second is of raw bytes and processor time. blosc where it is installed.
// "together" is with variables that predict each other laid together.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <tuple>

#include "codec/across.h"
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

/// An array of a file.
struct Array {
  std::string grid, name;  ///< "/Grid00000012/Density" is the variable "Density" of many grids
  ElementType type;
  std::vector<uint64_t> dims;  ///< the fastest first
  ByteVector raw;

  Run run() const { return {raw.size() / type.bytes, dims, !dims.empty()}; }
};

/// Numbers alone, and no constants: what codecs for numbers are for.
std::vector<Array> arrays_of_set(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const LayoutReaders readers = built_in_readers();
  std::vector<Array> arrays;
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
      if (extent.bytes < 4096 || constant) continue;
      const size_t slash = variable.name.rfind('/') + 1;
      std::vector<uint64_t> dims(variable.shape.rbegin(), variable.shape.rend());
      std::erase(dims, uint64_t{1});
      arrays.push_back({.grid = path.string() + variable.name.substr(0, slash),
                        .name = variable.name.substr(slash),
                        .type = variable.type,
                        .dims = std::move(dims),
                        .raw = ByteVector(bytes.begin(), bytes.end())});
    }
  }
  return arrays;
}

/// Those of a set by the name of the variable.
using Classes = std::map<std::string, std::vector<const Array*>>;
Classes classes_of(const std::vector<Array>& arrays) {
  Classes classes;
  for (const Array& array : arrays) classes[array.name].push_back(&array);
  return classes;
}

void add(Pack& pack, const Array& array) {
  pack.shape.type = array.type;
  pack.shape.runs.push_back(array.run());
  pack.raw.insert(pack.raw.end(), array.raw.begin(), array.raw.end());
}

std::map<std::string, Packs> packs_apart(const Classes& classes) {
  std::map<std::string, Packs> all;
  for (const auto& [name, of_class] : classes) {
    Packs& packs = all[name];
    for (const Array* array : of_class) {
      if (packs.empty() || packs.back().raw.size() + array->raw.size() > 1_MiB) packs.emplace_back();
      add(packs.back(), *array);
    }
  }
  return all;
}

/// Those of the variables that predict each other, by a sample from the largest grid, and which they are; or none.
Packs packs_of_bundle(const std::vector<const std::vector<const Array*>*>& alike, Effort effort, Predictions& found) {
  const std::vector<const Array*>& first = *alike.front();
  const auto smaller = [](const Array* a, const Array* b) { return a->raw.size() < b->raw.size(); };
  const auto ordinal = static_cast<size_t>(std::max_element(first.begin(), first.end(), smaller) - first.begin());
  const Array& largest = *first[ordinal];
  const uint64_t numbers = std::min<uint64_t>(largest.run().elements, 4096);
  const uint64_t begin = (largest.run().elements - numbers) / 2 * largest.type.bytes;
  const PackShape shape{.type = largest.type, .runs = {{numbers, largest.dims, false}}};
  std::vector<ByteSpan> samples;
  for (const auto* of_class : alike)
    samples.push_back(ByteSpan((*of_class)[ordinal]->raw).subspan(begin, numbers * largest.type.bytes));
  found = find_predictions(shape, samples);
  if (found.order.size() < 2 || !*worth_together(shape, samples, found, effort)) return {};
  Packs packs;
  for (size_t from = 0, to = 0; from < first.size(); from = to) {
    for (uint64_t bytes = 0; to < first.size() && (to == from || bytes < 2_MiB); ++to)
      bytes += first[to]->raw.size() * found.order.size();
    Pack& pack = packs.emplace_back();
    for (const uint32_t variable : found.order) {
      PackPart& part = pack.shape.parts.emplace_back();
      if (found.reference[variable]) {
        const auto reference = std::find(found.order.begin(), found.order.end(), *found.reference[variable]);
        part.reference = static_cast<uint32_t>(reference - found.order.begin());
      }
      for (size_t i = from; i < to; ++i) {
        add(pack, *(*alike[variable])[i]);
        part.elements += pack.shape.runs.back().elements;
      }
    }
  }
  return packs;
}

/// Variables of the same grids that predict each other in packs of their own, a part for each, and all others.
std::map<std::string, Packs> packs_together(Classes classes, Effort effort) {
  using Grids = std::vector<std::tuple<std::string, std::string, std::vector<uint64_t>>>;
  std::map<Grids, std::vector<std::string>> likes;
  for (const auto& [name, of_class] : classes) {
    Grids grids;
    for (const Array* array : of_class) grids.emplace_back(array->grid, array->type.name(), array->dims);
    likes[grids].push_back(name);
  }
  std::map<std::string, Packs> all;
  for (const auto& [grids, names] : likes) {
    if (names.size() < 2) continue;
    std::vector<const std::vector<const Array*>*> alike;
    for (const std::string& name : names) alike.push_back(&classes[name]);
    Predictions found;
    Packs packs = packs_of_bundle(alike, effort, found);
    if (packs.empty()) continue;
    all[names[found.order.front()] + " and others"] = std::move(packs);
    for (const uint32_t variable : found.order) classes.erase(names[variable]);
  }
  all.merge(packs_apart(classes));
  return all;
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
  const auto arrays = varve::arrays_of_set(argv[1]);
  if (arrays.empty()) {
    std::fprintf(stderr, "%s has no file of a known format with arrays of floating-point numbers\n", argv[1]);
    return 2;
  }
  const varve::Classes classes = varve::classes_of(arrays);
  const auto apart = varve::packs_apart(classes);
  // Effort best lays together what balanced does.
  const auto together = varve::packs_together(classes, varve::Effort::balanced);
  const auto together_fast = varve::packs_together(classes, varve::Effort::fast);
  const auto measure = [](const std::string& name, const std::string& codec, const auto& packs) {
    for (const bool decode : {false, true}) {
      benchmark::RegisterBenchmark(((decode ? "decode/" : "encode/") + name).c_str(), [&packs, codec,
                                                                                       decode](auto& state) {
        varve::run(state, packs, codec, decode);
      })->Unit(benchmark::kMillisecond);
    }
  };
  std::vector<std::string> names = {
      "fast",   "balanced", "best", "lorenzo+magnitudes", "lorenzo+shuffle+zstd:1", "gzip:6", "zstd:3",
      "lzma:6", "lz4",      "fpzip"};
  if (varve::blosc().ok()) names.insert(names.end(), {"blosc-zstd", "blosc-lz4"});
  for (const std::string& name : names) measure(name, name, apart);
  measure("together/fast", "fast", together_fast);
  for (const std::string effort : {"balanced", "best"}) measure("together/" + effort, effort, together);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
