#include "foreign/wire_format.h"

namespace fsdpbench::foreign {

bool WireMessage::varint(std::int64_t& value) {
  std::uint64_t sum = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    sum |= static_cast<std::uint64_t>(byte & 127U) << shift;
    value = static_cast<std::int64_t>(sum);
    if (byte < 128) return true;
  }
  return false;
}

bool WireMessage::next() {
  if (rest_.empty() || broken_) return false;
  bytes_ = {};
  integer_ = 0;
  broken_ = true;
  std::int64_t key = 0;
  if (!varint(key) || key < 8 || key >> 3U > 0x1FFFFFFF) return false;
  field_ = static_cast<std::uint32_t>(key >> 3U);
  constexpr int kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5;
  const auto type = static_cast<int>(key & 7);
  is_bytes_ = type == kLength;
  std::int64_t length = type == kFixed64 ? 8 : type == kFixed32 ? 4 : 0;
  if (type == kVarint ? !varint(integer_) : type == kLength ? !varint(length) : length == 0) return false;
  if (length < 0 || static_cast<std::uint64_t>(length) > rest_.size()) return false;
  if (is_bytes_) bytes_ = rest_.substr(0, static_cast<std::size_t>(length));
  rest_.remove_prefix(static_cast<std::size_t>(length));
  broken_ = false;
  return true;
}

void WireMessage::add_to(std::vector<std::int64_t>& list) const {
  if (!is_bytes_) list.push_back(integer_);
  WireMessage packed(bytes_);
  for (std::int64_t value = 0; packed.varint(value);) list.push_back(value);
}

std::string_view bytes_in(std::string_view message, std::uint32_t field) {
  const std::vector<std::string_view> all = all_in(message, field);
  return all.empty() ? std::string_view() : all.back();
}

std::int64_t integer_in(std::string_view message, std::uint32_t field) {
  std::int64_t found = 0;
  for (WireMessage in(message); in.next();) found = in.field() == field ? in.integer() : found;
  return found;
}

std::vector<std::string_view> all_in(std::string_view message, std::uint32_t field) {
  std::vector<std::string_view> found;
  for (WireMessage in(message); in.next();) {
    if (in.field() == field) found.push_back(in.bytes());
  }
  return found;
}

std::vector<std::int64_t> integers_in(std::string_view message, std::uint32_t field) {
  std::vector<std::int64_t> found;
  for (WireMessage in(message); in.next();) {
    if (in.field() == field) in.add_to(found);
  }
  return found;
}

}  // namespace fsdpbench::foreign
