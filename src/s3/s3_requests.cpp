#include "s3/s3_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/quantity.h"
#include "s3/s3_sign.h"

namespace varve {

namespace {
/// Services take signatures that are up to 15 minutes off. Below this, the Date of a reply is no better than our clock.
constexpr int64_t kClockOffsetSecondsMin = 30;
constexpr double kStoppedSecondsMin = 600;  // services take no request that is 15 minutes old
constexpr int kSignedAnewMax = 3;
/// A service that refuses for another reason is not to have the files read with each request.
constexpr double kNewerCredentialsSeconds = 30;

/// Whether it is the credentials themselves that the service refuses.
bool are_credentials_refused(const std::string& code) {
  return code == "ExpiredToken" || code == "TokenRefreshRequired" || code == "InvalidToken" ||
         code == "InvalidAccessKeyId";
}
/// The same where a reply to HEAD does not say.
bool may_credentials_be_refused(const S3Answer& answer) {
  const bool says_nothing = answer.code.empty() && (answer.reply.status == 400 || answer.reply.status == 403);
  return says_nothing || are_credentials_refused(answer.code);
}

HttpMethod method_of(S3Verb verb) {
  switch (verb) {
    case S3Verb::put:
    case S3Verb::upload_part: return HttpMethod::put;
    case S3Verb::get:
    case S3Verb::list:
    case S3Verb::upload_list: return HttpMethod::get;
    case S3Verb::head: return HttpMethod::head;
    case S3Verb::remove:
    case S3Verb::upload_abort: return HttpMethod::remove;
    case S3Verb::remove_many:
    case S3Verb::upload_begin:
    case S3Verb::upload_complete: return HttpMethod::post;
  }
  return HttpMethod::get;
}

const char* wanted_by(S3Verb verb) {
  switch (verb) {
    case S3Verb::put: return "write an object";
    case S3Verb::get: return "read an object";
    case S3Verb::head: return "look at an object";
    case S3Verb::list: return "list objects";
    case S3Verb::remove:
    case S3Verb::remove_many: return "remove objects";
    case S3Verb::upload_begin: return "begin an upload";
    case S3Verb::upload_part: return "upload a part";
    case S3Verb::upload_complete: return "complete an upload";
    case S3Verb::upload_abort: return "abort an upload";
    case S3Verb::upload_list: return "list uploads";
  }
  return "";
}

bool is_success(int status) { return status >= 200 && status < 300; }

/// Of a whole reply that is no success: whether the same request may succeed later.
bool may_pass(int status, const std::string& code) {
  // The service asks to try again where two requests for one key met (docs.aws.amazon.com, "conditional writes").
  if (code == "ConditionalRequestConflict" || code == "OperationAborted") return true;
  if (status == 429 || code == "RequestTimeout") return true;
  return status >= 500 && status != 501 && status != 505 && status != 507;
}

/// 0 to 1.
double random_fraction() {
  uint64_t random = 0;
  // Without random bytes, all wait equally long.
  if (!fill_with_random(std::as_writable_bytes(std::span(&random, 1))).ok()) return 1;
  return static_cast<double>(random >> 11) * 0x1p-53;
}
}  // namespace

std::string_view s3_verb_name(S3Verb verb) {
  switch (verb) {
    case S3Verb::put: return "put";
    case S3Verb::get: return "get";
    case S3Verb::head: return "head";
    case S3Verb::list: return "list";
    case S3Verb::remove: return "remove";
    case S3Verb::remove_many: return "remove_many";
    case S3Verb::upload_begin: return "upload_begin";
    case S3Verb::upload_part: return "upload_part";
    case S3Verb::upload_complete: return "upload_complete";
    case S3Verb::upload_abort: return "upload_abort";
    case S3Verb::upload_list: return "upload_list";
  }
  return "";
}

/// The pauses between the tries of one request.
class S3Requests::Retries {
 public:
  explicit Retries(const S3RetryOptions& options)
      : options_(options), begin_(options.clock->seconds()), bound_(options.pause_seconds_first) {}

  /// Waits; false: the time is over.
  bool wait() {
    const double left = options_.seconds - passed();
    if (left < 1e-3) return false;  // less than that may not move a clock at all
    options_.clock->sleep(std::min(left, bound_ * random_fraction()));
    bound_ = std::min(bound_ * 2, options_.pause_seconds_max);
    ++count_;
    return true;
  }
  double passed() const { return options_.clock->seconds() - begin_; }
  int count() const { return count_; }

