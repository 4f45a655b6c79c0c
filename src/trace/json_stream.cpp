#include "trace/json_stream.h"

#include <array>
#include <cmath>

namespace fsdpbench::trace {
namespace {

constexpr bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '<'; }

constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0; c < plain.size(); ++c) plain[c] = is_plain(static_cast<unsigned char>(c));
  return plain;
}();

/// How many bytes at the beginning of `text` stand for themselves; eight at a time, since nearly all do.
std::size_t plain_length(std::string_view text) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
  // The top bit of each byte that is 0; of bytes above the lowest such one perhaps more, which does no harm.
  const auto zeros = [](std::uint64_t x) { return (x - kOnes) & ~x & kTops; };
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t x = 0;
    std::memcpy(&x, text.data() + i, 8);
    const std::uint64_t special = (x & kTops) | ((x - 0x20 * kOnes) & ~x & kTops) | zeros(x ^ ('"' * kOnes)) |
                                  zeros(x ^ ('\\' * kOnes)) | zeros(x ^ ('<' * kOnes)) | zeros(x ^ (0x7F * kOnes));
    if (special != 0) break;
  }
  while (i < text.size() && kPlain[static_cast<unsigned char>(text[i])]) ++i;
  return i;
}

bool continues(std::string_view text, std::size_t i) {
  return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const auto second = text.size() > 1 ? static_cast<unsigned char>(text[1]) : 0U;
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return continues(text, 1) ? 2 : 0;
  if (first < 0xF0) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second >= 0xA0;
    return !overlong && !surrogate && continues(text, 1) && continues(text, 2) ? 3 : 0;
  }
  if (first > 0xF4 || (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90)) return 0;
  return continues(text, 1) && continues(text, 2) && continues(text, 3) ? 4 : 0;
}

void JsonStream::flush() {
  const std::string_view text(buffer_.data(), buffer_.size() - left());
  end_ = buffer_.data();
  if (!text.empty()) file_.write(text);
}

void JsonStream::raw_through(std::string_view text) {
  flush();
  if (text.size() > left()) return file_.write(text);
  raw(text);
}

void JsonStream::microseconds(std::int64_t ns) {
  char* p = reserve(kMostDigits);
  if (ns < 0) *p++ = '-';
  const std::uint64_t magnitude = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  p = std::to_chars(p, p + kMostDigits, magnitude / 1000).ptr;
  const auto rest = static_cast<unsigned>(magnitude % 1000);
  *p++ = '.';
  *p++ = static_cast<char>('0' + rest / 100);
  *p++ = static_cast<char>('0' + rest / 10 % 10);
  *p++ = static_cast<char>('0' + rest % 10);
  end_ = p;
}

void JsonStream::number(double value) {
  if (!std::isfinite(value)) return raw("null");
  char* const begin = reserve(kMostDigits);
  end_ = std::to_chars(begin, begin + kMostDigits, value, std::chars_format::general, 6).ptr;
}

void JsonStream::text(std::string_view value) {
  raw('"');
  const std::size_t plain = plain_length(value);
  raw(value.substr(0, plain));
  if (plain < value.size()) escaped(value.substr(plain));
  raw('"');
}

void JsonStream::escaped(std::string_view value) {
  while (!value.empty()) {
    const char c = value[0];
    const std::size_t length = utf8_length(value);
    if (c == '"' || c == '\\') {
      raw('\\');
      raw(c);
    } else if (length > 1 || kPlain[static_cast<unsigned char>(c)]) {
      raw(value.substr(0, length));
    } else if (length == 1) {  // a control character or '<'
      constexpr std::string_view kHex = "0123456789abcdef";
      raw("\\u00");
      raw(kHex[static_cast<unsigned char>(c) >> 4U]);
      raw(kHex[static_cast<unsigned char>(c) & 15U]);
    } else {
      raw("\xEF\xBF\xBD");
    }
    value.remove_prefix(length > 0 ? length : 1);
    const std::size_t plain = plain_length(value);
    raw(value.substr(0, plain));
    value.remove_prefix(plain);
  }
}

}  // namespace fsdpbench::trace
