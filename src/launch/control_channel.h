#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "launch/handshake.h"

namespace fsdpbench::launch {

/// Reason why a job cannot go on.
struct JobFailure {
  int rank = -1;        ///< the rank at fault
  bool died = false;    ///< it ended without a word: killed, crashed, or its host is gone
  std::string message;  ///< a whole sentence that names the rank
  /// With which the job ends: bad_input if that rank refused the configuration, which says nothing of its machine.
  ExitCode code = ExitCode::rank_failed;
};

/// The code of a job that `failure` ends: bad_input of a ConfigError, else rank_failed.
ExitCode job_code(const std::exception_ptr& failure);

/// Small messages between rank 0 and every other rank, beside the data: decisions, results, and the news that a rank
/// has failed or died, which reaches all within seconds. A star: of sender and receiver one is rank 0.
/// Thread-safe. Payloads are bytes.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  /// This process among size() of the job.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Returns at once. Messages of one sender on one topic arrive in order.
  virtual void send(int to, std::string_view topic, std::string payload) = 0;
  /// The next message of `from` on `topic`; blocks until it is there. Throws Stopped with the failure's message if
  /// the job fails before that.
  virtual std::string receive(int from, std::string_view topic) = 0;
  /// As receive(), but at once: nothing if no message is there.
  virtual std::optional<std::string> poll(int from, std::string_view topic) = 0;

  /// Tells all ranks that this one cannot go on, and why. Messages already sent still arrive. Returns at once.
  virtual void fail(const std::string& message, ExitCode code) = 0;
  void fail(const std::string& message) { fail(message, ExitCode::rank_failed); }
  /// The first failure this rank has heard of, its own included.
  virtual std::optional<JobFailure> failure() const = 0;
  /// `listener` is called once, on another thread, when a failure becomes known; at once if one is. Empty: nobody.
  /// It must return soon: no message is read meanwhile. When this returns, the listener before is not running and will
  /// not be called.
  virtual void on_failure(std::function<void(const JobFailure&)> listener) = 0;
};

/// Rank 0 gets everybody's payload by rank; the others get an empty list. Collective.
std::vector<std::string> gather(ControlChannel& channel, std::string_view topic, std::string mine);
/// Everybody gets rank 0's payload. Collective.
std::string broadcast(ControlChannel& channel, std::string_view topic, std::string from_root);
/// Returns when all ranks have called it. Collective.
void barrier(ControlChannel& channel);

/// Heartbeat that tells a silent connection from a dead one.
struct Heartbeat {
  double interval_s = 1;
  double silence_s = 6;  ///< no byte for this long: the other side counts as dead
};

/// The control channel over one TCP connection from each rank to rank 0. One thread of its own reads, sends heartbeats
/// and calls the failure listener. Destroying it says goodbye: then, and only then, the end of this process is no
/// failure to the others. After a failure rank 0 may still have to write results, and launchers kill all processes when
/// the first one ends in failure: so the others then wait for rank 0 to end first, for 15 s at most.
class TcpControlChannel final : public ControlChannel {
 public:
  TcpControlChannel(int rank, Joined joined, Heartbeat heartbeat = {});
  ~TcpControlChannel() override;
  TcpControlChannel(const TcpControlChannel&) = delete;
  TcpControlChannel& operator=(const TcpControlChannel&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::vector<Member>& members() const { return members_; }

  void send(int to, std::string_view topic, std::string payload) override;
  std::string receive(int from, std::string_view topic) override;
  std::optional<std::string> poll(int from, std::string_view topic) override;
  using ControlChannel::fail;
  void fail(const std::string& message, ExitCode code) override;
  std::optional<JobFailure> failure() const override;
  void on_failure(std::function<void(const JobFailure&)> listener) override;

 private:
  struct Peer {
    int rank = 0;
    ControlLink link;
    std::string out;            ///< not yet taken by the socket
    bool said_goodbye = false;  ///< its end is no failure
    std::int64_t heard_ns = 0;  ///< when something last came from it
    std::map<std::string, std::deque<std::string>, std::less<>> inbox;
  };

  // All below expect mutex_ to be held, except run() and wait_for_news().
  Peer& peer(int rank);
  void put(Peer& peer, FrameKind kind, std::string_view topic, std::string_view payload);
  void flush(Peer& peer);
  void read(Peer& peer);
  void handle(Peer& peer, Frame frame);
  void set_failure(const JobFailure& failure);
  void send_heartbeats(std::int64_t now);
  void notice_own_absence(std::int64_t now);
  void notice_silence(std::int64_t now);
  void call_listener(std::unique_lock<std::mutex>& lock);
  void close_what_is_done();
  void wait_for_root(std::unique_lock<std::mutex>& lock);
  bool open() const;
  std::optional<std::string> take(Peer& peer, std::string_view topic);
  void wait_for_news();
  void wake() const;
  void run();

  const int rank_;
  const std::vector<Member> members_;
  const Heartbeat heartbeat_;
  Socket wakeup_;  ///< an eventfd: interrupts the thread's waiting

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::optional<JobFailure> failure_;
  std::function<void(const JobFailure&)> listener_;
  bool listener_called_ = false;
  bool in_listener_ = false;
  bool ending_ = false;
  Deadline end_;  ///< when ending_: the latest time to stop waiting for the others' closing
  std::int64_t beaten_ns_ = 0;
  std::int64_t looked_ns_ = 0;  ///< when this thread last read what the others sent
  std::int64_t absent_ns_ =
      0;  ///< how long it had not, when it last was away for long; 0 once the others are heard again
  std::int64_t returned_ns_ = 0;  ///< when it noticed that

  std::thread thread_;
};

}  // namespace fsdpbench::launch
