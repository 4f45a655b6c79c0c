#include "trace/json_stream.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

namespace fsdpbench::trace {
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;
constexpr std::size_t kMostDigits = 32;  // of any number

constexpr bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '<'; }

constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0; c < plain.size(); ++c) plain[c] = is_plain(static_cast<unsigned char>(c));
  return plain;
}();

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

JsonStream::JsonStream(WholeFile& file) : file_(file) { buffer_.resize(kBufferBytes); }

char* JsonStream::reserve(std::size_t bytes) {
  if (used_ + bytes > buffer_.size()) flush();
  return buffer_.data() + used_;
}

void JsonStream::flush() {
  if (used_ == 0) return;
  file_.write({buffer_.data(), used_});
  used_ = 0;
}

void JsonStream::raw(std::string_view text) {
  if (text.size() > buffer_.size()) {
    flush();
    file_.write(text);
    return;
  }
  std::memcpy(reserve(text.size()), text.data(), text.size());
  used_ += text.size();
}

void JsonStream::integer(std::int64_t value) {
  char* begin = reserve(kMostDigits);
  used_ += static_cast<std::size_t>(std::to_chars(begin, begin + kMostDigits, value).ptr - begin);
}

void JsonStream::microseconds(std::int64_t ns) {
  char* begin = reserve(kMostDigits);
  char* p = begin;
  if (ns < 0) *p++ = '-';
  const std::uint64_t magnitude = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  p = std::to_chars(p, begin + kMostDigits, magnitude / 1000).ptr;
  const auto rest = static_cast<unsigned>(magnitude % 1000);
  *p++ = '.';
  *p++ = static_cast<char>('0' + rest / 100);
  *p++ = static_cast<char>('0' + rest / 10 % 10);
  *p++ = static_cast<char>('0' + rest % 10);
  used_ += static_cast<std::size_t>(p - begin);
}

void JsonStream::number(double value) {
  if (!std::isfinite(value)) return raw("null");
  char* begin = reserve(kMostDigits);
  const auto end = std::to_chars(begin, begin + kMostDigits, value, std::chars_format::general, 6).ptr;
  used_ += static_cast<std::size_t>(end - begin);
}

void JsonStream::text(std::string_view value) {
  raw('"');
  while (!value.empty()) {
    std::size_t plain = 0;
    while (plain < value.size() && kPlain[static_cast<unsigned char>(value[plain])]) ++plain;
    raw(value.substr(0, plain));
    value.remove_prefix(plain);
    if (value.empty()) break;
    const char c = value[0];
    const std::size_t length = utf8_length(value);
    if (c == '"' || c == '\\') {
      raw('\\');
      raw(c);
    } else if (length == 1) {  // a control character or '<'
      constexpr std::string_view kHex = "0123456789abcdef";
      raw("\\u00");
      raw(kHex[static_cast<unsigned char>(c) >> 4U]);
      raw(kHex[static_cast<unsigned char>(c) & 15U]);
    } else if (length > 1) {
      raw(value.substr(0, length));
    } else {
      raw("\xEF\xBF\xBD");
    }
    value.remove_prefix(length > 0 ? length : 1);
  }
  raw('"');
}

}  // namespace fsdpbench::trace
