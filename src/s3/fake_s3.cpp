#include "s3/fake_s3.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "core/quantity.h"

namespace varve {

namespace {
constexpr int64_t kSkewSecondsMax = 900;

const std::string* header_of(const HttpRequest& request, std::string_view name) {
  for (const HttpHeader& header : request.headers) {
    if (ascii_lower_case(header.name) == name) return &header.value;
  }
  return nullptr;
}

std::string md5_etag(ByteSpan bytes) { return to_hex(md5_of(bytes).value()); }

std::string http_date(int64_t seconds) {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(static_cast<std::time_t>(seconds)));
}
std::string iso_time(int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.000Z", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

int64_t seconds_of_amz_date(const std::string& text) {
  if (text.size() != 16) return 0;
  const auto iso = text.substr(0, 4) + "-" + text.substr(4, 2) + "-" + text.substr(6, 2) + "T" + text.substr(9, 2) +
                   ":" + text.substr(11, 2) + ":" + text.substr(13, 2) + "Z";
  const Result<int64_t> seconds = parse_iso_time(iso);
  return seconds.ok() ? *seconds : 0;
}

/// All texts between <name> and </name>.
std::vector<std::string> texts_between(std::string_view xml, const std::string& name) {
  std::vector<std::string> texts;
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  for (size_t at = xml.find(begin); at != std::string_view::npos; at = xml.find(begin, at)) {
    at += begin.size();
    texts.emplace_back(xml.substr(at, xml.find(end, at) - at));
  }
  return texts;
}

void add_header(HttpReply& reply, std::string name, std::string value) {
  reply.headers.push_back({std::move(name), std::move(value)});
}

/// As a transport hands the body over: into the caller's memory, if it gave some.
HttpReply delivered(HttpReply reply, const HttpRequest& request) {
  if (request.into.empty() || reply.status >= 300) return reply;
  if (reply.body.size() > request.into.size()) {
    reply.failure = Status::resource_limit("the server sends more than was asked for");
    return reply;
  }
  std::copy(reply.body.begin(), reply.body.end(), request.into.begin());
  reply.into_bytes = reply.body.size();
  reply.body.clear();
  return reply;
}

HttpReply lost(uint32_t times_sent) {
  HttpReply reply;
  reply.failure = Status::io_error("the server did not answer: the connection was lost");
  reply.times_sent = times_sent;
  return reply;
}
}  // namespace

HttpReply FakeS3::exchange(const HttpRequest& request) {
  hand_over();
  std::function<void(const HttpRequest&)> act;
  S3Fault fault = S3Fault::none;
  {
    const MutexLock lock(mutex_);
    fault = next_fault(request);
    act = before_effect_;
  }
  if (fault == S3Fault::refused) return lost(0);
  if (fault == S3Fault::lost_request) return lost(1);
  if (act) act(request);
  const MutexLock lock(mutex_);
  HttpReply answer;
  switch (fault) {
    case S3Fault::error_500: answer = error(500, "InternalError"); break;
    case S3Fault::slow_down: answer = error(503, "SlowDown"); break;
    case S3Fault::too_many: answer = error(429, "TooManyRequests"); break;
    case S3Fault::error_500_after:
      (void)serve(request, false);
      answer = error(500, "InternalError");
      break;
    case S3Fault::lost_reply: (void)serve(request, false); return lost(1);
    case S3Fault::repeated:
      (void)serve(request, false);
      answer = serve(request, false);
      answer.times_sent = 2;
      break;
    case S3Fault::none:
    case S3Fault::torn_body:
    case S3Fault::damaged_body:
    case S3Fault::stale_list:
    case S3Fault::refused:
    case S3Fault::lost_request: answer = serve(request, fault == S3Fault::stale_list); break;
  }
  if (request.method == HttpMethod::head) answer.body.clear();  // as of all replies to it
  if (fault == S3Fault::torn_body) answer.body.resize(answer.body.size() / 2);
  if (fault == S3Fault::damaged_body && !answer.body.empty()) answer.body[answer.body.size() / 2] ^= std::byte{4};
  return delivered(std::move(answer), request);
}

void FakeS3::set_faults(Faults faults) {
  const MutexLock lock(mutex_);
  faults_ = std::move(faults);
}

void FakeS3::fail_next(std::vector<S3Fault> faults) {
  const MutexLock lock(mutex_);
  next_faults_.assign(faults.begin(), faults.end());
}

void FakeS3::set_before_effect(std::function<void(const HttpRequest&)> act) {
  const MutexLock lock(mutex_);
  before_effect_ = std::move(act);
}

std::vector<std::string> FakeS3::log() const {
  const MutexLock lock(mutex_);
  return log_;
}

std::optional<std::string> FakeS3::object(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return std::nullopt;
  return std::string(as_text(found->second.bytes));
}

void FakeS3::set_object(const std::string& key, std::string_view contents) {
  const MutexLock lock(mutex_);
  change(key, make_object(as_bytes(contents)));
}

size_t FakeS3::object_count() const {
  const MutexLock lock(mutex_);
  return objects_.size();
}

size_t FakeS3::upload_count() const {
  const MutexLock lock(mutex_);
  return uploads_.size();
}

S3Fault FakeS3::next_fault(const HttpRequest& request) {
  if (!next_faults_.empty()) {
    const S3Fault fault = next_faults_.front();
    next_faults_.pop_front();
    return fault;
  }
  return faults_ ? faults_(request) : S3Fault::none;
}

HttpReply FakeS3::serve(const HttpRequest& request, bool stale) {
  log_.push_back(std::string(http_method_name(request.method)) + " " + request.path);
  if (auto refused = refuse_signature(request)) return *refused;
  std::string path = request.path.substr(1);
  const std::string host = request.origin.substr(request.origin.find("://") + 3);
  if (host.starts_with(options_.bucket + ".")) path = options_.bucket + "/" + path;
  const size_t slash = std::min(path.find('/'), path.size());
  if (path.substr(0, slash) != options_.bucket) return error(404, "NoSuchBucket");
  const std::string key = path.substr(std::min(slash + 1, path.size()));

  Fields query;
  std::string_view rest = request.query;
  while (!rest.empty()) {
    const std::string_view field = rest.substr(0, rest.find('&'));
    const size_t equals = std::min(field.find('='), field.size());
    query[std::string(field.substr(0, equals))] =
        percent_decode(field.substr(std::min(equals + 1, field.size())), false).value();
    rest.remove_prefix(std::min(field.size() + 1, rest.size()));
  }
  return key.empty() ? serve_bucket(request, query, stale) : serve_object(request, key, query);
}

/// What real services check before all else: who, when, and whether it is all as it was signed.
std::optional<HttpReply> FakeS3::refuse_signature(const HttpRequest& request) const {
  const std::string* const date = header_of(request, "x-amz-date");
  const std::string* const hash = header_of(request, "x-amz-content-sha256");
  const std::string* const authorization = header_of(request, "authorization");
  if (date == nullptr || hash == nullptr || authorization == nullptr) return error(403, "AccessDenied");
  if (authorization->find("Credential=" + options_.credentials.access_key_id + "/") == std::string::npos)
    return options_.says_ended_as_400 ? error(400, "ExpiredToken") : error(403, "InvalidAccessKeyId");
  const int64_t seconds = seconds_of_amz_date(*date);
  if (std::abs(seconds - options_.calendar()) > kSkewSecondsMax) return error(403, "RequestTimeTooSkewed");
  HttpRequest again = request;
  std::erase_if(again.headers, [](const HttpHeader& header) {
    const std::string name = ascii_lower_case(header.name);
    return name == "authorization" || name == "x-amz-date" || name == "x-amz-content-sha256" ||
           name == "x-amz-security-token";
  });
  sign_request(again, options_.credentials, options_.region, *hash, seconds);
  if (*header_of(again, "authorization") != *authorization) return error(403, "SignatureDoesNotMatch");
  if (*hash != sha256_hex(request.body)) return error(400, "XAmzContentSHA256Mismatch");
  return std::nullopt;
}

std::optional<HttpReply> FakeS3::refuse_condition(const HttpRequest& request, const std::string& key) const {
  const auto found = objects_.find(key);
  if (header_of(request, "if-none-match") != nullptr && options_.knows_if_none_match && found != objects_.end())
    return error(412, "PreconditionFailed");
  const std::string* const wanted = header_of(request, "if-match");
  if (wanted == nullptr || !options_.knows_if_match) return std::nullopt;
  if (found == objects_.end()) return error(404, "NoSuchKey");
  const bool quoted = wanted->starts_with('"');
  const bool is_write = request.method != HttpMethod::get;
  if (is_write && ((quoted && options_.takes_bare_etags_only) || (!quoted && options_.takes_quoted_etags_only)))
    return error(412, "PreconditionFailed");
  if (bare_etag(*wanted) != found->second.etag) return error(412, "PreconditionFailed");
  return std::nullopt;
}

HttpReply FakeS3::serve_bucket(const HttpRequest& request, const Fields& query, bool stale) {
  if (request.method == HttpMethod::get && query.count("list-type") != 0) return list(query, stale);
  if (request.method == HttpMethod::get && query.count("uploads") != 0) return list_uploads(query);
  if (request.method == HttpMethod::post && query.count("delete") != 0) return remove_many(request);
  return error(405, "MethodNotAllowed");
}

HttpReply FakeS3::serve_object(const HttpRequest& request, const std::string& key, const Fields& query) {
  const auto id = query.find("uploadId");
  switch (request.method) {
    case HttpMethod::put: return id == query.end() ? put(request, key) : put_part(request, query);
    case HttpMethod::get: return get(request, key);
    case HttpMethod::head: {
      HttpReply answer = get(request, key);
      answer.body.clear();
      return answer;
    }
    case HttpMethod::remove:
      if (id != query.end()) return uploads_.erase(id->second) != 0 ? reply(204) : error(404, "NoSuchUpload");
      change(key, std::nullopt);
      return reply(204);
    case HttpMethod::post:
      if (id != query.end()) return complete(request, key, id->second);
      const std::string name = fmt::format("upload+{}/=", next_upload_++);
      uploads_[name] = {key, options_.calendar(), {}};
      return reply(200, fmt::format("<InitiateMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                                    "<UploadId>{}</UploadId></InitiateMultipartUploadResult>",
                                    name));
  }
  return error(405, "MethodNotAllowed");
}

HttpReply FakeS3::put(const HttpRequest& request, const std::string& key) {
  if (auto refused = refuse_condition(request, key)) return *refused;
  Object object = make_object(request.body);
  HttpReply answer = reply(200);
  add_header(answer, "etag", "\"" + object.etag + "\"");
  change(key, std::move(object));
  return answer;
}

HttpReply FakeS3::get(const HttpRequest& request, const std::string& key) const {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return error(404, "NoSuchKey");
  if (auto refused = refuse_condition(request, key)) return *refused;
  const ByteVector& bytes = found->second.bytes;
  std::string_view part = as_text(bytes);
  std::string content_range;
  if (const std::string* const range = header_of(request, "range")) {
    const size_t dash = range->find('-');
    const uint64_t first = parse_number(std::string_view(*range).substr(6, dash - 6)).value();
    const uint64_t last = parse_number(std::string_view(*range).substr(dash + 1)).value();
    if (first >= bytes.size()) return error(416, "InvalidRange");
    const uint64_t end = std::min<uint64_t>(last + 1, bytes.size());
    part = part.substr(first, end - first);
    content_range = fmt::format("bytes {}-{}/{}", first, end - 1, bytes.size());
  }
  HttpReply answer = reply(content_range.empty() ? 200 : 206, part);
  if (!content_range.empty()) add_header(answer, "content-range", content_range);
  add_header(answer, "etag", "\"" + found->second.etag + "\"");
  add_header(answer, "last-modified", http_date(found->second.modified_seconds));
  return answer;
}

HttpReply FakeS3::list(const Fields& query, bool stale) const {
  const auto field = [&](const char* name) {
    const auto found = query.find(name);
    return found == query.end() ? std::string() : found->second;
  };
  std::map<std::string, Object> seen = objects_;
  if (stale && last_change_) {
    seen.erase(last_change_->key);
    if (last_change_->before) seen[last_change_->key] = *last_change_->before;
  }
  const std::string prefix = field("prefix"), delimiter = field("delimiter"), after = field("continuation-token");
  std::string xml, last, common;
  size_t entries = 0;
  bool truncated = false;
  for (const auto& [key, object] : seen) {
    if (!key.starts_with(prefix) || (!after.empty() && "/" + key <= after)) continue;
    const size_t end = delimiter.empty() ? std::string::npos : key.find(delimiter, prefix.size());
    const std::string group = end == std::string::npos ? "" : key.substr(0, end + delimiter.size());
    if (!group.empty() && (group == common || (!after.empty() && after.starts_with("/" + group)))) continue;
    if (entries == options_.page_entries) {
      truncated = true;
      break;
    }
    ++entries;
    common = group;
    // So that all of a group comes before what follows it.
    last = group.empty() ? key : group + "~";
    if (!group.empty()) {
      xml += "<CommonPrefixes><Prefix>" + percent_encode(group) + "</Prefix></CommonPrefixes>";
    } else {
      xml += fmt::format(
          "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag>"
          "<Size>{}</Size></Contents>",
          percent_encode(key), iso_time(object.modified_seconds), object.etag, object.bytes.size());
    }
  }
  // Tokens are opaque; these have what must be escaped in a query.
  if (truncated) xml += "<NextContinuationToken>/" + last + "</NextContinuationToken>";
  return reply(200, fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>"
                                "<EncodingType>url</EncodingType><IsTruncated>{}</IsTruncated>{}</ListBucketResult>",
                                truncated, xml));
}

