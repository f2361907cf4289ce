#include "serve/request_handler.h"

#include <algorithm>

#include "backend/put_aside.h"
#include "core/guarded.h"
#include "format/set_record.h"
#include "format/store_header.h"
#include "serve/rights.h"
#include "store/store.h"

namespace varve {

namespace {
/// More outcomes than these are forgotten once they are older than the time for which clients repeat a request; more
/// than the most in any case.
constexpr size_t kOutcomesKept = 65'536, kOutcomesMax = 8 * kOutcomesKept;
constexpr std::chrono::seconds kRepeatedFor(90);
}  // namespace

RequestLog::AnyReply RequestLog::once(const UniqueId& token, const std::function<AnyReply()>& act) {
  {
    const MutexLock lock(mutex_);
    const auto [entry, added] = entries_.try_emplace(token);
    if (!added) {
      if (entry->second.is_watched && !entry->second.done)
        return Reply<NoFields>(Status::invalid_argument("a request has the token of another one"));
      // Waited for by name: the entry may go while others come.
      std::optional<AnyReply> found = find(token);
      while (!found) {
        changed_.wait(mutex_);
        found = find(token);
      }
      return *std::move(found);
    }
  }
  try {
    AnyReply reply = act();
    note(token, reply);
    return reply;
  } catch (...) {
    forget(token);
    throw;
  }
}

void RequestLog::begin(const UniqueId& token, const std::function<Status()>& begin) {
  {
    const MutexLock lock(mutex_);
    const auto [entry, added] = entries_.try_emplace(token);
    if (!added) return;
    entry->second.is_watched = true;
  }
  try {
    const Status begun = begin();
    if (!begun.ok()) note(token, Reply<NoFields>(begun));
  } catch (...) {
    forget(token);
    throw;
  }
}

void RequestLog::finish(const UniqueId& token, const Result<TransferNumbers>& outcome) {
  // Without memory for it, who watches learns that nobody can tell.
  if (!run_guarded([&] { note(token, Reply<TransferNumbers>(outcome)); }).ok()) forget(token);
}

std::optional<RequestLog::AnyReply> RequestLog::find(const UniqueId& token) const {
  const auto entry = entries_.find(token);
  if (entry == entries_.end()) return Reply<NoFields>(Outcome::cannot_tell);
  return entry->second.done ? std::optional(entry->second.reply) : std::nullopt;
}

void RequestLog::note(const UniqueId& token, const AnyReply& reply) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[token];
  entry.reply = reply;
  const Moment now = MonotonicClock::now();
  oldest_.push_back({token, now});
  entry.done = true;
  while (oldest_.size() > kOutcomesMax || (oldest_.size() > kOutcomesKept && now - oldest_.front().at > kRepeatedFor)) {
    entries_.erase(oldest_.front().token);
    oldest_.pop_front();
  }
  tell(token);
}

void RequestLog::forget(const UniqueId& token) {
  const MutexLock lock(mutex_);
  entries_.erase(token);
  tell(token);
}

void RequestLog::tell(const UniqueId& token) {
  changed_.notify_all();
  const auto [begin, end] = watches_.equal_range(token);
  for (auto watch = begin; watch != end; ++watch) watch->second();
}

std::multimap<UniqueId, std::function<void()>>::iterator RequestLog::add_watch(const UniqueId& token,
                                                                               std::function<void()> news) {
  const MutexLock lock(mutex_);
  return watches_.emplace(token, std::move(news));
}

RequestLog::Watch::Watch(RequestLog& log, const UniqueId& token, std::function<void()> news)
    : log_(log), place_(log.add_watch(token, std::move(news))) {}

RequestLog::Watch::~Watch() {
  const MutexLock lock(log_.mutex_);
  log_.watches_.erase(place_);
}

std::optional<RequestLog::AnyReply> RequestLog::Watch::outcome() const {
  const MutexLock lock(log_.mutex_);
  return log_.find(place_->first);
}

