#include "vigil.hpp"

#include <algorithm>

#include "atomics.hpp"

namespace kvext {
namespace {

constexpr u64 kLongestInterval_ms = 1000;
constexpr u64 kLooksALease = 4;

}  // namespace

Vigil::Vigil(Region& region, Membership& self, std::function<bool()> may_beat)
    : region_(region), self_(self), may_beat_(std::move(may_beat)) {
  const u64 lease = lease_ms(region);
  const u64 interval = std::clamp<u64>(lease / kLooksALease, 1, kLongestInterval_ms);
  interval_ = std::chrono::milliseconds(interval);
  looks_a_lease_ = static_cast<u32>((lease + interval - 1) / interval) + 1;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Vigil::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (may_beat_()) self_.beat();
    look();
    wake_.wait_for(lock, stop, interval_, [] { return false; });
  }
}

void Vigil::look() {
  for (u32 row = 0; row < kMaxProcesses; ++row) {
    const Process& p = region_.process(row);
    const u64 epoch = load_acquire(p.epoch), beat = load_acquire(p.beat);
    Seen& seen = seen_[row];
    if (epoch == seen.epoch && beat == seen.beat)
      ++seen.looks_in_vain;
    else
      seen = {epoch, beat, 0};
  }
}

bool Vigil::hung(u32 row, u64 epoch) const {
  const std::lock_guard lock(mutex_);
  const Seen& seen = seen_[row];
  return seen.epoch == epoch && seen.looks_in_vain >= looks_a_lease_ && load_acquire(region_.process(row).beat) == seen.beat;
}

}  // namespace kvext
