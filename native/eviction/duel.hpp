// The insurance: three policies that know the same cache, and for each of them a shadow, a cache of
// metadata alone that it governs by itself. The policy whose shadow hits most names the victims.
//
// The learner leads until another has been better for a while: where they are equal, it stays.
// A large cache's shadows see only a sample of the conversations, and are as much smaller.
#pragma once

#include <array>
#include <cmath>
#include <memory>

#include "blocks.hpp"
#include "hazard.hpp"
#include "lru.hpp"
#include "lru2.hpp"
#include "policy.hpp"
#include "random.hpp"

namespace kvext::eviction {

class Duel final : public Policy {
 public:
  static constexpr std::uint64_t usual_shadow = 1 << 13;

  Duel(std::uint64_t capacity, std::uint64_t seed, Currency currency,
       std::uint64_t largest_shadow = usual_shadow)
      : Policy(capacity), currency_(currency), largest_shadow_(largest_shadow) {
    set_sampling();
    actors_ = members(capacity, seed, currency);
    shadows_ = members(capacity / one_of_, seed, currency);
    for (std::size_t i = 1; i < num_members; ++i) actors_[i]->follow(true);
  }

  bool contains(Key key) const override { return actors_[0]->contains(key); }

  void remove(Key key) override {
    for (auto& actor : actors_) actor->remove(key);
    for (auto& shadow : shadows_) shadow->remove(key);
    size_ = actors_[0]->size();
  }

 protected:
  std::size_t admit(const Access& access, Victims& victims) override {
    if (block_size_ == 0) measure(access.block_size);
    if (sampled(access)) judge(access);
    const std::size_t first_victim = victims.size();
    const std::size_t hits = actors_[leader_]->access(access, victims);
    Victims none;
    for (std::size_t i = 0; i < num_members; ++i)
      if (i != leader_) actors_[i]->access(access, none);
    tell(victims, first_victim);
    return hits;
  }

  void shrink(std::uint64_t target, Victims& victims) override {
    const std::size_t first_victim = victims.size();
    actors_[leader_]->evict(size_ > target ? size_ - target : 0, victims);
    tell(victims, first_victim);
  }

  void trim_history() override {
    set_sampling();
    Victims victims;
    for (auto& shadow : shadows_) shadow->resize(capacity_ / one_of_, victims);
    for (std::size_t i = 0; i < num_members; ++i) actors_[i]->set_capacity(capacity_);
  }

 private:
  static constexpr std::size_t num_members = 3;
  using Members = std::array<std::unique_ptr<Policy>, num_members>;

  static Members members(std::uint64_t capacity, std::uint64_t seed, Currency currency) {
    return {std::make_unique<Hazard<LogitModel>>(capacity, seed, currency),
            std::make_unique<Lru>(capacity), std::make_unique<Lru2>(capacity)};
  }

  // What the capacity means in blocks shows with the first of them.
  void measure(std::uint32_t block_size) {
    block_size_ = block_size;
    trim_history();
  }

  std::uint64_t in_blocks(std::uint64_t size) const { return size / std::max(block_size_, 1u); }

  void set_sampling() {
    one_of_ = 1;
    while (in_blocks(capacity_) / one_of_ > largest_shadow_) one_of_ *= 2;
  }

  // Whole conversations are in the sample or not: a request is if its prompt holds what was new at
  // the end of one that is.
  bool sampled(const Access& access) {
    if (one_of_ == 1) return true;
    bool chosen = mixed(access.keys.back()) % one_of_ == 0;
    for (std::size_t i = access.keys.size(); !chosen && i-- > 0;)
      chosen = ends_.find(access.keys[i]) != no_slot;
    const std::size_t full = access.keys.size() - access.partial_tail;
    if (chosen && full > 0 && !contains(access.keys[full - 1])) remember(access.keys[full - 1]);
    return chosen;
  }

  void remember(Key end) {
    if (ends_.find(end) == no_slot) end_queue_.push(ends_.add(end));
    while (ends_.count() > largest_shadow_) ends_.forget(end_queue_.take_oldest());
  }

  void judge(const Access& access) {
    std::array<double, num_members> hits;
    Victims none;
    for (std::size_t i = 0; i < num_members; ++i)
      hits[i] = value(access, shadows_[i]->access(access, none));
    // A few turnovers of the cache: long enough to tell policies apart, short enough to follow.
    const double memory = 4.0 * static_cast<double>(in_blocks(shadows_[0]->capacity())) + 10000;
    const double fades = std::exp(-static_cast<double>(access.keys.size()) / memory);
    for (std::size_t i = 0; i < num_members; ++i) {
      const double lead = hits[i] - hits[leader_];
      lead_[i] = lead_[i] * fades + lead;
      variance_[i] = variance_[i] * fades * fades + lead * lead;
    }
    for (std::size_t i = 0; i < num_members; ++i)
      if (lead_[i] > margin * memory + deviations * std::sqrt(variance_[i])) return make_leader(i);
  }

  // Of the first blocks of a prompt, in blocks of average cost.
  double value(const Access& access, std::size_t num_blocks) const {
    const auto cost = [&](std::size_t blocks) {
      const auto n = static_cast<double>(blocks);
      return n * access.first_cost_s + n * (n - 1) / 2 * access.cost_step_s;
    };
    const double whole = cost(access.keys.size());
    if (currency_ == Currency::hits || !(whole > 0)) return static_cast<double>(num_blocks);
    return cost(num_blocks) / whole * static_cast<double>(access.keys.size());
  }

  void make_leader(std::size_t member) {
    actors_[leader_]->follow(true);
    leader_ = member;
    actors_[leader_]->follow(false);
    lead_.fill(0);
    variance_.fill(0);
  }

  // The followers hear of the leader's victims.
  void tell(const Victims& victims, std::size_t first) {
    for (std::size_t i = 0; i < num_members; ++i)
      if (i != leader_)
        for (std::size_t v = first; v < victims.size(); ++v) actors_[i]->retire(victims[v]);
    size_ = actors_[leader_]->size();
  }

  // By how much a shadow must be ahead of the leader's: a share of the accesses, and more than
  // chance would give it.
  static constexpr double margin = 0.002;
  static constexpr double deviations = 2;

  Currency currency_;
  std::uint64_t largest_shadow_;  // in blocks
  std::uint32_t block_size_ = 0;  // of the first access; 0 before
  std::uint64_t one_of_ = 1;
  Members actors_, shadows_;
  Blocks<Linked> ends_;  // of the sampled conversations
  Queue<Linked> end_queue_{ends_};
  std::array<double, num_members> lead_{}, variance_{};  // over the leader, in hits
  std::size_t leader_ = 0;
};

}  // namespace kvext::eviction
