#include "backend/cpu/process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "backend/cpu/collective_rules.h"
#include "backend/cpu/mapped_memory.h"
#include "backend/cpu/seat.h"
#include "backend/cpu/team.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "launch/addresses.h"

namespace fsdpbench::backend::cpu {
namespace {

static_assert(std::is_trivially_copyable_v<Words> && sizeof(Words) <= Seat::kMostBytes);

std::string describe(const Words& words) {
  switch (words.purpose) {
    case Words::Purpose::collective: return std::string(to_string(words.call.kind));
    case Words::Purpose::barrier: return "barrier";
    case Words::Purpose::split: return "split";
    case Words::Purpose::end:
    case Words::Purpose::silence: break;
  }
  return "end";
}

void check_purposes(const std::vector<Words>& all, std::span<const int> world_ranks) {
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Words& words) { return words.purpose != all.front().purpose; });
  if (other == all.end()) return;
  const auto rank_of = [&](auto at) { return world_ranks[at - all.begin()]; };
  const bool first_ended = all.front().purpose == Words::Purpose::end;
  if (first_ended || other->purpose == Words::Purpose::end) {
    const auto ended = first_ended ? all.begin() : other;
    const auto waits = first_ended ? other : all.begin();
    throw BackendError(fmt::format("world rank {} has ended without calling the {} that world rank {} has called",
                                   rank_of(ended), describe(*waits), rank_of(waits)));
  }
  throw BackendError(fmt::format("the ranks call different things: world rank {} {}, world rank {} {}",
                                 world_ranks.front(), describe(all.front()), rank_of(other), describe(*other)));
}

/// "rank 2 has", "ranks 1, 3 have": who of them has said nothing.
std::string silent_ranks(const std::vector<Words>& all, std::span<const int> world_ranks) {
  std::vector<int> silent;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].purpose == Words::Purpose::silence) silent.push_back(world_ranks[i]);
  }
  return fmt::format("{} {} {}", silent.size() == 1 ? "rank" : "ranks", fmt::join(silent, ", "),
                     silent.size() == 1 ? "has" : "have");
}

/// Bytes per addend: what is kept beside the buffers is at most this much for each member, whatever the message's size.
/// Smaller blocks wait for each other too often, larger ones leave the cache (measured on two cores over Open MPI).
constexpr std::int64_t kBlock_bytes = std::int64_t{1} << 20;

/// Different for different arguments, as good as surely.
std::uint64_t joined(std::uint64_t a, std::uint64_t b) { return mixed(mixed(a) + b); }

/// Everybody's card, by rank, as messages. Collective.
template <typename Card>
std::vector<Card> exchange_cards(Peers& peers, const Card& mine) {
  std::vector<Card> cards(peers.size(), mine);
  peers.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(cards.data()), sizeof mine);
  return cards;
}

}  // namespace

std::vector<Words> meet(Peers& peers, std::span<const int> world_ranks, const Words& mine) {
  Words nothing;
  nothing.purpose = Words::Purpose::silence;
  std::vector<Words> all(peers.size(), nothing);
  const auto missing = [&] {
    return fmt::format(
        "{} not come to the {} where rank {} has waited for {:g} s; alive, and doing nothing that shows "
        "(FSDPBENCH_STALL_S is for how long ranks wait)",
        silent_ranks(all, world_ranks), describe(mine), world_ranks[peers.rank()], peers.patience_s());
  };
  peers.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()), sizeof mine, missing);
  check_purposes(all, world_ranks);
  return all;
}

std::shared_ptr<ProcessGroup> ProcessGroup::make(Team& team) {
  launch::Session& session = *team.options().session;
  Peers lanes(team.abort(), team.emulation().stall_s, session.peers());
  Peers hosts(team.abort(), team.emulation().stall_s, session.peers());
  team.find_neighbours(hosts);
  return make(team, std::move(lanes), std::move(hosts), 1);
}

std::shared_ptr<ProcessGroup> ProcessGroup::make(Team& team, Peers lanes, Peers hosts, std::uint64_t id) {
  std::shared_ptr<ProcessGroup> group(new ProcessGroup(team, std::move(lanes), std::move(hosts), id));
  team.add(group);
  return group;
}

ProcessGroup::ProcessGroup(Team& team, Peers lanes, Peers hosts, std::uint64_t id)
    : team_(team), id_(id), lanes_(std::move(lanes)), hosts_(std::move(hosts)) {
  get_acquainted();
}

