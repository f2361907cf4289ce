#include "serve/offer.h"

#include <algorithm>
#include <limits>

#include "service/remote_file_system.h"

namespace varve {

namespace {
constexpr uint64_t kGroupSizeMax = 1'000'000;

void put_options(ByteWriter& out, const SaveOptions& options) {
  out.text(scheme_name(options.scheme));
  out.text(options.codec.name());
  out.text(chunker_name(options.chunker));
  out.text(options.variables.match.text());
  for (const uint64_t number :
       {options.block_bytes, uint64_t{options.ranks.group_size}, options.pack_bytes, options.variables.small_bytes})
    out.varint(number);
}

Result<SaveOptions> get_options(ByteReader& in) {
  SaveOptions options;
  VARVE_ASSIGN(const std::string_view scheme, in.text());
  VARVE_ASSIGN(options.scheme, parse_scheme(scheme));
  VARVE_ASSIGN(const std::string_view codec, in.text());
  VARVE_ASSIGN(options.codec, CodecPolicy::parse(codec));
  VARVE_ASSIGN(const std::string_view chunker, in.text());
  VARVE_ASSIGN(options.chunker, parse_chunker(chunker));
  VARVE_ASSIGN(const std::string_view match, in.text());
  VARVE_ASSIGN(options.variables.match, MatchRule::parse(std::string(match)));
  VARVE_ASSIGN(options.block_bytes, in.varint());
  VARVE_ASSIGN(const uint64_t group_size, in.varint());
  VARVE_ASSIGN(options.pack_bytes, in.varint());
  VARVE_ASSIGN(options.variables.small_bytes, in.varint());
  if (group_size == 0 || group_size > kGroupSizeMax || options.block_bytes > 1_GiB)
    return Status::corrupt("impossible options of a set");
  options.ranks.group_size = static_cast<uint32_t>(group_size);
  return options;
}

void put_file(ByteWriter& out, const SourceFile& file, const Layout& layout) {
  out.text(file.path);
  out.u8(static_cast<uint8_t>(file.type));
  out.varint(file.mode);
  out.signed_varint(file.modified_s);
  out.varint(file.modified_ns);
  out.signed_varint(file.rank);
  if (file.type == FileType::symlink) out.text(file.link_target);
  if (file.type != FileType::regular) return;
  out.varint(file.bytes);
  out.u8(file.sparse ? 1 : 0);
  encode_layout(layout, out);
}

/// Of a file, but for its layout: twice and in a map, as where all nodes' files are put in order.
uint64_t memory_bytes(const SourceFile& file) {
  constexpr uint64_t bytes_of_a_map_entry = 100;
  const uint64_t texts = text_memory_bytes(file.path.size()) + text_memory_bytes(file.link_target.size());
  const uint64_t bytes = 2 * (sizeof file + texts) + bytes_of_a_map_entry;
  return file.type == FileType::directory ? bytes + bytes_of_a_map_entry + texts : bytes;
}

Status get_file(ByteReader& in, SourceFile& file, Layout& layout, const TakeMemory& take) {
  const Status impossible = Status::corrupt("an impossible file in an offer");
  VARVE_ASSIGN(const std::string_view path, in.text());
  VARVE_ASSIGN(const uint8_t type, in.u8());
  VARVE_ASSIGN(const uint64_t mode, in.varint());
  VARVE_ASSIGN(file.modified_s, in.signed_varint());
  VARVE_ASSIGN(const uint64_t modified_ns, in.varint());
  VARVE_ASSIGN(file.rank, in.signed_varint());
  if (!path_is_safe(path) || type > static_cast<uint8_t>(FileType::symlink) || mode > 07777 ||
      modified_ns >= 1'000'000'000 || file.rank < -1)
    return impossible;
  file.path = path;
  file.type = static_cast<FileType>(type);
  file.mode = static_cast<uint32_t>(mode);
  file.modified_ns = static_cast<uint32_t>(modified_ns);
  if (file.type == FileType::symlink) {
    VARVE_ASSIGN(const std::string_view target, in.text());
    if (target.size() > kPathBytesMax) return impossible;
    file.link_target = target;
  }
  if (take) VARVE_TRY(take(memory_bytes(file) - sizeof file));
  if (file.type != FileType::regular) return {};
  VARVE_ASSIGN(file.bytes, in.varint());
  VARVE_ASSIGN(const uint8_t sparse, in.u8());
  if (file.bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) || sparse > 1) return impossible;
  file.sparse = sparse == 1;
  VARVE_ASSIGN(layout, decode_layout(in, take));
  return validate_layout(layout, file.bytes);
}
}  // namespace

ByteVector encode_offered_files(const OfferedFiles& offered) {
  ByteVector raw;
  ByteWriter out(raw);
  put_options(out, offered.options);
  out.varint(offered.files.size());
  for (size_t i = 0; i < offered.files.size(); ++i) put_file(out, offered.files[i], offered.layouts[i]);
  return raw;
}

Result<OfferedFiles> decode_offered_files(ByteSpan raw, const TakeMemory& take) {
  constexpr uint64_t bytes_of_a_file_min = 7;
  ByteReader in(raw);
  OfferedFiles offered;
  VARVE_ASSIGN(offered.options, get_options(in));
  VARVE_ASSIGN(const uint64_t count, in.count(bytes_of_a_file_min));
  if (count > kFilesPerLeafMax) return Status::resource_limit("too many files in an offer");
  if (take) VARVE_TRY(take(count * (sizeof(SourceFile) + sizeof(Layout))));
  offered.files.reserve(count);
  offered.layouts.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_TRY(get_file(in, offered.files.emplace_back(), offered.layouts.emplace_back(), take));
    if (i > 0 && !(offered.files[i - 1].path < offered.files[i].path))
      return Status::corrupt("the files of an offer are not in order");
  }
  if (!in.at_end()) return Status::corrupt("an offer has bytes after its last file");
  return offered;
}

