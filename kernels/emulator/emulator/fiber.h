// One emulated core's thread of control. Fibers hand over explicitly, so one core runs at a time
// and an interleaving is a pure function of the seed.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

// A stack with an unmapped page below it, so that overflow faults and damages nothing.
class FiberStack {
 public:
  explicit FiberStack(size_t bytes) : bytes_(bytes), page_(static_cast<size_t>(getpagesize())) {
    map_ =
        mmap(nullptr, bytes_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(map_, page_, PROT_NONE);
  }
  ~FiberStack() { munmap(map_, bytes_ + page_); }
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  void* base() const { return static_cast<char*>(map_) + page_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  size_t page_;
  void* map_;
};

// Runs `body` on its own stack. Resume() returns when the body suspends or ends. The body must
// not let an exception out.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body) : body_(std::move(body)), stack_(kStackBytes) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.base();
    context_.uc_stack.ss_size = stack_.bytes();
    context_.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::Enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self & 0xffffffffu));
  }

  bool done() const { return done_; }

  void Resume() { Switch(&resumer_, &context_, stack_.base(), stack_.bytes(), false); }

  // Called on this fiber's stack: back to Resume().
  void Suspend() { Switch(&context_, &resumer_, resumer_stack_, resumer_bytes_, done_); }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kStackBytes = 1024 * 1024;
#else
  static constexpr size_t kStackBytes = 256 * 1024;
#endif

  static void Enter(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low);
    self->Arrived(nullptr);
    self->body_();
    self->done_ = true;
    self->Suspend();
  }

  void Switch(ucontext_t* from, ucontext_t* to, const void* to_stack, size_t to_bytes,
              bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, to_stack, to_bytes);
    swapcontext(from, to);
    if (from == &context_) {
      Arrived(fake_stack);
    } else {
      __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
    }
#else
    static_cast<void>(to_stack);
    static_cast<void>(to_bytes);
    static_cast<void>(for_good);
    swapcontext(from, to);
#endif
  }

  // The address sanitizer must be told which stack it left.
  void Arrived(void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, &resumer_stack_, &resumer_bytes_);
#else
    static_cast<void>(fake_stack);
#endif
  }

  std::function<void()> body_;
  FiberStack stack_;
  ucontext_t context_{};
  ucontext_t resumer_{};
  const void* resumer_stack_ = nullptr;
  size_t resumer_bytes_ = 0;
  bool done_ = false;
};

}  // namespace emulator
