#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "varve/communicator.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve {

/// The ElementType of a C++ type: numbers by their size, anything else that can be copied as bytes as opaque.
template <class T>
constexpr ElementType element_type_of() {
  static_assert(std::is_trivially_copyable_v<T>, "protect what is not plain bytes with callbacks");
  constexpr ByteOrder order = sizeof(T) > 1 && std::is_arithmetic_v<T> && std::endian::native == std::endian::big
                                  ? ByteOrder::big
                                  : ByteOrder::little;
  if constexpr (std::is_floating_point_v<T> && sizeof(T) <= 8) return {ElementKind::floating, order, sizeof(T)};
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) return {ElementKind::signed_integer, order, sizeof(T)};
  if constexpr (std::is_integral_v<T>) return {ElementKind::unsigned_integer, order, sizeof(T)};
  return {ElementKind::opaque, ByteOrder::little, sizeof(T)};
}

/// What can be copied as bytes and means the same afterwards.
template <class T>
concept PlainValue = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_array_v<T>;

/// In which order an ArrayShape names the dimensions.
enum class DimensionOrder {
  slowest_first,  ///< as C does: of a[z][y][x], z first
  fastest_first,  ///< as Fortran does: of a(x, y, z), x first
};

/// How an array lies in memory, and in the whole that the ranks share. All in elements, in the order that `order` says.
struct ArrayShape {
  std::vector<uint64_t> cells{};          ///< of the buffer, ghost cells and padding included; empty: one dimension
  std::vector<uint64_t> ghosts_low{};     ///< left out of the checkpoint at the low end of each dimension; empty: none
  std::vector<uint64_t> ghosts_high{};    ///< and at the high end
  std::vector<uint64_t> global_cells{};   ///< of the array of which this rank has a part; empty: not said
  std::vector<uint64_t> global_offset{};  ///< where the saved part lies in it
  /// Kept is what lies where: what was protected in the one order may be protected in the other.
  DimensionOrder order = DimensionOrder::slowest_first;

  /// `width` ghost cells at both ends of every dimension.
  static ArrayShape with_ghosts(std::vector<uint64_t> cells, uint64_t width) {
    const size_t dimensions = cells.size();
    return {std::move(cells),
            std::vector<uint64_t>(dimensions, width),
            std::vector<uint64_t>(dimensions, width),
            {},
            {},
            DimensionOrder::slowest_first};
  }
};

/// One of the boxes that a rank has of a whole: patches of a refined mesh, blocks of a list.
template <class T>
struct ArrayBox {
  std::span<T> data;   ///< ghost cells and padding included
  ArrayShape shape{};  ///< its global_cells may be left out
};

/// Whose each element of a vector is, after a restart with another number of ranks: the rank that `owner` names, or the
/// one that has the cell that `cell` names in the protected array `array` (ArrayShape::global_cells). Both are called
/// on the thread that calls restart(), once for each element at least, and not only for those that come to this rank;
/// all ranks must find the same.
struct ElementOwners {
  std::function<uint32_t(const std::byte* element)> owner{};
  std::string array{};
  /// Fills `cell`, which has as many numbers as the array has dimensions, in the order of its shape.
  std::function<void(const std::byte* element, std::span<uint64_t> cell)> cell{};
  uint64_t element_bytes = 0;  ///< that the functions read of an element; 0: as many as there are
};

/// What a restart with another number of ranks does with a variable that does not say where its part lies in a whole
/// (ArrayShape::global_cells).
enum class Redistribution {
  /// What several ranks saved alike, and a lone rank's scalars, come back everywhere; the rest is refused, and so are
  /// arrays and vectors of more than 16 elements of one value, which all ranks may only have begun with.
  none,
  same,    ///< what one rank saved, and all others alike, comes back everywhere
  evenly,  ///< of a vector each rank gets as many elements as the others, or one more, in the order of ranks
  ignore,  ///< nothing comes back: it keeps what it holds
};

