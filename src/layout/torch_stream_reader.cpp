// What torch.save() wrote before it made zip archives, and still does if it is told to.
#include <algorithm>

#include "layout/array_type.h"
#include "layout/layout_reader.h"
#include "layout/torch_pickle.h"

namespace varve {
namespace {

/// So much is read for the pickles at first, and ever more while they do not end.
constexpr uint64_t kFirstBytes = 64_KiB, kMoreTimes = 4;

Result<TorchStream> read_pickles(FileWindow& file) {
  const uint64_t most = std::min<uint64_t>(file.file_bytes(), kPickleBytesMax);
  for (uint64_t bytes = std::min(most, kFirstBytes);; bytes = std::min(most, kMoreTimes * bytes)) {
    VARVE_ASSIGN(const ByteSpan begin, file.view(0, bytes));
    if (std::optional<TorchStream> stream = read_torch_stream(begin)) return *std::move(stream);
    if (bytes == most) return Status::unsupported("what torch says of its storages is not understood");
  }
}

class TorchStreamReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "torch stream"; }
  bool recognises(const ReadAt&, ByteSpan first_bytes, uint64_t) const override {
    return begins_torch_stream(first_bytes);
  }
  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    FileWindow file(read, file_bytes);
    return read_torch_stream_layout(file);
  }
};

}  // namespace

Result<Layout> read_torch_stream_layout(FileWindow& file) {
  VARVE_ASSIGN(const TorchStream stream, read_pickles(file));
  Layout layout{.format = std::string(kTorchFormat), .variables = {}};
  uint64_t at = stream.data_begin;
  for (const std::string& key : stream.keys) {
    const auto storage = stream.storages.find(key);
    if (storage == stream.storages.end() || !storage->second.type)
      return Status::unsupported("a storage of torch has elements of unknown size", key);
    VARVE_ASSIGN(const ByteSpan count, file.view(at, sizeof(uint64_t)));
    at += count.size();
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(load_le<uint64_t>(count.data()), storage->second.type->bytes(), &bytes) ||
        bytes > file.file_bytes() - at)
      return Status::corrupt("a storage of torch ends behind its file", key);
    if (bytes > 0) {
      std::string name = storage->second.name.empty() ? "/data/" + key : storage->second.name;
      layout.variables.push_back(storage_variable(std::move(name), storage->second, {at, bytes}));
    }
    at += bytes;
  }
  return layout;
}

std::unique_ptr<LayoutReader> make_torch_stream_reader() { return std::make_unique<TorchStreamReader>(); }

}  // namespace varve
