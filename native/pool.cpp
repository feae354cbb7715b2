// A handle from attach to detach: membership, who may look, and the allocation lock.
#include "pool.hpp"

#include <algorithm>
#include <ctime>
#include <new>

#include "fault.hpp"
#include "steps.hpp"

namespace kvext {
namespace {

// Laying out the tables of a large pool takes longer than any step inside it.
constexpr Seconds kAttachWait{30.0};

}  // namespace

u64 steady_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);  // every call asks; some milliseconds more or less do not matter
  return static_cast<u64>(t.tv_sec) * 1000 + static_cast<u64>(t.tv_nsec) / 1000000;
}

Pool::Pool(const std::string& path, std::optional<u64> extent_bytes, const std::string& label, Seconds lock_wait)
    : lock_wait_(lock_wait), label_(label), region_(std::make_unique<Region>(path)), allocation_(std::make_unique<AllocationLock>(*region_)) {
  if (extent_bytes) {
    enter(*extent_bytes);
  } else {
    observe();
  }
}

void Pool::use_tables() {
  region_->adopt_geometry();
  index_ = std::make_unique<Index>(*region_);
  space_ = std::make_unique<Space>(*region_, self_.get(), vigil_.get());
}

void Pool::enter(u64 extent_bytes) {
  Held held = lock_or_throw(std::max(lock_wait_, kAttachWait));
  step(Step::attach_locked);
  settle_boot();
  if (region_->formatted()) {
    use_tables();
    if (held.needs_recovery) space_->recover();
    space_->reap();
  } else if (anybody_alive()) {
    throw Fault("damaged", "its tables are marked as unwritten although processes use them; end these and remove the pool");
  }
  held.needs_recovery = false;
  settle_geometry(extent_bytes);
  claim_row();
  prefault_ = std::make_unique<Prefault>(region_->payload_base(), region_->payload_bytes());
  vigil_ = std::make_unique<Vigil>(*region_, *self_, [this] { return may_beat(); });
  use_tables();
}

void Pool::claim_row() {
  for (u32 i = 0; i < kMaxProcesses && !self_; ++i) {
    auto candidate = std::make_unique<Membership>(*region_, i);
    if (load_acquire(region_->process(i).epoch) == 0 && candidate->try_claim()) self_ = std::move(candidate);
  }
  if (!self_)
    throw Fault("crowded", std::to_string(kMaxProcesses) + " processes are attached, which is all it has room for; end some of them");
  step(Step::attach_claimed);
  use_tables();
  space_->forget_pins();  // that an earlier owner of this row may have left
  self_->enter(label_);
  step(Step::attach_entered);
}

// Who is only looking, or holds nothing, may be silent as long as it likes.
bool Pool::may_beat() const {
  return num_held_.load(std::memory_order_relaxed) == 0 ||
         steady_ms() - last_call_ms_.load(std::memory_order_relaxed) < kvext::lease_ms(*region_);
}

// Begins a call of a member. If others have fenced this process in between, it enters anew first.
Pool::Shared Pool::begin() {
  Shared guard(in_use_);
  require_member();
  called();
  if (self_->in_force()) return guard;
  guard.unlock();
  {
    const std::unique_lock<std::shared_mutex> all(in_use_);  // no copy of ours runs any more
    require_member();
    if (!self_->in_force()) readmit();
  }
  guard.lock();
  require_member();
  return guard;
}

Pool::Look Pool::look() {
  Look guard{Shared(in_use_), {}};
  require_open();
  if (self_) {
    called();
    return guard;
  }
  guard.with_others.unlock();
  guard.alone = std::unique_lock<std::shared_mutex>(in_use_);
  require_open();
  observe();
  return guard;
}

void Pool::readmit() {
  const auto held = lock(lock_wait_);
  if (!held) return;  // stays fenced: it finds nothing and stores nothing until the lock is free
  space_->abandon(self_->epoch());
  step(Step::readmit_abandoned);
  num_held_ = 0;
  self_->enter(label_);
  step(Step::readmit_entered);
}

void Pool::settle_boot() {
  // Locks do not survive a boot: who lives proves that the tables are of this one.
  if (!region_->from_another_boot() || anybody_alive()) return;
  for (u32 i = 0; i < kMaxProcesses; ++i) region_->process(i).epoch = 0;
  region_->unformat();
  region_->stamp_boot();
}

void Pool::settle_geometry(u64 extent_bytes) {
  if (!region_->formatted()) return region_->format(extent_bytes);
  const Geometry& g = region_->geometry();
  // An empty pool that nobody uses takes the shape of its next user.
  const bool idle = region_->super().num_free == g.num_extents && !anybody_alive();
  if (idle && plan_geometry(region_->super().region_bytes, extent_bytes).extent_bytes != g.extent_bytes) return region_->format(extent_bytes);
  if (extent_bytes <= g.extent_bytes) return;
  throw Fault("extent_size", "this engine's KV block has " + std::to_string(extent_bytes) + " bytes, the pool's extents hold " +
                                 std::to_string(g.extent_bytes) + "; give this engine a pool of its own name, or clear the pool");
}

bool Pool::anybody_alive() const {
  for (u32 i = 0; i < kMaxProcesses; ++i)
    if (process_alive(*region_, i)) return true;
  return false;
}

std::optional<AllocationLock::Held> Pool::lock(Seconds wait) {
  auto held = allocation_->acquire(self_ ? self_->index() + 1 : kMaxProcesses + 1, wait);
  if (!held) return held;
  if (!self_ && index_) observe();  // no format can happen from here on
  if (held->needs_recovery && space_) {
    space_->recover();
    held->needs_recovery = false;
  }
  if (self_ && space_) pay_owed();
  return held;
}

AllocationLock::Held Pool::lock_or_throw(Seconds wait) {
  auto held = lock(wait);
  if (!held) throw Fault("lock_timeout", "the pool's allocation lock was not free within " + std::to_string(wait.count()) + " s");
  return std::move(*held);
}

// An observer holds nothing that would keep an engine from giving an empty pool another shape.
void Pool::observe() {
  if (self_) return;
  if (region_->formatted()) return use_tables();
  space_.reset();
  index_.reset();
}

void Pool::require_open() const {
  if (!region_) throw Fault("detached", "this handle of the pool is closed");
}

void Pool::require_tables() const {
  require_open();
  if (!space_) throw Fault("unusable", "no engine has used it yet, so it holds nothing; start an engine first");
}

void Pool::require_member() const {
  require_tables();
  if (!self_) throw Fault("unusable", "this process only observes it; attach with extent_bytes to use it");
}

void Pool::close() {
  if (!region_) return;  // before the lock: a forked child may inherit it taken
  const std::unique_lock<std::shared_mutex> guard(in_use_);
  if (!region_) return;
  if (self_) {
    try {
      if (const auto held = lock(lock_wait_)) {
        swap_if(region_->super().agent_epoch, self_->epoch(), u64{0});
        space_->abandon(self_->epoch());
        step(Step::detach_abandoned);
        self_->leave();
        step(Step::detach_left);
      }
    } catch (const std::exception&) {
    }
    // Without the lock our row stays behind like a dead process's: closing the file drops its sign of
    // life, and the next reaper does the rest.
  }
  vigil_.reset();  // not before: whoever repairs what a death in the lock left asks it who hangs
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
  static_cast<void>(vigil_.release());
  new (&in_use_) std::shared_mutex;  // a thread that does not exist here may have held it
  space_.reset();
  index_.reset();
  self_.reset();
  allocation_.reset();
  region_.reset();
}

}  // namespace kvext
