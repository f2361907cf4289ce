#include "serve/gather_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "backend/folder_backend.h"
#include "backend/throttled_backend.h"
#include "core/guarded.h"
#include "core/sync.h"
#include "engine/save.h"
#include "engine/transfer.h"
#include "redundancy/node_folder.h"
#include "service/location.h"
#include "service/remote_file_system.h"
#include "service/server_link.h"
#include "store/catalog.h"

namespace varve {

namespace {
constexpr uint64_t kWindowBytes = 256_KiB;
}

NodeSource::NodeSource(std::vector<SourceFile> files, std::vector<Layout> layouts, std::vector<Place> places,
                       uint64_t window_memory_bytes)
    : files_(std::move(files)),
      layouts_(std::move(layouts)),
      places_(std::move(places)),
      windows_max_(std::max<uint64_t>(window_memory_bytes / kWindowBytes, 2)) {}

Result<const ByteVector*> NodeSource::window(const Key& key) {
  if (const auto found = windows_.find(key); found != windows_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    return &found->second.bytes;
  }
  if (windows_.size() >= windows_max_) {
    windows_.erase(recently_used_.back());
    recently_used_.pop_back();
  }
  const uint64_t begin = key.second * kWindowBytes;
  ByteVector bytes(std::min(kWindowBytes, files_[key.first].bytes - begin));
  const Place& place = places_[key.first];
  VARVE_TRY(place.node->read(place.file, begin, bytes));
  recently_used_.push_front(key);
  return &windows_.emplace(key, Window{std::move(bytes), recently_used_.begin()}).first->second.bytes;
}

Status NodeSource::read(uint32_t file, uint64_t offset, MutableByteSpan into) {
  const Place& place = places_[file];
  if (into.size() >= kWindowBytes / 2) return place.node->read(place.file, offset, into);
  while (!into.empty()) {
    VARVE_ASSIGN(const ByteVector* const bytes, window({file, offset / kWindowBytes}));
    const uint64_t begin = offset % kWindowBytes;
    if (begin >= bytes->size()) return Status::internal("a read beyond the end of an offered file");
    const size_t count = std::min<size_t>(into.size(), bytes->size() - begin);
    std::copy_n(bytes->begin() + static_cast<ptrdiff_t>(begin), count, into.begin());
    into = into.subspan(count);
    offset += count;
  }
  return {};
}

Result<uint64_t> NodeSource::hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) {
  return places_[file].node->hole_bytes(places_[file].file, offset, bytes_max);
}

Status NodeSource::check_unchanged() {
  std::set<NodeFiles*> nodes;
  for (const Place& place : places_) nodes.insert(place.node.get());
  for (NodeFiles* const node : nodes) VARVE_TRY(node->check_unchanged());
  return {};
}

namespace {
TransferNumbers numbers_of(const TransferReport& report) {
  return {.was_there = report.was_there ? 1u : 0u,
          .sent_packs = report.sent_packs,
          .sent_nodes = report.sent_nodes,
          .sent_bytes = report.sent_bytes,
          .held_packs = report.held_packs,
          .held_bytes = report.held_bytes,
          .recoded_packs = report.recoded_packs,
          .recoded_from_bytes = report.recoded_from_bytes,
          .recoded_to_bytes = report.recoded_to_bytes,
          .unchecked_packs = report.unchecked_packs};
}
}  // namespace

NextLevel::~NextLevel() {
  stop();
  wait();
}

Status NextLevel::begin(TransferDirection direction, const SetTransfer& what, Done done) {
  const MutexLock lock(mutex_);
  if (stopping_) return Status::cancelled();
  if (at_work_) return Status::busy("another set is being copied to or from the server's next level");
  if (thread_.joinable()) thread_.join();  // it has nothing more to do than to say so
  VARVE_ASSIGN(thread_, start_thread([this, direction, what, done = std::move(done)] { run(direction, what, done); }));
  at_work_ = true;
  return {};
}

void NextLevel::wait() {
  Thread last;
  {
    const MutexLock lock(mutex_);
    last = std::move(thread_);
  }
  if (last.joinable()) last.join();
}

void NextLevel::run(TransferDirection direction, const SetTransfer& what, const Done& done) noexcept {
  const Result<TransferNumbers> outcome = run_guarded([&] { return copy(direction, what); });
  {
    const MutexLock lock(mutex_);
    at_work_ = false;  // before it is said: who is told may ask for the next one
  }
  done(outcome);
}

