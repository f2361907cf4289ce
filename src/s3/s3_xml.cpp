#include "s3/s3_xml.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/guarded.h"
#include "core/quantity.h"
#include "s3/http.h"
#include "s3/s3_sign.h"

namespace varve {

namespace {
constexpr size_t kDepthMax = 8;
/// Keys have 1024 bytes, each of which may be written as three.
constexpr size_t kTextBytesMax = 4096;
constexpr size_t kPathBytesMax = 512;
constexpr size_t kElementsMax = 200'000;
constexpr size_t kXmlBytesMax = 64_MiB;
constexpr size_t kMessageBytesMax = 200;

Status bad_reply(std::string_view why) {
  return Status::corrupt(fmt::format("the service's reply makes no sense: {}", why));
}

/// Goes through a document, and calls `take` at the end of each element, with the names from the root to it
/// ("/List/Key") and the text that it has.
class Document {
 public:
  using Take = std::function<Status(std::string_view path, const std::string& text)>;
  explicit Document(const Take& take) : take_(take) {}

  Status read(ByteSpan xml) {
    if (xml.size() > kXmlBytesMax) return bad_reply("it is too long");
    parser_.reset(XML_ParserCreate(nullptr));
    if (!parser_) return Status::resource_limit("there is no memory for a reply");
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &Document::on_begin, &Document::on_end);
    XML_SetCharacterDataHandler(parser_.get(), &Document::on_text);
    XML_SetStartDoctypeDeclHandler(parser_.get(), &Document::on_type);
    const XML_Status status =
        XML_Parse(parser_.get(), reinterpret_cast<const char*>(xml.data()), static_cast<int>(xml.size()), XML_TRUE);
    VARVE_TRY(failure_);
    if (status != XML_STATUS_OK) return bad_reply(XML_ErrorString(XML_GetErrorCode(parser_.get())));
    return {};
  }

 private:
  struct Freer {
    void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
  };

  template <class Act>
  static void guarded(void* self, const Act& act) {
    auto& document = *static_cast<Document*>(self);
    if (!document.failure_.ok()) return;
    document.failure_ = run_guarded([&] { return act(document); });
    if (!document.failure_.ok()) XML_StopParser(document.parser_.get(), XML_FALSE);
  }
  static void on_begin(void* self, const XML_Char* name, const XML_Char**) {
    guarded(self, [&](Document& document) -> Status {
      if (++document.elements_ > kElementsMax) return bad_reply("it has too many elements");
      if (document.lengths_.size() >= kDepthMax) return bad_reply("it is nested too deep");
      document.lengths_.push_back(document.path_.size());
      document.path_ += '/';
      document.path_ += name;
      if (document.path_.size() > kPathBytesMax) return bad_reply("the name of an element is too long");
      document.text_.clear();
      return {};
    });
  }
  static void on_text(void* self, const XML_Char* text, int bytes) {
    guarded(self, [&](Document& document) -> Status {
      document.text_.append(text, static_cast<size_t>(bytes));
      return document.text_.size() > kTextBytesMax ? bad_reply("the text of an element is too long") : Status();
    });
  }
  static void on_end(void* self, const XML_Char*) {
    guarded(self, [&](Document& document) -> Status {
      VARVE_TRY(document.take_(document.path_, document.text_));
      document.path_.resize(document.lengths_.back());
      document.lengths_.pop_back();
      document.text_.clear();
      return {};
    });
  }
  // Entities are declared there, which may stand for much more than what was sent.
  static void on_type(void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    guarded(self, [](Document&) { return bad_reply("it has a document type"); });
  }

  const Take& take_;
  std::unique_ptr<std::remove_pointer_t<XML_Parser>, Freer> parser_;
  Status failure_;
  std::string path_, text_;
  std::vector<size_t> lengths_;  ///< of the path, before each element that is open
  size_t elements_ = 0;
};

Status read_document(ByteSpan xml, const Document::Take& take) { return Document(take).read(xml); }

Status take_number(const std::string& text, uint64_t& into) {
  const Result<uint64_t> number = parse_number(text);
  if (!number.ok()) return bad_reply("a size is not a number");
  into = *number;
  return {};
}

Status take_time(const std::string& text, int64_t& into) {
  VARVE_ASSIGN(into, parse_iso_time(text));
  return {};
}

Status decode_keys(const std::string& encoding, const std::vector<std::string*>& keys) {
  if (encoding.empty()) return {};
  if (encoding != "url") return bad_reply("an encoding of keys that was not asked for");
  for (std::string* key : keys) {
    VARVE_ASSIGN(*key, percent_decode(*key, true));
  }
  return {};
}

/// The only element of a reply that matters.
Result<std::string> read_one(ByteSpan xml, std::string_view path) {
  std::optional<std::string> value;
  VARVE_TRY(read_document(xml, [&](std::string_view at, const std::string& text) {
    if (at == path) value = text;
    return Status();
  }));
  if (!value) return bad_reply(fmt::format("there is no {}", path));
  return *value;
}
}  // namespace

