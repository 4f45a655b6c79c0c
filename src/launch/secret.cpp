#include "launch/secret.h"

#include <fmt/format.h>
#include <sodium.h>

#include "base/error.h"
#include "launch/frame.h"

namespace fsdpbench::launch {
namespace {

static_assert(Secret::kBytes == crypto_auth_KEYBYTES && Secret::kBytes == crypto_auth_BYTES);
static_assert(Secret::kBytes == crypto_generichash_BYTES);

/// Before any call of the library; may be called again.
void start_library() {
  if (sodium_init() < 0) throw BackendError("libsodium cannot start: the system gives no random numbers");
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Secret Secret::random() {
  start_library();
  Secret secret;
  randombytes_buf(secret.bytes_.data(), secret.bytes_.size());
  return secret;
}

Secret Secret::of(std::string_view text) {
  start_library();
  if (text.size() < kFewestCharacters) {
    throw ConfigError(
        fmt::format("FSDPBENCH_SECRET has {} characters, which can be guessed; give all ranks the same "
                    "random text of {} or more, as `openssl rand -hex 32` makes one",
                    text.size(), kFewestCharacters));
  }
  Secret secret;
  (void)crypto_generichash(secret.bytes_.data(), secret.bytes_.size(), bytes_of(text), text.size(), nullptr, 0);
  return secret;
}

std::optional<Secret> Secret::from_text(std::string_view hex) {
  Secret secret;
  std::size_t bytes = 0;
  const char* end = nullptr;
  const bool is_hex =
      sodium_hex2bin(secret.bytes_.data(), secret.bytes_.size(), hex.data(), hex.size(), nullptr, &bytes, &end) == 0;
  if (!is_hex || bytes != kBytes || end != hex.data() + hex.size()) return std::nullopt;
  return secret;
}

std::string Secret::text() const {
  std::string hex(2 * kBytes + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), bytes_.data(), bytes_.size());
  hex.pop_back();
  return hex;
}

std::string Secret::prove(std::initializer_list<std::string_view> parts) const {
  start_library();
  const std::string message = pack({parts.begin(), parts.end()});
  std::string proof(kBytes, '\0');
  (void)crypto_auth(reinterpret_cast<unsigned char*>(proof.data()), bytes_of(message), message.size(), bytes_.data());
  return proof;
}

bool Secret::proves(std::string_view proof, std::initializer_list<std::string_view> parts) const {
  if (proof.size() != kBytes) return false;
  start_library();
  const std::string message = pack({parts.begin(), parts.end()});
  return crypto_auth_verify(bytes_of(proof), bytes_of(message), message.size(), bytes_.data()) == 0;
}

std::string fresh_nonce() {
  start_library();
  std::string nonce(Secret::kBytes, '\0');
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace fsdpbench::launch
