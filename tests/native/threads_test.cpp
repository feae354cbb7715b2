// Many threads on one handle of a pool, and on several, run under ThreadSanitizer and the others
// (test_sanitizers.py). Only what is pinned is loaded here: a load without a pin races with writers by
// design, notices it afterwards, and would be reported.
// ThreadSanitizer knows a word by its address, two handles map the region at two addresses, and the lock
// between processes is the kernel's: it can judge the threads of one handle only.
// usage: threads_test REGION_FILE   (an empty file of the region's size)
#include <atomic>
#include <random>
#include <thread>

#include "atomics.hpp"
#include "engine_memory.hpp"
#include "fault.hpp"

using namespace kvext;

namespace {

constexpr u64 kKeys = 40;  // more than the region has extents
constexpr u64 kRounds = 800;
constexpr u64 kLease_ms = 200;

struct Tally {
  std::atomic<u64> loads{0}, stores{0}, fenced{0};
};

void store(Pool& pool, Memory& memory, u64 n, Tally& tally) {
  const Key keys[2] = {key_of(n), key_of((n + 1) % kKeys)};
  const u64 blocks[2] = {0, 1};
  StoreOutcome outcomes[2];
  memory.write(0, n);
  memory.write(1, (n + 1) % kKeys);
  pool.store(keys, 2, kShape, kNamespace, memory.pages, blocks, outcomes);
  for (const StoreOutcome outcome : outcomes) {
    CHECK(outcome == StoreOutcome::stored || outcome == StoreOutcome::exists || outcome == StoreOutcome::no_space ||
          outcome == StoreOutcome::fenced || outcome == StoreOutcome::lock_timeout);
    tally.stores += outcome == StoreOutcome::stored;
    tally.fenced += outcome == StoreOutcome::fenced;
  }
}

void load(Pool& pool, Memory& memory, u64 n, bool verify, Tally& tally) {
  const Key key = key_of(n);
  const u64 block = 2;
  BlockRef ref{};
  u64 epoch = 0;
  if (pool.match(&key, 1, kShape, &ref, epoch) == 0) return;
  LoadOutcome outcome{};
  pool.load(&ref, 1, memory.pages, &block, verify, &outcome);
  CHECK(outcome == LoadOutcome::loaded || (outcome == LoadOutcome::stale && pool.epoch() != epoch));
  if (outcome == LoadOutcome::loaded) CHECK(memory.holds(block, n));
  pool.unpin(&ref, 1, epoch);
  ++tally.loads;
}

void fill(Pool& pool, u64 n, bool keep) {
  const auto made = pool.reserve(key_of(n), kShape, kRecord, kNamespace);
  if (made.outcome != StoreOutcome::stored) return;
  Memory memory;
  memory.write(0, n);
  std::vector<u8> record;
  for (const auto& layer : memory.layers) record.insert(record.end(), layer.begin(), layer.begin() + kPiece);
  const auto checksum = pool.fill(made.ref, record);
  if (checksum && keep)
    pool.commit(made.ref, *checksum);
  else
    pool.abort(made.ref);
}

void administer(Pool& pool, u64 round) {
  const u8 other[32] = {2};
  switch (round % 8) {
    case 0: pool.stat(); break;
    case 1: pool.reap(); break;
    case 2: pool.namespaces(); break;
    case 3: CHECK(pool.records(0).keys.size() <= pool.num_extents()); break;
    case 4: pool.describe_namespace(kNamespace, "threads", other); break;
    case 5: pool.claim_agent_role() ? pool.release_agent_role() : void(); break;
    case 6: pool.set_quarantine(other, round % 16 == 6); break;
    default: CHECK(pool.num_free() <= pool.num_extents()); break;
  }
}

void evict_some(Pool& pool, u64 n) {
  const Key key = key_of(n);
  BlockRef ref{};
  u64 epoch = 0;
  if (pool.match(&key, 1, kShape, &ref, epoch) == 0) return;
  pool.unpin(&ref, 1, epoch);
  pool.evict(&ref, 1);
}

void everything(Pool& pool, u64 seed, Tally& tally) {
  Memory memory;
  std::mt19937_64 random(seed);
  for (u64 round = 0; round < kRounds; ++round) {
    const u64 n = random() % kKeys;
    switch (random() % 8) {
      case 0:
      case 1: store(pool, memory, n, tally); break;
      case 2: fill(pool, n, random() % 2); break;
      case 3: evict_some(pool, n); break;
      case 4: administer(pool, random()); break;
      default: load(pool, memory, n, random() % 2, tally); break;
    }
  }
}

void run_threads(std::vector<Pool*> pools, u64 threads_each, Tally& tally) {
  std::vector<std::thread> threads;
  for (u64 i = 0; i < pools.size() * threads_each; ++i)
    threads.emplace_back([&, i] { everything(*pools[i % pools.size()], i + 1, tally); });
  for (auto& thread : threads) thread.join();
}

void check_whole(Pool& pool) {
  pool.reap();
  const PoolStat stat = pool.stat();
  CHECK(stat.num_pinned == 0 && stat.num_reserved == 0 && stat.num_quarantined == 0 && stat.num_limbo == 0);
  CHECK(stat.num_free + stat.num_committed == stat.num_extents);
  CHECK(pool.fsck(false, true).problems.empty());
}

void threads_of_one_handle(const char* path) {
  Pool pool(path, kRecord, "one", Seconds(5));
  Tally tally;
  run_threads({&pool}, 4, tally);
  CHECK(tally.loads > 50 && tally.stores > 50);
  check_whole(pool);
}

void threads_of_several_handles(const char* path) {
  Pool one(path, kRecord, "one", Seconds(5)), two(path, kRecord, "two", Seconds(5)), three(path, kRecord, "three", Seconds(5));
  Tally tally;
  run_threads({&one, &two, &three}, 2, tally);
  CHECK(tally.loads > 50 && tally.stores > 50);
  check_whole(two);
}

// Somebody fences the handle again and again while its threads work: each time it enters anew, and none of
// its copies still runs when what it held is given back.
void threads_of_a_handle_that_is_fenced(const char* path) {
  Pool pool(path, kRecord, "fenced", Seconds(5));
  std::atomic<bool> stop{false};
  std::thread saboteur([&] {
    Region region{path};
    for (u64 last = 0; !stop; std::this_thread::yield()) {
      const u64 epoch = load_acquire(region.process(0).epoch);
      if (epoch != last && epoch != 0 && swap_if(region.process(0).epoch, epoch, u64{0})) last = epoch;
    }
  });
  Tally tally;
  const u64 before = pool.epoch();
  for (int tries = 0; tries < 100 && pool.epoch() < before + 100; ++tries) run_threads({&pool}, 4, tally);
  stop = true;
  saboteur.join();
  CHECK(pool.epoch() >= before + 100);
  Memory memory;
  store(pool, memory, 1, tally);  // comes back once more
  check_whole(pool);
}

}  // namespace

int main(int, char** argv) {
  Region::initialise(argv[1], kLease_ms);
  threads_of_one_handle(argv[1]);
#ifndef __SANITIZE_THREAD__
  threads_of_several_handles(argv[1]);
  threads_of_a_handle_that_is_fenced(argv[1]);
#endif
  std::puts("ok");
}
