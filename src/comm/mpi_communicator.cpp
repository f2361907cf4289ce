#include "comm/mpi_communicator.h"

#ifdef VARVE_MPI_HAS_EXTENSIONS
#include <mpi-ext.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "comm/communicators.h"
#include "comm/ending_ranks.h"
#include "core/bytes.h"

namespace varve {

namespace {

Status mpi_status(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  int error_class = MPI_ERR_OTHER;
  if (MPI_Error_class(code, &error_class) != MPI_SUCCESS) error_class = MPI_ERR_OTHER;
  const StatusCode kind = error_class == MPI_ERR_NO_MEM ? StatusCode::resource_limit : StatusCode::io_error;
  return {kind, fmt::format("{} failed: {}", call, std::string_view(text, static_cast<size_t>(length))), "MPI"};
}

/// Calls `act(first, count)` for the pieces of `total` things, `piece` at a time.
template <class Act>
Status for_each_piece(uint64_t total, uint64_t piece, Act act) {
  for (uint64_t first = 0; first < total; first += piece) {
    VARVE_TRY(act(first, static_cast<int>(std::min(piece, total - first))));
  }
  return {};
}

extern "C" int note_mpi_end(MPI_Comm, int, void* communicator, void*);

/// It ends at the beginning of MPI_Finalize(), which first of all deletes the attributes of MPI_COMM_SELF: one of them
/// is ours, with a callback.
class MpiCommunicator final : public Communicator, public EndingRanks {
 public:
  /// Owns `ranks`.
  MpiCommunicator(MPI_Comm ranks, uint64_t piece_bytes) : ranks_(ranks), piece_bytes_(piece_bytes) {}
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  ~MpiCommunicator() override {
    // Nothing may be called any more then, and there is nothing left to free.
    if (ended()) return;
    before_end_ = nullptr;
    const bool watches = end_key_ != MPI_KEYVAL_INVALID;
    // The callback frees the ranks.
    if (watches) MPI_Comm_delete_attr(MPI_COMM_SELF, end_key_);
    if (watches) MPI_Comm_free_keyval(&end_key_);
    if (!ended_) free_ranks();
  }

  bool ended() const override {
    int finalized = 0;
    return ended_ || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0;
  }
  void set_before_end(std::function<void()> call) override { before_end_ = std::move(call); }

  /// MPI ends, or this does.
  void end() {
    if (before_end_) before_end_();
    before_end_ = nullptr;
    ended_ = true;
    free_ranks();
  }

  /// Asks MPI what stays the same, and to be told of its end.
  Status prepare() {
    int rank = 0, rank_count = 0, threads = MPI_THREAD_SINGLE, tag_is_set = 0;
    int* tag_max = nullptr;
    VARVE_TRY(mpi_status(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    VARVE_TRY(mpi_status(MPI_Comm_rank(ranks_, &rank), "MPI_Comm_rank"));
    VARVE_TRY(mpi_status(MPI_Comm_size(ranks_, &rank_count), "MPI_Comm_size"));
    VARVE_TRY(mpi_status(MPI_Query_thread(&threads), "MPI_Query_thread"));
    VARVE_TRY(mpi_status(MPI_Comm_get_attr(ranks_, MPI_TAG_UB, &tag_max, &tag_is_set), "MPI_Comm_get_attr"));
    rank_ = static_cast<uint32_t>(rank);
    rank_count_ = static_cast<uint32_t>(rank_count);
    concurrent_ = threads == MPI_THREAD_MULTIPLE;
    if (tag_is_set != 0) tag_max_ = static_cast<uint32_t>(*tag_max);
    VARVE_TRY(mpi_status(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note_mpi_end, &end_key_, nullptr),
                         "MPI_Comm_create_keyval"));
    return mpi_status(MPI_Comm_set_attr(MPI_COMM_SELF, end_key_, this), "MPI_Comm_set_attr");
  }

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return rank_count_; }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    VARVE_TRY(check_not_ended());
    uint64_t own_bytes = mine.size(), total = 0;
    std::vector<uint64_t> bytes(rank_count_);
    VARVE_TRY(
        checked(MPI_Allgather(&own_bytes, 1, MPI_UINT64_T, bytes.data(), 1, MPI_UINT64_T, ranks_), "MPI_Allgather"));
    for (uint64_t length : bytes) total += length;
    std::vector<ByteVector> given(rank_count_);
    if (total <= piece_bytes_) {
      VARVE_TRY(gather_at_once(mine, bytes, total, given));
      return given;
    }
    for (uint32_t root = 0; root < rank_count_; ++root) {
      if (root == rank_) given[root].assign(mine.begin(), mine.end());
      given[root].resize(bytes[root]);
      VARVE_TRY(broadcast_pieces(given[root], root));
    }
    return given;
  }

  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_TRY(check_not_ended());
    VARVE_TRY(check_rank(root, rank_count_));
    uint64_t bytes = roots.size();
    VARVE_TRY(checked(MPI_Bcast(&bytes, 1, MPI_UINT64_T, static_cast<int>(root), ranks_), "MPI_Bcast"));
    ByteVector given;
    if (root == rank_) given.assign(roots.begin(), roots.end());
    given.resize(bytes);
    VARVE_TRY(broadcast_pieces(given, root));
    return given;
  }