Result<TransferNumbers> NextLevel::copy(TransferDirection direction, const SetTransfer& what) {
  TransferOptions options;
  options.check_held = what.check_held;
  if (!what.recode.empty()) {
    VARVE_ASSIGN(options.recode, CodecPolicy::parse(what.recode));
  }
  VARVE_ASSIGN(const std::unique_ptr<StorePlace> next, open_location(location_, {.reach = reach_}));
  const bool push = direction == TransferDirection::push;
  std::optional<ThrottledBackend> slow;
  if (what.bytes_per_second > 0) {
    slow.emplace(push ? next->backend() : backend_, what.bytes_per_second, steady_clock(),
                 [this] { return stopping_.load(); });
  }
  VARVE_ASSIGN(const std::unique_ptr<Store> own, Store::open(slow && !push ? static_cast<Backend&>(*slow) : backend_));
  VARVE_ASSIGN(const std::unique_ptr<Store> other, open_store(*next, slow && push ? &*slow : nullptr));
  const Store& from = push ? *own : *other;
  const Store& to = push ? *other : *own;
  VARVE_ASSIGN(const SetName name, Catalog(from).resolve(what.set));
  StoppableProgress progress(stopping_);
  VARVE_ASSIGN(const TransferReport report, copy_set(from, to, name, options, progress));
  return numbers_of(report);
}

Result<TransferNumbers> transfer_on_server(ServerLink& link, TransferDirection direction, const SetTransfer& what) {
  if (direction == TransferDirection::push) return fields_of(link.ask(PushRequest{.what = what}), what.set);
  return fields_of(link.ask(PullRequest{.what = what}), what.set);
}

namespace {
constexpr uint64_t kNodesMax = 65'536;
constexpr size_t kGatheringsMax = 256;
/// Beyond so many jobs, who belongs to which is forgotten.
constexpr size_t kJobsKnownMax = 1024;

Status stopping() { return Status::busy("the server is ending"); }

/// All nodes' files, and where each lies, by path.
struct AllFiles {
  std::vector<SourceFile> files;
  std::map<std::string_view, std::pair<size_t, uint64_t>> places;  ///< number of the member, ordinal in its offer
};

/// When a node had written the last of its files, in seconds since 1970; none: it has no files.
std::optional<double> done_at(const OfferedFiles& offered) {
  std::optional<double> last;
  for (const SourceFile& file : offered.files) {
    if (file.type != FileType::regular) continue;
    const double written = static_cast<double>(file.modified_s) + 1e-9 * file.modified_ns;
    last = std::max(last.value_or(written), written);
  }
  return last;
}
}  // namespace

GatherService::~GatherService() { stop(); }

void GatherService::stop() {
  std::map<SetName, std::unique_ptr<Gathering>> ending;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (auto& [name, gathering] : gatherings_) {
      for (const Member& member : gathering->members) member.files->leave();
    }
    changed_.notify_all();
    ending.swap(gatherings_);
  }
  for (auto& [name, gathering] : ending) gathering->thread.join();
}

Status GatherService::check_fits(const Gathering& gathering, const NodeOffer& offer) {
  if (gathering.members.empty()) return {};
  const NodeOffer& first = gathering.members.front().offer;
  const auto fails = [&](const std::string& what) {
    return Status::invalid_argument(what, offer.set.to_string(), "watch on all nodes with the same options");
  };
  if (first.node_count != offer.node_count) return fails("the nodes of a set do not agree on how many they are");
  const auto options_of = [](const NodeOffer& one) {
    OfferedFiles bare;
    bare.options = one.files.options;
    return encode_offered_files(bare);
  };
  if (options_of(first) != options_of(offer)) return fails("the nodes of a set do not agree on how it is saved");
  for (const Member& member : gathering.members) {
    if (member.offer.node == offer.node)
      return Status::busy("this node has offered its files of the set already", offer.set.to_string());
  }
  if (gathering.members.size() >= offer.node_count)
    return Status::busy("all nodes of the set have offered their files already", offer.set.to_string());
  return {};
}

Status OfferRoom::take(uint64_t bytes) {
  if (service_ == nullptr) return Status::internal("room for an offer that nobody takes");
  const uint64_t bytes_max = service_->limits_.offers_bytes_max;
  if (bytes > bytes_max || bytes_ > bytes_max - bytes)
    return Status::resource_limit("an offer takes more memory than the server has for all");
  for (const bool again : {false, true}) {
    if (again) service_->give_up_late_offers();
    if ((service_->offers_bytes_ += bytes) <= bytes_max) {
      bytes_ += bytes;
      return {};
    }
    service_->offers_bytes_ -= bytes;
  }
  return Status::busy("the server has as many offers at hand as it takes");
}

