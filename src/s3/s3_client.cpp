#include "s3/s3_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/quantity.h"
#include "core/thread_pool.h"
#include "s3/s3_sign.h"

namespace varve {

namespace {
constexpr uint64_t kListBytesMax = 16_MiB;
constexpr uint64_t kEtagBytesMax = 256;
constexpr size_t kRemovedAtOnceMax = 1000;
constexpr uint32_t kPartsMax = 10'000;
const HttpHeader kBytesType{"content-type", "application/octet-stream"};
const HttpHeader kXmlType{"content-type", "application/xml"};

/// Whether an ETag can stand in a header.
bool is_sound_etag(std::string_view etag) {
  return !etag.empty() && etag.size() <= kEtagBytesMax &&
         std::all_of(etag.begin(), etag.end(), [](char c) { return c > ' ' && c <= '~' && c != '"'; });
}

bool is_md5(std::string_view etag) {
  return etag.size() == 32 && etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Whether the service may have made the ETag of something else than the plain bytes.
bool is_encrypted(const HttpReply& reply) {
  const std::string* const method = reply.header("x-amz-server-side-encryption");
  return (method != nullptr && *method != "AES256") ||
         reply.header("x-amz-server-side-encryption-customer-algorithm") != nullptr;
}

Result<std::string> etag_of(const HttpReply& reply, const std::string& where) {
  const std::string* const etag = reply.header("etag");
  if (etag == nullptr || !is_sound_etag(bare_etag(*etag)))
    return Status::corrupt("the service's reply has no ETag that makes sense", where);
  return bare_etag(*etag);
}

Result<int64_t> modified_of(const HttpReply& reply, const std::string& where) {
  const std::string* const modified = reply.header("last-modified");
  if (modified == nullptr)
    return Status::corrupt("the service's reply does not say when the object was written", where);
  return parse_http_date(*modified);
}

/// The numbers of "bytes 0-499/1234".
struct ContentRange {
  uint64_t first = 0, last = 0, object_bytes = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const Result<uint64_t> first = parse_number(text.substr(kUnit.size(), dash - kUnit.size()));
  const Result<uint64_t> last = parse_number(text.substr(dash + 1, slash - dash - 1));
  const Result<uint64_t> whole = parse_number(text.substr(slash + 1));
  if (!first.ok() || !last.ok() || !whole.ok() || *first > *last || *last >= *whole) return std::nullopt;
  return ContentRange{*first, *last, *whole};
}

/// Ranges that one request reads: [first, last) of those that are sorted.
struct ReadGroup {
  size_t first = 0, last = 0;
  uint64_t offset = 0, end = 0;
};

uint64_t end_of(const S3Range& range) { return range.offset + range.into.size(); }

std::vector<ReadGroup> group_ranges(const std::vector<S3Range>& sorted, const S3ClientOptions& options) {
  std::vector<ReadGroup> groups;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const S3Range& range = sorted[i];
    if (!groups.empty()) {
      ReadGroup& group = groups.back();
      const uint64_t end = std::max(group.end, end_of(range));
      const uint64_t gap = range.offset > group.end ? range.offset - group.end : 0;
      if (gap <= options.gap_bytes_max && end - group.offset <= options.read_bytes_max) {
        group.last = i + 1;
        group.end = end;
        continue;
      }
    }
    groups.push_back({i, i + 1, range.offset, end_of(range)});
  }
  return groups;
}

/// Whether it is the ETag of these bytes, also where nothing can be told.
bool has_md5_of(const HttpReply& reply, ByteSpan bytes, const S3ClientOptions& options) {
  const std::string* const etag = reply.header("etag");
  if (!options.check_etags || is_encrypted(reply) || etag == nullptr || !is_md5(bare_etag(*etag))) return true;
  const std::optional<ByteVector> md5 = md5_of(bytes);
  return !md5 || to_hex(*md5) == bare_etag(*etag);
}

// Not tried again: the service had their SHA-256 sum with them, too, and would be expected to look at it.
Status check_written(const HttpReply& reply, ByteSpan bytes, const S3ClientOptions& options, const std::string& where) {
  if (has_md5_of(reply, bytes, options)) return {};
  return Status::corrupt("the service has other bytes than were sent: their MD5 sum is not the ETag that it answers",
                         where);
}

HttpHeader if_match(const std::string& etag, bool quoted) { return {"if-match", quoted ? "\"" + etag + "\"" : etag}; }

Status check_read(const HttpReply& reply, uint64_t offset, uint64_t bytes, const std::string& where) {
  if (reply.status == 200) {
    return Status::unsupported("the service sends the whole object where a part of it was asked for", where);
  }
  const std::string* const text = reply.header("content-range");
  const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
  if (!range) return Status::corrupt("the service does not say which part of the object it sends", where);
  const uint64_t end = std::min(offset + bytes, range->object_bytes);
  if (range->first != offset || range->last + 1 != end)
    return Status::corrupt("the service sends another part of the object than was asked for", where);
  if (reply.into_bytes != end - offset) return Status::io_error("the reply ends early", where);
  return {};
}

/// `where` outlives the call.
S3Call read_call(const std::string& key, const std::string& where, uint64_t offset, MutableByteSpan into) {
  return {.verb = S3Verb::get,
          .key = key,
          .query = {},
          .headers = {{"range", fmt::format("bytes={}-{}", offset, offset + into.size() - 1)}},
          .body = {},
          .into = into,
          .check = [&where, offset, bytes = into.size()](const HttpReply& reply) {
            return check_read(reply, offset, bytes, where);
          }};
}

Result<S3Object> object_of(const HttpReply& reply, const std::string& key, uint64_t bytes, const std::string& where) {
  VARVE_ASSIGN(std::string etag, etag_of(reply, where));
  VARVE_ASSIGN(const int64_t modified, modified_of(reply, where));
  return S3Object{key, bytes, modified, std::move(etag)};
}

/// A page of a list; one that makes no sense is asked for again.
template <class Page>
Result<Page> ask_for_page(S3Requests& requests, S3Verb verb, const std::string& query,
                          Result<Page> (*parse)(ByteSpan)) {
  Page page;
  const S3Answer answer = requests.send({.verb = verb,
                                         .key = {},
                                         .query = query,
                                         .headers = {},
                                         .body = {},
                                         .into = {},
                                         .body_bytes_max = kListBytesMax,
                                         .check = [&](const HttpReply& reply) -> Status {
                                           VARVE_ASSIGN(page, parse(reply.body));
                                           return {};
                                         }});
  VARVE_TRY(answer.status);
  return page;
}
}  // namespace

S3Client::S3Client(HttpTransport& transport, const S3Place& place, S3Settings settings, S3ClientOptions options)
    : options_(std::move(options)), requests_(transport, std::move(settings), place.bucket, options_.retries) {}

S3Answer S3Client::send_put(const std::string& key, ByteSpan bytes, const HttpHeader* condition,
                            std::optional<int64_t> signed_at, bool& repeated) {
  S3Call call{
      .verb = S3Verb::put, .key = key, .query = {}, .headers = {kBytesType}, .body = bytes, .into = {}, .check = {}};
  if (condition != nullptr) call.headers.push_back(*condition);
  call.signed_at = signed_at;
  call.check = [&](const HttpReply& reply) { return check_written(reply, bytes, options_, requests_.subject(key)); };
  S3Answer answer = requests_.send(call);
  repeated = repeated || answer.repeated;
  return answer;
}

Result<std::string> S3Client::put(const std::string& key, ByteSpan bytes, const S3Condition& condition) {
  bool repeated = false;
  return put_noting(key, bytes, condition, {}, repeated);
}

S3Outcome S3Client::put_as_of(const std::string& key, ByteSpan bytes, const S3Condition& condition, int64_t signed_at) {
  S3Outcome outcome;
  outcome.status = put_noting(key, bytes, condition, signed_at, outcome.repeated).status();
  return outcome;
}

Result<std::string> S3Client::put_noting(const std::string& key, ByteSpan bytes, const S3Condition& condition,
                                         std::optional<int64_t> signed_at, bool& repeated) {
  VARVE_TRY(check_s3_key(key));
  if (condition.kind == S3Condition::Kind::unchanged)
    return put_unchanged(key, bytes, condition.etag, signed_at, repeated);
  const HttpHeader if_none_match{"if-none-match", "*"};
  const bool absent = condition.kind == S3Condition::Kind::absent;
  const S3Answer answer = send_put(key, bytes, absent ? &if_none_match : nullptr, signed_at, repeated);
  if (answer.status.ok()) return etag_of(answer.reply, requests_.subject(key));
  if (!absent || answer.reply.status != 412) return answer.status;
  if (answer.repeated) {
    if (const auto etag = find_equal(key, bytes)) return *etag;
  }
  return Status::already_exists("the object is there already", requests_.subject(key));
}

Result<std::string> S3Client::put_unchanged(const std::string& key, ByteSpan bytes, const std::string& etag,
                                            std::optional<int64_t> signed_at, bool& repeated) {
  if (!is_sound_etag(etag)) return Status::invalid_argument("an ETag that no object has", requests_.subject(key));
  const EtagForm known = etag_form_.load();
  for (const EtagForm form : {EtagForm::bare, EtagForm::quoted}) {
    if (known != EtagForm::unknown && form != known) continue;
    const HttpHeader condition = if_match(etag, form == EtagForm::quoted);
    const S3Answer answer = send_put(key, bytes, &condition, signed_at, repeated);
    if (answer.status.ok()) {
      etag_form_.store(form);
      return etag_of(answer.reply, requests_.subject(key));
    }
    const int status = answer.reply.status;
    const bool conflict = answer.code == "ConditionalRequestConflict";
    if (status != 412 && status != 400 && !conflict && answer.code != "NoSuchKey") return answer.status;
    if (answer.repeated) {
      if (const auto equal = find_equal(key, bytes)) return *equal;
    }
    if (known == EtagForm::unknown && (status == 412 || status == 400)) {
      // Refused for the change of the object, or for the form?
      const Result<S3Object> object = head(key);
      if (!object.ok() && object.status().code() != StatusCode::not_found) return object.status();
      if (object.ok() && object->etag == etag) continue;
    }
    if (status == 400) return answer.status;
    return Status::busy("the object was changed by somebody else meanwhile", requests_.subject(key));
  }
  return Status::unsupported("the service refuses to replace the object although it is unchanged",
                             requests_.subject(key), "it does not know If-Match");
}

std::optional<std::string> S3Client::find_equal(const std::string& key, ByteSpan bytes) {
  const Result<S3Contents> there = read_all(key, bytes.size());
  if (!there.ok() || !std::equal(bytes.begin(), bytes.end(), there->bytes.begin(), there->bytes.end()))
    return std::nullopt;
  return there->etag;
}

Status S3Client::remove(const std::string& key) { return remove_noting(key, {}).status; }

S3Outcome S3Client::remove_as_of(const std::string& key, int64_t signed_at) { return remove_noting(key, signed_at); }

S3Outcome S3Client::remove_noting(const std::string& key, std::optional<int64_t> signed_at) {
  if (const Status sound = check_s3_key(key); !sound.ok()) return {sound};
  S3Call call{.verb = S3Verb::remove, .key = key, .query = {}, .headers = {}, .body = {}, .into = {}, .check = {}};
  call.signed_at = signed_at;
  const S3Answer answer = requests_.send(call);
  const bool was_gone = answer.reply.status == 404 && answer.code != "NoSuchBucket";
  return {was_gone ? Status() : answer.status, answer.repeated};
}

Status S3Client::remove_many(std::span<const std::string> keys) {
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kRemovedAtOnceMax))) {
    // Keys are such that XML needs no escapes.
    std::string xml = "<Delete><Quiet>true</Quiet>";
    for (const std::string& key : keys.first(std::min(keys.size(), kRemovedAtOnceMax))) {
      VARVE_TRY(check_s3_key(key));
      xml += "<Object><Key>" + key + "</Key></Object>";
    }
    xml += "</Delete>";
    const std::optional<ByteVector> md5 = md5_of(as_bytes(xml));
    if (!md5) return Status::unsupported("removing many objects at once needs MD5, which this system forbids");
    std::vector<std::string> left;
    const S3Answer answer = requests_.send({.verb = S3Verb::remove_many,
                                            .key = {},
                                            .query = "delete=",
                                            .headers = {kXmlType, {"content-md5", to_base64(*md5)}},
                                            .body = as_bytes(xml),
                                            .into = {},
                                            .body_bytes_max = kListBytesMax,
                                            .check = [&](const HttpReply& reply) -> Status {
                                              VARVE_ASSIGN(left, parse_s3_not_removed(reply.body));
                                              return {};
                                            }});
    VARVE_TRY(answer.status);
    if (!left.empty()) {
      return Status(StatusCode::permission_denied, fmt::format("{} objects could not be removed", left.size()),
                    left.front().substr(0, 200));
    }
  }
  return {};
}

