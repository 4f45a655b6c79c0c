#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

struct gzFile_s;  // zlib's

namespace fsdpbench::trace {

/// The bytes of a file, decompressed if it is gzipped, whatever its name. Ends early where it cannot be read or
/// decompressed; error() then says why.
class InputFile final : public std::streambuf {
 public:
  /// Throws ConfigError if there is no such file. Only the first `most_bytes` (decompressed) of a larger one are
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

/// Makes a folder, with those above it, where there is none. Throws OutputError.
void make_folder(const std::filesystem::path& folder);

/// Waits until the disk has the names in the folder of `path`. A file system that cannot do that does it by itself.
void sync_folder_of(const std::string& path);

/// A file that is whole or not there: written beside its place under a hidden name that nobody else has (two processes
/// may write the same file: one of the two is there in the end, whole, and no link that somebody planted is followed),
/// renamed by commit(), removed otherwise. A path that ends in ".gz" is compressed on the way. Every failure (a missing
/// folder, a full disk) throws OutputError naming the file.
class WholeFile {
 public:
  /// Fate of what is written.
  enum class Fate : std::uint8_t {
    kept,    ///< it is there after commit()
    synced,  ///< the same, also if the machine fails right after: it was waited for until the disk has it
  };

  /// Opens a new file beside `path`; throws OutputError if that is not possible.
  explicit WholeFile(std::string path, Fate fate = Fate::kept);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// Best called with large pieces: each goes to the operating system or the compressor as it is.
  void write(std::string_view bytes);
  /// Nothing may be written afterwards.
  void commit();
  /// Whether this process has one that is kept.
  static bool any_kept() { return any_kept_; }

 private:
  class Sink;
  class GzipSink;

  [[noreturn]] void fail(const char* verb, int error) const;

  inline static std::atomic<bool> any_kept_ = false;

  std::string path_;
  Fate fate_;
  std::string part_;
  std::unique_ptr<Sink> sink_;  // null once committed
};

}  // namespace fsdpbench::trace
