#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace fsdpbench::trace {

/// A file that is whole or not there: written beside its place under a hidden name that nobody else has (two processes
/// may write the same file: one of the two is there in the end, whole, and no link that somebody planted is followed),
/// renamed by commit(), removed otherwise. A path that ends in ".gz" is compressed on the way. Every failure (a missing folder, a full disk) throws
/// OutputError naming the file.
class WholeFile {
 public:
  /// Opens a new file beside `path`; throws OutputError if that is not possible.
  explicit WholeFile(std::string path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  /// Best called with large pieces: each goes to the operating system or the compressor as it is.
  void write(std::string_view bytes);
  /// Nothing may be written afterwards.
  void commit();

 private:
  class Sink;
  class PlainSink;
  class GzipSink;

  [[noreturn]] void fail(const char* verb, int error) const;

  std::string path_;
  std::string part_;
  std::unique_ptr<Sink> sink_;  // null once committed
};

}  // namespace fsdpbench::trace
