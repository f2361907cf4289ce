#include "runtime/remote_member.h"

#include "core/status_codec.h"
#include "runtime/relay_message.h"

namespace varve {

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

}  // namespace varve
