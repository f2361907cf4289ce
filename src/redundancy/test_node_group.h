#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "redundancy/rebuild.h"

namespace varve::test {

/// Lengths of each member's files by name.
using FileSizes = std::vector<std::map<std::string, uint64_t>>;

/// The nodes of one failure group, each with a disk of its own, for tests. Files of data are random, and durable.
class NodeGroup {
 public:
  NodeGroup(std::string_view scheme, const FileSizes& sizes, uint64_t seed)
      : redundancy_(Redundancy::parse(scheme).value()) {
    std::mt19937_64 random(seed);
    for (const auto& files : sizes) {
      disks_.push_back(empty_disk());
      names_.emplace_back();
      for (const auto& [name, bytes] : files) {
        ByteVector contents(bytes);
        for (std::byte& each : contents) each = static_cast<std::byte>(random());
        put(members() - 1, name, contents);
        names_.back().push_back(name);
      }
    }
  }
  /// With disks of its own. What was not durable stays.
  NodeGroup copy() const {
    NodeGroup other;
    other.redundancy_ = redundancy_;
    other.names_ = names_;
    other.label_ = label_;
    for (const auto& disk : disks_) other.disks_.push_back(disk->after_crash({CrashPolicy::Kind::keep_all}));
    return other;
  }

  uint32_t members() const { return static_cast<uint32_t>(disks_.size()); }
  const Redundancy& redundancy() const { return redundancy_; }
  MemoryFileSystem& fs(uint32_t position) { return *disks_[position]; }
  static std::string folder() { return "/node"; }
  static std::string path(std::string_view name) { return join_path(folder(), name); }
  void relabel(std::string label) { label_ = std::move(label); }

  void put(uint32_t position, const std::string& name, ByteSpan contents) {
    (void)fs(position).remove(path(name));
    const Status status = write_file_durably(fs(position), path(name), contents);
    if (!status.ok()) std::abort();
  }
  void remove(uint32_t position, std::string_view name) {
    if (!fs(position).remove(path(name)).ok() || !fs(position).sync_directory(folder()).ok()) std::abort();
  }
  /// Empty if there is none.
  ByteVector contents(uint32_t position, const std::string& name) const {
    const Result<ByteVector> bytes = read_file(*disks_[position], path(name), 1_GiB);
    return bytes.ok() ? *bytes : ByteVector();
  }
  /// A new disk takes the place of the old one.
  void lose(uint32_t position) { disks_[position] = empty_disk(); }
  void crash(uint32_t position, const CrashPolicy& policy) { disks_[position] = disks_[position]->after_crash(policy); }
  /// One bit of the middle of a file is wrong.
  void damage(uint32_t position, const std::string& name) {
    ByteVector bytes = contents(position, name);
    if (!bytes.empty()) bytes[bytes.size() / 2] ^= std::byte{1};
    put(position, name, bytes);
  }
  /// A file that is drawn is damaged: gone, shorter, longer, or with other bytes.
  void damage_some_file(uint32_t position, uint64_t draw) {
    const std::vector<std::string> all = file_names(position);
    if (all.empty()) return;
    std::mt19937_64 random(draw);
    const std::string& name = all[random() % all.size()];
    ByteVector bytes = contents(position, name);
    switch (random() % 4) {
      case 0: (void)fs(position).remove(path(name)); return;
      case 1: bytes.resize(bytes.size() / 2); break;
      case 2: bytes.push_back(std::byte{7}); break;
      default:
        if (!bytes.empty()) bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
        break;
    }
    put(position, name, bytes);
  }
  std::vector<std::string> file_names(uint32_t position) const {
    std::vector<std::string> names;
    const auto entries = disks_[position]->list(folder());
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    return names;
  }
  bool same_files_of(const NodeGroup& other, uint32_t position) const {
    if (file_names(position) != other.file_names(position)) return false;
    for (const std::string& name : file_names(position)) {
      if (contents(position, name) != other.contents(position, name)) return false;
    }
    return true;
  }
  bool same_files(const NodeGroup& other) const {
    for (uint32_t position = 0; position < members(); ++position) {
      if (!same_files_of(other, position)) return false;
    }
    return true;
  }

  std::vector<FolderExchange::Place> places() {
    std::vector<FolderExchange::Place> all;
    for (const auto& disk : disks_) all.push_back({disk.get(), folder()});
    return all;
  }
  Result<ParityGroup> describe() {
    ProtectedGroup group{label_, redundancy_, ScoreFunction::preferred().algorithm(), {}};
    for (uint32_t position = 0; position < members(); ++position) {
      VARVE_ASSIGN(ProtectedMember member, describe_member(fs(position), folder(), "node" + std::to_string(position),
                                                           names_[position], redundancy_));
      group.members.push_back(std::move(member));
    }
    return ParityGroup::create(std::move(group));
  }
  Status protect() {
    for (uint32_t position = 0; position < members(); ++position) VARVE_TRY(protect_with(position, fs(position)));
    return {};
  }
  /// One member's share of it, with another view of its disk.
  Status protect_with(uint32_t position, FileSystem& own) {
    VARVE_ASSIGN(const ParityGroup group, describe());
    FolderExchange exchange(group, places());
    return make_parity(own, folder(), group, position, exchange);
  }

  /// What all members find out together before they rebuild.
  struct Rebuilding {
    std::unique_ptr<ParityGroup> group;
    RebuildPlan plan;
  };
  Result<Rebuilding> look() {
    std::vector<ByteVector> descriptions;
    for (const auto& disk : disks_) {
      const Result<ParityHeader> header = read_member_header(*disk, folder());
      descriptions.push_back(header.ok() ? header->group.description() : ByteVector());
    }
    VARVE_ASSIGN(ParityGroup agreed, agree_on_group(descriptions, label_));
    auto group = std::make_unique<ParityGroup>(std::move(agreed));
    std::vector<MemberSurvey> surveys;
    for (uint32_t position = 0; position < members(); ++position) {
      surveys.push_back(survey_member(fs(position), folder(), *group, position));
    }
    VARVE_ASSIGN(RebuildPlan plan, RebuildPlan::create(*group, std::move(surveys)));
    return Rebuilding{std::move(group), std::move(plan)};
  }
  Status rebuild() {
    VARVE_ASSIGN(const Rebuilding rebuilding, look());
    for (uint32_t position = 0; position < members(); ++position) {
      VARVE_TRY(rebuild_one(rebuilding, position, fs(position)));
    }
    return {};
  }
  Status rebuild_with(uint32_t position, FileSystem& own) {
    VARVE_ASSIGN(const Rebuilding rebuilding, look());
    return rebuild_one(rebuilding, position, own);
  }

 private:
  NodeGroup() = default;
  static std::unique_ptr<MemoryFileSystem> empty_disk() {
    auto disk = std::make_unique<MemoryFileSystem>();
    if (!disk->create_directory(folder()).ok() || !disk->sync_directory("/").ok()) std::abort();
    return disk;
  }
  Status rebuild_one(const Rebuilding& rebuilding, uint32_t position, FileSystem& own) {
    // The member's own disk is its own view of it also where others read it.
    std::vector<FolderExchange::Place> seen = places();
    seen[position].fs = &own;
    FolderExchange exchange(*rebuilding.group, seen);
    return varve::rebuild(own, folder(), rebuilding.plan, position, exchange);
  }

  Redundancy redundancy_;
  std::string label_ = "job@7";
  std::vector<std::unique_ptr<MemoryFileSystem>> disks_;
  std::vector<std::vector<std::string>> names_;
};

}  // namespace varve::test