/// Which checkpoint restart() takes: {.at_most = 100}, {.exactly = 80}. The same on all ranks.
struct RestartChoice {
  std::optional<uint64_t> at_most{};  ///< the newest that is of this step or a lower one; none: the newest of all
  std::optional<uint64_t> exactly{};  ///< of this step, or none: not_found
};

/// A variable of a checkpoint, as the ranks had protected it that made it. Shapes name the slowest dimension first.
struct SavedVariable {
  /// What one of them has saved of it, without ghost cells.
  struct Part {
    uint32_t rank = 0;
    std::vector<uint64_t> cells{};          ///< empty: a scalar
    std::vector<uint64_t> global_offset{};  ///< where it lies in the whole; empty: not said
  };
  std::string name{};
  ElementType type{};
  std::vector<uint64_t> global_cells{};  ///< of the whole; empty: not said
  uint64_t bytes = 0;                    ///< of all parts
  std::vector<Part> parts{};             ///< by rank; of one rank, as many as it had boxes
};

/// A checkpoint that restart() may take.
struct RestartPoint {
  uint64_t step = 0;
  uint32_t rank_count = 0;  ///< that made it; 0: not known
  std::optional<std::chrono::system_clock::time_point>
      made_at{};        ///< by the clock of who made it; none: it is in memory
  std::string place{};  ///< "memory", or the level's name
};

/// What to do when a checkpoint is due and the one before is not persistent yet.
enum class WhenBusy {
  wait,       ///< the program waits for it
  skip,       ///< the new checkpoint is left out
  two_slots,  ///< memory for a second snapshot; the program waits only if both are taken
  automatic,  ///< memory for a second snapshot once it is wanted, where there is plenty; else the program waits
};

/// What a session can be told. An empty option is taken from elsewhere, in this order: the environment variable
/// VARVE_<NAME IN CAPITALS>, the options file, this struct, the default (docs/GUIDE.md, "Options of a run").
struct SessionOptions {
  std::optional<std::string> options_file{};  ///< TOML; default: varve.toml in the working directory if there
  /// A folder (created if need be), a server, or "s3://bucket/prefix"; default "varve-store".
  std::optional<std::string> store{};
  /// In place of `store`: the places that hold checkpoints, nearest first, separated by ";", such as
  /// "memory; local:/nvme/varve keep=2; xor:8 every=2; dir:/lustre/varve every=10"
  /// (docs/GUIDE.md, "Levels of a run").
  std::optional<std::string> levels{};
  std::optional<std::string> key_file{};     ///< what servers over TCP share with their clients; on every node
  std::optional<std::string> s3_endpoint{};  ///< "http[s]://host[:port]": where the service of buckets is
  std::optional<std::string> job{};          ///< default: the program's name
  /// Ranks that share a checkpoint thread: "rank", "socket", "node" (default) or a number.
  std::optional<std::string> group{};
  std::optional<std::string> effort{};     ///< "auto" (default), "fast", "balanced" or "best"
  std::optional<std::string> codec{};      ///< a codec chain in place of an effort
  std::optional<std::string> scheme{};     ///< default "aware"
  std::optional<uint32_t> threads{};       ///< working for each group's checkpoint thread; default: one a rank
  std::optional<uint64_t> memory_bytes{};  ///< that a group's engine holds; default 256 MiB
  std::optional<uint64_t> every_steps{};   ///< due() every so many steps
  std::optional<double> every_seconds{};   ///< due() every so many seconds
  /// Seconds, of the whole job; due() by Daly's formula if neither of the above is given; default 24 hours.
  std::optional<double> mean_time_between_failures{};
  std::optional<WhenBusy> when_busy{};  ///< default automatic
  /// Seconds that a call waits at most for others, or for the store, before it says who is missing; default 30 minutes.
  std::optional<double> wait_limit{};
  std::optional<uint64_t> keep_last{};  ///< sets of this job; older ones go when a newer is complete; default: all stay
  std::optional<double> write_bytes_per_second{};  ///< that a group's thread writes at most; default: no limit
  std::optional<double> stop_after_seconds{};      ///< since open(): ask for a stop then
  std::optional<std::string> stop_file{};          ///< ask for a stop when this file is there
  std::optional<bool> stop_on_signals{};           ///< SIGTERM and SIGUSR1 ask for a stop; default true
  std::optional<bool> low_priority{};          ///< of the checkpoint threads where no free core is found; default true
  std::optional<std::string> shared_memory{};  ///< folder of a memory file system; default /dev/shm
  /// Where snapshots go that shared memory has no room for: a folder, "none", or "auto" (default), which is a folder of
  /// the node (docs/GUIDE.md, "Where memory is short").
  std::optional<std::string> snapshot_folder{};
  std::optional<bool> take_over{};  ///< open the session though another run of the job may live; default false
  /// What is protected need not be what was: an added variable keeps what it holds, a removed one is left out, each
  /// with a warning. A changed type stays an error. Default false: both are errors.
  std::optional<bool> variables_may_change{};
  /// Rank 0 says on standard error what else would easily be missed: that memory is short, or that open() waits to see
  /// whether another run lives. Also in warnings(). Default true.
  std::optional<bool> print_warnings{};
  /// Rank 0 writes facts of the run there every few seconds, for Prometheus: a file whose name ends with ".prom", or a
  /// folder, where it is called as the job; default: nowhere.
  std::optional<std::string> metrics_file{};
  /// The folder in which rank 0 notes what becomes of each checkpoint (docs/GUIDE.md, "timeline"); "auto" (default) is
  /// beside the sets of the farthest store that is a folder; "none".
  std::optional<std::string> timeline{};
};

