#include "layered.hpp"

#include <unistd.h>

#include <exception>

#include "bytes.hpp"
#include "cores.hpp"
#include "record_hash.hpp"

namespace kvext {
namespace {

using Clock = std::chrono::steady_clock;

struct Copy {
  u64 index;  // of the block within the load
  Pool::OpenRecord record;
  RecordStream hash;
  const u8* next;
};

}  // namespace

void Pool::load_in_layers(const std::vector<BlockRef>& refs, const Pages& pages, const std::vector<u64>& blocks, std::vector<LoadOutcome>& outcomes, LayeredLoad& load) {
  const Shared guard = begin();
  const SteadyTime begun = Clock::now();
  outcomes.assign(refs.size(), LoadOutcome::stale);
  std::vector<Copy> copies;
  copies.reserve(refs.size());
  for (u64 i = 0; i < refs.size(); ++i)
    if (const auto record = open_record(refs[i], pages.record_bytes))
      copies.push_back({i, *record, RecordStream(record->key, record->shape, pages.record_bytes), record->bytes});
  u64 num_bytes = 0;
  for (std::size_t layer = 0; layer < pages.base.size(); ++layer) {
    const u64 size = pages.piece_bytes[layer];
    for (Copy& copy : copies) {
      if (load.is_cancelled()) return;
      scatter_piece(pages, layer, blocks[copy.index], copy.next);
      copy.hash.add(copy.next, size);
      copy.next += size;
    }
    stream_fence();
    num_bytes += size * copies.size();
    if (!load.publish(layer + 1, pace_.due(begun, num_bytes))) return;
  }
  for (Copy& copy : copies) outcomes[copy.index] = settle_record(refs[copy.index], copy.record, copy.hash.value());
  count_loads(outcomes.data(), outcomes.size());
}

LayeredLoad::LayeredLoad(Pool& pool, std::vector<BlockRef> refs, const Pages& pages, std::vector<u64> blocks)
    : process_(::getpid()), thread_([this, &pool, refs = std::move(refs), pages, blocks = std::move(blocks)] { run(pool, refs, pages, blocks); }) {}

LayeredLoad::~LayeredLoad() {
  if (::getpid() != process_) {
    thread_.detach();  // a forked child has no such thread
  } else {
    cancel();
    thread_.join();
  }
}

void LayeredLoad::run(Pool& pool, const std::vector<BlockRef>& refs, const Pages& pages, const std::vector<u64>& blocks) {
  const SteadyTime begun = Clock::now();
  std::vector<LoadOutcome> outcomes;
  try {
    roam();
    pool.load_in_layers(refs, pages, blocks, outcomes, *this);
  } catch (const std::exception&) {  // the pool was closed; no outcomes say so
    outcomes.clear();
  }
  end(std::move(outcomes), Seconds(Clock::now() - begun).count());
}

bool LayeredLoad::publish(std::size_t num_layers, SteadyTime due) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (due > Clock::now()) changed_.wait_until(lock, due, [&] { return cancelled_; });
  if (cancelled_) return false;
  store_release(num_ready_, static_cast<u64>(num_layers));
  changed_.notify_all();
  return true;
}

void LayeredLoad::end(std::vector<LoadOutcome> outcomes, double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!cancelled_) outcomes_ = std::move(outcomes);
  seconds_ = seconds;
  ended_ = true;
  changed_.notify_all();
}

bool LayeredLoad::wait(std::size_t num_layers, Seconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, wait, [&] { return ended_ || num_ready_ >= num_layers; });
  return num_ready_ >= num_layers;
}

bool LayeredLoad::finish(Seconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, wait, [&] { return ended_; });
}

void LayeredLoad::cancel() {
  std::unique_lock<std::mutex> lock(mutex_);
  store_relaxed(cancelled_, true);
  changed_.notify_all();
  changed_.wait(lock, [&] { return ended_; });  // as long as one piece takes
}

}  // namespace kvext
