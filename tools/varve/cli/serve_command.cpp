#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "backend/folder_backend.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/text.h"
#include "core/sync.h"
#include "monitor/metrics_outlet.h"
#include "monitor/store_monitor.h"
#include "runtime/live_file.h"
#include "serve/rights.h"
#include "serve/server.h"
#include "service/location.h"

namespace varve::cli {

namespace {
class ServeCommand final : public Command {
 public:
  std::string_view name() const override { return "serve"; }
  std::string_view summary() const override { return "serve a store to other processes and machines"; }
  bool works_on_store() const override { return false; }
  bool prints_facts() const override { return false; }

  void declare(Arguments& arguments) override {
    arguments.text("--listen", "ADDRESS", listen_, "the address for clients: unix:PATH or tcp://HOST:PORT");
    arguments.optional_positional("STORE", store_, "the store, if it is in a bucket: s3://BUCKET/PREFIX");
    arguments.text("--dir", "DIR", folder_,
                   "the store's folder, or s3://BUCKET/PREFIX; if nothing is there, a store is made");
    arguments.text(
        "--key-file", "FILE", key_file_,
        "the key of TCP clients that may do everything (default: $VARVE_KEY_FILE, if no other key is given)");
    arguments.text("--append-key-file", "FILE", append_key_file_,
                   "the key of TCP clients that may read and add sets, but not drop, prune or replace any");
    arguments.text("--read-key-file", "FILE", read_key_file_, "the key of TCP clients that may only read");
    arguments.text("--rights", "RIGHTS", rights_,
                   "what clients over a Unix socket may do: all (default), append or read, as with these keys");
    arguments.text("--new-key", "FILE", new_key_, "make a file with a new key, and exit");
    arguments.text("--next", "STORE", next_, std::string("the next level, for varve push --to next: ") + kStoreForms);
    arguments.text("--s3-endpoint", "URL", s3_endpoint_,
                   "the service that has the buckets of the store and of --next (default: $VARVE_S3_ENDPOINT, "
                   "$AWS_ENDPOINT_URL_S3)");
    arguments.memory("--memory", memory_bytes_,
                     "memory to use at most, about, for putting together sets of several nodes (default: 512MiB)");
    arguments.count("--connections", "N", connections_, "connections at a time (default: 16384)");
    arguments.flag(
        "--place", place_,
        "make no store: the folder becomes one of several places of a store (see varve init, varve rebalance)");
    arguments.metrics(metrics_);
    arguments.examples(
        "  varve serve --listen unix:/run/varve/store.sock --dir /nvme/store\n"
        "  varve save --store unix:/run/varve/store.sock output\n"
        "  varve serve --new-key secret\n"
        "  varve serve --listen tcp://0.0.0.0:7070 --key-file secret --dir /nvme/store\n"
        "  varve serve --listen tcp://0.0.0.0:7070 --key-file admin --append-key-file jobs --dir /nvme/store\n"
        "  varve serve --listen tcp://0.0.0.0:7070 --key-file secret s3://checkpoints/me\n");
  }