/// How far one level is.
struct LevelProgress {
  std::string level;                 ///< as the option names it: "dir:/lustre/varve"
  std::optional<uint64_t> newest{};  ///< step of the newest set that this run brought there, or snapshot
  uint64_t waiting = 0;              ///< sets that are on their way there, or wait for their turn
  Status last_error{};               ///< of bringing sets there; the program goes on, and the next set is tried
};

/// How far stage 2 is.
struct SessionProgress {
  std::optional<uint64_t> newest_snapshot;  ///< step whose snapshot is complete in memory
  /// Step whose set is complete in the nearest store; where each node has one of its own, on all nodes, as far as these
  /// have told each other.
  std::optional<uint64_t> newest_persistent;
  uint64_t bytes_to_write = 0;  ///< raw bytes of this rank's group that are on their way
  uint64_t bytes_written = 0;   ///< of them, dealt with
  uint64_t skipped = 0;         ///< checkpoints left out because the one before was busy
  Status last_error;            ///< of stage 2; the program goes on
  /// Of all levels, nearest first. What is behind the nearest store is known to the first rank of each node alone, or,
  /// if all nodes share that store, to rank 0.
  std::vector<LevelProgress> levels;
};

/// A variable of bytes whose name begins so is a whole file: what its format says of it (plain HDF5, and classic
/// netCDF), the store makes use of, as of the same file in a folder.
inline constexpr std::string_view kFileVariable = "file:";

enum class Persistence {
  later,  ///< checkpoint() returns after the snapshot
  now,    ///< checkpoint() returns when the set is complete in the store, or has failed
};

/// Checkpoints of a running program: protect variables, restart, then checkpoint as the program goes on. Each rank has
/// one, opened together; calls marked collective are made by all ranks in the same order. One thread at a time (the
/// program's; ours are behind it). Nothing is printed but what print_warnings lets be, and no MPI call is made outside
/// these functions unless the library below allows several threads. Over MPI, one that is open in MPI_Finalize() is
/// finished there.
///
/// It belongs to the process that opened it: in one that is forked from that, all calls fail or say nothing, and its
/// end does nothing.
class Session {
 public:
  /// Collective. not_found, permission_denied, ...: the store cannot be used; invalid_argument: an option makes no
  /// sense. Of several levels, the nearest store has to be there: the run goes on without one behind it that cannot be
  /// reached, with a warning, and pushes try it again with each set.
  static Result<Session> open(std::unique_ptr<Communicator> ranks, SessionOptions options = {});
  /// For one process.
  static Result<Session> open(SessionOptions options = {}) {
    return open(make_single_communicator(), std::move(options));
  }

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();  ///< as finish(), waiting for what is on its way