  Status all_min(std::span<uint64_t> values) override { return reduce(values, MPI_MIN); }
  Status all_max(std::span<uint64_t> values) override { return reduce(values, MPI_MAX); }
  Status begin_all_max(std::span<uint64_t> values) override {
    VARVE_TRY(check_not_ended());
    if (values.size() > piece_bytes_ / sizeof(uint64_t)) return {};
    begun_ = std::make_unique<Reduction>();
    begun_->values.assign(values.begin(), values.end());
    return checked(MPI_Iallreduce(MPI_IN_PLACE, begun_->values.data(), static_cast<int>(values.size()), MPI_UINT64_T,
                                  MPI_MAX, ranks_, &begun_->request),
                   "MPI_Iallreduce");
  }
  Status finish_all_max(std::span<uint64_t> values) override {
    VARVE_TRY(check_not_ended());
    if (!begun_) return all_max(values);
    const std::unique_ptr<Reduction> begun = std::move(begun_);
    VARVE_TRY(checked(MPI_Wait(&begun->request, MPI_STATUS_IGNORE), "MPI_Wait"));
    std::copy(begun->values.begin(), begun->values.end(), values.begin());
    return {};
  }
  Status barrier() override {
    VARVE_TRY(check_not_ended());
    return checked(MPI_Barrier(ranks_), "MPI_Barrier");
  }

  bool concurrent() const override { return concurrent_; }

  void revoke() override {
    if (revoked_.exchange(true)) return;
#ifdef VARVE_WITH_ULFM
    // All calls of all ranks fail then, those that wait already among them.
    if (!ended()) MPIX_Comm_revoke(ranks_);
#endif
  }

