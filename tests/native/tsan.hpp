// Included before everything in the build for ThreadSanitizer, which does not know pthread_mutex_clocklock
// and takes a mutex that was locked by it for an unlocked one. Without it, libstdc++ uses
// pthread_mutex_timedlock.
#pragma once
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