HttpReply FakeS3::list_uploads(const Fields& query) const {
  const auto field = [&](const char* name) {
    const auto found = query.find(name);
    return found == query.end() ? std::string() : found->second;
  };
  std::map<std::pair<std::string, std::string>, int64_t> sorted;
  for (const auto& [id, upload] : uploads_) sorted[{upload.key, id}] = upload.begun_seconds;
  const std::pair after(field("key-marker"), field("upload-id-marker"));
  std::string xml;
  size_t entries = 0;
  std::pair<std::string, std::string> last;
  bool truncated = false;
  for (const auto& [name, begun] : sorted) {
    if (!name.first.starts_with(field("prefix")) || (!after.first.empty() && name <= after)) continue;
    if (entries++ == options_.page_entries) {
      truncated = true;
      break;
    }
    last = name;
    xml += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId><Initiated>{}</Initiated></Upload>",
                       percent_encode(name.first), name.second, iso_time(begun));
  }
  xml += fmt::format("<NextKeyMarker>{}</NextKeyMarker><NextUploadIdMarker>{}</NextUploadIdMarker>",
                     percent_encode(last.first), last.second);
  return reply(200, fmt::format("<ListMultipartUploadsResult><EncodingType>url</EncodingType>{}"
                                "<IsTruncated>{}</IsTruncated></ListMultipartUploadsResult>",
                                xml, truncated));
}