namespace {
/// Index runs are mapped by the server: once one has its name, nobody may write to it any more, lest it ends under the
/// server's eyes.
bool is_index_run(std::string_view path) { return store_name_of(path) == StoreName::index_run; }

Status not_to_be_written() {
  return {StatusCode::permission_denied, "an index run that has its name is not written to any more"};
}
}  // namespace

std::byte* DataBuffer::get(size_t bytes) {
  if (bytes > kWireDataBytesMax) return nullptr;
  if (block_.empty()) block_ = AlignedBlock(kWireDataBytesMax);
  return block_.data();
}

RequestHandler::~RequestHandler() {
  if (greeted_) store_.files.end_connection(client_);
}

template <class Act>
auto RequestHandler::with_file(uint64_t handle, const Act& act) -> decltype(act(std::declval<File&>())) {
  const std::shared_ptr<OpenFiles::OpenFile> file = store_.files.find(client_, handle);
  if (!file) return Outcome::unknown_handle;
  return file->use(act);
}

RequestHandler::Answer RequestHandler::handle(const Request& request, ByteSpan data, DataBuffer& buffer) {
  Answer answer;
  const auto begun = MonotonicClock::now();
  bool done = false;
  Exchange exchange{request.again, data, buffer, answer};
  const bool may_begin = greeted_ || std::holds_alternative<HelloRequest>(request.message);
  const Status allowed = may_begin ? check_allowed(rights_, request.message)
                                   : Status(StatusCode::permission_denied, "a connection begins with hello");
  auto fill = [&](const auto& message) {
    auto reply = allowed.ok() ? carry_out(message, exchange) : allowed;
    if constexpr (requires { reply.fields.entries; }) answer.entries = std::move(reply.fields.entries);
    if constexpr (requires { reply.fields.descriptor; }) {
      if (rights_ == Rights::all && reply.outcome == Outcome::done)
        answer.file = store_.files.find(client_, reply.fields.handle);
    }
    done = reply.outcome == Outcome::done;
    answer.fields = encode_fields(std::move(reply));
  };
  std::visit(fill, request.message);
  if (transfer_) {  // it is counted once it has come to an end
    transfer_->kind = request.message.index();
    transfer_->begun = begun;
    return answer;
  }
  store_.counters.note(request.message.index(), done,
                       std::chrono::duration<double>(MonotonicClock::now() - begun).count(), data.size(),
                       answer.data.size());
  return answer;
}

namespace {
/// Of a message whose replies are those; another's token gives no more than its head.
template <class Wanted>
Wanted reply_of(const RequestLog::AnyReply& reply) {
  if (const auto* own = std::get_if<Wanted>(&reply)) return *own;
  return std::visit([](const ReplyHead& head) { return Wanted(head); }, reply);
}
}  // namespace

template <class Message>
ReplyTo<Message> RequestHandler::carry_out(const Message& message, Exchange& exchange) {
  if constexpr (kHasToken<Message> && !Message::kMessage.takes_long) {
    return reply_of<ReplyTo<Message>>(
        store_.log.once(message.token, [&]() -> RequestLog::AnyReply { return act(message, exchange); }));
  } else {
    return act(message, exchange);
  }
}

Reply<ServerFacts> RequestHandler::act(const HelloRequest& request, Exchange&) {
  if (greeted_) return Status::invalid_argument("hello is said once");
  VARVE_TRY(admit_());
  client_ = request.client;
  greeted_ = true;
  store_.files.begin_connection(client_);
  return ServerFacts{store_.server, store_.boot, store_.connections_max};
}

Reply<OpenedFile> RequestHandler::open(Result<ServedFile> file, const UniqueId* writer) {
  VARVE_TRY(file.status());
  OpenedFile opened{.bytes = file->bytes, .identity = file->identity};
  VARVE_ASSIGN(opened.handle, store_.files.add(client_, share_, *std::move(file), writer));
  return opened;
}

