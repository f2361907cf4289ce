#include "format/store_folder.h"

#include <fmt/format.h>

#include <charconv>

namespace varve {

std::string arena_file_name(const ArenaId& arena) { return arena.hex() + ".arena"; }

std::optional<ArenaId> parse_arena_file_name(std::string_view name) {
  const Result<ArenaId> id = ArenaId::parse(name.substr(0, name.find('.')));
  // Only its one spelling is the name of the file.
  return id.ok() && arena_file_name(*id) == name ? std::optional(*id) : std::nullopt;
}

std::string index_folder_name(uint32_t place) { return place == 0 ? "index" : "index@" + std::to_string(place + 1); }

std::optional<uint32_t> index_folder_place(std::string_view name, uint32_t places) {
  constexpr std::string_view kBegin = "index@";
  if (!name.starts_with(kBegin)) return std::nullopt;
  uint32_t number = 0;
  std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), number);
  if (number < 2 || number > places || name != index_folder_name(number - 1)) return std::nullopt;
  return number - 1;
}

namespace {
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

std::string encode_spread_member(const SpreadMember& member) {
  return fmt::format("varve spread 1\nstore {}\nplace {} of {}\n", member.store.hex(), member.position + 1,
                     member.count);
}

Result<SpreadMember> decode_spread_member(std::string_view text) {
  std::string_view rest = text;
  SpreadMember member;
  take_until(rest, "\nstore ");
  const Result<UniqueId> store = UniqueId::parse(take_until(rest, "\nplace "));
  if (store.ok()) member.store = *store;
  member.position = number(take_until(rest, " of ")) - 1;
  member.count = number(take_until(rest, "\n"));
  const bool good = store.ok() && member.count <= kSpreadPlacesMax && member.position < member.count;
  if (good && encode_spread_member(member) == text) return member;
  return Status::corrupt("this does not say which place of a spread store the folder is");
}

}  // namespace varve