  /// Protects an array: its bytes go into every checkpoint from now on, and come back by restart(). `data` must stay
  /// where it is; protect it again (same type) after it moved or changed its size. invalid_argument: the shape does not
  /// fit `data`, the type differs from before, or the name is not one (1 to 1,000 bytes, no control characters).
  template <class T, size_t kCount>
  Status protect(std::string_view name, std::span<T, kCount> data, const ArrayShape& shape = {}) {
    return protect_array(name, element_type_of<T>(), data.data(), data.size(), shape);
  }
  /// A scalar or a plain struct.
  template <PlainValue T>
  Status protect(std::string_view name, T& value) {
    return protect_scalar(name, element_type_of<T>(), &value);
  }
  /// A vector, whatever its size is at each checkpoint; restart() resizes it. The vector object must stay where it is.
  template <class T>
  Status protect(std::string_view name, std::vector<T>& values) {
    return protect_vector(
        name, element_type_of<T>(), [&values] { return std::as_bytes(std::span(values)); },
        [&values](uint64_t count) {
          values.resize(count);
          return std::as_writable_bytes(std::span(values));
        });
  }
  /// The same for what is no std::vector: `bytes` says where the elements are, `resize` makes room for so many and
  /// returns it. Both run inside checkpoint() and restart(), on the calling thread.
  Status protect_vector(std::string_view name, ElementType type, std::function<std::span<const std::byte>()> bytes,
                        std::function<std::span<std::byte>(uint64_t count)> resize);
  /// Several boxes of a whole of `global_cells`, or none: together they are one variable, each with memory of its own,
  /// of which all else holds that is said of an array. Protect it again with other boxes when these have changed.
  /// `order` is that of `global_cells` and of all boxes. It cannot be lent.
  template <class T>
  Status protect_boxes(std::string_view name, const std::vector<uint64_t>& global_cells,
                       const std::vector<ArrayBox<T>>& boxes, DimensionOrder order = DimensionOrder::slowest_first) {
    std::vector<ArrayBox<std::byte>> all;
    for (const ArrayBox<T>& box : boxes) all.push_back({std::as_writable_bytes(box.data), box.shape});
    return protect_boxes_of(name, element_type_of<T>(), global_cells, all, order);
  }
  /// An object by callbacks: `save` appends its bytes, `load` takes them back. Both run inside checkpoint() and
  /// restart(), on the calling thread.
  Status protect(std::string_view name, std::function<Status(std::vector<std::byte>&)> save,
                 std::function<Status(std::span<const std::byte>)> load);
  /// Says what becomes of a protected variable where restart() finds a checkpoint of another number of ranks. Vectors
  /// that belong together (positions and speeds of the same particles) stay together, as all are divided alike.
  /// not_found if it is not protected; invalid_argument if it is no vector, and would be divided.
  Status redistribute(std::string_view name, Redistribution how);
  /// The same by the owner of each element of the vector `name`; what is saved of a rank comes in its order, and ranks
  /// come in theirs. The vectors `together`, which had as many elements on each rank, are divided like it, so that what
  /// belongs to one element stays together. invalid_argument at the restart: an element is no rank's.
  Status redistribute(std::string_view name, ElementOwners owners, const std::vector<std::string>& together = {});
  template <PlainValue T, class Owner>
  Status redistribute_by_owner(std::string_view name, Owner owner, const std::vector<std::string>& together = {}) {
    ElementOwners owners;
    owners.element_bytes = sizeof(T);
    owners.owner = [owner](const std::byte* element) { return static_cast<uint32_t>(owner(element_at<T>(element))); };
    return redistribute(name, std::move(owners), together);
  }
  /// `cell(element, numbers)` fills the numbers of the element's cell in `array`.
  template <PlainValue T, class Cell>
  Status redistribute_by_cell(std::string_view name, std::string array, Cell cell,
                              const std::vector<std::string>& together = {}) {
    ElementOwners owners;
    owners.element_bytes = sizeof(T);
    owners.array = std::move(array);
    owners.cell = [cell](const std::byte* element, std::span<uint64_t> numbers) {
      cell(element_at<T>(element), numbers);
    };
    return redistribute(name, std::move(owners), together);
  }
  /// not_found if it is not protected.
  Status unprotect(std::string_view name);

