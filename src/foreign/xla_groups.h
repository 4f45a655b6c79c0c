#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdpbench::foreign {

/// The numbers in a text, whatever stands between them.
std::vector<std::int64_t> numbers_in(std::string_view text);

/// Who takes part in a collective: sets of devices, by their place in the program's mesh.
struct ReplicaGroups {
  std::int64_t size = -1;               ///< of each
  std::vector<std::vector<int>> lists;  ///< empty: more devices than are listed here, or not told
};

/// Numbers from 0 laid out in rows of `dims`, read with the axes in the order `order` (empty: as they are).
struct IotaOrder {
  std::vector<std::int64_t> dims, order;
};
/// The numbers; empty if the two do not fit each other or there are too many.
std::vector<int> iota_numbers(const IotaOrder& iota);

/// "[2,4]<=[4,2]T(1,0)": `count` groups of `size`.
ReplicaGroups iota_groups(std::int64_t count, std::int64_t size, const IotaOrder& iota);
/// Devices that differ in the named axes only. `devices`: of a mesh whose devices have another order.
ReplicaGroups mesh_groups(const std::vector<std::int64_t>& axes, const std::vector<std::int64_t>& named,
                          const std::vector<int>& devices);
/// Any of the forms of text: "{{0,1},{2,3}}", that of iotas, and "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}".
ReplicaGroups parse_groups(std::string_view text);

}  // namespace fsdpbench::foreign
