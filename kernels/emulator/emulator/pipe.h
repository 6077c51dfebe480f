// TPipe, TQue, TQueBind and TBuf: UB memory and the synchronisation that queues give.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "emulator/core.h"
#include "emulator/tensor.h"
#include "emulator/types.h"

namespace emulator {

// A queue between a producing and a consuming pipe. EnQue and DeQue order the consumer after the
// producer, FreeTensor and AllocTensor the producer after the consumer; nothing else is ordered.
class Queue {
 public:
  Queue(AscendC::TPosition position, int depth, AscendC::HardEvent filled,
        AscendC::HardEvent emptied)
      : position_(position), depth_(depth), filled_(filled), emptied_(emptied) {}

  void Init(uint8_t num, uint32_t bytes) {
    Core& core = Core::Current();
    core.Enter("TPipe::InitBuffer");
    if (num == 0) core.Fail("`num` must be above zero");
    if (!buffers_.empty()) core.Fail("`que` already has its buffers");
    for (int i = 0; i < num; ++i) {
      QueueBuffer buffer;
      buffer.offset = core.AllocUb(bytes);
      buffer.bytes = static_cast<uint32_t>(RoundUp(bytes, kBlockBytes));
      buffer.position = position_;
      buffers_.push_back(static_cast<int>(core.queue_buffers().size()));
      core.queue_buffers().push_back(buffer);
    }
  }

  UbView Alloc() {
    Core& core = Core::Current();
    core.Enter("TQue::AllocTensor");
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const int index = buffers_[(next_ + i) % buffers_.size()];
      QueueBuffer& buffer = At(core, index);
      if (buffer.state != QueueBuffer::State::kIdle) continue;
      if (++core.allocated(position_) > kMaxAllocated) {
        core.Fail(Concat({"at most ", kMaxAllocated, " tensors of one position may be allocated"}));
      }
      next_ = (next_ + i + 1) % buffers_.size();
      if (buffer.freed_event >= 0) core.WaitQueueFlag(emptied_, buffer.freed_event);
      buffer.freed_event = -1;
      buffer.state = QueueBuffer::State::kAllocated;
      core.Forget(buffer.offset, buffer.bytes);
      return ViewOf(buffer, index);
    }
    core.Fail("no buffer of the queue is idle, so this waits for ever");
  }

  void Enqueue(const UbView& view) {
    Core& core = Core::Current();
    core.Enter("TQue::EnQue");
    QueueBuffer& buffer = Owned(core, view);
    if (buffer.state == QueueBuffer::State::kQueued) core.Fail("`tensor` is already enqueued");
    if (static_cast<int>(waiting_.size()) >= depth_) {
      core.Fail(Concat({"the queue's depth is ", depth_, ", and as many tensors are enqueued"}));
    }
    buffer.queued_event = core.SetQueueFlag(filled_);
    buffer.state = QueueBuffer::State::kQueued;
    waiting_.push_back(view.buffer);
  }

  UbView Dequeue() {
    Core& core = Core::Current();
    core.Enter("TQue::DeQue");
    if (waiting_.empty()) core.Fail("the queue is empty, so this waits for ever");
    const int index = waiting_.front();
    waiting_.pop_front();
    QueueBuffer& buffer = At(core, index);
    core.WaitQueueFlag(filled_, buffer.queued_event);
    buffer.state = QueueBuffer::State::kDequeued;
    return ViewOf(buffer, index);
  }

  void Free(const UbView& view) {
    Core& core = Core::Current();
    core.Enter("TQue::FreeTensor");
    QueueBuffer& buffer = Owned(core, view);
    if (buffer.state == QueueBuffer::State::kQueued) core.Fail("`tensor` is still enqueued");
    buffer.freed_event = core.SetQueueFlag(emptied_);
    buffer.state = QueueBuffer::State::kIdle;
    ++buffer.generation;
    --core.allocated(position_);
  }

  bool HasIdleBuffer() const {
    Core& core = Core::Current();
    for (const int index : buffers_) {
      if (At(core, index).state == QueueBuffer::State::kIdle) return true;
    }
    return false;
  }
  bool HasTensor() const { return !waiting_.empty(); }

 private:
  static QueueBuffer& At(Core& core, int index) {
    return core.queue_buffers()[static_cast<size_t>(index)];
  }
  static UbView ViewOf(const QueueBuffer& buffer, int index) {
    UbView view;
    view.offset = buffer.offset;
    view.bytes = buffer.bytes;
    view.buffer = index;
    view.generation = buffer.generation;
    view.position = buffer.position;
    view.valid = true;
    return view;
  }
  QueueBuffer& Owned(Core& core, const UbView& view) const {
    CheckLive(core, "tensor", view);
    for (const int index : buffers_) {
      if (index == view.buffer) return At(core, index);
    }
    core.Fail("`tensor` doesn't come from this queue");
  }

  AscendC::TPosition position_;
  int depth_;
  AscendC::HardEvent filled_;
  AscendC::HardEvent emptied_;
  std::vector<int> buffers_;
  std::deque<int> waiting_;
  size_t next_ = 0;
};

}  // namespace emulator

