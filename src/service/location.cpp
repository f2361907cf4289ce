#include "service/location.h"

#include <cstdlib>
#include <utility>

#include "service/remote_file_system.h"

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

/// What reaches one server.
struct ReachedServer {
  explicit ReachedServer(std::unique_ptr<ServerLink> opened) : link(std::move(opened)), fs(*link), chunks(*link) {}
  std::unique_ptr<ServerLink> link;
  RemoteFileSystem fs;
  RemoteChunkLookup chunks;
};

class ServerPlace final : public StorePlace {
 public:
  static Result<std::unique_ptr<ServerPlace>> open(const std::vector<ServerAddress>& addresses,
                                                   const LocationOptions& options) {
    LinkOptions link_options;
    link_options.key_file = options.key_file;
    if (link_options.key_file.empty()) {
      if (const char* environment = std::getenv("VARVE_KEY_FILE")) link_options.key_file = environment;
    }
    link_options.reconnect_seconds = options.reconnect_seconds;
    auto place = std::make_unique<ServerPlace>();
    for (const ServerAddress& address : addresses) {
      VARVE_ASSIGN(std::unique_ptr<ServerLink> link, ServerLink::open(address, link_options));
      place->servers_.push_back(std::make_unique<ReachedServer>(std::move(link)));
    }
    return place;
  }

  FileSystem& fs() override { return servers_.front()->fs; }
  const std::string& path() const override { return servers_.front()->fs.root(); }
  ChunkLookup* chunk_lookup() override { return &servers_.front()->chunks; }

 private:
  std::vector<std::unique_ptr<ReachedServer>> servers_;  ///< at least one
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
  VARVE_ASSIGN(const Location location, Location::parse(text));
  if (location.is_folder()) return std::unique_ptr<StorePlace>(std::make_unique<FolderPlace>(location.folder));
  if (location.servers.size() > 1) {
    return Status::unsupported("a store that is spread over several servers", std::string(text), "name one server");
  }
  VARVE_ASSIGN(std::unique_ptr<ServerPlace> place, ServerPlace::open(location.servers, options));
  return std::unique_ptr<StorePlace>(std::move(place));
}

}  // namespace varve
