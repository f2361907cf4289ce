#include "store/needs.h"

#include "store/pack_ranges.h"
#include "store/set_part.h"

namespace varve {

namespace {
void mark_leaf(const Leaf& leaf, Needs& needs) {
  for (const NodeLink& piece : leaf.pieces) needs.nodes.insert(piece.score);
  for (const TreeFile& file : leaf.files) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) continue;
        add_range(needs.packs[leaf.packs[reference.pack].score], {reference.offset, reference.bytes});
      }
    }
  }
}

Status mark_record(const Store& store, const SetRecord& record, Needs& needs) {
  for (const GroupRecord& group : record.groups) {
    needs.nodes.insert(group.root);
    VARVE_ASSIGN(Root root, store.read_root(group.root, group.hint));
    for (const LeafLink& link : root.leaves) {
      needs.nodes.insert(link.score);
      VARVE_ASSIGN(Leaf leaf, store.read_leaf(link));
      mark_leaf(leaf, needs);
    }
  }
  return {};
}

Status unknown(const Status& status, const std::string& whose, const std::string& hint) {
  return status.with_context("nothing was removed, as it is unknown what " + whose + " needs").with_hint(hint);
}

Status mark_parts(const Store& store, Needs& needs) {
  VARVE_ASSIGN(std::vector<PartName> names, list_parts(store));
  for (const PartName& name : names) {
    const Result<SetRecord> part = read_part(store, name);
    const Status marked = part.ok() ? mark_record(store, *part, needs) : part.status();
    // One that is gone has become a set, which is seen as such; or was given up.
    if (!marked.ok() && read_part(store, name).status().code() != StatusCode::not_found) {
      return unknown(marked, name.to_string(),
                     "remove the file " + join_path(store.parts_path(), name.file_name()) + " to give the part up");
    }
  }
  return {};
}

/// Whether a lease says nothing but whose it is, or not even that yet.
bool is_plain_lease(std::string_view text) {
  return text.empty() || (text[0] >= '0' && text[0] <= '9' && text.ends_with('\n'));
}

/// What a writer is about to commit: all of it is known if the lease holds a whole record. A record that is half
/// written is not needed yet (and looks as if it could not be understood, as long as it takes).
Status mark_leases(const Store& store, Needs& needs) {
  VARVE_ASSIGN(std::vector<DirectoryEntry> entries, store.fs().list(store.writers_path()));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = join_path(store.writers_path(), entry.name);
    const Result<ByteVector> raw = read_file(store.fs(), path, kSetRecordBytesMax);
    if (raw.ok() && is_plain_lease(as_text(*raw))) continue;
    Status marked = raw.status();
    if (raw.ok()) {
      const Result<SetRecord> record = decode_set_record(*raw, store.score());
      marked = record.ok() ? mark_record(store, *record, needs) : record.status();
    }
    // One that is gone has become a part or a set, which is seen as such; or was given up.
    if (!marked.ok() && store.fs().stat(path).status().code() != StatusCode::not_found) needs.uncertain = true;
  }
  return {};
}

/// What a set needs, if it is there. One that is dropped or replaced while its trees are read may have lost some.
Status mark_set(const Store& store, const SetName& name, Needs& needs) {
  const Catalog catalog(store);
  Result<SetRecord> record = catalog.read(name);
  while (record.status().code() != StatusCode::not_found) {
    const Status marked = record.ok() ? mark_record(store, *record, needs) : record.status();
    if (marked.ok()) return {};
    const Result<SetRecord> now = catalog.read(name);
    const bool other = now.status().code() == StatusCode::not_found ||
                       (record.ok() && now.ok() &&
                        encode_set_record(*now, store.score()) != encode_set_record(*record, store.score()));
    if (!other) {
      return unknown(marked, "the set " + name.to_string(), "`varve drop " + name.to_string() + "` gives the set up");
    }
    record = now;
  }
  return {};
}

Status mark_sets(const Store& store, Needs& needs) {
  VARVE_ASSIGN(std::vector<SetName> sets, Catalog(store).sets());
  for (const SetName& name : sets) VARVE_TRY(mark_set(store, name, needs));
  return {};
}
}  // namespace

Result<Needs> needs_of_sets(const Store& store) {
  Needs needs;
  VARVE_TRY(mark_parts(store, needs));
  VARVE_TRY(mark_leases(store, needs));
  VARVE_TRY(mark_sets(store, needs));
  for (auto& [score, ranges] : needs.packs) join_ranges(ranges);
  return needs;
}

}  // namespace varve