namespace {
/// Answers the server's questions about a source.
class Answerer {
 public:
  Answerer(Source& source, ProgressSink& progress) : source_(source), progress_(progress) {}

  /// What is asked for goes into data().
  AnswerRequest answer(const FileQuestion& question) {
    data_.clear();
    AnswerRequest answer;
    answer.failure = progress_.cancelled() ? Status::cancelled() : look(question, answer.hole_bytes);
    if (!answer.failure.ok()) data_.clear();
    return answer;
  }
  ByteSpan data() const { return data_; }

 private:
  Status look(const FileQuestion& question, uint64_t& hole_bytes) {
    if (question.kind == FileQuestion::Kind::unchanged) return source_.check_unchanged();
    // A server gets only what was offered.
    if (question.file >= source_.files().size()) return unknown();
    const auto file = static_cast<uint32_t>(question.file);
    const uint64_t bytes = source_.files()[file].bytes;
    if (source_.files()[file].type != FileType::regular || question.offset > bytes ||
        question.bytes > bytes - question.offset)
      return unknown();
    if (question.kind == FileQuestion::Kind::hole) {
      VARVE_ASSIGN(hole_bytes, source_.hole_bytes(file, question.offset, question.bytes));
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
  OfferRequest request{.set = offer.name.key(), .node = offer.node, .node_count = offer.node_count};
  request.bytes = raw.size();
  while (request.offset < raw.size()) {
    const size_t bytes = std::min<size_t>(raw.size() - request.offset, kWireDataBytesMax);
    const auto reply = connection.ask(request, {.data = ByteSpan(raw).subspan(request.offset, bytes)});
    VARVE_TRY(fields_of(reply, request.set).status());
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

  connection->give_up_if([&] { return progress.cancelled(); });
  Answerer answerer(source, progress);
  AnswerRequest answer;
  while (true) {
    const auto reply = connection->ask(answer, {.data = answerer.data()});
    if (!reply.ok()) return as_busy(reply.status());
    VARVE_ASSIGN(const FileQuestion question, fields_of(reply, offer.name.to_string()));
    if (question.kind == FileQuestion::Kind::none) break;
    answer = answerer.answer(question);
  }
  return {};
}

}  // namespace varve
