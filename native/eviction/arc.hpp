// ARC: recency and frequency share the cache; ghosts of both say which of them deserves more.
// Megiddo, Modha: ARC, a self-tuning, low overhead replacement cache (FAST 2003). A request makes
// room for all its missing blocks before their ghosts move the target.
#pragma once

#include <algorithm>

#include "batch_policy.hpp"
#include "blocks.hpp"

namespace kvext::eviction {

class Arc final : public BatchPolicy {
 public:
  explicit Arc(std::uint64_t capacity) : BatchPolicy(capacity) {}

  bool contains(Key key) const override {
    const Slot slot = blocks_.find(key);
    return slot != no_slot && cached(slot);
  }

  void remove(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot) return;
    if (cached(slot)) size_ -= blocks_[slot].size;
    queue(slot).take(slot);
    blocks_.forget(slot);
  }

 protected:
  bool touch(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot || !cached(slot)) return false;
    blocks_[slot].request = request_;
    move(slot, Place::frequent);
    return true;
  }

  void insert(Key key, std::uint32_t size) override {
    Slot slot = blocks_.find(key);
    if (slot == no_slot) {
      slot = blocks_.add(key);
      blocks_[slot].size = size;
      blocks_[slot].place = Place::recent;
      recent_.push(slot);
    } else {
      adapt(blocks_[slot].place, size);
      queue(slot).take(slot);
      blocks_[slot].size = size;
      blocks_[slot].place = Place::frequent;
      frequent_.push(slot);
    }
    blocks_[slot].request = request_;
    size_ += size;
    trim_ghosts();
  }

  bool evict(Victims& victims, std::uint64_t spared) override {
    if (recent_.size() > target_ || frequent_.empty())
      return from(recent_, victims, spared) || from(frequent_, victims, spared);
    return from(frequent_, victims, spared) || from(recent_, victims, spared);
  }

  void trim_history() override {
    target_ = std::min(target_, static_cast<double>(capacity_));
    trim_ghosts();
  }

 private:
  enum class Place : std::uint8_t { recent, frequent, recent_ghost, frequent_ghost };
  struct Block : Linked {
    std::uint64_t request = 0;
    Place place = Place::recent;
  };

  bool cached(Slot slot) const { return blocks_[slot].place <= Place::frequent; }

  Queue<Block>& queue(Slot slot) {
    switch (blocks_[slot].place) {
      case Place::recent: return recent_;
      case Place::frequent: return frequent_;
      case Place::recent_ghost: return recent_ghosts_;
      default: return frequent_ghosts_;
    }
  }

  void move(Slot slot, Place place) {
    queue(slot).take(slot);
    blocks_[slot].place = place;
    queue(slot).push(slot);
  }

  void adapt(Place ghost, std::uint32_t size) {
    const double recent = std::max<double>(1, recent_ghosts_.size());
    const double frequent = std::max<double>(1, frequent_ghosts_.size());
    if (ghost == Place::recent_ghost)
      target_ = std::min<double>(capacity_, target_ + size * std::max(1.0, frequent / recent));
    else
      target_ = std::max(0.0, target_ - size * std::max(1.0, recent / frequent));
  }

  bool from(Queue<Block>& queue, Victims& victims, std::uint64_t spared) {
    for (Slot slot = queue.oldest(); slot != no_slot; slot = blocks_[slot].newer) {
      if (blocks_[slot].request == spared) continue;
      victims.push_back(blocks_[slot].key);
      size_ -= blocks_[slot].size;
      const bool recent = blocks_[slot].place == Place::recent;
      move(slot, recent ? Place::recent_ghost : Place::frequent_ghost);
      trim_ghosts();
      return true;
    }
    return false;
  }

  void trim_ghosts() {
    while (recent_.size() + recent_ghosts_.size() > capacity_ && !recent_ghosts_.empty())
      blocks_.forget(recent_ghosts_.take_oldest());
    while (size_ + recent_ghosts_.size() + frequent_ghosts_.size() > times_capacity(2) &&
           !frequent_ghosts_.empty())
      blocks_.forget(frequent_ghosts_.take_oldest());
  }

  Blocks<Block> blocks_;
  Queue<Block> recent_{blocks_}, frequent_{blocks_}, recent_ghosts_{blocks_},
      frequent_ghosts_{blocks_};
  double target_ = 0;  // of `recent_`, in units of the capacity
};

}  // namespace kvext::eviction
