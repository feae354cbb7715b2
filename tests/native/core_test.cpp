// The core's own test, run under AddressSanitizer and UndefinedBehaviorSanitizer (test_sanitizers.py).
// usage: core_test REGION_FILE   (an empty file of the region's size)
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "bytes.hpp"
#include "chain.hpp"
#include "engine_memory.hpp"
#include "fault.hpp"
#include "layered.hpp"
#include "sha256.hpp"

using namespace kvext;

namespace {

constexpr u64 kSmallRegion = kTablesAt + 3 * kPage + 2 * 16384;  // two extents

void sha256_of_known_messages() {
  auto hex = [](const Digest& d) {
    std::string s;
    char two[3];
    for (u8 b : d) std::snprintf(two, sizeof two, "%02x", b), s += two;
    return s;
  };
  const u8 abc[] = {'a', 'b', 'c'};
  CHECK(hex(sha256_short(abc, 3)) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256_short(abc, 0)) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

void chain_goes_on_from_its_last_link() {
  const u8 root[32] = {7}, name_space[32] = {9};
  const u32 first[kChainTokens] = {1, 2, 0xffffffff}, second[kChainTokens] = {3};
  u8 message[32 + sizeof first], named[64];
  std::memcpy(message, root, 32);
  std::memcpy(message + 32, first, sizeof first);
  Chain chain{std::span<const u8, 32>(root)};
  CHECK(chain.advance(first) == sha256_short(message, sizeof message));
  std::memcpy(named, name_space, 32);
  std::memcpy(named + 32, chain.link().data(), 32);
  CHECK(chain.key(name_space) == sha256_short(named, sizeof named));
  Chain later{std::span<const u8, 32>(chain.link())};
  CHECK(later.advance(second) == chain.advance(second) && later.key(name_space) == chain.key(name_space));
}

void streaming_copy_at_every_alignment() {
  std::vector<u8> from(33000), to(33200);
  for (u64 i = 0; i < from.size(); ++i) from[i] = static_cast<u8>(i * 37 ^ i >> 8);
  for (u64 shift = 0; shift < 70; ++shift)
    for (u64 n : {0, 1, 63, 64, 255, 256, 257, 2900, 8191, 8260, 16384, 16600, 32768}) {
      std::fill(to.begin(), to.end(), u8{0xee});
      byte_ops().stream_copy(to.data() + shift, from.data() + shift % 5, n);
      stream_fence();
      CHECK(std::equal(to.begin() + shift, to.begin() + shift + n, from.begin() + shift % 5));
      CHECK(to[shift + n] == 0xee && (shift == 0 || to[shift - 1] == 0xee));
    }
}

void geometry_fits_or_is_refused() {
  for (u64 region : {kTablesAt, u64{1} << 18, u64{1} << 20, u64{300} << 20})
    for (u64 extent : {u64{1}, u64{4096}, u64{15000}, u64{1} << 20}) {
      try {
        const Geometry g = plan_geometry(region, extent);
        CHECK(g.num_extents > 0 && g.payload_at + g.num_extents * g.extent_bytes <= region);
        CHECK(g.num_slots >= 2 * g.num_extents && g.extent_bytes >= extent);
      } catch (const Fault& fault) {
        CHECK(fault.kind == "geometry");
      }
    }
}

// One "process": its own attachment; stores, reads and verifies random blocks of a small key space.
void work(const char* path, u64 seed, std::atomic<u64>& loads) {
  Pool pool(path, kRecord, "worker", Seconds(5));
  Memory memory;
  std::mt19937_64 random(seed);
  for (int step = 0; step < 1500; ++step) {
    const u64 n = random() % 120;
    const Key key = key_of(n);
    if (random() % 2) {
      memory.write(0, n);
      const u64 block = 0;
      StoreOutcome outcome{};
      pool.store(&key, 1, kShape, kNamespace, memory.pages, &block, &outcome);
      CHECK(outcome == StoreOutcome::stored || outcome == StoreOutcome::exists || outcome == StoreOutcome::no_space);
    } else {
      BlockRef ref{};
      u64 epoch = 0;
      if (pool.match(&key, 1, kShape, &ref, epoch) == 0) continue;
      const u64 block = 1;
      LoadOutcome outcome{};
      pool.load(&ref, 1, memory.pages, &block, true, &outcome);
      CHECK(outcome == LoadOutcome::loaded && memory.holds(1, n));
      pool.unpin(&ref, 1, epoch);
      ++loads;
    }
    if (step % 200 == 199) pool.clear(nullptr);
  }
}

void many_threads_with_their_own_attachments(const char* path) {
  std::atomic<u64> loads{0};
  std::vector<std::thread> threads;
  for (u64 seed = 1; seed <= 4; ++seed) threads.emplace_back(work, path, seed, std::ref(loads));
  for (auto& thread : threads) thread.join();
  CHECK(loads > 100);
  Pool pool(path, kRecord, "after", Seconds(5));
  const PoolStat stat = pool.stat();
  CHECK(stat.num_pinned == 0 && stat.num_reserved == 0 && stat.num_quarantined == 0);
  CHECK(stat.num_free + stat.num_committed == stat.num_extents);
  CHECK(pool.namespaces().at(0).num_extents == stat.num_committed);
}

// Blocks of one process are evicted and loaded by others in a pool of two extents: whatever is said to be
// loaded has the key's own bytes even without a checksum, and what is pinned can always be loaded.
void loads_race_with_evictions(const char* path) {
  std::atomic<bool> stop{false};
  std::thread evictor([&] {
    Pool pool(path, kRecord, "evictor", Seconds(5));
    Memory memory;
    for (u64 n = 0; n < 8; ++n) memory.write(n, n);
    for (u64 n = 0; !stop; n = (n + 1) % 8) {
      const Key key = key_of(n);
      StoreOutcome outcome{};
      pool.store(&key, 1, kShape, kNamespace, memory.pages, &n, &outcome);
    }
  });
  Pool pool(path, kRecord, "reader", Seconds(5));
  Memory memory;
  u64 pinned_loads = 0, loads_of_old = 0;
  BlockRef old[8]{};
  for (u64 round = 0; pinned_loads < 3000 || loads_of_old < 20; ++round) {
    const u64 n = round % 8, block = 3;
    const Key key = key_of(n);
    LoadOutcome outcome{};
    if (old[n].generation != 0) {
      pool.load(&old[n], 1, memory.pages, &block, false, &outcome);
      CHECK(outcome == LoadOutcome::stale || memory.holds(block, n));
      loads_of_old += outcome == LoadOutcome::loaded;
    }
    BlockRef ref{};
    u64 epoch = 0;
    if (pool.match(&key, 1, kShape, &ref, epoch) == 0) continue;
    pool.load(&ref, 1, memory.pages, &block, false, &outcome);
    CHECK(outcome == LoadOutcome::loaded && memory.holds(block, n));
    pool.unpin(&ref, 1, epoch);
    old[n] = ref;
    ++pinned_loads;
  }
  stop = true;
  evictor.join();
}

// A reader uses each layer as soon as it may; every third load is cut short, at whatever point that is.
void layers_are_whole_before_they_are_told(const char* path) {
  Pool pool(path, kRecord, "layers", Seconds(5));
  Memory memory;
  constexpr u64 kHalf = kBlocks / 2;
  std::vector<Key> keys;
  std::vector<u64> from, to;
  for (u64 n = 0; n < kHalf; ++n) memory.write(n, n), keys.push_back(key_of(7000 + n)), from.push_back(n), to.push_back(kHalf + n);
  StoreOutcome stored[kHalf];
  pool.store(keys.data(), kHalf, kShape, kNamespace, memory.pages, from.data(), stored);
  std::vector<BlockRef> refs(kHalf);
  u64 epoch = 0;
  CHECK(pool.match(keys.data(), kHalf, kShape, refs.data(), epoch) == kHalf);
  for (u64 round = 0; round < 300; ++round) {
    for (auto& layer : memory.layers) std::fill(layer.begin() + kHalf * kPiece, layer.end(), u8{0xee});
    LayeredLoad load(pool, refs, memory.pages, to);
    if (round % 3 == 2) {
      load.cancel();
      CHECK(load.finish(Seconds(0)));
      continue;
    }
    for (u64 l = 0; l < kLayers; ++l) {
      CHECK(load.is_in_place(l + 1) || load.wait(l + 1, Seconds(60)));
      CHECK(std::equal(memory.layers[l].begin(), memory.layers[l].begin() + kHalf * kPiece, memory.layers[l].begin() + kHalf * kPiece));
    }
    CHECK(load.finish(Seconds(60)) && load.outcomes() == std::vector<LoadOutcome>(kHalf, LoadOutcome::loaded));
  }
  pool.unpin(refs.data(), kHalf, epoch);
}

// Twenty turnovers of a half-full table: tombstones must not silt it up.
void table_keeps_free_slots(const char* path) {
  Pool pool(path, 64, "churn", Seconds(5));
  std::mt19937_64 random(7);
  const u64 capacity = pool.stat().num_extents;
  for (u64 i = 0; i < 20 * capacity; ++i) {
    const Key key{{random(), random(), 1, 2}};
    const auto made = pool.reserve(key, kShape, 64, kNamespace);
    CHECK(made.outcome == StoreOutcome::stored && pool.commit(made.ref, 0) == StoreOutcome::stored);
  }
  Region region{path};
  u64 num_free = 0;
  for (u64 at = 0; at < region.geometry().num_slots; ++at) num_free += state_of(region.slot(at).state) == SlotState::free;
  CHECK(num_free > region.geometry().num_slots / 7);
}

// A death inside the lock, played: the marks that it leaves are set by hand, and the next user mends them.
void recovery_rebuilds_the_free_list(const char* path) {
  {
    Pool pool(path, kRecord, "before", Seconds(5));
    pool.clear(nullptr);
    Memory memory;
    const Key keys[2] = {key_of(1), key_of(2)};
    const u64 blocks[2] = {0, 1};
    StoreOutcome outcomes[2];
    pool.store(keys, 2, kShape, kNamespace, memory.pages, blocks, outcomes);
    CHECK(outcomes[0] == StoreOutcome::stored && outcomes[1] == StoreOutcome::stored);
  }
  try {
    Region{path}.super().lock_holder = 1;
    Pool too_large(path, 1 << 30, "refused", Seconds(5));
    CHECK(false);
  } catch (const Fault& fault) {
    CHECK(fault.kind == "extent_size" || fault.kind == "geometry");
  }
  Region region{path};
  region.super().lock_holder = 1;
  region.super().free_head = 0;  // the whole free list is lost
  region.super().num_free = 0;
  for (u64 at = 0; at < region.geometry().num_slots; ++at) {
    Slot& s = region.slot(at);
    if (s.key == key_of(1) && state_of(s.state) == SlotState::committed) s.state = state_word(SlotState::evicting, generation_of(s.state));
  }
  Pool pool(path, kRecord, "after", Seconds(5));
  const PoolStat stat = pool.stat();
  CHECK(stat.counters[recoveries] == 2);
  CHECK(pool.namespaces().at(0).num_extents == 2);
  CHECK(stat.num_committed == 2 && stat.num_free == stat.num_extents - 2);
  u8 found[2];
  const Key keys[2] = {key_of(1), key_of(2)};
  CHECK(pool.lookup(keys, 2, kShape, found) == 2);
}

}  // namespace

int main(int, char** argv) {
  sha256_of_known_messages();
  chain_goes_on_from_its_last_link();
  streaming_copy_at_every_alignment();
  geometry_fits_or_is_refused();
  Region::initialise(argv[1], 30000);
  table_keeps_free_slots(argv[1]);
  Region::initialise(argv[1], 30000);
  many_threads_with_their_own_attachments(argv[1]);
  recovery_rebuilds_the_free_list(argv[1]);
  layers_are_whole_before_they_are_told(argv[1]);
  CHECK(::truncate(argv[1], static_cast<off_t>(kSmallRegion)) == 0);
  Region::initialise(argv[1], 30000);
  loads_race_with_evictions(argv[1]);
  std::puts("ok");
}
