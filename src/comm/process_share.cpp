#include "comm/process_share.h"

#include <unistd.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/process.h"
#include "core/status_codec.h"
#include "core/sync.h"

namespace varve {

namespace {
/// Warnings of one process that are told; more would hide the others'.
constexpr size_t kWarningsMax = 100;
}  // namespace

uint32_t ProcessShares::take(uint64_t bytes) {
  // By the middle of the piece, so that a process gets more or less than its share by half a piece at most.
  const double middle = static_cast<double>(before_) + static_cast<double>(bytes) / 2;
  before_ += bytes;
  if (total_bytes_ == 0) return 0;
  const double process = middle / static_cast<double>(total_bytes_) * count_;
  return std::min(static_cast<uint32_t>(process), count_ - 1);
}

Result<uint32_t> threads_of_process(Communicator& ranks) {
  const std::string host = host_name();
  const ByteSpan mine = as_bytes(std::string_view(host));
  VARVE_ASSIGN(const auto hosts, ranks.all_gather(mine));
  const auto here = std::count_if(hosts.begin(), hosts.end(), [&](const std::vector<std::byte>& other) {
    return std::equal(other.begin(), other.end(), mine.begin(), mine.end());
  });
  const uint32_t processors = processor_count();
  return std::max(processors / static_cast<uint32_t>(std::max<ptrdiff_t>(here, 1)), 1u);
}

void SharedProgress::total(uint64_t bytes) {
  if (ranks_.rank() == 0) inner_.total(bytes);
}
void SharedProgress::advance(uint64_t bytes) {
  if (ranks_.rank() == 0) inner_.advance(bytes);
}
void SharedProgress::phase(std::string_view name) {
  if (ranks_.rank() == 0) inner_.phase(name);
}
void SharedProgress::warning(const Status& what) {
  if (ranks_.rank() == 0) return inner_.warning(what);
  const MutexLock lock(mutex_);
  if (warnings_.size() < kWarningsMax) warnings_.push_back(what);
}

Status SharedProgress::tell_warnings() {
  ByteVector mine;
  ByteWriter writer(mine);
  {
    const MutexLock lock(mutex_);
    for (const Status& warning : warnings_) writer.text(as_text(encode_status(warning)));
  }
  VARVE_ASSIGN(const auto all, ranks_.all_gather(mine));
  if (ranks_.rank() != 0) return {};
  for (const std::vector<std::byte>& of_one : all) {
    ByteReader reader(of_one);
    while (!reader.at_end()) {
      VARVE_ASSIGN(const std::string_view encoded, reader.text());
      Status warning;
      VARVE_TRY(decode_status(as_bytes(encoded), warning));
      inner_.warning(warning);
    }
  }
  return {};
}

}  // namespace varve