 private:
  const S3RetryOptions& options_;
  const double begin_;
  double bound_;
  int count_ = 0;
};

S3Requests::S3Requests(HttpTransport& transport, S3Settings settings, std::string bucket, S3RetryOptions options)
    : transport_(transport),
      settings_(std::move(settings)),
      bucket_(std::move(bucket)),
      options_(std::move(options)),
      credentials_(settings_.credentials) {}

S3Credentials S3Requests::credentials() const {
  const MutexLock lock(mutex_);
  return credentials_;
}

bool S3Requests::renew_credentials(const S3Credentials& refused) {
  const MutexLock lock(mutex_);
  if (credentials_ != refused) return true;  // another thread was first
  if (!settings_.newer_credentials) return false;
  const double now = options_.clock->seconds();
  if (looked_for_newer_at_ && now - *looked_for_newer_at_ < kNewerCredentialsSeconds) return false;
  looked_for_newer_at_ = now;
  const std::optional<S3Credentials> newer = settings_.newer_credentials();
  if (!newer || *newer == refused) return false;
  credentials_ = *newer;
  return true;
}

S3Answer S3Requests::send(const S3Call& call) {
  const HttpRequest request = unsigned_request(call);
  const std::string body_sha256 = sha256_hex(call.body);
  Retries retries(options_);
  bool repeated = false;
  int signed_anew = 0;
  while (true) {
    const int64_t clock_offset = signing_offset();
    const double signed_at = options_.clock->seconds();
    const S3Credentials own = credentials();
    S3Answer answer = send_once(call, request, body_sha256, own);
    answer.repeated = repeated || answer.reply.times_sent > 1;
    const Status failed = judge(call, answer);
    answer.status = failed;
    // Our clock was wrong, as this reply has just told (a reply to HEAD without saying so); or we were stopped with the
    // request in our hands.
    const bool clock_was_wrong = std::abs(signing_offset() - clock_offset) >= kClockOffsetSecondsMin;
    const bool was_stopped = !call.signed_at && options_.clock->seconds() - signed_at >= kStoppedSecondsMin;
    const bool may_be_signed_anew = (answer.reply.status == 403 && (clock_was_wrong || was_stopped)) ||
                                    (may_credentials_be_refused(answer) && renew_credentials(own));
    if (may_be_signed_anew && signed_anew++ < kSignedAnewMax) {
      repeated = answer.repeated;  // the transport may have sent this one twice
      continue;
    }
    if (failed.code() != StatusCode::io_error) return answer;
    // A reply that could not be had may be that of a request which was carried out; so may one of 5xx.
    repeated = repeated || answer.reply.times_sent > 0;
    if (!retries.wait()) {
      answer.status = failed.with_context(fmt::format("cannot {}, though tried {} times in {}", wanted_by(call.verb),
                                                      retries.count() + 1, format_duration(retries.passed())));
      return answer;
    }
    repeats_.fetch_add(1, std::memory_order_relaxed);
  }
}

HttpRequest S3Requests::unsigned_request(const S3Call& call) const {
  HttpRequest request;
  request.method = method_of(call.verb);
  request.origin = settings_.origin;
  request.path = "/" + call.key;
  if (settings_.path_style) {
    request.path = "/" + bucket_ + (call.key.empty() ? "" : request.path);
  } else {
    request.origin.insert(request.origin.find("://") + 3, bucket_ + ".");
  }
  request.query = call.query;
  request.headers = call.headers;
  request.body = call.body;
  request.into = call.into;
  request.body_bytes_max = call.body_bytes_max;
  return request;
}

S3Answer S3Requests::send_once(const S3Call& call, const HttpRequest& request, std::string_view body_sha256,
                               const S3Credentials& credentials) {
  HttpRequest signed_request = request;
  sign_request(signed_request, credentials, settings_.region, body_sha256,
               call.signed_at.value_or(options_.calendar() + signing_offset()));
  S3Answer answer;
  answer.reply = transport_.exchange(signed_request);
  count(call, answer.reply);
  if (answer.reply.failure.ok()) learn_time(answer.reply);
  return answer;
}

/// Also fills in answer.code. io_error: it may pass.
Status S3Requests::judge(const S3Call& call, S3Answer& answer) const {
  const HttpReply& reply = answer.reply;
  VARVE_TRY(reply.failure);
  const std::string* const length = reply.header("content-length");
  if (length != nullptr && call.verb != S3Verb::head && reply.status != 204) {
    const Result<uint64_t> announced = parse_number(*length);
    if (!announced.ok() || *announced != reply.body_bytes()) {
      return Status::io_error(fmt::format("the reply has {} bytes where {} were announced", reply.body_bytes(),
                                          announced.ok() ? fmt::to_string(*announced) : "no number of them"),
                              subject(call.key));
    }
  }
  if (is_success(reply.status)) return call.check ? call.check(reply) : Status();
  const S3Error error = parse_s3_error(reply.body);
  answer.code = error.code;
  return refusal(call, answer, error);
}

Status S3Requests::refusal(const S3Call& call, const S3Answer& answer, const S3Error& error) const {
  const int status = answer.reply.status;
  std::string said = fmt::format("{}{}{}", status, error.code.empty() ? "" : " ", error.code);
  // A service that repeats what it was sent might repeat what is secret.
  const auto repeats = [&](const std::string& secret) {
    return !secret.empty() && error.message.find(secret) != std::string::npos;
  };
  const S3Credentials own = credentials();
  if (!error.message.empty() && !repeats(own.secret_access_key) && !repeats(own.session_token))
    said += ": " + error.message;
  const std::string message = fmt::format("cannot {}: the service answers {}", wanted_by(call.verb), said);
  const std::string where = subject(call.key);

  if (may_pass(status, error.code)) return Status::io_error(fmt::format("the service answers {}", said), where);
  if (const std::string* const region = answer.reply.header("x-amz-bucket-region");
      region != nullptr && *region != settings_.region && (status < 400 || status == 400 || status == 403)) {
    return Status::invalid_argument("the bucket is in another region", where,
                                    "set AWS_REGION to " + region->substr(0, 40));
  }
  if (status < 400) {
    return Status::invalid_argument(message, where,
                                    "the service sends elsewhere: check endpoint, region and path style");
  }
  if (error.code == "NoSuchBucket")
    return Status::not_found("there is no such bucket", where, "create it, or check its name");
  if (error.code == "QuotaExceeded" || status == 507)
    return {StatusCode::no_space, message, where, Remedy::free_space_or_raise_quota};
  if (error.code == "RequestTimeTooSkewed" && call.signed_at && !answer.repeated) {
    return Status::busy("the process was stopped before it could send a request, which the service takes no more",
                        where, "do it again");
  }
  if (error.code == "RequestTimeTooSkewed")
    return {StatusCode::permission_denied, message, where, "set this machine's clock"};
  if (are_credentials_refused(error.code)) {
    return {StatusCode::permission_denied, message, where,
            "renew the credentials: of a file they are read again, of variables when this is started anew"};
  }
  switch (status) {
    case 401:
    case 403:
      return {StatusCode::permission_denied, message, where,
              "check the credentials, and what they may do in this bucket"};
    case 404: return Status::not_found("there is no such object", where);
    case 405: return Status::unsupported(message, where);
    case 412: return Status::busy(message, where);
    default: return status >= 500 ? Status::unsupported(message, where) : Status::invalid_argument(message, where);
  }
}

int64_t S3Requests::signing_offset() const {
  const int64_t offset = clock_offset_seconds_.load(std::memory_order_relaxed);
  return std::abs(offset) >= kClockOffsetSecondsMin ? offset : 0;
}

void S3Requests::learn_time(const HttpReply& reply) {
  const std::string* const date = reply.header("date");
  if (date == nullptr) return;
  if (const Result<int64_t> seconds = parse_http_date(*date); seconds.ok())
    clock_offset_seconds_.store(*seconds - options_.calendar(), std::memory_order_relaxed);
}

void S3Requests::count(const S3Call& call, const HttpReply& reply) {
  requests_[static_cast<size_t>(call.verb)].fetch_add(std::max(reply.times_sent, 1u), std::memory_order_relaxed);
  if (reply.times_sent > 1) repeats_.fetch_add(reply.times_sent - 1, std::memory_order_relaxed);
  bytes_up_.fetch_add(call.body.size() * reply.times_sent, std::memory_order_relaxed);
  bytes_down_.fetch_add(reply.body_bytes(), std::memory_order_relaxed);
}

S3Counters S3Requests::counters() const {
  S3Counters counters;
  for (size_t i = 0; i < kS3VerbCount; ++i) counters.requests[i] = requests_[i].load(std::memory_order_relaxed);
  counters.repeats = repeats_.load(std::memory_order_relaxed);
  counters.bytes_up = bytes_up_.load(std::memory_order_relaxed);
  counters.bytes_down = bytes_down_.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace varve
