#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fsdpbench::trace {

/// A file that is whole or not there: written beside its place under a hidden name that nobody else has (two processes
/// may write the same file: one of the two is there in the end, whole, and no link that somebody planted is followed),
/// renamed by commit(), removed otherwise. A path that ends in ".gz" is compressed on the way. Every failure (a missing
/// folder, a full disk) throws OutputError naming the file.
class WholeFile {
 public:
  /// What becomes of what is written.
  enum class Fate : std::uint8_t {
    kept,     ///< it is there after commit()
    synced,   ///< the same, also if the machine fails right after: it was waited for until the disk has it
    counted,  ///< nothing but its size: for whoever must know that before (compressed, if the path says so)
  };

  /// Opens a new file beside `path`, if it is to be kept; throws OutputError if that is not possible.
  explicit WholeFile(std::string path, Fate fate = Fate::kept);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// Best called with large pieces: each goes to the operating system or the compressor as it is.
  void write(std::string_view bytes);
  /// Nothing may be written afterwards.
  void commit();
  /// Size of the file on disk; complete after commit().
  std::int64_t bytes() const { return bytes_; }
  /// Whether this process has one that is kept.
  static bool any_kept() { return any_kept_; }

 private:
  class Sink;
  class PlainSink;
  class GzipSink;

  [[noreturn]] void fail(const char* verb, int error) const;

  inline static std::atomic<bool> any_kept_ = false;

  std::string path_;
  Fate fate_;
  std::string part_;  // empty: it is counted only
  std::int64_t bytes_ = 0;
  std::unique_ptr<Sink> sink_;  // null once committed
};

}  // namespace fsdpbench::trace
