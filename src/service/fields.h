#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/status_codec.h"
#include "core/unique_id.h"
#include "varve/status.h"

namespace varve {

/// Of a text in a message, unless less is said of it.
inline constexpr size_t kFieldTextBytesMax = 1024;
/// Of each text of a failure, which the sender cuts to this.
inline constexpr size_t kStatusTextBytesMax = 2000;

/// Writes the fields of a message, as its type lists them in `visit(fields)`. FieldReader reads the same list, and so a
/// list is said once for both (PROTOCOL.md, "Messages"; a field's type tells its encoding).
class FieldWriter {
 public:
  explicit FieldWriter(ByteVector& out) : out_(out) {}

  template <class... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }
  void text(std::string& value, size_t) { out_.text(value); }
  template <class Value>
  void list(std::vector<Value>& values, size_t) {
    out_.varint(values.size());
    for (Value& value : values) one(value);
  }
  /// One of an enumeration whose first value is 0.
  template <class Choice>
  void choice(Choice& value, Choice) {
    out_.u8(static_cast<uint8_t>(value));
  }
  /// What is no success.
  void failure(Status& value) { put_status(out_, value, kStatusTextBytesMax); }

 private:
  void one(uint64_t& value) { out_.varint(value); }
  void one(int64_t& value) { out_.signed_varint(value); }
  void one(bool& value) { out_.u8(value ? 1 : 0); }
  void one(double& value) { out_.le64(std::bit_cast<uint64_t>(value)); }
  void one(UniqueId& value) { out_.bytes(value.bytes); }
  void one(std::string& value) { text(value, kFieldTextBytesMax); }
  void one(Status& value) {
    bool failed = !value.ok();
    one(failed);
    if (failed) failure(value);
  }
  template <class Group>
  void one(Group& group) {
    group.visit(*this);
  }

  ByteWriter out_;
};

/// Reads the fields of a message, which are not trusted. After a failure, nothing more is read.
class FieldReader {
 public:
  explicit FieldReader(ByteSpan fields) : in_(fields) {}

  template <class... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }
  void text(std::string& value, size_t bytes_max) {
    std::string_view raw;
    take(in_.text(), raw);
    if (raw.size() > bytes_max) return fail(Status::corrupt("a text of a message is too long"));
    value = std::string(raw);
  }
  template <class Value>
  void list(std::vector<Value>& values, size_t count_max) {
    uint64_t count = 0;
    take(in_.count(), count);
    if (count > count_max) fail(Status::corrupt("a message has too many of something"));
    values.resize(failure_.ok() ? count : 0);
    for (Value& value : values) one(value);
  }
  template <class Choice>
  void choice(Choice& value, Choice last) {
    uint8_t raw = 0;
    take(in_.u8(), raw);
    if (raw > static_cast<uint8_t>(last))
      return fail(Status::corrupt("a field of a message has a value that no one knows"));
    value = static_cast<Choice>(raw);
  }
  void failure(Status& value) {
    if (!failure_.ok()) return;
    fail(get_status(in_, value));
    if (value.ok()) fail(Status::corrupt("a failure that is none"));
  }
  /// Whether all was read, and nothing is left.
  Status finish() const {
    if (failure_.ok() && !in_.at_end()) return Status::corrupt("a message has bytes after its last field");
    return failure_;
  }

 private:
  void one(uint64_t& value) { take(in_.varint(), value); }
  void one(int64_t& value) { take(in_.signed_varint(), value); }
  void one(bool& value) {
    uint8_t raw = 0;
    take(in_.u8(), raw);
    if (raw > 1) fail(Status::corrupt("a field of a message is neither yes nor no"));
    value = raw == 1;
  }
  void one(double& value) {
    uint64_t raw = 0;
    take(in_.le64(), raw);
    value = std::bit_cast<double>(raw);
    if (!(value >= 0 && value <= std::numeric_limits<double>::max())) fail(Status::corrupt("an impossible number"));
  }
  void one(UniqueId& value) { take(UniqueId::read(in_), value); }
  void one(std::string& value) { text(value, kFieldTextBytesMax); }
  void one(Status& value) {
    bool failed = false;
    one(failed);
    if (failed) failure(value);
  }
  template <class Group>
  void one(Group& group) {
    group.visit(*this);
  }

  template <class From, class Into>
  void take(const Result<From>& read, Into& into) {
    fail(read.status());
    if (failure_.ok()) into = *read;
  }
  void fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

  ByteReader in_;
  Status failure_;
};

/// Of a message's request, or of a Reply to it.
template <class Message>
ByteVector encode_fields(Message message) {
  ByteVector out;
  FieldWriter writer(out);
  writer(message);
  return out;
}

/// The reverse. corrupt: those are the fields of something else.
template <class Message>
Result<Message> decode_fields(ByteSpan fields) {
  Message message;
  FieldReader reader(fields);
  reader(message);
  VARVE_TRY(reader.finish());
  return message;
}

}  // namespace varve