HttpReply FakeS3::remove_many(const HttpRequest& request) {
  const std::string* const md5 = header_of(request, "content-md5");
  if (md5 == nullptr || *md5 != to_base64(md5_of(request.body).value())) return error(400, "InvalidDigest");
  for (const std::string& key : texts_between(as_text(request.body), "Key")) change(key, std::nullopt);
  return reply(200, "<DeleteResult></DeleteResult>");
}

HttpReply FakeS3::put_part(const HttpRequest& request, const Fields& query) {
  const auto upload = uploads_.find(query.at("uploadId"));
  if (upload == uploads_.end()) return error(404, "NoSuchUpload");
  Object part = make_object(request.body);
  HttpReply answer = reply(200);
  add_header(answer, "etag", "\"" + part.etag + "\"");
  upload->second.parts[static_cast<uint32_t>(parse_number(query.at("partNumber")).value())] = std::move(part);
  return answer;
}

HttpReply FakeS3::complete(const HttpRequest& request, const std::string& key, const std::string& id) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end() || upload->second.key != key) return error(404, "NoSuchUpload");
  if (options_.completes_if_absent) {
    if (auto refused = refuse_condition(request, key)) return *refused;
  }
  const std::vector<std::string> numbers = texts_between(as_text(request.body), "PartNumber");
  const std::vector<std::string> etags = texts_between(as_text(request.body), "ETag");
  Object object;
  ByteVector sums;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto part = upload->second.parts.find(static_cast<uint32_t>(parse_number(numbers[i]).value()));
    if (part == upload->second.parts.end() || etags[i] != "&quot;" + part->second.etag + "&quot;")
      return error(400, "InvalidPart");
    const ByteVector& bytes = part->second.bytes;
    object.bytes.insert(object.bytes.end(), bytes.begin(), bytes.end());
    const ByteVector sum = md5_of(bytes).value();
    sums.insert(sums.end(), sum.begin(), sum.end());
  }
  object.etag = md5_etag(sums) + "-" + fmt::to_string(numbers.size());
  object.modified_seconds = options_.calendar();
  const std::string etag = object.etag;
  change(key, std::move(object));
  uploads_.erase(upload);
  return reply(200,
               "<CompleteMultipartUploadResult><ETag>&quot;" + etag + "&quot;</ETag></CompleteMultipartUploadResult>");
}

