#include "sim/buckets.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "backend/s3_backend.h"
#include "s3/fake_s3.h"
#include "sim/oracle.h"
#include "sim/stores.h"

namespace varve::sim {

namespace {
/// An S3 service with one bucket, and the network before it. Every request takes virtual time on its way there and on
/// its way back, may hand over the turn, and may fail in each of the ways that FakeS3 knows.
class Service final : public HttpTransport {
 public:
  explicit Service(Simulator& simulator);

  double fault_chance = 0;  ///< of a request: some fault, of any kind that a sound service has
  double slowness = 1;      ///< a request takes so many times as long
  Moment away_until{};      ///< nobody reaches it before

  HttpReply exchange(const HttpRequest& request) override;
  /// What a process has of the store in the bucket.
  std::unique_ptr<S3Backend> open();
  const FakeS3& plain() const { return fake_; }

 private:
  S3Fault draw_fault();
  void travel();

  Simulator& simulator_;
  const Moment begin_;
  FakeS3 fake_;
};

/// Until a connection is given up that does not come about.
constexpr std::chrono::seconds kPatience(10);

FakeS3Options options_of(Simulator& simulator, Moment begin) {
  FakeS3Options options;
  // Its own, which no machine's error moves.
  options.calendar = [&simulator, begin] {
    constexpr int64_t first = 1'790'000'000;
    return first + std::chrono::duration_cast<std::chrono::seconds>(simulator.now() - begin).count();
  };
  return options;
}

std::string shown(const HttpRequest& request) {
  return fmt::format("{:<8} {}{}{}", http_method_name(request.method), request.path, request.query.empty() ? "" : "?",
                     request.query.substr(0, 40));
}

Service::Service(Simulator& simulator)
    : simulator_(simulator), begin_(simulator.now()), fake_(options_of(simulator, begin_)) {
  fake_.set_faults([this](const HttpRequest&) { return draw_fault(); });
}

S3Fault Service::draw_fault() {
  constexpr S3Fault kinds[] = {S3Fault::refused,         S3Fault::lost_request, S3Fault::lost_reply, S3Fault::error_500,
                               S3Fault::error_500_after, S3Fault::slow_down,    S3Fault::too_many,   S3Fault::torn_body,
                               S3Fault::damaged_body,    S3Fault::repeated};
  Random& random = simulator_.random();
  if (fault_chance == 0 || !random.chance(fault_chance)) return S3Fault::none;
  return kinds[random.below(std::size(kinds))];
}

void Service::travel() {
  // From half a millisecond to a quarter of a second, more often short than long.
  const double seconds = 5e-4 * std::exp(simulator_.random().unit() * 6) * slowness;
  simulator_.spend(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)));
}

HttpReply Service::exchange(const HttpRequest& request) {
  const std::string what = shown(request);
  simulator_.note_doing(what);
  travel();
  const bool changes = request.method != HttpMethod::get && request.method != HttpMethod::head;
  if (changes) simulator_.hand_over_eagerly();
  if (request.method == HttpMethod::remove) simulator_.hand_over_before_removal();
  HttpReply reply;
  if (away_until > simulator_.now()) {
    simulator_.spend(std::min<std::chrono::nanoseconds>(kPatience, away_until - simulator_.now()));
    reply.failure = Status::io_error("nobody answers");
  } else {
    reply = fake_.exchange(request);
  }
  if (changes || !reply.failure.ok() || reply.status >= 400)
    simulator_.tell(
        fmt::format("{} → {}", what, reply.failure.ok() ? std::to_string(reply.status) : reply.failure.to_string()));
  travel();
  return reply;
}

std::unique_ptr<S3Backend> Service::open() {
  const S3Settings settings{"http://service", "us-east-1", true, {}, {"access", "secret", {}}};
  return std::make_unique<S3Backend>(*this, S3Place{"bucket", "store/"}, settings);
}

/// A store in its bucket. Machines' clocks may be wrong by half an hour.
class Bucket final : public StoreSite {
 public:
  Bucket(World& world, Random& random) : simulator_(world.simulator()), service_(world.simulator()) {
    if (random.chance(0.3)) service_.slowness = 20;
    if (!random.chance(0.3)) return;
    for (Node& node : world.nodes()) node.machine.calendar_error = static_cast<int64_t>(random.below(3600)) - 1800;
  }

  Status create() override { return Store::create(*service_.open()); }

  Result<View> open() override {
    View view;
    view.backend = service_.open();
    VARVE_ASSIGN(view.store, Store::open(*view.backend));
    return view;
  }

  void strike(SiteFault fault, Random& random) override {
    switch (fault) {
      case SiteFault::errors: service_.fault_chance = 0.1; return;
      case SiteFault::lost_replies: service_.fault_chance = std::max(service_.fault_chance, 0.03); return;
      case SiteFault::cut:
        service_.away_until = simulator_.now() + std::chrono::seconds(random.between(1, 300));
        return;
      case SiteFault::full:
      case SiteFault::power: return;
    }
  }
  void end_faults() override {
    service_.fault_chance = 0;
    service_.away_until = {};
  }

  std::chrono::seconds silence() const override { return std::chrono::minutes(65); }
  uint64_t pause_seconds_max() const override { return 2 * 3600; }
  void check_nothing_is_left() override {
    if (service_.plain().upload_count() > 0) fail("one prune leaves an upload that nobody goes on with");
  }

 private:
  Simulator& simulator_;
  Service service_;
};
}  // namespace

void play_buckets(Simulator& simulator, const std::string& scratch) {
  play_stores_at(simulator, scratch,
                 [](World& world, Random& random) { return std::make_unique<Bucket>(world, random); });
}

}  // namespace varve::sim
