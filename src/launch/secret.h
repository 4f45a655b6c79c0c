#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace fsdpbench::launch {

/// What the processes of one job know and nobody else. It is never sent over a socket, printed, or written anywhere but
/// into a file that only its user may read; that a process has it is shown by proofs.
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;
  /// Shorter texts of people can be guessed.
  static constexpr std::size_t kFewestCharacters = 16;

  /// A secret from the system's random numbers. Throws BackendError if it has none.
  static Secret random();
  /// Made of a text that all ranks were given. Throws ConfigError, without repeating it, if it has fewer than
  /// kFewestCharacters characters.
  static Secret of(std::string_view text);
  /// Reads what text() wrote; nothing if it is no such text.
  static std::optional<Secret> from_text(std::string_view hex);
  /// 64 hex digits, for the channel or file by which the ranks of a job share it.
  std::string text() const;

  /// HMAC-SHA-512-256 (RFC 2104, as libsodium's crypto_auth) over `parts` and their lengths: kBytes bytes.
  std::string prove(std::initializer_list<std::string_view> parts) const;
  /// Whether `proof` is prove(parts); takes as long whatever differs.
  bool proves(std::string_view proof, std::initializer_list<std::string_view> parts) const;

 private:
  Secret() = default;
  std::array<unsigned char, kBytes> bytes_{};
};

/// Bytes that nobody used before: a challenge.
std::string fresh_nonce();

}  // namespace fsdpbench::launch
