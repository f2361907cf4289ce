#include "service/offer_set.h"

#include <algorithm>

#include "service/offered_files.h"
#include "service/remote_reply.h"

namespace varve {

namespace {
/// Answers the server's questions about a source.
class Answerer {
 public:
  Answerer(Source& source, ProgressSink& progress) : source_(source), progress_(progress) {}

  /// The answer goes into `request` and data().
  void answer(const FileQuestion& question, Request& request) {
    data_.clear();
    request.bytes = 0;
    request.failure = progress_.cancelled() ? Status::cancelled() : look(question, request);
    if (!request.failure.ok()) data_.clear();
  }
  ByteSpan data() const { return data_; }

 private:
  Status look(const FileQuestion& question, Request& request) {
    if (question.kind == FileQuestion::Kind::unchanged) return source_.check_unchanged();
    // A server gets only what was offered.
    if (question.file >= source_.files().size()) return unknown();
    const auto file = static_cast<uint32_t>(question.file);
    const uint64_t bytes = source_.files()[file].bytes;
    if (source_.files()[file].type != FileType::regular || question.offset > bytes ||
        question.bytes > bytes - question.offset)
      return unknown();
    if (question.kind == FileQuestion::Kind::hole) {
      VARVE_ASSIGN(request.bytes, source_.hole_bytes(file, question.offset, question.bytes));
      return {};
    }
    if (question.bytes > kWireDataBytesMax) return unknown();
    data_.resize(question.bytes);
    VARVE_TRY(source_.read(file, question.offset, data_));
    progress_.advance(question.bytes);
    return {};
  }
  static Status unknown() { return Status::invalid_argument("the server asks for what was not offered"); }

  Source& source_;
  ProgressSink& progress_;
  ByteVector data_;
};

Status send_offer(ServerConnection& connection, const SetOffer& offer, const ByteVector& raw) {
  Request request;
  request.message = Message::offer;
  request.path = offer.name.to_string();
  request.node = offer.node;
  request.node_count = offer.node_count;
  request.bytes = raw.size();
  while (request.offset < raw.size()) {
    const size_t bytes = std::min<size_t>(raw.size() - request.offset, kWireDataBytesMax);
    VARVE_ASSIGN(const Reply reply, connection.ask(request, ByteSpan(raw).subspan(request.offset, bytes)));
    VARVE_TRY(failure_of(reply, request.path));
    request.offset += bytes;
  }
  return {};
}

/// A connection that is lost ends the set's saving; the next offer may have more luck.
Status as_busy(const Status& failure) {
  if (failure.code() != StatusCode::io_error) return failure;
  return Status::busy(std::string(failure.message()), std::string(failure.subject()));
}
}  // namespace

Status offer_set(ServerLink& link, const SetOffer& offer, Source& source, ProgressSink& progress) {
  OfferedFiles offered;
  offered.options = offer.options;
  offered.files = source.files();
  VARVE_ASSIGN(offered.layouts, source.layouts(progress));
  const ByteVector raw = encode_offered_files(offered);
  if (raw.size() > kOfferedBytesMax)
    return Status::resource_limit("a node's offer is too large", offer.name.to_string(), "save it by `varve save`");
  VARVE_ASSIGN(std::unique_ptr<ServerConnection> connection, link.take_own());
  if (const Status sent = send_offer(*connection, offer, raw); !sent.ok()) return as_busy(sent);

  Answerer answerer(source, progress);
  Request request;
  request.message = Message::answer;
  while (true) {
    const Result<Reply> reply = connection->ask(request, answerer.data());
    if (!reply.ok()) return as_busy(reply.status());
    VARVE_TRY(failure_of(*reply, offer.name.to_string()));
    if (reply->question.kind == FileQuestion::Kind::none) break;
    answerer.answer(reply->question, request);
  }
  return {};
}

}  // namespace varve
