#include "accept/stages/node_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

/// One tag of XML: "<pci busid="0000:01:00.0">", "</pci>" or "<net name="mlx5_0"/>".
struct XmlTag {
  std::string name;
  std::map<std::string, std::string> attributes;
  bool closes = false;  ///< it ends an element
  bool empty = false;   ///< it is one by itself

  std::string value(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? "" : found->second;
  }
};

/// Tag by tag; comments, declarations and text between tags are passed over. These files have neither entities in what is
/// asked of them, nor ">" in attributes.
class XmlTags {
 public:
  explicit XmlTags(std::string_view text) : text_(text) {}

  std::optional<XmlTag> next() {
    for (;;) {
      const std::size_t begin = text_.find('<', at_);
      const std::size_t end = text_.find('>', begin);
      if (begin == text_.npos || end == text_.npos) return std::nullopt;
      at_ = end + 1;
      const std::string_view inner = text_.substr(begin + 1, end - begin - 1);
      if (inner.empty() || inner.front() == '?' || inner.front() == '!') continue;
      return tag_of(inner);
    }
  }

 private:
  static XmlTag tag_of(std::string_view inner) {
    XmlTag tag;
    if (inner.front() == '/') {
      tag.closes = true;
      inner.remove_prefix(1);
    }
    if (!inner.empty() && inner.back() == '/') {
      tag.empty = true;
      inner.remove_suffix(1);
    }
    const std::size_t space = inner.find_first_of(" \t\r\n");
    tag.name = std::string(inner.substr(0, space));
    for (std::size_t at = space; at < inner.size();) {
      const std::size_t equals = inner.find("=\"", at);
      if (equals == inner.npos) break;
      const std::size_t quote = inner.find('"', equals + 2);
      if (quote == inner.npos) break;
      const std::size_t key = inner.find_last_of(" \t\r\n", equals);
      tag.attributes[std::string(inner.substr(key + 1, equals - key - 1))] =
          std::string(inner.substr(equals + 2, quote - equals - 2));
      at = quote + 1;
    }
    return tag;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// An element that contains others, as far as it matters where they are.
struct Above {
  std::string name;    ///< of the tag
  std::string socket;  ///< it is a socket
  std::string bridge;  ///< it is a PCIe switch or bridge: its place on the bus
  std::string device;  ///< it is a device: its place on the bus
};

/// NCCL: a NUMA node is a "cpu", a switch a "pci" with others in it. hwloc: both are an "object" of some type.
Above above_of(const XmlTag& tag) {
  const std::string busid = lower(tag.value("busid") + tag.value("pci_busid"));
  if (tag.name == "cpu") return {tag.name, "NUMA node " + tag.value("numaid"), "", ""};
  if (tag.name == "pci") return {tag.name, "", "", busid};
  const std::string type = tag.value("type");
  if (type == "Package") return {tag.name, "socket " + tag.value("os_index"), "", ""};
  if (type == "Bridge") return {tag.name, "", busid.empty() ? "host bridge" : busid, ""};
  if (type == "PCIDev") return {tag.name, "", "", busid};
  return {tag.name, "", "", ""};
}

/// The NIC that a tag names: NCCL's "net", hwloc's device of the operating system that is of OpenFabrics or a network.
std::string nic_of(const XmlTag& tag) {
  if (tag.name == "net") return tag.value("name");
  if (tag.value("type") != "OSDev") return "";
  constexpr std::string_view kNetwork = "2", kOpenFabrics = "3";  // hwloc_obj_osdev_type_e up to hwloc 2
  const std::string kind = tag.value("osdev_type");
  return kind == kNetwork || kind == kOpenFabrics ? tag.value("name") : "";
}

/// Of what the adapters are called by their drivers: mlx5_0, not the network interface on it.
bool is_better_name(const std::string& name, const std::string& than) {
  return than.empty() || (than.starts_with("e") && !name.starts_with("e")) || than.starts_with("ib");
}

}  // namespace

const NodeTopology::Device* NodeTopology::find(const std::string& busid) const {
  const auto found = std::ranges::find(devices, lower(busid), &Device::busid);
  return found == devices.end() ? nullptr : &*found;
}

std::string NodeTopology::nearest_nic(const Device& device) const {
  const auto shared = [](const Device& a, const Device& b) {
    const auto [end, other] = std::ranges::mismatch(a.bridges, b.bridges);
    return a.socket == b.socket ? end - a.bridges.begin() : 0;
  };
  std::ptrdiff_t most = 0;
  std::vector<std::string> nics;
  for (const Device& other : devices) {
    if (other.nic.empty() || &other == &device) continue;
    const std::ptrdiff_t same = shared(device, other);
    if (same > most) nics.clear();
    most = std::max(most, same);
    if (same == most && most > 0) nics.push_back(other.nic);
  }
  if (nics.empty()) return "";
  std::size_t before = 0;
  for (const Device& other : devices) {
    if (&other == &device) break;
    if (other.nic.empty() && shared(device, other) == most) ++before;
  }
  return nics[before % nics.size()];
}

NodeTopology read_node_topology(const std::string& text, const std::string& source) {
  NodeTopology topology;
  std::vector<Above> path;
  bool known = false;
  XmlTags tags(text);
  while (const std::optional<XmlTag> tag = tags.next()) {
    if (tag->closes) {
      while (!path.empty() && path.back().name != tag->name) path.pop_back();
      if (!path.empty()) path.pop_back();
      continue;
    }
    known = known || tag->name == "system" || tag->name == "topology";
    const Above above = above_of(*tag);
    if (!above.device.empty()) {
      NodeTopology::Device& device = topology.devices.emplace_back();
      device.busid = above.device;
      for (const Above& one : path) {
        if (!one.socket.empty()) device.socket = one.socket;
        if (!one.bridge.empty()) device.bridges.push_back(one.bridge);
        if (!one.device.empty()) device.bridges.push_back(one.device);  // a switch in NCCL's words
      }
    }
    if (const std::string nic = nic_of(*tag); !nic.empty()) {
      const auto in = std::ranges::find_if(path.rbegin(), path.rend(), [](const Above& a) { return !a.device.empty(); });
      for (NodeTopology::Device& device : topology.devices) {
        if (in != path.rend() && device.busid == in->device && is_better_name(nic, device.nic)) device.nic = nic;
      }
    }
    if (!tag->empty) path.push_back(above);
  }
  if (!known || topology.devices.empty()) {
    throw ConfigError(fmt::format("{}: names no PCI device; expected XML as NCCL writes it (NCCL_TOPO_DUMP_FILE), or hwloc "
                                  "(lstopo --of xml).",
                                  source));
  }
  return topology;
}

std::string tell_node(const NodeTopology& topology, const std::string& source, accept::Cluster& cluster) {
  std::vector<std::string> sockets;
  std::size_t nics = 0;
  cluster.adapters.resize(static_cast<std::size_t>(cluster.ranks()));
  for (std::size_t rank = 0; rank < cluster.devices.size(); ++rank) {
    const std::string& name = cluster.devices[rank];  // "PCI 0000:4e:00.0"
    const NodeTopology::Device* const device = topology.find(name.substr(name.rfind(' ') + 1));
    if (device == nullptr) continue;
    if (!device->socket.empty()) sockets.push_back(device->socket);
    std::string& nic = cluster.adapters.at(rank);
    if (nic.empty()) nic = topology.nearest_nic(*device);
    if (!nic.empty()) ++nics;
  }
  std::vector<std::string> each = sockets;
  std::ranges::sort(each);
  each.erase(std::unique(each.begin(), each.end()), each.end());
  if (cluster.one_node() && sockets.size() == static_cast<std::size_t>(cluster.ranks()) && each.size() > 1) {
    cluster.switches = each;
    for (const std::string& socket : sockets) {
      cluster.switch_of.push_back(static_cast<int>(std::ranges::find(each, socket) - each.begin()));
    }
  }
  return fmt::format("{}: {} of {} ranks are below {} sockets, {} have a NIC near them", source, sockets.size(),
                     cluster.ranks(), each.size(), nics);
}

}  // namespace fsdpbench::app
