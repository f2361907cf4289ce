#include "service/location.h"

#include <utility>

namespace varve {

namespace {
constexpr std::string_view kFolderPrefix = "dir:";
constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kTcpPrefix = "tcp://";

class FolderPlace final : public StorePlace {
 public:
  explicit FolderPlace(std::string path) : path_(std::move(path)) {}
  FileSystem& fs() override { return posix_file_system(); }
  const std::string& path() const override { return path_; }
  ChunkLookup* chunk_lookup() override { return nullptr; }

 private:
  const std::string path_;
};

/// The servers of `unix:/a,/b` and the like: what stands before the first stands before all.
Result<std::vector<ServerAddress>> parse_servers(std::string_view text, std::string_view prefix) {
  std::vector<ServerAddress> servers;
  std::string_view rest = text.substr(prefix.size());
  while (true) {
    const size_t comma = rest.find(',');
    VARVE_ASSIGN(ServerAddress server, ServerAddress::parse(std::string(prefix) + std::string(rest.substr(0, comma))));
    servers.push_back(std::move(server));
    if (comma == std::string_view::npos) return servers;
    rest = rest.substr(comma + 1);
  }
}
}  // namespace

Result<Location> Location::parse(std::string_view text) {
  Location location;
  for (const std::string_view prefix : {kUnixPrefix, kTcpPrefix}) {
    if (!text.starts_with(prefix)) continue;
    VARVE_ASSIGN(location.servers, parse_servers(text, prefix));
    return location;
  }
  if (text.starts_with(kFolderPrefix)) text = text.substr(kFolderPrefix.size());
  if (text.empty()) return Status::invalid_argument("the name of a store is empty");
  location.folder = std::string(text);
  return location;
}

Result<std::unique_ptr<StorePlace>> open_location(std::string_view text, const LocationOptions& options) {
  (void)options;
  VARVE_ASSIGN(const Location location, Location::parse(text));
  if (location.is_folder()) return std::unique_ptr<StorePlace>(std::make_unique<FolderPlace>(location.folder));
  return Status::unsupported("stores on servers are not there yet", std::string(text));
}

}  // namespace varve
