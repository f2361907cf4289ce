#include "service/protocol.h"

#include <optional>

namespace varve {

namespace {
std::optional<AnyRequest> empty_request(uint8_t number) {
  std::optional<AnyRequest> found;
  for_each_message([&](auto empty) {
    if (empty.kMessage.number == number) found = std::move(empty);
  });
  return found;
}

Status check_data(const AnyRequest& request, uint64_t data_bytes) {
  const auto* const find = std::get_if<FindRequest>(&request);
  if (find && (find->prefix_count > kFindPrefixesMax || find->prefix_count * 8 != data_bytes))
    return Status::corrupt("a question for chunks has not as many as it says");
  const bool takes_data = std::visit([](const auto& message) { return message.kMessage.takes_data; }, request);
  return takes_data || data_bytes == 0 ? Status() : Status::corrupt("a request has data where none belong");
}
}  // namespace

Result<Request> decode_request(const WireHeader& header, ByteSpan fields) {
  std::optional<AnyRequest> message = empty_request(header.message);
  if (!message) {
    return Status::unsupported("this server does not know that request", "", "use the same Varve on both sides");
  }
  if (header.has(WireHeader::kReply) || header.has(WireHeader::kMore) || header.has(WireHeader::kDescriptor))
    return Status::corrupt("a request has flags of a reply");
  FieldReader reader(fields);
  std::visit(reader, *message);
  VARVE_TRY(reader.finish());
  VARVE_TRY(check_data(*message, header.data_bytes));
  return Request{header.has(WireHeader::kAgain), *std::move(message)};
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
