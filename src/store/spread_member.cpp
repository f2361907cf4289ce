#include "store/spread_member_text.h"

#include <fmt/format.h>

#include <charconv>

namespace varve {

namespace {
constexpr std::string_view kMemberName = "varve.spread";
constexpr uint64_t kMemberBytesMax = 256;

std::string member_text(const SpreadMember& member) {
  return fmt::format("varve spread 1\nstore {}\nplace {} of {}\n", member.store.hex(), member.position + 1,
                     member.count);
}

/// Takes the text up to `end` off the front; empty if it is not there.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos) return {};
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return taken;
}

uint32_t number(std::string_view text) {
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}
}  // namespace

Result<SpreadMember> parse_spread_member(std::string_view text) {
  std::string_view rest = text;
  SpreadMember member;
  take_until(rest, "\nstore ");
  const Result<UniqueId> store = UniqueId::parse(take_until(rest, "\nplace "));
  if (store.ok()) member.store = *store;
  member.position = number(take_until(rest, " of ")) - 1;
  member.count = number(take_until(rest, "\n"));
  const bool good = store.ok() && member.count <= kSpreadPlacesMax && member.position < member.count;
  if (good && member_text(member) == text) return member;
  return Status::corrupt("this does not say which place of a spread store the folder is");
}

Result<std::optional<SpreadMember>> read_spread_member(FileSystem& fs, const std::string& store_path) {
  const std::string path = join_path(store_path, kMemberName);
  const Result<ByteVector> raw = read_file(fs, path, kMemberBytesMax);
  if (raw.status().code() == StatusCode::not_found) return std::optional<SpreadMember>();
  VARVE_TRY(raw.status());
  const Result<SpreadMember> member = parse_spread_member(as_text(*raw));
  if (member.ok()) return std::optional(*member);
  return Status::corrupt(std::string(member.status().message()), path,
                         "put the file back from a copy, or ask for help: nothing else is wrong");
}

Status create_spread_member(FileSystem& fs, const std::string& store_path, const SpreadMember& member) {
  return create_file_durably(fs, join_path(store_path, kMemberName), as_bytes(member_text(member)));
}

Status write_spread_member(FileSystem& fs, const std::string& store_path, const SpreadMember& member) {
  return write_file_durably(fs, join_path(store_path, kMemberName), as_bytes(member_text(member)));
}

}  // namespace varve
