#include "s3/s3_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <utility>

#include "core/process.h"
#include "core/quantity.h"

namespace varve {

namespace {
constexpr std::string_view kScheme = "s3://";
constexpr size_t kKeyBytesMax = 1024;
constexpr size_t kFileBytesMax = 1_MiB;
constexpr size_t kCredentialBytesMax = 8_KiB;
constexpr std::string_view kDefaultRegion = "us-east-1";
constexpr std::string_view kDefaultProfile = "default";

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_letter_or_digit(char c) { return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }
bool is_key_byte(char c) { return is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '~'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// docs.aws.amazon.com, "General purpose bucket naming rules".
Status check_bucket(std::string_view bucket) {
  const auto refused = [&](const char* why) {
    return Status::invalid_argument(fmt::format("a bucket cannot have this name: {}", why), std::string(bucket));
  };
  if (bucket.size() < 3 || bucket.size() > 63) return refused("it needs 3 to 63 characters");
  if (!std::all_of(bucket.begin(), bucket.end(), [](char c) { return is_lower_or_digit(c) || c == '-' || c == '.'; }))
    return refused("it may have a-z, 0-9, \"-\" and \".\"");
  if (!is_lower_or_digit(bucket.front()) || !is_lower_or_digit(bucket.back()))
    return refused("it begins and ends with a letter or a digit");
  if (bucket.find("..") != std::string_view::npos) return refused("there are two dots in a row");
  if (std::count(bucket.begin(), bucket.end(), '.') == 3 &&
      bucket.find_first_not_of("0123456789.") == std::string_view::npos) {
    return refused("it looks like an address");
  }
  return {};
}

/// The sections of a file in the form of AWS's programs, and what is said in each.
using Sections = std::map<std::string, std::map<std::string, std::string>, std::less<>>;

Sections parse_sections(std::string_view text) {
  Sections sections;
  std::map<std::string, std::string>* section = nullptr;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole_line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view line = trimmed(whole_line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      section = &sections[std::string(trimmed(line.substr(1, line.find(']') - 1)))];
      continue;
    }
    const size_t equals = line.find('=');
    // Indented lines belong to the setting above them; none that we need has such.
    if (section == nullptr || equals == std::string_view::npos || is_blank(whole_line.front())) continue;
    std::string_view value = line.substr(equals + 1);
    for (const std::string_view comment : {" #", " ;"}) value = value.substr(0, value.find(comment));
    (*section)[ascii_lower_case(trimmed(line.substr(0, equals)))] = std::string(trimmed(value));
  }
  return sections;
}

/// A file that is not there has no sections.
Result<Sections> read_sections(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR)) return Sections();
  if (!file.valid()) return Status::from_errno(errno, "open a file with settings of S3", path);
  std::string text;
  while (text.size() <= kFileBytesMax) {
    char block[4096];
    const ssize_t got = ::read(file.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "read a file with settings of S3", path);
    if (got == 0) return parse_sections(text);
    text.append(block, static_cast<size_t>(got));
  }
  return Status::invalid_argument("this file is too large for settings of S3", path);
}

