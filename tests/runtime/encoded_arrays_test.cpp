// Arrays of saved files whose own formats have compressed them: what comes back is what the program wrote.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "codec/chunk_formats.h"
#include "codec/codec.h"
#include "codec/kernels.h"
#include "codec/test_deflate.h"
#include "core/cell_box.h"
#include "core/file_system.h"
#include "engine/save.h"
#include "hash/score.h"
#include "reader/zarr_chunks.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "sets/folders.h"
#include "sets/peak_memory.h"
#include "sets/saving.h"
#include "varve/checkpoint_reader.h"
#include "zoo/array_files.h"
#ifdef VARVE_ZOO_WITH_HDF5
#include "zoo/hdf5_writing.h"
#endif

namespace varve {
namespace {

using test::deflated;
using test::SessionPlace;

using Shape = std::vector<uint64_t>;

CellBox all_of(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

CellBox any_box(const Shape& shape, std::mt19937& random) {
  CellBox box;
  for (const uint64_t extent : shape) {
    box.offset.push_back(std::uniform_int_distribution<uint64_t>(0, extent)(random));
    box.cells.push_back(std::uniform_int_distribution<uint64_t>(0, extent - box.offset.back())(random));
  }
  return box;
}

/// Numbers that compress, but are no two alike.
std::vector<double> values_of(const Shape& shape) {
  std::vector<double> values(all_of(shape).cell_count());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + static_cast<double>(i % 7) / 8;
  return values;
}

std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

/// Of elements that lie in a row, those in a box.
std::string box_of(const std::string& bytes, const Shape& shape, const CellBox& box) {
  const size_t element = bytes.size() / all_of(shape).cell_count();
  std::string cells(box.cell_count() * element, '\0');
  for_each_cell_run(box, all_of(shape), box, [&](const CellRun& run) {
    std::memcpy(cells.data() + run.to * element, bytes.data() + run.from * element, run.cells * element);
    return Status();
  }).ignore("it cannot fail");
  return cells;
}

class EncodedArrays : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(files);
    ASSERT_TRUE(Store::create(posix_file_system(), place.store).ok());
  }

  void write(const std::string& name, const std::string& contents) const {
    test::write_file(files + "/" + name, as_bytes(contents));
  }
  CheckpointReader saved(const CodecPolicy& codec = {}) {
    SaveOptions options = test::save_options("run", ++step);
    options.codec = codec;
    const auto report = save_folder(*test::store_at(place.store), files, options, test::layout_service());
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return open();
  }
  CheckpointReader open() const {
    return CheckpointReader::open(place.store, fmt::format("run@{}", step), {.threads = 2}).value();
  }

  static Status read(CheckpointReader& reader, const std::string& name, const CellBox& box, std::string& into) {
    VARVE_ASSIGN(const CheckpointVariable* const variable, reader.variable(name));
    into.assign(box.cell_count() * variable->type.bytes, '\x77');
    return reader.read(name, ArraySection{box.offset, box.cells},
                       std::as_writable_bytes(std::span(into.data(), into.size())));
  }
  static Status read(CheckpointReader& reader, const std::string& name, std::string& into) {
    VARVE_ASSIGN(const CheckpointVariable* const variable, reader.variable(name));
    return read(reader, name, all_of(variable->cells), into);
  }

  /// Whole, and in boxes.
  static void expect_is(CheckpointReader& reader, const std::string& name, const std::string& type, const Shape& shape,
                        const std::string& bytes) {
    SCOPED_TRACE(name);
    const Result<const CheckpointVariable*> variable = reader.variable(name);
    ASSERT_TRUE(variable.ok()) << variable.status().to_string();
    EXPECT_EQ((*variable)->type.name(), type);
    ASSERT_EQ((*variable)->cells, shape);
    std::mt19937 random(1);
    for (int i = 0; i < 20; ++i) {
      const CellBox box = i % 10 == 0 ? all_of(shape) : any_box(shape, random);
      std::string cells;
      const Status status = read(reader, name, box, cells);
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_EQ(cells, box_of(bytes, shape, box));
    }
  }
  static void expect_fails(CheckpointReader& reader, const std::string& name, StatusCode code,
                           const std::string& words) {
    std::string cells;
    const Status status = read(reader, name, cells);
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.to_string().find(words), std::string::npos) << status.to_string();
    EXPECT_NE(status.to_string().find(name), std::string::npos) << status.to_string();
  }