  Result<ExitCode> run(Session& session) override {
    if (!new_key_.empty()) return make_key(session);
    if (listen_.empty()) return Status::invalid_argument("listen where?", "", "give --listen unix:/path");
    if (!store_.empty() && !folder_.empty())
      return Status::invalid_argument("two stores are named", store_, "one server serves one store");
    const std::string& place = store_.empty() ? folder_ : store_;
    if (place.empty()) return Status::invalid_argument("serve which folder?", "", "give --dir DIR");
    const bool in_bucket = place.starts_with(kBucketPrefix);
    if (!store_.empty() && !in_bucket) return Status::invalid_argument("this is no bucket", store_, "give --dir DIR");
    ServerOptions options;
    VARVE_ASSIGN(options.listen, ServerAddress::parse(listen_));
    options.folder = folder_;
    options.key_files = {.all = key_file_, .append = append_key_file_, .read = read_key_file_};
    const bool names_a_key = !key_file_.empty() || !append_key_file_.empty() || !read_key_file_.empty();
    if (const char* environment = std::getenv("VARVE_KEY_FILE"); !names_a_key && environment != nullptr)
      options.key_files.all = environment;
    VARVE_TRY(take_rights(options));
    options.next = {next_, s3_endpoint_};
    if (connections_ > 0) options.connections_max = connections_;
    options.gather.memory_bytes = memory_bytes_;
    // Refused clients, and sets of several nodes.
    if (session.is_verbose()) options.log = [&session](const std::string& line) { session.log(line); };
    std::unique_ptr<StorePlace> bucket;
    bool is_new = false;
    if (!in_bucket) {
      VARVE_ASSIGN(is_new, make_store());
    } else {
      VARVE_ASSIGN(std::tie(bucket, is_new), open_bucket(place));
      options.backend = &bucket->backend();
    }
    note_interrupts();
    VARVE_ASSIGN(const std::unique_ptr<Server> server, Server::start(std::move(options)));
    const std::string address = server->address().to_string();
    session.announce(fmt::format("serving {} at {}", quote_name(place), address),
                     {{"event", "serving"}, {"store", place}, {"address", address}});
    // Where a disk is not mounted, its folder is empty.
    if (is_new) session.announce("there was no store: made a new one", {{"event", "made"}, {"store", place}});
    VARVE_TRY(session.finish_printing());
    if (server->connections_max() < connections_)
      session.warn(
          Status::resource_limit(fmt::format("there is room for {} connections only", server->connections_max()),
                                 "--connections", "let this user have more files open (ulimit -n)"));
    Telling telling{.address = address, .place = absolute_location(place)};
    if (!metrics_.empty()) VARVE_TRY(begin_telling(session, bucket.get(), telling));
    // Where who looks at this machine finds it.
    SegmentFamily own;
    own.folder = live_folder();
    own.user = ::geteuid();
    own.job_key = "server";
    const std::string live_file = take_live_file(own, 0);
    Moment next_metrics = MonotonicClock::now();
    while (!interrupted()) {
      if (MonotonicClock::now() >= next_metrics) {
        const Metrics metrics = metrics_of(*server, telling, /*runs=*/true);
        if (telling.outlet) publish(session, *telling.outlet, metrics);
        if (!live_file.empty())
          write_metrics_file(live_file, metrics, 0600).ignore("who looks does not see the server");
        next_metrics = MonotonicClock::now() + std::chrono::seconds(1);
      }
      sleep_for(std::chrono::milliseconds(50));
    }
    server->stop();
    if (!live_file.empty()) ::unlink(live_file.c_str());
    if (telling.outlet) publish(session, *telling.outlet, metrics_of(*server, telling, /*runs=*/false));
    return ExitCode::success;
  }

 private:
  /// What monitoring is told from.
  struct Telling {
    std::string address, place;
    std::unique_ptr<MetricsOutlet> outlet{};  ///< null: nobody asks
    std::unique_ptr<Store> store{};           ///< null: what is served is one of several places of a store
    std::unique_ptr<StoreMonitor> monitor{};  ///< of the store
  };

  /// `bucket`: null if a folder is served.
  Status begin_telling(Session& session, StorePlace* bucket, Telling& telling) const {
    VARVE_ASSIGN(telling.outlet, MetricsOutlet::open(metrics_));
    session.announce("metrics are at " + telling.outlet->where(),
                     {{"event", "metrics"}, {"place", telling.outlet->where()}});
    VARVE_TRY(session.finish_printing());
    Result<std::unique_ptr<Store>> store =
        bucket != nullptr ? open_store(*bucket) : Store::open(posix_file_system(), folder_);
    if (!store.ok()) return {};
    telling.store = *std::move(store);
    // To go through all that a bucket has costs money.
    VARVE_ASSIGN(telling.monitor, StoreMonitor::start(*telling.store, {.tells_garbage = bucket == nullptr}));
    return {};
  }

