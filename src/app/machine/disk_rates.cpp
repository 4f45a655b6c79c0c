#include "app/machine/disk_rates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/bytes.h"
#include "base/clock.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 1 << 20;  // of one call: disks and network file systems are at their best from here on
constexpr std::size_t kAlignment = 4096;  // that O_DIRECT asks of memory, offsets and sizes, at most

/// Closes itself.
class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_;
};

std::string disk_failed(const char* what) { return fmt::format("{}: {}", what, std::strerror(errno)); }

/// Everything of one file, which has lost its name.
class DiskTest {
 public:
  DiskTest(int file, std::int64_t bytes, double most_s, DiskRates& rates)
      : file_(file),
        blocks_(static_cast<std::size_t>(bytes) / kPartsOfADisk / kBlock),
        most_ns_(static_cast<std::int64_t>(most_s * 1e9)),
        rates_(rates),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBlock)), std::free) {
    if (memory_ == nullptr) return;
    // No two words alike: file systems that compress, or leave out zeros, would otherwise write nothing.
    std::uint64_t word = 0x9E3779B97F4A7C15ULL;
    for (std::size_t at = 0; at < kBlock; at += sizeof word) {
      word ^= word << 13U, word ^= word >> 7U, word ^= word << 17U;
      std::memcpy(memory_.get() + at, &word, sizeof word);
    }
  }

  bool has_memory() const { return memory_ != nullptr; }
  /// False, with the reason in the rates: the file system refused.
  bool write() {
    return each_part(rates_.write_bytes_per_s, "it cannot be written to", [this](off_t at) {
      std::memcpy(memory_.get(), &at, sizeof at);  // nor any two blocks
      return ::pwrite(file_, memory_.get(), kBlock, at);
    }, [this] { return ::fdatasync(file_) == 0; });
  }
  bool read() {
    ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
    return each_part(rates_.read_bytes_per_s, "it cannot be read from", [this](off_t at) {
      return ::pread(file_, memory_.get(), kBlock, at);
    }, [] { return true; });
  }

 private:
  template <class Move, class Finish>
  bool each_part(std::vector<double>& rates, const char* what, const Move& move, const Finish& finish) {
    const std::int64_t end_ns = now_ns() + most_ns_;
    const std::size_t all = written_ > 0 ? written_ : blocks_ * kPartsOfADisk;
    std::size_t block = 0;
    while (block < all && (block == 0 || now_ns() < end_ns)) {
      const std::int64_t began_ns = now_ns();
      const std::size_t first = block, last = std::min(all, first + blocks_);
      for (; block < last && (block == first || now_ns() < end_ns); ++block) {
        const ssize_t moved = move(static_cast<off_t>(block * kBlock));
        if (moved == static_cast<ssize_t>(kBlock)) continue;
        if (moved >= 0) errno = ENOSPC;  // a short write is of a disk that is full
        rates_.unknown_because = disk_failed(what);
        return false;
      }
      if (!finish()) {
        rates_.unknown_because = disk_failed(what);
        return false;
      }
      const auto seconds = static_cast<double>(std::max<std::int64_t>(1, now_ns() - began_ns)) * 1e-9;
      rates.push_back(static_cast<double>((block - first) * kBlock) / seconds);
    }
    written_ = block;
    return true;
  }

  const int file_;
  const std::size_t blocks_;  // of a part
  std::size_t written_ = 0;   // blocks, so far
  const std::int64_t most_ns_;
  DiskRates& rates_;
  const std::unique_ptr<std::byte, void (*)(void*)> memory_;
};

}  // namespace

DiskRates measure_disk(const fs::path& folder, std::int64_t bytes, double most_s) {
  DiskRates rates;
  std::error_code error;
  fs::path place = fs::absolute(folder, error);
  while (place.has_relative_path() && !fs::is_directory(place, error)) place = place.parent_path();
  rates.folder = place.string();
  if (!place.has_relative_path()) {
    rates.unknown_because = "no part of its path is there";
    return rates;
  }
  constexpr auto kLeast = static_cast<std::int64_t>(kPartsOfADisk * kBlock);
  bytes = std::max(bytes, kLeast);
  const fs::space_info space = fs::space(place, error);
  if (!error && space.capacity > 0 && space.available < 2 * static_cast<std::uintmax_t>(bytes)) {
    rates.unknown_because = fmt::format("it has {} left, and the test leaves as much free as the {} that it writes",
                                        format_bytes(static_cast<std::int64_t>(space.available)), format_bytes(bytes));
    return rates;
  }
  std::string name = (place / ".fsdpbench-disk-XXXXXX").string();
  const File plain(::mkostemp(name.data(), O_CLOEXEC));
  if (!plain.is_open()) {
    rates.unknown_because = disk_failed("a file cannot be made there");
    return rates;
  }
  const File direct(::open(name.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  ::unlink(name.c_str());
  rates.beside_cache = direct.is_open();
  const auto measured_by = [&](int file) {
    DiskTest test(file, bytes, most_s, rates);
    if (!test.has_memory()) {
      rates.unknown_because = disk_failed("memory");
      return false;
    }
    return test.write() && test.read();
  };
  if (direct.is_open() && measured_by(direct.number())) return rates;
  // Some open such a file and then refuse to write to it.
  if (!direct.is_open() || (rates.write_bytes_per_s.empty() && errno == EINVAL)) {
    rates = {.folder = rates.folder, .unknown_because = {}};
    if (measured_by(plain.number())) return rates;
  }
  rates.write_bytes_per_s.clear();
  rates.read_bytes_per_s.clear();
  return rates;
}

}  // namespace fsdpbench::app
