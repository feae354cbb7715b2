// S3-FIFO: new blocks wait in a small queue and reach the main one if they are asked for again;
// a block that comes back soon after it left the small queue enters the main one at once.
// Yang et al.: FIFO queues are all you need for cache eviction (SOSP 2023).
#pragma once

#include <algorithm>

#include "batch_policy.hpp"
#include "blocks.hpp"

namespace kvext::eviction {

class S3Fifo final : public BatchPolicy {
 public:
  static constexpr std::uint64_t small_share = 10;  // the small queue has a tenth
  static constexpr std::uint8_t most_uses = 3;

  explicit S3Fifo(std::uint64_t capacity) : BatchPolicy(capacity) {}

  bool contains(Key key) const override {
    const Slot slot = blocks_.find(key);
    return slot != no_slot && blocks_[slot].place != Place::ghost;
  }

  void remove(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot) return;
    queue(blocks_[slot].place).take(slot);
    if (blocks_[slot].place != Place::ghost) size_ -= blocks_[slot].size;
    blocks_.forget(slot);
  }

 protected:
  bool touch(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot || blocks_[slot].place == Place::ghost) return false;
    Block& block = blocks_[slot];
    block.uses = std::min<std::uint8_t>(block.uses + 1, most_uses);
    block.request = request_;
    return true;
  }

  void insert(Key key, std::uint32_t size) override {
    Slot slot = blocks_.find(key);
    const bool returns = slot != no_slot;
    if (returns) ghosts_.take(slot);
    else slot = blocks_.add(key);
    Block& block = blocks_[slot];
    block.uses = 0;
    block.request = request_;
    block.size = size;
    size_ += size;
    put(slot, returns ? Place::main : Place::small);
  }

  bool evict(Victims& victims, std::uint64_t spared) override {
    const std::uint64_t small_size = std::max<std::uint64_t>(1, capacity_ / small_share);
    if (small_.size() >= small_size || main_.empty())
      return from_small(victims, spared) || from_main(victims, spared);
    return from_main(victims, spared) || from_small(victims, spared);
  }
  void trim_history() override { trim_ghosts(); }

 private:
  enum class Place : std::uint8_t { small, main, ghost };
  struct Block : Linked {
    std::uint64_t request = 0;
    std::uint8_t uses = 0;
    Place place = Place::small;
  };

  Queue<Block>& queue(Place place) {
    return place == Place::small ? small_ : place == Place::main ? main_ : ghosts_;
  }

  void put(Slot slot, Place place) {
    blocks_[slot].place = place;
    queue(place).push(slot);
  }

  bool from_small(Victims& victims, std::uint64_t spared) {
    std::uint64_t unseen = small_.size();
    while (unseen > 0 && !small_.empty()) {
      const Slot slot = small_.take_oldest();
      Block& block = blocks_[slot];
      unseen -= std::min<std::uint64_t>(unseen, block.size);
      if (block.uses > 0) {
        block.uses = 0;
        put(slot, Place::main);
      } else if (block.request == spared) {
        put(slot, Place::small);
      } else {
        victims.push_back(block.key);
        size_ -= block.size;
        put(slot, Place::ghost);
        trim_ghosts();
        return true;
      }
    }
    return false;
  }

  bool from_main(Victims& victims, std::uint64_t spared) {
    std::uint64_t unseen = (most_uses + 1) * main_.size();
    while (unseen > 0 && !main_.empty()) {
      const Slot slot = main_.take_oldest();
      Block& block = blocks_[slot];
      unseen -= std::min<std::uint64_t>(unseen, block.size);
      if (block.request == spared) {
        main_.push(slot);
      } else if (block.uses > 0) {
        --block.uses;
        main_.push(slot);
      } else {
        victims.push_back(block.key);
        size_ -= block.size;
        blocks_.forget(slot);
        return true;
      }
    }
    return false;
  }

  void trim_ghosts() {
    while (ghosts_.size() > capacity_ - capacity_ / small_share)
      blocks_.forget(ghosts_.take_oldest());
  }

  Blocks<Block> blocks_;
  Queue<Block> small_{blocks_}, main_{blocks_}, ghosts_{blocks_};
};

}  // namespace kvext::eviction
