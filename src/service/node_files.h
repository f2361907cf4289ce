#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/bytes.h"
#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// What whoever gathers a set wants to know of a node's files next.
struct FileQuestion {
  enum class Kind : uint8_t {
    none = 0,       ///< nothing more: the set is saved
    read = 1,       ///< `bytes` bytes of a file from `offset`
    hole = 2,       ///< how many of `bytes` bytes from `offset` are a hole
    unchanged = 3,  ///< whether all files are still as they were offered
  };
  Kind kind = Kind::none;
  uint64_t file = 0;  ///< ordinal in the offer
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const FileQuestion&) const = default;
  void visit(auto& fields) {  // PROTOCOL.md, "offer and answer"
    fields.choice(kind, Kind::unchanged);
    fields(file, offset, bytes);
  }
};

/// The files that a node has offered, as the one who gathers reads them: its questions go to the node's connection,
/// which passes them to the node, and brings the answers. Thread-safe.
class NodeFiles {
 public:
  explicit NodeFiles(std::string node) : node_(std::move(node)) {}
  const std::string& node() const { return node_; }

  /// For the one who gathers; as those of Source, one question at a time. busy: the node has gone away, or changed its
  /// files.
  Status read(uint64_t file, uint64_t offset, MutableByteSpan into);
  Result<uint64_t> hole_bytes(uint64_t file, uint64_t offset, uint64_t bytes_max);
  Status check_unchanged();
  /// That no question follows, as the set is saved, or why it is not.
  void finish(const Status& outcome);

  /// For the connection: the answer to the last question, if there was one: its failure, the bytes read, or the size of
  /// a hole.
  void answer(const Status& failure, ByteSpan data, uint64_t number);
  /// For the connection: the next question. `kind` none: the set is saved; or the failure of finish(). Nothing: there
  /// is none yet; when there may be, whoever watch() has named is told.
  std::optional<Result<FileQuestion>> question();
  /// `news` is called by other threads, must not wait, nor call anything here, and is not called any more once another
  /// one was named. Empty: nobody is told.
  void watch(std::function<void()> news);
  /// That the connection has ended.
  void leave();
  bool has_left() const;

 private:
  struct Exchange {
    FileQuestion question;
    MutableByteSpan into;
    uint64_t number = 0;
    Status failure;
    bool answered = false;
  };
  Status ask(Exchange& exchange);
  void tell() VARVE_REQUIRES(mutex_) {
    changed_.notify_all();
    if (news_) news_();
  }

  const std::string node_;
  Mutex asking_ VARVE_ACQUIRED_BEFORE(mutex_);  ///< held during a question
  mutable Mutex mutex_;
  ConditionVariable changed_;
  Exchange* exchange_ VARVE_GUARDED_BY(mutex_) = nullptr;  ///< the question at hand
  bool passed_on_ VARVE_GUARDED_BY(mutex_) = false;        ///< the node has it
  bool left_ VARVE_GUARDED_BY(mutex_) = false;
  std::optional<Status> outcome_ VARVE_GUARDED_BY(mutex_);
  std::function<void()> news_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
