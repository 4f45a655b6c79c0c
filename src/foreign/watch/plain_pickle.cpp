#include "foreign/watch/plain_pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fsdpbench::watch {
namespace {

using nlohmann::json;

constexpr int kMostLevels = 64;  // a value takes as much stack as it has levels

struct Pickled {
  json value;
  int levels = 0;
};

class PlainPickle {
 public:
  PlainPickle(std::string_view bytes, std::string& why) : bytes_(bytes), why_(why) {}

  std::optional<json> read() {
    if (bytes_.size() < 2 || bytes_[0] != '\x80') return fail("it does not begin as a pickle of protocol 2 to 5 does");
    while (at_ < bytes_.size()) {
      const std::size_t began = at_;
      const auto code = static_cast<unsigned char>(bytes_[at_++]);
      if (code == '.') {
        if (stack_.size() != 1 || !marks_.empty()) return fail("it ends while values are open");
        return std::move(stack_.back().value);
      }
      if (!step(code)) {
        if (why_.empty())
          why_ = fmt::format("at byte {} (opcode {:#04x}) it does not go on as a pickle does", began, code);
        return std::nullopt;
      }
    }
    return fail("it ends early");
  }

 private:
  std::optional<json> fail(const char* why) {
    if (why_.empty()) why_ = why;
    return std::nullopt;
  }
  bool refuse(const char* what) {
    why_ = fmt::format("at byte {} it asks for {}, which is not plain data: nothing of it is run", at_ - 1, what);
    return false;
  }