  static Metrics metrics_of(Server& server, const Telling& telling, bool runs) {
    Metrics metrics = Metrics::with({{"store", telling.place}});
    metrics.gauge("varve_server_info", "The server: 1.").sample(1, {{"address", telling.address}});
    metrics.gauge("varve_server_running", "Whether the server runs, as far as it could tell.").sample(runs ? 1 : 0);
    metrics.gauge("varve_server_updated_timestamp_seconds", "When all this was true.").sample(calendar_time());
    server.tell(metrics);
    if (telling.monitor) telling.monitor->tell(metrics);
    return metrics;
  }

  /// A server goes on without its metrics.
  void publish(Session& session, MetricsOutlet& outlet, const Metrics& metrics) {
    const Status published = outlet.publish(metrics);
    if (!published.ok() && !warned_) session.warn(published.with_context("metrics are not told"));
    warned_ = !published.ok();
  }

  /// Each kind of socket has its own way to say what its clients may do: a way of the other one would do nothing.
  Status take_rights(ServerOptions& options) const {
    const bool over_tcp = options.listen.kind == ServerAddress::Kind::tcp;
    if (!rights_.empty()) {
      VARVE_ASSIGN(options.socket_rights, parse_rights(rights_));
      if (over_tcp)
        return Status::invalid_argument("over TCP the key says what a client may do", "--rights",
                                        "give --append-key-file or --read-key-file");
    }
    if (!over_tcp && (!append_key_file_.empty() || !read_key_file_.empty()))
      return Status::invalid_argument("no key is shown over a Unix socket", listen_, "give --rights");
    return {};
  }

  Result<ExitCode> make_key(Session& session) const {
    VARVE_TRY(make_key_file(new_key_));
    session.print(
        fmt::format("made a key in {}: copy it to where clients are, for them alone to read\n", quote_name(new_key_)));
    return ExitCode::success;
  }

  /// A store is made there if there is nothing; whether it was.
  Result<std::pair<std::unique_ptr<StorePlace>, bool>> open_bucket(const std::string& bucket) const {
    if (place_)
      return Status::unsupported("a store in a bucket cannot be one of several places of a store", bucket,
                                 "leave --place away");
    VARVE_ASSIGN(std::unique_ptr<StorePlace> place, open_location(bucket, {.reach = {{}, s3_endpoint_}}));
    bool is_new = false;
    Status there = open_store(*place).status();
    if (there.code() == StatusCode::not_found) {
      const Status made = create_store(*place);
      if (!made.ok() && made.code() != StatusCode::already_exists) return made;
      is_new = made.ok();
      there = open_store(*place).status();
    }
    VARVE_TRY(there);
    return std::pair(std::move(place), is_new);
  }

  /// The same in a folder.
  Result<bool> make_store() const {
    bool is_new = false;
    FileSystem& fs = posix_file_system();
    const Result<std::vector<DirectoryEntry>> entries = fs.list(folder_);
    const bool missing = entries.status().code() == StatusCode::not_found;
    if (!missing) VARVE_TRY(entries.status());
    // For those whom the server lets in, not for all users of its machine.
    if (missing && ::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      return Status::from_errno(errno, "create the folder", folder_);
    FolderBackend folder(fs, folder_);
    VARVE_ASSIGN(const std::optional<SpreadMember> member, read_spread_member(folder));
    if (place_ || member) return false;
    if (missing || entries->empty()) {
      const Status made = Store::create(fs, folder_);
      // Made by somebody else just now.
      if (!made.ok() && made.code() != StatusCode::already_exists) return made;
      is_new = made.ok();
    }
    VARVE_TRY(Store::open(fs, folder_).status());
    return is_new;
  }

  std::string listen_, store_, folder_, key_file_, append_key_file_, read_key_file_, rights_, new_key_, next_,
      s3_endpoint_;
  uint64_t memory_bytes_ = 512_MiB;
  uint32_t connections_ = 0;
  std::string metrics_;  ///< empty: nobody asks
  bool warned_ = false;  ///< that they cannot be told
  bool place_ = false;
};
}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace varve::cli