Reply<OpenedFile> RequestHandler::act(const OpenRequest& request, Exchange&) {
  return open(store_.folder.open_read(request.path), nullptr);
}

Reply<OpenedFile> RequestHandler::act(const CreateRequest& request, Exchange& exchange) {
  if (is_index_run(request.path)) return not_to_be_written();
  const OwnNames::Claim claim(store_.own, {request.path});
  Result<ServedFile> file = store_.folder.create(request.path, request.direct);
  if (exchange.again && rights_ == Rights::all && file.status().code() == StatusCode::already_exists)
    file = adopt(request, file.status());
  const StoreName name = store_name_of(request.path);
  if (file.ok() && (is_draft(name) || name == StoreName::part_failure)) store_.own.note(request.path, client_);
  return open(std::move(file), &request.token);
}

Reply<OpenedFile> RequestHandler::act(const ResumeRequest& request, Exchange&) {
  if (is_index_run(request.path)) return not_to_be_written();
  const OwnNames::Claim claim(store_.own, {request.path});
  if (rights_ != Rights::all) VARVE_TRY(check_own(request.path));
  store_.files.take_over(client_, request.writer);
  return open(store_.folder.open_again(request.path, request.direct, request.identity), &request.writer);
}

ReplyTo<ReadRequest> RequestHandler::act(const ReadRequest& request, Exchange& exchange) {
  uint64_t wanted = 0;
  for (const ReadRange& range : request.ranges) {
    if (range.bytes > kWireDataBytesMax || (wanted += range.bytes) > kWireDataBytesMax)
      return Status::resource_limit("more is to be read than fits into one answer");
  }
  std::byte* const into = exchange.buffer.get(wanted);
  if (into == nullptr) return Status::resource_limit("the server is out of memory");
  return with_file(request.handle, [&](File& file) -> ReplyTo<ReadRequest> {
    ReadRequest::ReplyFields read;
    size_t done = 0;
    for (const ReadRange& range : request.ranges) {
      VARVE_ASSIGN(const size_t got, file.read_at(range.offset, MutableByteSpan(into + done, range.bytes)));
      done += got;
      read.counts.push_back(got);
    }
    exchange.answer.data = ByteSpan(into, done);
    return read;
  });
}

Reply<NoFields> RequestHandler::act(const WriteRequest& request, Exchange& exchange) {
  return with_file(request.handle,
                   [&](File& file) -> Reply<NoFields> { return file.write_at(request.offset, exchange.data); });
}

Reply<NoFields> RequestHandler::act(const TruncateRequest& request, Exchange&) {
  return with_file(request.handle, [&](File& file) -> Reply<NoFields> { return file.truncate(request.bytes); });
}

Reply<NoFields> RequestHandler::act(const SyncRequest& request, Exchange&) {
  return with_file(request.handle, [](File& file) -> Reply<NoFields> { return file.sync(); });
}

Reply<ByteCount> RequestHandler::act(const SizeRequest& request, Exchange&) {
  return with_file(request.handle, [](File& file) -> Reply<ByteCount> {
    VARVE_ASSIGN(const uint64_t bytes, file.size());
    return ByteCount{bytes};
  });
}

Reply<NoFields> RequestHandler::act(const CloseRequest& request, Exchange&) {
  store_.files.close(client_, request.handle);
  return {};
}

Reply<FoundFile> RequestHandler::act(const StatRequest& request, Exchange&) { return store_.folder.stat(request.path); }

Reply<FolderEntries> RequestHandler::act(const ListRequest& request, Exchange&) {
  VARVE_ASSIGN(std::vector<DirectoryEntry> entries, store_.folder.list(request.path));
  return FolderEntries{std::move(entries)};
}

Reply<NoFields> RequestHandler::act(const CreateDirectoryRequest& request, Exchange&) {
  return store_.folder.create_directory(request.path);
}

Reply<NoFields> RequestHandler::act(const TouchRequest& request, Exchange&) {
  return store_.folder.touch(request.path);
}