Result<uint64_t> S3Client::read(const std::string& key, uint64_t offset, MutableByteSpan into, std::string_view etag) {
  VARVE_TRY(check_s3_key(key));
  if (into.empty()) return uint64_t{0};
  const std::string where = requests_.subject(key);
  if (offset > INT64_MAX - into.size()) return Status::invalid_argument("no object is so large", where);
  S3Call call = read_call(key, where, offset, into);
  if (!etag.empty()) {
    if (!is_sound_etag(etag)) return Status::invalid_argument("an ETag that no object has", where);
    call.headers.push_back(if_match(std::string(etag), true));
  }
  const S3Answer answer = requests_.send(call);
  if (answer.reply.status == 416) return uint64_t{0};
  if (answer.reply.status == 412) return Status::busy("the object was replaced meanwhile", where);
  VARVE_TRY(answer.status);
  return answer.reply.into_bytes;
}

Status S3Client::read_many(const std::string& key, std::span<const S3Range> ranges, std::string_view etag) {
  std::vector<S3Range> sorted;
  for (const S3Range& range : ranges) {
    if (range.offset > INT64_MAX - range.into.size())
      return Status::invalid_argument("no object is so large", requests_.subject(key));
    if (!range.into.empty()) sorted.push_back(range);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const S3Range& one, const S3Range& other) { return one.offset < other.offset; });
  const std::vector<ReadGroup> groups = group_ranges(sorted, options_);
  const auto read_whole = [&](uint64_t offset, MutableByteSpan into) -> Status {
    VARVE_ASSIGN(const uint64_t got, read(key, offset, into, etag));
    if (got == into.size()) return {};
    return Status::corrupt(fmt::format("the object ends at byte {}, before what is to be read", offset + got),
                           requests_.subject(key));
  };
  return parallel_for(groups.size(), options_.requests_at_once, [&](size_t i) -> Status {
    const ReadGroup& group = groups[i];
    if (group.last - group.first == 1) return read_whole(group.offset, sorted[group.first].into);
    Buffer buffer(group.end - group.offset);
    VARVE_TRY(read_whole(group.offset, buffer));
    for (size_t j = group.first; j < group.last; ++j) {
      const std::byte* const from = buffer.data() + (sorted[j].offset - group.offset);
      std::copy_n(from, sorted[j].into.size(), sorted[j].into.begin());
    }
    return {};
  });
}

