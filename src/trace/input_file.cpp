#include "trace/input_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/paths.h"

namespace fsdpbench::trace {

namespace {
constexpr unsigned kFilePiece = 1 << 17;
}

InputFile::InputFile(const std::string& path) : file_(nullptr), piece_(kFilePiece) {
  std::error_code error;
  if (is_no_plain_file(path)) throw ConfigError(fmt::format("{}: is a pipe or a device, not a trace file", path));
  if (std::filesystem::is_directory(path, error))
    throw ConfigError(fmt::format("{}: is a folder, not a trace file", path));
  errno = 0;
  file_ = gzopen(path.c_str(), "rb");
  if (file_ == nullptr)
    throw ConfigError(fmt::format("cannot open {}: {}", path, std::strerror(errno == 0 ? ENOMEM : errno)));
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
  setg(piece_.data(), piece_.data(), piece_.data() + count);
  return traits_type::to_int_type(piece_[0]);
}

}  // namespace fsdpbench::trace
