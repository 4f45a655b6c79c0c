#pragma once

#include <cstdint>
#include <map>

namespace fake {

/// Work that has been issued before something, for certain: of each stream so many marks.
using Marks = std::map<std::uint64_t, std::int64_t>;

/// The order among streams, and the host, that the calls of CUDA made so far enforce. Streams by Stream::id().
/// Thread-safe.

/// One more mark on `stream`, behind all that was issued there so far; its number.
std::int64_t mark(std::uint64_t stream);
/// All that comes before what `stream` gets next.
Marks before(std::uint64_t stream);
/// From now on `stream` goes on only after these.
void stream_waits(std::uint64_t stream, const Marks& marks);
/// The host has waited for these.
void host_waits(const Marks& marks);

/// Whether mark `number` of `of` comes before what `stream` gets next: because it is the same stream's, or because of
/// events that the stream waits for.
bool stream_knows(std::uint64_t stream, std::uint64_t of, std::int64_t number);
/// Whether the host has waited for it.
bool host_knows(std::uint64_t of, std::int64_t number);

}  // namespace fake
