#include "base/clean_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace fsdpbench {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// Bytes of the UTF-8 character at the front of `text`, which is not empty, and its code point; 0 bytes: it is none.
std::size_t character(std::string_view text, std::uint32_t& code) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xC2 ? 0
                           : first < 0xE0 ? 2
                           : first < 0xF0 ? 3
                           : first < 0xF5 ? 4
                                          : 0;
  if (size == 0 || size > text.size()) return 0;
  code = size == 1 ? first : first & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if (!continues(text[i])) return 0;
    code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter would have done: not UTF-8
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast[size] || code > 0x10FFFF || surrogate ? 0 : size;
}

/// Moves a cursor, deletes, or turns what follows around.
bool acts(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200E && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

void append_clean(std::string& out, std::string_view text, Lines lines) {
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character(text, code);
    const bool kept = lines == Lines::keep && (code == '\n' || code == '\t');
    if (size > 0 && (kept || !acts(code))) {
      out.append(text.substr(0, size));
    } else {
      for (const char c : text.substr(0, std::max<std::size_t>(size, 1))) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
}

}  // namespace

std::string clean_text(std::string_view text, std::size_t most, Lines lines) {
  std::string out;
  if (most == 0 || text.size() <= most) {
    append_clean(out, text, lines);
    return out;
  }
  std::size_t head = most / 2;
  while (head > 0 && continues(text[head])) --head;
  std::size_t tail = text.size() - (most - most / 2);
  while (tail < text.size() && continues(text[tail])) ++tail;
  append_clean(out, text.substr(0, head), lines);
  fmt::format_to(std::back_inserter(out), " … ({} bytes left out) … ", tail - head);
  append_clean(out, text.substr(tail), lines);
  return out;
}

}  // namespace fsdpbench
