#include "trace/json_window.h"

#include <simdjson.h>
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace fsdpbench::trace {
namespace {

enum class Byte : std::uint8_t { plain, quote, open, close, comma };

constexpr auto kKinds = [] {
  std::array<Byte, 256> bytes{};
  bytes['"'] = Byte::quote;
  bytes['{'] = bytes['['] = Byte::open;
  bytes['}'] = bytes[']'] = Byte::close;
  bytes[','] = Byte::comma;
  return bytes;
}();

constexpr bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// From behind a text's opening quote to behind its closing one; null if that is not before `end`.
const char* end_of_text(const char* p, const char* end) {
  for (; p < end; ++p) {
    if (*p == '"') return p + 1;
    if (*p == '\\') ++p;
  }
  return nullptr;
}

constexpr std::size_t kBlock = 64;

/// Bit i: byte i of the eight is `byte`.
constexpr std::uint64_t equal_bytes(std::uint64_t eight, unsigned char byte) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kLow = 0x7f7f7f7f7f7f7f7f;
  const std::uint64_t differ = eight ^ (kOnes * byte);
  const std::uint64_t zeros = ~(((differ & kLow) + kLow) | differ | kLow);  // the high bit of bytes that are 0
  return (zeros >> 7U) * 0x0102040810204080U >> 56U;
}

/// Bit i: bits 0 to i have an odd sum.
constexpr std::uint64_t odd_before(std::uint64_t bits) {
  for (unsigned shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

/// Finds where brackets close, 64 bytes at a time.
class Nesting {
 public:
  /// From an opening bracket to behind the one that closes it; null if that is not before `end`.
  const char* behind(const char* p, const char* end) {
    if constexpr (std::endian::native == std::endian::little) {
      for (; end - p >= static_cast<std::ptrdiff_t>(kBlock); p += kBlock) {
        if (const char* const found = block(p)) return found;
      }
    }
    return bytes(p, end);
  }

 private:
  const char* block(const char* p) {
    std::uint64_t quotes = 0, brackets = 0, backslashes = 0;
    for (unsigned i = 0; i < kBlock / 8; ++i) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, p + 8 * i, sizeof eight);
      quotes |= equal_bytes(eight, '"') << 8 * i;
      backslashes |= equal_bytes(eight, '\\') << 8 * i;
      // All four brackets, and "Y", "_", "y" and DEL, which only texts should have.
      brackets |= equal_bytes(eight | 0x2626262626262626U, 0x7f) << 8 * i;
    }
    if (backslashes != 0 || escaped_) return bytes(p, p + kBlock);
    const std::uint64_t in_text = odd_before(quotes) ^ (in_text_ ? ~std::uint64_t{0} : 0);
    in_text_ = in_text >> 63U != 0;
    for (std::uint64_t left = brackets & ~in_text; left != 0; left &= left - 1) {
      const char* const at = p + std::countr_zero(left);
      if (bracket(*at)) return at + 1;
    }
    return nullptr;
  }

  const char* bytes(const char* p, const char* end) {
    for (; p < end; ++p) {
      if (in_text_) {
        in_text_ = escaped_ || *p != '"';
        escaped_ = !escaped_ && *p == '\\';
      } else if (*p == '"') {
        in_text_ = true;
      } else if (bracket(*p)) {
        return p + 1;
      }
    }
    return nullptr;
  }

  /// Whether it closes the first one.
  bool bracket(char c) {
    const Byte byte = kKinds[static_cast<unsigned char>(c)];
    depth_ += byte == Byte::open ? 1 : byte == Byte::close ? -1 : 0;
    return byte == Byte::close && depth_ == 0;
  }

  std::int64_t depth_ = 0;
  bool in_text_ = false, escaped_ = false;
};

/// Line breaks in a text, whole blocks of it at a time.
std::uint64_t line_breaks(std::string_view text) {
  std::uint64_t count = 0;
  while (text.size() >= kBlock) {
    unsigned char here = 0;
    for (std::size_t i = 0; i < kBlock; ++i) here = static_cast<unsigned char>(here + (text[i] == '\n' ? 1 : 0));
    count += here;
    text.remove_prefix(kBlock);
  }
  return count + static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
}

constexpr bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '<'; }

constexpr auto kPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0; c < plain.size(); ++c) plain[c] = is_plain(static_cast<unsigned char>(c));
  return plain;
}();

/// Number of bytes at the beginning of `text` stand for themselves; eight at a time, since nearly all do.
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

JsonWindow::JsonWindow(std::streambuf& source) : source_(source), data_(1 + kPiece + simdjson::SIMDJSON_PADDING) {}

