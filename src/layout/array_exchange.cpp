#include "layout/array_exchange.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace varve {
namespace {

bool send_whole(int socket, ByteSpan from) {
  while (!from.empty()) {
    const ssize_t sent = ::send(socket, from.data(), from.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from = from.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool receive_whole(int socket, MutableByteSpan into) {
  while (!into.empty()) {
    const ssize_t got = ::recv(socket, into.data(), into.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into = into.subspan(static_cast<size_t>(got));
  }
  return true;
}

struct Wish {
  ArrayWish kind = ArrayWish::check;
  Variable array;
  CellBox box;
};

Result<Wish> decode_wish(ByteSpan bytes) {
  ByteReader in(bytes);
  Wish wish;
  VARVE_ASSIGN(const uint8_t kind, in.u8());
  wish.kind = static_cast<ArrayWish>(kind);
  VARVE_ASSIGN(Layout layout, decode_layout(in));
  if (layout.variables.size() != 1) return Status::corrupt("no wish");
  wish.array = std::move(layout.variables.front());
  for (std::vector<uint64_t>* const numbers : {&wish.box.offset, &wish.box.cells}) {
    for (size_t d = 0; d < wish.array.shape.size(); ++d) {
      VARVE_ASSIGN(const uint64_t number, in.varint());
      numbers->push_back(number);
    }
  }
  if (!in.at_end() || !lies_in(wish.box, wish.array.shape)) return Status::corrupt("no wish");
  return wish;
}

/// The end of the exchange that decodes.
class Decoder {
 public:
  Decoder(int socket, const LayoutReader& reader, uint64_t file_bytes)
      : socket_(socket), reader_(reader), file_bytes_(file_bytes) {}

  /// False: there is none any more.
  bool receive_wish() {
    constexpr uint64_t bytes_max = 1_MiB;
    uint64_t bytes = 0;
    if (!receive_whole(socket_, std::as_writable_bytes(std::span(&bytes, 1))) || bytes > bytes_max) return false;
    wish_.resize(bytes);
    return receive_whole(socket_, wish_);
  }

  bool answer() {
    Buffer cells;
    const Status status = guarded(cells);
    if (status.ok()) {
      const ArrayAnswer answer{.kind = ArrayAnswer::Kind::cells, .bytes = cells.size()};
      return send_whole(socket_, std::as_bytes(std::span(&answer, 1))) && send_whole(socket_, cells);
    }
    ByteVector failure;
    encode_failure(status, failure);
    const ArrayAnswer answer{.kind = ArrayAnswer::Kind::failure, .bytes = failure.size()};
    return send_whole(socket_, std::as_bytes(std::span(&answer, 1))) && send_whole(socket_, failure);
  }

 private:
  /// Other libraries throw, at the latest when memory runs out.
  Status guarded(Buffer& cells) {
    try {
      return fulfil(cells);
    } catch (const std::bad_alloc&) {
      return Status::resource_limit("not enough memory");
    } catch (const std::exception& failure) {
      return Status::corrupt(failure.what());
    }
  }

  Status fulfil(Buffer& cells) {
    VARVE_ASSIGN(const Wish wish, decode_wish(wish_));
    if (file_ == nullptr) {
      VARVE_ASSIGN(
          file_, reader_.open_encoded([this](uint64_t offset, MutableByteSpan into) { return read_file(offset, into); },
                                      file_bytes_));
    }
    if (wish.kind == ArrayWish::check) return file_->check(wish.array);
    const std::optional<uint64_t> bytes = array_bytes(wish.box.cells, wish.array.type.bytes);
    if (!bytes) return Status::resource_limit("too many cells");
    cells = Buffer(*bytes);
    return file_->read({wish.array, wish.box}, cells);
  }

  Result<uint64_t> read_file(uint64_t offset, MutableByteSpan into) const {
    uint64_t done = 0;
    while (done < into.size()) {
      const MutableByteSpan piece = into.subspan(done, std::min<uint64_t>(into.size() - done, kFilePieceBytesMax));
      const ArrayAnswer want{.kind = ArrayAnswer::Kind::want_file, .offset = offset + done, .bytes = piece.size()};
      uint64_t count = 0;
      if (!send_whole(socket_, std::as_bytes(std::span(&want, 1))) ||
          !receive_whole(socket_, std::as_writable_bytes(std::span(&count, 1))) || count > piece.size() ||
          !receive_whole(socket_, piece.first(count)))
        return Status::io_error("the file cannot be read");
      done += count;
      if (count < piece.size()) break;
    }
    return done;
  }

  const int socket_;
  const LayoutReader& reader_;
  const uint64_t file_bytes_;
  std::unique_ptr<EncodedFile> file_;  ///< null: not open yet
  ByteVector wish_;
};

}  // namespace

void decode_for(int socket, const LayoutReader& reader, uint64_t file_bytes, const std::function<void()>& before_each) {
  Decoder decoder(socket, reader, file_bytes);
  while (decoder.receive_wish()) {
    before_each();
    if (!decoder.answer()) return;
  }
}

void encode_wish(ArrayWish kind, const WantedBox& wanted, ByteVector& out) {
  ByteWriter writer(out);
  writer.u8(static_cast<uint8_t>(kind));
  Layout layout;
  Variable& array = layout.variables.emplace_back();
  array.name = wanted.array.name;
  array.type = wanted.array.type;
  array.shape = wanted.array.shape;
  encode_layout(layout, writer);
  for (const std::vector<uint64_t>* const numbers : {&wanted.box.offset, &wanted.box.cells}) {
    for (const uint64_t number : *numbers) writer.varint(number);
  }
}

void encode_failure(const Status& status, ByteVector& out) {
  ByteWriter writer(out);
  writer.u8(static_cast<uint8_t>(status.code()));
  for (const std::string_view text : {status.message(), status.subject()})
    writer.text(text.substr(0, kFailureBytesMax / 4));
}

std::optional<Status> decode_failure(ByteSpan bytes) {
  ByteReader in(bytes);
  const Result<uint8_t> code = in.u8();
  const Result<std::string_view> message = in.text(), subject = in.text();
  if (!code.ok() || !message.ok() || !subject.ok() || *code == 0 || *code > static_cast<uint8_t>(StatusCode::internal))
    return std::nullopt;
  return Status(static_cast<StatusCode>(*code), std::string(*message), std::string(*subject));
}

}  // namespace varve
