#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace varve::zoo {

// Files of libraries of arrays, byte by byte as these write them.

/// As numpy.save() writes an array of these bytes. `shape` as in Python: "(3, 4)".
std::string npy_file(std::string_view type, std::string_view shape, std::string_view elements,
                     bool fortran_order = false, int version = 1);

struct ZipEntry {
  std::string name;
  std::string contents;         ///< as they are to lie in the archive
  int method = 0;               ///< 0: stored; 8: deflated
  uint64_t bytes = 0;           ///< before they were deflated; 0: as many
  uint32_t crc32 = 0x12345678;  ///< of that
};
struct ZipStyle {
  bool large = false;         ///< sizes in 64 bits (Zip64)
  bool sizes_behind = false;  ///< they lie behind a member, not in front of it
  size_t alignment = 1;       ///< of what members contain
  std::string comment{};
};
std::string zip_file(const std::vector<ZipEntry>& entries, const ZipStyle& style = {});

/// The opcodes of a pickle, of protocol 2.
class PickleWriter {
 public:
  PickleWriter() : text_("\x80\x02") {}
  PickleWriter& raw(std::string_view opcodes);
  PickleWriter& global(std::string_view module, std::string_view name);
  PickleWriter& text(std::string_view value);
  PickleWriter& number(uint32_t value);
  PickleWriter& numbers(const std::vector<uint32_t>& values);  ///< as a tuple
  /// As torch.save() writes a tensor that lies in a storage ("FloatStorage") of `elements`.
  PickleWriter& tensor(std::string_view storage_class, std::string_view key, uint32_t elements, uint32_t offset,
                       const std::vector<uint32_t>& shape, const std::vector<uint32_t>& strides);
  std::string end() const { return text_ + "."; }

 private:
  std::string text_;
};

/// A pickle of torch.save(): a model and its optimizer's state, whose tensors lie in the storages 0, 1 and 2, of 800,
/// 800 and 128 bytes.
std::string torch_pickle();

/// Pickles and the data of storages, by their keys, as torch.save() wrote them before it made zip archives.
struct TorchStorageData {
  std::string key;
  uint64_t elements = 0;
  std::string data;
};
std::string torch_stream(const std::string& pickle, const std::vector<TorchStorageData>& storages,
                         bool little_endian = true);

/// What the length of a record looks like.
std::string record_length(int32_t bytes, bool big_endian = false);
/// One record of a Fortran program.
std::string fortran_record(std::string_view contents, bool big_endian = false);

/// The header's length, the header, the tensors' bytes.
std::string safetensors_file(std::string_view header, std::string_view data);

}  // namespace varve::zoo