/// Reads up to a piece more behind what is there. False at the end, and if what is there is too much.
bool JsonWindow::more() {
  if (ended_ || end_ - begin_ > kMostValue) return false;
  if (begin_ > 1 && end_ + kPiece + simdjson::SIMDJSON_PADDING > data_.size()) {
    std::memmove(data_.data() + 1, data_.data() + begin_, end_ - begin_);
    end_ -= begin_ - 1;
    begin_ = 1;
  }
  if (end_ + kPiece + simdjson::SIMDJSON_PADDING > data_.size()) {
    data_.resize(std::max(2 * data_.size(), end_ + kPiece + simdjson::SIMDJSON_PADDING));
  }
  const std::streamsize count = source_.sgetn(data_.data() + end_, static_cast<std::streamsize>(kPiece));
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  end_ += count;
  bytes_ += static_cast<std::uint64_t>(count);
  return true;
}

char JsonWindow::next() {
  do {
    const std::string_view all = text();
    std::size_t blank = 0;
    while (blank < all.size() && is_space(all[blank])) ++blank;
    drop(blank);
    if (begin_ < end_) return data_[begin_];
  } while (more());
  return 0;
}

void JsonWindow::drop(std::size_t bytes) {
  const std::string_view gone = text().substr(0, bytes);
  position_ += gone.size();
  const std::uint64_t breaks = line_breaks(gone);
  lines_ += breaks;
  column_ = breaks == 0 ? column_ + gone.size() : gone.size() - 1 - gone.rfind('\n');
  begin_ += gone.size();
}

std::size_t JsonWindow::whole_values() { return scan(true); }
std::size_t JsonWindow::whole_value() { return scan(false); }

std::size_t JsonWindow::whole_text() {
  do {
    const std::string_view all = text();
    const char* const behind = end_of_text(all.data() + 1, all.data() + all.size());
    if (behind != nullptr) return behind - all.data();
  } while (more());
  return 0;
}

std::size_t JsonWindow::scan(bool list) {
  std::size_t at = 0, whole = 0, closed = 0;
  do {
    const char* const begin = data_.data() + begin_;
    const char* const end = data_.data() + end_;
    const char* p = begin + at;
    while (p < end) {
      const Byte byte = kKinds[static_cast<unsigned char>(*p)];
      if (byte == Byte::plain) {
        ++p;
        continue;
      }
      if (byte == Byte::quote || byte == Byte::open) {
        const char* const behind = byte == Byte::quote ? end_of_text(p + 1, end) : Nesting().behind(p, end);
        if (behind == nullptr) break;  // read more, and look at this value again
        p = behind;
        if (byte == Byte::open) closed = p - begin;
        continue;
      }
      whole = p - begin;
      if (!list || byte == Byte::close) return whole;
      ++p;
    }
    at = p - begin;
  } while (whole == 0 && more());
  return whole == 0 && ended_ ? closed : whole;
}

std::string_view JsonWindow::enclosed(std::size_t bytes, char before, char after) {
  behind_ = begin_ + bytes;
  was_before_ = std::exchange(data_[begin_ - 1], before);
  was_behind_ = std::exchange(data_[behind_], after);
  return {data_.data() + begin_ - 1, bytes + 2};
}

void JsonWindow::restore() {
  data_[begin_ - 1] = was_before_;
  data_[behind_] = was_behind_;
}

class JsonDiagnosis::Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(JsonDiagnosis& diagnosis, std::string_view text) : diagnosis_(diagnosis), text_(text) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 2, column 11: syntax error while parsing …"
    const std::string_view text = error.what();
    const auto number_behind = [&](std::string_view word) {
      const std::size_t at = text.find(word);
      std::size_t number = 0;
      if (at != std::string_view::npos) {
        std::from_chars(text.data() + at + word.size(), text.data() + text.size(), number);
      }
      return number;
    };
    diagnosis_.byte_ = position;
    constexpr int kNumberOverflow = 406;  // of nlohmann-json; its words have no place, and are no words for people
    if (error.id == kNumberOverflow) {
      const std::string_view before = text_.substr(0, position);
      diagnosis_.line_ = 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
      diagnosis_.column_ = before.size() - (before.rfind('\n') + 1);  // npos + 1 is 0
      diagnosis_.what_ = "a number that is larger than any that can be read";
      return false;
    }
    diagnosis_.line_ = number_behind(" line ");
    diagnosis_.column_ = number_behind(" column ");
    const std::size_t words = text.find(": ");
    diagnosis_.what_ = words == std::string_view::npos ? text : text.substr(words + 2);
    return false;
  }

 private:
  JsonDiagnosis& diagnosis_;
  std::string_view text_;
};

JsonDiagnosis::JsonDiagnosis(const std::string& text) {
  Reader reader(*this, text);
  nlohmann::json::sax_parse(text, &reader);
}

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
