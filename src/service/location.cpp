#include "service/location.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "backend/folder_backend.h"
#ifdef VARVE_HAVE_S3
#include "backend/s3_backend.h"
#endif
#include "service/remote_file_system.h"

namespace varve {

namespace {
class FolderPlace final : public StorePlace {
 public:
  explicit FolderPlace(std::string path) : backend_(posix_file_system(), std::move(path)) {}
  Backend& backend() override { return backend_; }

 private:
  FolderBackend backend_;
};

#ifdef VARVE_HAVE_S3
class BucketPlace final : public StorePlace {
 public:
  explicit BucketPlace(std::unique_ptr<S3Backend> backend) : backend_(std::move(backend)) {}
  Backend& backend() override { return *backend_; }
  Status create(const CreateStoreOptions& options) override {
    VARVE_TRY(backend_->check_abilities());
    return StorePlace::create(options);
  }

 private:
  const std::unique_ptr<S3Backend> backend_;
};
#endif

/// What was said, else what the environment says.
std::string said_or(const std::string& said, const char* variable) {
  const char* const environment = said.empty() ? std::getenv(variable) : nullptr;
  return environment == nullptr ? said : environment;
}

Result<std::unique_ptr<StorePlace>> open_bucket(const std::string& text, const ReachOptions& reach) {
#ifdef VARVE_HAVE_S3
  S3Options options;
  options.endpoint = said_or(reach.s3_endpoint, "VARVE_S3_ENDPOINT");
  VARVE_ASSIGN(std::unique_ptr<S3Backend> backend, S3Backend::connect(text, options));
  return std::unique_ptr<StorePlace>(std::make_unique<BucketPlace>(std::move(backend)));
#else
  static_cast<void>(reach);
  return Status::unsupported("this build cannot reach S3 services", text, "build with VARVE_WITH_S3=ON");
#endif
}

/// What reaches one server.
struct ReachedServer {
  explicit ReachedServer(std::unique_ptr<ServerLink> opened)
      : link(std::move(opened)), fs(*link), backend(fs, fs.root()), chunks(*link) {}
  std::unique_ptr<ServerLink> link;
  RemoteFileSystem fs;
  FolderBackend backend;
  RemoteChunkLookup chunks;
};

Status same_server(const std::string& one, const std::string& other) {
  return Status::invalid_argument("two of these servers are the same", one == other ? one : one + " and " + other,
                                  "name each server once");
}

class ServerPlace final : public StorePlace {
 public:
  static Result<std::unique_ptr<ServerPlace>> open(const std::vector<ServerAddress>& addresses,
                                                   const LocationOptions& options) {
    LinkOptions link_options;
    link_options.key_file = said_or(options.reach.key_file, "VARVE_KEY_FILE");
    link_options.reconnect_seconds = options.reconnect_seconds;
    auto place = std::make_unique<ServerPlace>();
    for (const ServerAddress& address : addresses) {
      VARVE_ASSIGN(std::unique_ptr<ServerLink> link, ServerLink::open(address, link_options));
      for (const auto& other : place->servers_) {
        if (other->link->server() == link->server()) return same_server(other->link->name(), link->name());
      }
      place->servers_.push_back(std::make_unique<ReachedServer>(std::move(link)));
    }
    if (addresses.size() > 1 && !options.any_servers) VARVE_TRY(place->spread_over_servers());
    return place;
  }

  Backend& backend() override { return spread_ ? static_cast<Backend&>(*spread_) : servers_.front()->backend; }
  ArenaSpread spread() const override { return spread_ ? spread_->spread() : ArenaSpread(); }
  ChunkLookup* chunk_lookup() override {
    return spread_chunks_ ? static_cast<ChunkLookup*>(&*spread_chunks_) : &servers_.front()->chunks;
  }
  std::vector<Backend*> places() override {
    std::vector<Backend*> places;
    for (const auto& server : servers_) places.push_back(&server->backend);
    return places;
  }
  void note_opened(const Store& store) override {
    for (uint32_t i = 0; i < servers_.size(); ++i) servers_[i]->link->expect({store.id(), spread_ ? i : 0});
  }
  std::vector<ServerLink*> servers() override {
    std::vector<ServerLink*> links;
    for (const auto& server : servers_) links.push_back(server->link.get());
    return links;
  }

