#include "store/learned.h"

#include "codec/kept_encoders.h"
#include "hash/score.h"

namespace varve {

namespace {
constexpr std::string_view kMagic = "VARVELRN";
constexpr uint16_t kVersion = 1;
constexpr size_t kHeaderBytes = kMagic.size() + 2, kCrcBytes = 4;

/// A folder, and not what a server or a bucket has.
bool is_near(const Store& store) {
  return store.backend().operations_at_once() == 1 && store.chunk_lookup() == nullptr;
}
std::string learned_path(const Store& store, const std::string& job) {
  return join_path(store.runs_path(), job + ".learned");
}

Status replace(const Store& store, const std::string& job, ByteSpan contents) {
  Backend& backend = store.backend();
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  const std::string draft = join_path(store.runs_path(), id.hex() + ".tmp");
  VARVE_TRY(backend.make_folder(store.runs_path()));
  const Result<std::unique_ptr<HeldRecord>> record = backend.records().hold(draft, contents);
  const Status replaced =
      record.ok() ? (*record)->become(learned_path(store, job), IfExists::replace) : record.status();
  if (!replaced.ok()) backend.remove_if_there(draft).ignore("a prune removes old drafts");
  return replaced;
}
}  // namespace

ByteVector read_learned(const Store& store, const std::string& job) {
  if (!is_near(store)) return {};
  Result<ByteVector> read =
      store.backend().read_record(learned_path(store, job), kHeaderBytes + KeptEncoders::kLearnedBytesMax + kCrcBytes);
  if (!read.ok() || read->size() < kHeaderBytes + kCrcBytes) return {};
  const ByteSpan said = ByteSpan(*read).first(read->size() - kCrcBytes);
  const bool is_one = as_text(said.first(kMagic.size())) == kMagic &&
                      load_le<uint16_t>(said.data() + kMagic.size()) == kVersion &&
                      load_le<uint32_t>(read->data() + said.size()) == crc32c(said);
  return is_one ? ByteVector(said.begin() + kHeaderBytes, said.end()) : ByteVector();
}

void write_learned(const Store& store, const std::string& job, ByteSpan learned) {
  if (!is_near(store)) return;
  if (learned.empty())
    return store.backend().remove_if_there(learned_path(store, job)).ignore("it serves somewhat longer");
  ByteVector contents;
  ByteWriter w(contents);
  w.bytes(as_bytes(kMagic));
  w.le16(kVersion);
  w.bytes(learned);
  w.le32(crc32c(contents));
  replace(store, job, contents).ignore("the next save finds out anew");
}

}  // namespace varve