  SessionPlace place;
  const std::string files = place.folder / "files";
  uint64_t step = 0;
};

#ifdef VARVE_ZOO_WITH_HDF5
using zoo::filtering;
using zoo::h5;
using zoo::Id;

Id new_hdf5_file(const std::string& path) {
  return Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
}

void write_dataset(hid_t file, const char* name, hid_t type, const Shape& shape, hid_t properties) {
  zoo::write_dataset(file, name, type, H5T_NATIVE_DOUBLE, {shape.begin(), shape.end()}, values_of(shape), properties);
}

TEST_F(EncodedArrays, OfHdf5AreReadWholeAndInBoxes) {
  const Shape shape{50, 30, 20};
  {
    const Id file = new_hdf5_file(files + "/a.h5");
    write_dataset(file, "filtered", H5T_IEEE_F64LE, shape, filtering({16, 16, 16}));
    write_dataset(file, "turned", H5T_STD_I32BE, {1000}, filtering({100}));
    const Id properties = filtering({10, 10});
    const int fill = -5;
    h5(H5Pset_fill_value(properties, H5T_NATIVE_INT, &fill), "set a fill value");
    const Id space = zoo::simple_space({40, 25});
    const Id sparse(H5Dcreate2(file, "sparse", H5T_STD_I16LE, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
    write_dataset(file, "plain", H5T_IEEE_F64LE, {7, 8}, H5P_DEFAULT);
  }
  CheckpointReader reader = saved();
  expect_is(reader, "a.h5:/filtered", "F64LE", shape, bytes_of(values_of(shape)));
  expect_is(reader, "a.h5:/plain", "F64LE", {7, 8}, bytes_of(values_of({7, 8})));
  std::string turned, filled;
  for (const double value : values_of({1000})) {
    const auto number = static_cast<int32_t>(value);
    for (int byte = 3; byte >= 0; --byte) turned += static_cast<char>(number >> 8 * byte);
  }
  for (int i = 0; i < 1000; ++i) filled += "\xfb\xff";
  expect_is(reader, "a.h5:/turned", "I32BE", {1000}, turned);
  expect_is(reader, "a.h5:/sparse", "I16LE", {40, 25}, filled);
}

TEST_F(EncodedArrays, OfHdf5AreBoxesOfAWholeWhereSidecarsSaySo) {
  for (const uint64_t rank : {0, 1, 2}) {
    const std::string path = fmt::format("state.{}.h5", rank);
    write_dataset(new_hdf5_file(files + "/" + path), "heat", H5T_IEEE_F64LE, {2, 100}, filtering({1, 30}));
    write(path + ".varve-layout",
          fmt::format(R"({{"variables": [{{"name": "heat", "global_shape": [6, 100], "global_offset": [{}, 0]}}]}})",
                      2 * rank));
  }
  CheckpointReader reader = saved();
  const std::string third = bytes_of(values_of({2, 100}));
  expect_is(reader, "heat", "F64LE", {6, 100}, third + third + third);
}

TEST_F(EncodedArrays, OfDamagedHdf5FilesAreErrorsThatNameThem) {
  {
    const Id file = new_hdf5_file(files + "/a.h5");
    write_dataset(file, "first", H5T_IEEE_F64LE, {100, 100}, filtering({50, 100}));
    write_dataset(file, "second", H5T_IEEE_F64LE, {100, 100}, filtering({50, 100}));
    const Id space = zoo::simple_space({3}), text(H5Tcopy(H5T_C_S1), H5Tclose);
    h5(H5Tset_size(text, H5T_VARIABLE), "let a text be of any length");
    const char* const words[] = {"a", "bc", "def"};
    const Id texts(H5Dcreate2(file, "texts", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
    h5(H5Dwrite(texts, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, words), "write texts");
  }
  // The checksum of what is in the middle of the second one's chunks is another one then.
  std::string contents(as_text(read_file(posix_file_system(), files + "/a.h5", 1_GiB).value()));
  const size_t last_chunk = contents.rfind("\x78\x9c");
  ASSERT_NE(last_chunk, std::string::npos);
  contents[last_chunk + 500] ^= 1;
  write("a.h5", contents);
  CheckpointReader reader = saved();
  expect_is(reader, "a.h5:/first", "F64LE", {100, 100}, bytes_of(values_of({100, 100})));
  expect_fails(reader, "a.h5:/second", StatusCode::corrupt, "HDF5 library cannot read");
  expect_fails(reader, "a.h5:/texts", StatusCode::unsupported, "variable length");
  expect_is(reader, "a.h5:/first", "F64LE", {100, 100}, bytes_of(values_of({100, 100})));
}
#endif

std::string deflated_npz(const std::string& npy, const std::string& name = "a.npy") {
  return zoo::zip_file({{name, deflated(npy), 8, npy.size(), gzip_crc32(as_bytes(npy))}});
}

TEST_F(EncodedArrays, OfNumpyAreReadWholeAndInBoxes) {
  const Shape shape{40, 30, 20}, turned{20, 30, 40};
  const std::string bytes = bytes_of(values_of(shape));
  const std::vector<zoo::ZipEntry> members = [&] {
    std::vector<zoo::ZipEntry> made;
    const auto add = [&](const char* name, const std::string& npy) {
      made.push_back({name, deflated(npy), 8, npy.size(), gzip_crc32(as_bytes(npy))});
    };
    add("plain.npy", zoo::npy_file("<f8", "(40, 30, 20)", bytes));
    add("turned.npy", zoo::npy_file("<f8", "(40, 30, 20)", bytes, /*fortran_order=*/true));
    add("big.npy", zoo::npy_file(">i2", "(1000,)", bytes.substr(0, 2000), false, 2));
    add("pairs.npy", zoo::npy_file("<c16", "(25,)", bytes.substr(0, 400)));
    add("scalar.npy", zoo::npy_file("<f8", "()", bytes.substr(8, 8)));
    add("nothing.npy", zoo::npy_file("<f8", "(0, 3)", ""));
    made.push_back({"stored.npy", zoo::npy_file("<f8", "(10,)", bytes.substr(0, 80))});
    made.push_back({"packed.npy", "?????", 12, 700});
    return made;
  }();
  for (const bool large : {false, true}) {
    write("a.npz", zoo::zip_file(members, {.large = large}));
    CheckpointReader reader = saved();
    expect_is(reader, "a.npz:/plain", "F64LE", shape, bytes);
    expect_is(reader, "a.npz:/turned", "F64LE", turned, bytes);
    expect_is(reader, "a.npz:/big", "I16BE", {1000}, bytes.substr(0, 2000));
    expect_is(reader, "a.npz:/pairs", "F64LE", {25, 2}, bytes.substr(0, 400));
    expect_is(reader, "a.npz:/scalar", "F64LE", {}, bytes.substr(8, 8));
    expect_is(reader, "a.npz:/stored", "F64LE", {10}, bytes.substr(0, 80));
    EXPECT_EQ(reader.variable("a.npz:/nothing").value()->cells, (Shape{0, 3}));
    EXPECT_TRUE(reader.values<double>("a.npz:/nothing").ok());
    expect_fails(reader, "a.npz:/packed", StatusCode::unsupported, "in a way that is not known");
  }
}

TEST_F(EncodedArrays, OfNumpyThatSayMoreThanTheyHaveAreRefused) {
  const std::string npy = zoo::npy_file("<f8", "(1000,)", bytes_of(values_of({1000})));
  const std::string head = npy.substr(0, npy.size() - 8000);
  const std::string stream = deflated(npy);
  const auto with_shape = [&](const std::string& shape) {
    const size_t at = npy.find("(1000,)");
    return npy.substr(0, at) + shape + npy.substr(at + shape.size());
  };
  const uint64_t much = uint64_t{1} << 40;
  write("a.npz",
        zoo::zip_file(
            {{"cut.npy", stream.substr(0, stream.size() / 2), 8, npy.size()},
             {"short.npy", deflated(head + "few"), 8, npy.size()},
             {"none.npy", std::string("\xff\xff\xff\xff"), 8, npy.size()},
             {"less.npy", stream, 8, npy.size() - 1},
             {"more.npy", deflated(with_shape("(9999,)")), 8, npy.size()},
             {"huge.npy",
              deflated(npy.substr(0, npy.find("(1000,)")) + "(9999999999,), }\n" + npy.substr(npy.find("\n") + 1)), 8,
              much},
             {"bomb.npy", deflated(npy + std::string(300'000'000, '\0')), 8, npy.size(), gzip_crc32(as_bytes(npy))}}));
  test::clear_peak();
  const uint64_t before = test::peak_memory_bytes();
  CheckpointReader reader = saved();
  expect_fails(reader, "a.npz:/cut", StatusCode::corrupt, "ends before");
  expect_fails(reader, "a.npz:/short", StatusCode::corrupt, "ends before");
  for (const char* name : {"none", "less", "more", "huge"})
    expect_fails(reader, fmt::format("a.npz:/{}", name), StatusCode::corrupt, "");
  EXPECT_EQ(reader.values<double>("a.npz:/bomb").value(), values_of({1000})) << "what its header says, and no more";
  EXPECT_LT(test::peak_memory_bytes(), before + 100_MiB);
}

TEST_F(EncodedArrays, OfNumpyAreLookedAtWhenTheirFileIsAskedFor) {
  for (int i = 0; i < 3; ++i)
    write(fmt::format("{}.npz", i),
          deflated_npz(zoo::npy_file("<f8", "(60,)", bytes_of(std::vector<double>(60, i + 0.5)))));
  CheckpointReader reader = saved(), listing = open();
  const auto type_of = [&](const char* name) { return reader.variable(name).value()->type.name(); };
  ASSERT_EQ(listing.variables().size(), 3U);
  for (const CheckpointVariable& variable : listing.variables()) EXPECT_EQ(variable.type.name(), "F64LE");
  EXPECT_EQ(type_of("1.npz:/a"), "F64LE");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place.store + "/arenas")) {
    if (entry.is_regular_file()) test::write_file(entry.path().string(), ByteVector(entry.file_size()));
  }
  EXPECT_EQ(type_of("1.npz:/a"), "F64LE");
  EXPECT_EQ(type_of("2.npz:/a"), "BYTES") << "nobody had looked at it yet";
}

TEST_F(EncodedArrays, OfNumpyAreCheckedBySumsWhereTheyAreReadToTheirEnd) {
  const std::string npy = zoo::npy_file("<f8", "(20, 50)", bytes_of(values_of({20, 50})));
  const uint32_t sum = gzip_crc32(as_bytes(npy)), sum_with_more = gzip_crc32(as_bytes(npy + "more"));
  write("a.npz", zoo::zip_file({{"whole.npy", deflated(npy), 8, npy.size(), sum},
                                {"other.npy", deflated(npy), 8, npy.size(), sum ^ 1},
                                {"more.npy", deflated(npy + "more"), 8, npy.size() + 4, sum_with_more},
                                {"else.npy", deflated(npy + "else"), 8, npy.size() + 4, sum_with_more}}));
  CheckpointReader reader = saved();
  for (const char* name : {"a.npz:/whole", "a.npz:/more"})
    expect_is(reader, name, "F64LE", {20, 50}, bytes_of(values_of({20, 50})));
  for (const char* name : {"a.npz:/other", "a.npz:/else"}) {
    expect_fails(reader, name, StatusCode::corrupt, "another sum");
    std::string cells;
    EXPECT_EQ(read(reader, name, {{19, 49}, {1, 1}}, cells).code(), StatusCode::corrupt) << "the last cell";
    EXPECT_TRUE(read(reader, name, {{0, 0}, {20, 49}}, cells).ok()) << "all is not known before it was read";
  }
}

TEST_F(EncodedArrays, OfNumpyThatAreDamagedAreErrorsOrWithinTheirBounds) {
  std::mt19937 random(2);
  const std::string npy = zoo::npy_file("<f8", "(300,)", bytes_of(values_of({300})));
  const std::string whole = deflated_npz(npy);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = whole;
    for (size_t flips = 1 + random() % 3; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    write(fmt::format("{}.npz", i), damaged);
  }
  CheckpointReader reader = saved();
  for (const CheckpointVariable& variable : reader.variables()) {
    if (variable.bytes > 100_MiB) continue;
    std::string cells;
    const Status status = read(reader, variable.name, cells);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::corrupt || status.code() == StatusCode::unsupported ||
                status.code() == StatusCode::resource_limit)
        << status.to_string();
  }
}

TEST_F(EncodedArrays, SayWhereTheStoreItselfIsDamaged) {
  const std::string npy = zoo::npy_file("<f8", "(60000,)", bytes_of(values_of({60'000})));
  write("a.npz", deflated_npz(npy));
  const CodecPolicy plain = CodecPolicy::parse("store").value();
  CheckpointReader reader = saved(plain);
  const std::string part = deflated(npy).substr(50'000, 100);
  size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place.store + "/arenas")) {
    if (!entry.is_regular_file()) continue;
    ByteVector arena = read_file(posix_file_system(), entry.path().string(), 1_GiB).value();
    const auto at = std::search(arena.begin(), arena.end(), as_bytes(part).begin(), as_bytes(part).end());
    if (at == arena.end()) continue;
    ++found;
    *at ^= std::byte{1};
    test::write_file(entry.path().string(), arena);
  }
  ASSERT_EQ(found, 1u);
  CheckpointReader again = open();
  std::string cells;
  const Status status = read(again, "a.npz:/a", cells);
  EXPECT_EQ(status.code(), StatusCode::corrupt) << status.to_string();
  EXPECT_EQ(status.remedy(), Remedy::verify_and_replace_arena) << status.to_string();
}

/// A chunk's bytes, as a program compresses them.
std::string compressed_by(const std::string& codec, const std::string& content) {
  const auto encoded = [&](std::string_view name) {
    ByteVector params, out;
    const PackShape shape{};
    EXPECT_TRUE(find_codec(name).value()->encode(as_bytes(content), shape, 0, params, out).ok());
    return std::string(as_text(out));
  };
  const auto number = [](uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  if (codec == "zlib") {
    uint32_t low = 1, high = 0;
    for (const char byte : content) {
      low = (low + static_cast<unsigned char>(byte)) % 65'521;
      high = (high + low) % 65'521;
    }
    std::string sum = number(high << 16 | low);
    std::reverse(sum.begin(), sum.end());
    return "\x78\x9c" + deflated(content) + sum;
  }
  if (codec == "gzip") return encoded("gzip");
  if (codec == "zstd") return encoded("zstd");
  if (codec == "lz4") return number(static_cast<uint32_t>(content.size())) + encoded("lz4");
  if (codec == "crc32c") return content + number(crc32c(as_bytes(content)));
  if (codec == "shuffle") {
    ByteVector planes(content.size());
    kernels::shuffle(8, as_bytes(content), planes);
    return std::string(as_text(planes));
  }
  EXPECT_EQ(codec, "blosc");
  // One block, of one stream that is not split.
  const std::string stream = encoded("zstd");
  const auto bytes = static_cast<uint32_t>(content.size());
  return std::string("\x02\x01\x90\x08", 4) + number(bytes) + number(bytes) +
         number(static_cast<uint32_t>(24 + stream.size())) + number(20) + number(static_cast<uint32_t>(stream.size())) +
         stream;
}

class EncodedZarr : public EncodedArrays {
 protected:
  static constexpr uint64_t kRows = 50, kColumns = 45, kChunkRows = 16, kChunkColumns = 20;

  static std::string chunk_cells(uint64_t row, uint64_t column) {
    const Shape padded{64, 60};
    return box_of(bytes_of(values_of(padded)), padded,
                  {{row * kChunkRows, column * kChunkColumns}, {kChunkRows, kChunkColumns}});
  }
  /// Of all chunks but the one in the middle.
  void write_array(const std::string& name, int version, const std::vector<std::string>& codecs) const {
    std::string list;
    for (const std::string& codec : codecs) {
      if (!list.empty()) list += ",";
      list += version == 2 ? R"({"id":")" + codec + R"(","elementsize":8})"
                           : R"({"name":")" + codec + R"(","configuration":{"elementsize":8}})";
    }
    if (version == 2) {
      const size_t comma = list.rfind(R"(,{"id")");
      const std::string filters = comma == std::string::npos ? "null" : "[" + list.substr(0, comma) + "]";
      write(name + "/.zarray",
            R"({"zarr_format":2,"shape":[50,45],"chunks":[16,20],"dtype":"<f8","fill_value":-7.5,"order":"C",)"
            R"("compressor":)" +
                (comma == std::string::npos ? list : list.substr(comma + 1)) + R"(,"filters":)" + filters + "}");
    } else {
      write(name + "/zarr.json",
            R"({"zarr_format":3,"node_type":"array","shape":[50,45],"data_type":"float64","chunk_grid":)"
            R"({"name":"regular","configuration":{"chunk_shape":[16,20]}},"chunk_key_encoding":{"name":"default"},)"
            R"("fill_value":-7.5,"codecs":[{"name":"bytes","configuration":{"endian":"little"}},)" +
                list + "]}");
    }
    for (uint64_t row = 0; row < 4; ++row) {
      for (uint64_t column = 0; column < 3; ++column) {
        if (row == 1 && column == 1) continue;
        std::string bytes = chunk_cells(row, column);
        for (const std::string& codec : codecs) bytes = compressed_by(codec, bytes);
        write(chunk_path(name, version, row, column), bytes);
      }
    }
  }
  static std::string chunk_path(const std::string& name, int version, uint64_t row, uint64_t column) {
    return fmt::format("{}/{}", name,
                       version == 2 ? fmt::format("{}.{}", row, column) : fmt::format("c/{}/{}", row, column));
  }
  static std::string wanted() {
    const Shape padded{64, 60};
    std::vector<double> values = values_of(padded);
    for (uint64_t row = kChunkRows; row < 2 * kChunkRows; ++row)
      std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(60 * row + kChunkColumns), kChunkColumns, -7.5);
    return box_of(bytes_of(values), padded, all_of({kRows, kColumns}));
  }
};

TEST_F(EncodedZarr, AreReadWholeAndInBoxesWhateverTheyWentThrough) {
  std::vector<std::vector<std::string>> chains = {{"zlib"},
                                                  {"gzip"},
                                                  {"zstd"},
                                                  {"blosc"},
                                                  {"shuffle", "zlib"},
                                                  {"shuffle", "blosc"},
                                                  {"gzip", "crc32c"},
                                                  {"crc32c", "zstd", "crc32c"},
                                                  {"crc32c"}};
  if (find_codec(CodecNumber::lz4).ok()) chains.push_back({"lz4"});
  for (const int version : {2, 3}) {
    for (const std::vector<std::string>& chain : chains)
      write_array(fmt::format("v{}/{}", version, fmt::join(chain, "-")), version, chain);
  }
  write("v2/.zgroup", R"({"zarr_format":2})");
  write("v3/zarr.json", R"({"zarr_format":3,"node_type":"group"})");
  CheckpointReader reader = saved();
  for (const int version : {2, 3}) {
    for (const std::vector<std::string>& chain : chains)
      expect_is(reader, fmt::format("v{}:/{}", version, fmt::join(chain, "-")), "F64LE", {kRows, kColumns}, wanted());
  }
}

TEST_F(EncodedZarr, AreShuffledByElementsAsNumcodecsTakesTheirSize) {
  const std::string content = bytes_of(values_of({25}));
  const auto decoded = [&](const std::string& said, const std::string& stored) -> Result<std::string> {
    const std::string json = R"({"zarr_format":2,"shape":[25],"chunks":[25],"dtype":"<f8","fill_value":0,"order":"C",)"
                             R"("compressor":null,"filters":[{"id":"shuffle")" +
                             said + "}]}";
    ByteVector cells(content.size());
    VARVE_ASSIGN(const ZarrArray array, parse_zarr2_array(json));
    VARVE_TRY(decode_zarr_chunk(array.codecs, as_bytes(stored), cells));
    return std::string(as_text(cells));
  };
  ByteVector planes(content.size());
  kernels::shuffle(4, as_bytes(content), planes);
  for (const char* said : {"", R"(,"elementsize":4)"})
    EXPECT_EQ(decoded(said, std::string(as_text(planes))).value(), content);
  for (const char* size : {"1", "0", "-4"})
    EXPECT_EQ(decoded(fmt::format(R"(,"elementsize":{})", size), content).value(), content) << size;
  for (const char* size : {"3", "255"})
    EXPECT_EQ(decoded(fmt::format(R"(,"elementsize":{})", size), content).status().code(), StatusCode::corrupt) << size;
  for (const char* size : {"256", "4.5", "null", R"("4")"})
    EXPECT_EQ(decoded(fmt::format(R"(,"elementsize":{})", size), content).status().code(), StatusCode::unsupported)
        << size;
}

TEST_F(EncodedZarr, HaveTheFillValueWhereThereIsNoChunkOrSayThatItIsNotKnown) {
  const auto describe = [&](const std::string& name, const char* type, const char* fill) {
    write(name + "/.zarray", fmt::format(R"({{"zarr_format":2,"shape":[6],"chunks":[4],"dtype":"{}","fill_value":{},)"
                                         R"("order":"C","compressor":{{"id":"zlib"}},"filters":null}})",
                                         type, fill));
  };
  const std::string some = "abcdefghijklmnopqrstuvwxyzABCDEF", half("\0\x3e", 2);
  const std::string pair("\0\0\x80\x3f\0\0\0\xc0", 8);
  describe("half", "<f2", "1.5");
  write("half/0", compressed_by("zlib", some.substr(0, 8)));
  describe("pairs", "<c8", "[1.0,-2.0]");
  write("pairs/0", compressed_by("zlib", some));
  describe("text", "<f4", R"("abc")");
  write("text/0", compressed_by("zlib", some.substr(0, 16)));
  CheckpointReader reader = saved();
  expect_is(reader, "/half", "F16LE", {6}, some.substr(0, 8) + half + half);
  expect_is(reader, "/pairs", "F32LE", {6, 2}, some + pair + pair);
  expect_fails(reader, "/text", StatusCode::not_found, "fill value");
  std::string cells;
  EXPECT_TRUE(read(reader, "/text", {{0}, {4}}, cells).ok());
}

TEST_F(EncodedZarr, ThatAreDamagedAreErrorsOfTheirChunks) {
  std::mt19937 random(3);
  const std::vector<std::string> codecs = {"zlib", "gzip", "zstd", "blosc"};
  size_t errors = 0;
  for (const std::string& codec : codecs) {
    const std::string whole = compressed_by(codec, chunk_cells(0, 0));
    for (int i = 0; i < 40; ++i) {
      std::string damaged = whole;
      if (i % 4 == 0) damaged.resize(1 + random() % (whole.size() - 1));
      if (i % 4 == 1) damaged += "more";
      for (size_t flips = i % 4 >= 2 ? 1 + random() % 3 : 0; flips > 0; --flips)
        damaged[random() % std::min<size_t>(damaged.size(), i % 4 == 2 ? 24 : SIZE_MAX)] ^=
            static_cast<char>(1 << random() % 8);
      ByteVector cells(chunk_cells(0, 0).size());
      const Status status = decode_zarr_chunk({{codec}}, as_bytes(damaged), cells);
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::corrupt || status.code() == StatusCode::unsupported);
      errors += status.ok() ? 0 : 1;
      // Nor do they become more, or less, than the array says.
      for (const size_t bytes : {cells.size() - 8, cells.size() + 8}) {
        ByteVector other(bytes);
        EXPECT_FALSE(decode_zarr_chunk({{codec}}, as_bytes(whole), other).ok());
      }
    }
  }
  EXPECT_GT(errors, 100u);
  write_array("a", 2, {"zlib"});
  std::string chunk = compressed_by("zlib", chunk_cells(2, 0));
  chunk[chunk.size() / 2] ^= 1;
  write("a/2.0", chunk);
  CheckpointReader reader = saved();
  expect_fails(reader, "/a", StatusCode::corrupt, "'a/2.0'");
  std::string cells;
  EXPECT_TRUE(read(reader, "/a", {{0, 0}, {32, 45}}, cells).ok()) << "where that chunk is not needed";
}

TEST_F(EncodedZarr, OfChunksThatSayMoreThanTheyHaveTakeNoMemory) {
  const std::map<std::string, std::string> shapes = {{"huge", "[100000000,100000000]"}, {"large", "[10000,20000]"}};
  const std::vector<std::string> codecs = {"zlib", "gzip", "zstd", "blosc", "shuffle", "crc32c"};
  for (const std::string& codec : codecs) {
    for (const auto& [name, shape] : shapes) {
      const std::string array = fmt::format("out/{}-{}", name, codec);
      write(array + "/.zarray", fmt::format(R"({{"zarr_format":2,"shape":{0},"chunks":{0},"dtype":"<f8","order":"C",)"
                                            R"("compressor":{{"id":"{1}"}},"filters":null,"fill_value":0}})",
                                            shape, codec));
      write(array + "/0.0", compressed_by(codec, "a few bytes, which are no chunk."));
    }
  }
  write("out/.zgroup", R"({"zarr_format":2})");
  CheckpointReader reader = saved();
  test::clear_peak();
  const uint64_t before = test::peak_memory_bytes();
  for (const std::string& codec : codecs) {
    for (const auto& [name, shape] : shapes) {
      std::string cell;
      const Status status = read(reader, fmt::format("out:/{}-{}", name, codec), {{5, 5}, {1, 1}}, cell);
      EXPECT_EQ(status.code(), name == "huge" ? StatusCode::resource_limit : StatusCode::corrupt) << status.to_string();
    }
  }
  EXPECT_LT(test::peak_memory_bytes(), before + 100_MiB);
}

}  // namespace
}  // namespace varve