 private:
  /// Brings the servers into their order, which the store knows.
  Status spread_over_servers() {
    VARVE_ASSIGN(std::vector<Backend*> ordered, order_places(places()));
    std::vector<std::unique_ptr<ReachedServer>> servers;
    std::vector<ChunkLookup*> lookups;
    for (const Backend* const place : ordered) {
      auto found = std::find_if(servers_.begin(), servers_.end(),
                                [&](const auto& server) { return server != nullptr && &server->backend == place; });
      lookups.push_back(&(*found)->chunks);
      servers.push_back(std::move(*found));
    }
    servers_ = std::move(servers);
    spread_.emplace(std::move(ordered));
    spread_chunks_.emplace(std::move(lookups));
    return {};
  }

  std::vector<std::unique_ptr<ReachedServer>> servers_;  ///< at least one
  std::optional<SpreadBackend> spread_;                  ///< over several
  std::optional<SpreadChunkLookup> spread_chunks_;
};

/// The servers of `unix:/a,/b` and the like: what stands before the first stands before all.
Result<std::vector<ServerAddress>> parse_servers(std::string_view text, std::string_view prefix) {
  std::vector<ServerAddress> servers;
  std::string_view rest = text.substr(prefix.size());
  while (true) {
    const size_t comma = rest.find(',');
    VARVE_ASSIGN(ServerAddress server, ServerAddress::parse(std::string(prefix) + std::string(rest.substr(0, comma))));
    if (std::find(servers.begin(), servers.end(), server) != servers.end())
      return same_server(server.to_string(), server.to_string());
    servers.push_back(std::move(server));
    if (comma == std::string_view::npos) return servers;
    rest = rest.substr(comma + 1);
  }
}

/// Whether it looks like "http://host": letters come first. A folder of such a name is "./http:".
bool is_address(std::string_view text) {
  const size_t end = text.find("://");
  return end != std::string_view::npos && end > 0 &&
         std::all_of(text.begin(), text.begin() + static_cast<ptrdiff_t>(end),
                     [](char letter) { return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'); });
}
}  // namespace

Result<Location> Location::parse(std::string_view text) {
  Location location;
  for (const std::string_view prefix : {kUnixPrefix, kTcpPrefix}) {
    if (!text.starts_with(prefix)) continue;
    VARVE_ASSIGN(location.servers, parse_servers(text, prefix));
    return location;
  }
  if (text.starts_with(kBucketPrefix)) {
    location.bucket = std::string(text);
    return location;
  }
  if (is_address(text)) {
    return Status::invalid_argument("a store is reached in no such way", std::string(text),
                                    "write a folder, unix:/path, tcp://host:port or s3://bucket/prefix");
  }
  if (text.starts_with(kFolderPrefix)) text = text.substr(kFolderPrefix.size());
  if (text.empty()) return Status::invalid_argument("the name of a store is empty");
  location.folder = std::string(text);
  return location;
}

std::string absolute_location(const std::string& text) {
  const Result<Location> location = Location::parse(text);
  if (!location.ok() || !location->is_folder()) return text;
  std::error_code error;
  std::string full = std::filesystem::weakly_canonical(location->folder, error).string();
  if (error) return text;
  while (full.size() > 1 && full.ends_with('/')) full.pop_back();
  return full;
}

Result<std::unique_ptr<StorePlace>> open_location(std::string_view text, const LocationOptions& options) {
  VARVE_ASSIGN(const Location location, Location::parse(text));
  if (location.is_folder()) return std::unique_ptr<StorePlace>(std::make_unique<FolderPlace>(location.folder));
  if (!location.bucket.empty()) return open_bucket(location.bucket, options.reach);
  VARVE_ASSIGN(std::unique_ptr<ServerPlace> place, ServerPlace::open(location.servers, options));
  return std::unique_ptr<StorePlace>(std::move(place));
}

Result<std::unique_ptr<Store>> open_store(StorePlace& place, Backend* over) {
  VARVE_ASSIGN(std::unique_ptr<Store> store,
               Store::open(over == nullptr ? place.backend() : *over, place.chunk_lookup(), place.spread()));
  place.note_opened(*store);
  return store;
}

Status create_store(StorePlace& place, const CreateStoreOptions& options) { return place.create(options); }

}  // namespace varve
