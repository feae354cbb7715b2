// Evicts the leaf of the prefix tree that promises the fewest hits per time of residence.
//
// Each access makes records of runs of equal blocks. When a record's time in a bin of age is over,
// the model learns which share of the run was hit in it. A block's worth is the Gittins index of
// its record at its age. Evicted blocks are remembered, so that the model learns from them, too.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>

#include "blocks.hpp"
#include "hazard_model.hpp"
#include "policy.hpp"
#include "random.hpp"
#include "runs.hpp"

namespace kvext::eviction {

enum class Currency : std::uint8_t { hits = 0, seconds = 1 };

template <class Model>
class Hazard final : public Policy {
 public:
  static constexpr std::uint64_t ghosts_per_capacity = 8;
  static constexpr std::uint64_t least_ghosts = 16384;
  static constexpr int sample_size = 64;

  Hazard(std::uint64_t capacity, std::uint64_t seed, Currency currency)
      : Policy(capacity), random_(seed), currency_(currency) {}

  bool contains(Key key) const override {
    const Slot slot = blocks_.find(key);
    return slot != no_slot && blocks_[slot].cached;
  }

  void remove(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot == no_slot) return;
    if (blocks_[slot].cached) take_out(slot);
    else ghosts_.take(slot);
    forget(slot);
  }

  void retire(Key key) override {
    const Slot slot = blocks_.find(key);
    if (slot != no_slot && blocks_[slot].cached) become_ghost(slot);
  }

 protected:
  std::size_t admit(const Access& access, Victims& victims) override {
    const std::size_t hits = find_path(access);
    runs_.learn(now_ms_);
    record(access);
    for (const Slot slot : path_)
      if (!blocks_[slot].cached) take_in(slot, access);
    if (size_ > limit()) {
      bypass_ = path_.size();
      shrink(limit(), victims);
      bypass_ = 0;
    }
    trim_history();
    return hits;
  }

  // Of a random sample of leaves the one of least worth; then its ancestors, while they have
  // become leaves themselves and are worth no more than the sample's second.
  void shrink(std::uint64_t target, Victims& victims) override {
    while (size_ > target && !leaves_.empty()) {
      const Choice choice = choose();
      for (Slot slot = choice.slot; slot != no_slot;) {
        const Slot parent = parent_of(slot);
        victims.push_back(blocks_[slot].key);
        become_ghost(slot);
        const bool climbs = size_ > target && parent != no_slot && is_leaf(parent) &&
                            worth(leaf(parent)) <= choice.second_worth;
        slot = climbs ? parent : no_slot;
      }
    }
  }

  void trim_history() override {
    const std::uint64_t most = std::max(least_ghosts, times_capacity(ghosts_per_capacity));
    while (ghosts_.size() > most) forget(ghosts_.take_oldest());
  }

 private:
  static constexpr std::uint32_t no_leaf = UINT32_MAX;

  struct Block : Linked {
    std::uint64_t id = 0;         // of this life of the slot
    std::uint64_t parent_id = 0;  // 0: no parent
    Slot parent = no_slot;
    RunIndex run = no_run;
    std::uint32_t cached_children = 0;
    std::uint32_t children = 0;  // that ever followed it
    std::uint32_t count = 0;     // accesses
    std::uint32_t leaf_at = no_leaf;
    std::uint64_t request = 0;  // the last that touched it
    double value = 1;           // of a hit
    bool cached = false;
    bool ghost = false;
  };

  // What a choice reads of a leaf, in one place.
  struct Leaf {
    Slot slot;
    RunIndex run;
    std::uint32_t size;
    double value;
  };

  struct Choice {
    Slot slot = no_slot;
    double worth = INFINITY;
    double second_worth = INFINITY;
  };

  // Fills `path_` with the prompt's blocks, unknown ones made, and notes what the hits teach.
  std::size_t find_path(const Access& access) {
    ++request_;
    path_.clear();
    std::size_t hits = 0, known = 0;
    for (std::size_t i = 0; i < access.keys.size(); ++i) {
      Slot slot = blocks_.find(access.keys[i]);
      if (slot == no_slot) {
        slot = blocks_.add(access.keys[i]);
        blocks_[slot].id = ++last_id_;
        blocks_[slot].size = access.block_size;
      } else {
        known += known == i;
        hits += hits == i && blocks_[slot].cached;
        if (blocks_[slot].request == request_) continue;  // twice in one prompt
        if (blocks_[slot].run != no_run) runs_.hit(blocks_[slot].run, now_ms_);
      }
      blocks_[slot].request = request_;
      follow_parent(slot, path_.empty() ? no_slot : path_.back());
      path_.push_back(slot);
    }
    num_known_ = std::min(known, path_.size());
    return hits;
  }

  void follow_parent(Slot slot, Slot parent) {
    Block& block = blocks_[slot];
    const std::uint64_t parent_id = parent == no_slot ? 0 : blocks_[parent].id;
    if (block.parent_id == parent_id && block.parent == parent) return;
    if (block.cached) unlink(slot);
    block.parent = parent;
    block.parent_id = parent_id;
    if (parent == no_slot) return;
    ++blocks_[parent].children;
    if (block.cached) link(slot);
  }