Result<S3ListPage> parse_s3_list(ByteSpan xml) {
  S3ListPage page;
  S3Object object;
  std::string encoding, root;
  bool truncated = false;
  VARVE_TRY(read_document(xml, [&](std::string_view path, const std::string& text) -> Status {
    constexpr std::string_view kRoot = "/ListBucketResult";
    if (!path.starts_with(kRoot)) return bad_reply("it is no list of objects");
    path.remove_prefix(kRoot.size());
    if (path.empty()) root = kRoot;
    if (path == "/Contents/Key") object.key = text;
    if (path == "/Contents/ETag") object.etag = bare_etag(text);
    if (path == "/Contents/Size") return take_number(text, object.bytes);
    if (path == "/Contents/LastModified") return take_time(text, object.modified_seconds);
    if (path == "/Contents") page.objects.push_back(std::exchange(object, {}));
    if (path == "/CommonPrefixes/Prefix") page.prefixes.push_back(text);
    if (path == "/NextContinuationToken") page.next_token = text;
    if (path == "/IsTruncated") truncated = text == "true";
    if (path == "/EncodingType") encoding = text;
    return {};
  }));
  if (root.empty()) return bad_reply("it is no list of objects");
  if (truncated == page.next_token.empty()) return bad_reply("it does not say how the list goes on");
  std::vector<std::string*> keys;
  for (S3Object& one : page.objects) keys.push_back(&one.key);
  for (std::string& prefix : page.prefixes) keys.push_back(&prefix);
  VARVE_TRY(decode_keys(encoding, keys));
  return page;
}

Result<S3UploadPage> parse_s3_uploads(ByteSpan xml) {
  S3UploadPage page;
  S3PendingUpload upload;
  std::string encoding;
  bool truncated = false;
  VARVE_TRY(read_document(xml, [&](std::string_view path, const std::string& text) -> Status {
    constexpr std::string_view kRoot = "/ListMultipartUploadsResult";
    if (!path.starts_with(kRoot)) return bad_reply("it is no list of uploads");
    path.remove_prefix(kRoot.size());
    if (path == "/Upload/Key") upload.key = text;
    if (path == "/Upload/UploadId") upload.id = text;
    if (path == "/Upload/Initiated") return take_time(text, upload.begun_seconds);
    if (path == "/Upload") page.uploads.push_back(std::exchange(upload, {}));
    if (path == "/NextKeyMarker") page.next_key = text;
    if (path == "/NextUploadIdMarker") page.next_id = text;
    if (path == "/IsTruncated") truncated = text == "true";
    if (path == "/EncodingType") encoding = text;
    return {};
  }));
  // Some services name the last upload also where there are no more.
  if (!truncated) page.next_key = page.next_id = "";
  if (truncated && page.next_key.empty()) return bad_reply("it does not say how the list goes on");
  std::vector<std::string*> keys{&page.next_key};
  for (S3PendingUpload& one : page.uploads) keys.push_back(&one.key);
  VARVE_TRY(decode_keys(encoding, keys));
  return page;
}

Result<std::string> parse_s3_upload_id(ByteSpan xml) {
  VARVE_ASSIGN(std::string id, read_one(xml, "/InitiateMultipartUploadResult/UploadId"));
  if (id.empty()) return bad_reply("the upload has no id");
  return id;
}

Result<std::string> parse_s3_completed(ByteSpan xml) {
  VARVE_ASSIGN(const std::string etag, read_one(xml, "/CompleteMultipartUploadResult/ETag"));
  return bare_etag(etag);
}

Result<std::vector<std::string>> parse_s3_not_removed(ByteSpan xml) {
  std::vector<std::string> failures;
  std::string key, code;
  VARVE_TRY(read_document(xml, [&](std::string_view path, const std::string& text) -> Status {
    if (!path.starts_with("/DeleteResult")) return bad_reply("it does not tell what was removed");
    if (path == "/DeleteResult/Error/Key") key = text;
    if (path == "/DeleteResult/Error/Code") code = text;
    // What is not there need not be removed.
    if (path == "/DeleteResult/Error" && code != "NoSuchKey") failures.push_back(key + ": " + code);
    return {};
  }));
  return failures;
}

S3Error parse_s3_error(ByteSpan body) {
  S3Error error;
  const Status read = read_document(body, [&](std::string_view path, const std::string& text) {
    if (path == "/Error/Code") error.code = text;
    if (path == "/Error/Message") error.message = text;
    return Status();
  });
  if (!read.ok()) return {};
  for (std::string* text : {&error.code, &error.message}) {
    text->resize(std::min(text->size(), kMessageBytesMax));
    std::replace_if(
        text->begin(), text->end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  }
  return error;
}

Result<int64_t> parse_iso_time(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, end = 0;
  const std::string copy(text.substr(0, 40));
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second, &end) != 6)
    return bad_reply("a time is none");
  std::string_view rest = std::string_view(copy).substr(static_cast<size_t>(end));
  if (rest.starts_with('.')) rest = rest.substr(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
  const auto seconds = seconds_of_date(year, month, day, hour, minute, second);
  return seconds && rest == "Z" ? Result<int64_t>(*seconds) : bad_reply("a time is none");
}

std::string bare_etag(std::string_view etag) {
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

}  // namespace varve
