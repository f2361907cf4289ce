#include "count/counting_communicator.h"

#include "core/bytes.h"

namespace varve::count {

MessageCounts& MessageCounts::operator+=(const MessageCounts& other) {
  collectives += other.collectives;
  collective_bytes += other.collective_bytes;
  messages += other.messages;
  message_bytes += other.message_bytes;
  return *this;
}

MessageCounts MessageCounts::operator-(const MessageCounts& before) const {
  return {collectives - before.collectives, collective_bytes - before.collective_bytes, messages - before.messages,
          message_bytes - before.message_bytes};
}

namespace {
class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(std::unique_ptr<Communicator> inner, MessageCounter& counter)
      : inner_(std::move(inner)), counter_(counter) {}

  uint32_t rank() const override { return inner_->rank(); }
  uint32_t rank_count() const override { return inner_->rank_count(); }

  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    VARVE_ASSIGN(std::vector<ByteVector> all, inner_->all_gather(mine));
    uint64_t bytes = 0;
    for (const ByteVector& one : all) bytes += one.size();
    counter_.note_collective(bytes - mine.size());
    return all;
  }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_ASSIGN(ByteVector told, inner_->broadcast(roots, root));
    counter_.note_collective(root == rank() ? 0 : told.size());
    return told;
  }
  Status all_min(std::span<uint64_t> values) override {
    counter_.note_collective(values.size_bytes());
    return inner_->all_min(values);
  }
  Status all_max(std::span<uint64_t> values) override {
    counter_.note_collective(values.size_bytes());
    return inner_->all_max(values);
  }
  Status barrier() override {
    counter_.note_collective(0);
    return inner_->barrier();
  }

  bool concurrent() const override { return inner_->concurrent(); }
  Status send(uint32_t to, uint32_t tag, ByteSpan message) override {
    counter_.note_message(message.size());
    return inner_->send(to, tag, message);
  }
  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    return inner_->receive(from, tag, into);
  }
  void revoke() override { inner_->revoke(); }

 private:
  const std::unique_ptr<Communicator> inner_;
  MessageCounter& counter_;
};
}  // namespace

std::unique_ptr<Communicator> counted(std::unique_ptr<Communicator> ranks, MessageCounter& counter) {
  return std::make_unique<CountingCommunicator>(std::move(ranks), counter);
}

}  // namespace varve::count
