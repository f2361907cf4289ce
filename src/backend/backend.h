#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"

namespace varve {

struct PutOptions {
  /// Bypass the page cache where that can be done; then as CreateOptions::direct says.
  bool direct = false;
  /// Contents are durable once the object is sealed. Without: the object can be made anew, and may be lost.
  bool durable = true;
};

/// An object on its way into a backend. Nobody sees it before it is sealed; given up by the destructor if it never is,
/// and after any failure. One caller at a time.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  /// Writes all of `from` at `offset`.
  virtual Status write_at(uint64_t offset, ByteSpan from) = 0;
  /// As File::writes_at_once().
  virtual size_t writes_at_once() const { return 1; }
  /// What was written.
  virtual Result<size_t> read_at(uint64_t offset, MutableByteSpan into) = 0;
  /// Ends the object after so many bytes and gives it its name: from now on all see it, whole. The name is durable once
  /// its folder is settled. already_exists: there is another object of that name. not_found: somebody took it for a
  /// leftover meanwhile. Nothing follows.
  virtual Status seal(uint64_t bytes) = 0;
};

/// What to do if an object of that name is there already.
enum class IfExists : uint8_t { refuse, replace };

/// A small record that its maker may still change, as long as nobody else has removed it. The destructor leaves it as
/// it is. One caller at a time.
class HeldRecord {
 public:
  virtual ~HeldRecord() = default;
  /// Makes `contents` all that it says, durably. While that goes on, others may read any part of it. If somebody has
  /// removed the record, that may come out only later, in become().
  virtual Status rewrite(ByteSpan contents) = 0;
  /// The commit: the record is from now on the object `name`, at one blow, and no record any more, at the latest when
  /// this is destroyed. Of this and a removal of the record, one alone happens. already_exists: there is such an
  /// object, and it is to be refused. not_found: the record was removed. The folder is made if it is not there. The new
  /// name is durable once its folder is settled, and, if that may be new, the one above.
  virtual Status become(const std::string& name, IfExists if_exists) = 0;
};

/// The small records by which writers agree, among the objects of a backend. All operations may be called from several
/// threads.
class Records {
 public:
  virtual ~Records() = default;
  /// Durable, name and all, when it returns. already_exists, without a change, if the name is taken.
  virtual Status publish(const std::string& name, ByteSpan contents) = 0;
  /// The same in the place of whatever had the name: all see the one or the other.
  virtual Status replace(const std::string& name, ByteSpan contents) = 0;
  /// The same for a record that will be changed, or need not be durable: others may see the name before the contents.
  virtual Result<std::unique_ptr<HeldRecord>> hold(const std::string& name, ByteSpan contents) = 0;
  /// Sets a record's time of change to now: a sign of life. not_found if it is gone.
  virtual Status touch(const std::string& name) = 0;
  /// Removes a record that still says this; OK if it says something else by now, or is gone. Who changes it at the same
  /// time may be told that it is gone, though it is not.
  virtual Status remove_unchanged(const std::string& name, ByteSpan contents) = 0;
  /// Removes what HeldRecord::become() has made, if it is this still; false: another has its name by now. That stays:
  /// it may be hidden for a moment, as PutAside, and if this is stopped then, or fails, until unhide().
  virtual Result<bool> remove_committed(const std::string& name, ByteSpan contents) = 0;
  /// Gives the objects of a folder their names back that removals which were stopped have hidden, but for those that
  /// were to go; `finish`: these go now. OK if there is no such folder.
  virtual Status unhide(const std::string& folder, bool finish) = 0;
  /// Removes what is hidden and had this name, whatever it is.
  virtual Status remove_hidden(const std::string& name) = 0;
  /// If above 0: HeldRecord::become() is two steps here, and may still take effect when somebody else has removed the
  /// record, but not later than this after the last sign of life.
  virtual double late_commit_seconds() const { return 0; }
  /// Whether `name`, of which nobody knows whether it was made, is there with these contents, and nothing that was
  /// begun before takes it away: not_found if not; busy if that cannot be told now.
  virtual Status confirm(const std::string& name, ByteSpan contents) = 0;
  /// What a record would be stamped with now, in nanoseconds.
  virtual Result<int64_t> now() = 0;
};

