#include "cli/array_file.h"

#include <fmt/format.h>

#include <utility>

#include "core/file_system.h"

namespace varve::cli {

namespace {
constexpr std::string_view kNpyMagic("\x93NUMPY\x01\x00", 8);
/// Where an array begins is a multiple of it.
constexpr size_t kNpyAlignment = 64;

/// As NumPy writes types; what is no number of its sizes is bytes.
std::string npy_type(const ElementType& type) {
  const char order = type.bytes == 1 ? '|' : type.order == ByteOrder::big ? '>' : '<';
  const bool integer = type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
  switch (type.kind) {
    case ElementKind::signed_integer:
      if (integer) return fmt::format("{}i{}", order, type.bytes);
      break;
    case ElementKind::unsigned_integer:
      if (integer) return fmt::format("{}u{}", order, type.bytes);
      break;
    case ElementKind::floating:
      if (integer && type.bytes > 1) return fmt::format("{}f{}", order, type.bytes);
      break;
    case ElementKind::text: return fmt::format("|S{}", type.bytes);
    case ElementKind::opaque: break;
  }
  return type.bytes == 1 ? "|u1" : fmt::format("|V{}", type.bytes);
}

class NpyFile final : public ArrayFile {
 public:
  explicit NpyFile(std::unique_ptr<File> file) : file_(std::move(file)) {}

  Status begin(const std::vector<std::string>&, const ElementType& type, const std::vector<uint64_t>& shape) override {
    if (end_ > 0) return Status::invalid_argument("a .npy file holds one array");
    return append(as_bytes(npy_header(type, shape)));
  }
  Status write(const CellBox&, ByteSpan bytes) override { return append(bytes); }
  Status finish() override { return file_->sync(); }

 private:
  Status append(ByteSpan bytes) {
    VARVE_TRY(file_->write_at(end_, bytes));
    end_ += bytes.size();
    return {};
  }

  const std::unique_ptr<File> file_;
  uint64_t end_ = 0;
};
}  // namespace

std::string npy_header(const ElementType& type, const std::vector<uint64_t>& shape) {
  std::string cells;
  for (const uint64_t extent : shape) cells += fmt::format("{}{}", cells.empty() ? "" : ", ", extent);
  if (shape.size() == 1) cells += ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", npy_type(type), cells);
  const size_t before = kNpyMagic.size() + 2;
  header.append(kNpyAlignment - 1 - (before + header.size()) % kNpyAlignment, ' ');
  header.push_back('\n');
  // At most 32 numbers: 16 bits are enough for its length.
  const auto length = static_cast<uint16_t>(header.size());
  std::string file(kNpyMagic);
  file.push_back(static_cast<char>(length & 0xff));
  file.push_back(static_cast<char>(length >> 8));
  return file + header;
}

Result<ArrayFileKind> array_file_kind(std::string_view path) {
  if (path.ends_with(".npy")) return ArrayFileKind::npy;
  if (path.ends_with(".h5") || path.ends_with(".hdf5")) return ArrayFileKind::hdf5;
  return Status::invalid_argument("the file's name does not say what it is to be", std::string(path),
                                  "let it end with .h5, .hdf5 or .npy");
}

Result<std::unique_ptr<ArrayFile>> create_array_file(ArrayFileKind kind, const std::string& path) {
  switch (kind) {
    case ArrayFileKind::npy: {
      VARVE_ASSIGN(std::unique_ptr<File> file, posix_file_system().create(path));
      return std::unique_ptr<ArrayFile>(std::make_unique<NpyFile>(std::move(file)));
    }
    case ArrayFileKind::hdf5: return create_hdf5_file(path);
  }
  return Status::internal("no kind of file");
}

Result<std::vector<std::string>> hdf5_path(std::string_view name) {
  std::vector<std::string> path;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part == "." || part.find('\0') != std::string_view::npos) {
      return Status::invalid_argument("an HDF5 file cannot have an array of this name", std::string(name),
                                      "leave it out, or write it to a .npy file");
    }
    if (!part.empty()) path.emplace_back(part);
    begin = end + 1;
  }
  if (path.empty()) path.emplace_back("unnamed");
  return path;
}

}  // namespace varve::cli
