#include "engine/masters.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>

#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/lane_pool.h"

namespace fsdpbench::engine {
namespace {

using plan::ShardLayout;
using plan::ShardPiece;
using schedule::BufferRole;

constexpr std::int64_t kBytes = sizeof(float);

/// All of a rank's state, in the order in which it is saved.
constexpr std::array kStateRoles{BufferRole::master_shard,  BufferRole::master_replicated,
                                 BufferRole::first_moment,  BufferRole::first_moment_replicated,
                                 BufferRole::second_moment, BufferRole::second_moment_replicated};
constexpr std::span kMomentRoles = std::span(kStateRoles).subspan(2);

/// Calls use(begin, whole, count) for each run of elements [begin, begin + count) of a rank's part of a parameter that
/// lies in one piece, from `whole` on, in the whole of it.
template <class Use>
void for_each_run(const plan::ParameterShape& shape, int part, std::int64_t begin, std::int64_t count, Use use) {
  for (const std::int64_t end = begin + count; begin < end;) {
    const plan::ParameterShape::Run run = shape.run_of(begin);
    const std::int64_t some = std::min(end, run.first + run.count) - begin;
    use(begin, shape.in_whole(part, begin), some);
    begin += some;
  }
}

/// Calls use(begin, count) for all of `numel` elements, `most` at a time.
template <class Use>
void in_parts(std::int64_t numel, std::int64_t most, Use use) {
  for (std::int64_t begin = 0; begin < numel; begin += most) use(begin, std::min(most, numel - begin));
}

/// `fill`, which knows whole parameters, asked for elements of this rank's part.
model::FillParameter of_part(const model::FillParameter& fill, const plan::Plan& plan, int rank) {
  return [&fill, &plan, rank](int parameter, std::int64_t begin, std::span<float> out) {
    const plan::ParameterShape& shape = plan.shapes.parameters[parameter];
    const int part = plan.groups.index(plan.group_of_parts(shape), rank);
    for_each_run(shape, part, begin, std::ssize(out), [&](std::int64_t at, std::int64_t whole, std::int64_t count) {
      fill(parameter, whole, out.subspan(at - begin, count));
    });
  };
}

/// Device memory for a unit's shards, and for the parts of a parameter.
std::int64_t arrived_bytes(const plan::Plan& plan) {
  std::int64_t most = 0;
  for (const plan::Unit& unit : plan.units) {
    if (unit.layout.shards > 1) most = std::max(most, unit.layout.gathered_numel() * kBytes);
  }
  return round_up(std::min(Masters::kPieceBytes, most), LanePool::kGranule);
}
std::int64_t joined_bytes(const plan::Plan& plan) {
  return round_up(std::min(Masters::kPieceBytes, Masters::whole_bytes(plan)), LanePool::kGranule);
}

/// Elements [begin, begin + window.size()) of what `pieces` make up; zero where no piece is.
void fill_window(const std::vector<ShardPiece>& pieces, std::int64_t begin, std::span<float> window,
                 const model::FillParameter& fill) {
  std::fill(window.begin(), window.end(), 0.0F);
  const std::int64_t end = begin + static_cast<std::int64_t>(window.size());
  for (const ShardPiece& piece : pieces) {
    const std::int64_t first = std::max(begin, piece.shard_offset);
    const std::int64_t last = std::min(end, piece.shard_offset + piece.count);
    if (first >= last) continue;
    fill(piece.parameter, piece.parameter_offset + first - piece.shard_offset,
         window.subspan(first - begin, last - first));
  }
}

/// Fills the window by several threads, each for a part of it.
void fill_window(const std::vector<ShardPiece>& pieces, std::int64_t begin, std::span<float> window,
                 const model::FillParameter& fill, int threads) {
  constexpr std::int64_t kLeastPart = std::int64_t{1} << 15;  // less is filled before a thread has started
  const auto numel = static_cast<std::int64_t>(window.size());
  const std::int64_t part = std::max<std::int64_t>(kLeastPart, ceil_div(numel, threads));
  std::vector<std::future<void>> others;
  for (std::int64_t offset = part; offset < numel; offset += part) {
    others.push_back(std::async(std::launch::async, [&, offset] {
      fill_window(pieces, begin + offset, window.subspan(offset, std::min(part, numel - offset)), fill);
    }));
  }
  fill_window(pieces, begin, window.first(std::min(part, numel)), fill);
  for (std::future<void>& other : others) other.get();
}

/// Calls use(memory, piece) for each piece of a rank's state; `piece` is a part of `staging`.
template <class Use>
void for_each_piece(const plan::Plan& plan, const BufferTable& buffers, std::span<float> staging, Use use) {
  for (const BufferRole role : kStateRoles) {
    for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
      const std::span<std::byte> memory = buffers.persistent(role, u);
      in_parts(std::ssize(memory) / kBytes, std::ssize(staging), [&](std::int64_t begin, std::int64_t count) {
        use(memory.data() + begin * kBytes, staging.first(count));
      });
    }
  }
}

/// Brings the masters to rank 0. Few small parameters are gathered at once, a large one comes shard by shard.
class Collection {
 public:
  Collection(backend::RankContext& context, const plan::Plan& plan, const BufferTable& buffers,
             Communicators& communicators, std::span<float> staging, const TakeParameter& take)
      : context_(context),
        plan_(plan),
        buffers_(buffers),
        communicators_(communicators),
        staging_(staging),
        take_(take) {
    const auto allocate = [&](std::int64_t bytes) {
      return bytes == 0 ? nullptr
                        : context.device.allocate(bytes, MemoryCategory::communication_buffers, Lane::compute);
    };
    arrived_ = allocate(arrived_bytes(plan));
    joined_ = allocate(joined_bytes(plan));
    parts_.resize(plan.shapes.parameters.size());
    for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
      const ShardLayout& layout = plan.units[u].layout;
      for (int shard = 0; shard < layout.shards; ++shard) {
        for (const ShardPiece& piece : layout.pieces(shard)) {
          parts_[piece.parameter].push_back({u, shard, piece});
        }
      }
      for (const ShardPiece& piece : layout.replicated_pieces()) {
        parts_[piece.parameter].push_back({u, kReplicated, piece});
      }
    }
  }

