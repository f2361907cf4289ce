#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arena/arena_writer.h"
#include "store/catalog.h"
#include "store/writer_lease.h"

namespace varve::test {

/// Writes a set by hand, one arena and one group: what a save would lay down, or what none would.
class SetMaker {
 public:
  explicit SetMaker(const Store& store)
      : store_(store), lease_(WriterLease::acquire(store).value()), arena_id_(lease_->arena_id(0)) {
    writer_ =
        ArenaWriter::create(store.fs(), store.part_path(arena_id_), store.arena_header(arena_id_), in_turn()).value();
  }

  static ArenaWriterOptions in_turn() { return {.direct = false, .background = false, .buffer_bytes = 64_KiB}; }

  const ArenaId& arena() const { return arena_id_; }
  ArenaWriter& writer() { return *writer_; }
  WriterLease& lease() { return *lease_; }

  /// A pack of these chunks, stored as they are.
  PackLink pack(const std::vector<ByteVector>& chunks) {
    PackMeta meta;
    ByteVector body;
    meta.class_key = "made_BYTES";
    meta.recipe = {std::byte{0}};
    for (const ByteVector& chunk : chunks) {
      meta.chunks.push_back({static_cast<uint32_t>(chunk.size()), store_.score()(chunk)});
      body.insert(body.end(), chunk.begin(), chunk.end());
    }
    meta.score = pack_score(store_.score(), meta.chunks);
    return pack(meta, body);
  }
  /// A pack as it is told.
  PackLink pack(const PackMeta& meta, ByteSpan body) {
    writer_->append_pack(meta, body).value();
    return {meta.score, arena_id_};
  }

  /// A tree node of this content, whatever it says, under its true score.
  LeafLink node(ByteSpan content) {
    const Score score = store_.score()(content);
    writer_->append_node(score, content).value();
    return {score, arena_id_, 0, 0};
  }
  LeafLink leaf(const Leaf& leaf) { return node(encode_leaf(leaf, store_.score().score_bytes())); }
  LeafLink root(const std::vector<LeafLink>& leaves) {
    return node(encode_root({leaves}, store_.score().score_bytes()));
  }

  Status seal() { return writer_->seal(store_.arena_path(arena_id_)); }
  /// Seals the arena and commits a set with this root.
  Status commit(const SetName& name, const LeafLink& root_link) {
    VARVE_TRY(seal());
    return commit_sealed(name, root_link);
  }
  Status commit_sealed(const SetName& name, const LeafLink& root_link) {
    SetRecord record;
    record.name = name;
    record.groups.push_back({root_link.score, root_link.hint, writer_->bytes()});
    return lease_->commit(record);
  }

  /// A regular file of which nothing is known but its bytes.
  static TreeFile plain_file(const std::string& path, std::vector<Reference> references) {
    TreeFile file;
    file.path = path;
    file.layout.format = "raw";
    for (const Reference& reference : references) file.bytes += reference.bytes;
    file.streams.push_back(std::move(references));
    return file;
  }

 private:
  const Store& store_;
  std::unique_ptr<WriterLease> lease_;
  ArenaId arena_id_;
  std::unique_ptr<ArenaWriter> writer_;
};

}  // namespace varve::test
