// LRU-2: the victim is the block whose last access but one is the longest ago; blocks with one
// access go first, oldest first. Accesses of evicted blocks are remembered for a while.
// O'Neil, O'Neil, Weikum: The LRU-K page replacement algorithm (SIGMOD 1993).
#pragma once

#include <queue>
#include <tuple>

#include "batch_policy.hpp"
#include "blocks.hpp"

namespace kvext::eviction {

class Lru2 final : public BatchPolicy {
 public:
  static constexpr std::uint64_t ghosts_per_capacity = 8;

  explicit Lru2(std::uint64_t capacity) : BatchPolicy(capacity) {}

  bool contains(Key key) const override {
    const Slot slot = blocks_.find(key);
    return slot != no_slot && blocks_[slot].cached;
  }

  void remove(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot) return;
    if (blocks_[slot].cached) size_ -= blocks_[slot].size;
    else ghosts_.take(slot);
    blocks_.forget(slot);
  }

  void retire(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot != no_slot && blocks_[slot].cached) become_ghost(slot);
  }

 protected:
  bool touch(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot || !blocks_[slot].cached) return false;
    note(slot);
    return true;
  }

  void insert(Key key, std::uint32_t size) override {
    Slot slot = blocks_.find(key);
    if (slot == no_slot) slot = blocks_.add(key);
    else ghosts_.take(slot);
    blocks_[slot].cached = true;
    blocks_[slot].size = size;
    size_ += size;
    note(slot);
  }

  bool evict(Victims& victims, std::uint64_t spared) override {
    bool found = false;
    std::vector<Candidate> passed_over;
    while (!found && !candidates_.empty()) {
      const Candidate candidate = candidates_.top();
      candidates_.pop();
      if (!current(candidate)) continue;
      if (candidate.last.request == spared) {
        passed_over.push_back(candidate);
        continue;
      }
      victims.push_back(candidate.key);
      become_ghost(blocks_.find(candidate.key));
      found = true;
    }
    for (const Candidate& candidate : passed_over) candidates_.push(candidate);
    return found;
  }

  void trim_history() override { trim_ghosts(); }

 private:
  // When: the request, and within one request the tail is older than the head.
  struct Tick {
    std::uint64_t request = 0;
    std::uint64_t height = 0;
    auto operator<=>(const Tick&) const = default;
  };
  struct Block : Linked {
    Tick last, last_but_one;
    bool cached = false;
  };
  struct Candidate {
    Tick last_but_one, last;
    Key key;
    // The heap has its greatest on top, and the victim shall be there.
    bool operator<(const Candidate& other) const {
      return std::tie(last_but_one, last, key) > std::tie(other.last_but_one, other.last, other.key);
    }
  };

  void note(Slot slot) {
    Block& block = blocks_[slot];
    block.last_but_one = block.last;
    block.last = {request_, ~std::uint64_t{depth_}};
    candidates_.push({block.last_but_one, block.last, block.key});
    if (candidates_.size() > 64 + 4 * blocks_.count()) rebuild();
  }

  bool current(const Candidate& candidate) const {
    const Slot slot = blocks_.find(candidate.key);
    return slot != no_slot && blocks_[slot].cached && blocks_[slot].last == candidate.last;
  }

  // Candidates outdated by a later access stay in the heap until they come to its top.
  void rebuild() {
    std::vector<Candidate> kept;
    for (; !candidates_.empty(); candidates_.pop())
      if (current(candidates_.top())) kept.push_back(candidates_.top());
    candidates_ = std::priority_queue<Candidate>{std::less<Candidate>{}, std::move(kept)};
  }

  void become_ghost(Slot slot) {
    blocks_[slot].cached = false;
    size_ -= blocks_[slot].size;
    ghosts_.push(slot);
    trim_ghosts();
  }

  void trim_ghosts() {
    while (ghosts_.size() > times_capacity(ghosts_per_capacity))
      blocks_.forget(ghosts_.take_oldest());
  }

  Blocks<Block> blocks_;
  Queue<Block> ghosts_{blocks_};
  std::priority_queue<Candidate> candidates_;
};

}  // namespace kvext::eviction