Reply<ByteCount> RequestHandler::act(const RoomRequest& request, Exchange&) {
  VARVE_ASSIGN(const uint64_t bytes, store_.folder.free_bytes(request.path));
  return ByteCount{bytes};
}

ReplyTo<FindRequest> RequestHandler::act(const FindRequest& request, Exchange& exchange) {
  if (store_.chunks == nullptr) return FindRequest::ReplyFields{std::vector<uint64_t>(request.prefix_count)};
  std::vector<uint64_t> prefixes(request.prefix_count);
  for (size_t i = 0; i < prefixes.size(); ++i) prefixes[i] = load_le<uint64_t>(exchange.data.data() + 8 * i);
  std::vector<uint32_t> counts(prefixes.size());
  std::vector<ChunkCandidate> candidates;
  VARVE_TRY(store_.chunks->find(prefixes, counts, candidates));
  ByteWriter writer(exchange.answer.stored);
  for (const ChunkCandidate& candidate : candidates) {
    writer.bytes(candidate.arena.bytes);
    writer.le32(candidate.pack);
    writer.le32(candidate.chunk);
  }
  exchange.answer.data = exchange.answer.stored;
  return FindRequest::ReplyFields{{counts.begin(), counts.end()}};
}

Reply<TransferNumbers> RequestHandler::act(const PushRequest& request, Exchange& exchange) {
  return transfer(TransferDirection::push, request.token, request.what, exchange);
}

Reply<TransferNumbers> RequestHandler::act(const PullRequest& request, Exchange& exchange) {
  return transfer(TransferDirection::pull, request.token, request.what, exchange);
}

Reply<TransferNumbers> RequestHandler::transfer(TransferDirection direction, const UniqueId& token,
                                                const SetTransfer& what, Exchange& exchange) {
  if (!store_.transfer) return Status::unsupported("this server has no next level", "", "start it with --next");
  transfer_.emplace(store_.log, token, news_);
  const auto done = [&log = store_.log, token](const Result<TransferNumbers>& outcome) { log.finish(token, outcome); };
  store_.log.begin(token, [&] { return store_.transfer(direction, what, done); });
  const std::optional<RequestLog::AnyReply> outcome = transfer_->watch.outcome();
  exchange.answer.waits = !outcome;
  if (!outcome) return {};
  transfer_.reset();
  return reply_of<Reply<TransferNumbers>>(*outcome);
}

Result<OfferIntake*> RequestHandler::intake() {
  if (store_.gather == nullptr) return Status::unsupported("this server does not gather sets");
  if (!intake_) intake_ = std::make_unique<OfferIntake>(*store_.gather, news_);
  return intake_.get();
}

Reply<NoFields> RequestHandler::act(const OfferRequest& request, Exchange& exchange) {
  VARVE_ASSIGN(OfferIntake* const into, intake());
  return into->offer(request, exchange.data);
}

Reply<FileQuestion> RequestHandler::act(const AnswerRequest& request, Exchange& exchange) {
  VARVE_ASSIGN(OfferIntake* const into, intake());
  VARVE_TRY(into->answer(request, exchange.data));
  std::optional<Result<FileQuestion>> question = into->question();
  exchange.answer.waits = !question;
  if (!question) return FileQuestion();
  return *std::move(question);
}

RequestHandler::Answer RequestHandler::go_on() {
  Answer answer;
  if (transfer_) {
    const std::optional<RequestLog::AnyReply> outcome = transfer_->watch.outcome();
    answer.waits = !outcome;
    if (!outcome) return answer;
    auto reply = reply_of<Reply<TransferNumbers>>(*outcome);
    const double seconds = std::chrono::duration<double>(MonotonicClock::now() - transfer_->begun).count();
    store_.counters.note(transfer_->kind, reply.outcome == Outcome::done, seconds, 0, 0);
    transfer_.reset();
    answer.fields = encode_fields(std::move(reply));
    return answer;
  }
  std::optional<Result<FileQuestion>> question = intake_->question();
  answer.waits = !question;
  if (question) answer.fields = encode_fields(Reply<FileQuestion>(*std::move(question)));
  return answer;
}

