#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// What a folder's disk, or the file system behind it, takes and gives.
struct DiskRates {
  std::string folder;            ///< that was measured: the one asked for, or the nearest above it that is there
  std::string unknown_because;   ///< why there is nothing else, without a full stop; empty: it was measured
  bool beside_cache = false;     ///< bytes went past the page cache (O_DIRECT), so that reads are of the disk
  std::vector<double> write_bytes_per_s{};  ///< of each part of the file, until fdatasync() has returned
  std::vector<double> read_bytes_per_s{};
};

/// The file is written, and then read, in so many parts: their median has a 95 % interval that one odd part does not
/// widen.
inline constexpr int kPartsOfADisk = 9;

/// Writes a file of `bytes` (rounded down to parts of whole blocks) below `folder`, and reads it. Each of the two ends
/// after `most_s` seconds with the parts that it has. The file loses its name before its first byte is written, so
/// nothing stays, whatever ends the process. Where the file system refuses O_DIRECT the cache is asked to drop what it
/// has (posix_fadvise), which it may not do. Throws nothing; unknown_because has what failed.
DiskRates measure_disk(const std::filesystem::path& folder, std::int64_t bytes, double most_s);

}  // namespace fsdpbench::app