Result<S3Object> S3Client::read_begin(const std::string& key, MutableByteSpan into) {
  VARVE_TRY(check_s3_key(key));
  const std::string where = requests_.subject(key);
  const S3Answer answer = requests_.send(read_call(key, where, 0, into));
  if (answer.reply.status == 416) return head(key);  // nothing is in it
  VARVE_TRY(answer.status);
  const auto range = parse_content_range(*answer.reply.header("content-range"));  // check_read() has seen it
  return object_of(answer.reply, key, range->object_bytes, where);
}

Result<S3Contents> S3Client::read_all(const std::string& key, uint64_t bytes_max) {
  VARVE_TRY(check_s3_key(key));
  const std::string where = requests_.subject(key);
  S3Contents contents;
  S3Answer answer =
      requests_.send({.verb = S3Verb::get,
                      .key = key,
                      .query = {},
                      .headers = {},
                      .body = {},
                      .into = {},
                      .body_bytes_max = std::max<uint64_t>(bytes_max, 64_KiB),
                      .check = [&](const HttpReply& reply) -> Status {
                        if (reply.header("content-length") == nullptr)
                          return Status::corrupt("the service does not say how long the object is", where);
                        VARVE_ASSIGN(contents.etag, etag_of(reply, where));
                        VARVE_ASSIGN(contents.modified_seconds, modified_of(reply, where));
                        if (has_md5_of(reply, reply.body, options_)) return {};
                        return Status::io_error("the object arrived damaged: its MD5 sum is not its ETag", where);
                      }});
  VARVE_TRY(answer.status);
  if (answer.reply.body.size() > bytes_max) {
    return Status::resource_limit(
        fmt::format("the object has {} bytes, more than {}", answer.reply.body.size(), bytes_max), where);
  }
  contents.bytes = std::move(answer.reply.body);
  return contents;
}