Reply<NoFields> RequestHandler::act(const SyncDirectoryRequest& request, Exchange& exchange) {
  if (exchange.again) VARVE_TRY(store_.syncs.last_failure(request.path));
  const Status synced = store_.folder.sync_directory(request.path);
  // One that is not there was not synced.
  if (synced.code() == StatusCode::io_error || synced.code() == StatusCode::no_space)
    store_.syncs.note_failure(request.path, synced);
  return synced;
}

Status RequestHandler::check_own(const std::string& path) const {
  if (store_.own.is_of(path, client_) || store_name_of(path) == StoreName::run_file) return {};
  return {StatusCode::permission_denied,
          "the key has the right to add to the store, but not to change what others write", "",
          "the server may have been restarted since the file was made: do again what was being done"};
}

Result<ByteVector> RequestHandler::read_small(const std::string& path, uint64_t bytes_max) const {
  VARVE_ASSIGN(const ServedFile open, store_.folder.open_read(path));
  if (open.bytes > bytes_max) return Status::corrupt("larger than it can be");
  ByteVector bytes(open.bytes);
  VARVE_ASSIGN(const size_t got, open.file->read_at(0, bytes));
  bytes.resize(got);
  return bytes;
}

Status RequestHandler::check_new_header(const RenameRequest& request) const {
  const auto refused = [](const char* why) { return Status(StatusCode::permission_denied, why); };
  VARVE_ASSIGN(const FoundFile draft, store_.folder.stat(request.path));
  if (store_.files.is_being_written(draft.identity))
    return Status::busy("a header gets its name when it is complete and closed");
  VARVE_ASSIGN(const ByteVector made, read_small(request.path));
  const Result<ByteVector> there = read_small("varve.store");
  const Result<StoreHeader> header = there.ok() ? decode_store_header(*there, store_header_path("")) : there.status();
  if (store_name_of(request.to) == StoreName::header) {
    if (!decode_store_header(made, store_header_path("")).ok())
      return refused("what is no store's header cannot become one");
    const bool replaces = header.ok() && request.replace && !std::ranges::equal(made, *there);
    return replaces ? refused("the store has its header, which is made only once") : Status();
  }
  const Result<SpreadMember> member = decode_spread_member(as_text(made));
  if (!member.ok() || (header.ok() && member->store != header->store))
    return refused("this does not say which place of this store the folder is");
  return {};
}

Result<ServedFile> RequestHandler::adopt(const CreateRequest& request, const Status& taken) {
  // Sent before, to a server that is gone. Names of new files hold a random id of their writer's, so that an empty file
  // of that name is that request's. Marks alone are named after what they mark, and any prune may have made one.
  if (request.path.starts_with("condemned/")) return taken;
  const Result<FoundFile> there = store_.folder.stat(request.path);
  if (!there.ok() || there->status.is_directory || there->status.bytes > 0) return taken;
  return store_.folder.open_again(request.path, request.direct, there->identity);
}

Reply<NoFields> RequestHandler::remove(const std::string& path, bool again,
                                       Status (ServedFiles::*from_folder)(const std::string&)) {
  const OwnNames::Claim claim(store_.own, {path});
  if (rights_ != Rights::all) {
    // Parts of a set that is there are of no use to anybody: who completes it takes them away.
    const StoreName name = store_name_of(path);
    const bool is_used =
        (name == StoreName::part || name == StoreName::part_failure) && store_.folder.stat(record_of_part(path)).ok();
    const Status own = is_used ? Status() : check_own(path);
    const bool is_gone = store_.folder.stat(path).status().code() == StatusCode::not_found;
    if (!own.ok() && !is_gone) return own;
  }
  const Status removed = (store_.folder.*from_folder)(path);
  if (removed.ok()) store_.own.forget(path);
  // Sent before, to a server that is gone: the name is not there, as was wished.
  if (again && removed.code() == StatusCode::not_found) return {};
  return removed;
}

