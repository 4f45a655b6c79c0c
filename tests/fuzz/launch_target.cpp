// Bytes that strangers may send to a job's port, and to a rank that looks for rank 0; the frames of control
// connections.
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "fuzz/fuzz_target.h"
#include "launch/addresses.h"
#include "launch/handshake.h"

namespace fsdpbench::fuzz {
namespace {

using namespace launch;

const Introduction kRankZero{"job", "v", 0, 2, "here", 1};

/// A rank 0 that waits for a rank 1 that never proves itself.
class WaitingRoot {
 public:
  WaitingRoot() {
    std::string error;
    Socket listener = listen_at("127.0.0.1", 0, error);
    if (!listener) throw std::runtime_error(error);
    port_ = listener.local_port();
    // It waits until the program ends, and with it.
    std::thread([this, socket = std::move(listener)]() mutable {
      try {
        (void)take_in_all(std::move(socket), kRankZero, random_token(), deadline_in(1e6));
      } catch (const std::exception&) {
      }
      waits_ = false;
    }).detach();
  }
  int port() const { return port_; }
  bool waits() const { return waits_; }

 private:
  int port_ = 0;
  std::atomic<bool> waits_ = true;
};

void send_what_fits(Socket& socket, const std::string& bytes) { (void)socket.send(bytes.data(), bytes.size()); }

/// A stranger says `bytes` to rank 0, which must go on waiting.
void call_root(const std::string& bytes) {
  static auto& root = *new WaitingRoot;  // never destroyed: its thread uses it to the end
  std::string error;
  Socket stranger = connect_to("127.0.0.1", root.port(), deadline_in(10), error);
  if (!stranger) throw std::runtime_error("rank 0 does not listen any more: " + error);
  send_what_fits(stranger, bytes);
  stranger.end_sending();
  if (!root.waits()) throw std::runtime_error("a stranger has ended the job");
}

/// A stranger poses as rank 0, which no rank must believe.
void pose_as_root(const std::string& bytes) {
  std::string error, reason;
  const Socket listener = listen_at("127.0.0.1", 0, error);
  std::thread poses([&] {
    Socket guest;
    while (!(guest = accept_from(listener))) std::this_thread::yield();
    send_what_fits(guest, bytes);
    guest.end_sending();
    char rest[4096];
    while (!guest.receive(rest, sizeof rest).closed) std::this_thread::yield();
  });
  std::optional<Joined> joined;
  bool refused = false;
  try {
    joined = ask_to_join("127.0.0.1", listener.local_port(), {"job", "v", 1, 2, "here", 2}, random_token(),
                         deadline_in(5), reason);
  } catch (const Refused&) {
    refused = true;
  }
  poses.join();
  if (joined || refused) throw std::runtime_error("a rank has believed a stranger");
}

void read_frames(const std::string& bytes) {
  FrameReader reader(kMostGuestBytes);
  reader.append(bytes);
  while (const std::optional<Frame> frame = reader.next()) (void)unpack(frame->payload);
}

}  // namespace

Target target() {
  const std::string secret = random_token();
  const std::string hello = pack({"v", "1", "2", "there", "7"});
  return {"launch",
          {},
          "bytes",
          {encode(FrameKind::hello, "", pack({secret, "to join job", hello})),
           "fsdpbench job 4\n" + encode(FrameKind::welcome, "", pack({secret, "a", "1", "", "b", "2", ""})),
           encode(FrameKind::message, "job.order", "{\"end\":0}") + encode(FrameKind::heartbeat, "", "") +
               encode(FrameKind::failure, "", pack({"1", "died", "gone"})) + encode(FrameKind::goodbye, "", "")}};
}

void parse(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  static int turn = 0;
  if (turn++ % 4 == 0) call_root(bytes);
  if (turn % 4 == 2) pose_as_root(bytes);
  read_frames(bytes);
}

}  // namespace fsdpbench::fuzz
