// The part of Pool that people look through: statistics, namespaces, clearing, closing.
#include <algorithm>
#include <cstdio>
#include <new>

#include "fault.hpp"
#include "pool.hpp"

namespace kvext {
namespace {

constexpr u64 kClearRun = 4096;  // extents visited under one hold of the lock

std::string hex(const u8* bytes, u64 n) {
  std::string out;
  char digits[3];
  for (u64 i = 0; i < n; ++i) {
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    out += digits;
  }
  return out;
}

template <std::size_t n> std::string text(const char (&label)[n]) { return std::string(label, ::strnlen(label, n)); }

using Shared = std::shared_lock<std::shared_mutex>;

}  // namespace

u64 Pool::extent_bytes() const { return region_ ? region_->geometry().extent_bytes : 0; }
u64 Pool::capacity_bytes() const { return region_ ? region_->geometry().extent_bytes * region_->geometry().num_extents : 0; }
std::string Pool::uuid_hex() const {
  require_open();
  return hex(region_->super().uuid, sizeof region_->super().uuid);
}

PoolStat Pool::stat() {
  const std::unique_lock<std::shared_mutex> guard(in_use_);
  require_open();
  observe();
  PoolStat out{};
  const Superblock& super = region_->super();
  out.region_bytes = super.region_bytes;
  out.bypassed = is_bypassed();
  for (u32 c = 0; c < kNumCounters; ++c) out.counters.push_back(load_relaxed(super.counters[c]));
  if (!space_) return out;
  const Geometry& g = region_->geometry();
  out.extent_bytes = g.extent_bytes;
  out.num_extents = g.num_extents;
  out.num_free = load_relaxed(super.num_free);
  for (u64 at = 0; at < g.num_slots; ++at) {
    const Slot& s = region_->slot(at);
    const SlotState state = state_of(load_acquire(s.state));
    out.num_reserved += state == SlotState::reserved;
    out.num_quarantined += state == SlotState::quarantined;
    if (state != SlotState::committed) continue;
    ++out.num_committed;
    out.committed_bytes += load_relaxed(s.length);
  }
  for (u64 e = 0; e < g.num_extents; ++e) out.num_pinned += space_->pinned(e);
  const u64 now = boottime_ms();
  for (u32 i = 0; i < kMaxProcesses; ++i) {
    const Process& p = region_->process(i);
    const bool own = self_ && self_->index() == i;
    if (load_acquire(p.epoch) == 0 || !(own || process_alive(*region_, i))) continue;
    u64 pins = 0;
    for (u64 e = 0; e < g.num_extents; ++e) pins += load_relaxed(region_->pin(i, e));
    const u64 beat = load_relaxed(p.heartbeat_ms);
    out.processes.push_back({i, p.pid, p.pid_namespace, beat < now ? now - beat : 0, pins, text(p.label)});
  }
  return out;
}

void Pool::label_namespace(std::span<const u8, 32> digest, const std::string& label) {
  const Shared guard(in_use_);
  require_member();
  const Held held = lock_or_throw();
  const u16 id = space_->name_space(digest, label.c_str());
  if (id == kUnknownNamespace) return;
  NamespaceEntry& entry = region_->name_space(id);
  std::memset(entry.label, 0, sizeof entry.label);
  std::memcpy(entry.label, label.data(), std::min(label.size(), sizeof entry.label - 1));
}

std::vector<NamespaceUse> Pool::namespaces() {
  const std::unique_lock<std::shared_mutex> guard(in_use_);
  require_open();
  observe();
  std::vector<NamespaceUse> out;
  if (!space_) return out;
  const Held held = lock_or_throw();
  if (!space_) return out;
  for (u32 i = 0; i < kMaxNamespaces; ++i) {
    const NamespaceEntry& entry = region_->name_space(i);
    if (entry.used) out.push_back({hex(entry.digest, 32), text(entry.label), entry.num_extents});
  }
  return out;
}

std::pair<u64, u64> Pool::clear(const u8* name_space) {
  const std::unique_lock<std::shared_mutex> guard(in_use_);
  require_open();
  observe();
  u64 dropped = 0, kept = 0;
  for (u64 from = 0; space_ && from < region_->geometry().num_extents; from += kClearRun) {
    const Held held = lock_or_throw();
    if (!space_) break;
    if (from == 0) space_->reap();
    for (u64 e = from; e < std::min(region_->geometry().num_extents, from + kClearRun); ++e) {
      const Extent& extent = region_->extent(e);
      if (extent.owner_epoch == 0) continue;  // free
      const bool wanted = !name_space || (extent.name_space < kMaxNamespaces &&
                                          std::memcmp(region_->name_space(extent.name_space).digest, name_space, 32) == 0);
      if (!wanted) continue;
      space_->drop(e) ? ++dropped : ++kept;
    }
  }
  count(cleared, dropped);
  return {dropped, kept};
}

u64 Pool::reap() {
  const Shared guard(in_use_);
  require_member();
  const Held held = lock_or_throw();
  return space_->reap();
}

void Pool::set_bypass(bool on) {
  const Shared guard(in_use_);
  require_open();
  store_relaxed(region_->super().bypass, u64{on});
}

bool Pool::bypassed() const {
  const Shared guard(in_use_);
  return region_ && is_bypassed();
}

void Pool::close() {
  if (!region_) return;  // before the lock: a forked child may inherit it taken
  const std::unique_lock<std::shared_mutex> guard(in_use_);
  if (!region_) return;
  if (self_) {
    try {
      if (const auto held = lock(lock_wait_)) {
        space_->abandon_own();
        self_->leave();
      }
    } catch (const std::exception&) {
    }
    // Without the lock our row stays behind like a dead process's: closing the file drops its sign of
    // life, and the next reaper does the rest.
  }
  prefault_.reset();
  space_.reset();
  index_.reset();
  self_.reset();
  allocation_.reset();
  region_.reset();
}

void Pool::abandon_after_fork() {
  // The child shares our open file description: closing its copy of the descriptor leaves the parent's
  // locks alone, unlocking would not. The thread of prefault_ does not exist here: leak its handle.
  static_cast<void>(prefault_.release());
  new (&in_use_) std::shared_mutex;  // a thread that does not exist here may have held it
  space_.reset();
  index_.reset();
  self_.reset();
  allocation_.reset();
  region_.reset();
}

}  // namespace kvext
