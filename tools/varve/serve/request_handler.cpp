#include "serve/request_handler.h"

#include <algorithm>

#include "format/store_header.h"
#include "serve/rights.h"
#include "store/store.h"

namespace varve {

namespace {
/// Far more than clients can have sent within the time for which they repeat a request.
constexpr size_t kOutcomesMax = 65'536;
}  // namespace

Reply RequestLog::once(const UniqueId& token, const std::function<Reply()>& act) {
  {
    const MutexLock lock(mutex_);
    const auto [found, added] = entries_.try_emplace(token);
    if (!added) {
      // Waited for by name: the entry may go while others come.
      auto entry = entries_.find(token);
      while (entry != entries_.end() && !entry->second.done) {
        changed_.wait(mutex_);
        entry = entries_.find(token);
      }
      if (entry != entries_.end()) return entry->second.reply;
      Reply forgotten;
      forgotten.outcome = Outcome::cannot_tell;
      return forgotten;
    }
  }
  try {
    Reply reply = act();
    {
      const MutexLock lock(mutex_);
      oldest_.push_back(token);
      entries_[token] = {true, reply};
      while (oldest_.size() > kOutcomesMax) {
        entries_.erase(oldest_.front());
        oldest_.pop_front();
      }
    }
    changed_.notify_all();
    return reply;
  } catch (...) {
    forget(token);
    throw;
  }
}

void RequestLog::forget(const UniqueId& token) {
  {
    const MutexLock lock(mutex_);
    entries_.erase(token);
  }
  changed_.notify_all();
}

namespace {
Reply reply_of(const Status& status) {
  Reply reply;
  if (!status.ok()) reply.outcome = Outcome::failed;
  reply.status = status;
  return reply;
}

/// Index runs are mapped by the server: once one has its name, nobody may write to it any more, lest it ends under the
/// server's eyes.
bool is_index_run(std::string_view path) { return store_name_of(path) == StoreName::index_run; }

Status not_to_be_written() {
  return {StatusCode::permission_denied, "an index run that has its name is not written to any more"};
}

Reply cannot_tell() {
  Reply reply;
  reply.outcome = Outcome::cannot_tell;
  return reply;
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
Reply RequestHandler::with_file(const Request& request, const Act& act) {
  const std::shared_ptr<OpenFiles::OpenFile> file = store_.files.find(client_, request.handle);
  return file ? file->use(act) : OpenFiles::unknown();
}

RequestHandler::Answer RequestHandler::handle(const Request& request, ByteSpan data, const SignOfLife& alive) {
  Answer answer;
  auto with_reply = [&answer](Reply reply) {
    answer.reply = std::move(reply);
    return std::move(answer);
  };
  if (!greeted_ && request.message != Message::hello)
    return with_reply(reply_of(Status(StatusCode::permission_denied, "a connection begins with hello")));
  if (const Status allowed = check_allowed(rights_, request); !allowed.ok()) return with_reply(reply_of(allowed));
  const ServedFolder& folder = store_.folder;
  switch (request.message) {
    case Message::hello: return with_reply(greet(request));
    case Message::ping:
    case Message::goodbye: return answer;
    case Message::open: return with_reply(open(request, folder.open_read(request.path), false));
    case Message::resume: return with_reply(resume(request));
    case Message::read: return read(request);
    case Message::write:
      return with_reply(with_file(request, [&](File& file) { return reply_of(file.write_at(request.offset, data)); }));
    case Message::truncate:
      return with_reply(with_file(request, [&](File& file) { return reply_of(file.truncate(request.bytes)); }));
    case Message::sync: return with_reply(with_file(request, [](File& file) { return reply_of(file.sync()); }));
    case Message::size:
      return with_reply(with_file(request, [](File& file) {
        const Result<uint64_t> bytes = file.size();
        Reply reply = reply_of(bytes.status());
        if (bytes.ok()) reply.file.bytes = *bytes;
        return reply;
      }));
    case Message::close: store_.files.close(client_, request.handle); return answer;
    case Message::stat: {
      const Result<ServedFolder::Found> found = folder.stat(request.path);
      answer.reply = reply_of(found.status());
      if (!found.ok()) return answer;
      answer.reply.file = found->status;
      answer.reply.identity = found->identity;
      return answer;
    }
    case Message::list: {
      Result<std::vector<DirectoryEntry>> entries = folder.list(request.path);
      answer.reply = reply_of(entries.status());
      if (entries.ok()) answer.entries = std::move(*entries);
      return answer;
    }
    case Message::room: {
      const Result<uint64_t> bytes = folder.free_bytes(request.path);
      answer.reply = reply_of(bytes.status());
      if (bytes.ok()) answer.reply.free_bytes = *bytes;
      return answer;
    }
    case Message::create_directory: return with_reply(reply_of(folder.create_directory(request.path)));
    case Message::touch: return with_reply(reply_of(folder.touch(request.path)));
    case Message::sync_directory: return with_reply(sync_directory(request));
    case Message::create:
    case Message::remove:
    case Message::remove_directory:
    case Message::rename: return with_reply(store_.log.once(request.token, [&] { return act_once(request); }));
    case Message::find: return find(request, data);
    case Message::offer:
    case Message::answer: return gather(request, data, alive);
    case Message::push:
    case Message::pull:
      if (!store_.transfer)
        return with_reply(reply_of(Status::unsupported("this server has no next level", "", "start it with --next")));
      return with_reply(store_.log.once(request.token, [&] { return store_.transfer(request, alive); }));
  }
  return with_reply(reply_of(Status::unsupported("this server does not know that request")));
}

std::shared_ptr<OpenFiles::OpenFile> RequestHandler::descriptor_of(Message message, const Reply& reply) {
  if (rights_ != Rights::all) return nullptr;
  const bool opens = message == Message::open || message == Message::create || message == Message::resume;
  return opens && reply.outcome == Outcome::done ? store_.files.find(client_, reply.handle) : nullptr;
}

Reply RequestHandler::greet(const Request& request) {
  if (greeted_) return reply_of(Status::invalid_argument("hello is said once"));
  if (const Status admitted = admit_(); !admitted.ok()) return reply_of(admitted);
  client_ = request.client;
  greeted_ = true;
  store_.files.begin_connection(client_);
  Reply reply;
  reply.server = store_.server;
  reply.boot = store_.boot;
  reply.connections = store_.connections_max;
  return reply;
}

Reply RequestHandler::open(const Request& request, Result<ServedFolder::OpenFile> file, bool written) {
  if (!file.ok()) return reply_of(file.status());
  const Result<uint64_t> handle =
      store_.files.add(client_, std::move(file->file), file->descriptor, written ? &request.token : nullptr);
  if (!handle.ok()) return reply_of(handle.status());
  Reply reply;
  reply.handle = *handle;
  reply.identity = file->identity;
  reply.file.bytes = file->bytes;
  return reply;
}

RequestHandler::Answer RequestHandler::read(const Request& request) {
  Answer answer;
  uint64_t wanted = 0;
  for (const ReadRange& range : request.ranges) {
    if (range.bytes > kWireDataBytesMax || (wanted += range.bytes) > kWireDataBytesMax) {
      answer.reply = reply_of(Status::resource_limit("more is to be read than fits into one answer"));
      return answer;
    }
  }
  std::byte* const into = buffer_.get(wanted);
  if (into == nullptr) {
    answer.reply = reply_of(Status::resource_limit("the server is out of memory"));
    return answer;
  }
  size_t done = 0;
  answer.reply = with_file(request, [&](File& file) {
    Reply reply;
    for (const ReadRange& range : request.ranges) {
      const Result<size_t> got = file.read_at(range.offset, MutableByteSpan(into + done, range.bytes));
      if (!got.ok()) return reply_of(got.status());
      done += *got;
      reply.counts.push_back(*got);
    }
    return reply;
  });
  if (answer.reply.outcome == Outcome::done) answer.data = ByteSpan(into, done);
  return answer;
}

RequestHandler::Answer RequestHandler::find(const Request& request, ByteSpan data) {
  Answer answer;
  answer.reply.counts.resize(request.prefix_count);
  if (store_.chunks == nullptr) return answer;
  std::vector<uint64_t> prefixes(request.prefix_count);
  for (size_t i = 0; i < prefixes.size(); ++i) prefixes[i] = load_le<uint64_t>(data.data() + 8 * i);
  std::vector<uint32_t> counts(prefixes.size());
  std::vector<ChunkCandidate> candidates;
  if (const Status found = store_.chunks->find(prefixes, counts, candidates); !found.ok()) {
    answer.reply = reply_of(found);
    return answer;
  }
  ByteWriter writer(answer.stored);
  for (const ChunkCandidate& candidate : candidates) {
    writer.bytes(candidate.arena.bytes);
    writer.le32(candidate.pack);
    writer.le32(candidate.chunk);
  }
  answer.reply.counts.assign(counts.begin(), counts.end());
  answer.data = answer.stored;
  return answer;
}

RequestHandler::Answer RequestHandler::gather(const Request& request, ByteSpan data, const SignOfLife& alive) {
  Answer answer;
  if (store_.gather == nullptr) {
    answer.reply = reply_of(Status::unsupported("this server does not gather sets"));
    return answer;
  }
  if (!intake_) intake_ = std::make_unique<OfferIntake>(*store_.gather);
  if (request.message == Message::offer) {
    answer.reply = reply_of(intake_->offer(request, data));
    return answer;
  }
  const Result<FileQuestion> next = intake_->answer(request, data, alive);
  answer.reply = reply_of(next.status());
  if (next.ok()) answer.reply.question = *next;
  return answer;
}

Reply RequestHandler::act_once(const Request& request) {
  if (request.message == Message::rename) return rename(request);
  return request.message == Message::create ? create(request) : remove(request);
}

Reply RequestHandler::create(const Request& request) {
  if (is_index_run(request.path)) return reply_of(not_to_be_written());
  const MutexLock lock(store_.own.changing());
  Result<ServedFolder::OpenFile> file = store_.folder.create(request.path, request.direct);
  if (request.again && rights_ == Rights::all && file.status().code() == StatusCode::already_exists)
    file = adopt(request, file.status());
  const StoreName name = store_name_of(request.path);
  if (file.ok() && (is_draft(name) || name == StoreName::part_failure)) store_.own.note(request.path, client_);
  return open(request, std::move(file), true);
}

Reply RequestHandler::resume(const Request& request) {
  if (is_index_run(request.path)) return reply_of(not_to_be_written());
  const MutexLock lock(store_.own.changing());
  if (rights_ != Rights::all) {
    if (const Status own = check_own(request.path); !own.ok()) return reply_of(own);
  }
  store_.files.take_over(client_, request.token);
  return open(request, store_.folder.open_again(request.path, request.direct, request.identity), true);
}

Reply RequestHandler::sync_directory(const Request& request) {
  if (request.again) {
    if (const Status failed = store_.syncs.last_failure(request.path); !failed.ok()) return reply_of(failed);
  }
  const Status synced = store_.folder.sync_directory(request.path);
  // One that is not there was not synced.
  if (synced.code() == StatusCode::io_error || synced.code() == StatusCode::no_space)
    store_.syncs.note_failure(request.path, synced);
  return reply_of(synced);
}

Status RequestHandler::check_own(const std::string& path) const {
  if (store_.own.is_of(path, client_) || store_name_of(path) == StoreName::run_file) return {};
  return {StatusCode::permission_denied,
          "the key has the right to add to the store, but not to change what others write", "",
          "the server may have been restarted since the file was made: do again what was being done"};
}

Result<ByteVector> RequestHandler::read_small(const std::string& path) const {
  constexpr uint64_t bytes_max = 4096;
  VARVE_ASSIGN(const ServedFolder::OpenFile open, store_.folder.open_read(path));
  if (open.bytes > bytes_max) return Status::corrupt("larger than it can be");
  ByteVector bytes(open.bytes);
  VARVE_ASSIGN(const size_t got, open.file->read_at(0, bytes));
  bytes.resize(got);
  return bytes;
}

Status RequestHandler::check_new_header(const Request& request) const {
  const auto refused = [](const char* why) { return Status(StatusCode::permission_denied, why); };
  VARVE_ASSIGN(const ServedFolder::Found draft, store_.folder.stat(request.path));
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

Result<ServedFolder::OpenFile> RequestHandler::adopt(const Request& request, const Status& taken) {
  // Sent before, to a server that is gone. Names of new files hold a random id of their writer's, so that an empty file
  // of that name is that request's. Marks alone are named after what they mark, and any prune may have made one.
  if (request.path.starts_with("condemned/")) return taken;
  const Result<ServedFolder::Found> there = store_.folder.stat(request.path);
  if (!there.ok() || there->status.is_directory || there->status.bytes > 0) return taken;
  return store_.folder.open_again(request.path, request.direct, there->identity);
}

Reply RequestHandler::remove(const Request& request) {
  const MutexLock lock(store_.own.changing());
  if (rights_ != Rights::all) {
    // Parts of a set that is there are of no use to anybody: who completes it takes them away.
    const StoreName name = store_name_of(request.path);
    const bool is_used = (name == StoreName::part || name == StoreName::part_failure) &&
                         store_.folder.stat(record_of_part(request.path)).ok();
    const Status own = is_used ? Status() : check_own(request.path);
    const bool is_gone = store_.folder.stat(request.path).status().code() == StatusCode::not_found;
    if (!own.ok() && !is_gone) return reply_of(own);
  }
  const Status removed = request.message == Message::remove ? store_.folder.remove(request.path)
                                                            : store_.folder.remove_directory(request.path);
  if (removed.ok()) store_.own.forget(request.path);
  // Sent before, to a server that is gone: the name is not there, as was wished.
  if (request.again && removed.code() == StatusCode::not_found) return {};
  return reply_of(removed);
}

Reply RequestHandler::rename(const Request& request) {
  if (is_index_run(request.path)) return reply_of(not_to_be_written());
  if (is_index_run(request.to)) {
    const Result<ServedFolder::Found> run = store_.folder.stat(request.path);
    if (run.ok() && store_.files.is_being_written(run->identity))
      return reply_of(Status::busy("an index run gets its name when it is complete and closed"));
  }
  const StoreName goal = store_name_of(request.to);
  if (goal == StoreName::header || goal == StoreName::spread) {
    const Status fits = check_new_header(request);
    if (!fits.ok() && fits.code() != StatusCode::not_found) return reply_of(fits);
  }
  const MutexLock lock(store_.own.changing());
  // What is sealed, and what only appends, replaces nothing.
  const bool may_replace = rights_ == Rights::all || goal == StoreName::run_file;
  const bool replace = request.replace && may_replace && goal != StoreName::arena;
  Result<ServedFolder::Found> file = Status::not_found("no such file");
  if (rights_ != Rights::all) {
    file = store_.folder.stat(request.path);
    const Status own = file.ok() ? check_own(request.path) : Status();
    if (!own.ok()) return reply_of(own);
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
  if (!request.again || (!gone && !taken)) return reply_of(renamed);
  // Sent before, to a server that is gone. If the file is where it was to go, that one has renamed it.
  const Result<ServedFolder::Found> source = store_.folder.stat(request.path);
  const Result<ServedFolder::Found> target = store_.folder.stat(request.to);
  if (source.ok()) {
    // Unless it was stopped between the two halves of a rename that the file system cannot do at once.
    const bool half_done = target.ok() && target->identity == source->identity && source->identity.certain();
    return reply_of(half_done ? store_.folder.remove(request.path) : renamed);
  }
  if (source.status().code() != StatusCode::not_found) return cannot_tell();
  if (!target.ok()) return target.status().code() == StatusCode::not_found ? reply_of(renamed) : cannot_tell();
  if (!request.identity.certain()) return cannot_tell();
  return target->identity == request.identity ? Reply{} : reply_of(renamed);
}

}  // namespace varve
