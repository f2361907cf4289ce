#include "runtime/snapshot_relay.h"

#include <algorithm>

#include "core/blocked_signals.h"
#include "core/guarded.h"
#include "core/status_codec.h"
#include "core/sync.h"

namespace varve {

using Kind = RelayMessage::Kind;

namespace {
constexpr std::chrono::milliseconds kLookInterval(200);
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
      view_->bell().wait(seen, kLookInterval);
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