  /// Memory for a grid that can be lent: zeroed, shared with the checkpoint thread, owned by the session until its end.
  /// Make all grids of a name with the same count; a spare is made along with the second.
  template <class T>
  Result<std::span<T>> make_grid(std::string_view name, uint64_t count) {
    if (count > UINT64_MAX / sizeof(T)) return Status::invalid_argument("a grid cannot be so large", std::string(name));
    VARVE_ASSIGN(std::byte* const memory, make_grid_bytes(name, count * sizeof(T)));
    return std::span<T>(reinterpret_cast<T*>(memory), count);
  }
  /// Hands `grid`, which holds the present content of the protected variable `name`, to the next checkpoint, which then
  /// copies nothing of it, and returns a spare to go on with. `grid` may still be read, but not written, until lend()
  /// returns it as a spare, which is only when its bytes are safe (toggle grids of Shahzad et al., figure 5). If all
  /// grids of that name are being written, waits. invalid_argument: not from make_grid(), or lent already.
  template <class T>
  Result<std::span<T>> lend(std::string_view name, std::span<T> grid) {
    VARVE_ASSIGN(std::byte* const memory, lend_bytes(name, reinterpret_cast<std::byte*>(grid.data())));
    return std::span<T>(reinterpret_cast<T*>(memory), grid.size());
  }

  /// Loads the newest set that is complete and intact on all ranks, from memory or the store, or what `choice` says,
  /// into what is protected, and returns its step; none: there is nothing to restart from. The newest is what was made
  /// last: where a run has gone back to an older step and on from there, what it has made since. If a newer one is
  /// damaged or missing on any rank, all ranks take the next older one, and warnings() says so. invalid_argument: a
  /// variable has another type or size there, or the set was made by another number of ranks and does not say what of
  /// it is whose now (Redistribution). unsupported: files that the program has written itself have compressed one in a
  /// way that is not known here. corrupt: there are some, but none is whole. io_error: no level that can be reached has
  /// one. not_found: `choice` names a step of which there is none. A set is read straight into what is protected, and
  /// checked on the way: an error after that says that what is protected is neither old nor new, so that a program that
  /// would begin anew sets it up again. Has the memory for checkpoints made behind the program's back, too, so that the
  /// first one takes no longer than the others; call it also where nothing can be there to restart from. What was in
  /// memory alone begins to go to the store, as by checkpoint(), since the program may end without another one.
  /// Collective.
  ///
  /// After checkpoints, too: the run goes back. First it waits for what is under way, as wait() does, and fails as that
  /// does if this takes too long (busy). invalid_argument: a variable was lent; protect anew where it is to come back.
  /// Sets of later steps stay where they are, and each is there until the run has made a whole one of its step, which
  /// takes its place.
  Result<std::optional<uint64_t>> restart(const RestartChoice& choice = {});
  /// What restart() or reject() has loaded last will not do: loads the next older one in its place, as restart() does,
  /// and takes the rejected one no more in this run, unless it is named (RestartChoice::exactly). None: there is no
  /// older one; what is protected is as the rejected one left it, and the run begins anew. invalid_argument: nothing
  /// was loaded, or there was a checkpoint since; or the older one lacks a variable, which holds what the rejected one
  /// had: to be protected anew. Collective.
  Result<std::optional<uint64_t>> reject();