namespace AscendC {

// `source` VECIN to `target` VECOUT passes through UB untouched: MTE2 fills, MTE3 empties.
template <TPosition source, TPosition target, int32_t depth, auto mask = 0>
class TQueBind {
 public:
  template <typename T>
  LocalTensor<T> AllocTensor() {
    return LocalTensor<T>(queue_.Alloc());
  }
  template <typename T>
  bool EnQue(const LocalTensor<T>& tensor) {
    queue_.Enqueue(tensor.view);
    return true;
  }
  template <typename T>
  LocalTensor<T> DeQue() {
    return LocalTensor<T>(queue_.Dequeue());
  }
  template <typename T>
  void FreeTensor(LocalTensor<T>& tensor) {
    queue_.Free(tensor.view);
  }
  bool HasIdleBuffer() const { return queue_.HasIdleBuffer(); }
  bool HasTensorInQue() const { return queue_.HasTensor(); }

 private:
  friend class TPipe;
  static constexpr bool kIn = source == TPosition::GM && target == TPosition::VECIN;
  static constexpr bool kOut = source == TPosition::VECOUT && target == TPosition::GM;
  static constexpr bool kThrough = source == TPosition::VECIN && target == TPosition::VECOUT;
  static_assert(kIn || kOut || kThrough, "a queue is VECIN, VECOUT, or binds VECIN to VECOUT");

  emulator::Queue queue_{
      kOut ? TPosition::VECOUT : TPosition::VECIN, depth,
      kIn ? HardEvent::MTE2_V : (kOut ? HardEvent::V_MTE3 : HardEvent::MTE2_MTE3),
      kIn ? HardEvent::V_MTE2 : (kOut ? HardEvent::MTE3_V : HardEvent::MTE3_MTE2)};
};

template <TPosition position, int32_t depth, auto mask = 0>
class TQue : public TQueBind<position == TPosition::VECIN ? TPosition::GM : position,
                             position == TPosition::VECIN ? position : TPosition::GM, depth, mask> {
  static_assert(position == TPosition::VECIN || position == TPosition::VECOUT,
                "a TQue is at VECIN or VECOUT; VECCALC memory is a TBuf");
};

// Memory without synchronisation of its own.
template <TPosition position = TPosition::VECCALC>
class TBuf {
 public:
  template <typename T>
  LocalTensor<T> Get() {
    return LocalTensor<T>(view_);
  }
  template <typename T>
  LocalTensor<T> Get(uint32_t len) {
    return GetWithOffset<T>(len, 0);
  }
  // `size` counts elements, `bufOffset` bytes.
  template <typename T>
  LocalTensor<T> GetWithOffset(uint32_t size, uint32_t bufOffset) {
    emulator::Core& core = emulator::Core::Current();
    core.Enter("TBuf::Get");
    emulator::CheckLive(core, "this", view_);
    const uint64_t end = bufOffset + static_cast<uint64_t>(size) * sizeof(T);
    if (end > view_.bytes) {
      core.Fail(emulator::Concat(
          {"the buffer has ", view_.bytes, " bytes, but ", end, " are asked for"}));
    }
    emulator::UbView part = view_;
    part.offset += bufOffset;
    part.bytes = size * static_cast<uint32_t>(sizeof(T));
    return LocalTensor<T>(part);
  }

 private:
  friend class TPipe;
  emulator::UbView view_;
};

class TPipe {
 public:
  TPipe() {
    emulator::Core& core = emulator::Core::Current();
    core.Enter("TPipe");
    if (core.pipe_object != nullptr) core.Fail("a kernel may have one TPipe at a time");
    core.pipe_object = this;
    core.ResetUb();
  }
  ~TPipe() { emulator::Core::Current().pipe_object = nullptr; }
  TPipe(const TPipe&) = delete;
  TPipe& operator=(const TPipe&) = delete;

  template <TPosition source, TPosition target, int32_t depth, auto mask>
  bool InitBuffer(TQueBind<source, target, depth, mask>& que, uint8_t num, uint32_t len) {
    que.queue_.Init(num, len);
    return true;
  }
  template <TPosition position>
  bool InitBuffer(TBuf<position>& buf, uint32_t len) {
    emulator::Core& core = emulator::Core::Current();
    core.Enter("TPipe::InitBuffer");
    buf.view_.offset = core.AllocUb(len);
    buf.view_.bytes = static_cast<uint32_t>(emulator::RoundUp(len, emulator::kBlockBytes));
    buf.view_.position = position;
    buf.view_.valid = true;
    core.Forget(buf.view_.offset, buf.view_.bytes);
    return true;
  }

  template <HardEvent event>
  TEventID AllocEventID() {
    emulator::Core::Current().Enter("TPipe::AllocEventID");
    return static_cast<TEventID>(emulator::Core::Current().AllocEventId(event));
  }
  template <HardEvent event>
  void ReleaseEventID(TEventID id) {
    emulator::Core::Current().Enter("TPipe::ReleaseEventID");
    emulator::Core::Current().ReleaseEventId(event, id);
  }
  // An id that is free now; it stays free, so set and wait before anything else takes one.
  TEventID FetchEventID(HardEvent event) {
    emulator::Core::Current().Enter("TPipe::FetchEventID");
    return static_cast<TEventID>(emulator::Core::Current().FreeEventId(event));
  }
  template <HardEvent event>
  TEventID FetchEventID() {
    return FetchEventID(event);
  }
};

}  // namespace AscendC

inline AscendC::TPipe* GetTPipePtr() {
  return static_cast<AscendC::TPipe*>(emulator::Core::Current().pipe_object);
}
