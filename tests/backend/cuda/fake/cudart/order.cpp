#include "backend/cuda/fake/cudart/order.h"

#include <algorithm>
#include <mutex>

namespace fake {
namespace {

struct Order {
  std::mutex mutex;
  std::map<std::uint64_t, Marks> streams;
  Marks host;
};
Order& order() {
  static Order& it = *new Order;  // threads of streams may outlive main
  return it;
}

void merge(Marks& into, const Marks& marks) {
  for (const auto& [stream, number] : marks) into[stream] = std::max(into[stream], number);
}
bool has(const Marks& marks, std::uint64_t stream, std::int64_t number) {
  const auto found = marks.find(stream);
  return found != marks.end() && found->second >= number;
}

}  // namespace

std::int64_t mark(std::uint64_t stream) {
  const std::lock_guard lock(order().mutex);
  return ++order().streams[stream][stream];
}
Marks before(std::uint64_t stream) {
  const std::lock_guard lock(order().mutex);
  return order().streams[stream];
}
void stream_waits(std::uint64_t stream, const Marks& marks) {
  const std::lock_guard lock(order().mutex);
  merge(order().streams[stream], marks);
}
void host_waits(const Marks& marks) {
  const std::lock_guard lock(order().mutex);
  merge(order().host, marks);
}
bool stream_knows(std::uint64_t stream, std::uint64_t of, std::int64_t number) {
  const std::lock_guard lock(order().mutex);
  return has(order().streams[stream], of, number);
}
bool host_knows(std::uint64_t of, std::int64_t number) {
  const std::lock_guard lock(order().mutex);
  return has(order().host, of, number);
}

}  // namespace fake
