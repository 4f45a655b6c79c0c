#include "backend/cpu/mapped_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "launch/addresses.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Not canonical on any 64-bit CPU with up to 57 address bits: no mapping can be there, a touch always traps.
constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 60;

std::byte* map(std::int64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw ResourceError(
        fmt::format("the system grants no address range of {}: {}", format_bytes(bytes), std::strerror(errno)));
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice: refusal changes nothing but speed
  return static_cast<std::byte*>(memory);
}

std::string system_error(std::string_view what) { return fmt::format("{}: {}", what, std::strerror(errno)); }

std::byte* map_file(int file, std::int64_t bytes, std::string& why_not) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) {
    why_not = system_error(fmt::format("the system grants no address range of {}", format_bytes(bytes)));
    return nullptr;
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

constexpr int kSeats = 16384;  ///< two a group; addresses that cost nothing before they are used

struct Offer {
  std::uint64_t kernel = 0;  ///< 0: not known
  SharedName memory, seats;
};

}  // namespace

MappedMemory::MappedMemory(std::int64_t bytes, Kind kind)
    : data_(kind == Kind::touchable ? map(bytes) : reinterpret_cast<std::byte*>(kNowhere)),
      bytes_(bytes),
      mapped_(kind == Kind::touchable) {}

std::unique_ptr<MappedMemory> MappedMemory::make_shared(std::int64_t bytes, std::string& why_not) {
  rlimit largest{};
  // A file beyond this limit would not only be refused: it would end the process.
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < static_cast<rlim_t>(bytes)) {
    why_not = fmt::format("files may not be larger than {} here (ulimit -f)",
                          format_bytes(static_cast<std::int64_t>(largest.rlim_cur)));
    return nullptr;
  }
  const int file = memfd_create("fsdpbench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) {
    why_not = system_error("memfd_create is refused");
    return nullptr;
  }
  std::byte* data = nullptr;
  // Sealed, so that no peer reads beyond its end.
  if (ftruncate(file, bytes) != 0 || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    why_not = system_error(fmt::format("a file in memory of {} is refused", format_bytes(bytes)));
  } else {
    data = map_file(file, bytes, why_not);
  }
  if (data == nullptr) {
    close(file);
    return nullptr;
  }
  return std::unique_ptr<MappedMemory>(new MappedMemory(data, bytes, file));
}

std::unique_ptr<MappedMemory> MappedMemory::open_shared(const SharedName& name, std::string& why_not) {
  const std::string path = fmt::format("/proc/{}/fd/{}", name.process, name.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    why_not = system_error(fmt::format("cannot open {}", path));
    return nullptr;
  }
  struct stat found {};
  std::byte* data = nullptr;
  // A process of another container may have that number, too.
  if (fstat(file, &found) != 0 || found.st_dev != name.device || found.st_ino != name.number ||
      found.st_size != name.bytes) {
    why_not = fmt::format("{} is something else", path);
  } else {
    data = map_file(file, name.bytes, why_not);
  }
  close(file);
  return data == nullptr ? nullptr : std::unique_ptr<MappedMemory>(new MappedMemory(data, name.bytes, -1));
}

SharedName MappedMemory::shared_name() const {
  struct stat found {};
  if (file_ < 0 || fstat(file_, &found) != 0) return {};
  return {getpid(), file_, found.st_dev, found.st_ino, bytes_};
}

MappedMemory::~MappedMemory() {
  if (mapped_) munmap(data_, bytes_);
  if (file_ >= 0) close(file_);
}

Neighbours::Neighbours(Peers& all, const MappedMemory* memory, std::string why_not)
    : memory_(memory), rank_(all.rank()), why_not_(std::move(why_not)) {
  Offer mine;
  const std::string kernel = launch::clock_identity();
  mine.kernel = kernel.empty() ? 0 : std::hash<std::string>{}(kernel);
  if (why_not_.empty()) seats_ = MappedMemory::make_shared(kSeats * std::int64_t{sizeof(Seat)}, why_not_);
  if (seats_) {
    mine.seats = seats_->shared_name();
    if (memory_ != nullptr) mine.memory = memory_->shared_name();
    seen_[rank_] = {memory_ == nullptr ? nullptr : memory_->data(), seats_->data(), nullptr, nullptr};
  }
  std::vector<Offer> offers(all.size(), mine);
  all.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(offers.data()), sizeof mine);
  for (int peer = 0; peer < all.size() && seats_; ++peer) {
    const Offer& offer = offers[peer];
    if (peer == rank_ || mine.kernel == 0 || offer.kernel != mine.kernel) continue;
    std::string reason = "it shares none";
    PeerMemory seen;
    if (offer.seats.bytes > 0) seen.their_seats = MappedMemory::open_shared(offer.seats, reason);
    if (seen.their_seats && memory_ != nullptr) seen.their_memory = MappedMemory::open_shared(offer.memory, reason);
    if (seen.their_seats && (seen.their_memory || memory_ == nullptr)) {
      seen.seats = seen.their_seats->data();
      if (seen.their_memory) seen.memory = seen.their_memory->data();
      seen_[peer] = std::move(seen);
    } else if (why_not_.empty()) {
      why_not_ = fmt::format("rank {} does not see the memory of rank {}: {}", rank_, peer, reason);
    }
  }
}

std::byte* Neighbours::address(int world_rank, std::int64_t offset) const {
  return seen_.at(world_rank).memory + offset;
}

std::int64_t Neighbours::offset_of(const std::byte* address) const {
  if (address == nullptr) return 0;
  return memory_ != nullptr && memory_->contains(address) ? address - memory_->data() : -1;
}

int Neighbours::new_seat() {
  const std::lock_guard lock(mutex_);
  if (!seats_ || seats_taken_ == kSeats) return -1;
  new (seats_->data() + seats_taken_ * sizeof(Seat)) Seat;
  return seats_taken_++;
}

Seat* Neighbours::seat(int world_rank, std::int64_t number) const {
  const auto seen = seen_.find(world_rank);
  if (seen == seen_.end() || number < 0 || number >= kSeats) return nullptr;
  return std::launder(reinterpret_cast<Seat*>(seen->second.seats + number * std::int64_t{sizeof(Seat)}));
}

}  // namespace fsdpbench::backend::cpu