void OfferRoom::give_back() {
  if (service_ != nullptr) service_->offers_bytes_ -= bytes_;
  bytes_ = 0;
}

Result<std::shared_ptr<UnfinishedOffer>> GatherService::begin_offer(uint64_t bytes) {
  OfferRoom room(*this);
  VARVE_TRY(room.take(bytes));
  auto offer = std::make_shared<UnfinishedOffer>(std::move(room), bytes, clock_.seconds() + limits_.offer_seconds);
  const MutexLock lock(coming_mutex_);
  std::erase_if(coming_, [](const auto& one) { return one.expired(); });
  coming_.push_back(offer);
  return offer;
}

void GatherService::give_up_late_offers() {
  std::vector<std::shared_ptr<UnfinishedOffer>> coming;
  {
    const MutexLock lock(coming_mutex_);
    for (const auto& one : coming_) {
      if (auto offer = one.lock()) coming.push_back(std::move(offer));
    }
  }
  for (const auto& offer : coming) offer->give_up_if_late(clock_.seconds());
}

Result<std::shared_ptr<NodeFiles>> GatherService::join(NodeOffer offer) {
  if (offer.node_count == 0 || offer.node_count > kNodesMax)
    return Status::invalid_argument("a set is of 1 to 65536 nodes", offer.set.to_string());
  const MutexLock lock(mutex_);
  reap();
  if (stopping_) return stopping();
  auto files = std::make_shared<NodeFiles>(offer.node);
  note_node(offer);
  if (const auto found = gatherings_.find(offer.set); found != gatherings_.end()) {
    Gathering& gathering = *found->second;
    if (gathering.saving || gathering.ended)
      return Status::busy("the set is being saved, without this node", offer.set.to_string());
    VARVE_TRY(check_fits(gathering, offer));
    gathering.members.push_back({std::move(offer), files});
    changed_.notify_all();
    return files;
  }
  if (gatherings_.size() >= kGatheringsMax) return Status::busy("the server gathers as many sets as it can");
  const SetName name = offer.set;
  auto gathering = std::make_unique<Gathering>();
  gathering->members.push_back({std::move(offer), files});
  const auto added = gatherings_.emplace(name, std::move(gathering)).first;
  Result<Thread> started = start_thread([this, name, raw = added->second.get()] { run(name, *raw); });
  if (!started.ok()) {
    gatherings_.erase(added);
    return started.status();
  }
  added->second->thread = *std::move(started);
  changed_.notify_all();
  return files;
}

void GatherService::note_node(const NodeOffer& offer) {
  if (nodes_of_jobs_.size() >= kJobsKnownMax && !nodes_of_jobs_.contains(offer.set.job)) nodes_of_jobs_.clear();
  std::set<std::string>& nodes = nodes_of_jobs_[offer.set.job];
  // Such as are called otherwise each time they start.
  if (nodes.size() >= kNodesMax) nodes.clear();
  nodes.insert(offer.node);
}

bool GatherService::gives_way(const SetName& name, uint64_t node_count) const {
  const auto nodes = nodes_of_jobs_.find(name.job);
  if (nodes == nodes_of_jobs_.end()) return false;
  std::set<std::string> waiting;
  const auto is_before = [](const SetName& a, const SetName& b) {
    return std::tie(a.step, a.job) < std::tie(b.step, b.job);
  };
  for (const auto& [other, gathering] : gatherings_) {
    const std::vector<Member>& members = gathering->members;
    // What all have offered is going to be saved, and who has offered it comes back then.
    if (gathering->saving || gathering->ended || members.empty()) continue;
    if (members.size() == members.front().offer.node_count) continue;
    for (const Member& member : members) {
      if (member.files->has_left() || !nodes->second.contains(member.offer.node)) continue;
      if (is_before(other, name)) return false;
      waiting.insert(member.offer.node);
    }
  }
  return waiting.size() >= node_count;
}

void GatherService::leave(const std::shared_ptr<NodeFiles>& files) {
  const MutexLock lock(mutex_);
  files->leave();
  changed_.notify_all();
}

void GatherService::reap() {
  for (auto gathering = gatherings_.begin(); gathering != gatherings_.end();) {
    if (!gathering->second->ended) {
      ++gathering;
      continue;
    }
    gathering->second->thread.join();
    gathering = gatherings_.erase(gathering);
  }
}