  void run() {
    for (const std::vector<Part>& parts : parts_) {
      if (!parts.empty()) collect(parts);
    }
    for (std::byte* memory : {arrived_, joined_}) {
      if (memory != nullptr) context_.device.free(memory, Lane::compute);
    }
    context_.device.synchronize();
  }

 private:
  static constexpr int kReplicated = -1;

  struct Part {  // of a parameter
    int unit = 0;
    int shard = 0;  ///< that holds it, or kReplicated
    ShardPiece piece;
  };

  struct Window {  // elements [begin, end) of every shard of a unit, one after another in arrived_
    int unit = -1;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  void collect(const std::vector<Part>& parts) {
    const Part& first = parts.front();
    const ShardLayout& layout = plan_.units[first.unit].layout;
    if (first.shard == kReplicated || layout.shards == 1) {
      const BufferRole role = first.shard == kReplicated ? BufferRole::master_replicated : BufferRole::master_shard;
      const std::byte* master = buffers_.persistent(role, first.unit).data();
      for (const Part& part : parts) show(part.piece, master + part.piece.shard_offset * kBytes);
      return;
    }
    if (gather(parts, layout)) {
      for (const Part& part : parts) {
        const std::int64_t at = part.shard * (window_.end - window_.begin) + part.piece.shard_offset - window_.begin;
        show(part.piece, arrived_ + at * kBytes);
      }
      return;
    }
    window_ = {};
    std::byte* master = buffers_.persistent(BufferRole::master_shard, first.unit).data();
    const plan::Group group = group_of(first.unit);
    const int shard_index = plan_.groups.index(group, context_.rank);
    for (const Part& part : parts) {
      in_parts(part.piece.count, Masters::kPieceNumel, [&](std::int64_t begin, std::int64_t count) {
        const ShardPiece some{part.piece.parameter, part.piece.parameter_offset + begin,
                              part.piece.shard_offset + begin, count};
        std::byte* buffer = part.shard == shard_index ? master + some.shard_offset * kBytes : arrived_;
        communicators_.of(group).broadcast(Lane::compute, buffer, some.count, DType::f32, part.shard, nullptr);
        show(some, buffer);
      });
    }
  }

  plan::Group group_of(int unit) const { return plan_.units[unit].group; }

