#include "trace/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/read_input.h"

namespace fsdpbench::trace {
namespace {

constexpr unsigned kFilePiece = 1 << 17;

/// Level 1: traces are so regular that more effort halves the speed and saves a few per cent.
constexpr int kCompressionLevel = 1;
constexpr int kGzip = 15 + 16;  // zlib's way of asking for a gzip header
constexpr std::size_t kCompressedBytes = 1 << 18;
constexpr mode_t kMode = 0666;

/// Read once: it cannot be read without being set, which other threads would see.
mode_t mask_of_this_process() {
  static const mode_t mask = [] {
    const mode_t now = ::umask(0077);
    ::umask(now);
    return now;
  }();
  return mask;
}

}  // namespace

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
      const std::string_view text(message);  // "<fd:4>: unexpected end of file"
      error_ = text.substr(text.starts_with("<fd:") ? text.find(": ") + 2 : 0);
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

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw OutputError(fmt::format("{}: cannot make the folder: {}.", folder.string(), error.message()));
}

void sync_folder_of(const std::string& path) {
  const std::size_t end = path.rfind('/');
  const std::string folder = end == std::string::npos ? "." : path.substr(0, end + 1);
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  (void)::fsync(file);
  ::close(file);
}

/// Destination of bytes. Both calls return 0 or an errno.
class WholeFile::Sink {
 public:
  /// `will_sync`: the disk gets to work on what is written meanwhile.
  Sink(int file, bool will_sync) : file_(file), will_sync_(will_sync) {}
  virtual ~Sink() { ::close(file_); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual int write(std::string_view bytes) { return write_all(bytes.data(), bytes.size()); }
  virtual int finish() { return 0; }
  int sync() const { return ::fsync(file_) == 0 ? 0 : errno; }
  /// Takes the file away, which was made as `name`: also out of a folder that was renamed meanwhile.
  void remove(const std::string& name) const {
    if (::unlink(name.c_str()) == 0 || errno != ENOENT) return;
    struct stat now {};
    char path[PATH_MAX];
    if (::fstat(file_, &now) != 0 || now.st_nlink == 0) return;
    const ssize_t size = ::readlink(fmt::format("/proc/self/fd/{}", file_).c_str(), path, sizeof path);
    if (size > 0) ::unlink(std::string(path, size).c_str());
  }

 protected:
  int write_all(const char* bytes, std::size_t count) {
    count_ += static_cast<std::int64_t>(count);
    while (count > 0) {
      const ssize_t written = ::write(file_, bytes, count);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return written < 0 ? errno : ENOSPC;
      bytes += written;
      count -= written;
    }
    if (will_sync_ && count_ - under_way_ >= kAhead) {  // a hint: what fails shows when it is synced
      (void)::sync_file_range(file_, under_way_, count_ - under_way_, SYNC_FILE_RANGE_WRITE);
      under_way_ = count_;
    }
    return 0;
  }

 private:
  static constexpr std::int64_t kAhead = 8 << 20;

  const int file_;
  const bool will_sync_;
  std::int64_t count_ = 0;
  std::int64_t under_way_ = 0;  // bytes that the disk was told of
};

class WholeFile::GzipSink final : public Sink {
 public:
  GzipSink(int file, bool will_sync) : Sink(file, will_sync), out_(kCompressedBytes) {
    ready_ = deflateInit2(&stream_, kCompressionLevel, Z_DEFLATED, kGzip, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  ~GzipSink() override { deflateEnd(&stream_); }

  int write(std::string_view bytes) override {
    constexpr std::size_t kPiece = 1U << 30;  // zlib counts in 32 bits
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPiece))) {
      if (const int error = compress(bytes.substr(0, kPiece), Z_NO_FLUSH)) return error;
    }
    return 0;
  }
  int finish() override { return compress({}, Z_FINISH); }

 private:
  int compress(std::string_view bytes, int flush) {
    if (!ready_) return ENOMEM;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = out_.data();
      stream_.avail_out = static_cast<uInt>(out_.size());
      deflate(&stream_, flush);
      const std::size_t made = out_.size() - stream_.avail_out;
      if (const int error = write_all(reinterpret_cast<const char*>(out_.data()), made)) return error;
    } while (stream_.avail_out == 0);
    return 0;
  }

  z_stream stream_{};
  bool ready_ = false;
  std::vector<Bytef> out_;
};

WholeFile::WholeFile(std::string path, Fate fate) : path_(std::move(path)), fate_(fate) {
  const std::size_t name = path_.rfind('/') + 1;
  part_ = path_.substr(0, name) + "." + path_.substr(name) + ".XXXXXX";
  const int file = ::mkostemp(part_.data(), O_CLOEXEC);  // O_EXCL: a new file, and no link
  if (file < 0) fail("open", errno);
  (void)::fchmod(file, kMode & ~mask_of_this_process());
  if (path_.ends_with(".gz")) {
    sink_ = std::make_unique<GzipSink>(file, fate == Fate::synced);
  } else {
    sink_ = std::make_unique<Sink>(file, fate == Fate::synced);
  }
}

WholeFile::~WholeFile() {
  if (sink_ != nullptr) sink_->remove(part_);
}

void WholeFile::write(std::string_view bytes) {
  if (const int error = sink_->write(bytes)) fail("write", error);
}

void WholeFile::commit() {
  if (const int error = sink_->finish()) fail("write", error);
  if (fate_ == Fate::synced) {
    if (const int error = sink_->sync()) fail("write", error);
  }
  if (std::rename(part_.c_str(), path_.c_str()) != 0) fail("finish", errno);
  sink_.reset();
  any_kept_ = true;
  if (fate_ == Fate::synced) sync_folder_of(path_);
}

void WholeFile::fail(const char* verb, int error) const {
  const char* limit = error == EFBIG ? " (ulimit -f)" : error == EMFILE ? " (ulimit -n)" : "";
  throw OutputError(fmt::format("cannot {} {}: {}{}", verb, path_, std::strerror(error), limit));
}

}  // namespace fsdpbench::trace
