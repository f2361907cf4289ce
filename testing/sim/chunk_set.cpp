#include "sim/chunk_set.h"

#include <algorithm>
#include <cstring>

#include "engine/folder_scan.h"
#include "engine/save.h"
#include "sim/random.h"
#include "store/commit.h"
#include "store/stored_copies.h"

namespace varve::sim {

namespace {
ByteVector bytes_of(const Numbers& numbers) {
  ByteVector bytes(numbers.size() * kNumberedBytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    Random random(numbers[i] * 0x100000001b3ULL + 17);
    for (size_t at = 0; at < kNumberedBytes; at += sizeof(uint64_t)) {
      const uint64_t drawn = random.next();
      std::memcpy(bytes.data() + i * kNumberedBytes + at, &drawn, sizeof drawn);
    }
  }
  return bytes;
}

/// One file in memory.
class NumbersSource final : public Source {
 public:
  explicit NumbersSource(const Numbers& numbers) : bytes_(bytes_of(numbers)) {
    SourceFile file;
    file.path = "numbers";
    file.bytes = bytes_.size();
    file.mode = 0644;
    file.rank = 0;
    files_.push_back(std::move(file));
  }
  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink&) override {
    return std::vector<Layout>{opaque_layout(bytes_.size(), "/numbers")};
  }
  Status read(uint32_t, uint64_t offset, MutableByteSpan into) override {
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
    return {};
  }
  Result<uint64_t> hole_bytes(uint32_t, uint64_t, uint64_t) override { return uint64_t{0}; }
  Status check_unchanged() override { return {}; }

 private:
  const ByteVector bytes_;
  std::vector<SourceFile> files_;
};

Result<SetRecord> save_numbers(const Store& store, const SetName& name, const Numbers& numbers, IfExists if_exists) {
  NumbersSource source(numbers);
  SaveOptions options;
  options.job = name.job;
  options.step = name.step;
  options.chunker.bytes_average = kNumberedBytes;
  options.pack_bytes = 8 * kNumberedBytes;
  options.thread_count = 1;
  options.memory_bytes = 32 << 20;
  options.direct_io = false;
  SetRecord committed;
  VARVE_TRY(
      save_groups(store, {&source}, name, options, null_progress(), [&](WriterLease& lease, const SetRecord& record) {
        committed = record;
        return lease.commit(record, if_exists);
      }).status());
  return committed;
}
}  // namespace

Status save_numbers(const Store& store, const SetName& name, const Numbers& numbers) {
  VARVE_TRY(Catalog(store).check_is_new(name));
  return save_numbers(store, name, numbers, IfExists::refuse).status();
}

Result<SetRecord> save_numbers_anew(const Store& store, const SetName& name, const Numbers& numbers) {
  return save_numbers(store, name, numbers, IfExists::replace);
}

Status check_numbers(const Store& store, const SetName& name, const Numbers& numbers) {
  const Catalog catalog(store);
  auto read = [&]() -> Result<ByteVector> {
    VARVE_ASSIGN(const SetRecord record, catalog.read(name));
    ByteVector found;
    for (const GroupRecord& group : record.groups) {
      VARVE_ASSIGN(const Root root, read_root(store, group.root, group.hint));
      for (const LeafLink& link : root.leaves) {
        VARVE_ASSIGN(const Leaf leaf, read_leaf(store, link));
        for (const TreeFile& file : leaf.files) {
          for (const auto& stream : file.streams) {
            for (const Reference& reference : stream) {
              const Extent range{reference.offset, reference.bytes};
              VARVE_ASSIGN(Pack pack, read_pack(store, leaf.packs.at(reference.pack), std::span(&range, 1)));
              VARVE_ASSIGN(const ByteSpan bytes, pack.range(range.offset, range.bytes));
              found.insert(found.end(), bytes.begin(), bytes.end());
            }
          }
        }
      }
    }
    return found;
  };
  const Result<ByteVector> found = read();
  if (!found.ok()) return catalog.unless_dropped(name, found.status());
  return *found == bytes_of(numbers) ? Status()
                                     : Status::internal("a set has other bytes than were saved", name.to_string());
}

}  // namespace varve::sim
