#include "runtime/snapshot_relay.h"

#include <algorithm>

#include "core/guarded.h"
#include "core/process.h"
#include "core/status_codec.h"
#include "core/sync.h"

namespace varve {

namespace {
constexpr size_t kMessageBytes = 4 + 4 * 8;
/// Of a status or news; bytes of an image are no payload.
constexpr uint64_t kPayloadBytesMax = 64_KiB;
}  // namespace

Status send_relay(Communicator& ranks, uint32_t to, uint32_t tag, RelayMessage message, ByteSpan payload) {
  message.payload_bytes = payload.size();
  ByteVector bytes;
  ByteWriter out(bytes);
  out.le32(static_cast<uint32_t>(message.kind));
  out.le64(message.step);
  out.le64(message.offset);
  out.le64(message.bytes);
  out.le64(message.payload_bytes);
  VARVE_TRY(ranks.send(to, tag, bytes));
  return payload.empty() ? Status() : ranks.send(to, tag, payload);
}

Result<RelayMessage> receive_relay(Communicator& ranks, uint32_t from, uint32_t tag, ByteVector& payload) {
  std::array<std::byte, kMessageBytes> bytes{};
  VARVE_TRY(ranks.receive(from, tag, bytes));
  ByteReader in(bytes);
  RelayMessage message;
  VARVE_ASSIGN(const uint32_t kind, in.le32());
  if (kind < static_cast<uint32_t>(RelayMessage::Kind::full) ||
      kind > static_cast<uint32_t>(RelayMessage::Kind::reply)) {
    return Status::corrupt("a rank sent a message of no known kind");
  }
  message.kind = static_cast<RelayMessage::Kind>(kind);
  VARVE_ASSIGN(message.step, in.le64());
  VARVE_ASSIGN(message.offset, in.le64());
  VARVE_ASSIGN(message.bytes, in.le64());
  VARVE_ASSIGN(message.payload_bytes, in.le64());
  if (message.payload_bytes > kPayloadBytesMax) return Status::corrupt("a rank sent a message that is too long");
  payload.resize(message.payload_bytes);
  if (!payload.empty()) VARVE_TRY(ranks.receive(from, tag, payload));
  return message;
}

using Kind = RelayMessage::Kind;

Result<std::optional<uint64_t>> RemoteMember::next_step() {
  if (!step_ && !ended_) {
    ByteVector payload;
    const Result<RelayMessage> message = receive_relay(ranks_, rank_, RelayMessage::kTagToLeader, payload);
    const bool sense = message.ok() && (message->kind == Kind::full || message->kind == Kind::lacks);
    ended_ = !sense;
    if (!message.ok()) return message.status();
    if (sense) {
      step_ = message->step;
      full_ = message->kind == Kind::full;
    }
  }
  return step_;
}

bool RemoteMember::will_lack(uint64_t step) { return ended_ || !step_ || *step_ > step || !full_; }

Status RemoteMember::ask(const RelayMessage& message, RelayMessage& reply) {
  VARVE_TRY(send_relay(ranks_, rank_, RelayMessage::kTagToMember, message));
  ByteVector payload;
  VARVE_ASSIGN(reply, receive_relay(ranks_, rank_, RelayMessage::kTagToLeader, payload));
  if (reply.kind != Kind::reply) return Status::corrupt("a rank did not answer what it was asked");
  Status outcome;
  VARVE_TRY(decode_status(payload, outcome));
  return outcome;
}

Result<DrainedImage*> RemoteMember::begin_drain(uint64_t step) {
  RelayMessage reply;
  VARVE_TRY(ask({.kind = Kind::begin, .step = step}, reply));
  const uint64_t image_bytes = reply.bytes;
  if (image_bytes < kImagePrefixBytes) return Status::corrupt("a rank's snapshot is too short");
  ByteVector header(kImagePrefixBytes);
  VARVE_TRY(image_.read(0, header));
  VARVE_ASSIGN(const uint64_t header_bytes, image_header_bytes(header, image_bytes));
  header.resize(header_bytes);
  VARVE_TRY(image_.read(0, header));
  VARVE_ASSIGN(image_.table, decode_image_header(header, image_bytes));
  return &image_;
}

Status RemoteMember::Image::read(uint64_t offset, MutableByteSpan into) {
  RelayMessage reply;
  VARVE_TRY(member_.ask({.kind = Kind::read, .offset = offset, .bytes = into.size()}, reply));
  return member_.ranks_.receive(member_.rank_, RelayMessage::kTagToLeader, into);
}

Status RemoteMember::Image::check_unchanged() {
  RelayMessage reply;
  return member_.ask({.kind = Kind::check}, reply);
}

Status RemoteMember::end_drain(uint64_t step, const Status& outcome) {
  if (step_ != step || !full_) return {};
  return send_relay(ranks_, rank_, RelayMessage::kTagToMember, {.kind = Kind::drained, .step = step},
                    encode_status(outcome));
}

void RemoteMember::post(const GroupNews& news) {
  if (!step_ || !news.finished_step || *news.finished_step < *step_) return;
  const Status sent = send_relay(ranks_, rank_, RelayMessage::kTagToMember, {.kind = Kind::finished, .step = *step_},
                                 encode_news(news));
  if (!sent.ok()) ended_ = true;
  step_.reset();
}

using Kind = RelayMessage::Kind;

namespace {
constexpr std::chrono::milliseconds kRelayLookInterval(200);
/// No question is for more, so that a leader gone wild cannot have all memory taken.
constexpr uint64_t kReadBytesMax = 1_GiB;
}  // namespace

Status SnapshotRelay::start() {
  const BlockedSignals blocked;
  Result<Thread> started = start_thread([this] { run(); });
  if (!started.ok()) {
    tell_end();
    return started.status();
  }
  thread_ = std::move(*started);
  return {};
}

void SnapshotRelay::tell_end() {
  send_relay(ranks_, leader_, RelayMessage::kTagToLeader, {.kind = Kind::ending})
      .ignore("a leader that is gone waits for nothing");
}

void SnapshotRelay::stop() {
  stopping_ = true;
  view_->bell().ring();
  if (thread_.joinable()) thread_.join();
}

std::optional<RelayMessage> SnapshotRelay::next_offer() const {
  // In this order: what became full before it was given up for a later step is seen.
  const std::optional<uint64_t> given_up = view_->given_up();
  const std::vector<uint64_t> full = view_->full_steps();
  const bool lacks = given_up && (!finished_ || *given_up > *finished_);
  if (!full.empty() && (!lacks || full.front() <= *given_up))
    return RelayMessage{.kind = Kind::full, .step = full.front()};
  if (lacks) return RelayMessage{.kind = Kind::lacks, .step = *given_up};
  return std::nullopt;
}

void SnapshotRelay::run() {
  Status status;
  while (status.ok()) {
    const uint32_t seen = view_->bell().count();
    const bool stopping = stopping_;
    if (const std::optional<RelayMessage> offer = next_offer()) {
      status = run_guarded([&] { return serve(*offer); });
    } else if (stopping) {
      return tell_end();
    } else {
      view_->bell().wait(seen, kRelayLookInterval);
    }
  }
  // The leader cannot be reached: the rank must not wait for it for ever.
  view_->end_drain(status);
  GroupNews news;
  news.last_error = status.with_context("the rank that writes this group's checkpoints cannot be reached");
  news.finished_step = UINT64_MAX;
  view_->post(news);
}

Status SnapshotRelay::serve(const RelayMessage& offer) {
  VARVE_TRY(send_relay(ranks_, leader_, RelayMessage::kTagToLeader, offer));
  for (;;) {
    ByteVector payload;
    VARVE_ASSIGN(const RelayMessage message, receive_relay(ranks_, leader_, RelayMessage::kTagToMember, payload));
    if (message.kind == Kind::drained) {
      Status outcome;
      VARVE_TRY(decode_status(payload, outcome));
      // A snapshot that nobody wants was not taken yet.
      if (reader_ == nullptr) view_->begin_drain(message.step).status().ignore("then there is nothing to give back");
      reader_ = nullptr;
      view_->end_drain(outcome);
    } else if (message.kind == Kind::finished) {
      VARVE_ASSIGN(const GroupNews news, decode_news(payload));
      finished_ = std::max(offer.step, news.finished_step.value_or(0));
      view_->post(news);
      return {};
    } else {
      VARVE_TRY(answer(message));
    }
  }
}

Status SnapshotRelay::answer(const RelayMessage& question) {
  if (question.kind == Kind::begin) {
    const Result<const SnapshotReader*> reader = view_->begin_drain(question.step);
    reader_ = reader.ok() ? *reader : nullptr;
    return reply(reader.status(), reader.ok() ? (*reader)->image().image_bytes : 0);
  }
  if (reader_ == nullptr) return reply(Status::internal("nothing is being drained"));
  if (question.kind == Kind::check) return reply(reader_->has_lent_grids() ? reader_->verify() : Status());
  if (question.kind != Kind::read || question.bytes > kReadBytesMax) {
    return reply(Status::corrupt("a leader's message makes no sense"));
  }
  Buffer bytes;
  const Status read = run_guarded([&] {
    bytes = Buffer(question.bytes);
    return reader_->read(question.offset, {bytes.data(), bytes.size()});
  });
  VARVE_TRY(reply(read));
  if (!read.ok()) return {};
  return ranks_.send(leader_, RelayMessage::kTagToLeader, {bytes.data(), bytes.size()});
}

Status SnapshotRelay::reply(const Status& outcome, uint64_t bytes) {
  return send_relay(ranks_, leader_, RelayMessage::kTagToLeader, {.kind = Kind::reply, .bytes = bytes},
                    encode_status(outcome));
}

}  // namespace varve