Result<S3Object> S3Client::head(const std::string& key) {
  VARVE_TRY(check_s3_key(key));
  const S3Answer answer = requests_.send(
      {.verb = S3Verb::head, .key = key, .query = {}, .headers = {}, .body = {}, .into = {}, .check = {}});
  VARVE_TRY(answer.status);
  const std::string* const length = answer.reply.header("content-length");
  const Result<uint64_t> bytes = parse_number(length == nullptr ? "" : *length);
  if (!bytes.ok()) return Status::corrupt("the service does not say how long the object is", requests_.subject(key));
  return object_of(answer.reply, key, *bytes, requests_.subject(key));
}

Result<S3Listing> S3Client::list(const std::string& prefix, std::string_view delimiter) {
  S3Listing listing;
  std::string token;
  while (true) {
    std::string query = "encoding-type=url&list-type=2&prefix=" + percent_encode(prefix);
    if (!delimiter.empty()) query += "&delimiter=" + percent_encode(delimiter);
    if (!token.empty()) query += "&continuation-token=" + percent_encode(token);
    VARVE_ASSIGN(S3ListPage page, ask_for_page(requests_, S3Verb::list, query, parse_s3_list));
    const auto is_foreign = [&](const std::string& key) { return !key.starts_with(prefix); };
    if (std::any_of(page.objects.begin(), page.objects.end(),
                    [&](const S3Object& one) { return is_foreign(one.key); }) ||
        std::any_of(page.prefixes.begin(), page.prefixes.end(), is_foreign)) {
      return Status::corrupt("the service lists other objects than were asked for", requests_.subject(prefix));
    }
    std::move(page.objects.begin(), page.objects.end(), std::back_inserter(listing.objects));
    std::move(page.prefixes.begin(), page.prefixes.end(), std::back_inserter(listing.prefixes));
    if (page.next_token.empty()) return listing;
    if (page.next_token == token) return Status::corrupt("the service lists in a circle", requests_.subject(prefix));
    if (listing.objects.size() + listing.prefixes.size() > options_.list_entries_max)
      return Status::resource_limit("there are too many objects to list", requests_.subject(prefix));
    token = std::move(page.next_token);
  }
}

