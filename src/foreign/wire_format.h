#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdpbench::foreign {

/// A message of protobuf, field after field, as it lies in the bytes. XLA's traces are of twenty messages, of which
/// some forty fields say all that is asked here: that is less than a library, whose version the wheel would have to
/// bring, and nothing in a hostile file is built that was not asked for.
struct WireMessage {
  std::string_view rest{};  ///< behind the field
  std::uint32_t field = 0;
  std::int64_t integer = 0;  ///< of a number; 0 of what is none
  std::string_view bytes{};  ///< of a text, bytes or a message; "" of a number
  bool is_bytes = false;
  bool broken = false;

  /// Goes to the next field; false behind the last one, and where the bytes are none of a message.
  bool next();
};
bool is_whole(std::string_view message);

// One field of a message: its last value, "" or 0 if there is none; all of its values, of numbers packed or not.
std::string_view bytes_in(std::string_view message, std::uint32_t field);
std::int64_t integer_in(std::string_view message, std::uint32_t field);
std::vector<std::string_view> all_in(std::string_view message, std::uint32_t field);
std::vector<std::int64_t> integers_in(std::string_view message, std::uint32_t field);

}  // namespace fsdpbench::foreign
