#include "service/protocol.h"

#include <bit>
#include <limits>

#include "core/status_codec.h"

namespace varve {

namespace {
constexpr size_t kStatusTextBytesMax = 2000;
constexpr size_t kRecodeBytesMax = 200;

/// Writes fields in the order in which FieldReader reads them: the lists below are said once for both.
class FieldWriter {
 public:
  explicit FieldWriter(ByteVector& out) : out_(out) {}
  void number(uint64_t& value) { out_.varint(value); }
  void signed_number(int64_t& value) { out_.signed_varint(value); }
  void flag(bool& value) { out_.u8(value ? 1 : 0); }
  void real(double& value) { out_.le64(std::bit_cast<uint64_t>(value)); }
  void id(UniqueId& value) { out_.bytes(value.bytes); }
  void status(Status& value) {
    bool failed = !value.ok();
    flag(failed);
    if (failed) put_status(out_, value, kStatusTextBytesMax);
  }
  void kind(FileQuestion::Kind& value) { out_.u8(static_cast<uint8_t>(value)); }
  void text(std::string& value, size_t) { out_.text(value); }
  void ranges(std::vector<ReadRange>& values) {
    out_.varint(values.size());
    for (ReadRange& range : values) {
      number(range.offset);
      number(range.bytes);
    }
  }
  void numbers(std::vector<uint64_t>& values, size_t) {
    out_.varint(values.size());
    for (uint64_t& value : values) number(value);
  }

 private:
  ByteWriter out_;
};

/// After a failure, nothing more is read.
class FieldReader {
 public:
  explicit FieldReader(ByteSpan fields) : in_(fields) {}
  void number(uint64_t& value) { take(in_.varint(), value); }
  void signed_number(int64_t& value) { take(in_.signed_varint(), value); }
  void flag(bool& value) {
    uint8_t raw = 0;
    take(in_.u8(), raw);
    if (raw > 1) fail(Status::corrupt("a field of a message is neither yes nor no"));
    value = raw == 1;
  }
  void real(double& value) {
    uint64_t raw = 0;
    take(in_.le64(), raw);
    value = std::bit_cast<double>(raw);
    if (!(value >= 0 && value <= std::numeric_limits<double>::max())) fail(Status::corrupt("an impossible number"));
  }
  void id(UniqueId& value) {
    ByteSpan raw;
    take(in_.bytes(value.bytes.size()), raw);
    if (failure_.ok()) std::copy(raw.begin(), raw.end(), value.bytes.begin());
  }
  void status(Status& value) {
    bool failed = false;
    flag(failed);
    if (!failed || !failure_.ok()) return;
    const Status read = get_status(in_, value);
    if (!read.ok() || value.ok()) fail(read.ok() ? Status::corrupt("a failure that is none") : read);
  }
  void kind(FileQuestion::Kind& value) {
    uint8_t raw = 0;
    take(in_.u8(), raw);
    if (raw > static_cast<uint8_t>(FileQuestion::Kind::unchanged)) return fail(Status::corrupt("an unknown question"));
    value = static_cast<FileQuestion::Kind>(raw);
  }
  void text(std::string& value, size_t bytes_max) {
    std::string_view raw;
    take(in_.text(), raw);
    if (raw.size() > bytes_max) return fail(Status::corrupt("a text of a message is too long"));
    value = std::string(raw);
  }
  void ranges(std::vector<ReadRange>& values) {
    values.resize(count(2, kReadRangesMax));
    for (ReadRange& range : values) {
      number(range.offset);
      number(range.bytes);
    }
  }
  void numbers(std::vector<uint64_t>& values, size_t count_max) {
    values.resize(count(1, count_max));
    for (uint64_t& value : values) number(value);
  }
  ByteReader& in() { return in_; }
  void fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  /// Whether all was read, and nothing is left.
  Status finish() const {
    if (failure_.ok() && !in_.at_end()) return Status::corrupt("a message has bytes after its last field");
    return failure_;
  }

 private:
  template <class From, class Into>
  void take(const Result<From>& read, Into& into) {
    if (!read.ok()) fail(read.status());
    if (failure_.ok()) into = *read;
  }
  size_t count(uint64_t bytes_each_min, size_t count_max) {
    uint64_t value = 0;
    take(in_.count(bytes_each_min), value);
    if (value > count_max) fail(Status::corrupt("a message has too many of something"));
    return failure_.ok() ? static_cast<size_t>(value) : 0;
  }

