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

/// What a user writes for a store: a path, `dir:/path`, `unix:/path[,/path…]` or `tcp://host:port[,host:port…]`.
struct Location {
  std::string folder;                  ///< empty: it is on servers
  std::vector<ServerAddress> servers;  ///< one or several; empty: it is a folder

  bool is_folder() const { return servers.empty(); }
  /// Looks at the text alone. invalid_argument if it makes no sense.
  static Result<Location> parse(std::string_view text);
};

struct LocationOptions {
  std::string key_file;  ///< of servers over TCP; empty: VARVE_KEY_FILE of the environment
  /// How long an operation goes on trying to reach a server that has gone away.
  double reconnect_seconds = 30;
  /// The servers may be any, in any order: nothing but places() is of use then.
  bool any_servers = false;
};

/// A store's place, with what reaches it: a folder of this machine, or one or several servers.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  /// The file system that the store is in; lives as long as this object. Thread-safe.
  virtual FileSystem& fs() = 0;
  /// The store's root in it, for Store::open() and for messages.
  virtual const std::string& path() const = 0;
  /// How it spreads arenas.
  virtual ArenaSpread spread() const { return ArenaSpread(); }
  /// The folder, or what there is of it on each server, in their order.
  virtual std::vector<SpreadPlace> places() { return {{&fs(), path()}}; }
  /// Who knows what chunks the store has; null for a folder, whose index is looked into directly.
  virtual ChunkLookup* chunk_lookup() = 0;
  /// The servers that have it, as many as there are; none for a folder.
  virtual std::vector<ServerLink*> servers() { return {}; }
};

/// Connects to all servers before it returns; may then start threads. A folder need not be there. unsupported: this
/// build has no TLS. invalid_argument: several servers that are not those of one store, or two that are the same.
Result<std::unique_ptr<StorePlace>> open_location(std::string_view text, const LocationOptions& options = {});

/// The store at a place, which outlives it.
Result<std::unique_ptr<Store>> open_store(StorePlace& place);
/// Makes one there.
Status create_store(StorePlace& place, const CreateStoreOptions& options = {});

}  // namespace varve
