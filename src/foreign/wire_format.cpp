#include "foreign/wire_format.h"

namespace fsdpbench::foreign {

namespace {

bool varint(std::string_view& rest, std::int64_t& value) {
  std::uint64_t sum = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    sum |= static_cast<std::uint64_t>(byte & 127U) << shift;
    value = static_cast<std::int64_t>(sum);
    if (byte < 128) return true;
  }
  return false;
}

}  // namespace

bool WireMessage::next() {
  if (rest.empty() || broken) return false;
  bytes = {};
  integer = 0;
  broken = true;
  std::int64_t key = 0;
  if (!varint(rest, key) || key < 8 || key >> 3U > 0x1FFFFFFF) return false;
  field = static_cast<std::uint32_t>(key >> 3U);
  constexpr int kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5;
  const auto type = static_cast<int>(key & 7);
  is_bytes = type == kLength;
  std::int64_t length = type == kFixed64 ? 8 : type == kFixed32 ? 4 : 0;
  if (type == kVarint ? !varint(rest, integer) : is_bytes ? !varint(rest, length) : length == 0) return false;
  if (length < 0 || static_cast<std::uint64_t>(length) > rest.size()) return false;
  if (is_bytes) bytes = rest.substr(0, static_cast<std::size_t>(length));
  rest.remove_prefix(static_cast<std::size_t>(length));
  broken = false;
  return true;
}

bool is_whole(std::string_view message) {
  WireMessage in{message};
  while (in.next()) {
  }
  return !in.broken;
}

std::string_view bytes_in(std::string_view message, std::uint32_t field) {
  const std::vector<std::string_view> all = all_in(message, field);
  return all.empty() ? std::string_view() : all.back();
}

std::int64_t integer_in(std::string_view message, std::uint32_t field) {
  std::int64_t found = 0;
  for (WireMessage in{message}; in.next();) found = in.field == field ? in.integer : found;
  return found;
}

std::vector<std::string_view> all_in(std::string_view message, std::uint32_t field) {
  std::vector<std::string_view> found;
  for (WireMessage in{message}; in.next();) {
    if (in.field == field) found.push_back(in.bytes);
  }
  return found;
}

std::vector<std::int64_t> integers_in(std::string_view message, std::uint32_t field) {
  std::vector<std::int64_t> found;
  for (WireMessage in{message}; in.next();) {
    if (in.field != field) continue;
    if (!in.is_bytes) found.push_back(in.integer);
    for (std::int64_t value = 0; varint(in.bytes, value);) found.push_back(value);
  }
  return found;
}

}  // namespace fsdpbench::foreign
