#include "service/tcp_tls.h"

#ifdef VARVE_HAVE_TLS

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "service/record_socket.h"

namespace varve {

namespace {
// PROTOCOL.md, "TLS"
constexpr std::string_view kIdentity = "varve-1";  ///< of a client that does not say which key it has
constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherNumber{0x13, 0x01};

struct ContextFreer {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct SslFreer {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
struct MethodFreer {
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};
using Ssl = std::unique_ptr<SSL, SslFreer>;

std::string last_error() {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_peek_last_error(), text.data(), text.size());
  ERR_clear_error();
  return text.data();
}

RecordSocket& socket_of(BIO* bio) { return *static_cast<RecordSocket*>(BIO_get_data(bio)); }
bool is_not_ready(long result) { return result < 0 && (errno == EAGAIN || errno == EINTR); }
int put(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const long done = socket_of(bio).put(data, static_cast<size_t>(bytes));
  if (is_not_ready(done)) BIO_set_retry_write(bio);
  return static_cast<int>(done);
}
int get(BIO* bio, char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const long done = socket_of(bio).get(data, static_cast<size_t>(bytes));
  if (is_not_ready(done)) BIO_set_retry_read(bio);
  return static_cast<int>(done);
}
long control(BIO* bio, int command, long, void*) {
  if (command != BIO_CTRL_FLUSH) return 0;
  BIO_clear_retry_flags(bio);
  const long done = socket_of(bio).flush();
  if (is_not_ready(done)) BIO_set_retry_write(bio);
  return done < 0 ? done : 1;
}

BIO* make_bio(RecordSocket& socket) {
  static const std::unique_ptr<BIO_METHOD, MethodFreer> method = [] {
    std::unique_ptr<BIO_METHOD, MethodFreer> made(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "varve"));
    if (made) {
      BIO_meth_set_write(made.get(), put);
      BIO_meth_set_read(made.get(), get);
      BIO_meth_set_ctrl(made.get(), control);
    }
    return made;
  }();
  BIO* const bio = method ? BIO_new(method.get()) : nullptr;
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  return bio;
}

/// A key, and what it is called by.
struct NamedKey {
  SharedKey key;
  std::string identity;
};

SSL_SESSION* make_session(SSL* ssl, const SharedKey& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipherNumber.data());
  SSL_SESSION* const session = SSL_SESSION_new();
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()), key.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 || SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

const std::vector<NamedKey>& keys_of(SSL* ssl) {
  return *static_cast<const std::vector<NamedKey>*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

int find_session(SSL* ssl, const unsigned char* identity, size_t bytes, SSL_SESSION** session) {
  *session = nullptr;
  const std::string_view named(reinterpret_cast<const char*>(identity), bytes);
  const std::vector<NamedKey>& keys = keys_of(ssl);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (named != keys[i].identity && (i > 0 || named != kIdentity)) continue;
    *session = make_session(ssl, keys[i].key);
    *static_cast<size_t*>(SSL_get_app_data(ssl)) = i;
    break;
  }
  return 1;
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* bytes, SSL_SESSION** session) {
  const NamedKey& key = keys_of(ssl).front();
  *identity = reinterpret_cast<const unsigned char*>(key.identity.data());
  *bytes = key.identity.size();
  *session = make_session(ssl, key.key);
  return *session != nullptr ? 1 : 0;
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(int socket, Ssl ssl) : socket_(socket), records_(socket), ssl_(std::move(ssl)) {}
  /// False: there is no memory.
  bool connect() {
    BIO* const bio = make_bio(records_);
    if (bio != nullptr) SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_app_data(ssl_.get(), &key_);
    return bio != nullptr;
  }
  /// Makes the socket its own.
  void take(UniqueFd socket) { own_socket_ = std::move(socket); }
  /// By which key the other side has shown itself, after shake_hands().
  size_t key() const { return key_; }
  ~TlsStream() override {
    // One try: who has closed already, or reads no more, need not be told.
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

  Status shake_hands(TlsParty::Role role, Deadline deadline) {
    const bool accepts = role == TlsParty::Role::server;
    VARVE_TRY(repeat(deadline, [&] { return accepts ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get()); }));
    // Without the key there is no session to take up, and nobody else has certificates.
    if (SSL_session_reused(ssl_.get()) != 1 || SSL_version(ssl_.get()) != TLS1_3_VERSION)
      return Status(StatusCode::permission_denied, "the other side did not prove that it has the key");
    records_.gather();
    return {};
  }

  Result<size_t> read_some(MutableByteSpan into, Deadline deadline) override {
    size_t got = 0;
    // A record of which some has come already is not waited for in whole.
    wake_bytes_ = into.size() > 4 * kRecordBytes ? into.size() - 2 * kRecordBytes : 1;
    const Status read = repeat(deadline, [&] { return SSL_read_ex(ssl_.get(), into.data(), into.size(), &got); });
    wake_bytes_ = 1;
    if (closed_) return size_t{0};
    VARVE_TRY(read);
    return got;
  }

  Result<std::optional<size_t>> read_some_now(MutableByteSpan into) override {
    size_t got = 0;
    const Result<short> awaited = attempt([&] { return SSL_read_ex(ssl_.get(), into.data(), into.size(), &got); });
    if (closed_) return std::optional<size_t>(0);
    VARVE_TRY(awaited.status());
    return *awaited == 0 ? std::optional(got) : std::nullopt;
  }

  Status write(std::span<const ByteSpan> parts, Deadline deadline) override {
    // Header and fields are small, and go with the beginning of the data into one record.
    gathered_.clear();
    for (ByteSpan part : parts) {
      if (gathered_.size() < kRecordBytes) {
        const ByteSpan begin = part.first(std::min(part.size(), kRecordBytes - gathered_.size()));
        gathered_.insert(gathered_.end(), begin.begin(), begin.end());
        part = part.subspan(begin.size());
        if (gathered_.size() < kRecordBytes) continue;
        VARVE_TRY(write_all(gathered_, deadline));
      }
      VARVE_TRY(write_all(part, deadline));
    }
    if (gathered_.size() < kRecordBytes) VARVE_TRY(write_all(gathered_, deadline));
    return flush(deadline);
  }

  bool takes_output() const override { return is_writable(socket_); }

  bool has_input() const override { return holds_input() || records_.has_input(); }

  void rest() override {
    ByteVector().swap(gathered_);
    // Before 3.0.14, OpenSSL gives back what it still needs for a record that has come in part (CVE-2024-4741).
    if (!holds_input()) SSL_free_buffers(ssl_.get());
    records_.rest();
  }

 private:
  static constexpr size_t kRecordBytes = 16384;

  /// Whether OpenSSL has some of a record. Once it has the header alone, it does not call that pending.
  bool holds_input() const {
    constexpr std::string_view in_body = "RB";
    return SSL_has_pending(ssl_.get()) == 1 || SSL_rstate_string(ssl_.get()) == in_body;
  }

  Status write_all(ByteSpan from, Deadline deadline) {
    while (!from.empty()) {
      size_t done = 0;
      VARVE_TRY(repeat(deadline, [&] { return SSL_write_ex(ssl_.get(), from.data(), from.size(), &done); }));
      if (closed_) return Status::io_error("the connection was closed");
      from = from.subspan(done);
    }
    return {};
  }

  Status flush(Deadline deadline) {
    while (records_.flush() < 0) {
      if (errno != EAGAIN) return Status::io_error(std::strerror(errno));
      VARVE_TRY(wait_for(socket_, POLLOUT, deadline));
    }
    return {};
  }

  /// Calls `act` until it is done, waiting for the socket in between.
  template <class Act>
  Status repeat(Deadline deadline, const Act& act) {
    while (true) {
      VARVE_ASSIGN(const short awaited, attempt(act));
      if (awaited == 0) return {};
      VARVE_TRY(wait_for(socket_, awaited, deadline));
    }
  }

  /// Calls `act` once. What of the socket it has to wait for; 0: nothing, it is done.
  template <class Act>
  Result<short> attempt(const Act& act) {
    ERR_clear_error();
    errno = 0;
    const int done = act();
    if (done == 1) return short{0};
    switch (SSL_get_error(ssl_.get(), done)) {
      case SSL_ERROR_WANT_READ: records_.wake_at(wake_bytes_); return short{POLLIN};
      case SSL_ERROR_WANT_WRITE: return short{POLLOUT};
      case SSL_ERROR_ZERO_RETURN: closed_ = true; return Status::io_error("the connection was closed");
      case SSL_ERROR_SYSCALL: return Status::io_error(errno != 0 ? std::strerror(errno) : "the connection was closed");
      default: return Status(StatusCode::permission_denied, "TLS failed: " + last_error());
    }
  }

  const int socket_;
  UniqueFd own_socket_;  ///< the same, once the other side has shown who it is
  RecordSocket records_;
  const Ssl ssl_;  ///< goes before what it writes to
  size_t key_ = 0;
  ByteVector gathered_;
  size_t wake_bytes_ = 1;  ///< what is sure to come yet
  bool closed_ = false;    ///< the other side has closed
};

class OpenSslParty final : public TlsParty {
 public:
  OpenSslParty(Role role, const std::vector<SharedKey>& keys) : role_(role) {
    for (const SharedKey& key : keys) keys_.push_back({key, std::string(kIdentity) + " " + name_of_key(key)});
  }