  // One new record for each run of blocks that have the same past.
  void record(const Access& access) {
    const Prompt prompt = Prompt::of(access, path_.size(), num_known_, conversation(), now_ms_);
    RunIndex run = no_run;
    Past past;
    for (std::size_t i = 0; i < path_.size(); ++i) {
      Block& block = blocks_[path_[i]];
      ++block.count;
      const bool tail = access.partial_tail && i + 1 == path_.size();
      const Past own{block.run, block.count, children_bucket(block.children), tail};
      if (run == no_run || own != past) {
        const std::int64_t own_gap_ms =
            block.run == no_run ? -1 : now_ms_ - runs_[block.run].at_ms;
        run = runs_.start(prompt, own, i, own_gap_ms, now_ms_);
        past = own;
      }
      if (block.run != no_run) runs_.leave(block.run);
      block.run = run;
      runs_.join(run);
      if (currency_ == Currency::seconds)
        block.value = access.first_cost_s + static_cast<double>(i) * access.cost_step_s;
      if (block.leaf_at != no_leaf) leaves_[block.leaf_at] = leaf(path_[i]);
    }
  }

  // The record of the longest known prefix, if this prompt goes on where that one ended.
  const Record* conversation() const {
    if (num_known_ < 2) return nullptr;
    const RunIndex run = blocks_[path_[num_known_ - 1]].run;
    if (run == no_run) return nullptr;
    const Record& last = runs_[run];
    // The last two blocks may differ: the tail is partial, and an answer is not always sent back.
    return num_known_ + 2 >= last.prompt_blocks ? &last : nullptr;
  }

  void take_in(Slot slot, const Access& access) {
    Block& block = blocks_[slot];
    if (block.ghost) ghosts_.take(slot);
    block.ghost = false;
    block.cached = true;
    block.size = access.block_size;
    size_ += block.size;
    if (block.cached_children == 0) add_leaf(slot);
    link(slot);
  }

  void become_ghost(Slot slot) {
    take_out(slot);
    blocks_[slot].ghost = true;
    ghosts_.push(slot);
  }

  void take_out(Slot slot) {
    Block& block = blocks_[slot];
    if (block.leaf_at != no_leaf) drop_leaf(slot);
    unlink(slot);
    block.cached = false;
    size_ -= block.size;
  }

  void forget(Slot slot) {
    if (blocks_[slot].run != no_run) runs_.leave(blocks_[slot].run);
    blocks_[slot].id = 0;
    blocks_.forget(slot);
  }

  Slot parent_of(Slot slot) const {
    const Block& block = blocks_[slot];
    const bool alive = block.parent_id != 0 && blocks_[block.parent].id == block.parent_id;
    return alive ? block.parent : no_slot;
  }

  // A cached block counts with its parent.
  void link(Slot slot) {
    const Slot parent = parent_of(slot);
    if (parent != no_slot && blocks_[parent].cached_children++ == 0 &&
        blocks_[parent].leaf_at != no_leaf)
      drop_leaf(parent);
  }

  void unlink(Slot slot) {
    const Slot parent = parent_of(slot);
    if (parent != no_slot && --blocks_[parent].cached_children == 0 && blocks_[parent].cached)
      add_leaf(parent);
  }

  bool is_leaf(Slot slot) const { return blocks_[slot].leaf_at != no_leaf; }

  void add_leaf(Slot slot) {
    blocks_[slot].leaf_at = static_cast<std::uint32_t>(leaves_.size());
    leaves_.push_back(leaf(slot));
  }

  void drop_leaf(Slot slot) {
    const std::uint32_t at = blocks_[slot].leaf_at;
    leaves_[at] = leaves_.back();
    blocks_[leaves_[at].slot].leaf_at = at;
    leaves_.pop_back();
    blocks_[slot].leaf_at = no_leaf;
  }

  Leaf leaf(Slot slot) const {
    const Block& block = blocks_[slot];
    return {slot, block.run, block.size, block.value};
  }

  double worth(const Leaf& leaf) {
    return runs_.index(leaf.run, now_ms_) * leaf.value / leaf.size;
  }

  Choice choose() {
    Choice choice;
    const auto consider = [&](const Leaf& leaf) {
      if (leaf.slot == choice.slot) return;
      const double its_worth = worth(leaf);
      if (choice.slot == no_slot || its_worth < choice.worth) {
        choice = {leaf.slot, its_worth, choice.worth};
      } else if (its_worth < choice.second_worth) {
        choice.second_worth = its_worth;
      }
    };
    // What the request brings competes with the rest: it need not be stored at all.
    while (bypass_ > 0 && !blocks_[path_[bypass_ - 1]].cached) --bypass_;
    if (bypass_ > 0 && is_leaf(path_[bypass_ - 1])) consider(leaf(path_[bypass_ - 1]));
    for (int i = 0; i < sample_size; ++i) consider(leaves_[random_.below(leaves_.size())]);
    return choice;
  }

  Blocks<Block> blocks_;
  Queue<Block> ghosts_{blocks_};
  Runs<Model> runs_;
  std::vector<Leaf> leaves_;
  Random random_;
  Currency currency_;

  // Of the request at hand:
  std::uint64_t request_ = 0;
  std::uint64_t last_id_ = 0;
  std::vector<Slot> path_;
  std::size_t num_known_ = 0;
  std::size_t bypass_ = 0;  // one past the deepest of its blocks that may still be cached
};

}  // namespace kvext::eviction
