#include "trace/json_window.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
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
  const std::string_view piece(data_.data() + end_, static_cast<std::size_t>(count));
  end_ += piece.size();
  bytes_ += piece.size();
  for (std::size_t i = 0; i < piece.size() && first_two_.size() < 2; ++i) {
    if (!is_space(piece[i])) first_two_ += piece[i];
  }
  if (!rank_) search_rank(piece);
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
  const auto breaks = static_cast<std::uint64_t>(std::ranges::count(gone, '\n'));
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
    if (behind != nullptr) return static_cast<std::size_t>(behind - all.data());
  } while (more());
  return 0;
}

std::size_t JsonWindow::scan(bool list) {
  std::size_t at = 0, whole = 0, closed = 0;
  int depth = 0;
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
      if (byte == Byte::quote) {
        const char* const behind = end_of_text(p + 1, end);
        if (behind == nullptr) break;  // read more, and look at this text again
        p = behind;
        continue;
      }
      if (depth == 0 && byte != Byte::open) {
        whole = static_cast<std::size_t>(p - begin);
        if (!list || byte == Byte::close) return whole;
      }
      depth += byte == Byte::open ? 1 : byte == Byte::close ? -1 : 0;
      ++p;
      if (depth == 0 && byte == Byte::close) closed = static_cast<std::size_t>(p - begin);
    }
    at = static_cast<std::size_t>(p - begin);
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

void JsonWindow::search_rank(std::string_view text) {
  constexpr std::string_view kKey = "\"rank\":";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (matched_ == 0) {  // nearly always; only the key's beginning may lie at the end
      // Quotes are everywhere, so looking for the first byte alone would be slow.
      const void* const found = memmem(text.data() + i, text.size() - i, kKey.data(), kKey.size());
      i = found != nullptr ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data())
                           : std::max(i, text.size() - std::min(text.size(), kKey.size() - 1));
    }
    const char c = text[i];
    if (matched_ < kKey.size()) {
      matched_ = c == kKey[matched_] ? matched_ + 1 : (c == '"' ? 1 : 0);
    } else if (digits_.empty() && (c == ' ' || c == '\t')) {
      blank_ = true;
    } else if (blank_ && c >= '0' && c <= '9' && digits_.size() < 9) {
      digits_ += c;
    } else {
      if (!digits_.empty()) {
        rank_ = std::stoll(digits_);
        return;
      }
      matched_ = c == '"' ? 1 : 0;
      blank_ = false;
    }
  }
}

}  // namespace fsdpbench::trace