  Status set_up() {
    context_.reset(SSL_CTX_new(role_ == Role::server ? TLS_server_method() : TLS_client_method()));
    SSL_CTX* const context = context_.get();
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, kCipherSuite) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
      return Status::internal("TLS cannot be set up: " + last_error());
    }
    SSL_CTX_set_app_data(context, &keys_);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    // A message says itself where it ends.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (role_ == Role::server) {
      SSL_CTX_set_psk_find_session_callback(context, find_session);
    } else {
      SSL_CTX_set_psk_use_session_callback(context, use_session);
      SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);  // no certificate is trusted
    }
    return {};
  }

  Result<SecureStream> shake_hands(UniqueFd&& socket, Deadline deadline) const override {
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    Ssl ssl(SSL_new(context_.get()));
    if (!ssl) return Status::internal("TLS cannot be set up: " + last_error());
    auto stream = std::make_unique<TlsStream>(socket.get(), std::move(ssl));
    if (!stream->connect()) return Status::internal("TLS cannot be set up: " + last_error());
    const Status done = stream->shake_hands(role_, deadline);
    if (done.code() == StatusCode::permission_denied) {
      return Status(StatusCode::permission_denied, "the two sides do not share a key: " + std::string(done.message()),
                    "", Remedy::share_key_file);
    }
    VARVE_TRY(done);
    stream->take(std::move(socket));
    const size_t key = stream->key();
    return SecureStream{std::move(stream), key};
  }

 private:
  const Role role_;
  std::vector<NamedKey> keys_;
  std::unique_ptr<SSL_CTX, ContextFreer> context_;
};
}  // namespace

Result<std::unique_ptr<TlsParty>> TlsParty::create(Role role, std::vector<SharedKey> keys) {
  auto party = std::make_unique<OpenSslParty>(role, keys);
  VARVE_TRY(party->set_up());
  return std::unique_ptr<TlsParty>(std::move(party));
}

}  // namespace varve

#else

namespace varve {

Result<std::unique_ptr<TlsParty>> TlsParty::create(Role, std::vector<SharedKey>) {
  return Status::unsupported("this build has no TLS, and so no connections over TCP", "",
                             "build with -DVARVE_WITH_TLS=ON");
}

}  // namespace varve

#endif
