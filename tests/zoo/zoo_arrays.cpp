#include <algorithm>

#include "zoo/array_files.h"
#include "zoo/pattern.h"
#include "zoo/zoo.h"

namespace varve::zoo {
namespace {

namespace fs = std::filesystem;

std::string little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

std::string numbers(size_t bytes, uint32_t seed) {
  const std::vector<char> made = pattern(bytes, seed);
  return {made.begin(), made.end()};
}

void write_text_file(const fs::path& path, const std::string& contents) {
  write_file(path, {contents.begin(), contents.end()});
}

uint64_t bytes_of(const ZipEntry& entry) { return entry.bytes > 0 ? entry.bytes : entry.contents.size(); }

/// Sizes that do not fit into 32 bits: all of them, to have some.
std::string large_sizes(const ZipEntry& entry, uint64_t offset) {
  return little(1, 2) + little(24, 2) + little(bytes_of(entry), 8) + little(entry.contents.size(), 8) +
         little(offset, 8);
}

}  // namespace

std::string npy_file(std::string_view type, std::string_view shape, std::string_view elements, bool fortran_order,
                     int version) {
  const std::string quote = type.starts_with('[') ? "" : "'";
  std::string header = "{'descr': " + quote + std::string(type) + quote +
                       ", 'fortran_order': " + (fortran_order ? "True" : "False") + ", 'shape': " + std::string(shape) +
                       ", }";
  const size_t length_bytes = version == 1 ? 2 : 4;
  while ((8 + length_bytes + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} + little(header.size(), length_bytes) + header +
         std::string(elements);
}

std::string zip_file(const std::vector<ZipEntry>& entries, const ZipStyle& style) {
  std::string file, directory;
  for (const ZipEntry& entry : entries) {
    const uint64_t offset = file.size(), bytes = entry.contents.size();
    std::string padding;
    constexpr size_t head_bytes = 30, field_bytes = 4;
    while ((offset + head_bytes + entry.name.size() + field_bytes + padding.size()) % style.alignment != 0)
      padding += 'Z';
    const std::string extra = style.alignment > 1 ? "FB" + little(padding.size(), 2) + padding : "";
    const uint64_t flags = style.sizes_behind ? 8 : 0;
    const auto sizes_in_front = [&](uint64_t size) { return style.sizes_behind ? 0 : size; };
    const std::string common = little(20, 2) + little(flags, 2) + little(static_cast<uint64_t>(entry.method), 2) +
                               little(0, 4) + little(entry.crc32, 4);
    file += "PK\x03\x04" + common + little(sizes_in_front(bytes), 4) + little(sizes_in_front(bytes_of(entry)), 4) +
            little(entry.name.size(), 2) + little(extra.size(), 2) + entry.name + extra + entry.contents;
    if (style.sizes_behind)
      file += "PK\x07\x08" + little(entry.crc32, 4) + little(bytes, 4) + little(bytes_of(entry), 4);
    const std::string sizes = style.large ? large_sizes(entry, offset) : "";
    const auto said = [&](uint64_t size) { return style.large ? UINT32_MAX : size; };
    directory += "PK\x01\x02" + little(20, 2) + common + little(said(bytes), 4) + little(said(bytes_of(entry)), 4) +
                 little(entry.name.size(), 2) + little(sizes.size(), 2) + little(0, 2) + little(0, 2) + little(0, 2) +
                 little(0, 4) + little(style.large ? UINT32_MAX : offset, 4) + entry.name + sizes;
  }
  const uint64_t at = file.size();
  file += directory;
  if (style.large) {
    const uint64_t end = file.size();
    file += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 4) + little(0, 4) +
            little(entries.size(), 8) + little(entries.size(), 8) + little(directory.size(), 8) + little(at, 8);
    file += "PK\x06\x07" + little(0, 4) + little(end, 8) + little(1, 4);
  }
  const uint64_t count = style.large ? 0xffff : entries.size();
  return file + "PK\x05\x06" + little(0, 4) + little(count, 2) + little(count, 2) +
         little(style.large ? UINT32_MAX : directory.size(), 4) + little(style.large ? UINT32_MAX : at, 4) +
         little(style.comment.size(), 2) + style.comment;
}

PickleWriter& PickleWriter::raw(std::string_view opcodes) {
  text_ += opcodes;
  return *this;
}
PickleWriter& PickleWriter::global(std::string_view module, std::string_view name) {
  return raw("c").raw(module).raw("\n").raw(name).raw("\n");
}
PickleWriter& PickleWriter::text(std::string_view value) { return raw("X").raw(little(value.size(), 4)).raw(value); }
PickleWriter& PickleWriter::number(uint32_t value) {
  if (value < 0x100) return raw("K").raw(little(value, 1));
  return value < 0x10000 ? raw("M").raw(little(value, 2)) : raw("J").raw(little(value, 4));
}
PickleWriter& PickleWriter::numbers(const std::vector<uint32_t>& values) {
  raw("(");
  for (const uint32_t value : values) number(value);
  return raw("t");
}
PickleWriter& PickleWriter::tensor(std::string_view storage_class, std::string_view key, uint32_t elements,
                                   uint32_t offset, const std::vector<uint32_t>& shape,
                                   const std::vector<uint32_t>& strides) {
  global("torch._utils", "_rebuild_tensor_v2").raw("((").text("storage").global("torch", storage_class).text(key);
  text("cpu").number(elements).raw("tQ").number(offset).numbers(shape).numbers(strides).raw("\x89");
  return global("collections", "OrderedDict").raw(")RtR");
}

std::string torch_pickle() {
  PickleWriter pickle;
  pickle.raw("}(").text("model").global("collections", "OrderedDict").raw(")R(");
  pickle.text("layer1.weight").tensor("FloatStorage", "0", 200, 0, {10, 20}, {20, 1});
  pickle.text("layer1.bias").tensor("FloatStorage", "0", 200, 20, {20}, {1}).raw("u");
  pickle.text("optimizer").raw("}(").text("state").raw("}").number(0).raw("}");
  pickle.text("exp_avg").tensor("DoubleStorage", "1", 100, 0, {10, 10}, {1, 10}).raw("ss");
  pickle.raw("u").text("half").tensor("BFloat16Storage", "2", 64, 0, {64}, {1}).text("step").number(7).raw("u");
  return pickle.end();
}

std::string record_length(int32_t bytes, bool big_endian) {
  std::string text = little(static_cast<uint32_t>(bytes), 4);
  if (big_endian) std::reverse(text.begin(), text.end());
  return text;
}

std::string fortran_record(std::string_view contents, bool big_endian) {
  const std::string length = record_length(static_cast<int32_t>(contents.size()), big_endian);
  return length + std::string(contents) + length;
}

std::string safetensors_file(std::string_view header, std::string_view data) {
  return little(header.size(), 8) + std::string(header) + std::string(data);
}

void make_npy_files(const fs::path& directory) {
  fs::create_directories(directory);
  write_text_file(directory / "plain.npy", npy_file("<f8", "(3, 40)", numbers(960, 1)));
  write_text_file(directory / "columns.npy", npy_file(">i4", "(3, 40)", numbers(480, 2), true, 2));
  write_text_file(directory / "complex.npy", npy_file("<c16", "(50,)", numbers(800, 3), false, 3));
  write_text_file(directory / "records.npy", npy_file("[('x', '<f4', (3,)), ('id', '<i2')]", "(20,)", numbers(280, 4)));
  write_text_file(directory / "objects.npy", npy_file("|O", "(7,)", numbers(333, 5)));
  write_text_file(directory / "scalar.npy", npy_file("|b1", "()", "\x01"));
  write_text_file(directory / "two.npy",
                  npy_file("<u2", "(100,)", numbers(200, 6)) + npy_file("<f4", "(100,)", numbers(400, 7)));
}

void make_zip_files(const fs::path& directory) {
  fs::create_directories(directory);
  const std::vector<ZipEntry> arrays = {{"density.npy", npy_file("<f8", "(10, 20)", numbers(1600, 1))},
                                        {"packed.npy", numbers(700, 2), 8},
                                        {"ids.npy", npy_file(">u4", "(100,)", numbers(400, 3))},
                                        {"notes/readme.txt", numbers(300, 4)}};
  write_text_file(directory / "arrays.npz", zip_file(arrays));
  write_text_file(directory / "large.npz", zip_file(arrays, {.large = true}));
  write_text_file(directory / "streamed.npz",
                  zip_file(arrays, {.sizes_behind = true, .comment = "a comment, PK\x05\x06"}));
  write_text_file(directory / "state.pt", zip_file({{"archive/data.pkl", torch_pickle()},
                                                    {"archive/data/0", numbers(800, 5)},
                                                    {"archive/data/1", numbers(800, 6)},
                                                    {"archive/data/2", numbers(128, 7)},
                                                    {"archive/version", "3\n"}},
                                                   {.large = true, .alignment = 64}));
  write_text_file(directory / "text.zip", zip_file({{"a.txt", numbers(400, 8), 8}, {"b/c.txt", numbers(50, 9)}}));
}

std::string torch_stream(const std::string& pickle, const std::vector<TorchStorageData>& storages, bool little_endian) {
  std::string file = PickleWriter().raw("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19").end();
  file += PickleWriter().number(1001).end();
  PickleWriter machine;
  machine.raw("}(").text("protocol_version").number(1001).text("little_endian").raw(little_endian ? "\x88" : "\x89");
  file += machine.raw("u").end() + pickle;
  PickleWriter keys;
  keys.raw("](");
  for (const TorchStorageData& storage : storages) keys.text(storage.key);
  file += keys.raw("e").end();
  for (const TorchStorageData& storage : storages) {
    for (int shift = 0; shift < 64; shift += 8) file += static_cast<char>(storage.elements >> shift & 0xff);
    file += storage.data;
  }
  return file;
}

void make_torch_stream_files(const fs::path& directory) {
  fs::create_directories(directory);
  write_text_file(directory / "state.pt",
                  torch_stream(torch_pickle(),
                               {{"2", 64, numbers(128, 7)}, {"0", 200, numbers(800, 5)}, {"1", 100, numbers(800, 6)}}));
}

void make_safetensors_files(const fs::path& directory) {
  fs::create_directories(directory);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[4,50],"data_offsets":[0,800]},)"
      R"("layers.0.bias":{"dtype":"BF16","shape":[64],"data_offsets":[800,928]},)"
      R"("wave":{"dtype":"C64","shape":[5,5],"data_offsets":[928,1128]},)"
      R"("odd":{"dtype":"F4","shape":[6],"data_offsets":[1128,1131]},)"
      R"("nothing":{"dtype":"I64","shape":[0,3],"data_offsets":[1131,1131]}}   )";
  write_text_file(directory / "model.safetensors", safetensors_file(header, numbers(1131, 1)));
  write_text_file(directory / "empty.safetensors", safetensors_file("{}", ""));
}

void make_fortran_files(const fs::path& directory) {
  fs::create_directories(directory);
  for (const bool big_endian : {false, true}) {
    std::string fields = fortran_record(numbers(12, 1), big_endian) + fortran_record(numbers(1600, 2), big_endian) +
                         fortran_record("", big_endian) + fortran_record(numbers(1600, 3), big_endian);
    std::string rows = fortran_record(numbers(12, 4), big_endian);
    for (uint32_t row = 0; row < 50; ++row) rows += fortran_record(numbers(80, row), big_endian);
    const std::string ending = big_endian ? "_big" : "_little";
    write_text_file(directory / ("fields" + ending), fields);
    write_text_file(directory / ("rows" + ending), rows);
  }
  write_text_file(directory / "parts", fortran_record("head") + record_length(-300) + numbers(300, 5) +
                                           record_length(300) + record_length(-300) + numbers(300, 6) +
                                           record_length(-300) + record_length(20) + numbers(20, 7) +
                                           record_length(-20) + fortran_record("tail"));
}

}  // namespace varve::zoo
