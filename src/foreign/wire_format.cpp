#include "foreign/wire_format.h"

namespace fsdpbench::foreign {

bool WireMessage::varint(std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return false;
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 127U) << shift;
    if (byte < 128) return true;
  }
  return false;
}

bool WireMessage::next() {
  if (rest_.empty() || broken_) return false;
  std::uint64_t key = 0;
  bytes_ = {};
  value_ = 0;
  broken_ = true;
  if (!varint(key) || key >> 3U == 0 || key >> 3U > 0x1FFFFFFF) return false;
  field_ = static_cast<std::uint32_t>(key >> 3U);
  const auto take = [&](std::uint64_t count) {
    if (count > rest_.size()) return false;
    bytes_ = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  };
  constexpr unsigned kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5;
  const auto type = static_cast<unsigned>(key & 7U);
  is_bytes_ = type == kLength;
  if (type == kVarint) {
    if (!varint(value_)) return false;
  } else if (type == kLength) {
    if (!varint(value_) || !take(value_)) return false;
    value_ = 0;
  } else if (type == kFixed64 || type == kFixed32) {
    if (!take(type == kFixed64 ? 8 : 4)) return false;
    bytes_ = {};
  } else {
    return false;
  }
  broken_ = false;
  return true;
}

void WireMessage::add_to(std::vector<std::int64_t>& list) const {
  if (!is_bytes_) {
    list.push_back(integer());
    return;
  }
  WireMessage packed(bytes_);
  for (std::uint64_t value = 0; !packed.rest_.empty() && packed.varint(value);) {
    list.push_back(static_cast<std::int64_t>(value));
  }
}

}  // namespace fsdpbench::foreign