Reply<NoFields> RequestHandler::act(const RemoveRequest& request, Exchange& exchange) {
  return remove(request.path, exchange.again, &ServedFiles::remove);
}

Reply<NoFields> RequestHandler::act(const RemoveDirectoryRequest& request, Exchange& exchange) {
  return remove(request.path, exchange.again, &ServedFiles::remove_directory);
}

Status RequestHandler::check_new_name(const RenameRequest& request) const {
  if (is_index_run(request.path)) return not_to_be_written();
  if (is_index_run(request.to)) {
    const Result<FoundFile> run = store_.folder.stat(request.path);
    if (run.ok() && store_.files.is_being_written(run->identity))
      return Status::busy("an index run gets its name when it is complete and closed");
  }
  const StoreName goal = store_name_of(request.to);
  if (goal != StoreName::header && goal != StoreName::spread) return {};
  const Status fits = check_new_header(request);
  return fits.code() == StatusCode::not_found ? Status() : fits;
}

Reply<NoFields> RequestHandler::act(const RenameRequest& request, Exchange& exchange) {
  const OwnNames::Claim claim(store_.own, {request.path, request.to});
  VARVE_TRY(check_new_name(request));
  const StoreName goal = store_name_of(request.to);
  // What is sealed, and what only appends, replaces nothing.
  const bool may_replace = rights_ == Rights::all || goal == StoreName::run_file;
  const bool replace = request.replace && may_replace && goal != StoreName::arena;
  Result<FoundFile> file = Status::not_found("no such file");
  if (rights_ != Rights::all) {
    file = store_.folder.stat(request.path);
    // What was hidden by a removal that was stopped is given its name back by anybody.
    const std::optional<PutAside> aside = PutAside::parse(request.path);
    if (aside) {
      const Result<ByteVector> hidden = read_small(request.path, kSetRecordBytesMax);
      if (hidden.ok() && aside->is_to_go(*hidden))
        return Status(StatusCode::permission_denied, "the set is being removed");
    } else if (file.ok()) {
      VARVE_TRY(check_own(request.path));
    }
  }
  const Status renamed = store_.folder.rename(request.path, request.to, replace);
  if (renamed.ok()) {
    store_.own.forget(request.path);
    if (goal == StoreName::part) store_.own.note(request.to, client_);                       // it may be taken back
    if (file.ok() && goal != StoreName::run_file) store_.files.end_writing(file->identity);  // it is complete
  }
  auto goes_to = [&request](std::string_view folder) { return request.to.starts_with(folder); };
  if (renamed.ok() && (goes_to("sets/") || goes_to("parts/") || goes_to("index/"))) store_.committed();
  const bool gone = renamed.code() == StatusCode::not_found;
  const bool taken = renamed.code() == StatusCode::already_exists;
  if (exchange.again && (gone || taken)) return was_renamed(request, renamed);
  return renamed;
}

Reply<NoFields> RequestHandler::was_renamed(const RenameRequest& request, const Status& failure) const {
  // If the file is where it was to go, the server that is gone has renamed it.
  const Result<FoundFile> source = store_.folder.stat(request.path);
  const Result<FoundFile> target = store_.folder.stat(request.to);
  if (source.ok()) {
    // Unless it was stopped between the two halves of a rename that the file system cannot do at once.
    const bool half_done = target.ok() && target->identity == source->identity && source->identity.certain();
    return half_done ? store_.folder.remove(request.path) : failure;
  }
  if (source.status().code() != StatusCode::not_found) return Outcome::cannot_tell;
  if (target.status().code() == StatusCode::not_found) return failure;
  if (!target.ok() || !request.identity.certain()) return Outcome::cannot_tell;
  const Result<bool> same = store_.folder.is_same(request.to, request.identity);
  if (!same.ok()) return Outcome::cannot_tell;
  return *same ? Status() : failure;
}

}  // namespace varve
