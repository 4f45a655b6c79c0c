#include "trace/input_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/read_input.h"

namespace fsdpbench::trace {

namespace {
constexpr unsigned kFilePiece = 1 << 17;
}

InputFile::InputFile(const std::string& path, std::uint64_t most_bytes)
    : file_(nullptr), most_bytes_(most_bytes), bytes_left_(most_bytes), piece_(kFilePiece) {
  Input input(path, "expected a trace file");
  file_ = gzdopen(input.descriptor(), "rb");
  if (file_ == nullptr) throw ResourceError(fmt::format("{}: there is no memory left to read it.", path));
  (void)input.release();  // gzclose() closes it
  gzbuffer(file_, kFilePiece);
}

InputFile::~InputFile() { gzclose(file_); }

InputFile::int_type InputFile::underflow() {
  const int count = gzread(file_, piece_.data(), kFilePiece);
  if (count < static_cast<int>(kFilePiece) && error_.empty()) {
    int code = Z_OK;
    const char* message = gzerror(file_, &code);  // also of a file that ends in the middle
    if (code == Z_ERRNO) {
      error_ = std::strerror(errno);
    } else if (code != Z_OK && code != Z_STREAM_END) {
      error_ = message;
    }
  }
  if (count <= 0) return traits_type::eof();
  if (std::cmp_greater(count, bytes_left_)) {
    if (error_.empty()) error_ = fmt::format("it has more than {} bytes of text", most_bytes_);
    return traits_type::eof();
  }
  bytes_left_ -= static_cast<std::uint64_t>(count);
  setg(piece_.data(), piece_.data(), piece_.data() + count);
  return traits_type::to_int_type(piece_[0]);
}

}  // namespace fsdpbench::trace