  ByteReader in_;
  Status failure_;
};

template <class Fields>
void visit_identity(Fields& fields, FileIdentity& identity) {
  fields.number(identity.device);
  fields.number(identity.inode);
  fields.signed_number(identity.born_ns);
}

template <class Fields>
void visit_transfer(Fields& fields, Request& request) {
  fields.id(request.token);
  fields.text(request.path, kServedPathBytesMax);
  fields.text(request.recode, kRecodeBytesMax);
  fields.flag(request.check_held);
  fields.real(request.bytes_per_second);
}

// PROTOCOL.md, "Messages"
template <class Fields>
void visit_request(Fields& fields, Request& request) {
  switch (request.message) {
    case Message::hello: return fields.id(request.client);
    case Message::ping:
    case Message::goodbye: return;
    case Message::open:
    case Message::stat:
    case Message::list:
    case Message::create_directory:
    case Message::touch:
    case Message::sync_directory:
    case Message::room: return fields.text(request.path, kServedPathBytesMax);
    case Message::create:
      fields.id(request.token);
      fields.text(request.path, kServedPathBytesMax);
      return fields.flag(request.direct);
    case Message::resume:
      fields.id(request.token);
      fields.text(request.path, kServedPathBytesMax);
      fields.flag(request.direct);
      return visit_identity(fields, request.identity);
    case Message::read: fields.number(request.handle); return fields.ranges(request.ranges);
    case Message::write: fields.number(request.handle); return fields.number(request.offset);
    case Message::truncate: fields.number(request.handle); return fields.number(request.bytes);
    case Message::sync:
    case Message::size:
    case Message::close: return fields.number(request.handle);
    case Message::remove:
    case Message::remove_directory: fields.id(request.token); return fields.text(request.path, kServedPathBytesMax);
    case Message::rename:
      fields.id(request.token);
      fields.text(request.path, kServedPathBytesMax);
      fields.text(request.to, kServedPathBytesMax);
      fields.flag(request.replace);
      return visit_identity(fields, request.identity);
    case Message::find: return fields.number(request.prefix_count);
    case Message::push:
    case Message::pull: return visit_transfer(fields, request);
    case Message::offer:
      fields.text(request.path, kServedPathBytesMax);
      fields.text(request.node, kServedPathBytesMax);
      fields.number(request.node_count);
      fields.number(request.offset);
      return fields.number(request.bytes);
    case Message::answer: fields.status(request.failure); return fields.number(request.bytes);
  }
}

template <class Fields>
void visit_file(Fields& fields, FileStatus& file) {
  fields.number(file.bytes);
  fields.number(file.allocated_bytes);
  fields.signed_number(file.modified_ns);
  fields.flag(file.is_directory);
}

template <class Fields>
void visit_numbers(Fields& fields, TransferNumbers& numbers) {
  for (uint64_t* number : {&numbers.was_there, &numbers.sent_packs, &numbers.sent_nodes, &numbers.sent_bytes,
                           &numbers.held_packs, &numbers.held_bytes, &numbers.recoded_packs,
                           &numbers.recoded_from_bytes, &numbers.recoded_to_bytes, &numbers.unchecked_packs}) {
    fields.number(*number);
  }
}

template <class Fields>
void visit_reply(Fields& fields, Message message, Reply& reply) {
  switch (message) {
    case Message::hello:
      fields.id(reply.server);
      fields.id(reply.boot);
      return fields.number(reply.connections);
    case Message::open:
    case Message::create:
    case Message::resume:
      fields.number(reply.handle);
      fields.number(reply.file.bytes);
      return visit_identity(fields, reply.identity);
    case Message::read: return fields.numbers(reply.counts, kReadRangesMax);
    case Message::size: return fields.number(reply.file.bytes);
    case Message::stat: visit_file(fields, reply.file); return visit_identity(fields, reply.identity);
    case Message::find: return fields.numbers(reply.counts, kFindPrefixesMax);
    case Message::room: return fields.number(reply.free_bytes);
    case Message::push:
    case Message::pull: return visit_numbers(fields, reply.transfer);
    case Message::answer:
      fields.kind(reply.question.kind);
      fields.number(reply.question.file);
      fields.number(reply.question.offset);
      return fields.number(reply.question.bytes);
    case Message::ping:
    case Message::goodbye:
    case Message::write:
    case Message::truncate:
    case Message::sync:
    case Message::close:
    case Message::list:
    case Message::create_directory:
    case Message::remove:
    case Message::remove_directory:
    case Message::rename:
    case Message::touch:
    case Message::sync_directory:
    case Message::offer: return;
  }
}
}  // namespace

std::optional<Message> message_of(uint8_t number) {
  if (number < static_cast<uint8_t>(Message::hello) || number > static_cast<uint8_t>(Message::room)) return {};
  return static_cast<Message>(number);
}

bool needs_token(Message message) {
  switch (message) {
    case Message::create:
    case Message::remove:
    case Message::remove_directory:
    case Message::rename:
    case Message::push:
    case Message::pull: return true;
    case Message::hello:
    case Message::ping:
    case Message::goodbye:
    case Message::open:
    case Message::resume:
    case Message::read:
    case Message::write:
    case Message::truncate:
    case Message::sync:
    case Message::size:
    case Message::close:
    case Message::stat:
    case Message::list:
    case Message::create_directory:
    case Message::touch:
    case Message::sync_directory:
    case Message::find:
    case Message::offer:
    case Message::answer:
    case Message::room: return false;
  }
  return false;
}

ByteVector encode_request_fields(const Request& request) {
  ByteVector out;
  FieldWriter fields(out);
  Request copy = request;  // what writes and what reads share one list of fields, which only the reader changes
  visit_request(fields, copy);
  return out;
}

Result<Request> decode_request(const WireHeader& header, ByteSpan fields) {
  const std::optional<Message> message = message_of(header.message);
  if (!message || header.has(WireHeader::kReply) || header.has(WireHeader::kMore) ||
      header.has(WireHeader::kDescriptor))
    return Status::corrupt("a request that no one knows");
  Request request;
  request.message = *message;
  request.again = header.has(WireHeader::kAgain);
  request.number = header.request;
  FieldReader reader(fields);
  visit_request(reader, request);
  VARVE_TRY(reader.finish());
  if (*message == Message::find &&
      (request.prefix_count > kFindPrefixesMax || request.prefix_count * 8 != header.data_bytes)) {
    return Status::corrupt("a question for chunks has not as many as it says");
  }
  const bool takes_data = *message == Message::find || *message == Message::write || *message == Message::offer ||
                          *message == Message::answer;
  if (!takes_data && header.data_bytes > 0) return Status::corrupt("a request has data where none belong");
  return request;
}

ByteVector encode_reply_fields(Message message, const Reply& reply) {
  ByteVector out;
  ByteWriter writer(out);
  writer.u8(static_cast<uint8_t>(reply.outcome));
  if (reply.outcome == Outcome::failed) put_status(writer, reply.status, kStatusTextBytesMax);
  if (reply.outcome != Outcome::done) return out;
  FieldWriter fields(out);
  Reply copy = reply;
  visit_reply(fields, message, copy);
  return out;
}

Result<Reply> decode_reply(Message message, ByteSpan fields) {
  FieldReader reader(fields);
  Reply reply;
  VARVE_ASSIGN(const uint8_t outcome, reader.in().u8());
  if (outcome > static_cast<uint8_t>(Outcome::cannot_tell))
    return Status::corrupt("an impossible outcome of a request");
  reply.outcome = static_cast<Outcome>(outcome);
  if (reply.outcome == Outcome::failed) {
    VARVE_TRY(get_status(reader.in(), reply.status));
    if (reply.status.ok()) return Status::corrupt("a failure that is none");
  }
  if (reply.outcome == Outcome::done) visit_reply(reader, message, reply);
  VARVE_TRY(reader.finish());
  return reply;
}

void append_entry(ByteVector& out, const DirectoryEntry& entry) {
  ByteWriter writer(out);
  writer.u8(entry.is_directory ? 1 : 0);
  writer.text(entry.name);
}

Status decode_entries(ByteSpan data, std::vector<DirectoryEntry>& entries) {
  ByteReader reader(data);
  while (!reader.at_end()) {
    VARVE_ASSIGN(const uint8_t is_directory, reader.u8());
    VARVE_ASSIGN(const std::string_view name, reader.text());
    // A name that is none would lead a caller out of the folder.
    if (is_directory > 1 || name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
        name.find('\0') != std::string_view::npos) {
      return Status::corrupt("an impossible name in a folder");
    }
    entries.push_back({std::string(name), is_directory == 1});
  }
  return {};
}

}  // namespace varve