/// What the environment and both files say.
class Sources {
 public:
  static Result<Sources> read(const S3Options& options, const S3Environment& environment) {
    Sources sources(environment);
    const bool named = !options.profile.empty() || sources.variable("AWS_PROFILE");
    sources.profile_ = !options.profile.empty()
                           ? options.profile
                           : sources.variable("AWS_PROFILE").value_or(std::string(kDefaultProfile));
    VARVE_ASSIGN(const Sections credentials,
                 read_sections(sources.file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")));
    VARVE_ASSIGN(const Sections config, read_sections(sources.file("AWS_CONFIG_FILE", ".aws/config")));
    bool found = sources.take(credentials, sources.profile_, sources.credentials_);
    found |= sources.take(config, "profile " + sources.profile_, sources.config_);
    if (sources.profile_ == kDefaultProfile) found |= sources.take(config, kDefaultProfile, sources.config_);
    if (named && !found) {
      return Status::not_found("there is no such profile of AWS", sources.profile_,
                               "profiles are sections of ~/.aws/credentials and ~/.aws/config");
    }
    return sources;
  }

  /// One that is empty says nothing.
  std::optional<std::string> variable(const std::string& name) const {
    std::optional<std::string> value = environment_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  /// The first that says something: variables, then `setting` of the profile.
  std::string first_of(std::initializer_list<const char*> variables, const std::string& setting) const {
    for (const char* const name : variables) {
      if (const auto value = variable(name)) return *value;
    }
    const auto found = config_.find(setting);
    return found == config_.end() ? std::string() : found->second;
  }

  Result<S3Credentials> credentials(bool profile_in_options) const {
    S3Credentials found{variable("AWS_ACCESS_KEY_ID").value_or(""), variable("AWS_SECRET_ACCESS_KEY").value_or(""),
                        variable("AWS_SESSION_TOKEN").value_or("")};
    if (!profile_in_options && (!found.access_key_id.empty() || !found.secret_access_key.empty())) {
      if (found.access_key_id.empty() || found.secret_access_key.empty()) {
        return Status::invalid_argument("there is only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                                        "the environment", "set both, or neither");
      }
      return found;
    }
    for (const auto* settings : {&credentials_, &config_}) {
      const auto get = [&](const char* name) {
        const auto setting = settings->find(name);
        return setting == settings->end() ? std::string() : setting->second;
      };
      found = {get("aws_access_key_id"), get("aws_secret_access_key"), get("aws_session_token")};
      if (!found.access_key_id.empty() && !found.secret_access_key.empty()) return found;
    }
    for (const char* const other : {"credential_process", "role_arn", "sso_session", "sso_start_url"}) {
      if (config_.count(other) != 0 || credentials_.count(other) != 0) {
        return Status::unsupported(fmt::format("this profile has its credentials by {}", other), profile_,
                                   "let `aws configure export-credentials --format env` put them into the environment");
      }
    }
    return Status::invalid_argument("there are no credentials for S3", "profile " + profile_,
                                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to "
                                    "~/.aws/credentials");
  }

 private:
  explicit Sources(S3Environment environment) : environment_(std::move(environment)) {}

  std::string file(const std::string& name, const std::string& in_home) const {
    const std::string home = variable("HOME").value_or("") + "/";
    const std::string path = variable(name).value_or("~/" + in_home);
    return path.starts_with("~/") ? home + path.substr(2) : path;
  }
  /// Whether there is such a section.
  static bool take(const Sections& from, std::string_view section, std::map<std::string, std::string>& into) {
    const auto found = from.find(section);
    if (found == from.end()) return false;
    into.insert(found->second.begin(), found->second.end());
    return true;
  }

  S3Environment environment_;
  std::string profile_;
  std::map<std::string, std::string> credentials_, config_;
};

/// "https://Host:443" becomes "https://host".
Result<std::string> origin_of(std::string_view endpoint) {
  const auto refused = [&](const char* why) {
    // What stands before an @ may be a password.
    const bool may_show = endpoint.find('@') == std::string_view::npos;
    return Status::invalid_argument(fmt::format("this is no endpoint of S3: {}", why),
                                    may_show ? std::string(endpoint) : std::string(), "write http[s]://host[:port]");
  };
  const std::string lower = ascii_lower_case(endpoint);
  std::string_view rest = lower;
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t scheme_end = rest.find("://");
  if (scheme_end == std::string_view::npos) return refused("it has no http:// or https://");
  const std::string_view scheme = rest.substr(0, scheme_end);
  if (scheme != "http" && scheme != "https") return refused("it has neither http:// nor https://");
  rest.remove_prefix(scheme_end + 3);
  if (rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._:[]") != std::string_view::npos)
    return refused("only host and port may follow");
  std::string_view host = rest;
  // The colons of an IPv6 address are in brackets.
  if (const size_t colon = rest.rfind(':');
      colon != std::string_view::npos && rest.find(']', colon) == std::string_view::npos) {
    host = rest.substr(0, colon);
    const Result<uint64_t> port = parse_number(rest.substr(colon + 1), 65535);
    if (!port.ok() || *port == 0) return refused("the port is not a number from 1 to 65535");
    if (*port == (scheme == "https" ? 443u : 80u)) rest = host;
  }
  if (host.empty()) return refused("it has no host");
  return fmt::format("{}://{}", scheme, rest);
}

std::string endpoint_of_aws(std::string_view region) {
  return fmt::format("https://s3.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
}

/// So that no credential can end a header and begin another.
Status check_credentials(const S3Credentials& credentials) {
  for (const std::string* text :
       {&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token}) {
    if (text->size() > kCredentialBytesMax ||
        !std::all_of(text->begin(), text->end(), [](char c) { return c > ' ' && c <= '~'; })) {
      return Status::invalid_argument("the credentials for S3 have characters that none can have", "",
                                      "check AWS_ACCESS_KEY_ID and its companions, or ~/.aws/credentials");
    }
  }
  return {};
}
}  // namespace

Result<S3Place> S3Place::parse(std::string_view text) {
  const Status refused =
      Status::invalid_argument("not the address of a place in a bucket", std::string(text), "write s3://bucket/prefix");
  if (!text.starts_with(kScheme)) return refused;
  const std::string_view rest = text.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  S3Place place{std::string(rest.substr(0, slash)), std::string(rest.substr(std::min(slash + 1, rest.size())))};
  if (place.bucket.empty()) return refused;
  VARVE_TRY(check_bucket(place.bucket));
  if (place.prefix.ends_with('/')) place.prefix.pop_back();
  if (place.prefix.empty()) return place;
  VARVE_TRY(check_s3_key(place.prefix));
  place.prefix += '/';
  return place;
}

std::string S3Place::to_string() const {
  std::string text = fmt::format("{}{}/{}", kScheme, bucket, prefix);
  text.pop_back();  // the "/" behind the prefix, or behind a bucket without one
  return text;
}

Result<std::string> S3Place::key(std::string_view name) const {
  std::string key = prefix + std::string(name);
  VARVE_TRY(check_s3_key(key));
  return key;
}

Status check_s3_key(std::string_view key) {
  if (key.empty() || key.size() > kKeyBytesMax) {
    return Status::invalid_argument(fmt::format("a key in a bucket has 1 to {} characters", kKeyBytesMax),
                                    std::string(key.substr(0, 100)));
  }
  std::string_view rest = key;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    if (part.empty() || part == "." || part == "..")
      return Status::invalid_argument("no part of a key may be empty, \".\" or \"..\"", std::string(key));
    if (!std::all_of(part.begin(), part.end(), is_key_byte)) {
      return Status::invalid_argument(
          "a key in a bucket may have letters, digits, \"-\", \".\", \"_\", \"~\" and \"/\" only", std::string(key));
    }
    if (part.size() == rest.size()) return {};
    rest.remove_prefix(part.size() + 1);
  }
}

S3Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

namespace {
Result<S3Credentials> find_credentials(const Sources& sources, const S3Options& options) {
  VARVE_ASSIGN(const S3Credentials credentials, sources.credentials(!options.profile.empty()));
  VARVE_TRY(check_credentials(credentials));
  return credentials;
}
}  // namespace

Result<S3Settings> find_s3_settings(const S3Place& place, const S3Options& options, const S3Environment& environment) {
  VARVE_ASSIGN(const Sources sources, Sources::read(options, environment));
  S3Settings settings;
  VARVE_ASSIGN(settings.credentials, find_credentials(sources, options));

  settings.region =
      options.region.empty() ? sources.first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region") : options.region;
  if (settings.region.empty()) settings.region = kDefaultRegion;
  if (!std::all_of(settings.region.begin(), settings.region.end(),
                   [](char c) { return is_letter_or_digit(c) || c == '-'; }))
    return Status::invalid_argument("a region has letters, digits and \"-\" only", settings.region);

  std::string endpoint = options.endpoint;
  if (endpoint.empty()) endpoint = sources.first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
  const bool own_endpoint = !endpoint.empty();
  VARVE_ASSIGN(settings.origin, origin_of(own_endpoint ? endpoint : endpoint_of_aws(settings.region)));
  settings.path_style = options.path_style.value_or(own_endpoint || place.bucket.find('.') != std::string::npos);
  settings.ca_file = sources.first_of({"AWS_CA_BUNDLE"}, "ca_bundle");
  settings.newer_credentials = [options, environment]() -> std::optional<S3Credentials> {
    const Result<Sources> newer = Sources::read(options, environment);
    if (!newer.ok()) return std::nullopt;
    const Result<S3Credentials> found = find_credentials(*newer, options);
    return found.ok() ? std::optional(*found) : std::nullopt;
  };
  return settings;
}

}  // namespace varve
