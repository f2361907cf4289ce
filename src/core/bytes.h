#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;
using ByteVector = std::vector<std::byte>;

constexpr uint64_t operator""_KiB(unsigned long long count) { return count << 10; }
constexpr uint64_t operator""_MiB(unsigned long long count) { return count << 20; }
constexpr uint64_t operator""_GiB(unsigned long long count) { return count << 30; }

inline ByteSpan as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Loads and stores in little-endian order whatever the machine's, at any alignment.
template <class T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
    auto* raw = reinterpret_cast<std::byte*>(&value);
    for (size_t i = 0; i < sizeof(T) / 2; ++i) std::swap(raw[i], raw[sizeof(T) - 1 - i]);
  }
  return value;
}
template <class T>
void store_le(std::byte* to, T value) {
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
    auto* raw = reinterpret_cast<std::byte*>(&value);
    for (size_t i = 0; i < sizeof(T) / 2; ++i) std::swap(raw[i], raw[sizeof(T) - 1 - i]);
  }
  std::memcpy(to, &value, sizeof(T));
}

/// Appends the primitive fields of FORMAT.md ("Notation") to a growing buffer.
class ByteWriter {
 public:
  explicit ByteWriter(ByteVector& out) : out_(out) {}
  void u8(uint8_t value) { out_.push_back(std::byte{value}); }
  void le16(uint16_t value) { put(value); }
  void le32(uint32_t value) { put(value); }
  void le64(uint64_t value) { put(value); }
  /// LEB128: 7 bits a byte, least significant first; at most 10 bytes.
  void varint(uint64_t value);
  /// Zigzag, then varint.
  void signed_varint(int64_t value);
  void bytes(ByteSpan data) { out_.insert(out_.end(), data.begin(), data.end()); }
  /// varint length, then the bytes.
  void text(std::string_view value);
  size_t size() const { return out_.size(); }

 private:
  template <class T>
  void put(T value) {
    size_t at = out_.size();
    out_.resize(at + sizeof(T));
    store_le(out_.data() + at, value);
  }
  ByteVector& out_;
};

/// Reads the primitive fields of FORMAT.md from untrusted bytes. Every reader fails with `corrupt` instead of leaving
/// the span, and no count read is larger than what is left, so it may size an allocation.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan data) : data_(data) {}
  Result<uint8_t> u8();
  Result<uint16_t> le16();
  Result<uint32_t> le32();
  Result<uint64_t> le64();
  Result<uint64_t> varint();
  Result<int64_t> signed_varint();
  /// A view of the next `count` bytes; lives as long as the span given to the constructor.
  Result<ByteSpan> bytes(uint64_t count);
  Result<std::string_view> text();
  /// A varint that counts elements of at least `bytes_each_min` encoded bytes each: `corrupt` if they cannot fit.
  Result<uint64_t> count(uint64_t bytes_each_min = 1);
  size_t remaining() const { return data_.size() - at_; }
  size_t position() const { return at_; }
  bool at_end() const { return at_ == data_.size(); }

 private:
  ByteSpan data_;
  size_t at_ = 0;
};

/// Bytes of a fixed count that begin uninitialised, for what is going to be filled anyway: no pass that writes zeros,
/// no page touched in vain.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes) : data_(std::make_unique_for_overwrite<std::byte[]>(bytes)), size_(bytes) {}
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  operator ByteSpan() const { return {data_.get(), size_}; }
  operator MutableByteSpan() { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

std::string to_hex(ByteSpan bytes);

}  // namespace varve
