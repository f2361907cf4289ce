#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "s3/fake_s3.h"
#include "s3/s3_client.h"

namespace varve {

/// A client over a service in memory, in a time that passes only in pauses.
class FakeService {
 public:
  explicit FakeService(FakeS3Options options = {}) : now_(1'700'000'000) {
    options.calendar = [this] { return now_ + static_cast<int64_t>(clock_.seconds()); };
    fake_ = std::make_unique<FakeS3>(std::move(options));
    client_ = make_client();
  }

  /// Another client, whose clock is so much ahead of the service's.
  std::unique_ptr<S3Client> make_client(int64_t ahead_seconds = 0, S3Credentials credentials = {"access", "secret", {}},
                                        S3ClientOptions options = {}) {
    const S3Settings settings{"http://127.0.0.1:1", "us-east-1", true, {}, std::move(credentials)};
    options.retries.clock = &clock_;
    options.retries.calendar = [this, ahead_seconds] {
      return now_ + ahead_seconds + static_cast<int64_t>(clock_.seconds());
    };
    return std::make_unique<S3Client>(*fake_, S3Place{"bucket", ""}, settings, std::move(options));
  }

  FakeS3& fake() { return *fake_; }
  S3Client& client() { return *client_; }
  ManualClock& clock() { return clock_; }
  int64_t now() const { return now_ + static_cast<int64_t>(clock_.seconds()); }
  /// How many requests of this method were carried out.
  size_t carried_out(std::string_view method) const {
    const auto log = fake_->log();
    return static_cast<size_t>(
        std::count_if(log.begin(), log.end(), [&](const std::string& line) { return line.starts_with(method); }));
  }

 private:
  const int64_t now_;
  ManualClock clock_;
  std::unique_ptr<FakeS3> fake_;
  std::unique_ptr<S3Client> client_;
};

inline std::string text_of(const Result<S3Contents>& contents) {
  return contents.ok() ? std::string(as_text(contents->bytes)) : contents.status().to_string();
}

}  // namespace varve
