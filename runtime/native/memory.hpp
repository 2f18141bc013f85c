// What the parts of the module have in common.
#pragma once

#include <atomic>
#include <chrono>

#include <nanobind/nanobind.h>

namespace nb = nanobind;

enum Status { DONE, DROPPED, WRONG_KEY, OUT_OF_RANGE, FORBIDDEN, OWNER_LOST, STOPPED, LATE, FAILED };

struct Outcome {
    Status status = DONE;
    int error = 0;
};

// On the clock of Python's time.monotonic.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Set by whoever no longer wants a transfer.
class Stop {
  public:
    void set() { set_.store(true, std::memory_order_relaxed); }
    bool is_set() const { return set_.load(std::memory_order_relaxed); }

  private:
    std::atomic<bool> set_{false};
};

// Waits until a socket can be used for `events`; its peer must do something within `idle` seconds.
Outcome wait_for(int fd, short events, double idle, double deadline);

void add_streams(nb::module_ &module);
void add_zero_copy(nb::module_ &module);
void add_ucx(nb::module_ &module);
