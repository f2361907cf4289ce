#include "reader/part_decoder.h"

#include <algorithm>

#include "codec/chunk_formats.h"
#include "codec/inflater.h"
#include "layout/layout.h"

namespace varve {

namespace {
/// Packs that are kept: the description of a file, and what is decoded, lie apart.
constexpr size_t kFilePacksKept = 16;

constexpr const char* kTakeTheFile = "take its files, and read them with their format's library";

/// Where the store is whole, it is the file, or whoever was to read it.
Status decoded(const Status& status) {
  return status.ok() || status.remedy() != Remedy::none ? status : status.with_hint(kTakeTheFile);
}
Status nobody_knows(const StoredPart& part) {
  if (!part.why_unknown.ok()) return decoded(part.why_unknown);
  return Status::unsupported("its bytes in the file are compressed, or in pieces, by the file's own format", {},
                             kTakeTheFile);
}
}  // namespace

/// The content of a part that is one deflated stream. To go back is to begin anew.
class PartDecoder::Deflated {
 public:
  Deflated(const StoredPart& part, StreamReader& reader) : part_(part), reader_(reader), stored_(part) { begin(); }

  const StoredPart* part() const { return &part_; }

  /// After a failure it is of no use.
  Status read(uint64_t offset, MutableByteSpan into) {
    if (offset < at_) begin();
    VARVE_TRY(skip_to(offset));
    VARVE_TRY(take(into));
    // Behind the last cell there is nothing, but in odd files.
    return at_ == cells_end_ ? check_sum() : Status();
  }

 private:
  static constexpr uint64_t kSkippedBytes = 64_KiB;

  Status take(MutableByteSpan into) {
    VARVE_TRY(stream_->read(into));
    at_ += into.size();
    crc32_ = gzip_crc32(into, crc32_);
    return {};
  }

  Status skip_to(uint64_t offset) {
    while (at_ < offset) {
      skipped_.resize(std::min<uint64_t>(offset - at_, kSkippedBytes));
      VARVE_TRY(take(skipped_));
    }
    return {};
  }

  Status check_sum() {
    VARVE_TRY(skip_to(part_.content_bytes));
    return crc32_ == part_.content_crc32 ? Status()
                                         : Status::corrupt("what was deflated has another sum than the file says");
  }

  void begin() {
    at_ = stored_at_ = 0;
    crc32_ = 0;
    stream_.emplace([this](MutableByteSpan into) -> Result<size_t> {
      into = into.first(std::min<uint64_t>(into.size(), stored_.bytes() - stored_at_));
      VARVE_TRY(stored_.read(reader_, stored_at_, into));
      stored_at_ += into.size();
      return into.size();
    });
  }

  const StoredPart& part_;
  StreamReader& reader_;
  const PartStream stored_;
  std::optional<InflateStream> stream_;
  const uint64_t cells_end_ = part_.head_bytes + array_bytes(part_.shape, part_.type.bytes).value_or(0);
  uint64_t at_ = 0, stored_at_ = 0;  ///< in the content, and in what is stored
  uint32_t crc32_ = 0;               ///< of the content up to there
  ByteVector skipped_;
};

PartDecoder::PartDecoder(const Store& store) : reader_(store, kFilePacksKept), library_(make_decoding_reader()) {}
PartDecoder::~PartDecoder() = default;

Status PartDecoder::inflate(const StoredPart& part, const CellBox& box, MutableByteSpan into) {
  if (deflated_ == nullptr || deflated_->part() != &part) deflated_ = std::make_unique<Deflated>(part, reader_);
  const uint64_t element = part.type.bytes;
  const Status read = for_each_cell_run(box, part.own_box(), box, [&](const CellRun& run) {
    return deflated_->read(part.head_bytes + run.from * element, into.subspan(run.to * element, run.cells * element));
  });
  if (!read.ok()) deflated_.reset();
  return read;
}

EncodedSource PartDecoder::source_of(const StoredPart& part) {
  if (file_of_ != part.file) {
    file_.emplace(*part.leaf, *part.file);
    file_of_ = part.file;
  }
  return {.identity = part.file,
          .read = [this](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
            const uint64_t there = file_->bytes() - std::min(offset, file_->bytes());
            into = into.first(std::min<uint64_t>(into.size(), there));
            VARVE_TRY(file_->read(reader_, offset, into));
            return into.size();
          },
          .bytes = part.file->bytes};
}

Status PartDecoder::check(const StoredPart& part) {
  switch (part.coding) {
    case PartCoding::none: return {};
    case PartCoding::unknown: return nobody_knows(part);
    case PartCoding::zarr:
    case PartCoding::deflated: return {};
    case PartCoding::hdf5: return decoded(library_.check(source_of(part), *part.variable));
  }
  return Status::internal("a coding without a decoder");
}

Status PartDecoder::read(const StoredPart& part, const CellBox& box, MutableByteSpan into) {
  switch (part.coding) {
    case PartCoding::none: break;
    case PartCoding::unknown: return nobody_knows(part);
    case PartCoding::deflated: return decoded(inflate(part, box, into));
    case PartCoding::zarr: break;
    case PartCoding::hdf5: return decoded(library_.read(source_of(part), {*part.variable, box}, into));
  }
  return Status::internal("a part that is to be read otherwise");
}

}  // namespace varve