Result<std::string> S3Client::begin_upload(const std::string& key) {
  VARVE_TRY(check_s3_key(key));
  std::string id;
  const S3Answer answer = requests_.send({.verb = S3Verb::upload_begin,
                                          .key = key,
                                          .query = "uploads=",
                                          .headers = {kBytesType},
                                          .body = {},
                                          .into = {},
                                          .check = [&](const HttpReply& reply) -> Status {
                                            VARVE_ASSIGN(id, parse_s3_upload_id(reply.body));
                                            return {};
                                          }});
  VARVE_TRY(answer.status);
  return id;
}

Result<std::string> S3Client::upload_part(const std::string& key, const std::string& id, uint32_t number,
                                          ByteSpan bytes) {
  VARVE_TRY(check_s3_key(key));
  if (number == 0 || number > kPartsMax)
    return Status::invalid_argument(fmt::format("an upload has parts 1 to {}", kPartsMax), requests_.subject(key));
  const S3Answer answer = requests_.send(
      {.verb = S3Verb::upload_part,
       .key = key,
       .query = fmt::format("partNumber={}&uploadId={}", number, percent_encode(id)),
       .headers = {kBytesType},
       .body = bytes,
       .into = {},
       .check = [&](const HttpReply& reply) { return check_written(reply, bytes, options_, requests_.subject(key)); }});
  if (answer.code == "NoSuchUpload")
    return Status::not_found("there is no such upload any more", requests_.subject(key));
  VARVE_TRY(answer.status);
  return etag_of(answer.reply, requests_.subject(key));
}

