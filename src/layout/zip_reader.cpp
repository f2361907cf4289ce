// Zip archives whose members are arrays: npz, which numpy makes, and what torch.save() makes.
#include <algorithm>
#include <map>
#include <optional>

#include "layout/array_type.h"
#include "layout/layout_reader.h"
#include "layout/npy_array.h"
#include "layout/torch_pickle.h"
#include "layout/zip_archive.h"

namespace varve {
namespace {

constexpr std::string_view kArrayEnding = ".npy";
constexpr std::string_view kTorchPickle = "/data.pkl";

bool is_array(const ZipMember& member) { return member.name.ends_with(kArrayEnding); }

/// A name that a variable may have; members of hostile archives have others.
bool is_usable_name(const std::string& name) { return !name.empty() && name.find('\0') == std::string::npos; }

/// The pickle that says what the other members are, in the archive's only folder. Nullptr: torch has not made it.
const ZipMember* find_torch_pickle(const std::vector<ZipMember>& members) {
  for (const ZipMember& member : members) {
    const size_t folder_bytes = member.name.find('/');
    if (folder_bytes != std::string::npos && folder_bytes > 0 && member.is_plain &&
        std::string_view(member.name).substr(folder_bytes) == kTorchPickle)
      return &member;
  }
  return nullptr;
}

bool has_arrays(const std::vector<ZipMember>& members) {
  return std::any_of(members.begin(), members.end(), is_array) || find_torch_pickle(members) != nullptr;
}

/// What numpy.savez() makes. `/name` is the array NAME.npy; other members keep their whole names.
Result<Layout> read_npz(FileWindow& file, const std::vector<ZipMember>& members) {
  Layout layout{.format = std::string(kNpzFormat), .variables = {}};
  for (const ZipMember& member : members) {
    if (!is_usable_name(member.name) || member.stored.bytes == 0) continue;
    std::string name = "/" + member.name;
    if (is_array(member)) name.resize(name.size() - kArrayEnding.size());
    if (name.size() < 2) continue;
    if (is_array(member) && member.is_plain) {
      if (Result<Variable> array = read_npy_array(file, member.stored, name); array.ok()) {
        layout.variables.push_back(std::move(*array));
        continue;
      }
    }
    layout.variables.push_back(bytes_variable(std::move(name), member.stored, !member.is_plain));
  }
  return layout;
}

/// What torch.save() makes: storages, the bytes of tensors, in numbered members.
class TorchArchive {
 public:
  TorchArchive(FileWindow& file, const std::vector<ZipMember>& members, const ZipMember& pickle)
      : file_(file),
        members_(members),
        pickle_(pickle),
        folder_(pickle.name.substr(0, pickle.name.size() - kTorchPickle.size() + 1)) {}

  Result<Layout> read() {
    VARVE_ASSIGN(const auto storages, read_pickle());
    const std::string data_folder = folder_ + "data/";
    Layout layout{.format = std::string(kTorchFormat), .variables = {}};
    for (const ZipMember& member : members_) {
      if (!member.name.starts_with(data_folder) || !is_usable_name(member.name) || member.stored.bytes == 0) continue;
      const std::string key = member.name.substr(data_folder.size());
      const auto storage = storages.find(key);
      std::string name = "/data/" + key;
      if (storage != storages.end() && !storage->second.name.empty()) name = storage->second.name;
      if (!member.is_plain || storage == storages.end()) {
        layout.variables.push_back(bytes_variable(std::move(name), member.stored, !member.is_plain));
      } else {
        layout.variables.push_back(storage_variable(std::move(name), storage->second, member.stored));
      }
    }
    return layout;
  }

 private:
  Result<std::map<std::string, TorchStorage>> read_pickle() {
    if (pickle_.stored.bytes > kPickleBytesMax) return std::map<std::string, TorchStorage>();
    VARVE_ASSIGN(const ByteOrder order, read_order());
    VARVE_ASSIGN(const ByteSpan pickle, file_.view(pickle_.stored.offset, pickle_.stored.bytes));
    return read_torch_pickle(pickle, order);
  }

  /// Newer archives say it.
  Result<ByteOrder> read_order() {
    constexpr std::string_view big = "big";
    for (const ZipMember& member : members_) {
      if (member.name != folder_ + "byteorder" || !member.is_plain || member.stored.bytes != big.size()) continue;
      VARVE_ASSIGN(const ByteSpan said, file_.view(member.stored.offset, big.size()));
      if (as_text(said) == big) return ByteOrder::big;
    }
    return ByteOrder::little;
  }

  FileWindow& file_;
  const std::vector<ZipMember>& members_;
  const ZipMember& pickle_;
  const std::string folder_;  ///< with a '/' at its end
};

class ZipReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "zip"; }

  /// Most zip archives are something else, and remain bytes. So the members' names count, not the magic number alone.
  bool recognises(const ReadAt& read, ByteSpan first_bytes, uint64_t file_bytes) const override {
    constexpr std::string_view magic = "PK\x03\x04";
    if (first_bytes.size() < magic.size() || as_text(first_bytes.first(magic.size())) != magic) return false;
    FileWindow file(read, file_bytes);
    const Result<std::vector<ZipMember>> members = read_zip_members(file);
    return members.ok() && has_arrays(*members);
  }
  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    FileWindow file(read, file_bytes);
    return read_zip_layout(file);
  }
};

}  // namespace

Result<Layout> read_zip_layout(FileWindow& file) {
  VARVE_ASSIGN(const std::vector<ZipMember> members, read_zip_members(file));
  if (!has_arrays(members)) return Status::unsupported("a zip archive without arrays");
  if (const ZipMember* const pickle = find_torch_pickle(members)) return TorchArchive(file, members, *pickle).read();
  return read_npz(file, members);
}

std::unique_ptr<LayoutReader> make_zip_reader() { return std::make_unique<ZipReader>(); }

}  // namespace varve
