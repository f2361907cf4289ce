#include "snapshot/image_copy.h"

#include <algorithm>
#include <cstring>

#include "snapshot/copy_kernel.h"

namespace varve {
namespace {

/// Runs below this are gathered first: setting out on a copy past the caches costs as much as copying some hundred
/// bytes, and unaligned ends make the memory read what it overwrites.
constexpr uint64_t kDirectBytesMin = 4_KiB;
/// What is gathered stays in the innermost cache until it is copied on.
constexpr size_t kGatheredBytes = 16_KiB;

/// Writes an image's bytes one after another.
class ImageWriter {
 public:
  explicit ImageWriter(std::byte* to) : to_(to) {}

  void append(ByteSpan bytes) {
    if (bytes.size() >= kDirectBytesMin) {
      flush();
      crc_ = copy_with_crc(to_, bytes, crc_);
      to_ += bytes.size();
      return;
    }
    while (!bytes.empty()) {
      const MutableByteSpan room = room_for(bytes.size());
      std::memcpy(room.data(), bytes.data(), room.size());
      bytes = bytes.subspan(room.size());
    }
  }

  void append_region(const VariableMemory& memory, uint64_t dense_offset, uint64_t bytes) {
    if (memory.region.dense()) return append({memory.base + memory.region.first_byte + dense_offset, bytes});
    if (memory.region.row_bytes >= kDirectBytesMin) return append_rows(memory, dense_offset, bytes);
    while (bytes > 0) {
      const MutableByteSpan room = room_for(bytes);
      gather(memory.base, memory.region, dense_offset, room);
      dense_offset += room.size();
      bytes -= room.size();
    }
  }

  void append_zeros(uint64_t bytes) {
    while (bytes > 0) {
      const MutableByteSpan room = room_for(bytes);
      std::fill(room.begin(), room.end(), std::byte{0});
      bytes -= room.size();
    }
  }

  uint32_t finish() {
    flush();
    store_fence();
    return crc_;
  }

 private:
  void append_rows(const VariableMemory& memory, uint64_t dense_offset, uint64_t bytes) {
    while (bytes > 0) {
      uint64_t run_bytes = 0;
      const uint64_t at = memory.region.locate(dense_offset, run_bytes);
      run_bytes = std::min(run_bytes, bytes);
      append({memory.base + at, run_bytes});
      dense_offset += run_bytes;
      bytes -= run_bytes;
    }
  }

  /// The next bytes of the gathered ones, at least 1 and at most `bytes`.
  MutableByteSpan room_for(uint64_t bytes) {
    if (gathered_bytes_ == kGatheredBytes) flush();
    const size_t room = std::min<uint64_t>(bytes, kGatheredBytes - gathered_bytes_);
    const MutableByteSpan next = MutableByteSpan(gathered_).subspan(gathered_bytes_, room);
    gathered_bytes_ += room;
    return next;
  }

  void flush() {
    crc_ = copy_with_crc(to_, ByteSpan(gathered_).first(gathered_bytes_), crc_);
    to_ += gathered_bytes_;
    gathered_bytes_ = 0;
  }

  std::byte* to_;
  uint32_t crc_ = 0;
  size_t gathered_bytes_ = 0;
  /// Not initialised: that would take as long as a small copy.
  alignas(64) std::byte gathered_[kGatheredBytes];
};

}  // namespace

uint32_t copy_image(const VariableTable& variables, uint64_t offset, uint64_t bytes, std::byte* to) {
  const ImageTable& image = variables.image();
  const uint64_t end = offset + bytes;
  ImageWriter writer(to);
  if (offset < image.header_bytes) {
    const uint64_t header = std::min(bytes, image.header_bytes - offset);
    writer.append(ByteSpan(variables.image_header()).subspan(offset, header));
    offset += header;
  }
  // The first variable that ends behind the offset.
  auto after = [](uint64_t at, const ImageVariable& variable) { return at < variable.offset + variable.bytes; };
  auto variable = std::upper_bound(image.variables.begin(), image.variables.end(), offset, after);
  for (; offset < end && variable != image.variables.end(); ++variable) {
    if (offset < variable->offset) {
      const uint64_t padding = std::min(end, variable->offset) - offset;
      writer.append_zeros(padding);
      offset += padding;
    }
    const uint64_t from = offset - std::min(offset, variable->offset);
    const uint64_t part = offset < end ? std::min(end - offset, variable->bytes - from) : 0;
    const auto index = static_cast<size_t>(variable - image.variables.begin());
    writer.append_region(variables.memory()[index], from, part);
    offset += part;
  }
  return writer.finish();
}

}  // namespace varve