/// Where the objects of a store lie: made for objects that are written once and never change, and for small records by
/// which writers agree. Names are `/`-separated, begin with the store's root, and are what messages show; a folder is
/// the names that begin alike. All operations may be called from several threads.
///
/// Whoever sees a name sees all that the object has, unless a verb says otherwise; and a list shows every name that was
/// given, and none that was removed, before the list was asked for. Names are durable once their folder is settled.
/// Times are by the backend's own clock alone.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& root() const = 0;
  /// How records are made, changed and taken away. They are read, listed and removed as all objects are.
  virtual Records& records() = 0;

  virtual Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) = 0;
  virtual Result<std::unique_ptr<RangeReader>> open(const std::string& name) = 0;
  /// What is in a folder, in no order; not_found if there is no such folder, in a backend that knows.
  virtual Result<std::vector<DirectoryEntry>> list(const std::string& folder) = 0;
  /// The names of objects in a folder that are on their way, or that a writer which was killed has left. remove() takes
  /// them away.
  virtual Result<std::vector<std::string>> unfinished(const std::string& folder) = 0;
  virtual Result<FileStatus> status(const std::string& name) = 0;
  /// not_found if it is not there.
  virtual Status remove(const std::string& name) = 0;
  /// Makes durable what names the folder has been given and what it has lost, by anybody. See FileSystem about loss of
  /// power, and watch_power().
  virtual Status settle(const std::string& folder) = 0;

  // What it can do

  /// As FileSystem::watch_power(), for settle().
  virtual Result<std::unique_ptr<PowerWatch>> watch_power() { return std::unique_ptr<PowerWatch>(); }
  /// What may still be written; unsupported: nobody knows.
  virtual Result<uint64_t> free_bytes(const std::string& folder) = 0;
  /// What people call `name`: see FileSystem::shown_path().
  virtual std::string shown_path(const std::string& name) const { return name; }
  /// Folders need not be made before there is anything in them. A backend that has real ones makes one, whose name is
  /// durable once the folder above is settled, and removes an empty one; already_exists: it is not empty.
  virtual Status make_folder(const std::string&) { return {}; }
  virtual Status remove_folder(const std::string&) { return {}; }
  /// How many operations are worth asking for at the same time: above 1 where each waits for somebody far away.
  virtual size_t operations_at_once() const { return 1; }

  // Made of the above, where a backend has no shorter way

  /// OK also if it is not there.
  virtual Status remove_if_there(const std::string& name);
  /// The whole of a record that should be small; resource_limit if it is larger than `bytes_max`.
  virtual Result<ByteVector> read_record(const std::string& name, uint64_t bytes_max);
  /// The objects in a folder and what status() says of each: where a list tells that as well, with nothing more asked.
  /// What has gone since the list is not there.
  virtual Result<std::map<std::string, Result<FileStatus>>> list_with_status(const std::string& folder);
  /// The objects in the folders of a folder, as "folder/object", in no order; not_found as list().
  virtual Result<std::vector<std::string>> list_in_folders(const std::string& folder);
  /// settle() for all folders in a folder, and then for itself.
  virtual Status settle_with_folders(const std::string& folder);
};

/// Makes a folder, and its name durable.
Status make_folder_durably(Backend& backend, const std::string& folder);
/// What the name of an object ends in until it is sealed.
inline constexpr std::string_view kUnsealedSuffix = ".part";
/// What an object is called in a folder until it is sealed (FORMAT.md, "The folder of a store").
std::string unfinished_name(std::string_view name);

}  // namespace varve
