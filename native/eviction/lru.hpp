// Least recently used. Touched from tail to head, as vLLM does, so that a prompt's tail goes first.
#pragma once

#include "blocks.hpp"
#include "policy.hpp"

namespace kvext::eviction {

class Lru final : public Policy {
 public:
  explicit Lru(std::uint64_t capacity) : Policy(capacity) {}

  bool contains(Key key) const override { return blocks_.find(key) != no_slot; }

  void remove(Key key) override {
    if (const Slot slot = blocks_.find(key); slot != no_slot) drop(slot);
  }

 protected:
  std::size_t admit(const Access& access, Victims& victims) override {
    ++request_;
    std::size_t hits = access.keys.size();
    for (std::size_t i = access.keys.size(); i-- > 0;) {
      Slot slot = blocks_.find(access.keys[i]);
      if (slot == no_slot) {
        hits = i;
        slot = blocks_.add(access.keys[i]);
        blocks_[slot].size = access.block_size;
        blocks_[slot].inserted = request_;
        size_ += access.block_size;
      } else {
        if (blocks_[slot].inserted == request_) hits = i;  // twice in one prompt
        queue_.take(slot);
      }
      queue_.push(slot);
    }
    shrink(limit(), victims);
    return hits;
  }

  void shrink(std::uint64_t target, Victims& victims) override {
    while (size_ > target) {
      victims.push_back(blocks_[queue_.oldest()].key);
      drop(queue_.oldest());
    }
  }

 private:
  struct Block : Linked {
    std::uint64_t inserted = 0;  // by which request
  };

  void drop(Slot slot) {
    queue_.take(slot);
    size_ -= blocks_[slot].size;
    blocks_.forget(slot);
  }

  Blocks<Block> blocks_;
  Queue<Block> queue_{blocks_};
  std::uint64_t request_ = 0;  // counts from 1
};

}  // namespace kvext::eviction