  /// Whether all parts lie in the window, which moves onto them if they fit into it.
  bool gather(const std::vector<Part>& parts, const ShardLayout& layout) {
    const auto begin_of = [](const Part& part) { return part.piece.shard_offset; };
    const auto end_of = [](const Part& part) { return part.piece.shard_offset + part.piece.count; };
    const std::int64_t begin = begin_of(std::ranges::min(parts, {}, begin_of));
    const std::int64_t end = end_of(std::ranges::max(parts, {}, end_of));
    const int unit = parts.front().unit;
    if (window_.unit == unit && window_.begin <= begin && end <= window_.end) return true;
    const std::int64_t most = Masters::kPieceNumel / layout.shards;
    if (end - begin > most) return false;
    window_ = {unit, begin, std::min(layout.shard_numel, begin + most)};
    communicators_.of(group_of(unit))
        .all_gather(Lane::compute, buffers_.persistent(BufferRole::master_shard, unit).data() + begin * kBytes,
                    arrived_, window_.end - window_.begin, DType::f32, nullptr);
    return true;
  }

  void show(const ShardPiece& piece, const std::byte* memory) {
    if (plan_.shapes.parameters[piece.parameter].parts > 1) return join(piece, memory);
    if (context_.rank != 0) return;
    download(piece, memory,
             [&](std::int64_t begin, std::span<const float> values) { take_(piece.parameter, begin, values); });
  }

  /// A piece of a parameter that ranks split: all parts of it come to rank 0, which shows the parameter once it is
  /// whole.
  void join(const ShardPiece& piece, const std::byte* memory) {
    const plan::ParameterShape& shape = plan_.shapes.parameters[piece.parameter];
    const std::int64_t most = joined_bytes(plan_) / kBytes / shape.parts;
    in_parts(piece.count, most, [&](std::int64_t begin, std::int64_t count) {
      communicators_.of(plan_.group_of_parts(shape))
          .all_gather(Lane::compute, memory + begin * kBytes, joined_, count, DType::f32, nullptr);
      if (context_.rank != 0) return;
      const ShardPiece some{piece.parameter, piece.parameter_offset + begin, {}, count};
      for (int part = 0; part < shape.parts; ++part) {
        download(some, joined_ + part * count * kBytes,
                 [&](std::int64_t at, std::span<const float> values) { put(shape, part, at, values); });
      }
    });
    if (context_.rank != 0 || piece.parameter_offset + piece.count < shape.numel()) return;
    take_(piece.parameter, 0, whole_);
  }

  void put(const plan::ParameterShape& shape, int part, std::int64_t begin, std::span<const float> values) {
    whole_.resize(shape.numel() * shape.parts);
    for_each_run(shape, part, begin, std::ssize(values), [&](std::int64_t at, std::int64_t whole, std::int64_t count) {
      std::copy_n(values.begin() + (at - begin), count, whole_.begin() + whole);
    });
  }

  /// Calls use(begin, values) with a piece's elements, some at a time.
  template <class Use>
  void download(const ShardPiece& piece, const std::byte* memory, Use use) {
    in_parts(piece.count, std::ssize(staging_), [&](std::int64_t begin, std::int64_t count) {
      context_.device.enqueue(
          Lane::compute, "collect",
          [source = memory + begin * kBytes, target = staging_.data(), count](backend::Kernels& kernels) {
            kernels.download(source, target, count * kBytes);
          },
          nullptr);
      context_.device.synchronize();
      use(piece.parameter_offset + begin, staging_.first(count));
    });
  }

  backend::RankContext& context_;
  const plan::Plan& plan_;
  const BufferTable& buffers_;
  Communicators& communicators_;
  const std::span<float> staging_;
  const TakeParameter& take_;
  std::vector<std::vector<Part>> parts_;  // by parameter; in the order of its elements
  std::byte* arrived_ = nullptr;
  std::byte* joined_ = nullptr;  // of one piece, all parts one after another
  std::vector<float> whole_;     // rank 0: a parameter that ranks split
  Window window_;
};

}  // namespace

std::int64_t Masters::staging_bytes(const plan::Plan& plan) {
  std::int64_t most = 0;
  for (const plan::Unit& unit : plan.units) {
    most = std::max({most, unit.layout.shard_numel, unit.layout.replicated_numel});
  }
  return std::min(kPieceBytes, most * kBytes);
}

std::int64_t Masters::collection_bytes(const plan::Plan& plan) { return arrived_bytes(plan) + joined_bytes(plan); }

std::int64_t Masters::whole_bytes(const plan::Plan& plan) {
  std::int64_t most = 0;
  for (const plan::ParameterShape& shape : plan.shapes.parameters) {
    if (shape.parts > 1) most = std::max(most, shape.numel() * shape.parts * kBytes);
  }
  return most;
}