Result<std::string> S3Client::complete_upload(const std::string& key, const std::string& id,
                                              std::span<const Part> parts, const S3Condition& condition) {
  VARVE_TRY(check_s3_key(key));
  std::string xml = "<CompleteMultipartUpload>";
  for (const Part& part : parts) {
    if (!is_sound_etag(part.etag) || part.etag.find_first_of("<>&") != std::string::npos)
      return Status::invalid_argument("an ETag that no part has", requests_.subject(key));
    xml += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>&quot;{}&quot;</ETag></Part>", part.number, part.etag);
  }
  xml += "</CompleteMultipartUpload>";
  S3Call call{.verb = S3Verb::upload_complete,
              .key = key,
              .query = "uploadId=" + percent_encode(id),
              .headers = {kXmlType},
              .body = as_bytes(xml),
              .into = {},
              .check = {}};
  if (condition.kind == S3Condition::Kind::absent) call.headers.push_back({"if-none-match", "*"});
  if (condition.kind == S3Condition::Kind::unchanged) {
    if (!is_sound_etag(condition.etag))
      return Status::invalid_argument("an ETag that no object has", requests_.subject(key));
    call.headers.push_back(if_match(condition.etag, etag_form_.load() == EtagForm::quoted));
  }
  std::string etag;
  call.check = [&](const HttpReply& reply) -> Status {
    // A failure after the status of success went out, to keep the connection alive.
    if (const S3Error error = parse_s3_error(reply.body); !error.code.empty()) {
      const bool passes =
          error.code == "InternalError" || error.code == "SlowDown" || error.code == "ServiceUnavailable";
      return Status(passes ? StatusCode::io_error : StatusCode::invalid_argument,
                    fmt::format("the upload failed while it was completed: {}", error.code), requests_.subject(key));
    }
    VARVE_ASSIGN(etag, parse_s3_completed(reply.body));
    return {};
  };
  const S3Answer answer = requests_.send(call);
  if (answer.status.ok()) return etag;
  Status refused = answer.status;
  if (answer.reply.status == 412) {
    refused = condition.kind == S3Condition::Kind::absent
                  ? Status::already_exists("the object is there already", requests_.subject(key))
                  : Status::busy("the object was changed by somebody else meanwhile", requests_.subject(key));
  } else if (answer.code == "NoSuchUpload") {
    refused = Status::not_found("there is no such upload any more", requests_.subject(key));
  } else {
    return answer.status;
  }
  return answer.repeated ? settle_complete(key, parts, refused) : refused;
}

