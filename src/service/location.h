#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "service/socket.h"
#include "store/chunk_index.h"
#include "store/spread.h"

namespace varve {

class ServerLink;

/// How a store's place begins, if it is no server's; a folder's may do without.
inline constexpr std::string_view kFolderPrefix = "dir:";
inline constexpr std::string_view kBucketPrefix = "s3://";

/// What a user writes for a store: a path, `dir:/path`, `unix:/path[,/path…]`, `tcp://host:port[,host:port…]` or
/// `s3://bucket/prefix`.
struct Location {
  std::string folder;                  ///< empty: it is elsewhere
  std::vector<ServerAddress> servers;  ///< one or several; empty: it is elsewhere
  std::string bucket;                  ///< "s3://bucket/prefix"; empty: it is elsewhere

  bool is_folder() const { return !folder.empty(); }
  /// Looks at the text alone. invalid_argument if it makes no sense.
  static Result<Location> parse(std::string_view text);
};

/// The same place, named so that it is found from any folder, for whoever is told of it.
std::string absolute_location(const std::string& text);

/// How places elsewhere are reached. What is empty, the environment says.
struct ReachOptions {
  std::string key_file;     ///< of servers over TCP; VARVE_KEY_FILE
  std::string s3_endpoint;  ///< of buckets, "http[s]://host[:port]"; VARVE_S3_ENDPOINT, else as s3_place.h has it
};

struct LocationOptions {
  ReachOptions reach;
  /// How long an operation goes on trying to reach a server that has gone away.
  double reconnect_seconds = 30;
  /// The servers may be any, in any order: nothing but places() is of use then.
  bool any_servers = false;
};

/// A store's place, with what reaches it: a folder of this machine, one or several servers, or a part of a bucket.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  /// What has the store's objects; lives as long as this object. Thread-safe.
  virtual Backend& backend() = 0;
  /// How it spreads arenas.
  virtual ArenaSpread spread() const { return ArenaSpread(); }
  /// What there is of it on each server, in their order; of a folder and a bucket, the one.
  virtual std::vector<Backend*> places() { return {&backend()}; }
  /// Makes an empty store there.
  virtual Status create(const CreateStoreOptions& options) { return create_spread_store(places(), options); }
  /// Who knows what chunks the store has; null where the index is looked into directly.
  virtual ChunkLookup* chunk_lookup() { return nullptr; }
  /// The store that was opened there. What is another one later, under the same name, is as if it were not there.
  virtual void note_opened(const Store& /*store*/) {}
  /// The servers that have it, as many as there are; none for a folder.
  virtual std::vector<ServerLink*> servers() { return {}; }
};

/// Connects to all servers before it returns; may then start threads. A folder need not be there. unsupported: this
/// build has no TLS, or cannot reach buckets. invalid_argument: several servers that are not those of one store, or two
/// that are the same.
Result<std::unique_ptr<StorePlace>> open_location(std::string_view text, const LocationOptions& options = {});

/// The store at a place, which outlives it. `over`: reaches the place's objects in its stead, and outlives the store.
Result<std::unique_ptr<Store>> open_store(StorePlace& place, Backend* over = nullptr);
/// Makes one there. unsupported: an S3 service that cannot hold one.
Status create_store(StorePlace& place, const CreateStoreOptions& options = {});

}  // namespace varve
