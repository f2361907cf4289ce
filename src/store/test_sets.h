#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "store/arena_writer.h"
#include "store/catalog.h"
#include "store/chunk_index.h"
#include "store/commit.h"
#include "store/stored_copies.h"

namespace varve::test {

/// Writes a set by hand, one arena and one group: what a save would lay down, or what none would.
class SetMaker {
 public:
  explicit SetMaker(const Store& store)
      : store_(store), lease_(WriterLease::acquire(store).value()), arena_id_(lease_->arena_id(0)) {
    writer_ =
        ArenaWriter::create(store.backend(), store.arena_path(arena_id_), arena_header(store, arena_id_), in_turn())
            .value();
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

  Status seal() { return writer_->seal(); }
  /// Seals the arena and commits a set with this root.
  Status commit(const SetName& name, const LeafLink& root_link, uint64_t number = 0) {
    VARVE_TRY(seal());
    return commit_sealed(name, root_link, number);
  }
  Status commit_sealed(const SetName& name, const LeafLink& root_link, uint64_t number = 0) {
    SetRecord record;
    record.name = name;
    record.number = number;
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

inline constexpr size_t kNumberedChunkBytes = 1024;

/// Chunk number `number`: bytes of its own, which do not shrink.
inline ByteVector numbered_chunk(uint64_t number) {
  std::mt19937_64 random(number);
  ByteVector bytes(kNumberedChunkBytes);
  for (size_t i = 0; i < bytes.size(); i += 8) store_le<uint64_t>(bytes.data() + i, random());
  return bytes;
}

/// Lays a set down, but for its commit: one file that consists of these chunks, those that the index finds shared with
/// earlier sets, the others in packs of eight. Returns the root.
inline Result<LeafLink> lay_numbers(const Store& store, SetMaker& maker, const std::vector<uint64_t>& numbers) {
  VARVE_ASSIGN(std::set<ArenaId> condemned, maker.lease().condemned());
  VARVE_ASSIGN(auto index, ChunkIndex::open(store, std::move(condemned), 1_MiB));
  ChunkIndex::Cursor cursor(*index);
  Leaf leaf;
  std::vector<Reference> references;
  std::vector<ByteVector> fresh;
  auto finish_pack = [&] {
    if (fresh.empty()) return;
    leaf.packs.push_back(maker.pack(fresh));
    fresh.clear();
  };
  for (uint64_t number : numbers) {
    const ByteVector chunk = numbered_chunk(number);
    if (auto known = cursor.find(store.score()(chunk), chunk.size())) {
      finish_pack();
      leaf.packs.push_back(known->pack);
      references.push_back({static_cast<uint32_t>(leaf.packs.size() - 1), known->offset, chunk.size()});
      continue;
    }
    references.push_back({static_cast<uint32_t>(leaf.packs.size()), fresh.size() * chunk.size(), chunk.size()});
    fresh.push_back(chunk);
    if (fresh.size() == 8) finish_pack();
  }
  finish_pack();
  leaf.files.push_back(SetMaker::plain_file("numbers", std::move(references)));
  return maker.root({maker.leaf(leaf)});
}

/// Saves such a set.
inline Status save_numbers(const Store& store, const SetName& name, const std::vector<uint64_t>& numbers,
                           uint64_t set_number = 0) {
  SetMaker maker(store);
  VARVE_ASSIGN(LeafLink root, lay_numbers(store, maker, numbers));
  return maker.commit(name, root, set_number);
}

/// OK if the group's file consists of these chunks.
inline Status check_group_numbers(const Store& store, const GroupRecord& group, const std::vector<uint64_t>& numbers) {
  VARVE_ASSIGN(Root root, read_root(store, group.root, group.hint));
  VARVE_ASSIGN(Leaf leaf, read_leaf(store, root.leaves.at(0)));
  ByteVector expected, found;
  for (uint64_t number : numbers) {
    const ByteVector chunk = numbered_chunk(number);
    expected.insert(expected.end(), chunk.begin(), chunk.end());
  }
  for (const Reference& reference : leaf.files.at(0).streams.at(0)) {
    const Extent range{reference.offset, reference.bytes};
    VARVE_ASSIGN(Pack pack, read_pack(store, leaf.packs.at(reference.pack), std::span(&range, 1)));
    VARVE_ASSIGN(ByteSpan bytes, pack.range(range.offset, range.bytes));
    found.insert(found.end(), bytes.begin(), bytes.end());
  }
  return found == expected ? Status() : Status::internal("a group holds other bytes than were saved");
}

/// OK if the set is there and its file consists of these chunks.
inline Status check_numbers(const Store& store, const SetName& name, const std::vector<uint64_t>& numbers) {
  VARVE_ASSIGN(SetRecord record, Catalog(store).read(name));
  return check_group_numbers(store, record.groups.at(0), numbers).with_context(name.to_string());
}

/// The file of this name can neither be read nor looked at.
class UnreadableFile final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  std::string name;  ///< without folders; empty: all can be read

  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (base_name(path) == name) return Status::io_error("the disk fails", path);
    return ForwardingFileSystem::open_read(path);
  }
  Result<FileStatus> stat(const std::string& path) override {
    if (base_name(path) == name) return Status::io_error("the disk fails", path);
    return ForwardingFileSystem::stat(path);
  }
};

/// first, first + 1, ... last.
inline std::vector<uint64_t> numbers_between(uint64_t first, uint64_t last) {
  std::vector<uint64_t> numbers;
  for (uint64_t number = first; number <= last; ++number) numbers.push_back(number);
  return numbers;
}

}  // namespace varve::test
