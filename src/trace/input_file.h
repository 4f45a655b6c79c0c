#pragma once

#include <cstdint>
#include <limits>
#include <streambuf>
#include <string>
#include <vector>

struct gzFile_s;  // zlib's

namespace fsdpbench::trace {

/// The bytes of a file, decompressed if it is gzipped, whatever its name. Ends early where it cannot be read or
/// decompressed; error() then says why.
class InputFile final : public std::streambuf {
 public:
  /// Throws ConfigError if there is no such file. Of one with more than `most_bytes` (decompressed) only those are
  /// read.
  explicit InputFile(const std::string& path, std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());
  ~InputFile() override;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& error() const { return error_; }

 protected:
  int_type underflow() override;

 private:
  gzFile_s* file_;
  std::uint64_t most_bytes_, bytes_left_;
  std::vector<char> piece_;
  std::string error_;
};

}  // namespace fsdpbench::trace