Status GatherService::gather(const SetName& name, Gathering& gathering) {
  VARVE_TRY(wait_for_all(name, gathering));
  const MutexLock one_at_a_time(saving_);
  return stopping_ ? stopping() : save(name, gathering);
}

void GatherService::run(const SetName& name, Gathering& gathering) noexcept {
  Status outcome = no_memory_;
  try {
    outcome = gather(name, gathering);
  } catch (const std::exception&) {
    // Of this set alone: the server goes on.
  }
  try {
    log_(outcome.ok() ? "saved " + name.to_string() + " of several nodes"
                      : "could not save " + name.to_string() + " of several nodes: " + outcome.to_string());
  } catch (const std::exception&) {
    // There is no memory to say so either.
  }
  const MutexLock lock(mutex_);
  for (const Member& member : gathering.members) member.files->finish(outcome);
  gathering.members.clear();
  gathering.ended = true;
}

double GatherService::rest_seconds(const SetName& name, const Gathering& gathering) const {
  std::map<double, std::string> nodes;  // by when they were done
  for (const Member& member : gathering.members) {
    if (const std::optional<double> done = done_at(member.offer.files)) nodes.emplace(*done, member.offer.node);
  }
  if (nodes.size() < 2) return 0;
  const double last = nodes.rbegin()->first, apart = last - nodes.begin()->first;
  // Nothing has changed since: of what is older than that, nothing is waited for.
  const double rest = std::min(apart, limits_.rest_seconds_max) - std::max(0.0, calendar_time() - last);
  if (rest >= 1)
    log_(fmt::format("{} of several nodes waits for {:.0f} s: node {} has written its files {:.0f} s before node {}",
                     name.to_string(), rest, nodes.begin()->second, apart, nodes.rbegin()->second));
  return std::max(0.0, rest);
}

Status GatherService::wait_for_all(const SetName& name, Gathering& gathering) {
  const auto deadline =
      MonotonicClock::now() + std::chrono::milliseconds(static_cast<int64_t>(limits_.wait_seconds * 1000));
  bool all_there = false;
  Moment rested{};  // when they have been for long enough
  const MutexLock lock(mutex_);
  while (true) {
    if (stopping_) return stopping();
    std::erase_if(gathering.members, [](const Member& member) { return member.files->has_left(); });
    if (gathering.members.empty()) break;
    const uint64_t wanted = gathering.members.front().offer.node_count;
    if (gathering.members.size() == wanted) {
      if (!all_there) rested = moment_after(std::chrono::duration<double>(rest_seconds(name, gathering)));
      all_there = true;
      if (MonotonicClock::now() < rested) {
        changed_.wait_until(mutex_, rested);
        continue;
      }
      // Who came first must not matter.
      std::sort(gathering.members.begin(), gathering.members.end(),
                [](const Member& a, const Member& b) { return a.offer.node < b.offer.node; });
      gathering.saving = true;
      return {};
    }
    all_there = false;
    if (gives_way(name, wanted)) {
      gathering.saving = true;
      return Status::busy(fmt::format("{} of {} nodes have offered their files, and the others offer later sets",
                                      gathering.members.size(), wanted),
                          name.to_string());
    }
    if (!changed_.wait_until(mutex_, deadline)) {
      gathering.saving = true;  // who comes now comes too late
      return Status::busy("only " + std::to_string(gathering.members.size()) + " of " + std::to_string(wanted) +
                              " nodes have offered their files",
                          name.to_string(), "is a watcher running on each node?");
    }
  }
  gathering.saving = true;
  return Status::busy("all nodes have gone away", name.to_string());
}

