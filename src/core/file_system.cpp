#include "core/file_system.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/unique_id.h"

namespace varve {

namespace {

Status write_and_sync(FileSystem& fs, const std::string& path, ByteSpan contents) {
  VARVE_ASSIGN(auto file, fs.create(path));
  VARVE_TRY(file->write_at(0, contents));
  return file->sync();
}

}  // namespace

Result<size_t> RangeReader::read_parts(uint64_t offset, std::span<const MutableByteSpan> parts) {
  size_t bytes = 0;
  for (const MutableByteSpan part : parts) bytes += part.size();
  Buffer together(bytes);
  VARVE_ASSIGN(const size_t got, read_at(offset, together));
  ByteSpan left = ByteSpan(together).first(got);
  for (const MutableByteSpan part : parts) {
    const ByteSpan here = left.first(std::min(left.size(), part.size()));
    std::copy(here.begin(), here.end(), part.begin());
    left = left.subspan(here.size());
  }
  return got;
}

Status read_exactly(RangeReader& file, uint64_t offset, MutableByteSpan into, const std::string& path) {
  VARVE_ASSIGN(size_t got, file.read_at(offset, into));
  if (got == into.size()) return {};
  return Status::corrupt(fmt::format("the file ends at byte {}, where {} bytes from {} on were expected", offset + got,
                                     into.size(), offset),
                         path);
}

Result<ByteVector> read_all(RangeReader& file, uint64_t bytes_max, const std::string& path) {
  VARVE_ASSIGN(const uint64_t bytes, file.size());
  if (bytes > bytes_max) {
    return Status::resource_limit(fmt::format("the file has {} bytes, more than the {} allowed", bytes, bytes_max),
                                  path);
  }
  ByteVector contents(bytes);
  VARVE_TRY(read_exactly(file, 0, contents, path));
  return contents;
}

Result<ByteVector> read_file(FileSystem& fs, const std::string& path, uint64_t bytes_max) {
  VARVE_ASSIGN(const auto file, fs.open_read(path));
  return read_all(*file, bytes_max, path);
}

namespace {
/// `name` gives the complete file its name. `temporary`: its name until then; empty: one is made of `path`.
template <class Name>
Status put_in_place(FileSystem& fs, const std::string& path, ByteSpan contents, std::string temporary,
                    const Name& name) {
  if (temporary.empty()) {
    VARVE_ASSIGN(const UniqueId id, UniqueId::random());
    temporary = fmt::format("{}.{}.tmp", path, id.hex());
  }
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, fs.watch_power());
  Status status = write_and_sync(fs, temporary, contents);
  if (status.ok()) status = name(temporary);
  if (!status.ok()) {
    fs.remove(temporary).ignore("the first failure is the one to report; a leftover temporary file is harmless");
    return status;
  }
  // The rename itself is durable only once the directory is: a power cut could undo it.
  return fs.sync_directory(parent_path(path));
}
}  // namespace

Status write_file_durably(FileSystem& fs, const std::string& path, ByteSpan contents) {
  return put_in_place(fs, path, contents, {}, [&](const std::string& file) { return fs.rename(file, path); });
}

Status create_file_durably(FileSystem& fs, const std::string& path, ByteSpan contents, std::string draft) {
  return put_in_place(fs, path, contents, std::move(draft),
                      [&](const std::string& file) { return fs.rename_no_replace(file, path); });
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  std::string path(directory);
  if (path.back() != '/') path.push_back('/');
  path.append(name);
  return path;
}

namespace {
std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}
}  // namespace

std::string parent_path(std::string_view path) {
  path = without_trailing_slashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(without_trailing_slashes(path.substr(0, slash + 1)));
}

std::string base_name(std::string_view path) {
  path = without_trailing_slashes(path);
  size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace varve