void Masters::initialize(const model::FillParameter& fill, int threads) {
  std::vector<float> staging(staging_bytes(plan_) / kBytes);
  const model::FillParameter parameters = of_part(fill, plan_, context_.rank);
  for (int u = 0; u < static_cast<int>(plan_.units.size()); ++u) {
    const ShardLayout& layout = plan_.units[u].layout;
    const int index = plan_.groups.index(plan_.units[u].group, context_.rank);
    load(BufferRole::master_shard, u, layout.pieces(index), staging, parameters, threads);
    load(BufferRole::master_replicated, u, layout.replicated_pieces(), staging, parameters, threads);
    for (const BufferRole role : kMomentRoles) {
      const std::span<std::byte> moment = buffers_.persistent(role, u);
      if (moment.empty()) continue;
      context_.device.enqueue(
          Lane::compute, "initialize",
          [moment](backend::Kernels& kernels) { kernels.fill_zero(moment.data(), std::ssize(moment)); }, nullptr);
    }
  }
  cast_device_shards();
}

void Masters::cast_device_shards() {
  for (int u = 0; u < static_cast<int>(plan_.units.size()); ++u) {
    std::byte* const kept = buffers_.persistent(BufferRole::device_shard, u).data();
    if (kept == nullptr) continue;
    const std::byte* master = buffers_.persistent(BufferRole::master_shard, u).data();
    context_.device.enqueue(
        Lane::compute, "initialize",
        [=, count = plan_.units[u].layout.shard_numel, dtype = plan_.param_dtype](backend::Kernels& kernels) {
          kernels.cast({master, DType::f32}, {kept, dtype}, count, 1.0F);
        },
        nullptr);
  }
  context_.device.synchronize();
}

void Masters::load(BufferRole role, int unit, const std::vector<ShardPiece>& pieces, std::span<float> staging,
                   const model::FillParameter& fill, int threads) {
  const std::span<std::byte> target = buffers_.persistent(role, unit);
  in_parts(std::ssize(target) / kBytes, std::ssize(staging), [&](std::int64_t begin, std::int64_t count) {
    const std::span<float> some = staging.first(count);
    fill_window(pieces, begin, some, fill, threads);
    context_.device.enqueue(
        Lane::compute, "initialize",
        [some, to = target.data() + begin * kBytes](backend::Kernels& kernels) {
          kernels.upload(some.data(), to, std::ssize(some) * kBytes);
        },
        nullptr);
    context_.device.synchronize();  // before the next piece takes the same place
  });
}

void Masters::download(const std::function<void(std::span<const float>)>& take) const {
  std::vector<float> staging(staging_bytes(plan_) / kBytes);
  for_each_piece(plan_, buffers_, staging, [&](const std::byte* memory, std::span<float> piece) {
    context_.device.enqueue(
        Lane::compute, "save",
        [memory, piece](backend::Kernels& kernels) {
          kernels.download(memory, piece.data(), std::ssize(piece) * kBytes);
        },
        nullptr);
    context_.device.synchronize();
    take(piece);
  });
}

void Masters::upload(const std::function<void(std::span<float>)>& give) {
  std::vector<float> staging(staging_bytes(plan_) / kBytes);
  for_each_piece(plan_, buffers_, staging, [&](std::byte* memory, std::span<float> piece) {
    give(piece);
    context_.device.enqueue(
        Lane::compute, "initialize",
        [memory, piece](backend::Kernels& kernels) {
          kernels.upload(piece.data(), memory, std::ssize(piece) * kBytes);
        },
        nullptr);
    context_.device.synchronize();
  });
  cast_device_shards();
}

void Masters::collect(const TakeParameter& take) {
  if (plan_.groups.index(plan::Group::replicate, context_.rank) != 0) return;  // the first replica has it all
  std::vector<float> staging(context_.rank == 0 ? staging_bytes(plan_) / kBytes : 0);
  Collection(context_, plan_, buffers_, communicators_, staging, take).run();
}

struct ParametersDigest::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash{XXH3_createState(), &XXH3_freeState};
  std::int64_t not_finite = 0;
};

ParametersDigest::ParametersDigest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->hash.get()); }
ParametersDigest::~ParametersDigest() = default;

void ParametersDigest::add(std::span<const float> values) {
  XXH3_128bits_update(state_->hash.get(), values.data(), values.size_bytes());
  state_->not_finite += std::ranges::count_if(values, [](float value) { return !std::isfinite(value); });
}

std::int64_t ParametersDigest::not_finite() const { return state_->not_finite; }

std::string ParametersDigest::bits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::optional<std::string> ParametersDigest::text() const {
  return state_->not_finite > 0 ? std::nullopt : std::optional(bits());
}

}  // namespace fsdpbench::engine