Status GatherService::save(const SetName& name, Gathering& gathering) {
  // Once all are there, nobody changes the members.
  AllFiles all;
  std::set<std::string> folders;
  for (size_t m = 0; m < gathering.members.size(); ++m) {
    const std::vector<SourceFile>& files = gathering.members[m].offer.files.files;
    for (size_t i = 0; i < files.size(); ++i) {
      const bool folder = files[i].type == FileType::directory;
      if (all.places.try_emplace(files[i].path, m, i).second) {
        all.files.push_back(files[i]);
      } else if (!folder || !folders.contains(files[i].path)) {
        return Status::already_exists("several nodes offer a file of the same name", files[i].path,
                                      "the nodes of a set have files of different names, such as one for each rank");
      }
      if (folder) folders.insert(files[i].path);
    }
  }
  std::sort(all.files.begin(), all.files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });

  SaveOptions options = gathering.members.front().offer.files.options;
  options.memory_bytes = limits_.memory_bytes;
  VARVE_TRY(check_save_options(options));
  VARVE_ASSIGN(const std::unique_ptr<Store> store, Store::open(backend_));
  VARVE_TRY(Catalog(*store).check_is_new(name));
  std::deque<NodeSource> groups;
  std::vector<Source*> sources;
  std::vector<std::vector<SourceFile>> grouped = split_into_groups(std::move(all.files), options);
  for (std::vector<SourceFile>& files : grouped) {
    std::vector<Layout> layouts;
    std::vector<NodeSource::Place> places;
    for (const SourceFile& file : files) {
      const auto [member, ordinal] = all.places.at(file.path);
      layouts.push_back(std::move(gathering.members[member].offer.files.layouts[ordinal]));
      places.push_back({gathering.members[member].files, ordinal});
    }
    sources.push_back(&groups.emplace_back(std::move(files), std::move(layouts), std::move(places),
                                           limits_.memory_bytes / 8 / grouped.size()));
  }
  StoppableProgress progress(stopping_);
  return save_groups(*store, sources, name, options, progress,
                     [&](WriterLease& lease, const SetRecord& record) -> Status {
                       // While the last group was saved, a file may have come to a node that has none in it.
                       for (const Member& member : gathering.members) VARVE_TRY(member.files->check_unchanged());
                       return lease.commit(record);
                     })
      .status();
}

uint64_t UnfinishedOffer::size() const {
  const MutexLock lock(mutex_);
  return raw_.size();
}

Status UnfinishedOffer::append(ByteSpan piece) {
  const MutexLock lock(mutex_);
  if (given_up_) return too_late();
  raw_.insert(raw_.end(), piece.begin(), piece.end());
  return {};
}

UnfinishedOffer::Whole UnfinishedOffer::take() {
  const MutexLock lock(mutex_);
  given_up_ = true;
  return {std::exchange(raw_, {}), std::move(room_)};
}

bool UnfinishedOffer::given_up() const {
  const MutexLock lock(mutex_);
  return given_up_;
}

Status UnfinishedOffer::too_late() {
  return Status::busy("the offer took too long to come, and others needed its room");
}

void UnfinishedOffer::give_up_if_late(double now) {
  const MutexLock lock(mutex_);
  if (given_up_ || now < give_up_at_) return;
  given_up_ = true;
  ByteVector().swap(raw_);
  room_.give_back();
}

OfferIntake::~OfferIntake() {
  if (!files_) return;
  files_->watch({});
  gather_.leave(files_);
}

Status OfferIntake::offer(const OfferRequest& request, ByteSpan data) {
  if (files_) return Status::invalid_argument("a connection offers one set");
  if (request.bytes > kOfferedBytesMax) return Status::resource_limit("an offer is too large");
  if (coming_ && coming_->given_up()) {
    coming_.reset();
    if (request.offset > 0) return UnfinishedOffer::too_late();
  }
  const uint64_t come = coming_ ? coming_->size() : 0;
  const bool is_first = come == 0;
  if (request.offset != come || (!is_first && request.bytes != coming_->bytes()) ||
      data.size() > request.bytes - request.offset)
    return Status::invalid_argument("the pieces of an offer do not follow one another");
  if (is_first) {
    coming_.reset();
    VARVE_ASSIGN(coming_, gather_.begin_offer(request.bytes));
  }
  VARVE_TRY(coming_->append(data));
  if (come + data.size() < request.bytes) return {};

  NodeOffer offer;
  const std::optional<SetName> set = parse_set_name(request.set);
  if (!set) return Status::invalid_argument("a set is JOB@STEP", request.set);
  offer.set = *set;
  offer.node = request.node;
  offer.node_count = request.node_count;
  offer.room = OfferRoom(gather_);
  {
    const UnfinishedOffer::Whole whole = coming_->take();
    coming_.reset();
    VARVE_ASSIGN(offer.files, decode_offered_files(whole.raw, [&](uint64_t bytes) { return offer.room.take(bytes); }));
  }
  VARVE_ASSIGN(files_, gather_.join(std::move(offer)));
  files_->watch(news_);
  return {};
}

Status OfferIntake::answer(const AnswerRequest& request, ByteSpan data) {
  if (!files_) return Status::invalid_argument("there is no offer that is being answered for");
  files_->answer(request.failure, data, request.hole_bytes);
  return {};
}

}  // namespace varve