/// Who the members are in the team, whether they share a clock, and whether all see each other's memory.
void ProcessGroup::get_acquainted() {
  struct Card {
    int world_rank = 0;
    std::uint64_t clock = 0;  ///< 0: not known
    int lane_seat = -1, host_seat = -1;
  };
  Neighbours& neighbours = team_.neighbours();
  const std::string clock = launch::clock_identity();
  const Card mine{team_.options().session->placement().rank, clock.empty() ? 0 : std::hash<std::string>{}(clock),
                  neighbours.new_seat(), neighbours.new_seat()};
  const std::vector<Card> cards = exchange_cards(hosts_, mine);
  std::vector<Seat*> lane_seats, host_seats;
  for (const Card& card : cards) {
    world_ranks_.push_back(card.world_rank);
    lane_seats.push_back(neighbours.seat(card.world_rank, card.lane_seat));
    host_seats.push_back(neighbours.seat(card.world_rank, card.host_seat));
  }
  one_clock_ = mine.clock != 0 &&
               std::all_of(cards.begin(), cards.end(), [&](const Card& card) { return card.clock == mine.clock; });
  const auto is_seen = [](const Seat* seat) { return seat != nullptr; };
  const bool sees_all = std::ranges::all_of(lane_seats, is_seen) && std::ranges::all_of(host_seats, is_seen);
  const std::vector<char> views = exchange_cards(hosts_, static_cast<char>(sees_all));
  if (std::ranges::find(views, 0) != views.end()) return;
  lanes_.sit_down(RoundTable(std::move(lane_seats), rank()));
  hosts_.sit_down(RoundTable(std::move(host_seats), rank()));
}

void ProcessGroup::run(int, const CollectiveCall& call, Stamp& stamp) {
  const std::vector<Words> all = meet_lanes(call, stamp);
  const std::shared_ptr<Transfer> transfer = transfer_;
  if (team_.moves_bytes()) move(call, all);
  if (!transfer) return;
  team_.links()->wait(*transfer);
  const int world_rank = world_ranks_[this->rank()];
  stamp.link_ns = team_.links()->end_of(*transfer, world_rank) - transfer->start_ns;
}

/// Returns what all have said; `stamp` learns when the last member came, 0 if that cannot be known.
std::vector<Words> ProcessGroup::meet_lanes(const CollectiveCall& call, Stamp& stamp) {
  Words mine;
  mine.purpose = Words::Purpose::collective;
  mine.call = call;
  mine.call.input = mine.call.output = nullptr;
  mine.input_at = team_.neighbours().offset_of(call.input);
  mine.output_at = team_.neighbours().offset_of(call.output);
  mine.now_ns = now_ns();
  if (Links* links = team_.links()) {
    const std::vector<FlowState> flows = links->flows_of(world_ranks_[rank()], mine.now_ns);
    mine.flow_count = static_cast<std::int32_t>(std::min(flows.size(), mine.flows.size()));
    std::copy_n(flows.begin(), mine.flow_count, mine.flows.begin());
  }
  std::vector<Words> all = meet(lanes_, world_ranks_, mine);
  std::vector<CollectiveCall> calls;
  std::int64_t last_ns = 0;
  for (const Words& words : all) {
    calls.push_back(words.call);
    last_ns = std::max(last_ns, words.now_ns);
  }
  check_match(calls, world_ranks_);
  if (team_.links()) transfer_ = begin_transfer(call, all, last_ns);
  stamp.peers_arrived_ns = one_clock_ ? last_ns : 0;
  return all;
}

std::shared_ptr<Transfer> ProcessGroup::begin_transfer(const CollectiveCall& call, const std::vector<Words>& all,
                                                       std::int64_t start_ns) {
  Links& links = *team_.links();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Words& words = all[peer];
    links.learn(world_ranks_[peer], std::span(words.flows).first(words.flow_count), words.now_ns);
  }
  return links.begin(world_ranks_, link_bytes(call, size()), hops(call.kind, size()), start_ns,
                     joined(id_, ++transfers_));
}

void ProcessGroup::move(const CollectiveCall& call, const std::vector<Words>& all) {
  const bool all_seen = lanes_.at_table() && std::ranges::all_of(all, [](const Words& words) {
                          return words.input_at >= 0 && words.output_at >= 0;
                        });
  if (!all_seen) return move_by_messages(call);
  std::vector<CollectiveCall> calls(all.size(), call);
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (static_cast<int>(member) == rank()) continue;
    calls[member].input = team_.neighbours().address(world_ranks_[member], all[member].input_at);
    calls[member].output = team_.neighbours().address(world_ranks_[member], all[member].output_at);
  }
  move_directly(rank(), calls, [this] { lanes_.meet(); });
  lanes_.meet();  // nobody reads this rank's memory any more
}

void ProcessGroup::move_by_messages(const CollectiveCall& call) {
  const std::int64_t element = size_of(call.dtype);
  switch (call.kind) {
    case Collective::all_gather: {
      copy_bytes(call.input, call.output + rank() * call.count * element, call.count * element);
      return gather_slices(call.output, Slices::equal(call.count, size()), element);
    }
    case Collective::reduce_scatter: return reduce_slices(call, Slices::equal(call.count, size()), call.output);
    case Collective::all_reduce: {
      const Slices slices = Slices::divide(call.count, size());
      reduce_slices(call, slices, call.output + slices.begin(rank()) * element);
      return gather_slices(call.output, slices, element);
    }
    case Collective::broadcast: return broadcast(call);
    case Collective::all_to_all: return exchange_slices(call);
    case Collective::send_recv: return pass_on(call);
  }
}

