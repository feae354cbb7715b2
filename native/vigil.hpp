// Shows that this process runs, and notices who has stopped. A process shows it by changing a word; others
// count how often they have looked in vain. Nobody compares clocks, so a clock that jumps, a time namespace
// or a host that slept convicts nobody: who looks was asleep as well.
#pragma once
#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "liveness.hpp"

namespace kvext {

class Vigil {
 public:
  // `may_beat`: false once this process holds something but has done nothing with it for a lease.
  Vigil(Region& region, Membership& self, std::function<bool()> may_beat);

  // Whether the process of that row and epoch has been silent for a lease, as far as this process has seen.
  bool hung(u32 row, u64 epoch) const;
 private:
  struct Seen {
    u64 epoch = 0, beat = 0;
    u32 looks_in_vain = 0;
  };
  void run(const std::stop_token& stop);
  void look();

  Region& region_;
  Membership& self_;
  std::function<bool()> may_beat_;
  std::chrono::milliseconds interval_;
  u32 looks_a_lease_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::array<Seen, kMaxProcesses> seen_{};
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace kvext
