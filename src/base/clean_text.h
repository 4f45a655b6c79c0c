#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fsdpbench {

/// What becomes of line ends and tabs.
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