/// Slice r of this rank's input to rank r, slice r of the output from rank r.
void ProcessGroup::exchange_slices(const CollectiveCall& call) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  copy_bytes(call.input + rank() * bytes, call.output + rank() * bytes, bytes);
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() + size() - step) % size();
    lanes_.send(to, call.input + to * bytes, bytes);
    lanes_.receive(from, call.output + from * bytes, bytes);
  }
  lanes_.exchange();
}

/// To the next rank, from the one before.
void ProcessGroup::pass_on(const CollectiveCall& call) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  if (size() == 1) return copy_bytes(call.input, call.output, bytes);
  lanes_.send((rank() + 1) % size(), call.input, bytes);
  lanes_.receive((rank() + size() - 1) % size(), call.output, bytes);
  lanes_.exchange();
}

void ProcessGroup::broadcast(const CollectiveCall& call) {
  const std::int64_t bytes = call.count * size_of(call.dtype);
  if (rank() != call.root) {
    lanes_.receive(call.root, call.output, bytes);
  } else {
    for (int step = 1; step < size(); ++step) lanes_.send((rank() + step) % size(), call.input, bytes);
    copy_bytes(call.input, call.output, bytes);
  }
  lanes_.exchange();
}

/// Every member's own slice of `buffer` to all others.
void ProcessGroup::gather_slices(std::byte* buffer, const Slices& slices, std::int64_t element_bytes) {
  const auto begin = [&](int r) { return buffer + slices.begin(r) * element_bytes; };
  const auto bytes = [&](int r) { return slices.count(r) * element_bytes; };
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() + size() - step) % size();
    lanes_.send(to, begin(rank()), bytes(rank()));
    lanes_.receive(from, begin(from), bytes(from));
  }
  lanes_.exchange();
}

/// The sum over all members of this rank's slice of their inputs into `output`, which may be that slice itself. Goes
/// block by block, so that the addends need little memory and are still in the cache when they are added.
void ProcessGroup::reduce_slices(const CollectiveCall& call, const Slices& slices, std::byte* output) {
  const std::int64_t element = size_of(call.dtype);
  const std::int64_t block = kBlock_bytes / element;
  const std::size_t n = size();
  const std::int64_t room = std::min(block, slices.count(0)) * element;  // no slice is longer than the first
  if (addends_.size() < n * static_cast<std::size_t>(room)) addends_.resize(n * static_cast<std::size_t>(room));
  std::vector<const std::byte*> sources(n);
  for (std::int64_t first = 0; first < slices.count(0); first += block) {
    const auto count = [&](int r) { return std::clamp<std::int64_t>(slices.count(r) - first, 0, block); };
    const auto input = [&](int r) { return call.input + (slices.begin(r) + first) * element; };
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const int from = (rank() + size() - step) % size();
      std::byte* const addend = addends_.data() + from * room;
      lanes_.send(to, input(to), count(to) * element);
      lanes_.receive(from, addend, count(rank()) * element);
      sources[from] = addend;
    }
    sources[rank()] = input(rank());
    lanes_.exchange();
    reduce(sources, output + first * element, count(rank()), call.dtype, call.scale);
  }
}

void ProcessGroup::host_barrier() {
  Words mine;
  mine.purpose = Words::Purpose::barrier;
  meet(hosts_, world_ranks_, mine);
}

std::shared_ptr<Group> ProcessGroup::split(int, int color, int key, int& new_rank) {
  Words mine;
  mine.purpose = Words::Purpose::split;
  meet(hosts_, world_ranks_, mine);
  Peers lanes = hosts_.split(color, key);
  Peers hosts = hosts_.split(color, key);
  const std::uint64_t id = joined(joined(id_, ++splits_), static_cast<std::uint64_t>(color));
  std::shared_ptr<ProcessGroup> group = make(team_, std::move(lanes), std::move(hosts), id);
  new_rank = group->rank();
  return group;
}

/// A member that has ended meets the others once more on each side, for whoever might still wait for it there. Each
/// meeting gets a thread: if they came one after the other, a peer that waits for the last would wait for ever.
void ProcessGroup::member_ended(int) {
  endings_.push_back(std::async(std::launch::async, [this] { say_end(lanes_); }));
  endings_.push_back(std::async(std::launch::async, [this] { say_end(hosts_); }));
}

void ProcessGroup::say_end(Peers& peers) {
  try {
    meet(peers, world_ranks_, Words{});
  } catch (...) {
    team_.fail(std::current_exception());
  }
}

void ProcessGroup::wait_ended() {
  for (std::future<void>& ending : endings_) ending.get();
}

}  // namespace fsdpbench::backend::cpu
