#include "s3/s3_sign.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <vector>

namespace varve {

namespace {
constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kService = "s3";
using Sha256 = std::array<std::byte, 32>;

const unsigned char* unsigned_of(ByteSpan bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

Sha256 keyed_hash(ByteSpan key, std::string_view text) {
  Sha256 hash;
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), unsigned_of(as_bytes(text)), text.size(),
       reinterpret_cast<unsigned char*>(hash.data()), &bytes);
  return hash;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// With "=" after every name, in the order of the bytes.
std::string sorted_query(std::string_view query) {
  std::vector<std::string> fields;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    std::string field(query.substr(0, end));
    if (field.find('=') == std::string::npos) field += '=';
    fields.push_back(std::move(field));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  // By name, then by value; as whole texts they would sort otherwise: "=" comes after "-" and ".".
  std::sort(fields.begin(), fields.end(), [](const std::string& one, const std::string& other) {
    const size_t at = one.find('='), other_at = other.find('=');
    return std::pair(one.substr(0, at), one.substr(at)) < std::pair(other.substr(0, other_at), other.substr(other_at));
  });
  return fmt::format("{}", fmt::join(fields, "&"));
}
}  // namespace

std::string sha256_hex(ByteSpan bytes) {
  Sha256 hash;
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(hash.data()), nullptr, EVP_sha256(), nullptr);
  return to_hex(hash);
}

std::optional<ByteVector> md5_of(ByteSpan bytes) {
  ByteVector hash(16);
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(hash.data()), nullptr, EVP_md5(),
                 nullptr) != 1) {
    return std::nullopt;
  }
  return hash;
}

std::string to_base64(ByteSpan bytes) {
  std::string text((bytes.size() + 2) / 3 * 4, '\0');
  // It also writes a zero behind the text, where a string has one.
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), unsigned_of(bytes), static_cast<int>(bytes.size()));
  return text;
}

std::string percent_encode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (is_unreserved(c)) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

Result<std::string> percent_decode(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_blank) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return Status::corrupt("a % that two hexadecimal digits should follow");
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

std::string amz_date(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void sign_request(HttpRequest& request, const S3Credentials& credentials, std::string_view region,
                  std::string_view body_sha256, int64_t seconds) {
  const std::string time = amz_date(seconds);
  const std::string day = time.substr(0, 8);
  request.query = sorted_query(request.query);
  request.headers.push_back({"x-amz-content-sha256", std::string(body_sha256)});
  request.headers.push_back({"x-amz-date", time});
  if (!credentials.session_token.empty())
    request.headers.push_back({"x-amz-security-token", credentials.session_token});

  std::map<std::string, std::string> signed_headers;
  signed_headers["host"] = request.origin.substr(request.origin.find("://") + 3);
  for (const HttpHeader& header : request.headers) signed_headers[ascii_lower_case(header.name)] = header.value;
  std::string header_lines, header_names;
  for (const auto& [name, value] : signed_headers) {
    header_lines += fmt::format("{}:{}\n", name, value);
    header_names += fmt::format("{}{}", header_names.empty() ? "" : ";", name);
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", http_method_name(request.method), request.path,
                                            request.query, header_lines, header_names, body_sha256);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, kService);
  const std::string to_sign = fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, scope, sha256_hex(as_bytes(canonical)));

  Sha256 key = keyed_hash(as_bytes("AWS4" + credentials.secret_access_key), day);
  for (const std::string_view part : {region, kService, std::string_view("aws4_request")}) key = keyed_hash(key, part);
  request.headers.push_back(
      {"Authorization", fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                                    credentials.access_key_id, scope, header_names, to_hex(keyed_hash(key, to_sign)))});
}

}  // namespace varve