void FakeS3::change(const std::string& key, std::optional<Object> now) {
  const auto found = objects_.find(key);
  last_change_ = Change{key, found == objects_.end() ? std::nullopt : std::optional(found->second)};
  if (now) {
    objects_[key] = *std::move(now);
  } else {
    objects_.erase(key);
  }
}

FakeS3::Object FakeS3::make_object(ByteSpan bytes) const {
  return {ByteVector(bytes.begin(), bytes.end()), md5_etag(bytes), options_.calendar()};
}

HttpReply FakeS3::reply(int status, std::string_view body) const {
  HttpReply answer;
  answer.times_sent = 1;
  answer.status = status;
  answer.body.assign(as_bytes(body).begin(), as_bytes(body).end());
  add_header(answer, "date", http_date(options_.calendar()));
  add_header(answer, "content-length", fmt::to_string(body.size()));
  return answer;
}

HttpReply FakeS3::error(int status, std::string_view code) const {
  return reply(status, fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{}</Code>"
                                   "<Message>as the test wants it</Message></Error>",
                                   code));
}

FakeS3::Faults random_s3_faults(uint64_t seed, double each, std::vector<S3Fault> kinds) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  return [random, each, kinds = std::move(kinds)](const HttpRequest&) {
    const double drawn = static_cast<double>((*random)() >> 11) * 0x1p-53;
    const auto which = static_cast<size_t>(drawn / each);
    return which < kinds.size() ? kinds[which] : S3Fault::none;
  };
}

}  // namespace varve
