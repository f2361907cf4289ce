#include "service/wire.h"

#include <array>

#include "hash/score.h"

namespace varve {

namespace {
Status cut_off() { return Status::io_error("the connection was closed in the middle of a message"); }
}  // namespace

Status Wire::send_with(int descriptor, WireHeader header, ByteSpan fields, ByteSpan data, Deadline deadline) {
  if (fields.size() > kWireFieldsBytesMax || data.size() > kWireDataBytesMax)
    return Status::internal("a message is larger than messages are");
  header.fields_bytes = static_cast<uint32_t>(fields.size());
  header.data_bytes = static_cast<uint32_t>(data.size());
  header.fields_crc = crc32c(fields);
  header.data_crc = crc32c(data);
  const bool passes = descriptor >= 0 && stream_->passes_descriptors();
  if (passes) header.flags |= WireHeader::kDescriptor;
  std::byte raw[kWireHeaderBytes];
  encode_wire_header(header, raw);
  const std::array<ByteSpan, 3> parts{ByteSpan(raw), fields, data};
  return passes ? stream_->write_with(descriptor, parts, deadline) : stream_->write(parts, deadline);
}

Result<Wire::Head> Wire::receive_head(Deadline deadline) {
  Head head;
  std::byte raw[kWireHeaderBytes];
  VARVE_ASSIGN(const size_t got, receive(raw, deadline));
  head.closed = got == 0;
  if (head.closed) return head;
  if (got < sizeof raw) return cut_off();
  VARVE_ASSIGN(head.header, decode_wire_header(raw));
  fields_.resize(head.header.fields_bytes);
  VARVE_ASSIGN(const size_t fields_got, receive(fields_, deadline));
  if (fields_got < fields_.size()) return cut_off();
  if (crc32c(fields_) != head.header.fields_crc) return Status::corrupt("a message does not match its checksum");
  head.fields = fields_;
  return head;
}

Status Wire::receive_data(const WireHeader& header, MutableByteSpan into, Deadline deadline) {
  if (into.size() != header.data_bytes) return Status::internal("the place for a message's data has another size");
  VARVE_ASSIGN(const size_t got, receive(into, deadline));
  if (got < into.size()) return cut_off();
  if (crc32c(into) != header.data_crc) return Status::corrupt("the data of a message do not match their checksum");
  return {};
}

Result<size_t> Wire::receive(MutableByteSpan into, Deadline deadline) {
  size_t done = 0;
  while (done < into.size()) {
    VARVE_ASSIGN(const size_t got, stream_->read_some(into.subspan(done), deadline));
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace varve
