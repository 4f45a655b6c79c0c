#include "backend/cpu/neighbours.h"

#include <fmt/format.h>

#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "launch/host_identity.h"

namespace fsdpbench::backend::cpu {
namespace {

constexpr int kSeats = 16384;  ///< two a group; addresses that cost nothing before they are used

struct Offer {
  std::uint64_t kernel = 0;  ///< 0: not known
  SharedName memory, seats;
};

}  // namespace

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
  std::vector<Offer> offers(static_cast<std::size_t>(all.size()), mine);
  all.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(offers.data()), sizeof mine);
  for (int peer = 0; peer < all.size() && seats_; ++peer) {
    const Offer& offer = offers[static_cast<std::size_t>(peer)];
    if (peer == rank_ || mine.kernel == 0 || offer.kernel != mine.kernel) continue;
    std::string reason = "it shares none";
    Seen seen;
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