  /// What restart() may take, the newest first, and of one checkpoint what is nearest first; as far as a glance tells.
  /// The same on all ranks. After checkpoints, of what is complete by now. Collective.
  Result<std::vector<RestartPoint>> restart_points();
  /// What is in the newest checkpoint of this step, so that a program can make the memory for it before it protects
  /// that. Takes memory for the parts of all ranks. The same on all ranks. not_found: there is none; corrupt, io_error:
  /// that of no place can be read. Collective.
  Result<std::vector<SavedVariable>> saved_variables(uint64_t step);

  /// Removes the checkpoint of this step from everywhere: from memory, and from the stores of all levels, whatever
  /// their rules say; those of other steps stay. First it waits for what is under way, as wait() does. Where it is
  /// interrupted, the checkpoint may be there as before. not_found: there is none; busy: what is under way takes too
  /// long; io_error: a level cannot be reached that may have it, and nothing was dropped. Collective.
  Status drop(uint64_t step);

  /// Whether a checkpoint should be made at this step: by every_steps, every_seconds or the best interval, and when a
  /// stop was asked for; what the ranks have to agree on comes with one of the next calls, so that nobody waits. The
  /// same on all ranks. Collective.
  bool due(uint64_t step);
  /// Snapshots all that is protected, and has it written while the program goes on. Steps grow from one to the next. If
  /// a checkpoint before has failed since, the error is returned once, by all ranks of the group that it concerns; this
  /// one is on its way all the same. busy: for `wait_limit` there was no room for a snapshot; this one is left out.
  /// Collective in that every rank must do it, but ranks do not wait for each other unless Persistence::now, to agree
  /// whether to leave it out (WhenBusy::skip), or, where nodes have stores of their own, to tell what each has, if no
  /// due() came before; and until all have come to the due() before it, if they talk in that.
  Status checkpoint(uint64_t step, Persistence persistence = Persistence::later);
  /// Whether the program should end: a stop was asked for, and the last checkpoint is made. The same on all ranks after
  /// the same due() and checkpoint().
  bool should_stop() const;

  /// Waits until everything is persistent, on all nodes; the error if it is not. busy: `wait_limit` has passed; the
  /// error says who is missing. Collective.
  Status wait();
  /// Waits so long at most, removes our memory, and ends the session: no call but report() afterwards. busy: time ran
  /// out, and the newest checkpoint was given up (earlier sets are there). Collective.
  Status finish(std::chrono::duration<double> limit = std::chrono::hours(1));
  /// Ends the session after a rank has died, without a word to the others: no call but report() afterwards. What is on
  /// its way to the store is given up; what is in memory stays there as that of a run that is over, and the job is
  /// free: the ranks that are left open a session anew on a communicator of their own, in the same processes, and
  /// restart() goes on from memory, the dead rank's snapshot included. Every rank that lives must do it before any of
  /// them opens the next one (else open() says busy). Waits for no other rank; those that wait for this one in a call
  /// of the session fail there, where the library below can tell them (Communicator::revoke()). Not collective.
  Status abandon();

  SessionProgress progress() const;
  /// What happened that the user should know, and takes them off the list.
  std::vector<Status> warnings();
  /// The options in effect and where each came from, one a line.
  std::string effective_options() const;
  /// What checkpointing cost and would cost: a few lines for people (after finish(): of the whole run). Rank 0's.
  std::string report() const;
  /// The same as JSON.
  std::string report_json() const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  Status protect_array(std::string_view name, ElementType type, void* data, uint64_t count, const ArrayShape& shape);
  Status protect_scalar(std::string_view name, ElementType type, void* data);
  Status protect_boxes_of(std::string_view name, ElementType type, const std::vector<uint64_t>& global_cells,
                          const std::vector<ArrayBox<std::byte>>& boxes, DimensionOrder order);
  /// Elements lie anywhere.
  template <class T>
  static T element_at(const std::byte* element) {
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), element, sizeof(T));
    return std::bit_cast<T>(bytes);
  }
  Result<std::byte*> make_grid_bytes(std::string_view name, uint64_t bytes);
  Result<std::byte*> lend_bytes(std::string_view name, std::byte* grid);

  std::unique_ptr<Impl> impl_;
};

}  // namespace varve