  /// A message is sent in pieces of piece_bytes_ and a last one that is shorter, perhaps empty: so the receiver knows
  /// where it ends, and a message of the wrong size does not become part of the next.
  Status send(uint32_t to, uint32_t tag, ByteSpan message) override {
    VARVE_TRY(check_message(to, tag));
    uint64_t at = 0;
    for (bool last = false; !last;) {
      const uint64_t bytes = std::min<uint64_t>(piece_bytes_, message.size() - at);
      last = bytes < piece_bytes_;
      VARVE_TRY(checked(MPI_Send(message.data() + at, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to),
                                 static_cast<int>(tag), ranks_),
                        "MPI_Send"));
      at += bytes;
    }
    return {};
  }

  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    VARVE_TRY(check_message(from, tag));
    uint64_t at = 0;
    for (bool last = false; !last;) {
      VARVE_ASSIGN(const uint64_t bytes, receive_piece(from, tag, into.subspan(std::min<uint64_t>(at, into.size()))));
      last = bytes < piece_bytes_;
      at += bytes;
    }
    if (at != into.size()) return wrong_message_size(from, at, into.size());
    return {};
  }

 private:
  Status gather_at_once(ByteSpan mine, const std::vector<uint64_t>& bytes, uint64_t total,
                        std::vector<ByteVector>& given) {
    std::vector<int> counts, offsets;
    uint64_t offset = 0;
    for (uint64_t length : bytes) {
      counts.push_back(static_cast<int>(length));
      offsets.push_back(static_cast<int>(offset));
      offset += length;
    }
    ByteVector all(total);
    VARVE_TRY(checked(MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), counts.data(),
                                     offsets.data(), MPI_BYTE, ranks_),
                      "MPI_Allgatherv"));
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
      const auto first = all.begin() + offsets[rank];
      given[rank].assign(first, first + counts[rank]);
    }
    return {};
  }

  Status broadcast_pieces(MutableByteSpan bytes, uint32_t root) {
    return for_each_piece(bytes.size(), piece_bytes_, [&](uint64_t first, int count) {
      return checked(MPI_Bcast(bytes.data() + first, count, MPI_BYTE, static_cast<int>(root), ranks_), "MPI_Bcast");
    });
  }

  void free_ranks() {
    int is_over = 1;
    if (begun_) MPI_Test(&begun_->request, &is_over, MPI_STATUS_IGNORE);
    // Others may still be at work with what this rank has begun: that stays as it is.
    if (is_over != 0) {
      MPI_Comm_free(&ranks_);
    } else {
      (void)begun_.release();
    }
  }

  Status reduce(std::span<uint64_t> values, MPI_Op operation) {
    VARVE_TRY(check_not_ended());
    return for_each_piece(values.size(), piece_bytes_ / sizeof(uint64_t), [&](uint64_t first, int count) {
      return checked(MPI_Allreduce(MPI_IN_PLACE, values.data() + first, count, MPI_UINT64_T, operation, ranks_),
                     "MPI_Allreduce");
    });
  }

  /// A rank that has died is noticed by those alone that have to do with it: the others learn it here.
  Status checked(int code, std::string_view call) {
#ifdef VARVE_WITH_ULFM
    int error_class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
    if (error_class == MPIX_ERR_PROC_FAILED) revoke();
#endif
    return mpi_status(code, call);
  }

  Status check_not_ended() const {
    if (revoked_) return Status::io_error("a rank has died, or has given the session up", "MPI");
    if (!ended()) return {};
    return Status::io_error("MPI is finalised, so that ranks cannot be reached", "MPI");
  }

  Status check_message(uint32_t rank, uint32_t tag) const {
    VARVE_TRY(check_not_ended());
    if (!concurrent_) {
      return Status::unsupported("messages need MPI_THREAD_MULTIPLE", "MPI", "ask MPI_Init_thread for it");
    }
    if (tag > tag_max_) {
      return Status::invalid_argument(fmt::format("tag {} of a message is larger than {}", tag, tag_max_));
    }
    return check_rank(rank, rank_count_);
  }

  /// The bytes of the next piece, which were put into `into` if they fit there, and dropped if not.
  Result<uint64_t> receive_piece(uint32_t from, uint32_t tag, MutableByteSpan into) {
    MPI_Message piece = MPI_MESSAGE_NULL;
    MPI_Status about{};
    int bytes = 0;
    // A matched probe: another thread that probes for a message cannot take this one.
    VARVE_TRY(checked(MPI_Mprobe(static_cast<int>(from), static_cast<int>(tag), ranks_, &piece, &about), "MPI_Mprobe"));
    VARVE_TRY(checked(MPI_Get_count(&about, MPI_BYTE, &bytes), "MPI_Get_count"));
    const auto wanted = static_cast<uint64_t>(bytes);
    Buffer dropped(wanted <= into.size() ? 0 : wanted);
    std::byte* const to = wanted <= into.size() ? into.data() : dropped.data();
    VARVE_TRY(checked(MPI_Mrecv(to, bytes, MPI_BYTE, &piece, &about), "MPI_Mrecv"));
    return wanted;
  }

  struct Reduction {
    std::vector<uint64_t> values;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm ranks_;
  std::unique_ptr<Reduction> begun_;  ///< by begin_all_max()
  const uint64_t piece_bytes_;
  uint32_t rank_ = 0, rank_count_ = 0;
  uint32_t tag_max_ = std::numeric_limits<int16_t>::max();  ///< MPI's least
  bool concurrent_ = false;
  int end_key_ = MPI_KEYVAL_INVALID;
  std::function<void()> before_end_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> revoked_{false};
};

extern "C" int note_mpi_end(MPI_Comm, int, void* communicator, void*) {
  static_cast<MpiCommunicator*>(communicator)->end();
  return MPI_SUCCESS;
}

Status check_usable(MPI_Comm ranks) {
  int initialized = 0, finalized = 0, two_groups = 0;
  VARVE_TRY(mpi_status(MPI_Initialized(&initialized), "MPI_Initialized"));
  VARVE_TRY(mpi_status(MPI_Finalized(&finalized), "MPI_Finalized"));
  if (initialized == 0) return Status::invalid_argument("MPI is not initialised", "", "call MPI_Init first");
  if (finalized != 0) return Status::invalid_argument("MPI is finalised already");
  if (ranks == MPI_COMM_NULL) return Status::invalid_argument("MPI_COMM_NULL has no ranks");
  VARVE_TRY(mpi_status(MPI_Comm_test_inter(ranks, &two_groups), "MPI_Comm_test_inter"));
  if (two_groups != 0) return Status::invalid_argument("an intercommunicator has two groups of ranks", "", "merge it");
  return {};
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_mpi_communicator_in_pieces(MPI_Comm ranks, uint64_t piece_bytes) {
  VARVE_TRY(check_usable(ranks));
  MPI_Comm own = MPI_COMM_NULL;
  VARVE_TRY(mpi_status(MPI_Comm_dup(ranks, &own), "MPI_Comm_dup"));
  auto communicator = std::make_unique<MpiCommunicator>(own, piece_bytes);
  VARVE_TRY(communicator->prepare());
  return std::unique_ptr<Communicator>(std::move(communicator));
}

Result<std::unique_ptr<Communicator>> make_mpi_communicator(MPI_Comm ranks) {
  return make_mpi_communicator_in_pieces(ranks, 1_GiB);
}

}  // namespace varve