  bool number(std::size_t count, std::uint64_t& value) {
    if (bytes_.size() - at_ < count) return false;
    value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_ + i])) << (8 * i);
    }
    at_ += count;
    return true;
  }
  bool push(json value) {
    stack_.push_back({std::move(value), 0});
    return true;
  }
  bool text(std::size_t width) {
    std::uint64_t size = 0;
    if (!number(width, size) || size > bytes_.size() - at_) return false;
    const std::string_view part = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return push(std::string(part));
  }
  bool whole_number(std::size_t width, bool is_signed) {
    std::uint64_t value = 0;
    if (!number(width, value)) return false;
    if (is_signed && width == 4) return push(static_cast<std::int32_t>(static_cast<std::uint32_t>(value)));
    return push(static_cast<std::int64_t>(value));
  }
  bool long_number() {
    std::uint64_t size = 0, value = 0;
    if (!number(1, size) || size > 8 || !number(static_cast<std::size_t>(size), value)) return false;
    if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) value |= ~std::uint64_t{0} << (8 * size);
    return push(static_cast<std::int64_t>(value));
  }
  bool real() {
    if (bytes_.size() - at_ < 8) return false;
    std::uint64_t value = 0;  // the one number that is written big end first
    for (std::size_t i = 0; i < 8; ++i) value = value << 8 | static_cast<unsigned char>(bytes_[at_ + i]);
    at_ += 8;
    return push(std::bit_cast<double>(value));
  }
  /// PyTorch's pickler remembers text only. A container is remembered before it is filled, so that what is asked for
  /// later would be another value: that is refused, and with it files that repeat themselves without end.
  bool put(std::size_t width) {
    std::uint64_t key = 0;
    if (!number(width, key) || stack_.empty()) return false;
    memo_.insert_or_assign(key, stack_.back().value.is_structured() ? json() : stack_.back().value);
    return true;
  }
  bool get(std::size_t width) {
    std::uint64_t key = 0;
    if (!number(width, key)) return false;
    const auto found = memo_.find(key);
    if (found == memo_.end()) return false;
    if (found->second.is_null()) {
      why_ =
          fmt::format("at byte {} it repeats a list or dictionary, which PyTorch's own dumps do not", at_ - width - 1);
      return false;
    }
    return push(found->second);
  }
  bool take_mark(std::size_t& first) {
    if (marks_.empty()) return false;
    first = marks_.back();
    marks_.pop_back();
    return true;
  }
  /// Whether a value of `levels` may go into `container`.
  bool deepen(Pickled& container, int levels) {
    container.levels = std::max(container.levels, levels + 1);
    if (container.levels <= kMostLevels) return true;
    why_ = fmt::format("it has more than {} levels", kMostLevels);
    return false;
  }
  bool append(std::size_t first) {
    if (first == 0 || first > stack_.size() || !stack_[first - 1].value.is_array()) return false;
    for (std::size_t i = first; i < stack_.size(); ++i) {
      if (!deepen(stack_[first - 1], stack_[i].levels)) return false;
      stack_[first - 1].value.push_back(std::move(stack_[i].value));
    }
    stack_.resize(first);
    return true;
  }
  bool set_items(std::size_t first) {
    if (first == 0 || first > stack_.size() || !stack_[first - 1].value.is_object()) return false;
    if ((stack_.size() - first) % 2 != 0) return false;
    for (std::size_t i = first; i < stack_.size(); i += 2) {
      if (!stack_[i].value.is_string() || !deepen(stack_[first - 1], stack_[i + 1].levels)) return false;
      stack_[first - 1].value[stack_[i].value.get<std::string>()] = std::move(stack_[i + 1].value);
    }
    stack_.resize(first);
    return true;
  }
  bool tuple_from(std::size_t first) {
    if (first > stack_.size()) return false;
    Pickled made{json::array(), 0};
    for (std::size_t i = first; i < stack_.size(); ++i) {
      if (!deepen(made, stack_[i].levels)) return false;
      made.value.push_back(std::move(stack_[i].value));
    }
    stack_.resize(first);
    stack_.push_back(std::move(made));
    return true;
  }
  bool tuple(std::size_t count, std::size_t floor) {
    return stack_.size() >= floor + count && tuple_from(stack_.size() - count);
  }

  bool step(unsigned char code) {
    std::size_t first = 0;
    std::uint64_t ignored = 0;
    // What is below an open mark belongs to the container that will be filled from there.
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    switch (code) {
      case 0x80: return number(1, ignored);  // PROTO
      case 0x95: return number(8, ignored);  // FRAME
      case '(': marks_.push_back(stack_.size()); return true;
      case '}': return push(json::object());
      case ']': return push(json::array());
      case ')': return push(json::array());  // EMPTY_TUPLE
      case 'N': return push(nullptr);
      case 0x88: return push(true);
      case 0x89: return push(false);
      case 'K': return whole_number(1, false);             // BININT1
      case 'M': return whole_number(2, false);             // BININT2
      case 'J': return whole_number(4, true);              // BININT
      case 0x8a: return long_number();                     // LONG1
      case 'G': return real();                             // BINFLOAT
      case 'X': return text(4);                            // BINUNICODE
      case 0x8c: return text(1);                           // SHORT_BINUNICODE
      case 'q': return put(1);                             // BINPUT
      case 'r': return put(4);                             // LONG_BINPUT
      case 'h': return get(1);                             // BINGET
      case 'j': return get(4);                             // LONG_BINGET
      case 'e': return take_mark(first) && append(first);  // APPENDS
      case 'a': return stack_.size() > floor + 1 && append(stack_.size() - 1);
      case 'u': return take_mark(first) && set_items(first);  // SETITEMS
      case 's': return stack_.size() > floor + 2 && set_items(stack_.size() - 2);
      case 't': return take_mark(first) && tuple_from(first);
      case 0x85: return tuple(1, floor);
      case 0x86: return tuple(2, floor);
      case 0x87: return tuple(3, floor);
      case 'c':
      case 0x93:
      case 'i': return refuse("a class or function by name (GLOBAL)");
      case 'R': return refuse("a call (REDUCE)");
      case 'b':
      case 'o':
      case 0x81:
      case 0x92: return refuse("an object (BUILD, OBJ, NEWOBJ)");
      case 'P':
      case 'Q': return refuse("something outside the file (PERSID)");
      case 0x82:
      case 0x83:
      case 0x84: return refuse("an extension (EXT)");
      default: return false;
    }
  }

  std::string_view bytes_;
  std::string& why_;
  std::size_t at_ = 0;
  std::vector<Pickled> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, json> memo_;
};

}  // namespace

std::optional<nlohmann::json> read_plain_pickle(std::string_view bytes, std::string& why) {
  why.clear();
  return PlainPickle(bytes, why).read();
}

}  // namespace fsdpbench::watch
