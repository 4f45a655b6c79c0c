#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace fsdpbench {

// Most bytes read of a file. More than any that the program writes, and what a process can hold: a value of a few
// bytes of text takes some twenty times as much memory.
inline constexpr std::int64_t kMostOfAProfile = std::int64_t{16} << 20;  ///< TOML
inline constexpr std::int64_t kMostOfAResult = std::int64_t{64} << 20;   ///< one JSON document
inline constexpr std::int64_t kMostOfALog = std::int64_t{4} << 30;       ///< JSON by lines, each a document

/// A regular file that came from outside, open for reading. The one way to open those: nothing else is opened, because
/// a pipe waits for somebody who writes, and a device may have no end. A pipe of the shell's <(…) is refused, too: most
/// inputs are read more than once, and by name.
class Input {
 public:
  /// Throws ConfigError, as "PATH: is a folder; EXPECTED." `expected` says what should be there instead.
  Input(std::filesystem::path path, std::string_view expected);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  int descriptor() const { return file_; }
  std::int64_t bytes() const { return bytes_; }  ///< when it was opened
  int release();                                 ///< the descriptor; from now on the caller closes it

  /// All of it. Throws ConfigError if it has more than `most`, also if it grows meanwhile, or cannot be read.
  std::string text(std::int64_t most) const;
  /// Its first bytes, at most this many.
  std::string beginning(std::size_t most) const;

 private:
  [[noreturn]] void fail(const std::string& why) const;
  std::string read(std::int64_t most) const;

  std::filesystem::path path_;
  std::string expected_;
  int file_ = -1;
  std::int64_t bytes_ = 0;
};

/// The whole text of such a file.
std::string read_input(const std::filesystem::path& path, std::int64_t most, std::string_view expected);

/// Treatment of line ends and tabs.
enum class Lines : std::uint8_t {
  one,   ///< they are shown as \x0a and \x09: the text stays on one line
  keep,  ///< they stay: the text is a table or JSON of ours
};

inline constexpr std::size_t kMostOfAMessage = 2000;  ///< bytes of one sentence to a person
inline constexpr std::size_t kMostOfACell = 200;      ///< bytes of one cell of a table, or of one value in a sentence

/// Text that may come from outside (a file, the environment, another process), fit for a terminal: control characters,
/// those of Unicode that change the direction of writing or are not seen, and bytes that are no UTF-8 become visible as
/// \x1b; of more than `most` bytes (0: no limit) the middle is left out, and says how much. Every message, table and
/// progress line passes here on its way out (record/console.h).
std::string clean_text(std::string_view text, std::size_t most, Lines lines = Lines::one);

/// JSON with the same characters in its texts as \u202e, so that it stays JSON and means the same: those below 0x7F are
/// escaped by every writer of JSON, the others by none.
std::string clean_json(std::string_view text);

}  // namespace fsdpbench