/// The reply to an upload's completion was lost, and now it is refused: is that since it was completed?
Result<std::string> S3Client::settle_complete(const std::string& key, std::span<const Part> parts,
                                              const Status& refused) {
  const Result<S3Object> object = head(key);
  if (!object.ok()) return object.status().code() == StatusCode::not_found ? refused : object.status();
  uint64_t bytes = 0;
  ByteVector sums;
  for (const Part& part : parts) {
    bytes += part.bytes;
    if (!is_md5(part.etag)) continue;
    for (size_t i = 0; i < part.etag.size(); i += 2)
      sums.push_back(static_cast<std::byte>(std::stoi(part.etag.substr(i, 2), nullptr, 16)));
  }
  if (object->bytes != bytes) return refused;
  // Of parts whose ETags are MD5 sums, the object's is the sum of these, and their count.
  const std::optional<ByteVector> md5 = md5_of(sums);
  const std::string expected = md5 ? fmt::format("{}-{}", to_hex(*md5), parts.size()) : "";
  const bool comparable = options_.check_etags && md5 && sums.size() == 16 * parts.size();
  if (comparable && object->etag != expected) return refused;
  return object->etag;
}

Status S3Client::abort_upload(const std::string& key, const std::string& id) {
  VARVE_TRY(check_s3_key(key));
  const S3Answer answer = requests_.send({.verb = S3Verb::upload_abort,
                                          .key = key,
                                          .query = "uploadId=" + percent_encode(id),
                                          .headers = {},
                                          .body = {},
                                          .into = {},
                                          .check = {}});
  return answer.code == "NoSuchUpload" ? Status() : answer.status;
}

Result<std::vector<S3PendingUpload>> S3Client::list_uploads(const std::string& prefix) {
  std::vector<S3PendingUpload> uploads;
  std::string key_marker, id_marker;
  while (true) {
    std::string query = "encoding-type=url&uploads=&prefix=" + percent_encode(prefix);
    if (!key_marker.empty()) query += "&key-marker=" + percent_encode(key_marker);
    if (!id_marker.empty()) query += "&upload-id-marker=" + percent_encode(id_marker);
    VARVE_ASSIGN(S3UploadPage page, ask_for_page(requests_, S3Verb::upload_list, query, parse_s3_uploads));
    for (S3PendingUpload& upload : page.uploads) {
      if (!upload.key.starts_with(prefix))
        return Status::corrupt("the service lists other uploads than were asked for", requests_.subject(prefix));
      uploads.push_back(std::move(upload));
    }
    if (page.next_key.empty()) return uploads;
    if (page.next_key == key_marker && page.next_id == id_marker)
      return Status::corrupt("the service lists in a circle", requests_.subject(prefix));
    if (uploads.size() > options_.list_entries_max)
      return Status::resource_limit("there are too many uploads to list", requests_.subject(prefix));
    key_marker = std::move(page.next_key);
    id_marker = std::move(page.next_id);
  }
}

Result<std::unique_ptr<S3Upload>> S3Upload::begin(S3Client& client, std::string key) {
  VARVE_ASSIGN(std::string id, client.begin_upload(key));
  return std::unique_ptr<S3Upload>(new S3Upload(client, std::move(key), std::move(id)));
}

S3Upload::~S3Upload() {
  if (!ended_) abort().ignore("what is left is cleaned up by who lists uploads");
}

Status S3Upload::part(uint32_t number, ByteSpan bytes) {
  VARVE_ASSIGN(std::string etag, client_.upload_part(key_, id_, number, bytes));
  const MutexLock lock(mutex_);
  std::erase_if(parts_, [&](const S3Client::Part& other) { return other.number == number; });
  parts_.push_back({number, std::move(etag), bytes.size()});
  return {};
}

Result<std::string> S3Upload::complete(const S3Condition& condition) {
  const MutexLock lock(mutex_);
  std::sort(parts_.begin(), parts_.end(), [](const auto& one, const auto& other) { return one.number < other.number; });
  if (parts_.empty() || parts_.back().number != parts_.size())
    return Status::internal("an upload is completed of which parts are missing", key_);
  VARVE_ASSIGN(std::string etag, client_.complete_upload(key_, id_, parts_, condition));
  ended_ = true;
  return etag;
}

Status S3Upload::abort() {
  ended_ = true;
  return client_.abort_upload(key_, id_);
}

}  // namespace varve
