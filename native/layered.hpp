// A load that an engine's forward pass overtakes: a thread copies layer after layer over all blocks, and
// whoever is about to use a layer waits for that one only. What a record's checksum and generation say is
// known after the last layer.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "pool.hpp"

namespace kvext {

class LayeredLoad {
 public:
  // Begins at once; `pool` must outlive this.
  LayeredLoad(Pool& pool, std::vector<BlockRef> refs, const Pages& pages, std::vector<u64> blocks);
  // Cancels, and waits for the piece that is just being copied.
  ~LayeredLoad();
  LayeredLoad(const LayeredLoad&) = delete;
  LayeredLoad& operator=(const LayeredLoad&) = delete;

  // Whether the first `num_layers` layers of all blocks are in place; waits until they are, the load has
  // ended in another way, or the deadline has passed.
  bool wait(std::size_t num_layers, Seconds wait);
  bool is_in_place(std::size_t num_layers) const { return load_acquire(num_ready_) >= num_layers; }
  // Whether the load has ended, well or not.
  bool finish(Seconds wait);
  // Writes nothing more into the engine's memory once this has returned.
  void cancel();

  // Valid once it has ended: one outcome a block, none if the pool was closed or it was cancelled.
  const std::vector<LoadOutcome>& outcomes() const { return outcomes_; }
  double seconds() const { return seconds_; }

  // The copying thread's: tells of layers that are in place, not before `due`. False if it shall stop.
  bool publish(std::size_t num_layers, SteadyTime due);
  bool is_cancelled() const { return load_relaxed(cancelled_); }

 private:
  void run(Pool& pool, const std::vector<BlockRef>& refs, const Pages& pages, const std::vector<u64>& blocks);
  void end(std::vector<LoadOutcome> outcomes, double seconds);

  std::mutex mutex_;
  std::condition_variable changed_;
  u64 num_ready_ = 0;
  bool cancelled_ = false;
  bool ended_ = false;
  std::vector<LoadOutcome> outcomes_;
  double seconds_ = 0;
  int process_;
  std::thread thread_;
};

}  // namespace kvext
